// A button that works for a while does not begin again meanwhile. It is not disabled: a disabled one
// loses the focus, and whoever works with keys would be thrown to the top of the page.
export async function busy(button, work) {
  if (button.hasAttribute("aria-disabled")) return;
  button.setAttribute("aria-disabled", "true");
  try {
    await work();
  } finally {
    button.removeAttribute("aria-disabled");
  }
}
