// The code editor over the plain text area: the text area stays the field that is sent, and works
// alone where this script does not run. Mounted inside a shadow root, whose style sheets are
// adopted, so that the page's content security policy needs no exception.
// Suggestions and marks are drawn here: the packages for them would take the page past its limit.
import { history, historyKeymap, standardKeymap } from "@codemirror/commands";
import { HighlightStyle, StreamLanguage, syntaxHighlighting } from "@codemirror/language";
import { toml } from "@codemirror/legacy-modes/mode/toml";
import { Prec, StateEffect, StateField } from "@codemirror/state";
import { Decoration, EditorView, drawSelection, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";

const CHECKED_AFTER_MS = 400;
const SUGGESTIONS_MAX = 8;
const KEYS = {
  "": ["name", "version", "description"],
  defaults: ["output_tokens_max", "when_requested_model_closed", "order", "cache_s", "cache_like_percent"],
  constraints: [
    "name", "when", "allow_only", "forbid", "deny", "cap_output_tokens", "cap_input_tokens", "no_cache",
    "audit_content", "require_approval", "pseudonymise", "redact", "scan_output",
  ],
  preferences: [
    "name", "route", "when", "targets", "order", "weights", "canary", "sticky", "hedge_after_ms",
    "cascade_above_percent", "stay_warm", "cache_s", "cache_like_percent",
  ],
  tests: ["name", "facts", "expect"],
};
const HEADERS = ["[defaults]", "[[constraints]]", "[[preferences]]", "[[tests]]"];

const colours = HighlightStyle.define([
  { tag: tags.comment, color: "var(--ink-soft)", fontStyle: "italic" },
  { tag: tags.string, color: "var(--in-house)" },
  { tag: [tags.number, tags.bool, tags.atom], color: "var(--managed)" },
  { tag: [tags.propertyName, tags.keyword], color: "var(--accent)" },
]);
const look = EditorView.theme({
  "&": { color: "var(--ink)", backgroundColor: "var(--card)", fontSize: "12.5px", height: "560px" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-1px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "18px", overflow: "auto" },
  ".cm-gutters": { backgroundColor: "var(--sunk)", color: "var(--ink-soft)", border: "0" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--accent-wash)" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { background: "var(--accent-wash) !important" },
  ".error": { textDecoration: "underline wavy var(--refused)" },
  ".warning": { textDecoration: "underline wavy var(--warn)" },
});

const LIST = `
  :host { position: relative; display: block; }
  ul { position: absolute; z-index: 5; margin: 0; padding: 4px; list-style: none; max-width: 90%; background: var(--card); border: 1px solid var(--line-strong); border-radius: 6px; box-shadow: 0 4px 16px rgb(0 0 0 / 0.2); font: 12.5px/20px var(--mono); }
  ul[hidden] { display: none; }
  li { display: flex; justify-content: space-between; gap: 16px; padding: 2px 6px; border-radius: 4px; cursor: pointer; }
  li[aria-selected="true"] { background: var(--accent); color: var(--accent-ink); }
  small { opacity: 0.8; font-family: var(--font); }`;

const ask = (address, body) => fetch(address, {
  method: body === undefined ? "GET" : "POST",
  headers: { "x-gatewright-csrf": document.body.dataset.csrf ?? "" },
  body: body === undefined ? undefined : JSON.stringify(body),
});

// In which table a line stands, and whether the cursor is inside its condition.
function sectionAt(state, position) {
  for (let n = state.doc.lineAt(position).number; n > 0; n -= 1) {
    const header = /^\s*\[+\s*([a-z_]+)/.exec(state.doc.line(n).text);
    if (header) return header[1];
  }
  return "";
}

// What may stand at the cursor, and from where it would be replaced.
function completer(words) {
  const inCondition = [
    ...words.facts.map((fact) => ({ label: fact.name, detail: fact.choices.join(" < ") || fact.kind })),
    ...words.functions.map((name) => ({ label: name, detail: "function", apply: `${name}(` })),
    ...["and", "or", "not", "in", "true", "false"].map((label) => ({ label, detail: "" })),
  ];
  return (state, isAsked) => {
    const at = state.selection.main.head;
    const line = state.doc.lineAt(at);
    const before = line.text.slice(0, at - line.from);
    const word = /[\w[]*$/.exec(before)[0];
    if (!word && !isAsked) return null;
    const from = at - word.length;
    let options = [];
    if (/^\s*when\s*=\s*["']/.test(before)) options = inCondition;
    else if (/^\s*[\w[]*$/.test(before)) {
      const keys = KEYS[sectionAt(state, at)] ?? [];
      options = keys.map((label) => ({ label, detail: "key", apply: `${label} = ` }));
      options.push(...HEADERS.map((label) => ({ label, detail: "table" })));
    }
    const fitting = options.filter((each) => each.label.includes(word) && each.label !== word);
    fitting.sort((one, other) => other.label.startsWith(word) - one.label.startsWith(word));
    return fitting.length ? { from, options: fitting.slice(0, SUGGESTIONS_MAX) } : null;
  };
}

// Which suggestion is chosen, told to a screen reader: the focus itself stays in the text.
const setChosen = StateEffect.define();
const chosen = StateField.define({
  create: () => "",
  update: (id, change) => change.effects.findLast((effect) => effect.is(setChosen))?.value ?? id,
  provide: (field) => EditorView.contentAttributes.from(field, (id) => ({
    "aria-autocomplete": "list",
    ...(id && { "aria-controls": "suggestions", "aria-activedescendant": id }),
  })),
});

// A list under the cursor; arrows choose, Enter and Tab take, Escape closes.
class Suggestions {
  constructor(root, complete) {
    this.complete = complete;
    this.found = null;
    this.chosen = 0;
    this.list = document.createElement("ul");
    this.list.id = "suggestions";
    this.list.setAttribute("role", "listbox");
    this.list.setAttribute("aria-label", "Suggestions");
    this.list.hidden = true;
    root.append(this.list);
  }

  offer(view, isAsked) {
    this.found = this.complete(view.state, isAsked);
    this.chosen = 0;
    this.draw(view);
    return this.found !== null;
  }

  close(view) {
    const wasOpen = this.found !== null;
    this.found = null;
    this.list.hidden = true;
    if (wasOpen) view.dispatch({ effects: setChosen.of("") });
    return wasOpen;
  }

  step(view, by) {
    if (!this.found) return false;
    const count = this.found.options.length;
    this.chosen = (this.chosen + by + count) % count;
    this.draw(view);
    return true;
  }

  take(view) {
    if (!this.found) return false;
    const { from, options } = this.found;
    const text = options[this.chosen].apply ?? options[this.chosen].label;
    const to = view.state.selection.main.head;
    this.close(view);
    view.dispatch({ changes: { from, to, insert: text }, selection: { anchor: from + text.length } });
    return true;
  }

  draw(view) {
    if (!this.found) {
      this.list.hidden = true;
      view.dispatch({ effects: setChosen.of("") });
      return;
    }
    this.list.hidden = false;
    this.list.replaceChildren(...this.found.options.map((option, n) => {
      const line = document.createElement("li");
      line.id = `suggestion-${n}`;
      line.setAttribute("role", "option");
      line.setAttribute("aria-selected", String(n === this.chosen));
      const detail = document.createElement("small");
      detail.textContent = option.detail;
      line.append(option.label, detail);
      line.addEventListener("mousedown", (event) => { event.preventDefault(); this.chosen = n; this.take(view); });
      return line;
    }));
    view.dispatch({ effects: setChosen.of(`suggestion-${this.chosen}`) });
    view.requestMeasure({
      read: () => [view.coordsAtPos(this.found?.from ?? 0), view.dom.getBoundingClientRect()],
      write: ([at, frame]) => {
        if (!at) return;
        this.list.style.left = `${at.left - frame.left}px`;
        this.list.style.top = `${at.bottom - frame.top + 2}px`;
      },
    });
  }

  keys() {
    const run = (act) => ({ run: act });
    return Prec.highest(keymap.of([
      { key: "ArrowDown", ...run((view) => this.step(view, 1)) },
      { key: "ArrowUp", ...run((view) => this.step(view, -1)) },
      { key: "Enter", ...run((view) => this.take(view)) },
      { key: "Tab", ...run((view) => this.take(view)) },
      { key: "Escape", ...run((view) => this.close(view)) },
      { key: "Ctrl-Space", ...run((view) => this.offer(view, true)) },
    ]));
  }
}

// What is wrong, underlined where it stands; the list beside the text says it in words.
const setMarks = StateEffect.define();
const marks = StateField.define({
  create: () => Decoration.none,
  update(shown, change) {
    let next = shown.map(change.changes);
    for (const effect of change.effects) {
      if (effect.is(setMarks)) next = Decoration.set(effect.value.map((each) => markOf(change.state, each)), true);
    }
    return next;
  },
  provide: (field) => EditorView.decorations.from(field),
});

function placeOf(state, mark) {
  const line = state.doc.line(Math.min(Math.max(mark.line, 1), state.doc.lines));
  return [Math.min(line.from + mark.column - 1, Math.max(line.to - 1, line.from)), line.to];
}

function markOf(state, mark) {
  const [from, to] = placeOf(state, mark);
  const severity = mark.severity === "warning" ? "warning" : "error";
  const title = `line ${mark.line}, column ${mark.column}: ${mark.message}`;
  if (from >= to) return Decoration.line({ class: severity, attributes: { title } }).range(state.doc.lineAt(from).from);
  return Decoration.mark({ class: severity, attributes: { title } }).range(from, to);
}

// As the page itself draws a state: an icon, and the word.
function pill(kind, word) {
  const drawn = document.querySelector("#pills")?.content.querySelector(`.${kind}`)?.cloneNode(true) ?? document.createElement("span");
  drawn.append(word);
  return drawn;
}

// The verdict alone is read out, and only when it is another: what stands below it is put in anew at
// every pause in typing.
function say(verdict, kind, ...below) {
  const said = document.querySelector("#found p");
  if (!said) return;
  if (said.textContent !== verdict) said.replaceChildren(kind ? pill(kind, verdict) : verdict);
  while (said.nextSibling) said.nextSibling.remove();
  said.after(...below);
}

function sayChecked(view, told) {
  const list = document.createElement("ul");
  list.className = "marks";
  for (const mark of told.marks) {
    const line = document.createElement("li");
    const button = document.createElement("button");
    button.type = "button";
    button.className = "plain";
    button.textContent = `line ${mark.line}, column ${mark.column}`;
    button.addEventListener("click", () => {
      view.dispatch({ selection: { anchor: placeOf(view.state, mark)[0] }, scrollIntoView: true });
      view.focus();
    });
    const isWarning = mark.severity === "warning";
    line.append(pill(isWarning ? "warn" : "bad", mark.severity === "test" ? "test fails" : mark.severity), " ", button, ` ${mark.rule ? `${mark.rule}: ` : ""}${mark.message}`);
    list.append(line);
  }
  const passed = `Ready to submit; test cases passed: ${told.tests}.`;
  if (!told.ok) say("Not ready yet.", "bad", list);
  else if (told.marks.length) say("Ready to submit, with warnings.", "warn", list);
  else say(passed, "good", list);
}

// The last verdict is of another text: it goes, and why there is no new one is said.
function sayUnchecked(status) {
  const why = { 401: "your session has ended", 403: "this page is of an earlier session" }[status] ?? "no answer came";
  const link = document.createElement("a");
  Object.assign(link, { href: "/sign-in", target: "_blank", rel: "noopener", textContent: "Sign in, in another tab" });
  say(`Not checked: ${why}. What you typed stays here, and saving it checks it.`, "", ...(status === 401 ? [link] : []));
}

// Typing over a selection: left to itself, the browser keeps the style of what it replaces by a style
// attribute, which the page's content security policy stops.
const typing = EditorView.domEventHandlers({
  beforeinput(event, view) {
    if (event.inputType !== "insertText" || event.data === null || view.composing) return false;
    event.preventDefault();
    view.dispatch({ ...view.state.replaceSelection(event.data), userEvent: "input.type", scrollIntoView: true });
    return true;
  },
});

async function mount(area) {
  const host = document.createElement("div");
  host.className = "editor";
  const root = host.attachShadow({ mode: "open" });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(LIST);
  root.adoptedStyleSheets.push(sheet);
  const place = document.createElement("div");
  root.append(place);
  const told = await ask(area.dataset.words).catch(() => null);
  const words = told?.ok ? await told.json() : { facts: [], functions: [] };
  const suggestions = new Suggestions(root, completer(words));
  let waiting = 0;
  const check = async (view) => {
    const text = view.state.doc.toString();
    const answer = await ask(area.dataset.check, { text }).catch(() => null);
    if (text !== view.state.doc.toString()) return;
    if (!answer?.ok) {
      sayUnchecked(answer?.status);
      return;
    }
    const told = await answer.json();
    view.dispatch({ effects: setMarks.of(told.marks) });
    sayChecked(view, told);
  };
  const changed = (update) => {
    if (!update.docChanged) {
      if (update.selectionSet) suggestions.close(update.view);
      return;
    }
    area.value = update.state.doc.toString();
    area.dispatchEvent(new Event("input", { bubbles: true }));
    clearTimeout(waiting);
    waiting = setTimeout(() => check(update.view), CHECKED_AFTER_MS);
    if (update.transactions.some((each) => each.isUserEvent("input.type"))) suggestions.offer(update.view, false);
    else suggestions.close(update.view);
  };
  const view = new EditorView({
    doc: area.value,
    parent: place,
    root,
    extensions: [
      suggestions.keys(), lineNumbers(), EditorView.lineWrapping, history(), drawSelection(), highlightActiveLine(), marks, chosen, typing,
      StreamLanguage.define(toml), syntaxHighlighting(colours), look,
      EditorView.contentAttributes.of({ "aria-label": "The document", spellcheck: "false" }),
      keymap.of([...standardKeymap, ...historyKeymap]),
      EditorView.updateListener.of(changed),
    ],
  });
  area.before(host);
  area.hidden = true;
  document.querySelector(`label[for="${area.id}"]`)?.addEventListener("click", () => view.focus());
  // What is wrong with it already is underlined, too, and its list leads to the lines.
  if (document.querySelector("#found .marks")) check(view);
  // For whoever drives the page: the text as it is shown.
  host.editorView = view;
}

for (const area of document.querySelectorAll("textarea[data-editor]")) mount(area);
