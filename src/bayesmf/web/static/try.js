// Try it: rate a few items, and see what is recommended, how surely, and why.

import { api } from "./api.js";
import { scaleOf } from "./bars.js";
import { announce, debounce, fill, fixed, h, latest, nameOf, plural, problem } from "./dom.js";
import { moves, policySwitch, tally } from "./policy.js";
import { drawRating, ratingField } from "./rate.js";
import { recommended } from "./rows.js";
import { search } from "./search.js";
import { howSure } from "./sure.js";

const SHOWN = 10;
const EXAMPLES = 5; // ratings of "Rate some for me"
const AMONG = 40; // the most rated items that these are chosen from
const DRAWS = 20;

export function tryView(card) {
  let mine = []; // {item, title, rating}, the rating null until it is given; in the order given
  let before = []; // earlier states, for "Undo"
  let policy = "mean";
  let last = null; // items of the list shown, where it is a draw
  const scale = scaleOf(card.data);
  const nextList = latest();
  const nextSure = latest();
  const sure = howSure();
  const first = tally();
  const rated = () => mine.filter((one) => one.rating !== null);
  const sent = () => rated().map(({ item, rating }) => ({ item, rating }));

  // -- ratings -------------------------------------------------------------------------------

  const list = h("ul.mine", { "aria-label": "Your ratings" });
  const empty = h("p.empty", {}, "Nothing rated yet. Find something above, or let us rate a few as an example.");
  const undo = h("button", { type: "button", onclick: undoLast }, "Undo");
  const reset = h("button", { type: "button", onclick: startOver }, "Start over");
  const some = h("button.main", { type: "button", onclick: rateSome }, "Rate some for me");
  const trouble = h("div", {});
  const finder = search({
    label: "Find something you know",
    hint: "Choose one, then rate it. The arrow keys go through the list.",
    onPick: add,
  });

  function change(to) {
    before.push(mine);
    become(to);
  }

  // What is chosen but not rated yet changes no answer.
  function become(to) {
    const asked = asText(sent());
    mine = to;
    showMine();
    if (asText(sent()) !== asked) soon();
  }

  function showMine() {
    empty.hidden = mine.length > 0;
    undo.disabled = before.length === 0;
    reset.disabled = mine.length === 0;
    fill(list, [...mine].reverse().map(line));
  }

  function line(one) {
    const title = nameOf(one);
    return h(
      "li",
      { "data-item": String(one.item) },
      h("span.title", {}, title),
      ratingField({ title, rating: one.rating, data: card.data, onRate: (rating) => rate(one, rating) }),
      h(
        "button.plain",
        { type: "button", "aria-label": `Remove ${title}`, onclick: () => remove(one) },
        "Remove",
      ),
    );
  }

  function add(item) {
    if (!mine.some((one) => String(one.item) === String(item.item))) {
      change([...mine, { item: item.item, title: item.title, rating: null }]);
    }
    focusOn(item.item);
  }

  function focusOn(id) {
    const row = [...list.children].find((one) => one.dataset.item === String(id));
    (row?.querySelector("input:checked") ?? row?.querySelector("input, select"))?.focus();
  }

  // Rows stay as they are, so that the focus does; a first rating counts from now on.
  function rate(one, rating) {
    before.push(mine);
    const isFirst = mine.find((other) => other.item === one.item)?.rating === null;
    const now = { ...one, rating };
    mine = isFirst
      ? [...mine.filter((other) => other.item !== one.item), now]
      : mine.map((other) => (other.item === one.item ? now : other));
    undo.disabled = false;
    soon();
  }

  function remove(one) {
    change(mine.filter((other) => other.item !== one.item));
    finder.focus();
  }

  function undoLast() {
    become(before.pop() ?? []);
    if (undo.disabled) finder.focus();
  }

  function startOver() {
    change([]);
    announce("All ratings are removed.");
    finder.focus();
  }

  // Somebody invented: each rating is drawn from what is predicted after those before it.
  async function rateSome() {
    some.disabled = true;
    fill(trouble);
    try {
      const given = new Set(mine.map((one) => String(one.item)));
      const found = (await api.items("", AMONG)).items.filter((one) => !given.has(String(one.item)));
      const now = [...mine];
      for (let k = 0; k < EXAMPLES && found.length; k += 1) {
        const [item] = found.splice(Math.floor(Math.random() * found.length), 1);
        const ratings = now.filter((one) => one.rating !== null).map(({ item, rating }) => ({ item, rating }));
        const { predictions } = await api.predict({ items: [item.item], ratings });
        now.push({ item: item.item, title: item.title, rating: drawRating(predictions[0], card.data) });
      }
      change(now);
    } catch (error) {
      fill(trouble, problem(error));
    }
    some.disabled = false;
  }

  // -- recommendations -----------------------------------------------------------------------

  const place = h("div", { "aria-busy": "true" });
  const about = h("p.say", {});
  const again = h("button", { type: "button", onclick: () => show(true) }, "Draw again");
  const many = h("button", { type: "button", onclick: drawMany }, `Draw ${DRAWS} times`);
  const draws = h("div.draws", { hidden: true }, h("div.buttons", {}, again, many), first.element);

  async function show(isDraw = false) {
    const signal = nextList();
    const who = { ratings: sent() };
    place.setAttribute("aria-busy", "true");
    try {
      const answer = await api.recommend({ ...who, n: SHOWN, policy, parts: true }, signal);
      const told = policy === "thompson" && isDraw ? moves(last, answer.items) : null;
      last = policy === "thompson" ? answer.items : null;
      if (policy === "thompson" && answer.items.length) first.count(answer.items[0]);
      about.textContent = headline(rated().length);
      fill(place, recommended(answer, { scale, who, moved: told }));
      sayFirst(answer);
    } catch (error) {
      if (error.name === "AbortError") return;
      fill(place, problem(error, () => show()));
    }
    place.removeAttribute("aria-busy");
  }

  function sayFirst(answer) {
    const [best] = answer.items;
    if (!best) return;
    const mean = fixed(scale.cut(best.mean));
    announce(`${plural(answer.items.length, "recommendation")}. First: ${nameOf(best)}, expected ${mean}.`);
  }

  async function drawMany() {
    const signal = nextList();
    many.disabled = again.disabled = true;
    first.clear();
    try {
      for (let k = 0; k < DRAWS; k += 1) {
        const body = { ratings: sent(), n: 1, policy: "thompson" };
        const [best] = (await api.recommend(body, signal)).items;
        if (best) first.count(best);
      }
      announce(`${DRAWS} draws are done.`);
    } catch (error) {
      if (error.name !== "AbortError") fill(place, problem(error, drawMany));
    }
    many.disabled = again.disabled = false;
  }

  function refresh() {
    first.clear();
    last = null;
    draws.hidden = policy !== "thompson";
    show();
  }

  function refreshAll() {
    refresh();
    sure.update(sent(), nextSure());
  }

  const soon = debounce(refreshAll, 150);

  // -- the page ------------------------------------------------------------------------------

  showMine();
  refreshAll();
  const element = h(
    "section.try",
    { "aria-labelledby": "try-title" },
    h("h1", { id: "try-title", tabindex: "-1" }, "Recommendations that say how sure they are"),
    h(
      "p.lead",
      {},
      "Rate a few things. The model has never met you: it works out your taste from these ratings alone, and tells how far to trust each guess.",
    ),
    h(
      "div.columns",
      {},
      h(
        "section.card",
        { "aria-labelledby": "mine-title" },
        h("h2", { id: "mine-title" }, "Your ratings"),
        finder.element,
        h("div.buttons", {}, some, undo, reset),
        trouble,
        list,
        empty,
        h("p.hint", {}, "Ratings stay in this page's memory: nothing stores them, and a reload forgets them."),
      ),
      h(
        "section.card.list-card",
        { "aria-labelledby": "list-title" },
        h("h2", { id: "list-title" }, "Recommended"),
        about,
        policySwitch((chosen) => {
          policy = chosen;
          refresh();
        }),
        draws,
        place,
      ),
      h(
        "section.card",
        { "aria-labelledby": "sure-title" },
        h("h2", { id: "sure-title" }, "How sure, rating by rating"),
        sure.element,
      ),
    ),
  );

  return {
    element,
    title: "Try it",
    show: () => {},
    renew: () => {
      sure.forget();
      refreshAll();
    },
  };
}

function asText(ratings) {
  return JSON.stringify(ratings.map(({ item, rating }) => [String(item), rating]));
}

function headline(n) {
  return n
    ? `For somebody with your ${plural(n, "rating")}.`
    : "Before any rating, this is what people in general rate highest. Bands are wide: the model knows nothing of you.";
}
