// Facts about a user or an item.

import { api } from "./api.js";
import { inWords, intervalBar, axis, scaleOf, shareBar } from "./bars.js";
import { columnChart } from "./charts.js";
import {
  asGiven, facts, fill, fixed, h, latest, linkTo, nameOf, note, notesOf, percent, plural, plusMinus, problem, table,
  userName, whole, within,
} from "./dom.js";
import { recommended } from "./rows.js";
import { search } from "./search.js";

const NEIGHBOURS = 8;
const RATINGS = 8;
const LISTED = 10;
const EXAMPLES = 3;

export function lookView(card) {
  const next = latest();
  const place = h("div.found", {});
  const finder = search({
    label: "Find an item",
    hint: "By a part of its title, or by its id.",
    onPick: (item) => go("item", item.item),
  });
  const users = userForm(card);
  const popular = h("p.hint", { hidden: true });
  const cards = h(
    "div.columns.even",
    {},
    h("div.card", {}, users.element),
    h("div.card", {}, finder.element, popular),
  );
  const title = h("h1", { id: "look-title", tabindex: "-1" }, "A user or an item");
  let known = null; // a few items of the model, once requested

  async function someItems() {
    known ??= api.items("", EXAMPLES).then((answer) => answer.items);
    try {
      return await known;
    } catch {
      known = null; // no examples
      return [];
    }
  }

  // On a phone, the result comes before the search fields.
  function arrange(isFound) {
    if (isFound && matchMedia("(max-width: 40rem)").matches) place.after(cards);
    else title.after(cards);
  }

  async function show({ user, item }) {
    const signal = next();
    const isFound = user !== undefined || item !== undefined;
    arrange(isFound);
    for (const input of [users.input, finder.input]) input?.removeAttribute("aria-invalid");
    if (users.input) users.input.value = user ?? "";
    someItems().then((items) => showExamples(popular, items));
    if (!isFound) {
      const items = await someItems();
      if (signal.aborted) return null;
      fill(place, emptyState(card, items));
      return "A user, an item";
    }
    place.setAttribute("aria-busy", "true");
    fill(place, h("p.loading", {}, "Looking …"));
    let named = user === undefined ? "An item" : userName(user);
    try {
      if (user === undefined) named = await showItem(item, signal);
      else await showUser(user, signal);
    } catch (error) {
      if (error.name === "AbortError") return null;
      named = await showProblem(error, { user, item });
      if (signal.aborted) return null;
    }
    place.removeAttribute("aria-busy");
    return named;
  }

  async function showItem(item, signal) {
    const [about, similar] = await Promise.all([
      api.item(item, signal),
      api.similar(item, NEIGHBOURS, signal),
    ]);
    fill(place, itemFound(about, similar, card.data));
    return nameOf(about);
  }

  async function showUser(user, signal) {
    const about = await api.user(user, RATINGS, signal);
    const who = { user: about.user };
    const answer = await api.recommend({ ...who, n: LISTED, parts: true, likely: true }, signal);
    fill(place, userFound(about, answer, { card, who }));
  }

  async function showProblem(error, { user, item }) {
    if (error.status !== 404) {
      fill(place, problem(error, () => window.dispatchEvent(new Event("hashchange")))); // as on a new visit
      return "A user, an item";
    }
    arrange(false);
    const isUser = user !== undefined;
    (isUser ? users.input : finder.input)?.setAttribute("aria-invalid", "true");
    const example = isUser ? card.data.some_users[0] : (await someItems())[0]?.item;
    const looks = example === undefined ? "" : ` Ids look like ${example}.`;
    fill(place, note("bad", h("p", {}, `There is no ${isUser ? "user" : "item"} “${user ?? item}” in this model.${looks}`)));
    return "Not found";
  }

  // Move the focus to the result, or to the field to correct.
  function arrive() {
    const target = place.querySelector(".found-title") ?? cards.querySelector("[aria-invalid]") ?? title;
    target.focus();
  }

  const element = h("section.look", { "aria-labelledby": "look-title" }, title, cards, place);
  return { element, title: "A user, an item", show, arrive };
}

function go(kind, id) {
  location.hash = `#/${kind}/${encodeURIComponent(String(id))}`;
}

// Links with commas between them.
function listed(links) {
  return links.flatMap((link, k) => (k ? [", ", link] : [link]));
}

function showExamples(place, items) {
  place.hidden = !items.length;
  if (items.length) fill(place, "Most rated: ", listed(items.map((one) => linkTo("item", one.item, nameOf(one)))), `. Ids look like ${items[0].item}.`);
}

function emptyState(card, items) {
  const links = [
    ...card.data.some_users.slice(0, 1).map((user) => linkTo("user", user, String(user))),
    ...items.slice(0, 1).map((one) => linkTo("item", one.item, nameOf(one))),
  ];
  const such = links.length ? [", for instance ", links[0], links[1] && [" or ", links[1]]] : "";
  return h("p.empty", {}, "Choose a user or an item above", such, ".");
}

function userForm(card) {
  if (!card.data.holds_users) {
    const element = note(
      "mild",
      h("p", {}, "This model was saved without its users, so that nothing about any of them is here."),
      h("p", {}, "People can still be served: send their ratings with the question, as “Try it” does."),
    );
    return { element, input: null };
  }
  const input = h("input", {
    id: "user-id",
    type: "text",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
    "aria-describedby": "user-hint",
    oninput: () => input.removeAttribute("aria-invalid"),
  });
  const look = (event) => {
    event.preventDefault();
    if (input.value.trim()) go("user", input.value.trim());
  };
  const some = card.data.some_users.map((user) => linkTo("user", user, String(user)));
  const element = h(
    "form.search",
    { onsubmit: look },
    h("label", { for: "user-id" }, "Find a user"),
    h("div.field-and-button", {}, input, h("button.main", { type: "submit" }, "Show")),
    h("p.hint", { id: "user-hint" }, `By id: one of the ${plural(card.data.users, "user")} in the training data.`),
    some.length > 0 && h("p.hint", {}, "Ids look like ", listed(some), "."),
  );
  return { element, input };
}

// -- an item ---------------------------------------------------------------------------------

function itemFound(about, similar, data) {
  const scale = scaleOf(data, data.levels?.length > 1 ? 0.5 / (data.levels.length - 1) : undefined); // room for columns
  const extra = Object.entries(about.info ?? {}).filter(([, value]) => value !== null && value !== "");
  return [
    h("h2.found-title", { tabindex: "-1" }, nameOf(about)),
    notesOf(about),
    h(
      "div.columns.even",
      {},
      h(
        "section.card",
        { "aria-labelledby": "item-stars" },
        h("h3", { id: "item-stars" }, "What a new person would rate it"),
        h("p.say", {}, inWords(about, scale, null)),
        h("div.alone", {}, axis(scale), intervalBar(about, scale, null)),
        stars(about, scale),
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
            ["Ratings used", whole(about.n_ratings)],
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

function stars(about, scale) {
  if (!about.levels || !about.probabilities) return null;
  const names = about.levels.map(asGiven);
  const words = names.map((name, k) => `${name}: ${percent(about.probabilities[k])}`).join(", ");
  return [
    columnChart({
      label: `Probability of each rating. ${words}.`,
      names,
      places: about.levels.map(scale.at),
      shares: about.probabilities,
      xName: "rating by a new person",
    }),
    table("Probability of each rating", ["Rating", "Probability"], names.map((name, k) => [name, percent(about.probabilities[k], 1)])),
  ];
}

function split(one) {
  const { unknown, noise } = one;
  if (unknown === null || unknown === undefined || noise === null || noise === undefined) {
    return h("p", {}, `A new rating is off by at most ${fixed(within(one.std))}, 9 times in 10.`);
  }
  const share = unknown ** 2 / (unknown ** 2 + noise ** 2 || 1);
  const part = (name, value, of, kind, hint) =>
    h("div.part", {}, h("p", {}, h("strong", {}, `${name}: ${plusMinus(value)}`)), h("div.share-line", {}, shareBar(of, 0, kind), h("span.n", {}, percent(of))), h("p.hint", {}, hint));
  return [
    h(
      "p.say",
      {},
      `A new rating is off by at most ${fixed(within(one.std))}, 9 times in 10. ${percent(share)} of that is what the model does not know of the person and the item; the other ${percent(1 - share)} is chance.`,
    ),
    part("Uncertainty", unknown, share, "unknown", "About the taste of a new person, and about an item with few ratings. More ratings reduce it."),
    part("Noise", noise, 1 - share, "noise", "Moods and chance: the same person would not rate the same twice. No data takes it away."),
  ];
}

function neighbours(similar) {
  if (!similar.items.length) return h("p.empty", {}, "There is no other item.");
  return [
    h("p.hint", {}, "1 means two items that everyone likes equally, 0 two items with nothing in common; the line is the interval that holds 9 times in 10."),
    h(
      "ul.near",
      {},
      similar.items.map((one) =>
        h(
          "li",
          {},
          linkTo("item", one.item, nameOf(one)),
          shareBar(one.similarity, within(one.std)),
          h("span.n", {}, `${fixed(one.similarity)} ${plusMinus(one.std)}`),
        ),
      ),
    ),
    notesOf(similar),
  ];
}

// -- a user ----------------------------------------------------------------------------------

function userFound(about, answer, { card, who }) {
  return [
    h("h2.found-title", { tabindex: "-1" }, userName(about.user)),
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
            ["Ratings used", whole(about.n_ratings)],
            ["Mean rating", fixed(about.mean_rating)],
            ["Mean of everybody", fixed(card.data.mean)],
          ]),
          h("h3", {}, "How evenly they rate"),
          evenness(about.noise, about.usual_noise),
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
        recommended(answer, { scale: scaleOf(card.data), who, whose: "their" }),
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
    h("li", {}, h("span.name", {}, name), shareBar(value / most), h("span.n", {}, plusMinus(value)));
  return [
    h("p.say", {}, `This person rates ${words}, so intervals are ${ratio > 1.05 ? "wider" : ratio < 0.95 ? "narrower" : "as wide as usual"}. 9 in 10 ratings lie this near to what is predicted:`),
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
          linkTo("item", one.item, nameOf(one)),
          h("span.n", {}, asGiven(one.rating)),
        ),
      ),
    ),
    more > 0 && h("p.hint", {}, `and ${plural(more, "more rating")}.`),
  ];
}
