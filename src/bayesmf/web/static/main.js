// The page: routing, the model card, and the form for the token.

import { api, hasToken, keepToken, listen } from "./api.js";
import { fill, h, problem } from "./dom.js";
import { lookView } from "./look.js";
import { modelView } from "./model.js";
import { tryView } from "./try.js";

const main = document.getElementById("main");
const MAKERS = { try: tryView, look: lookView, model: modelView };
const views = new Map();
const AGAIN = 2000; // milliseconds until the card of a new model is requested again
const LOOKS = 15;
let card = null;

// "#/item/50" is the view of users and items, with an item.
function route() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  const id = decoded(rest.join("/"));
  if (name === "user" || name === "item") return { name: "look", given: id ? { [name]: id } : {} };
  const known = Object.hasOwn(MAKERS, name);
  return { name: known ? name : "try", given: {}, unknown: name && !known };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

async function show(moved) {
  if (location.hash === "#main") return; // the skip link
  const { name, given, unknown } = route();
  if (unknown) history.replaceState(null, "", `#/${name}`);
  for (const link of document.querySelectorAll("header nav a")) {
    if (link.getAttribute("href") === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!card) return;
  if (!views.has(name)) views.set(name, MAKERS[name](card));
  const view = views.get(name);
  if (main.firstElementChild !== view.element || main.childElementCount > 1) fill(main, view.element);
  if (moved) window.scrollTo(0, 0);
  if (moved && !view.arrive) view.element.querySelector("h1").focus({ preventScroll: true });
  document.title = `${view.title} – bayesmf`;
  const title = await view.show(given);
  if (!title || route().name !== name) return;
  document.title = `${title} – bayesmf`;
  if (moved) view.arrive?.();
}

function showAbout() {
  const named = card.name.toLowerCase() === "model" ? "The model" : `Model ${card.name}`;
  document.getElementById("about").textContent = `${named}, version ${card.model_version}, by bayesmf ${card.bayesmf}.`;
}

async function begin() {
  main.setAttribute("aria-busy", "true");
  try {
    card = await api.model();
    showAbout();
    fill(main);
    await show(false);
  } catch (error) {
    fill(main, problem(error, begin));
  }
  main.removeAttribute("aria-busy");
}

// A new model was loaded: ratings stay, everything else is requested again. Workers load it one
// after the other, so the card may still be the old one.
async function renew(looks = 1) {
  const before = card.model_version;
  try {
    Object.assign(card, await api.model());
  } catch {
    return; // the next request shows the error
  }
  if (card.model_version === before && looks < LOOKS) setTimeout(renew, AGAIN, looks + 1);
  if (card.model_version === before) return;
  showAbout();
  for (const name of ["look", "model"]) views.delete(name);
  views.get("try")?.renew();
  show(false);
}

// Several requests may wait for the token.
let waiting = null;
function askForToken(detail) {
  waiting ??= new Promise((resolve) => {
    const shown = [...main.childNodes];
    const input = h("input", { id: "token", type: "password", autocomplete: "off", required: true });
    const enter = (event) => {
      event.preventDefault();
      if (!input.value.trim()) return;
      keepToken(input.value.trim());
      waiting = null;
      fill(main, shown);
      resolve();
    };
    const again = hasToken() ? "That token was not accepted. " : "";
    fill(
      main,
      h(
        "form.card.token",
        { onsubmit: enter, "aria-labelledby": "token-title" },
        h("h1", { id: "token-title" }, "This service wants a token"),
        h("p", {}, again, detail),
        h("label", { for: "token" }, "Token"),
        h("div.field-and-button", {}, input, h("button.main", { type: "submit" }, "Go on")),
        h("p.hint", {}, "It is kept in this tab alone, and forgotten when the tab is closed."),
      ),
    );
    input.focus();
  });
  return waiting;
}

listen({ askForToken, versionChanged: () => card && renew() });
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the hash stays that of the view
  main.focus();
});
window.addEventListener("hashchange", () => show(true));
begin();
