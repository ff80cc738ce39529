"use strict";
// Draws the charts of the page as SVG.
const shape = document.createElement("template");
shape.innerHTML = "<svg></svg>";
const SVG = shape.content.firstChild.namespaceURI;
const DASHES = { "-": "", "--": "6 3", "-.": "7 3 1.5 3", ":": "2 2.5" };
const LINE_HEIGHT = 24, BOTTOM = 42, TOP = 24, LETTER = 6.4;

function add(parent, tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return parent.appendChild(made);
}

const known = (value) => value !== null && value !== undefined;
const short = (value) => String(Number(value.toPrecision(4)));
const shorten = (text, most) => (text.length > most ? text.slice(0, Math.max(1, most - 1)) + "…" : text);
const ruler = document.createElement("canvas").getContext("2d");
ruler.font = `11.5px ${getComputedStyle(document.body).fontFamily}`;  // that of .chart text
const textWidth = (text) => ruler.measureText(text).width;

function fitted(text, room) {
  let most = text.length;
  while (most > 1 && textWidth(shorten(text, most)) > room) most--;
  return shorten(text, most);
}

function scaling(axis, [low, high], from, to) {
  const log = axis.scale === "log";
  const turn = log ? Math.log : (v) => v;
  const [a, b] = [turn(low), turn(high)];
  const [start, end] = axis.downwards ? [to, from] : [from, to];
  const place = (v) => start + ((turn(v) - a) / (b - a || 1)) * (end - start);
  const back = (p) => { const v = a + ((p - start) / (end - start)) * (b - a); return log ? Math.exp(v) : v; };
  return { place, back };
}

function ticks(axis, [low, high], most) {
  if (axis.names.length) {
    const step = Math.ceil(axis.names.length / most);
    return axis.names.map((name, at) => [at, name]).filter(([at]) => at % step === 0 && at >= low && at <= high);
  }
  if (axis.scale === "log") {
    const tens = [];
    for (let power = Math.ceil(Math.log10(low)); power <= Math.log10(high); power++) tens.push(10 ** power);
    return tens.map((v) => [v, short(v)]);
  }
  const rough = (high - low) / Math.max(1, most);
  const ten = 10 ** Math.floor(Math.log10(rough || 1));
  let step = [1, 2, 5, 10].map((n) => n * ten).find((n) => n >= rough) || ten;
  if (axis.whole) step = Math.max(1, Math.round(step));
  const made = [];
  for (let n = Math.ceil(low / step); n * step <= high + step / 1e6; n++) made.push([n * step, short(n * step)]);
  return made;
}

function extent(axis, values, guides) {
  if (axis.names.length) return [-0.3, axis.names.length - 0.7];
  const all = [...values.filter(known), ...guides];
  if (!all.length) return [0, 1];
  let [low, high] = [Math.min(...all), Math.max(...all)];
  if (axis.scale === "log") return [low / 1.1, high * 1.1];
  const room = (high - low || Math.abs(high) || 1) * 0.05;
  return [low - room, high + room];
}

// --- one figure ---------------------------------------------------------------------------------

class Figure {
  constructor(element, chart, visible, passes) {
    Object.assign(this, { element, chart, visible, passes, zoom: null });
    this.keys = element.querySelector(".keys");
    this.panels = element.querySelector(".panels");
    this.panels.classList.toggle("several", chart.panels.length > 1);
    this.byRows = chart.panels.every((p) => p.series.every((s) => chart.y.names.includes(s.name)));
    this.makeLegend();
  }

  names() { return [...new Set(this.chart.panels.flatMap((panel) => panel.series.map((one) => one.name)))]; }

  look(name) { return this.chart.panels.flatMap((p) => p.series).find((one) => one.name === name).look; }

  rows() {  // of the y-axis that are shown, with their places
    return this.chart.y.names.map((name, at) => [name, at]).filter(([name]) => this.passes(name));
  }

  shown(panel) {  // what a row names can be filtered, but is not hidden by a legend
    return panel.series.filter((one) => (this.byRows ? this.passes(one.name) : this.visible(one.name, this.chart.kind)));
  }

  draw() {
    this.legend();
    this.panels.replaceChildren();
    const { chart } = this;
    const series = chart.panels.flatMap((panel) => this.shown(panel));
    const across = (key) => series.flatMap((one) => one[key] || []);
    const guided = (axis) => chart.guides.filter((guide) => guide.axis === axis).map((guide) => guide.value);
    const dots = chart.kind === "dots";
    const ranges = [...across("low"), ...across("high")];
    this.spans = {
      x: extent(chart.x, [...across("x"), ...(dots ? ranges : [])], guided("x")),
      y: extent(chart.y, [...across("y"), ...(dots ? [] : ranges)], guided("y")),
      ...this.zoom,
    };
    for (const panel of chart.panels) this.panel(panel);
  }

  makeLegend() {
    if (this.chart.kind === "heat") return this.scaleBar();
    if (!this.byRows) for (const name of this.names()) this.keys.append(this.key(name));
    this.reset = this.keys.appendChild(document.createElement("button"));
    this.reset.textContent = "reset zoom";
    this.reset.className = "reset";
    this.reset.onclick = () => { this.zoom = null; this.draw(); };
  }

  legend() {
    for (const key of this.keys.querySelectorAll(".key")) {
      key.setAttribute("aria-pressed", this.visible(key.dataset.name, this.chart.kind));
    }
    if (this.reset) this.reset.hidden = !this.zoom;
  }

  key(name) {
    const button = document.createElement("button");
    const look = this.look(name);
    button.className = "key";
    button.dataset.name = name;
    button.title = "click to hide or show, double click to show it alone";
    button.style.setProperty("--c", look.color);
    const sample = add(button, "svg", { width: 22, height: 10, "aria-hidden": "true" });
    if (this.chart.kind === "dots") add(sample, "circle", { cx: 11, cy: 5, r: 4, class: "dot" });
    else add(sample, "path", { d: "M0 5H22", class: "line", "stroke-dasharray": DASHES[look.linestyle], "stroke-width": look.linewidth + 0.9 });
    button.append(name);
    button.onclick = () => page.toggle(name, this.visible(name, this.chart.kind));
    button.ondblclick = () => page.alone(name, this.names());
    return button;
  }

  scaleBar() {
    const bar = this.keys.appendChild(document.createElement("span"));
    bar.className = "scale";
    const ends = [document.createElement("span"), document.createElement("i"), document.createElement("span")];
    ends[0].textContent = "0";
    ends[2].textContent = `${short(this.most())} ${this.chart.colour.label}`;
    bar.append(...ends);
  }

  most() {
    if (this.chart.colour.scale !== "sqrt") return 100;
    return Math.max(1, ...this.chart.panels.flatMap((panel) => panel.cells.flat()).filter(known));
  }

  panel(panel) {
    const box = this.panels.appendChild(document.createElement("div"));
    if (panel.title) box.appendChild(document.createElement("h4")).textContent = panel.title;
    const { chart } = this;
    const width = Math.max(220, Math.floor(box.clientWidth));
    const named = ["dots", "heat"].includes(chart.kind);
    const left = named ? Math.min(0.42 * width, 16 + Math.max(0, ...chart.y.names.map(textWidth))) : 44;
    const rows = named ? Math.max(1, this.rows().length) : 0;
    const line = chart.kind === "heat" ? Math.max(13, Math.min(LINE_HEIGHT, 300 / rows)) : LINE_HEIGHT + 4;
    const height = named ? TOP + BOTTOM + rows * line : chart.panels.length > 1 ? 240 : 320;
    const area = { left, right: width - 12, top: TOP, bottom: height - BOTTOM, width, height };
    const svg = add(box, "svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${panel.title} ${chart.y.label} by ${chart.x.label}` });
    const id = `clip-${Math.random().toString(36).slice(2)}`;
    add(add(svg, "clipPath", { id }), "rect", { x: left, y: area.top - 6, width: area.right - left + 6, height: area.bottom - area.top + 12 });
    this.axes(svg, area, named);
    const inner = add(svg, "g", { "clip-path": `url(#${id})` });
    const hover = add(svg, "g", { class: "hover", "pointer-events": "none" });
    const view = { panel, svg, area, inner, hover, ...this.scales(area, named) };
    if (chart.kind === "heat") this.heat(view);
    else {
      for (const guide of chart.guides) this.guide(view, guide);
      this.shown(panel).forEach((one, at, all) => this.series(view, one, at, all.length));
    }
    this.listen(view);
  }

  scales(area, named) {
    const { chart, spans } = this;
    const heat = chart.kind === "heat";
    const x = scaling(chart.x, heat ? [-0.5, chart.x.names.length - 0.5] : spans.x, area.left, area.right);
    if (!named) return { x, y: scaling(chart.y, spans.y, area.bottom, area.top) };
    const rows = new Map(this.rows().map(([, at], index) => [at, index]));
    const step = (area.bottom - area.top) / Math.max(1, rows.size);
    return { x, rows, step, y: { place: (at) => area.top + (rows.get(Math.round(at)) + 0.5) * step } };
  }

  axes(svg, area, named) {
    const { chart } = this;
    const { x, y } = this.scales(area, named);
    const room = area.right - area.left;
    const widest = chart.x.names.length ? Math.max(...chart.x.names.map((n) => n.length)) : 5;
    const spans = chart.kind === "heat" ? [-1, chart.x.names.length] : this.spans.x;
    for (const [value, text] of ticks(chart.x, spans, Math.max(2, Math.floor(room / (14 + LETTER * widest))))) {
      const at = x.place(value);
      if (chart.kind !== "heat") add(svg, "path", { d: `M${at} ${area.top}V${area.bottom}`, class: "grid" });
      add(svg, "text", { x: at, y: area.bottom + 15, "text-anchor": "middle" }, text);
    }
    const lines = named ? this.rows().map(([name, at]) => [at, name]) : ticks(chart.y, this.spans.y, chart.y.whole ? 10 : 6);
    for (const [value, text] of lines) {
      const at = y.place(value);
      if (chart.kind !== "heat") add(svg, "path", { d: `M${area.left} ${at}H${area.right}`, class: "grid" });
      const label = add(svg, "text", { x: area.left - 6, y: at + 4, "text-anchor": "end" });
      label.textContent = fitted(text, area.left - 8);
      if (label.textContent !== text) add(label, "title", {}, text);
    }
    const middle = (area.left + area.right) / 2;
    const whole = area.width / (LETTER * 0.95);
    const half = LETTER * chart.x.label.length * 0.47;
    add(svg, "text", { x: Math.max(half, Math.min(middle, area.width - half)), y: area.height - 8, "text-anchor": "middle", class: "label" }, shorten(chart.x.label, whole));
    add(svg, "text", { x: 0, y: 12, class: "label" }, shorten(chart.y.label, whole));
  }

  guide({ inner, x, y, area }, guide) {
    const at = guide.axis === "x" ? x.place(guide.value) : y.place(guide.value);
    const d = guide.axis === "x" ? `M${at} ${area.top}V${area.bottom}` : `M${area.left} ${at}H${area.right}`;
    add(inner, "path", { d, class: "guide" });
    if (guide.label) add(inner, "text", { x: at + 4, y: area.top + 9, class: "label" }, guide.label);
  }

  series(view, one, at, count) {
    const group = add(view.inner, "g", { class: "series", "data-name": one.name });
    group.style.setProperty("--c", one.look.color);
    if (this.chart.kind === "dots") return this.dots(view, group, one, at, count);
    const marks = this.chart.kind === "marks";
    const shift = marks && one.low ? 5 * (at - (count - 1) / 2) : 0;  // error bars beside each other
    const xs = one.x.map((v) => view.x.place(v) + shift), ys = one.y.map((v) => (known(v) ? view.y.place(v) : null));
    const points = xs.map((px, n) => [px, ys[n]]).filter(([, py]) => py !== null);
    const ends = one.low ? one.low.map((v, n) => [xs[n], view.y.place(v), view.y.place(one.high[n])]) : [];
    if (marks) for (const [px, a, b] of ends) add(group, "path", { d: `M${px} ${a}V${b}`, class: "range" });
    else if (ends.length) {
      const edge = [...ends.map(([px, a]) => `${px} ${a}`), ...ends.map(([px, , b]) => `${px} ${b}`).reverse()];
      add(group, "path", { d: `M${edge.join("L")}Z`, class: "band" });
    }
    const d = `M${points.map((p) => p.map((v) => v.toFixed(1)).join(" ")).join("L")}`;
    add(group, "path", { d, class: "line", "stroke-width": one.look.linewidth, "stroke-dasharray": DASHES[one.look.linestyle] });
    if (marks || points.length < 2) for (const [cx, cy] of points) add(group, "circle", { cx, cy, r: 3.5, class: "dot" });
  }

  dots(view, group, one, at, count) {
    const shift = this.byRows ? 0 : (at - (count - 1) / 2) * Math.min(6, view.step / count);
    const places = one.x.map((_, n) => n).reverse();  // single trials first, their mean on top
    places.forEach((n) => {
      const value = one.x[n];
      if (!known(value) || !view.rows.has(one.y[n])) return;
      const cy = view.y.place(one.y[n]) + shift;
      const ranged = one.low && known(one.low[n]);
      if (ranged) add(group, "path", { d: `M${view.x.place(one.low[n])} ${cy}H${view.x.place(one.high[n])}`, class: "range" });
      add(group, "circle", { cx: view.x.place(value), cy, r: ranged ? 4.5 : 3, class: ranged ? "dot" : "dot small" });
    });
  }

  heat({ panel, inner, x, y, rows, step, area }) {
    const most = this.most(), root = this.chart.colour.scale === "sqrt";
    const wide = (area.right - area.left) / this.chart.x.names.length;
    for (const at of rows.keys()) panel.cells[at].forEach((value, column) => {
      const share = known(value) ? (root ? Math.sqrt(value / most) : value / most) : 0;
      const cell = { x: x.place(column) - wide / 2, y: y.place(at) - step / 2, width: wide, height: step, class: "cell" };
      add(inner, "rect", cell).style.setProperty("--share", `${Math.round(100 * share)}%`);
      const text = known(value) ? (root ? short(value) : value.toFixed(0)) : "";
      if (wide < 8 + LETTER * text.length || step < 14 || (root && !value)) return;
      add(inner, "text", { x: x.place(column), y: y.place(at) + 4, "text-anchor": "middle", class: share > 0.5 ? "on dark" : "on" }, text);
    });
  }

  listen() {}  // see hover.js
}
