// Find items: a combobox with a list, by keyboard, mouse or touch.

import { api } from "./api.js";
import { announceSoon, debounce, fill, h, latest, nameOf, plural, unique } from "./dom.js";

const MOST = 8;

export function search({ label, hint, onPick }) {
  const id = unique("search");
  const input = h("input", {
    id,
    type: "text",
    role: "combobox",
    autocomplete: "off",
    spellcheck: "false",
    "aria-expanded": "false",
    "aria-autocomplete": "list",
    "aria-controls": `${id}-list`,
    "aria-describedby": `${id}-hint`,
    placeholder: "Type a part of a title, or an id",
  });
  const list = h("ul", { id: `${id}-list`, role: "listbox", "aria-label": "Items found", hidden: true });
  const message = h("p.search-message", { hidden: true });
  const next = latest();
  let found = [];
  let active = -1;

  function open(shown) {
    list.hidden = !shown || !found.length;
    input.setAttribute("aria-expanded", String(!list.hidden));
    if (list.hidden) mark(-1);
    if (!shown) message.hidden = true;
  }

  function mark(index) {
    active = index;
    [...list.children].forEach((option, k) => {
      option.setAttribute("aria-selected", String(k === index));
      if (k === index) option.scrollIntoView({ block: "nearest" });
    });
    if (index < 0) input.removeAttribute("aria-activedescendant");
    else input.setAttribute("aria-activedescendant", list.children[index].id);
  }

  function pick(index) {
    const item = found[index];
    if (!item) return;
    input.value = "";
    found = [];
    next(); // an answer that is still under way must not open the list again
    open(false);
    onPick(item);
  }

  function say(text) {
    fill(message, text);
    message.hidden = !text;
    if (text) announceSoon(text);
  }

  async function look(quiet = false) {
    const text = input.value.trim().slice(0, 200);
    try {
      found = (await api.items(text, MOST, next())).items;
    } catch (error) {
      if (error.name === "AbortError") return;
      found = [];
      open(false);
      say(error.message);
      return;
    }
    fill(
      list,
      found.map((item, k) =>
        h(
          "li",
          {
            id: `${id}-${k}`,
            role: "option",
            "aria-selected": "false",
            onmousedown: (event) => event.preventDefault(), // the text field keeps the focus
            onclick: () => pick(k),
          },
          h("span", {}, nameOf(item)),
          h("span.dim", {}, plural(item.n_ratings, "rating")),
        ),
      ),
    );
    mark(-1);
    open(document.activeElement === input);
    if (!found.length) say(`Nothing found for “${text}”. Clear the field to see the most rated.`);
    else {
      message.hidden = true;
      if (!quiet) announceSoon(`${plural(found.length, "item")} found${text ? "" : ", the most rated"}; arrow keys choose.`);
    }
  }

  const soon = debounce(() => look(), 120);
  input.addEventListener("input", soon);
  input.addEventListener("click", () => list.hidden && look());
  input.addEventListener("blur", () => open(false));
  input.addEventListener("keyup", (event) => event.key === "Tab" && list.hidden && look(true));
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) look();
      else {
        const step = event.key === "ArrowDown" ? 1 : -1;
        const start = active < 0 && step < 0 ? 0 : active;
        mark((start + step + found.length) % found.length);
      }
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (!list.hidden && (active >= 0 || input.value.trim())) pick(Math.max(active, 0));
    } else if (event.key === "Escape") {
      if (list.hidden) input.value = "";
      open(false);
    }
  });

  const element = h(
    "div.search",
    {},
    h("label", { for: id }, label),
    h("div.search-field", {}, input, list),
    message,
    h("p.hint", { id: `${id}-hint` }, hint),
  );
  input.addEventListener("input", () => input.removeAttribute("aria-invalid"));
  return { element, input, focus: () => input.focus() };
}
