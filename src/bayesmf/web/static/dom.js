// Elements, formats of numbers, and announcements for screen readers.

const SVG = "http://www.w3.org/2000/svg";

// h("a.big", {href: "#/try", onclick: f}, "text", child): text is always text, never markup.
export function h(name, given = {}, ...children) {
  return build(document.createElement(name.split(".")[0]), name, given, children);
}

export function s(name, given = {}, ...children) {
  return build(document.createElementNS(SVG, name.split(".")[0]), name, given, children);
}

function build(element, name, given, children) {
  const classes = name.split(".").slice(1).join(" ");
  if (classes) element.setAttribute("class", classes);
  for (const [key, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key in PROPERTIES) element[key] = value;
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...present(children));
  return element;
}

// Children that are there: null, undefined and false stand for none.
function present(children) {
  return children.flat(3).filter((child) => (child ?? false) !== false);
}

const PROPERTIES = { checked: 1, disabled: 1, hidden: 1, value: 1 };

export function fill(element, ...children) {
  element.replaceChildren(...present(children));
  return element;
}

let counter = 0;
export function unique(prefix) {
  counter += 1;
  return `${prefix}-${counter}`;
}

// -- numbers ---------------------------------------------------------------------------------

export function fixed(value, digits = 2) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const text = Math.abs(value).toFixed(digits);
  return value < 0 && Number(text) !== 0 ? `−${text}` : text;
}

export function signed(value, digits = 2) {
  const text = fixed(value, digits);
  return text.startsWith("−") || text === "–" || Number(text) === 0 ? text : `+${text}`;
}

// Half of the interval that a value falls into 9 times in 10: every "±" of the page is one.
export function within(std) {
  return 1.645 * std;
}

export function plusMinus(std) {
  return `± ${fixed(within(std))}`;
}

export function whole(value) {
  return Math.round(value).toLocaleString("en");
}

export function percent(share, digits = 0) {
  return `${fixed(100 * share, digits)}%`;
}

export function plural(n, one, many = `${one}s`) {
  return `${whole(n)} ${n === 1 ? one : many}`;
}

// A rating without trailing zeros: 4, 3.5
export function asGiven(rating) {
  return String(Number(rating.toFixed(4))).replace("-", "−");
}

// Numbers that, rounded, still add up to their rounded sum: the ones that lose most by rounding
// are rounded the other way.
export function roundedParts(parts, digits = 2) {
  const unit = 10 ** digits;
  const total = Math.round(parts.reduce((sum, part) => sum + part, 0) * unit);
  const down = parts.map((part) => Math.floor(part * unit));
  const missing = total - down.reduce((sum, part) => sum + part, 0);
  const order = parts
    .map((part, index) => [part * unit - down[index], index])
    .sort((a, b) => b[0] - a[0]);
  for (const [, index] of order.slice(0, Math.max(0, missing))) down[index] += 1;
  return { parts: down.map((part) => part / unit), total: total / unit };
}

export function clamp(value, low, high) {
  return Math.min(Math.max(value, low), high);
}

// -- time ------------------------------------------------------------------------------------

export function debounce(call, wait) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...given), wait);
  };
}

// Returns a function that cancels the previous request and returns the signal of a new one.
export function latest() {
  let controller = null;
  return () => {
    controller?.abort();
    controller = new AbortController();
    return controller.signal;
  };
}

// -- shared by the views ----------------------------------------------------------------------

export function announce(text) {
  const place = document.getElementById("said");
  if (place) place.textContent = text;
}

// Announces only the last of several quick changes.
export const announceSoon = debounce(announce, 700);

// While a call is under way its buttons do nothing; `disabled` would also take the focus away.
export async function busy(buttons, call) {
  if (buttons.some((one) => one.hasAttribute("aria-disabled"))) return;
  for (const one of buttons) one.setAttribute("aria-disabled", "true");
  try {
    await call();
  } finally {
    for (const one of buttons) one.removeAttribute("aria-disabled");
  }
}

export function linkTo(kind, id, text) {
  return h("a", { href: `#/${kind}/${encodeURIComponent(String(id))}` }, text);
}

export function nameOf(item) {
  return item.title ?? (typeof item.item === "string" ? item.item : `Item ${item.item}`);
}

export function userName(id) {
  return /^user\b/i.test(String(id)) ? `U${String(id).slice(1)}` : `User ${id}`;
}

export function note(kind, ...children) {
  return h(`div.note.${kind}`, { role: kind === "bad" ? "alert" : null }, ...children);
}

export function problem(error, again = null) {
  return note(
    "bad",
    h("p", {}, error.message),
    again && h("button.plain", { type: "button", onclick: (event) => retry(event.target, again) }, "Try again"),
  );
}

// The button goes away with its message, so the focus moves to the heading of what is tried again.
function retry(button, again) {
  const region = button.closest("section, main");
  const target = region.querySelector("h1, h2, h3") ?? region;
  target.setAttribute("tabindex", "-1");
  target.focus({ preventScroll: true });
  again();
}

// The notes of an answer: warnings about it.
export function notesOf(answer) {
  const notes = answer.notes ?? [];
  return notes.length ? note("mild", ...notes.map((text) => h("p", {}, text))) : null;
}

export function table(caption, heads, rows) {
  return h(
    "details.numbers",
    {},
    h("summary", {}, "Numbers as a table"),
    h(
      "div.scrolls",
      { tabindex: "0", role: "region", "aria-label": caption },
      h(
        "table",
        {},
        h("caption.unseen", {}, caption),
        h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
        h(
          "tbody",
          {},
          rows.map((row) =>
            h(
              "tr",
              {},
              row.map((cell, k) => (k ? h("td", {}, cell) : h("th", { scope: "row" }, cell))),
            ),
          ),
        ),
      ),
    ),
  );
}

export function facts(pairs) {
  return h(
    "dl.facts",
    {},
    pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );
}
