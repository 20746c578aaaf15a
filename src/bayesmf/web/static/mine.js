// Your ratings: added, changed and removed here, and kept in memory alone.

import { api } from "./api.js";
import { announce, busy, fill, h, nameOf, problem } from "./dom.js";
import { drawRating, ratingField } from "./rate.js";
import { search } from "./search.js";

const EXAMPLES = 5; // ratings of "Rate some for me"
const AMONG = 40; // the most rated items that these are chosen from

// onChange() is called when ratings have changed.
export function yourRatings(card, onChange) {
  let mine = []; // {item, title, rating}, the rating null until it is given; in the order given
  let before = []; // earlier states, for "Undo"
  let last = null; // the item rated last: to rate it again is the same step
  const sent = () => ratingsOf(mine);

  const list = h("ul.mine", { "aria-label": "Your ratings" });
  const empty = h("p.empty", {}, "Nothing rated yet. Find something above, or let us rate a few as an example.");
  const undo = h("button", { type: "button", onclick: undoLast }, "Undo");
  const reset = h("button.plain", { type: "button", onclick: startOver }, "Start over");
  const some = h("button.main", { type: "button", onclick: () => busy([some], rateSome) }, "Rate some for me");
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

  // Items without a rating yet are not sent.
  function become(to) {
    const asked = asText(sent());
    mine = to;
    last = null;
    show();
    if (asText(sent()) !== asked) onChange();
  }

  function show() {
    empty.hidden = mine.length > 0;
    undo.hidden = before.length === 0;
    reset.hidden = mine.length === 0;
    fill(list, [...mine].reverse().map(line));
  }

  function line(one) {
    const title = nameOf(one);
    return h(
      "li",
      { "data-item": String(one.item) },
      h("span.title", { title }, title),
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
    if (last !== one.item) before.push(mine);
    last = one.item;
    const isFirst = mine.find((other) => other.item === one.item)?.rating === null;
    const now = { ...one, rating };
    mine = isFirst
      ? [...mine.filter((other) => other.item !== one.item), now]
      : mine.map((other) => (other.item === one.item ? now : other));
    undo.hidden = false;
    onChange();
  }

  function remove(one) {
    change(mine.filter((other) => other.item !== one.item));
    finder.focus();
  }

  function undoLast() {
    become(before.pop() ?? []);
    if (undo.hidden) finder.focus();
  }

  function startOver() {
    change([]);
    announce("All ratings are removed.");
    finder.focus();
  }

  async function rateSome() {
    fill(trouble);
    try {
      change(await invented(mine, card.data));
    } catch (error) {
      fill(trouble, problem(error));
    }
  }

  show();
  const element = h(
    "section.card",
    { "aria-labelledby": "mine-title" },
    h("h2", { id: "mine-title" }, "Your ratings"),
    finder.element,
    h("div.buttons", {}, some, undo, reset),
    trouble,
    list,
    empty,
    h("p.hint", {}, "Ratings stay in this page's memory: nothing stores them, and a reload forgets them."),
  );
  return { element, sent, add, renew: show };
}

// An invented person: each rating is drawn from its prediction given the earlier ones.
async function invented(mine, data) {
  const given = new Set(mine.map((one) => String(one.item)));
  const found = (await api.items("", AMONG)).items.filter((one) => !given.has(String(one.item)));
  const now = [...mine];
  for (let k = 0; k < EXAMPLES && found.length; k += 1) {
    const [item] = found.splice(Math.floor(Math.random() * found.length), 1);
    const { predictions } = await api.predict({ items: [item.item], ratings: ratingsOf(now) });
    now.push({ item: item.item, title: item.title, rating: drawRating(predictions[0], data) });
  }
  return now;
}

function ratingsOf(mine) {
  return mine.filter((one) => one.rating !== null).map(({ item, rating }) => ({ item, rating }));
}

function asText(ratings) {
  return JSON.stringify(ratings.map(({ item, rating }) => [String(item), rating]));
}
