// One chart: lines on a canvas, with a crosshair and marks.

const CLIP = 5; // pixels around the plot, so that no dot at its edge is cut
const TIP_ROWS = 6;

class Chart {
  constructor(title, fromZero) {
    this.title = title;
    this.fromZero = fromZero;
    this.lines = [];
    this.marks = [];
    this.edge = { left: 50, right: 12, top: 18, bottom: 24 };
    this.names = el("h3", {}, title);
    this.wholeButton = el("button", { type: "button", class: "show-all", hidden: true, onclick: () => { zoomTo(null); this.canvas.focus({ preventScroll: true }); } }, "Show all");
    this.canvas = el("canvas", { tabindex: 0, role: "img" });
    this.tip = el("div", { class: "tip", hidden: true });
    this.root = el("div", { class: "chart" }, el("div", { class: "chart-head" }, this.names, this.wholeButton), this.canvas, this.tip);
    this.drag = this.pinch = this.pointed = null;
    listenTo(this);
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  // Each line has its points as place, value and what was told: a value that is not finite is null.
  show(lines, marks) {
    this.lines = lines;
    this.marks = marks;
    const said = lines.filter((line) => line.isNamed).map((line) => [line, line.value ?? (line.points.length ? line.points.at(-1)[2] : null)]);
    const parts = said.filter(([line]) => line.isInHead).map(([line, value]) => el("span", {}, el("i", { style: { background: line.colour } }), line.label + " ", valueOf(value)));
    this.names.replaceChildren(this.title, ...parts);
    this.canvas.setAttribute("aria-label", this.title + ": " + said.map(([line, value]) => (line.label + " " + number(value)).trim()).join(", "));
    this.draw();
  }

  bounds() {
    let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const { points } of this.lines) {
      if (points.length) { x0 = Math.min(x0, points[0][0]); x1 = Math.max(x1, points.at(-1)[0]); }
    }
    if (x0 < Infinity) for (const mark of this.marks) { x0 = Math.min(x0, mark.x); x1 = Math.max(x1, mark.x); }
    else [x0, x1] = [0, 1];
    if (x0 === x1) [x0, x1] = [x0 - 0.5, x1 + 0.5];
    this.all = [x0, x1];
    if (shared.zoom) [x0, x1] = shared.zoom;
    for (const { points } of this.lines) {
      for (const [x, y] of points) {
        if (x < x0 || x > x1 || !isDrawn(y)) continue;
        if (y < y0) y0 = y;
        if (y > y1) y1 = y;
      }
    }
    if (y0 === Infinity) [y0, y1] = shared.log ? [0.1, 1] : [0, 1];
    if (shared.log) [y0, y1] = [Math.log10(y0), Math.log10(y1)];
    if (this.fromZero && !shared.log) y0 = Math.min(y0, 0);
    const least = 1e-9 * Math.max(Math.abs(y0), Math.abs(y1)); // less is noise of the last digits
    const room = y1 - y0 > least ? (y1 - y0) * 0.06 : Math.abs(y0) * 0.1 || 0.1;
    this.xs = [x0, x1];
    this.ys = [this.fromZero && y0 === 0 ? 0 : y0 - room, y1 + room];
  }

  px(x) { return this.edge.left + ((x - this.xs[0]) / (this.xs[1] - this.xs[0])) * (this.width - this.edge.left - this.edge.right); }

  py(y) {
    const value = shared.log ? Math.log10(y) : y;
    return this.height - this.edge.bottom - ((value - this.ys[0]) / (this.ys[1] - this.ys[0])) * (this.height - this.edge.top - this.edge.bottom);
  }

  toX(px) {
    if (!this.xs) return null;
    return this.xs[0] + ((px - this.edge.left) / (this.width - this.edge.left - this.edge.right)) * (this.xs[1] - this.xs[0]);
  }

  draw() {
    const box = this.canvas.getBoundingClientRect();
    if (!box.width) return;
    const ratio = window.devicePixelRatio || 1;
    [this.width, this.height] = [box.width, box.height];
    if (this.canvas.width !== Math.round(box.width * ratio)) {
      this.canvas.width = Math.round(box.width * ratio);
      this.canvas.height = Math.round(box.height * ratio);
    }
    this.wholeButton.hidden = !shared.zoom;
    const pen = this.canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    pen.font = "11px system-ui, sans-serif";
    this.bounds();
    const places = this.arrange(pen);
    this.drawGrid(pen);
    pen.save();
    pen.beginPath();
    pen.rect(this.edge.left - CLIP, 0, this.width - this.edge.left - this.edge.right + 2 * CLIP, this.height - this.edge.bottom + CLIP);
    pen.clip();
    for (const mark of this.shownMarks()) drawMark(pen, mark, Math.round(this.px(mark.x)) + 0.5, this.height - this.edge.bottom);
    for (const line of [...this.lines].reverse()) this.drawLine(pen, line); // the first run on top
    this.drawHover(pen);
    pen.restore();
    drawLabels(pen, places);
  }

  // As much room at the left as the longest number needs, and at the top as the labels of marks do.
  arrange(pen) {
    this.rows = verticalTicks(this.ys[0], this.ys[1], 5, shared.log);
    this.edge.left = Math.max(30, 14 + Math.ceil(Math.max(0, ...this.rows.map(([, text]) => pen.measureText(text).width))));
    const places = labelPlaces(pen, groupsOf(this.shownMarks(), (x) => this.px(x)), (x) => this.px(x), this.edge.left, this.width - 2);
    this.edge.top = places.some((place) => place.row) ? 32 : 18;
    return places;
  }

  shownMarks() {
    return this.marks.filter((mark) => mark.x >= this.xs[0] && mark.x <= this.xs[1]);
  }

  drawGrid(pen) {
    pen.lineWidth = 1;
    pen.fillStyle = colour("faint");
    pen.strokeStyle = colour("line");
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const [value, text] of this.rows) {
      const y = Math.round(this.py(value)) + 0.5;
      pen.beginPath(); pen.moveTo(this.edge.left, y); pen.lineTo(this.width - this.edge.right, y); pen.stroke();
      pen.fillText(text, this.edge.left - 8, y);
    }
    pen.textAlign = "center";
    pen.textBaseline = "alphabetic";
    for (const [value, text] of horizontalTicks(this.xs[0], this.xs[1], Math.max(2, this.width / 75), shared.axis)) {
      const half = pen.measureText(text).width / 2;
      pen.fillText(text, Math.min(this.px(value), this.width - half - 1), this.height - 7);
    }
  }

  drawLine(pen, line) {
    pen.globalAlpha = line.alpha;
    pen.strokeStyle = pen.fillStyle = line.colour;
    pen.lineWidth = line.width;
    pen.lineJoin = "round";
    pen.setLineDash(line.isDashed ? [6, 4] : []);
    pen.beginPath();
    let isOpen = false;
    for (const [x, y] of thinned(line.points, this.xs, this.width)) {
      if (!isDrawn(y)) { isOpen = false; continue; }
      if (isOpen) pen.lineTo(this.px(x), this.py(y)); else pen.moveTo(this.px(x), this.py(y));
      isOpen = true;
    }
    pen.stroke();
    pen.setLineDash([]);
    if (line.points.length < 40 && line.isNamed) {
      for (const [x, y] of line.points) {
        if (!isDrawn(y)) continue;
        pen.beginPath(); pen.arc(this.px(x), this.py(y), 2.4, 0, 7); pen.fill();
      }
    }
    pen.globalAlpha = 1;
  }

  drawHover(pen) {
    if (this.drag && Math.abs(this.drag.to - this.drag.from) > 3) {
      pen.fillStyle = colour("ember");
      pen.globalAlpha = 0.14;
      pen.fillRect(this.drag.from, this.edge.top, this.drag.to - this.drag.from, this.height - this.edge.top - this.edge.bottom);
      pen.globalAlpha = 1;
    }
    const x = shared.hover;
    const isInside = x !== null && this.lines.length && x >= this.xs[0] && x <= this.xs[1];
    this.tip.hidden = !isInside;
    if (!isInside) return;
    const found = this.around(x);
    const near = found.length > 2 ? found.find((each) => each.isNearest) : null;
    if (near) this.drawLine(pen, { ...near.line, width: near.line.width + 1.4 });
    for (const { line, point } of found) {
      if (!isDrawn(point[1])) continue;
      pen.fillStyle = line.colour;
      pen.beginPath(); pen.arc(this.px(point[0]), this.py(point[1]), 3.5, 0, 7); pen.fill();
    }
    pen.lineWidth = 1;
    pen.strokeStyle = colour("faint");
    pen.beginPath(); pen.moveTo(this.px(x), this.edge.top); pen.lineTo(this.px(x), this.height - this.edge.bottom); pen.stroke();
    this.showTip(x, found, near);
  }

  // The lines to name at a place, from top to bottom; of many those around the pointer.
  around(x) {
    const found = [];
    for (const line of this.lines.filter((each) => each.isNamed)) {
      const point = nearest(line.points, x);
      if (!point) continue;
      const y = isDrawn(point[1]) ? this.py(point[1]) : Infinity;
      found.push({ line, point, y, far: Math.hypot(this.px(point[0]) - this.px(x), y - (this.pointed ?? y)) });
    }
    const byDistance = [...found].sort((a, b) => a.far - b.far);
    if (this.pointed !== null && byDistance.length) byDistance[0].isNearest = true;
    return found.length > 2 ? byDistance.slice(0, TIP_ROWS).sort((a, b) => a.y - b.y) : found;
  }

  // Digits that tell a value from its neighbours on a flat curve.
  digits(y) {
    if (!y || shared.log) return 4;
    return Math.min(Math.max(3 + Math.ceil(Math.log10(Math.abs(y) / (this.ys[1] - this.ys[0]))), 4), 15);
  }

  showTip(x, found, near) {
    const rows = found.map((each) => el("div", { class: each === near ? "near" : "" }, el("i", { style: { background: each.line.colour } }), each.line.label + " ", valueOf(each.point[2], this.digits(each.point[1]))));
    const marks = this.shownMarks().filter((mark) => Math.abs(this.px(mark.x) - this.px(x)) < 7).slice(0, 3);
    const where = shared.axis === "time" ? clock(x) : shared.axis + " " + number(shared.axis === "step" ? Math.round(x) : Number(x.toFixed(1)));
    this.tip.replaceChildren(el("b", {}, where), ...rows, ...marks.map((mark) => el("em", {}, mark.text)));
    const left = this.px(x) > this.width / 2 ? this.px(x) - this.tip.offsetWidth - 12 : this.px(x) + 12;
    this.tip.style.transform = "translate(" + Math.max(0, left) + "px, -" + (this.height - 10) + "px)";
  }
}

const isDrawn = (y) => y !== null && !(shared.log && y <= 0);

// A value in words; red where it is not finite.
function valueOf(value, digits = 4) {
  return el("span", { class: isFiniteValue(value) ? "" : "not-finite" }, number(value, digits));
}

// Of many points in one column of pixels the lowest and the highest are drawn.
function thinned(points, [x0, x1], width) {
  if (points.length < width * 3) return points;
  const found = [];
  let column = null, low = null, high = null;
  const close = () => { if (low) found.push(...(low[0] < high[0] ? [low, high] : [high, low])); low = null; };
  for (const point of points) {
    if (point[1] === null) { close(); if (found.length && found.at(-1)[1] !== null) found.push(point); continue; }
    const here = Math.floor(((point[0] - x0) / (x1 - x0)) * width);
    if (here !== column || !low) { close(); column = here; low = high = point; }
    if (point[1] < low[1]) low = point;
    if (point[1] > high[1]) high = point;
  }
  close();
  return found;
}

function nearest(points, x) {
  let low = 0, high = points.length - 1;
  if (high < 0) return null;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < x) low = middle; else high = middle;
  }
  return Math.abs(points[low][0] - x) < Math.abs(points[high][0] - x) ? points[low] : points[high];
}
