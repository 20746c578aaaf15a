// The page: which view is shown, the model's card, and the token where the service wants one.

import { api, hasToken, keepToken, listen } from "./api.js";
import { fill, h, problem } from "./dom.js";
import { lookView } from "./look.js";
import { modelView } from "./model.js";
import { tryView } from "./try.js";

const main = document.getElementById("main");
const MAKERS = { try: tryView, look: lookView, model: modelView };
const views = new Map();
let card = null;

// "#/item/50" is the view of users and items, with an item.
function route() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  const id = decoded(rest.join("/"));
  if ((name === "user" || name === "item") && id) return { name: "look", given: { [name]: id } };
  return { name: name in MAKERS ? name : "try", given: {} };
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
  const { name, given } = route();
  for (const link of document.querySelectorAll("header nav a")) {
    if (link.getAttribute("href") === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!card) return;
  if (!views.has(name)) views.set(name, MAKERS[name](card));
  const view = views.get(name);
  if (main.firstElementChild !== view.element || main.childElementCount > 1) fill(main, view.element);
  if (moved) {
    window.scrollTo(0, 0);
    view.element.querySelector("h1").focus({ preventScroll: true });
  }
  document.title = `${view.title} – bayesmf`;
  const title = await view.show(given);
  if (title && route().name === name) document.title = `${title} – bayesmf`;
}

function tellAbout() {
  const named = `Model ${card.name}, version ${card.model_version}, by bayesmf ${card.bayesmf}.`;
  document.getElementById("about").textContent = named;
}

async function begin() {
  main.setAttribute("aria-busy", "true");
  try {
    card = await api.model();
    tellAbout();
    fill(main);
    await show(false);
  } catch (error) {
    fill(main, problem(error, begin));
  }
  main.removeAttribute("aria-busy");
}

// A new model has come: ratings stay, everything else is asked again.
async function renew() {
  try {
    Object.assign(card, await api.model());
  } catch {
    return; // whatever is asked next tells what is wrong
  }
  tellAbout();
  for (const name of ["look", "model"]) views.delete(name);
  views.get("try")?.renew();
  show(false);
}

// Several questions may wait for the one token.
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
