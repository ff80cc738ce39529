"use strict";
// Values under the pointer; drag (or wheel with Ctrl) to zoom, double click to see all again.
const tip = document.body.appendChild(document.createElement("div"));
tip.id = "tip";
tip.hidden = true;

class LiveFigure extends Figure {
  listen(view) {
    const { svg, area } = view;
    const at = (event) => { const box = svg.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    let from = null, frame = null;
    svg.onpointermove = (event) => {
      const [px, py] = at(event);
      if (frame) {
        const end = this.corner(area, from, [px, py], event.pointerType);
        for (const [name, value] of Object.entries(end)) frame.setAttribute(name, value);
      } else this.point(view, px, py, event);
    };
    svg.onpointerleave = () => { view.hover.replaceChildren(); tip.hidden = true; };
    if (this.chart.kind === "heat") return;
    svg.onpointerdown = (event) => {
      from = at(event);
      frame = add(svg, "rect", { class: "frame", width: 0, height: 0 });
      svg.setPointerCapture(event.pointerId);
    };
    svg.onpointerup = (event) => {
      const box = frame && this.corner(area, from, at(event), event.pointerType);
      if (frame) frame.remove();
      frame = null;
      if (box && box.width > 8) this.zoomTo(view, box);
    };
    svg.onpointercancel = () => { if (frame) frame.remove(); frame = null; };
    svg.ondblclick = () => { this.zoom = null; this.draw(); };
    svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;  // a plain wheel scrolls the page
      event.preventDefault();
      const factor = event.deltaY < 0 ? 0.8 : 1.25, [px] = at(event);
      const x = px + (area.left - px) * factor, width = (area.right - area.left) * factor;
      this.zoomTo(view, { x, width, y: area.top, height: area.bottom - area.top });
    }, { passive: false });
  }

  corner(area, [ax, ay], [bx, by], kind) {  // touch zooms from left to right only
    const flat = kind === "touch" || this.chart.kind === "dots" || Math.abs(by - ay) < 8;
    const [x, width] = [Math.min(ax, bx), Math.abs(bx - ax)];
    return flat ? { x, width, y: area.top, height: area.bottom - area.top } : { x, width, y: Math.min(ay, by), height: Math.abs(by - ay) };
  }

  zoomTo({ x, y, area }, box) {
    const ends = (back, a, b) => [back(a), back(b)].sort((one, two) => one - two);
    this.zoom = { x: ends(x.back, box.x, box.x + box.width) };
    const whole = box.height >= area.bottom - area.top - 1;
    if (y.back && !this.chart.y.names.length) this.zoom.y = whole ? this.spans.y : ends(y.back, box.y, box.y + box.height);
    this.draw();
  }

  point(view, px, py, event) {
    const lines = this.chart.kind === "heat" ? this.cellAt(view, px, py) : this.chart.kind === "dots" ? this.dotAt(view, px, py) : this.crossAt(view, px);
    tip.hidden = !lines;
    if (!lines) return;
    tip.replaceChildren(...lines.map(([text, colour]) => {
      const line = document.createElement("div");
      line.textContent = text;
      if (colour) { line.className = "of"; line.style.setProperty("--c", colour); }
      return line;
    }));
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8))}px`;
  }

  said(one, n, values) {
    const range = one.low && known(one.low[n]) && one.low[n] !== one.high[n] ? ` (${short(one.low[n])} to ${short(one.high[n])})` : "";
    return `${one.name}: ${short(values[n])}${range}`;
  }

  crossAt({ panel, x, y, hover, area }, px) {
    hover.replaceChildren();
    const found = this.shown(panel).flatMap((one) => {
      const places = one.x.map((v, n) => [Math.abs(x.place(v) - px), n]).filter(([, n]) => known(one.y[n]));
      return places.length ? [{ one, ...((([far, n]) => ({ far, n }))(places.reduce((a, b) => (b[0] < a[0] ? b : a)))) }] : [];
    });
    if (!found.length) return null;
    const nearest = found.reduce((a, b) => (b.far < a.far ? b : a));
    const at = nearest.one.x[nearest.n];
    add(hover, "path", { d: `M${x.place(at)} ${area.top}V${area.bottom}`, class: "guide" });
    for (const { one, n } of found) add(hover, "circle", { cx: x.place(one.x[n]), cy: y.place(one.y[n]), r: 4, class: "dot" }).style.setProperty("--c", one.look.color);
    const names = this.chart.x.names;
    const sorted = found.sort((a, b) => (b.one.y[b.n] - a.one.y[a.n]) * (this.chart.y.downwards ? -1 : 1));
    const head = `${this.chart.x.label.split(" (")[0]}: ${names.length ? names[at] : short(at)}`;
    return [[head], ...sorted.slice(0, 14).map(({ one, n }) => [this.said(one, n, one.y), one.look.color])];
  }

  dotAt({ panel, x, y, rows }, px, py) {
    const all = this.shown(panel).flatMap((one) => one.x.map((value, n) => ({ one, n, value })));
    const near = all.filter(({ one, n, value }) => known(value) && rows.has(one.y[n]))
      .map((dot) => ({ ...dot, far: Math.hypot(x.place(dot.value) - px, 2 * (y.place(dot.one.y[dot.n]) - py)) }));
    if (!near.length) return null;
    const { one, n } = near.reduce((a, b) => (b.far < a.far ? b : a));
    return [[this.chart.y.names[one.y[n]]], [this.said(one, n, one.x), one.look.color]];
  }

  cellAt({ panel, x, rows, step, area }, px, py) {
    const column = Math.round(x.back(px)), index = Math.floor((py - area.top) / step);
    const row = [...rows.keys()][index];
    if (row === undefined || !(column in this.chart.x.names)) return null;
    const value = panel.cells[row][column], { chart } = this;
    const place = `${chart.y.label} ${chart.y.names[row]}, ${chart.x.label} ${chart.x.names[column]}`;
    return [[place], [known(value) ? `${short(value)} ${chart.colour.label}` : "no value"]];
  }
}
