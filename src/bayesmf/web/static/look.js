// A user, an item: what is known of one of them.

import { api } from "./api.js";
import { inWords, intervalBar, axis, scaleOf, shareBar } from "./bars.js";
import { columnChart } from "./charts.js";
import {
  asGiven, facts, fill, fixed, h, latest, nameOf, note, notesOf, percent, plural, problem, table, userName, whole,
} from "./dom.js";
import { recommended } from "./rows.js";
import { search } from "./search.js";

const NEIGHBOURS = 8;
const RATINGS = 8;
const LISTED = 10;

export function lookView(card) {
  const scale = scaleOf(card.data);
  const next = latest();
  const place = h("div.found", { "aria-live": "off" });
  const finder = search({
    label: "Find an item",
    hint: "By a part of its title, or by its id.",
    onPick: (item) => go("item", item.item),
  });

  async function show({ user, item }) {
    const signal = next();
    if (user === undefined && item === undefined) {
      fill(place, h("p.empty", {}, "Choose a user or an item above."));
      return "A user, an item";
    }
    place.setAttribute("aria-busy", "true");
    fill(place, h("p.loading", {}, "Looking …"));
    let title = user === undefined ? "An item" : userName(user);
    try {
      if (user === undefined) {
        const [about, similar] = await Promise.all([
          api.item(item, signal),
          api.similar(item, NEIGHBOURS, signal),
        ]);
        title = nameOf(about);
        fill(place, itemFound(about, similar, scale));
      } else {
        const about = await api.user(user, RATINGS, signal);
        const who = { user: about.user };
        const answer = await api.recommend({ ...who, n: LISTED, parts: true }, signal);
        fill(place, userFound(about, answer, { scale, card, who }));
      }
    } catch (error) {
      if (error.name === "AbortError") return null;
      fill(place, problem(error, () => show({ user, item })));
    }
    place.removeAttribute("aria-busy");
    return title;
  }

  const element = h(
    "section.look",
    { "aria-labelledby": "look-title" },
    h("h1", { id: "look-title", tabindex: "-1" }, "What is known of a user, or of an item"),
    h(
      "div.columns.even",
      {},
      h("div.card", {}, userForm(card)),
      h("div.card", {}, finder.element),
    ),
    place,
  );
  return { element, title: "A user, an item", show, renew: () => {} };
}

function go(kind, id) {
  location.hash = `#/${kind}/${encodeURIComponent(String(id))}`;
}

function userForm(card) {
  if (!card.data.holds_users) {
    return note(
      "mild",
      h("p", {}, "This model was saved without its users, so that nothing about any of them is here."),
      h("p", {}, "People can still be served: send their ratings with the question, as “Try it” does."),
    );
  }
  const input = h("input", {
    id: "user-id",
    type: "text",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
    "aria-describedby": "user-hint",
  });
  const look = (event) => {
    event.preventDefault();
    if (input.value.trim()) go("user", input.value.trim());
  };
  return h(
    "form.search",
    { onsubmit: look },
    h("label", { for: "user-id" }, "Find a user"),
    h("div.field-and-button", {}, input, h("button.main", { type: "submit" }, "Show")),
    h("p.hint", { id: "user-hint" }, `By id: one of the ${plural(card.data.users, "user")} that the model was learnt from.`),
  );
}

// -- an item ---------------------------------------------------------------------------------

function itemFound(about, similar, scale) {
  const extra = Object.entries(about.info ?? {}).filter(([, value]) => value !== null && value !== "");
  return [
    h("h2.found-title", {}, nameOf(about)),
    notesOf(about),
    h(
      "div.columns.even",
      {},
      h(
        "section.card",
        { "aria-labelledby": "item-stars" },
        h("h3", { id: "item-stars" }, "What somebody new would rate it"),
        h("p.say", {}, inWords({ ...about, unknown: null }, scale, about.level)),
        h("div.alone", {}, axis(scale), intervalBar(about, scale, about.level)),
        stars(about),
      ),
      h(
        "div.stack",
        {},
        h("section.card", { "aria-labelledby": "item-sure" }, h("h3", { id: "item-sure" }, "How sure is that?"), split(about)),
        h(
          "section.card",
          { "aria-labelledby": "item-facts" },
          h("h3", { id: "item-facts" }, "Facts"),
          facts([
            ["Id", String(about.item)],
            ["Ratings learnt from", whole(about.n_ratings)],
            ...extra.map(([name, value]) => [name, String(value)]),
          ]),
        ),
      ),
    ),
    h(
      "section.card",
      { "aria-labelledby": "item-near" },
      h("h3", { id: "item-near" }, "Liked by the same people"),
      neighbours(similar),
    ),
  ];
}

function stars(about) {
  if (!about.levels || !about.probabilities) return null;
  const names = about.levels.map(asGiven);
  const words = names.map((name, k) => `${name}: ${percent(about.probabilities[k])}`).join(", ");
  return [
    columnChart({
      label: `Probability of each rating. ${words}.`,
      names,
      shares: about.probabilities,
      xName: "rating by somebody nobody knows",
    }),
    table("Probability of each rating", ["Rating", "Probability"], names.map((name, k) => [name, percent(about.probabilities[k], 1)])),
  ];
}

function split(one) {
  const { unknown, noise } = one;
  if (unknown === null || unknown === undefined || noise === null || noise === undefined) {
    return h("p", {}, `A new rating is typically off by ${fixed(one.std)} (its standard deviation).`);
  }
  const share = unknown ** 2 / (unknown ** 2 + noise ** 2 || 1);
  const part = (name, value, of, kind, hint) =>
    h("div.part", {}, h("p", {}, h("strong", {}, `${name}: ± ${fixed(value)}`)), shareBar(of, 0, kind), h("p.hint", {}, hint));
  return [
    h(
      "p.say",
      {},
      `A new rating is typically off by ${fixed(one.std)}. ${percent(share)} of that, counted as variance, is what the model does not know of the person and the item; the other ${percent(1 - share)} is chance.`,
    ),
    part("Not known yet", unknown, share, "unknown", "The taste of somebody new, and what few ratings leave open about the item. More ratings take it away."),
    part("Noise", noise, 1 - share, "noise", "Moods and chance: the same person would not rate the same twice. No data takes it away."),
  ];
}

function neighbours(similar) {
  if (!similar.items.length) return h("p.empty", {}, "There is no other item.");
  return [
    h("p.hint", {}, "1 stands for two items that everybody likes alike, 0 for two that have nothing in common; the line shows how far that is known."),
    h(
      "ul.near",
      {},
      similar.items.map((one) =>
        h(
          "li",
          {},
          h("a", { href: `#/item/${encodeURIComponent(String(one.item))}` }, nameOf(one)),
          shareBar(one.similarity, one.std),
          h("span.n", {}, `${fixed(one.similarity)} ± ${fixed(one.std)}`),
        ),
      ),
    ),
    notesOf(similar),
  ];
}

// -- a user ----------------------------------------------------------------------------------

function userFound(about, answer, { scale, card, who }) {
  return [
    h("h2.found-title", {}, userName(about.user)),
    notesOf(about),
    h(
      "div.columns",
      {},
      h(
        "div.left",
        {},
        h(
          "section.card",
          { "aria-labelledby": "user-facts" },
          h("h3", { id: "user-facts" }, "Facts"),
          facts([
            ["Ratings learnt from", whole(about.n_ratings)],
            ["Mean rating", fixed(about.mean_rating)],
            ["Mean of everybody", fixed(card.data.mean)],
          ]),
          h("h3", {}, "How evenly they rate"),
          evenness(about.noise, card.noise),
        ),
        h(
          "section.card",
          { "aria-labelledby": "user-rated" },
          h("h3", { id: "user-rated" }, "Rated highest"),
          ratedList(about),
        ),
      ),
      h(
        "section.card",
        { "aria-labelledby": "user-list" },
        h("h3", { id: "user-list" }, "Recommended to them"),
        recommended(answer, { scale, who, yours: false }),
      ),
    ),
  ];
}

function evenness(own, usual) {
  const ratio = own / usual;
  const most = Math.max(own, usual);
  let words = "about as evenly as people do on average";
  if (ratio < 0.95) words = `more evenly than people do on average (${percent(1 - ratio)} less noise)`;
  if (ratio > 1.05) words = `less evenly than people do on average (${percent(ratio - 1)} more noise)`;
  const line = (name, value) =>
    h("li", {}, h("span.name", {}, name), shareBar(value / most), h("span.n", {}, `± ${fixed(value)}`));
  return [
    h("p.say", {}, `This person rates ${words}, so intervals are ${ratio > 1.05 ? "wider" : ratio < 0.95 ? "narrower" : "as wide as usual"}.`),
    h("ul.strip", {}, line("this person", own), line("on average", usual)),
  ];
}

function ratedList(about) {
  if (!about.ratings.length) return h("p.empty", {}, "No rating is kept of this person.");
  const more = about.n_ratings - about.ratings.length;
  return [
    h(
      "ul.rated",
      {},
      about.ratings.map((one) =>
        h(
          "li",
          {},
          h("a", { href: `#/item/${encodeURIComponent(String(one.item))}` }, nameOf(one)),
          h("span.n", {}, asGiven(one.rating)),
        ),
      ),
    ),
    more > 0 && h("p.hint", {}, `and ${plural(more, "more rating")}.`),
  ];
}
