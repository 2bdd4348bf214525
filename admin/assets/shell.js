// What every page has: htmx, keys, the finder, and copying. Without this script every link and form
// still works; it only makes them quicker.
import htmx from "htmx.org";
import "./drafts.js";
import "./focus.js";

// htmx starts itself a task later, which may be after the page has loaded: a key or click in between
// would leave the page where it should open the row beside it.
htmx.initialize();

document.addEventListener("htmx:config:request", (event) => {
  const headers = event.detail.ctx?.request?.headers;
  if (headers) headers["x-gatewright-csrf"] = document.body.dataset.csrf ?? "";
});

const isTyping = (element) => element.closest("input, textarea, select, [contenteditable]") !== null;
const rows = () => [...document.querySelectorAll("table.rows tbody tr")].filter((row) => row.querySelector("a"));

function select(step) {
  const all = rows();
  if (!all.length) return;
  const now = all.findIndex((row) => row.getAttribute("aria-selected") === "true");
  const next = Math.min(Math.max(now + step, 0), all.length - 1);
  all[now]?.removeAttribute("aria-selected");
  all[next].setAttribute("aria-selected", "true");
  all[next].querySelector("a").focus({ preventScroll: true });
  all[next].scrollIntoView({ block: "nearest" });
}

function open(id) {
  const dialog = document.getElementById(id);
  if (!dialog || dialog.open) return;
  // Closing leads back to where the focus was; from nowhere it would stay in what is closed, and the
  // next letter would count as typed.
  if (document.activeElement === document.body) document.getElementById("page")?.focus({ preventScroll: true });
  dialog.showModal();
  dialog.querySelector("input")?.select();
}

// The drawer stands at the end of the page: whoever opens a row with the keyboard is led into it, and
// back to the row afterwards. The list may have been read anew meanwhile: its address finds the row.
let opener = "";

function closePeek() {
  const peek = document.getElementById("peek");
  if (!peek?.hasChildNodes()) return;
  peek.replaceChildren();
  [...document.querySelectorAll("table.rows a")].find((each) => each.getAttribute("href") === opener)?.focus();
}

// Past its first and last control lies the rest of the page, half of it below the drawer: it closes, and
// Tab goes on from the row that it was opened by.
function leavePeek(event) {
  const controls = [...document.querySelectorAll("#peek :is(a, button, summary, [tabindex])")];
  if (!controls.length || document.activeElement !== (event.shiftKey ? controls[0] : controls.at(-1))) return;
  closePeek();
  if (event.shiftKey) event.preventDefault();
}

document.addEventListener("htmx:after:swap", (event) => {
  // It is told of the link that asked.
  if (event.target.getAttribute?.("hx-target") !== "#peek" || event.detail.ctx.response?.status >= 400) return;
  opener = event.target.getAttribute("href");
  document.querySelector("#peek [data-closes-peek]")?.focus();
});

// What could not be shown is said above the page, until something is shown again.
document.addEventListener("htmx:after:swap", (event) => {
  if (event.detail.ctx?.response?.status < 400) document.getElementById("beside")?.replaceChildren();
});

function closeMenu() {
  const menu = document.querySelector("details.menu[open]");
  if (menu) menu.open = false;
  menu?.querySelector("summary").focus();
  return menu !== null;
}

function closeMenusBeside(target) {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(target)) menu.open = false;
  }
}
document.addEventListener("focusin", (event) => closeMenusBeside(event.target));

document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "k") {
    event.preventDefault();
    open("finder");
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  // Also from a field in it: whoever opened a menu by mistake does not have to walk back out of it.
  if (event.key === "Escape" && !closeMenu() && !isTyping(event.target)) closePeek();
  if (event.key === "Tab") leavePeek(event);
  if (isTyping(event.target)) return;
  if (document.body.dataset.keys === "off") return;
  if (event.key === "j") select(1);
  else if (event.key === "k") select(-1);
  else if (event.key === "?") open("keys");
  else if (event.key === "/") {
    const filter = document.querySelector('input[type="search"][name="q"]');
    if (filter) event.preventDefault();
    filter?.focus();
  }
});

// A button's own text is not read out when it changes; that of a status is, where one stood before.
const copied = document.createElement("span");
copied.className = "visually-hidden";
copied.role = "status";
if (document.querySelector("[data-copies]")) document.body.append(copied);

// Beyond this machine a page that came by plain http has no clipboard, and some people permit none:
// what is selected is copied the old way, or by whoever sees it selected.
async function copy(shown) {
  try {
    await navigator.clipboard.writeText(shown.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(shown);
    return document.execCommand("copy");
  }
}

document.addEventListener("click", async (event) => {
  const dialog = event.target.closest("[data-opens]")?.dataset.opens;
  if (dialog) open(dialog);
  if (event.target.closest("[data-closes-peek]")) closePeek();
  const copier = event.target.closest("[data-copies]");
  if (copier) {
    const done = await copy(document.getElementById(copier.dataset.copies));
    const word = copier.textContent;
    copier.textContent = copied.textContent = done ? "Copied" : "Press Ctrl C";
    setTimeout(() => { copier.textContent = word; copied.textContent = ""; }, 1500);
  }
  closeMenusBeside(event.target);
});

// A second press while the first is on its way would throw the first one's answer away, and with it
// a secret that is shown once. A file may be asked for again: its answer leaves the page as it is.
const AGAIN_MS = 5_000;
let sent = new Map();
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (event.defaultPrevented || form.getAttribute("method") !== "post") return;
  if (event.timeStamp - (sent.get(form) ?? -AGAIN_MS) < AGAIN_MS) event.preventDefault();
  else sent.set(form, event.timeStamp);
});
addEventListener("pageshow", () => { sent = new Map(); });

const finder = document.getElementById("finder");
finder?.querySelector("input").addEventListener("input", (event) => {
  const words = event.target.value.toLowerCase().split(/\s+/);
  for (const line of finder.querySelectorAll("#screens li")) {
    const text = line.textContent.toLowerCase();
    line.hidden = !words.every((word) => text.includes(word));
  }
});
finder?.addEventListener("keydown", (event) => {
  const lines = [...finder.querySelectorAll("li:not([hidden]) a")];
  const now = lines.indexOf(document.activeElement);
  if (event.key === "ArrowDown") { event.preventDefault(); lines[Math.min(now + 1, lines.length - 1)]?.focus(); }
  if (event.key === "ArrowUp") { event.preventDefault(); (lines[now - 1] ?? finder.querySelector("input")).focus(); }
  if (event.key === "Enter" && now < 0) lines[0]?.click();
  // A field of searching takes the first Escape to empty itself, and the finder stayed in the way.
  if (event.key === "Escape") { event.preventDefault(); finder.close(); }
});

for (const button of document.querySelectorAll("[data-opens][hidden]")) button.hidden = false;
globalThis.htmx = htmx;
