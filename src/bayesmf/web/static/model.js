// The model card: verdicts in words, then figures of convergence and calibration.

import { api } from "./api.js";
import { histogram, keyOf, lineChart } from "./charts.js";
import { asGiven, facts, fill, fixed, h, note, notesOf, percent, plural, plusMinus, s, table, unique, whole } from "./dom.js";

const LINES = 4; // kinds of lines that can be distinguished
const LEVELS = [50, 80, 90, 95]; // of the table of coverage

const AGAIN = 2000; // milliseconds until the card is looked at again, while it is incomplete
const LOOKS = 30;

export function modelView(card) {
  const title = h("h1", { id: "model-title", tabindex: "-1" }, "Can this model be trusted?");
  const body = h("div", {});
  const element = h("section.model", { "aria-labelledby": "model-title" }, title, body);
  let drawn = null;
  let looks = 0;

  function draw(found) {
    if (JSON.stringify(found) === drawn) return;
    drawn = JSON.stringify(found);
    const { convergence, calibration } = found;
    fill(
      body,
      notesOf(found),
      h("div.columns.even.verdicts", {}, converged(convergence), calibrated(calibration, found.calibration_state)),
      h("div.columns.even", {}, curves(convergence), taus(convergence)),
      calibration && h("div.columns.even", {}, reliability(calibration), pit(calibration)),
      h("div.columns.even", {}, agreement(convergence), about(found)),
    );
  }

  // R-hat of each kind and calibration take the service seconds, and are requested later.
  async function show() {
    draw(card);
    const missing = !card.convergence.diagnostics.length || card.calibration_state === "pending";
    if (!missing || looks >= LOOKS) return;
    looks += 1;
    try {
      Object.assign(card, await api.model());
    } catch {
      return; // what is there stays
    }
    draw(card);
    setTimeout(() => element.isConnected && show(), AGAIN);
  }

  return { element, title: "The model", show: () => void show() };
}

function part(title, ...children) {
  const id = unique("part");
  return h("section.card", { "aria-labelledby": id }, h("h2", { id }, title), ...children);
}

// -- verdicts --------------------------------------------------------------------------------

function verdict(question, answer, kind, ...children) {
  return part(question, h(`p.verdict.${kind}`, {}, mark(kind), answer), ...children);
}

function mark(kind) {
  const drawn = { good: "M5 11.5 9.5 16 17 6.5", bad: "M6 6 16 16M16 6 6 16", open: "M11 5v8M11 16.5v.5" }[kind];
  return s(
    `svg.mark.${kind}`,
    { width: 22, height: 22, "aria-hidden": "true" },
    s("circle", { cx: 11, cy: 11, r: 11 }),
    s("path", { d: drawn }),
  );
}

function converged(found) {
  const [word, kind] =
    found.converged === null ? ["Unknown", "open"] : found.converged ? ["Yes", "good"] : ["Not yet", "bad"];
  return verdict(
    "Was it sampled for long enough?",
    word,
    kind,
    found.converged !== null && h("p", {}, convergedWords(found)),
    h("p.hint", {}, found.verdict),
    found.advice && note("mild", h("p", {}, h("strong", {}, "What to do: "), found.advice)),
  );
}

function convergedWords({ converged, chains }) {
  if (chains.length < 2) {
    return converged
      ? "The one chain seems to have converged; several chains would show it more reliably."
      : "The one chain still wanders: predictions may change with more sampling.";
  }
  return converged
    ? "Chains that started apart have come to the same predictions, so more sampling would change them little."
    : "Chains that started apart still differ: predictions may change with more sampling.";
}

function calibrated(found, state) {
  const question = "Are the intervals calibrated?";
  if (state === "pending" || state === "failed") {
    return verdict(question, "Unknown", "open", h("p", {}, "See the note above."));
  }
  if (!found) {
    return verdict(
      question,
      "Not looked at",
      "open",
      h("p", {}, "That takes ratings which the model has not seen. Start the service with some that were held out:"),
      h("p", {}, h("code.block", {}, "bayesmf serve MODEL --test held-out.csv")),
    );
  }
  const [word, kind] =
    found.calibrated === null ? ["Unknown", "open"] : found.calibrated ? ["Yes", "good"] : ["Not everywhere", "bad"];
  const ninety = found.levels.indexOf(90);
  const all = found.curves.find((one) => one.group === "");
  return verdict(
    question,
    word,
    kind,
    all && ninety >= 0 && found.calibrated !== null &&
      h("p", {}, `Where the model said 90%, it was right in ${percent(all.observed[ninety], 1)} of ${plural(found.n, "rating")} that it had never seen.`),
    h("p.hint", {}, `${found.verdict} RMSE ${fixed(found.rmse, 4)}.`),
    found.calibrated === false &&
      note("mild", h("p", {}, h("strong", {}, "What to do: "), "read intervals of that group with care. Where the sampling was too short, mend that first; otherwise noise of users and items of their own (the default, noise_by=\"both\") is what helps most.")),
  );
}

// -- chains ----------------------------------------------------------------------------------

function chainSeries(chains, field) {
  return chains
    .filter((chain) => chain[field].some((value) => value !== null))
    .map((chain) => ({
      name: `chain ${chain.chain + 1}`,
      x: chain.epoch,
      y: chain[field].map((value) => value ?? NaN),
      kind: `line-${chain.chain % LINES}`,
      title: `chain ${chain.chain + 1}`,
    }));
}

function burnIn(chains) {
  const ends = chains.map((chain) => {
    const last = chain.burn_in.lastIndexOf(true);
    return last < 0 ? 0 : (chain.epoch[last] + (chain.epoch[last + 1] ?? chain.epoch[last])) / 2;
  });
  const to = Math.max(0, ...ends);
  return to > 0 ? to : null;
}

function chainTable(caption, series) {
  const epochs = [...new Set(series.flatMap((one) => one.x))].sort((a, b) => a - b);
  const cell = (one, epoch) => fixed(one.y[one.x.indexOf(epoch)], 4);
  return table(
    caption,
    ["Pass", ...series.map((one) => one.name)],
    epochs.map((epoch) => [asGiven(epoch), ...series.map((one) => cell(one, epoch))]),
  );
}

function chainPart(title, chains, field, yName, hint) {
  const series = chainSeries(chains, field);
  if (!series.length) return part(title, h("p.empty", {}, "This was not noted when the model was fitted."));
  const shaded = burnIn(chains);
  const shown = series.map((one) => {
    const values = one.y.filter(Number.isFinite);
    return `${one.name} from ${fixed(values[0], 3)} to ${fixed(values.at(-1), 3)}`;
  });
  return part(
    title,
    h("p.hint", {}, hint),
    lineChart({
      label: `${title}: ${shown.join("; ")}.`,
      series,
      shaded,
      xName: "pass",
      yName,
      whole: true,
      y: rangeAfterStart(series),
    }),
    keyOf([
      ...series.map((one) => [one.name, one.kind]),
      ...(shaded ? [["burn-in, thrown away", "burning"]] : []),
    ]),
    chainTable(`${title}, in numbers`, series),
  );
}

// The first passes have large errors that would flatten the curve, so they are left out.
function rangeAfterStart(series) {
  const all = series.flatMap((one) => one.y).filter(Number.isFinite);
  const later = series.flatMap((one) => one.y.slice(Math.min(2, one.y.length - 1))).filter(Number.isFinite);
  const [low, high] = [Math.min(...later), Math.max(...later)];
  const room = 0.15 * (high - low || Math.abs(high) * 0.1 || 1);
  return [Math.max(low - room, Math.min(...all) - room), Math.min(high + room, Math.max(...all) + room)];
}

function curves({ chains }) {
  const seen = chains.some((chain) => chain.validation_rmse.some((value) => value !== null));
  return chainPart(
    seen ? "Error on held-out ratings, pass by pass" : "Error on training ratings, pass by pass",
    chains,
    seen ? "validation_rmse" : "train_rmse",
    "RMSE",
    "A chain should fall and then level out, and chains should end together.",
  );
}

function taus({ chains }) {
  return chainPart(
    "Estimated precision of ratings, pass by pass",
    chains,
    "tau",
    "precision",
    "One number of each chain that shows how well it mixes: it should vary around one level.",
  );
}

// The two numbers that decide the verdict.
function agreement(found) {
  const limit = found.limit ? `, at most ${asGiven(found.limit)} is asked for` : "";
  return part(
    "Do the chains agree?",
    h("p.hint", {}, `These two decide. R-hat compares chains: 1 where they agree${limit}.`),
    facts([
      ["Predictions", `R-hat ${fixed(found.rhat, 3)}`],
      ["Noise", [`R-hat ${fixed(found.rhat_noise, 3)}`, h("p.hint", {}, "Differences too small to matter for predictions do not count.")]],
    ]),
    singles(found.diagnostics),
  );
}

function singles(diagnostics) {
  if (!diagnostics.length) return null;
  const name = "Single quantities, which do not decide";
  return h(
    "details.numbers",
    {},
    h("summary", {}, name),
    h("p.hint", {}, "Single precisions may mix slowly without it showing in predictions, which is what is judged. ESS counts draws as if they were independent."),
    h(
      "div.scrolls",
      { tabindex: "0", role: "region", "aria-label": name },
      h(
        "table.plain",
        {},
        h("thead", {}, h("tr", {}, ["Quantity", "R-hat", "ESS"].map((head) => h("th", { scope: "col" }, head)))),
        h(
          "tbody",
          {},
          diagnostics.map((one) =>
            h("tr", {}, h("th", { scope: "row" }, one.name), h("td", {}, fixed(one.rhat, 3)), h("td", {}, one.ess === null ? "–" : whole(one.ess))),
          ),
        ),
      ),
    ),
  );
}

// -- calibration -----------------------------------------------------------------------------

function groupName(curve) {
  return curve.group ? `${curve.group} (${curve.range})` : "all held-out ratings";
}

function reliability(found) {
  const place = h("div", {});
  const groups = found.curves.filter((one) => one.group);
  const draw = (chosen) => fill(place, reliabilityChart(found, chosen), key(chosen));
  const key = (chosen) =>
    keyOf([
      ["all held-out ratings", "line-0"],
      ["groups", "group"],
      ["exact", "ideal"],
      ...(chosen ? [[groupName(chosen), "chosen"]] : []),
    ]);
  const id = unique("group");
  const select = h(
    "select",
    { id, onchange: () => draw(groups[Number(select.value)] ?? null) },
    h("option", { value: "" }, "none"),
    groups.map((one, k) => h("option", { value: String(k) }, groupName(one))),
  );
  draw(null);
  return part(
    "Nominal and observed coverage",
    h("p.hint", {}, "On the diagonal, intervals are exact. Below it they are too narrow, above it too wide."),
    place,
    groups.length > 0 && h("p.choose", {}, h("label", { for: id }, "Highlight a group: "), select),
    coverageTable(found),
  );
}

function reliabilityChart(found, chosen) {
  const x = found.levels;
  const line = (curve, kind) => ({
    name: groupName(curve),
    x,
    y: curve.observed.map((share) => 100 * share),
    kind,
    title: groupName(curve),
  });
  const all = found.curves.find((one) => !one.group);
  const ideal = { name: "exact", x: [x[0], x.at(-1)], y: [x[0], x.at(-1)], kind: "ideal" };
  const words = all ? LEVELS.filter((level) => x.includes(level)).map((level) => `${percent(all.observed[x.indexOf(level)], 1)} inside the ${level}% interval`).join(", ") : "";
  return lineChart({
    height: 280,
    label: `Nominal and observed coverage of ${plural(found.n, "held-out rating")}: ${words}.`,
    series: [
      ...found.curves.filter((one) => one.group).map((one) => line(one, "group")),
      ideal,
      ...(all ? [line(all, "line-0")] : []),
      ...(chosen ? [line(chosen, "chosen")] : []),
    ],
    xName: "nominal",
    yName: "observed",
    xText: (value) => `${value}%`,
    yText: (value) => `${value}%`,
  });
}

function coverageTable(found) {
  const shown = LEVELS.filter((level) => found.levels.includes(level));
  return table(
    "Share of held-out ratings inside intervals",
    ["Ratings", "How many", ...shown.map((level) => `${level}%`)],
    found.curves.map((one) => [
      groupName(one),
      whole(one.n),
      ...shown.map((level) => percent(one.observed[found.levels.indexOf(level)], 1)),
    ]),
  );
}

function pit(found) {
  const total = found.pit.reduce((sum, n) => sum + n, 0) || 1;
  const flat = found.pit.map((n) => (n * found.pit.length) / total);
  const words = `between ${fixed(Math.min(...flat))} and ${fixed(Math.max(...flat))} times the even share`;
  return part(
    "Are predictions too high, too low, too bold?",
    h("p.hint", {}, "All columns should reach the line. High at both ends: intervals are too narrow. High in the middle: too wide. Slanted: predictions are off to one side."),
    histogram({
      height: 280,
      label: `Histogram of where held-out ratings fell in their predicted distribution, ${plural(found.pit.length, "column")}, each ${words}.`,
      counts: found.pit,
      xName: "place in the predicted distribution",
      yName: "of the even share",
    }),
    table(
      "Histogram of places in the predicted distribution",
      ["From", "To", "Ratings"],
      found.pit.map((n, k) => [fixed(k / found.pit.length), fixed((k + 1) / found.pit.length), whole(n)]),
    ),
  );
}

function about(card) {
  const { data, settings } = card;
  const present = new Set(settings.map(([name]) => name));
  const own = [
    ["ratings", `${plural(data.ratings, "rating")} of ${plural(data.items, "item")} by ${plural(data.users, "user")}`],
    ["draws", `${plural(card.draws, "draw")} of ${plural(card.factors, "factor")}`],
    ["noise", `${plusMinus(card.noise)} around predictions, 9 times in 10`],
  ].filter(([name]) => !present.has(name));
  const few = data.levels && data.levels.length <= 12;
  return part(
    "Facts",
    facts(
      [
        ...own,
        ...settings.filter(([name]) => name !== "converged"), // it stands above
        ["values", few ? data.levels.map(asGiven).join(", ") : `${asGiven(data.low)} to ${asGiven(data.high)}`],
        ["mean rating", fixed(data.mean)],
        ["users", data.holds_users ? "kept with the model" : "not kept: nothing about any user is here"],
      ].map(([name, value]) => [name[0].toUpperCase() + name.slice(1), value]),
    ),
  );
}
