// Verifies a record of the audit log here, in the reader's browser, from the bytes on the page: leaf
// hash, path to the root, the checkpoint's signature. RFC 6962, RFC 8032 and C2SP's signed note, with
// WebCrypto and nothing of the gateway's. Each step is shown; what cannot be checked says so.

import { busy } from "./busy.js";

const text = new TextEncoder();
const hex = (bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
const unhex = (said) => Uint8Array.from(said.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
const unbase64 = (said) => Uint8Array.from(atob(said), (character) => character.charCodeAt(0));
const short = (bytes) => `${hex(bytes).slice(0, 16)}…`;
const same = (one, two) => hex(one) === hex(two);

async function sha256(...parts) {
  const whole = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return new Uint8Array(await crypto.subtle.digest("SHA-256", whole));
}

const leafHash = (record) => sha256(Uint8Array.of(0), record);
const nodeHash = (left, right) => sha256(Uint8Array.of(1), left, right);

// RFC 9162, section 2.1.3.2. Numbers and not bits: a log may have more than 2**31 records.
async function rootFromPath(leaf, index, size, path) {
  let [place, last, root] = [index, size - 1, leaf];
  for (const hash of path) {
    if (last === 0) throw new Error("the path is too long");
    if (place % 2 === 1 || place === last) {
      root = await nodeHash(hash, root);
      while (place % 2 === 0 && place !== 0) [place, last] = [place / 2, Math.floor(last / 2)];
    } else {
      root = await nodeHash(root, hash);
    }
    [place, last] = [Math.floor(place / 2), Math.floor(last / 2)];
  }
  if (last !== 0) throw new Error("the path is too short");
  return root;
}

function openNote(note) {
  const end = note.lastIndexOf("\n\n");
  if (end < 0) throw new Error("the checkpoint is no signed note");
  const body = note.slice(0, end + 1);
  const [origin, size, root, ...more] = body.split("\n");
  const time = more.find((line) => line.startsWith("utc_us: "))?.slice(8);
  const signatures = note.slice(end + 2).trim().split("\n").map((line) => {
    const [dash, name, encoded] = line.split(" ");
    if (dash !== "\u2014" || !encoded) throw new Error("a signature line cannot be read");
    const raw = unbase64(encoded);
    return { name, short: raw.slice(0, 4), signature: raw.slice(4) };
  });
  return { body, origin, size: Number(size), root: unbase64(root), utcMs: Number(time) / 1000, signatures };
}

async function readKey(said) {
  const [, name, stated, encoded] = said.match(/^([^+]+)\+([0-9a-f]{8})\+(.+)$/) ?? [];
  const raw = unbase64(encoded ?? "");
  if (raw.length !== 33 || raw[0] !== 1) throw new Error("a key is no Ed25519 key");
  const id = (await sha256(text.encode(`${name}\n`), raw)).slice(0, 4);
  if (hex(id) !== stated) throw new Error("a key's hash does not fit");
  return { name, id, raw: raw.slice(1), said };
}

// The key that signed; null when none did, undefined when this browser knows no Ed25519.
async function signerOf(note, keys) {
  for (const { name, short: id, signature } of note.signatures) {
    for (const key of keys.filter((each) => each.name === name && same(each.id, id))) {
      let known;
      try {
        known = await crypto.subtle.importKey("raw", key.raw, { name: "Ed25519" }, false, ["verify"]);
      } catch {
        return undefined;
      }
      if (await crypto.subtle.verify("Ed25519", known, signature, text.encode(note.body))) return key;
    }
  }
  return null;
}

function teller(list) {
  list.replaceChildren();
  return (state, words) => {
    const [mark, line, said] = ["span", "li", "span"].map((name) => document.createElement(name));
    mark.textContent = { good: "✓", bad: "✗", warn: "–" }[state];
    mark.className = state;
    said.textContent = words;
    line.append(mark, said);
    list.append(line);
    return state === "good";
  };
}

async function verify(panel) {
  const tell = teller(panel.querySelector(".steps"));
  if (!globalThis.crypto?.subtle) {
    tell("warn", "This browser gives no cryptography to a page that came without HTTPS. Take the proof to the offline verifier.");
    return;
  }
  const answer = await fetch(panel.dataset.proof);
  if (!answer.ok) {
    tell("bad", `The proof could not be fetched (${answer.status}).`);
    return;
  }
  const proof = await answer.json();
  const shown = document.getElementById(panel.dataset.shown).textContent;
  const note = openNote(proof.checkpoint);
  const results = [];
  const step = (holds, yes, no) => results.push(tell(holds ? "good" : "bad", holds ? yes : no));

  step(shown === proof.record, "The record on this page is the one in the proof, byte for byte.", "The record on this page is not the one in the proof.");
  const leaf = await leafHash(text.encode(shown));
  step(hex(leaf) === panel.dataset.leaf, `Its leaf hash, computed here, is the one in the receipt: ${short(leaf)}`, `Its leaf hash, computed here, is another one: ${short(leaf)}`);
  const root = await rootFromPath(leaf, proof.sequence - 1, note.size, proof.path.map(unhex));
  step(same(root, note.root), `As record ${proof.sequence} of ${note.size} it leads over ${proof.path.length} hashes to the signed root: ${short(root)}`, `As record ${proof.sequence} of ${note.size} it leads to another root: ${short(root)}`);
  const signer = await signerOf(note, await Promise.all(proof.keys.map(readKey)));
  if (signer === undefined) {
    tell("warn", "The signature was not checked: this browser knows no Ed25519. Take the proof to the offline verifier.");
    return;
  }
  const when = Number.isFinite(note.utcMs) ? new Date(note.utcMs).toISOString() : "an unknown time";
  step(signer !== null, `The checkpoint of ${note.origin} was signed at ${when} by ${signer?.name}.`, "No key of the log signed this checkpoint.");
  if (results.every(Boolean)) tell("good", `It holds, if this key is the log's own: compare it with the one you know, ${signer.said}`);
}

for (const panel of document.querySelectorAll("[data-proof]")) {
  const button = panel.querySelector("[data-verifies]");
  button.hidden = false;
  button.addEventListener("click", () => busy(button, async () => {
    try {
      await verify(panel);
    } catch (error) {
      teller(panel.querySelector(".steps"))("bad", `The proof cannot be read: ${error.message}`);
    }
  }));
}
