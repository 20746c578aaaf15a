// Uncertainty about the same few items after each rating.

import { api } from "./api.js";
import { lineChart } from "./charts.js";
import { fill, fixed, h, percent, plural, problem, table, within } from "./dom.js";

const WATCHED = 20;
const SURPRISE = 1.01; // less growth than this may be chance: there are few draws

export function howSure() {
  const element = h("div.sure", {});
  const known = new Map(); // by the ratings given, in their order
  let watched = null;

  async function unknownAfter(ratings, signal) {
    const key = JSON.stringify(ratings.map((one) => [String(one.item), one.rating]));
    if (!known.has(key)) {
      const body = { items: watched, ratings, parts: true, probabilities: false };
      const { predictions } = await api.predict(body, signal);
      known.set(key, within(predictions.reduce((sum, one) => sum + one.unknown, 0) / predictions.length));
    }
    return known.get(key);
  }

  // Draw the curve for ratings in the order in which they were given; again() tries again.
  async function update(ratings, signal, again) {
    element.setAttribute("aria-busy", "true");
    try {
      watched ??= (await api.items("", WATCHED, signal)).items.map((one) => one.item);
      const curve = [];
      for (let n = 0; n <= ratings.length; n += 1) {
        curve.push(await unknownAfter(ratings.slice(0, n), signal));
      }
      fill(element, shown(curve));
    } catch (error) {
      if (error.name === "AbortError") return;
      fill(element, problem(error, again));
    }
    element.removeAttribute("aria-busy");
  }

  function shown(curve) {
    const n = curve.length - 1;
    const label = `Uncertainty, on average over ${plural(watched.length, "item")}: ${curve
      .map((value, k) => `${fixed(value)} after ${plural(k, "rating")}`)
      .join(", ")}.`;
    return [
      h("p.say", {}, sentence(curve)),
      n > 0 &&
        lineChart({
          height: 170,
          label,
          xName: "ratings given",
          yName: "uncertainty, ±",
          yLow: 0,
          whole: true,
          series: [{ name: "uncertainty", x: curve.map((_, k) => k), y: curve, points: true }],
        }),
      n > 0 &&
        table(
          "Uncertainty by the number of ratings",
          ["Ratings", "Uncertainty (±, 9 times in 10)"],
          curve.map((value, k) => [String(k), fixed(value, 3)]),
        ),
    ];
  }

  function forget() {
    known.clear();
    watched = null;
  }

  return { element, update, forget };
}

function sentence(curve) {
  const n = curve.length - 1;
  const [first, last] = [curve[0], curve[n]];
  if (n === 0) {
    return `Before any rating, the uncertainty of a prediction is ± ${fixed(first)}, 9 times in 10. Rate something and watch it shrink.`;
  }
  const change = 1 - last / first;
  const verb = change >= 0 ? "shrunk" : "grown";
  const text = `With ${plural(n, "rating")} the uncertainty has ${verb} by ${percent(Math.abs(change))} since the first look: from ± ${fixed(first)} to ± ${fixed(last)}, 9 times in 10.`;
  const surprised = n > 1 && last > SURPRISE * curve[n - 1];
  return surprised ? `${text} The last rating does not fit the others: a surprise makes the model less sure.` : text;
}
