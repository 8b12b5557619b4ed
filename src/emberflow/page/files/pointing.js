// How a curve is pointed at: by mouse, fingers and keys. A drag or two fingers zoom; one finger looks, and scrolls the page.

const shared = { zoom: null, hover: null, log: false, axis: "step", onChange: () => {} };
const NEAREST_FINGERS = 24; // pixels: closer ones do not tell a scale

function listenTo(chart) {
  const { canvas } = chart;
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  listenToFingers(chart, at);
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    if (chart.drag) chart.drag.to = x;
    if (chart.pinch) return;
    chart.pointed = y;
    hover(chart.toX(x));
  });
  canvas.addEventListener("pointerleave", () => { chart.pointed = null; hover(null); });
  canvas.addEventListener("pointerdown", (event) => {
    if (event.pointerType !== "mouse") return;
    chart.drag = { from: at(event)[0], to: at(event)[0] };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointerup", () => {
    const drag = chart.drag;
    chart.drag = null;
    if (drag && Math.abs(drag.to - drag.from) > 6) zoomTo(chart.toX(drag.from), chart.toX(drag.to));
  });
  canvas.addEventListener("pointercancel", () => { chart.drag = null; });
  canvas.addEventListener("dblclick", () => zoomTo(null));
  canvas.addEventListener("keydown", (event) => pressed(chart, event));
  canvas.addEventListener("blur", () => hover(null));
}

// Two fingers hold the two places of the curve that they touch.
function listenToFingers(chart, at) {
  const { canvas } = chart;
  const fingers = new Map();
  canvas.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "mouse") return;
    fingers.set(event.pointerId, at(event)[0]);
    const places = [...fingers.values()].sort((a, b) => a - b);
    if (places.length === 2 && places[1] - places[0] > NEAREST_FINGERS) { chart.pinch = places.map((x) => chart.toX(x)); hover(null); }
    else if (places.length === 1) { chart.pointed = at(event)[1]; hover(chart.toX(places[0])); }
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!fingers.has(event.pointerId)) return;
    fingers.set(event.pointerId, at(event)[0]);
    if (chart.pinch && fingers.size === 2) spread(chart, [...fingers.values()].sort((a, b) => a - b));
  });
  for (const name of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(name, (event) => { fingers.delete(event.pointerId); chart.pinch = null; });
  }
  // Otherwise the browser takes two fingers for its own zoom of the page.
  canvas.addEventListener("touchmove", (event) => { if (event.touches.length > 1) event.preventDefault(); }, { passive: false });
}

function spread(chart, [left, right]) {
  if (right - left < NEAREST_FINGERS) return;
  const [from, to] = chart.pinch;
  const scale = (to - from) / (right - left);
  const low = from - (left - chart.edge.left) * scale;
  const high = low + (chart.width - chart.edge.left - chart.edge.right) * scale;
  if (low <= chart.all[0] && high >= chart.all[1]) zoomTo(null);
  else zoomTo(Math.max(low, chart.all[0]), Math.min(high, chart.all[1]));
}

function pressed(chart, event) {
  const [low, high] = chart.xs;
  const step = (high - low) / 50;
  const at = shared.hover ?? (low + high) / 2;
  const moves = { ArrowLeft: -step, ArrowRight: step };
  if (event.key in moves) lookAt(chart, at + moves[event.key], moves[event.key]);
  else if (event.key === "+") zoomTo(at - (high - low) / 4, at + (high - low) / 4);
  else if (event.key === "-" || event.key === "Escape") zoomTo(null);
  else return;
  event.preventDefault();
  event.stopPropagation();
}

// Move the crosshair; at the edge of what is shown, that moves too.
function lookAt(chart, x, move) {
  let [low, high] = chart.xs;
  const isMore = move < 0 ? low > chart.all[0] : high < chart.all[1];
  if (shared.zoom && isMore && (x < low || x > high)) [low, high] = zoomTo(low + move, high + move);
  hover(Math.min(Math.max(x, low), high));
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
