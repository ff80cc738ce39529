"use strict";
// Filters and their state, which the address (after #!) and this tab's session keep.
const page = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const kept = `report ${location.pathname}`;
  const methods = new Set(data.methods);
  const filters = ["dataset", "setting", "method"];
  const state = { dataset: new Set(), setting: new Set(), method: new Set(), mute: new Set(), show: new Set() };
  const curves = Object.values(data.charts).filter((chart) => chart.kind === "lines");
  const drawn = curves.flatMap((chart) => chart.panels.flatMap((panel) => panel.series));
  const leading = new Set(drawn.filter((one) => one.leading).map((one) => one.name));
  const quiet = new Set(drawn.map((one) => one.name).filter((name) => !leading.has(name)));  // no curves at first
  const store = {  // a browser may forbid it for pages opened from disk
    get: (name) => { try { return sessionStorage.getItem(name); } catch { return null; } },
    set: (name, value) => { try { sessionStorage.setItem(name, value); } catch { /* forgotten, then */ } },
  };

  function remember() {
    const words = new URLSearchParams();
    for (const [name, values] of Object.entries(state)) for (const value of values) words.append(name, value);
    store.set(kept, `${words}`);
    try { history.replaceState(null, "", `#!${words}`); } catch { /* not in this browser */ }
  }

  function recall() {
    const text = location.hash.startsWith("#!") ? location.hash.slice(2) : store.get(kept);
    const words = new URLSearchParams(text || "");
    for (const name of Object.keys(state)) state[name] = new Set(words.getAll(name));
    for (const name of state.method) bring(name);
  }

  function bring(name) {
    state.mute.delete(name);
    if (quiet.has(name)) state.show.add(name);
  }

  function hide(name) {
    state.show.delete(name);
    if (!quiet.has(name)) state.mute.add(name);
  }

  const passes = (name, value) => !state[name].size || state[name].has(value);
  const wanted = (name) => !methods.has(name) || passes("method", name);
  const silent = (name, kind) => kind === "lines" && quiet.has(name) && !state.show.has(name);
  const visible = (name, kind) => wanted(name) && !state.mute.has(name) && !silent(name, kind);
  const figures = [...document.querySelectorAll("figure.chart")].map(
    (element) => new LiveFigure(element, data.charts[element.dataset.chart], visible, wanted));
  const byMethod = (text) => data.methods.find((name) => text === name || text.startsWith(`${name}, `));

  function show() {
    for (const button of document.querySelectorAll("[data-filter] button")) {
      const { filter } = button.closest("[data-filter]").dataset;
      button.setAttribute("aria-pressed", state[filter].has(button.dataset.value));
    }
    for (const part of document.querySelectorAll("section[data-setting]")) {
      part.hidden = !passes("setting", part.dataset.setting) || !passes("dataset", part.dataset.dataset);
    }
    for (const head of document.querySelectorAll('tbody th[scope="row"]')) {
      const method = byMethod(head.textContent);
      head.parentElement.hidden = method !== undefined && !passes("method", method);
    }
    for (const figure of figures) figure.draw();
  }

  function change(edit) {
    edit();
    remember();
    show();
  }

  const flip = (set, value) => set.delete(value) || set.add(value);
  for (const button of document.querySelectorAll("[data-filter] button")) {
    const { filter } = button.closest("[data-filter]").dataset;
    button.onclick = () => change(() => {
      flip(state[filter], button.dataset.value);
      if (filter === "method") bring(button.dataset.value);
    });
  }
  const all = document.getElementById("show-all");
  if (all) all.onclick = () => change(() => {
    for (const name of [...filters, "mute"]) state[name].clear();
    for (const name of quiet) state.show.add(name);
  });

  recall();
  show();
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; show(); } });
  if (document.body.dataset.follow) {  // the page reloads itself: stay where the reader was
    const place = `scroll ${kept}`;
    scrollTo(0, Number(store.get(place) || 0));
    addEventListener("pagehide", () => store.set(place, scrollY));
    addEventListener("beforeunload", () => store.set(place, scrollY));
  }
  return {
    toggle: (name, shown) => change(() => (shown ? hide(name) : bring(name))),
    alone: (name, names) => change(() => {
      names.forEach(hide);
      bring(name);
    }),
  };
})();
