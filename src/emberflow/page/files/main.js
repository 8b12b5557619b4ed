// Brings the data in, from this file or from the driver, and shows it, at most once per frame.

const live = { isConnected: false, isClosed: false, statuses: new Map() }; // what the list says of each run
const runs = new Map();
let listed = [];
let shown = null; // the run in the middle
const beside = new Set(); // runs whose curves are drawn beside it
const nodesView = new NodesView();
const logsView = new LogsView();
const curvesView = new CurvesView();
const runsList = new RunsList(choose);
let isWaiting = false;
// For tests: milliseconds that each update took, and how many points of curves are held.
window.emberflow = { frames: [], points: () => [...runs.values()].flatMap((run) => [...run.series.values()]).reduce((sum, each) => sum + each.points.length, 0) };

function refresh() {
  if (isWaiting) return;
  isWaiting = true;
  requestAnimationFrame(() => {
    isWaiting = false;
    const began = performance.now();
    show();
    window.emberflow.frames.push(performance.now() - began);
    if (window.emberflow.frames.length > 1000) window.emberflow.frames.shift();
  });
}

function show() {
  const run = runs.get(shown);
  if (!run) return;
  showTitle(run);
  showCut(run);
  showFailure(run);
  showTiles(run);
  showStart(run);
  curvesView.show([run, ...[...beside].filter((id) => id !== shown && runs.has(id)).map((id) => runs.get(id))]);
  nodesView.show(run);
  logsView.show(run);
  if (byId("details").open) showDetails(run);
}

function take(change) {
  if (!runs.has(change.run)) runs.set(change.run, new Run(change.run));
  runs.get(change.run).apply(change);
  if (shown === null) shown = change.run;
  refresh();
}

function list(found) {
  listed = found;
  live.statuses = new Map(found.map((run) => [run.run_id, run.status]));
  showList();
}

const showList = () => runsList.show(listed, shown, beside);

function choose(main, other, isOn) {
  if (main) { shown = main; beside.delete(main); shared.zoom = null; }
  if (other) beside[isOn ? "add" : "delete"](other);
  if (beside.size > 5) beside.delete([...beside][0]);
  showList();
  if (token) connect();
  refresh();
}

// The driver tells what is new. After a lost connection it begins anew; nothing is asked twice.
const token = new URLSearchParams(location.search).get("token");
let source = null;

function connect() {
  source?.close();
  const wanted = [shown, ...beside].filter(Boolean).join();
  source = new EventSource("events?token=" + encodeURIComponent(token) + "&runs=" + encodeURIComponent(wanted));
  source.addEventListener("open", () => { live.isConnected = true; byId("connection").hidden = true; });
  source.addEventListener("runs", (event) => {
    const found = JSON.parse(event.data);
    if (shown === null && found.length) shown = found[0].run_id;
    list(found);
    refresh();
  });
  source.addEventListener("message", (event) => take(JSON.parse(event.data)));
  source.addEventListener("closed", () => { live.isClosed = true; source.close(); lose("The page is closed: the program that served it is done. What you see is the last it told."); });
  source.addEventListener("error", () => { if (!live.isClosed) lose("No connection to the driver. Trying again."); });
}

function lose(text) {
  live.isConnected = false;
  byId("connection").hidden = Boolean(runs.get(shown)?.isOver);
  setText(byId("connection"), text);
  refresh();
}

function setAxis(axis) {
  const button = document.querySelector('[data-axis="' + axis + '"]');
  if (button.disabled) return;
  shared.axis = axis;
  shared.zoom = null;
  for (const each of byId("axis").children) each.setAttribute("aria-pressed", String(each === button));
  shared.onChange(true);
}

function setLog() {
  shared.log = !shared.log;
  byId("log-scale").setAttribute("aria-pressed", String(shared.log));
  refresh();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  refresh();
}

shared.onChange = (isZoom) => {
  byId("zoom-out").disabled = !shared.zoom;
  if (isZoom) refresh(); else curvesView.draw();
};
byId("axis").addEventListener("click", (event) => event.target.dataset.axis && setAxis(event.target.dataset.axis));
byId("log-scale").addEventListener("click", setLog);
byId("zoom-out").addEventListener("click", () => { zoomTo(null); byId("curves").focus({ preventScroll: true }); }); // it is disabled now
byId("details").addEventListener("toggle", refresh);
byId("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
byId("runs-fold").open = matchMedia("(min-width: 1001px)").matches;
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
prefersDark.addEventListener("change", () => setTheme(prefersDark.matches ? "dark" : "light"));
setTheme(prefersDark.matches ? "dark" : "light");

const KEYS = {
  s: () => setAxis("step"), e: () => setAxis("epoch"), d: () => setAxis("time"), l: setLog, 0: () => zoomTo(null),
  t: () => byId("theme").click(), f: () => byId("follow").click(), "/": () => byId("log-filter").focus(),
};
document.addEventListener("keydown", (event) => {
  const isTyping = ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName);
  if (isTyping && event.key === "Escape") event.target.blur();
  const action = KEYS[event.key.toLowerCase()];
  if (isTyping || !action || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  action();
});

const given = JSON.parse(byId("data").textContent).data;
if (given) {
  for (const change of given) take({ ...change, since: 0 });
  for (const change of given.slice(1)) beside.add(change.run);
  list(given.map((change) => change.brief).filter(Boolean));
} else if (token) {
  connect();
  setInterval(() => { if (live.isConnected && runs.get(shown) && !runs.get(shown).isOver) { showTitle(runs.get(shown)); showStart(runs.get(shown)); } }, 1000);
}
