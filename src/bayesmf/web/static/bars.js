// Small pictures inside rows: intervals on the rating scale, sums, shares. Places are in percent of
// the width, so that they fit any row.

import { ticksOf } from "./charts.js";
import { asGiven, clamp, fixed, h, percent, s, within } from "./dom.js";

// The rating scale with a little room at both ends, as a share of its length.
export function scaleOf(data, margin = 0.04) {
  const room = margin * (data.high - data.low);
  const low = data.low - room;
  const width = data.high + room - low;
  const ticks = data.levels && data.levels.length <= 7 ? data.levels : ticksOf(data.low, data.high).ticks;
  return {
    data,
    ticks,
    at: (value) => (100 * (clamp(value, low, low + width) - low)) / width,
    cut: (value) => clamp(value, data.low, data.high),
    text: (mean) => expected(mean, data),
  };
}

// An expected rating beyond the scale is shown as "over" or "below" a value near its end.
function expected(mean, { low, high }) {
  if (mean >= low && mean <= high) return fixed(mean);
  const power = Math.floor(Math.log10((high - low) / 20));
  const near = (value) => fixed(value, Math.max(0, -power));
  return mean > high ? `over ${near(high - 10 ** power)}` : `below ${near(low + 10 ** power)}`;
}

export function axis(scale) {
  return s(
    "svg.axis",
    { "aria-hidden": "true", width: "100%", height: "16" },
    scale.ticks.map((tick) =>
      s("text", { x: `${scale.at(tick)}%`, y: "12", "text-anchor": "middle" }, asGiven(tick)),
    ),
  );
}

export function intervalBar(one, scale, whose) {
  const { at, cut, ticks } = scale;
  const band = (low, high, kind, y, height) => {
    const [left, right] = [at(cut(low)), at(cut(high))];
    return s(`rect.${kind}`, {
      x: `${left}%`,
      width: `${Math.max(right - left, 0.5)}%`,
      y,
      height,
      rx: height / 2,
    });
  };
  const spread = within(one.unknown ?? 0);
  return s(
    "svg.interval",
    { role: "img", "aria-label": inWords(one, scale, whose), width: "100%", height: "24" },
    ticks.map((tick) => s("line.tick", { x1: `${at(tick)}%`, x2: `${at(tick)}%`, y1: 0, y2: 24 })),
    band(one.low, one.high, "new", 6, 12),
    spread > 0 && band(one.mean - spread, one.mean + spread, "unknown", 8, 8),
    s("circle.mean", { cx: `${at(cut(one.mean))}%`, cy: 12, r: 5 }),
  );
}

// Likely stars and their probability, or the bounds of the interval if ratings are not stars.
export function rangeText(one, scale) {
  if (one.likely) return `${starsText(one.likely)} (${percent(one.likely.probability)})`;
  return `${fixed(scale.cut(one.low), 1)} to ${fixed(scale.cut(one.high), 1)}`;
}

function starsText({ low, high }) {
  return low === high ? asGiven(low) : `${asGiven(low)} to ${asGiven(high)}`;
}

// `whose` is "your", "their", or null for an unknown person.
export function inWords(one, scale, whose) {
  const words = [`Expected ${scale.text(one.mean)}.`, likelyWords(one, scale, whose)];
  if (whose && one.unknown) words.push(`Uncertainty: plus or minus ${fixed(within(one.unknown))}.`);
  return words.join(" ");
}

function likelyWords(one, scale, whose) {
  const owner = whose ? `${whose[0].toUpperCase()}${whose.slice(1)} rating` : "A new person's rating";
  if (one.likely) return `${owner} would be ${starsText(one.likely)} with a probability of ${percent(one.likely.probability)}.`;
  return `${owner} would fall between ${rangeText(one, scale).replace(" to ", " and ")} 9 times in 10.`;
}

// Legend of a list: the bands and the dot.
export function legend(whose) {
  const sample = (...children) =>
    s("svg", { "aria-hidden": "true", width: 34, height: 16 }, ...children);
  return h(
    "ul.legend",
    {},
    h("li", {}, sample(s("circle.mean", { cx: 17, cy: 8, r: 5 })), "expected rating"),
    h(
      "li",
      {},
      sample(s("rect.unknown", { x: 5, y: 4, width: 24, height: 8, rx: 4 })),
      `uncertainty about ${whose === "your" ? "you" : "them"}`,
    ),
    h(
      "li",
      {},
      sample(s("rect.new", { x: 1, y: 2, width: 32, height: 12, rx: 6 })),
      `${whose} rating would fall here, 9 times in 10 on average`,
    ),
  );
}

// A step of a sum: a bar from one value to the next. Where the sum starts and ends there is a dot.
export function stepBar(from, to, low, high, kind) {
  const at = (value) => (100 * (value - low)) / (high - low || 1);
  const [left, right] = [Math.min(from, to), Math.max(from, to)].map(at);
  const bar = { x: `${left}%`, width: `${Math.max(right - left, 0.6)}%`, y: 5, height: 10, rx: 2 };
  return s(
    "svg.step",
    { "aria-hidden": "true", width: "100%", height: "20" },
    s("line.grid", { x1: 0, x2: "100%", y1: 10, y2: 10 }),
    from === to
      ? s(`circle.${kind}`, { cx: `${at(to)}%`, cy: 10, r: 5 })
      : s(`rect.${kind}`, bar),
  );
}

// A bar that is a share of the whole width, with whiskers where the share has a spread.
export function shareBar(share, spread = 0, kind = "unknown") {
  const at = (value) => 100 * clamp(value, 0, 1);
  return s(
    "svg.share",
    { "aria-hidden": "true", width: "100%", height: "18" },
    s("rect.ground", { x: 0, y: 4, width: "100%", height: 10, rx: 3 }),
    s(`rect.${kind}`, { x: 0, y: 4, width: `${at(share)}%`, height: 10, rx: 3 }),
    spread > 0 &&
      s("line.whisker", {
        x1: `${at(share - spread)}%`,
        x2: `${at(share + spread)}%`,
        y1: 9,
        y2: 9,
      }),
  );
}
