// What to rank by; and with draws, how often each item comes first.

import { shareBar } from "./bars.js";
import { fill, h, nameOf, plural, unique } from "./dom.js";

const POLICIES = [
  ["mean", "Best guess", "Highest expected rating first."],
  ["lcb", "Careful", "Expected rating minus its uncertainty: safe choices first."],
  ["ucb", "Curious", "Expected rating plus its uncertainty: items that may be great get a chance."],
  [
    "thompson",
    "Explore",
    "Picks one plausible version of your taste and of the items at random, and ranks by it. Press again: what stays is what the model is sure of.",
  ],
  [
    "thompson-items",
    "Explore items",
    "The same, but only the items are picked at random: for people who come once.",
  ],
];
const SHOWN = 6;
const MANY = 10; // draws that say something about how sure the model is

export function policySwitch(onChoose) {
  const name = unique("policy");
  const says = h("p.hint", { id: `${name}-says` }, POLICIES[0][2]);
  const choose = (policy, text) => {
    says.textContent = text;
    onChoose(policy);
  };
  return h(
    "fieldset.policies",
    { "aria-describedby": `${name}-says` },
    h("legend", {}, "Rank by"),
    h(
      "div.choices",
      {},
      POLICIES.map(([policy, label, text], k) =>
        h(
          "label",
          {},
          h("input", {
            type: "radio",
            name,
            value: policy,
            checked: k === 0,
            onchange: () => choose(policy, text),
          }),
          h("span", {}, label, h("code", { "aria-hidden": "true" }, policy)),
        ),
      ),
    ),
    says,
  );
}

// Counts which item came first in each draw.
export function tally() {
  const element = h("div.tally", {});
  const counts = new Map();
  let draws = 0;

  function count(item) {
    const key = String(item.item);
    draws += 1;
    counts.set(key, { item, n: (counts.get(key)?.n ?? 0) + 1 });
    show();
  }

  function clear() {
    counts.clear();
    draws = 0;
    show();
  }

  function show() {
    if (draws < 2) {
      fill(element);
      return;
    }
    const order = [...counts.values()].sort((a, b) => b.n - a.n);
    const rest = order.slice(SHOWN).reduce((sum, one) => sum + one.n, 0);
    const line = (name, n, kind) =>
      h("li", {}, h("span.name", {}, name), shareBar(n / draws, 0, kind), h("span.n", {}, String(n)));
    fill(
      element,
      h("h3", {}, `Who came first in ${plural(draws, "draw")}`),
      h(
        "ul.strip",
        {},
        order.slice(0, SHOWN).map((one) => line(nameOf(one.item), one.n)),
        rest > 0 && line(plural(order.length - SHOWN, "other item"), rest, "noise"),
      ),
      draws >= MANY &&
        order[0].n <= 2 &&
        h("p.hint", {}, "Hardly any item comes first twice: many could be the best. Rate more, and the same ones come back."),
    );
  }

  return { element, count, clear };
}

// Whether a policy draws, so that its list is another one each time.
export function draws(policy) {
  return policy.startsWith("thompson");
}

// By item, what is different from the list before: "new", "up 3", "down 1".
export function moves(before, after) {
  if (!before) return null;
  const places = new Map(before.map((one, k) => [String(one.item), k]));
  const moves = new Map();
  after.forEach((one, k) => {
    const place = places.get(String(one.item));
    if (place === undefined) moves.set(String(one.item), "new");
    else if (place > k) moves.set(String(one.item), `up ${place - k}`);
    else if (place < k) moves.set(String(one.item), `down ${k - place}`);
  });
  return moves;
}

// What changed in all of the list, where one sentence says it; a badge in each row says the rest.
export function change(moves, items) {
  if (!moves) return "";
  if (!moves.size) return "The list is the same as before.";
  const fresh = items.every((one) => moves.get(String(one.item)) === "new");
  return fresh ? `All ${items.length === 10 ? "ten" : items.length} are new.` : "";
}
