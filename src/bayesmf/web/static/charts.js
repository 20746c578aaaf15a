// Charts, drawn again when their width changes, so that text keeps its size.

import { fixed, h, percent, s } from "./dom.js";

const EDGE = { left: 46, right: 14, top: 28, bottom: 40 };

// A picture that is described in words; `draw(width, height)` gives its parts.
function picture({ height, label, draw }) {
  const drawing = s("svg", { role: "img", "aria-label": label, height });
  const element = h("div.chart", {}, drawing);
  let before = 0;
  new ResizeObserver(([entry]) => {
    const width = Math.round(entry.contentRect.width);
    if (!width || width === before) return;
    before = width;
    drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    drawing.replaceChildren(...draw(width, height).flat(3).filter(Boolean));
  }).observe(element);
  return element;
}

// Four to six round numbers that span a range.
export function ticksOf(low, high, whole = false) {
  const rough = (high - low || 1) / 6;
  const power = 10 ** Math.floor(Math.log10(rough));
  const wide = [1, 2, 5, 10].find((step) => step * power >= rough * 0.999) * power;
  const step = whole ? Math.max(1, Math.round(wide)) : wide;
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k += 1) ticks.push(k * step);
  return { ticks, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}

function frame(width, height, x, y, { xName, yName, xText, yText, whole = false }) {
  const inner = { left: EDGE.left, right: width - EDGE.right, top: EDGE.top, bottom: height - EDGE.bottom };
  const atX = (value) => inner.left + ((value - x[0]) / (x[1] - x[0] || 1)) * (inner.right - inner.left);
  const atY = (value) => inner.bottom - ((value - y[0]) / (y[1] - y[0] || 1)) * (inner.bottom - inner.top);
  const across = ticksOf(x[0], x[1], whole);
  const up = ticksOf(y[0], y[1]);
  const every = Math.ceil((across.ticks.length * 42) / (inner.right - inner.left));
  const parts = [
    up.ticks.map((tick) => [
      s("line.grid", { x1: inner.left, x2: inner.right, y1: atY(tick), y2: atY(tick) }),
      s(
        "text",
        { x: inner.left - 8, y: atY(tick) + 4, "text-anchor": "end" },
        yText ? yText(tick) : fixed(tick, up.digits),
      ),
    ]),
    across.ticks
      .filter((_, k) => k % every === 0)
      .map((tick) =>
        s(
          "text",
          { x: atX(tick), y: inner.bottom + 17, "text-anchor": "middle" },
          xText ? xText(tick) : fixed(tick, across.digits),
        ),
      ),
    s("line.base", { x1: inner.left, x2: inner.right, y1: inner.bottom, y2: inner.bottom }),
    s("text.name", { x: inner.right, y: height - 6, "text-anchor": "end" }, `${xName} →`),
    s("text.name", { x: 0, y: 12 }, `↑ ${yName}`),
  ];
  return { parts, inner, atX, atY };
}

function bounds(values, room = 0.06) {
  const finite = values.filter(Number.isFinite);
  const [low, high] = [Math.min(...finite), Math.max(...finite)];
  const more = (high - low || Math.abs(high) || 1) * room;
  return [low - more, high + more];
}

function path(xs, ys, atX, atY) {
  let pen = "M";
  return xs
    .map((x, k) => {
      if (!Number.isFinite(ys[k])) {
        pen = "M";
        return "";
      }
      const piece = `${pen}${atX(x).toFixed(1)} ${atY(ys[k]).toFixed(1)}`;
      pen = "L";
      return piece;
    })
    .join("");
}

function line(one, atX, atY) {
  const drawn = s(`path.line.${one.kind ?? "line-0"}`, { d: path(one.x, one.y, atX, atY) });
  if (one.title) drawn.append(s("title", {}, one.title));
  return drawn;
}

// Parts of lines that lie outside the frame are not drawn.
function inside({ left, right, top, bottom }, children) {
  const [width, height] = [right - left, bottom - top];
  const viewBox = `${left} ${top} ${width} ${height}`;
  return s("svg.clip", { x: left, y: top, width, height, viewBox }, children);
}

// series: {name, x, y, kind, points, title}; shaded: up to this x.
export function lineChart(given) {
  const { height = 240, label, series, shaded = null, xName, yName, yLow = null, whole = false } = given;
  const xs = series.flatMap((one) => one.x);
  const x = given.x ?? [Math.min(...xs), Math.max(...xs)];
  const y = given.y ?? bounds(series.flatMap((one) => one.y));
  if (yLow !== null) y[0] = yLow;
  const draw = (width) => {
    const drawn = frame(width, height, x, y, { xName, yName, whole, ...given });
    const { inner, atX, atY } = drawn;
    return [
      shaded &&
        s("rect.burning", {
          x: inner.left,
          y: inner.top,
          width: Math.max(0, atX(shaded) - inner.left),
          height: inner.bottom - inner.top,
        }),
      drawn.parts,
      inside(inner, series.map((one) => line(one, atX, atY))),
      series
        .filter((one) => one.points)
        .map((one) => one.x.map((value, k) => s("circle.mean", { cx: atX(value), cy: atY(one.y[k]), r: 4 }))),
    ];
  };
  return picture({ height, label, draw });
}

// What the lines of a chart are; one line alone needs no key.
export function keyOf(series) {
  return h(
    "ul.legend",
    { "aria-hidden": "true" },
    series.map(([name, kind]) =>
      h(
        "li",
        {},
        s("svg", { width: 28, height: 12 }, sample(kind)),
        name,
      ),
    ),
  );
}

function sample(kind) {
  if (kind === "burning") return s("rect.burning", { width: 28, height: 12 });
  return s(`path.line.${kind}`, { d: "M1 6H27" });
}

// Columns with their heights written above: probabilities of stars. `places` are in percent of the
// width, so that columns stand under the same places of a bar.
export function columnChart({ height = 300, label, names, places, shares, xName }) {
  const most = Math.max(...shares, 0.01);
  const gaps = places.slice(1).map((place, k) => place - places[k]);
  const draw = (width) => {
    const step = (Math.min(20, ...gaps) * width) / 100;
    const wide = Math.min(step * 0.72, 80);
    const bottom = height - 40;
    return [
      names.map((name, k) => {
        const tall = ((bottom - 24) * shares[k]) / most;
        const middle = (places[k] * width) / 100;
        return [
          s("rect.column", { x: middle - wide / 2, width: wide, y: bottom - tall, height: tall, rx: 3 }),
          s("text.strong", { x: middle, y: bottom - tall - 7, "text-anchor": "middle" }, percent(shares[k])),
          s("text", { x: middle, y: bottom + 16, "text-anchor": "middle" }, name),
        ];
      }),
      s("line.base", { x1: 0, x2: width, y1: bottom, y2: bottom }),
      s("text.name", { x: width - 4, y: height - 6, "text-anchor": "end" }, xName),
    ];
  };
  return picture({ height, label, draw });
}

// Counts in bins of equal width from 0 to 1, with the line that all should meet.
export function histogram({ height = 220, label, counts, xName, yName }) {
  const total = counts.reduce((sum, n) => sum + n, 0) || 1;
  const shares = counts.map((n) => (n * counts.length) / total);
  const y = [0, Math.max(1.5, ...shares) * 1.08];
  const draw = (width) => {
    const drawn = frame(width, height, [0, 1], y, { xName, yName });
    const { inner, atX, atY } = drawn;
    const step = 1 / counts.length;
    return [
      drawn.parts,
      shares.map((share, k) =>
        s(
          "rect.column",
          {
            x: atX(k * step) + 1,
            width: Math.max(1, atX(step) - atX(0) - 2),
            y: atY(share),
            height: inner.bottom - atY(share),
          },
          s("title", {}, `${fixed(k * step)} to ${fixed((k + 1) * step)}: ${counts[k]}`),
        ),
      ),
      s("line.expected", { x1: inner.left, x2: inner.right, y1: atY(1), y2: atY(1) }),
    ];
  };
  return picture({ height, label, draw });
}
