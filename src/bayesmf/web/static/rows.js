// Lists of recommendations with their intervals, and the sum behind each of them.

import { api } from "./api.js";
import { axis, intervalBar, legend, rangeText, stepBar } from "./bars.js";
import {
  asGiven, fill, fixed, h, nameOf, notesOf, plural, plusMinus, problem, roundedParts, signed, unique,
} from "./dom.js";

const LISTED = 8; // shares that are named; the rest is one line

// `who` is {user} or {ratings}, as requests have it; `moved` is the change by item; onRate,
// where there is one, takes an item that is to be rated.
export function recommended(answer, { scale, who, whose, moved = null, onRate = null }) {
  if (!answer.items.length) return h("p.empty", {}, "Nothing is left to recommend.");
  const numbers = () => h("div.row.head", { "aria-hidden": "true" }, h("div.bar", {}, axis(scale)));
  return h(
    `div.list${onRate ? ".ratable" : ""}`,
    {},
    legend(whose),
    numbers(),
    h(
      "ol.rows",
      {},
      answer.items.map((one, k) => row(one, k, { scale, who, whose, moved, onRate })),
    ),
    numbers(),
    answer.known && notesOf(answer),
  );
}

function row(one, k, { scale, who, whose, moved, onRate }) {
  const title = nameOf(one);
  const { button, panel } = why(one, { scale, who, whose });
  const rate =
    onRate &&
    h("button.small", { type: "button", "aria-label": `Rate ${title}`, onclick: () => onRate(one) }, "Rate");
  const change = moved?.get(String(one.item));
  return h(
    "li.row",
    { "data-item": String(one.item) },
    h("span.rank", { "aria-hidden": "true" }, String(k + 1)),
    h(
      "div.title",
      {},
      h("a", { href: `#/item/${encodeURIComponent(String(one.item))}`, title }, title),
      change && h("span.change", {}, change),
    ),
    h("span.value", {}, scale.text(one.mean)),
    h("div.bar", {}, intervalBar(one, scale, whose)),
    h("span.range", { "aria-hidden": "true" }, rangeText(one, scale)),
    h("div.do", {}, rate, button),
    panel,
  );
}

// A button, and the panel that it opens: the sum is asked for when it is first wanted.
function why(one, { scale, who, whose }) {
  const id = unique("why");
  const panel = h("div.why", { id, hidden: true });
  const button = h(
    "button.small",
    { type: "button", "aria-expanded": "false", "aria-controls": id, "aria-label": `Why? ${nameOf(one)}` },
    "Why?",
  );
  let asked = false;
  const open = async () => {
    panel.hidden = !panel.hidden;
    button.setAttribute("aria-expanded", String(!panel.hidden));
    if (asked || panel.hidden) return;
    asked = true;
    panel.setAttribute("aria-busy", "true");
    fill(panel, h("p.loading", {}, "Adding up …"));
    try {
      fill(panel, sum(await api.explain({ ...who, item: one.item, n: LISTED }), { scale, whose, one }));
    } catch (error) {
      asked = false;
      fill(panel, problem(error));
    }
    panel.removeAttribute("aria-busy");
  };
  button.addEventListener("click", open);
  return { button, panel };
}

// The expected rating as a sum: people in general, each rating, what is left.
function sum(answer, { scale, whose, one }) {
  const names = ["People in general"];
  const parts = [answer.rest];
  const spreads = [null];
  for (const share of answer.shares) {
    const stars = asGiven(share.rating);
    names.push(`${whose === "your" ? "Your" : "Their"} ${stars} for ${nameOf(share)}`);
    parts.push(share.share);
    spreads.push(share.share_std);
  }
  const left = answer.n_ratings - answer.shares.length;
  if (left > 0) {
    names.push(plural(left, "other rating"));
    parts.push(answer.others);
    spreads.push(null);
  }
  const shown = roundedParts(parts);
  const ends = running(parts);
  const [low, high] = around(ends, 0.1 * (scale.data.high - scale.data.low));
  const lines = names.map((name, k) => {
    const from = k ? ends[k - 1] : ends[k];
    const kind = k === 0 ? "start" : parts[k] < 0 ? "minus" : "plus";
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, name),
      h("td.number", {}, k ? signed(shown.parts[k]) : fixed(shown.parts[k])),
      h("td.spread", {}, spreads[k] === null ? "" : plusMinus(spreads[k])),
      h("td.drawn", {}, stepBar(from, ends[k], low, high, kind)),
    );
  });
  return [
    h(
      "table.sum",
      {},
      h("caption.unseen", {}, `How the expected rating of ${nameOf(answer)} adds up`),
      h("tbody", {}, lines),
      h(
        "tfoot",
        {},
        h(
          "tr",
          {},
          h("th", { scope: "row" }, "Expected rating"),
          h("td.number", {}, fixed(shown.total)),
          h("td.spread", {}),
          h("td.drawn", {}, stepBar(ends.at(-1), ends.at(-1), low, high, "total")),
        ),
      ),
    ),
    answer.shares.length > 0 && h("p.hint.off", {}, "± is how far a share may be off, 9 times in 10."),
    beyond(answer.prediction, one, scale),
    notesOf(answer),
  ];
}

function running(parts) {
  let total = 0;
  return parts.map((part) => (total += part));
}

// A range around values that is not narrower than `least`, with a little room.
function around(values, least) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const room = Math.max((least - (high - low)) / 2, 0.08 * (high - low));
  return [low - room, high + room];
}

function beyond(prediction, one, scale) {
  const { low, high } = scale.data;
  if (prediction >= low && prediction <= high) return null;
  const [side, end] = prediction > high ? ["above", high] : ["below", low];
  return h(
    "p.hint",
    {},
    `The sum lies ${side} the scale, which ends at ${asGiven(end)}: it is shown as “${scale.text(one.mean)}”.`,
  );
}
