// One chart: lines on a canvas, with a crosshair, zoom by dragging, and marks for losses and restarts.

const shared = { zoom: null, hover: null, log: false, axis: "step", onChange: () => {} };
const EDGE = { left: 50, right: 12, top: 18, bottom: 24 };

function ticks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= 0.7 * raw);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step / 1e6; at += step) found.push(Number(at.toPrecision(12)));
  return found;
}

class Chart {
  constructor(title, fromZero) {
    this.title = title;
    this.fromZero = fromZero;
    this.lines = [];
    this.marks = [];
    this.heading = el("h3", {}, title);
    this.canvas = el("canvas", { tabindex: 0, role: "img" });
    this.tip = el("div", { class: "tip", hidden: true });
    this.root = el("div", { class: "chart" }, this.heading, this.canvas, this.tip);
    this.drag = null;
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  listen() {
    const at = (event) => event.clientX - this.canvas.getBoundingClientRect().left;
    this.canvas.addEventListener("pointermove", (event) => {
      if (this.drag) this.drag.to = at(event);
      hover(this.toX(at(event)));
    });
    this.canvas.addEventListener("pointerleave", () => hover(null));
    this.canvas.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse") return hover(this.toX(at(event)));
      this.drag = { from: at(event), to: at(event) };
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointerup", () => {
      const drag = this.drag;
      this.drag = null;
      if (drag && Math.abs(drag.to - drag.from) > 6) zoomTo(this.toX(drag.from), this.toX(drag.to));
    });
    this.canvas.addEventListener("dblclick", () => zoomTo(null));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("blur", () => hover(null));
  }

  key(event) {
    const [low, high] = this.xs;
    const step = (high - low) / 50;
    const at = shared.hover ?? (low + high) / 2;
    const moves = { ArrowLeft: -step, ArrowRight: step };
    if (event.key in moves) this.lookAt(at + moves[event.key], moves[event.key]);
    else if (event.key === "+") zoomTo(at - (high - low) / 4, at + (high - low) / 4);
    else if (event.key === "-" || event.key === "Escape") zoomTo(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // Move the crosshair; at the edge of what is shown, that moves too.
  lookAt(x, move) {
    let [low, high] = this.xs;
    const isMore = move < 0 ? low > this.all[0] : high < this.all[1];
    if (shared.zoom && isMore && (x < low || x > high)) [low, high] = zoomTo(low + move, high + move);
    hover(Math.min(Math.max(x, low), high));
  }

  show(lines, marks) {
    this.lines = lines;
    this.marks = marks;
    const parts = lines.filter((line) => line.isNamed).map((line) => {
      const last = line.points.length ? line.points[line.points.length - 1][1] : null;
      return el("span", {}, el("i", { style: { background: line.colour } }), line.label + " " + number(last));
    });
    this.heading.replaceChildren(this.title, ...parts);
    this.canvas.setAttribute("aria-label", this.title + ": " + parts.map((part) => part.textContent).join(", "));
    this.draw();
  }

  bounds() {
    let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const { points } of this.lines) {
      if (points.length) { x0 = Math.min(x0, points[0][0]); x1 = Math.max(x1, points[points.length - 1][0]); }
    }
    this.all = [x0, x1];
    if (shared.zoom) [x0, x1] = shared.zoom;
    for (const { points } of this.lines) {
      for (const [x, y] of points) {
        if (x < x0 || x > x1 || y === null || (shared.log && y <= 0)) continue;
        if (y < y0) y0 = y;
        if (y > y1) y1 = y;
      }
    }
    if (x0 === Infinity) [x0, x1] = [0, 1];
    if (y0 === Infinity) [y0, y1] = shared.log ? [0.1, 1] : [0, 1];
    if (x0 === x1) x1 = x0 + 1;
    if (shared.log) [y0, y1] = [Math.log10(y0), Math.log10(y1)];
    if (this.fromZero && !shared.log) y0 = Math.min(y0, 0);
    const room = (y1 - y0) * 0.06 || Math.abs(y0) * 0.1 || 0.1;
    this.xs = [x0, x1];
    this.ys = [this.fromZero && y0 === 0 ? 0 : y0 - room, y1 + room];
  }

  px(x) { return EDGE.left + ((x - this.xs[0]) / (this.xs[1] - this.xs[0])) * (this.width - EDGE.left - EDGE.right); }

  py(y) {
    const value = shared.log ? Math.log10(y) : y;
    return this.height - EDGE.bottom - ((value - this.ys[0]) / (this.ys[1] - this.ys[0])) * (this.height - EDGE.top - EDGE.bottom);
  }

  toX(px) {
    if (!this.xs) return null;
    return this.xs[0] + ((px - EDGE.left) / (this.width - EDGE.left - EDGE.right)) * (this.xs[1] - this.xs[0]);
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
    const pen = this.canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    this.bounds();
    this.drawGrid(pen);
    pen.save();
    pen.beginPath();
    pen.rect(EDGE.left, 0, this.width - EDGE.left - EDGE.right + 2, this.height - EDGE.bottom);
    pen.clip();
    this.drawMarks(pen);
    for (const line of [...this.lines].reverse()) this.drawLine(pen, line); // the first run on top
    pen.restore();
    this.drawHover(pen);
  }

  drawGrid(pen) {
    pen.font = "11px system-ui, sans-serif";
    pen.lineWidth = 1;
    pen.fillStyle = colour("faint");
    pen.strokeStyle = colour("line");
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const tick of ticks(this.ys[0], this.ys[1], 5)) {
      const value = shared.log ? 10 ** tick : tick;
      const y = Math.round(this.py(value)) + 0.5;
      pen.beginPath(); pen.moveTo(EDGE.left, y); pen.lineTo(this.width - EDGE.right, y); pen.stroke();
      pen.fillText(number(Number(value.toPrecision(3))), EDGE.left - 8, y);
    }
    pen.textAlign = "center";
    pen.textBaseline = "alphabetic";
    for (const tick of ticks(this.xs[0], this.xs[1], Math.max(2, this.width / 75))) {
      pen.fillText(shared.axis === "time" ? clock(tick) : number(tick), this.px(tick), this.height - 7);
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
      if (y === null || (shared.log && y <= 0)) { isOpen = false; continue; }
      if (isOpen) pen.lineTo(this.px(x), this.py(y)); else pen.moveTo(this.px(x), this.py(y));
      isOpen = true;
    }
    pen.stroke();
    pen.setLineDash([]);
    if (line.points.length < 40 && line.isNamed) {
      for (const [x, y] of line.points) {
        if (y === null) continue;
        pen.beginPath(); pen.arc(this.px(x), this.py(y), 2.4, 0, 7); pen.fill();
      }
    }
    pen.globalAlpha = 1;
  }

  drawMarks(pen) {
    let labelled = -Infinity;
    for (const mark of this.marks) {
      const x = Math.round(this.px(mark.x)) + 0.5;
      pen.strokeStyle = pen.fillStyle = colour(mark.kind === "restart" ? "amber" : "red");
      pen.setLineDash([3, 3]);
      pen.beginPath(); pen.moveTo(x, EDGE.top - 4); pen.lineTo(x, this.height - EDGE.bottom); pen.stroke();
      pen.setLineDash([]);
      pen.beginPath();
      if (mark.kind === "restart") pen.arc(x, EDGE.top - 8, 3.5, 0, 7);
      else { pen.moveTo(x - 5, 3); pen.lineTo(x + 5, 3); pen.lineTo(x, 10); }
      pen.fill();
      if (x - labelled < 90) continue;
      labelled = x;
      pen.textAlign = x > this.width - 90 ? "right" : "left";
      pen.fillText(mark.label, x + (pen.textAlign === "right" ? -9 : 9), EDGE.top - 4);
    }
  }

  drawHover(pen) {
    if (this.drag && Math.abs(this.drag.to - this.drag.from) > 3) {
      pen.fillStyle = colour("ember");
      pen.globalAlpha = 0.14;
      pen.fillRect(this.drag.from, EDGE.top, this.drag.to - this.drag.from, this.height - EDGE.top - EDGE.bottom);
      pen.globalAlpha = 1;
    }
    const x = shared.hover;
    const isInside = x !== null && this.lines.length && x >= this.xs[0] && x <= this.xs[1];
    this.tip.hidden = !isInside;
    if (!isInside) return;
    const rows = [];
    for (const line of this.lines.filter((each) => each.isNamed)) {
      const point = nearest(line.points, x);
      if (!point) continue;
      if (point[1] !== null) {
        pen.fillStyle = line.colour;
        pen.beginPath(); pen.arc(this.px(point[0]), this.py(point[1]), 3.5, 0, 7); pen.fill();
      }
      rows.push(el("div", {}, el("i", { style: { background: line.colour } }), line.label + " " + number(point[1])));
    }
    pen.strokeStyle = colour("faint");
    pen.beginPath(); pen.moveTo(this.px(x), EDGE.top); pen.lineTo(this.px(x), this.height - EDGE.bottom); pen.stroke();
    const near = this.marks.filter((mark) => Math.abs(this.px(mark.x) - this.px(x)) < 7).slice(0, 3);
    const where = shared.axis === "time" ? clock(x) : shared.axis + " " + number(shared.axis === "step" ? Math.round(x) : Number(x.toFixed(1)));
    this.tip.replaceChildren(el("b", {}, where), ...rows, ...near.map((mark) => el("em", {}, mark.text)));
    const left = this.px(x) > this.width / 2 ? this.px(x) - this.tip.offsetWidth - 12 : this.px(x) + 12;
    this.tip.style.transform = "translate(" + Math.max(0, left) + "px, -" + (this.height - 10) + "px)";
  }
}

// Of many points in one column of pixels the lowest and the highest are drawn.
function thinned(points, [x0, x1], width) {
  if (points.length < width * 3) return points;
  const found = [];
  let column = null, low = null, high = null;
  const close = () => { if (low) found.push(...(low[0] < high[0] ? [low, high] : [high, low])); };
  for (const point of points) {
    const here = Math.floor(((point[0] - x0) / (x1 - x0)) * width);
    if (here !== column) { close(); column = here; low = high = point; }
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

function hover(x) {
  shared.hover = x;
  shared.onChange(false);
}

function zoomTo(from, to) {
  shared.zoom = from === null ? null : [Math.min(from, to), Math.max(from, to)];
  shared.onChange(true);
  return shared.zoom;
}
