// Input of a rating: stars, buttons for other levels, or a number if there are no levels.

import { asGiven, h, unique } from "./dom.js";

const MOST_BUTTONS = 11;

function areStars(levels) {
  return levels.length <= 7 && levels.every((level, k) => level === k + 1);
}

export function ratingField({ title, rating, data, onRate }) {
  if (!data.levels) return numberField({ title, rating, data, onRate });
  if (data.levels.length > MOST_BUTTONS) return choiceField({ title, rating, data, onRate });
  const stars = areStars(data.levels);
  const name = unique("rating");
  const labels = data.levels.map((level) =>
    h(
      "label",
      {},
      h("input", {
        type: "radio",
        name,
        value: String(level),
        checked: level === rating,
        "aria-label": stars ? `${level} ${level === 1 ? "star" : "stars"}` : asGiven(level),
        onchange: () => {
          shade(level);
          onRate(level);
        },
      }),
      h("span", { "aria-hidden": "true" }, asGiven(level)),
    ),
  );

  // Stars differ by their glyph too, for those who cannot distinguish their colours.
  function shade(chosen) {
    labels.forEach((label, k) => {
      const level = data.levels[k];
      const on = chosen !== null && (stars ? level <= chosen : level === chosen);
      label.classList.toggle("on", on);
      if (stars) label.lastChild.textContent = on ? "★" : "☆";
    });
  }

  shade(rating);
  return h(
    `fieldset.${stars ? "stars" : "levels"}`,
    {},
    h("legend.unseen", {}, `Your rating of ${title}`),
    labels,
  );
}

function numberField({ title, rating, data, onRate }) {
  const problem = h("span.field-problem", { role: "alert" });
  const field = h("input", {
    type: "number",
    min: data.low,
    max: data.high,
    step: "any",
    value: rating === null ? "" : String(rating),
    "aria-label": `Your rating of ${title}, from ${asGiven(data.low)} to ${asGiven(data.high)}`,
    onchange: () => {
      const value = field.valueAsNumber;
      const right = Number.isFinite(value) && value >= data.low && value <= data.high;
      field.setAttribute("aria-invalid", String(!right));
      problem.textContent = right ? "" : `a number from ${asGiven(data.low)} to ${asGiven(data.high)}`;
      if (right) onRate(value);
    },
  });
  return h("div.number", {}, field, problem);
}

function choiceField({ title, rating, data, onRate }) {
  const field = h(
    "select",
    { "aria-label": `Your rating of ${title}`, onchange: () => field.value && onRate(Number(field.value)) },
    h("option", { value: "" }, "–"),
    data.levels.map((level) => h("option", { value: String(level) }, asGiven(level))),
  );
  field.value = rating === null ? "" : String(rating);
  return field;
}

// A rating drawn from the probabilities of a prediction.
export function drawRating(prediction, data) {
  const { probabilities } = prediction;
  if (data.levels && probabilities) {
    let left = Math.random();
    const index = probabilities.findIndex((share) => (left -= share) < 0);
    return data.levels[index < 0 ? data.levels.length - 1 : index];
  }
  const normal = Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
  const drawn = prediction.mean + prediction.std * normal;
  const near = (value) => Math.min(Math.max(value, data.low), data.high);
  if (!data.levels) return near(Number(drawn.toFixed(1)));
  return data.levels.reduce((a, b) => (Math.abs(b - drawn) < Math.abs(a - drawn) ? b : a));
}
