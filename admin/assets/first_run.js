// Streams the answer to "run it here" into the page. Without this script the form shows it whole.
import { busy } from "./busy.js";

const form = document.getElementById("run-here")?.form;
const box = document.getElementById("answer");
const text = document.getElementById("the-answer");

async function run() {
  box.hidden = false;
  text.textContent = "";
  try {
    const answer = await fetch(form.action, {
      method: "POST",
      headers: { accept: "text/plain", "content-type": "application/x-www-form-urlencoded" },
      body: new URLSearchParams(new FormData(form)),
    });
    if (!answer.headers.get("content-type")?.startsWith("text/plain")) { form.submit(); return; }
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) text.textContent += piece.value;
    const id = answer.headers.get("x-gatewright-request");
    if (id) {
      const line = document.getElementById("explained");
      line.querySelector("a").href = `/o/${answer.headers.get("x-gatewright-organisation")}/traffic/${encodeURIComponent(id)}`;
      line.hidden = false;
      document.getElementById("unexplained")?.remove();
    }
  } catch {
    text.textContent += "\nThe connection broke off.";
  }
}

form?.addEventListener("submit", (event) => {
  event.preventDefault();
  busy(event.submitter, run);
});
