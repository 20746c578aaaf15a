// Try it: rate a few items, and see the recommendations, their uncertainty, and why.

import { api } from "./api.js";
import { scaleOf } from "./bars.js";
import { announce, announceSoon, busy, debounce, fill, h, latest, nameOf, plural, problem } from "./dom.js";
import { yourRatings } from "./mine.js";
import { change, draws, moves, policySwitch, tally } from "./policy.js";
import { recommended } from "./rows.js";
import { howSure } from "./sure.js";

const SHOWN = 10;
const DRAWS = 20;

export function tryView(card) {
  const nextSure = latest();
  const sure = howSure();
  const lead = h("p.lead", {}, leadOf(card.data));
  const mine = yourRatings(card, debounce(() => refreshAll(), 150));
  const list = listPart(card, mine, () => refreshAll());

  // Both at once, also when one of them is tried again: what failed one has failed the other.
  function refreshAll() {
    list.refresh();
    sure.update(mine.sent(), nextSure(), refreshAll);
  }

  refreshAll();
  const element = h(
    "section.try",
    { "aria-labelledby": "try-title" },
    h("h1", { id: "try-title", tabindex: "-1" }, "Recommendations that say how sure they are"),
    lead,
    h(
      "div.columns",
      {},
      mine.element,
      list.element,
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
      lead.textContent = leadOf(card.data);
      mine.renew();
      sure.forget();
      refreshAll();
    },
  };
}

function leadOf(data) {
  const there = `${plural(data.items, "item")}, rated ${plural(data.ratings, "time")} by ${plural(data.users, "person", "people")}.`;
  return `${there} Rate a few of them. The model does not know you: it predicts your taste from these ratings alone, with the uncertainty of each prediction.`;
}

// What is recommended, by the policy that is chosen; again() sends all requests again.
function listPart(card, mine, again) {
  let policy = "mean";
  let last = null; // items of the list shown, where it is a draw
  const next = latest();
  const first = tally();
  const place = h("div", { "aria-busy": "true" });
  const about = h("p.say", {});
  const changed = h("p.hint", {});
  const more = h("button", { type: "button", onclick: () => busy([more], () => show(true)) }, "Draw again");
  const many = h("button", { type: "button", onclick: () => busy([many, more], drawMany) }, `Draw ${DRAWS} times`);
  const drawing = h("div.draws", { hidden: true }, h("div.buttons", {}, more, many), first.element, changed);

  const ask = (n, ratings, signal) => api.recommend({ ratings, n, policy, parts: n > 1, likely: n > 1 }, signal);

  // Errors are shown in place of the list.
  async function guarded(call) {
    place.setAttribute("aria-busy", "true");
    try {
      await call(next());
    } catch (error) {
      if (error.name === "AbortError") return;
      about.textContent = changed.textContent = "";
      fill(place, problem(error, again));
    }
    place.removeAttribute("aria-busy");
  }

  function show(isDraw = false) {
    return guarded(async (signal) => {
      const ratings = mine.sent();
      const answer = await ask(SHOWN, ratings, signal);
      if (draws(policy) && answer.items.length) first.count(answer.items[0]);
      fillList(answer, ratings, isDraw ? moves(last, answer.items) : null);
      const [best] = answer.items;
      if (best) announceSoon(`${plural(answer.items.length, "recommendation")}. First: ${nameOf(best)}, expected ${scaleOf(card.data).text(best.mean)}.`);
    });
  }

  function drawMany() {
    return guarded(async (signal) => {
      const ratings = mine.sent();
      first.clear();
      for (let k = 1; k <= DRAWS; k += 1) {
        const answer = await ask(k < DRAWS ? 1 : SHOWN, ratings, signal);
        if (answer.items.length) first.count(answer.items[0]);
        if (k === DRAWS) fillList(answer, ratings, null);
      }
      announce(`${DRAWS} draws are done. The list is the last of them.`);
    });
  }

  function fillList(answer, ratings, moves) {
    last = draws(policy) ? answer.items : null;
    about.textContent = headline(ratings.length);
    changed.textContent = change(moves, answer.items);
    const moved = changed.textContent ? null : moves;
    const scale = scaleOf(card.data);
    fill(place, recommended(answer, { scale, who: { ratings }, whose: "your", moved, onRate: mine.add }));
  }

  function refresh() {
    first.clear();
    last = null;
    drawing.hidden = !draws(policy);
    show();
  }

  const choose = (chosen) => {
    policy = chosen;
    refresh();
  };
  const element = h(
    "section.card.list-card",
    { "aria-labelledby": "list-title" },
    h("h2", { id: "list-title" }, "Recommended"),
    about,
    policySwitch(choose),
    drawing,
    place,
  );
  return { element, refresh };
}

function headline(n) {
  return n
    ? `For a person with your ${plural(n, "rating")}.`
    : "Before any rating, this is what people in general rate highest. Bands are wide: the model knows nothing of you.";
}
