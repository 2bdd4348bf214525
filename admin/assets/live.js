// A list that is read again every few seconds says how old it is when that stops working, and keeps
// the row that was looked at.
let readAt = performance.now();

function stale() {
  const rows = document.querySelector("[data-live]");
  const said = rows?.querySelector("[data-stale]");
  if (!said) return;
  const age = Math.round((performance.now() - readAt) / 1000);
  said.hidden = age < 3 * Number(rows.dataset.live);
  said.textContent = `stale ${age} s`;
}

const selected = () => document.querySelector('#rows tr[aria-selected="true"] a')?.getAttribute("href");
let kept;
document.addEventListener("htmx:before:swap", () => { kept = selected(); });
document.addEventListener("htmx:after:swap", (event) => {
  if (!document.querySelector("[data-live]") || event.detail.ctx.response?.status >= 400) return;
  if (event.target.getAttribute?.("hx-target") !== "#peek") readAt = performance.now();
  if (!kept) return;
  const link = [...document.querySelectorAll("#rows tbody a")].find((each) => each.getAttribute("href") === kept);
  link?.closest("tr").setAttribute("aria-selected", "true");
});
setInterval(stale, 1000);
