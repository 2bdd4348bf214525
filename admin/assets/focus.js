// Where the focus is when a page or a piece of it is answered: whoever works with keys or a screen
// reader is never thrown back to the top of the page without a word.

// What an element is found by once its piece was read anew: an id if it has one, else what it leads
// to or is called, and among those that share it, its place.
const MARKS = ["href", "name", "aria-label"];

function selectorOf(element) {
  if (element.id) return `#${CSS.escape(element.id)}`;
  const said = MARKS.filter((name) => element.hasAttribute(name));
  return element.localName + said.map((name) => `[${name}="${CSS.escape(element.getAttribute(name))}"]`).join("");
}

let stood = null;

function remember() {
  const element = document.activeElement;
  if (!element || element === document.body) return;
  const selector = selectorOf(element);
  const region = element.parentElement?.closest("[tabindex], [id]");
  stood = { element, selector, place: [...document.querySelectorAll(selector)].indexOf(element), region: region && selectorOf(region) };
}

function lead() {
  const { element, selector, place, region } = stood ?? {};
  stood = null;
  if (!selector || element.isConnected || document.activeElement !== document.body) return;
  const same = document.querySelectorAll(selector);
  const found = same[place] ?? same[0] ?? (region && document.querySelector(region));
  found?.focus({ preventScroll: true });
}

document.addEventListener("htmx:before:swap", remember);
document.addEventListener("htmx:after:swap", lead);

// The same problem, told by each of many readings, is said once: a screen reader reads it out each time.
document.addEventListener("htmx:before:swap", (event) => {
  const { ctx, tasks } = event.detail;
  if (!(ctx?.response?.status >= 400)) return;
  const beside = document.getElementById("beside");
  const told = tasks.map((task) => task.fragment?.textContent.trim()).join("");
  if (told && beside?.textContent.trim() === told) event.preventDefault();
});

// A form that was refused comes back as a page: its field in question has the focus, or else what was
// said of it.
const answered = performance.getEntriesByType("navigation")[0]?.responseStatus ?? 0;
if (answered >= 400 && !document.querySelector("main [autofocus]")) {
  const said = document.querySelector('main [role="alert"]');
  said?.setAttribute("tabindex", "-1");
  said?.focus();
}
