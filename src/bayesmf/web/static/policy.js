// What to rank by; and with draws, how often each item comes first.

import { shareBar } from "./bars.js";
import { fill, h, nameOf, plural, unique } from "./dom.js";

const POLICIES = [
  ["mean", "Best guess", "Ranks by the expected rating. The right choice where each suggestion stands for itself."],
  ["lcb", "Careful", "Expected rating less what is not known: what is surely good comes first."],
  ["ucb", "Curious", "Expected rating plus what is not known: what could turn out great gets its chance."],
  [
    "thompson",
    "Taking turns",
    "One draw from all that is plausible: each item comes first as often as it is likely to be the best. Draw again, and the list changes where the model is unsure.",
  ],
];
const SHOWN = 6;
const MANY = 10; // draws that say something about how sure the model is

export function policySwitch(onChoose) {
  const name = unique("policy");
  const says = h("p.hint", { id: `${name}-says`, "aria-live": "polite" }, POLICIES[0][2]);
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
          h("span", {}, label, h("code", {}, policy)),
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
    if (!draws) {
      fill(element);
      return;
    }
    const order = [...counts.values()].sort((a, b) => b.n - a.n);
    const rest = order.slice(SHOWN).reduce((sum, one) => sum + one.n, 0);
    const line = (name, n) =>
      h("li", {}, h("span.name", {}, name), shareBar(n / draws), h("span.n", {}, String(n)));
    fill(
      element,
      h("h3", {}, `Who came first in ${plural(draws, "draw")}`),
      h(
        "ul.strip",
        {},
        order.slice(0, SHOWN).map((one) => line(nameOf(one.item), one.n)),
        rest > 0 && line(plural(order.length - SHOWN, "other item"), rest),
      ),
      draws >= MANY &&
        order[0].n <= 2 &&
        h("p.hint", {}, "Hardly any comes first twice: so little is known yet that many could be the best. Rate more, and the same names come back."),
    );
  }

  return { element, count, clear };
}

// By item, what is different from the list before: "new", "up 3", "down 1".
export function moves(before, after) {
  if (!before) return null;
  const places = new Map(before.map((one, k) => [String(one.item), k]));
  const told = new Map();
  after.forEach((one, k) => {
    const place = places.get(String(one.item));
    if (place === undefined) told.set(String(one.item), "new");
    else if (place > k) told.set(String(one.item), `up ${place - k}`);
    else if (place < k) told.set(String(one.item), `down ${k - place}`);
  });
  return told;
}
