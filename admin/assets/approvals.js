// One key for what waits: `a` and `d` go to the open matter's comment, and from there Enter sends.
let chosen = null;

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isTyping = event.target.closest("input, textarea, select") !== null;
  if (isTyping) {
    if (event.key === "Enter" && chosen && event.target.form === chosen.form) {
      event.preventDefault();
      chosen.form.requestSubmit(chosen);
    }
    return;
  }
  if (document.body.dataset.keys === "off" || (event.key !== "a" && event.key !== "d")) return;
  const matter = document.querySelector("details[data-matter][open]");
  const button = matter?.querySelector(`button[data-key="${event.key}"]`);
  if (!button) return;
  event.preventDefault();
  chosen = button;
  const comment = button.form.querySelector("input[name=reason]");
  (comment ?? button).focus();
});
