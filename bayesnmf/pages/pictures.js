// Pictures that are as wide as the page open in full size, to be moved about in; any click, or Escape, closes them.
const whole = made("dialog", { class: "whole", "aria-label": "Picture in full size" });
whole.addEventListener("click", () => whole.close());
document.body.append(whole);
for (const picture of document.querySelectorAll(".picture img")) {
  const button = made("button", { type: "button", class: "enlarge", title: "Show in full size" });
  picture.replaceWith(button);
  button.append(picture, made("span", {}, "Show in full size"));
  button.addEventListener("click", () => {
    whole.replaceChildren(made("button", { type: "button" }, "Close"), picture.cloneNode());
    whole.showModal();
  });
}
