// The code of a setup link stands behind the #, which no browser sends anywhere; it is put into its
// field and taken out of the address, so that it stays in no history.
const takeCode = () => {
  const code = location.hash.slice(1);
  const field = document.getElementById("field-code");
  if (!code || !field) return;
  field.value = code;
  history.replaceState(null, "", location.pathname);
  document.getElementById("field-name")?.focus();
};
takeCode();
// A second link, after one that had ended, into the tab of the first: the browser loads nothing anew.
addEventListener("hashchange", takeCode);
