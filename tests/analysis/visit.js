// What the tests in test_browser.py look at in a page.
const CHART = "setting-1-convergence";
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const chart = (name) => document.querySelector(`figure[data-chart="${name}"]`);
const names = (name) => [...new Set(all(".series", chart(name)).map((one) => one.dataset.name))].sort();
const rows = () => [...new Set(all("tbody tr:not([hidden]) th").map((head) => head.textContent))];
const sections = () => all("section[data-setting]:not([hidden])").map((section) => section.id);
const key = (text) => all(".key", chart(CHART)).find((button) => button.dataset.name === text);
const filter = (text) => document.querySelector(`[data-filter] button[data-value="${text}"]`);
const pressed = (button) => button.getAttribute("aria-pressed");
const svg = () => chart(CHART).querySelector(".panels svg");
const texts = () => all("text", svg()).map((text) => text.textContent);
const reset = () => chart(CHART).querySelector(".reset");
const tip = document.getElementById("tip");
const kept = () => sessionStorage.getItem(`report ${location.pathname}`);
const twice = (element) => element.dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
const mouse = (kind, x, y) => {
  const box = svg().getBoundingClientRect();
  const place = { clientX: box.left + x * box.width, clientY: box.top + y * box.height };
  const pointer = { bubbles: true, pointerId: 1, pointerType: "mouse" };
  svg().dispatchEvent(new PointerEvent(kind, { ...place, ...pointer }));
};
const empty = () => all("figure.chart").filter((one) => !one.querySelector(".series, .cell"));
const room = document.documentElement.clientWidth;  // without the scroll bar
const wide = () => all("body *").filter((one) => {
  const scrolls = one.closest(".scroll, pre"), clipped = one.closest("clipPath, g[clip-path]");
  return !scrolls && !clipped && one.getBoundingClientRect().right > room + 1;
});
const cut = () => all(".chart svg text").filter((text) => {
  const inner = text.getBoundingClientRect(), outer = text.ownerSVGElement.getBoundingClientRect();
  return inner.left < outer.left - 1 || inner.right > outer.right + 1;
});
SVGElement.prototype.setPointerCapture = () => {};  // there is no real pointer to capture
