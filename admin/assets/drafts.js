// What somebody wrote in a form that takes a while, and has not sent: leaving the page asks first.
// The pages are never kept by the browser, so that going back would not bring it back.
let isSent = false;

const isChanged = (field) => {
  if (field.type === "hidden" || field.type === "password") return false;
  if (field.localName === "select") {
    const first = [...field.options].find((each) => each.defaultSelected) ?? field.options[0];
    return !field.multiple && field.options[field.selectedIndex] !== first;
  }
  if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
  return field.defaultValue !== undefined && field.value !== field.defaultValue;
};

const isUnsent = () => [...document.querySelectorAll("form[data-draft]")]
  .some((form) => form.dataset.draft === "unsaved" || [...form.elements].some(isChanged));

document.addEventListener("submit", (event) => {
  if (!event.defaultPrevented && event.target.matches("[data-draft]")) isSent = true;
});
addEventListener("pageshow", () => { isSent = false; });
addEventListener("beforeunload", (event) => { if (!isSent && isUnsent()) event.preventDefault(); });
