// The code of a setup link stands behind the #, which no browser sends anywhere; it is put into its
// field and taken out of the address, so that it stays in no history.
const code = location.hash.slice(1);
const field = document.getElementById("field-code");
if (code && field) {
  field.value = code;
  history.replaceState(null, "", location.pathname);
  document.getElementById("field-name")?.focus();
}
