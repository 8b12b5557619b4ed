// What stands around curves, nodes and output: the title, figures at a glance, the start, the failure, the details.

const PHASES = { planned: "slots", executors: "executors", nodes: "nodes up", rows: "rows", "first step": "first step" };
const PHASE_COLOURS = ["#9c8f85", "#c77d3a", "#d9691e", "#e0520a", "#b93c04"];
const RUN_COLOURS = ["#8b6cf0", "#1098ad", "#e64980", "#74b816", "#339af0"]; // seen on light and on dark
const HIDDEN = new Set(["progress", "epoch"]);

function showTitle(run) {
  const { head } = run;
  const status = run.isCut || listed.some((each) => each.run_id === run.id && each.status === "cut") ? "cut" : head.status;
  const kind = { cluster: "live cluster", parallel: "parallel runs" }[head.kind] || "run";
  const workers = run.nodes.size ? run.nodes.size + (run.nodes.size === 1 ? " node" : " nodes") : "";
  setText(byId("title"), head.name || "Waiting for the run");
  setText(byId("subtitle"), [kind + " " + head.id, workers, moment(head.at)].filter(Boolean).join("  ·  "));
  const pill = byId("status");
  setText(pill, status + "  " + duration(run.elapsed));
  pill.dataset.state = status;
  document.title = (head.name || "Run") + ": " + status + " · Emberflow";
  const done = head.status === "succeeded" ? 1 : head.progress || 0;
  byId("bar").setAttribute("aria-valuenow", Math.round(100 * done));
  byId("bar").firstElementChild.style.width = (head.status === "succeeded" ? 0 : 100 * done) + "%";
}

function tilesOf(run) {
  const { head } = run;
  const found = [];
  const step = [...run.series.values()].reduce((most, each) => Math.max(most, each.points.at(-1)?.[0] ?? 0), 0);
  const epoch = [...run.series.values()].reduce((most, each) => Math.max(most, each.points.at(-1)?.[2] ?? 0), 0);
  if (head.progress !== null && head.progress !== undefined) found.push(["Trained", Math.round(100 * head.progress) + " %", epoch ? "epoch " + epoch + ", step " + step.toLocaleString("en") : "step " + step.toLocaleString("en")]);
  else if (step) found.push(["Step", step.toLocaleString("en"), epoch ? "epoch " + epoch : ""]);
  for (const name of run.metricNames().filter((each) => each !== SPEED && !each.startsWith("val_")).slice(0, 2)) {
    const validation = run.last("val_" + name);
    const last = run.last(name);
    if (last) found.push([name, number(last[VALUE]), validation ? "validation " + number(validation[VALUE]) : "", last[VALUE] === null]);
  }
  const nodes = [...run.nodes.values()];
  const told = run.last(SPEED);
  const speed = told ? told[VALUE] : nodes.reduce((sum, node) => sum + node.rows_per_second, 0);
  if (speed) found.push(["Rows per second", number(Math.round(speed)), "all nodes together"]);
  const up = nodes.filter((node) => node.state === "running" || node.state === "returned").length;
  const bad = nodes.filter((node) => FAILED.has(node.state)).length;
  if (nodes.length) found.push(["Nodes up", up.toLocaleString("en"), "of " + nodes.length.toLocaleString("en") + (bad ? ", " + bad + " failed" : ""), bad > 0]);
  const memory = nodes.reduce((sum, node) => sum + (node.memory || node.memory_peak), 0);
  if (memory) found.push(["Memory", bytes(memory), "all nodes together"]);
  if (head.attempt) found.push(["Restarts", String(head.attempt), "attempt " + (head.attempt + 1)]);
  return found;
}

function showTiles(run) {
  const tiles = tilesOf(run).map(([label, value, note, isBad]) => el("div", { class: isBad ? "tile bad" : "tile" }, el("span", {}, label), el("b", {}, value), el("small", {}, note || " ")));
  byId("tiles").replaceChildren(...tiles);
}

// Each attempt from its begin to its first step, as lengths.
function showStart(run) {
  const { phases, marks, status } = run.head;
  const attempts = [...new Set(phases.map((phase) => phase.attempt))];
  const text = JSON.stringify(phases) + status + (status === "starting" ? Math.floor(run.elapsed) : "");
  if (text === showStart.text) return;
  showStart.text = text;
  const rows = [];
  for (const attempt of attempts.slice(-3)) {
    const own = phases.filter((phase) => phase.attempt === attempt);
    let since = attempt ? marks.filter((mark) => mark.kind === "restart" && mark.attempt < attempt).at(-1)?.t ?? own[0].t : 0;
    const lengths = own.map((phase) => { const length = Math.max(phase.t - since, 0); since = phase.t; return [phase.name, length]; });
    const isWaiting = attempt === attempts.at(-1) && !run.isOver && own.at(-1).name !== "first step";
    const total = lengths.reduce((sum, each) => sum + each[1], 0);
    const place = (name) => Object.keys(PHASES).indexOf(name);
    const bars = lengths.map(([name, length]) => el("div", { style: { flexGrow: Math.max(length / (total || 1), 0.01), background: PHASE_COLOURS[place(name)] }, title: PHASES[name] + ": " + duration(length) }, length / total > 0.12 ? duration(length) : ""));
    if (isWaiting) bars.push(el("div", { class: "now", style: { flexGrow: 0.4 } }, "waiting for " + (Object.values(PHASES)[place(own.at(-1).name) + 1] || "more")));
    const names = lengths.map(([name, length]) => el("li", {}, el("i", { style: { background: PHASE_COLOURS[place(name)] } }), PHASES[name] + " ", el("b", {}, duration(length))));
    if (attempts.length > 1) names.unshift(el("li", {}, el("b", {}, attempt ? "attempt " + (attempt + 1) : "first attempt")));
    rows.push(el("div", { class: "phases" }, ...bars), el("ul", { class: "phase-names" }, ...names));
  }
  byId("start").hidden = !rows.length;
  byId("timeline").replaceChildren(...rows);
  const end = phases.filter((phase) => phase.attempt === 0).at(-1);
  setText(byId("start-total"), end && end.name === "first step" ? "first step after " + duration(end.t) : "");
}

function showFailure(run) {
  const { failure } = run.head;
  const card = byId("failure");
  card.hidden = !failure;
  if (!failure || card.dataset.run === run.id + failure.problem) return;
  card.dataset.run = run.id + failure.problem;
  const [first, ...rest] = failure.problem.split("\n");
  const traceback = failure.traceback || rest.join("\n").trim();
  const parts = [el("h2", {}, failure.kind + ": " + first)];
  if (traceback) parts.push(el("pre", {}, traceback.trimEnd()));
  if (failure.fix) parts.push(el("p", { class: "fix" }, el("b", {}, "What to do: "), failure.fix));
  if (failure.log_tail.trim()) parts.push(el("details", {}, el("summary", {}, "Last lines of its output"), el("pre", {}, failure.log_tail.trimEnd())));
  card.replaceChildren(...parts);
}

function showDetails(run) {
  const { head } = run;
  const groups = [["Options", head.options], ["Plan", head.plan], ["Versions", head.versions]];
  if (head.value) groups.push(["Returned by the chief", { value: head.value }]);
  const list = ([title, facts]) => el("div", {}, el("h3", {}, title), el("dl", {}, ...Object.entries(facts || {}).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, typeof value === "string" ? value : JSON.stringify(value))])));
  byId("facts").replaceChildren(...groups.map(list));
}

// Charts by metric: the training and its validation together, of this run and of those beside it.
class CurvesView {
  constructor() {
    this.charts = new Map();
  }

  show(runs) {
    const names = [...new Set(runs.flatMap((run) => run.metricNames()))].filter((name) => !HIDDEN.has(name));
    const bases = [...new Set(names.map((name) => name.replace(/^val_/, "")))].sort((a, b) => (a === SPEED) - (b === SPEED));
    byId("no-curves").hidden = bases.length > 0;
    const hasEpochs = runs.some((run) => [...run.series.values()].some((each) => each.points.at(-1)?.[2]));
    document.querySelector('[data-axis="epoch"]').disabled = !hasEpochs;
    for (const name of this.charts.keys()) if (!bases.includes(name)) { this.charts.get(name).root.remove(); this.charts.delete(name); }
    for (const name of bases) {
      if (!this.charts.has(name)) {
        this.charts.set(name, new Chart(name === SPEED ? "rows per second" : name, name === SPEED));
        byId("charts").append(this.charts.get(name).root);
      }
      this.charts.get(name).show(this.lines(runs, name), this.marks(runs));
    }
    this.showLegend(runs);
  }

  lines(runs, base) {
    const found = [];
    runs.forEach((run, place) => {
      const newest = Math.max(0, ...[...run.series.values()].map((each) => each.attempt));
      for (const series of run.series.values()) {
        const isValidation = series.name === "val_" + base;
        if (series.name !== base && !isValidation) continue;
        if (series.rank > 15) continue;
        const isMain = series.rank === 0 && series.attempt === newest;
        const points = series.points.filter((point) => point[AXES[shared.axis]] !== null).map((point) => [point[AXES[shared.axis]], point[VALUE]]);
        const own = runs.length > 1 ? (place ? RUN_COLOURS[(place - 1) % RUN_COLOURS.length] : colour("ember")) : colour(isValidation ? "blue" : "ember");
        const what = runs.length > 1 ? (run.head.name + " " + run.id.slice(0, 4) + (isValidation ? " validation" : "")) : (isValidation ? "validation" : base === SPEED ? "" : "training");
        const isChief = series.rank === 0; // what it learned before a restart is part of the curve
        found.push({ points, colour: own, label: what.trim(), isNamed: isMain, isDashed: isValidation && runs.length > 1, alpha: isMain ? 1 : isChief ? 0.7 : 0.38, width: isChief ? 1.9 : 1.2 });
      }
    });
    return found;
  }

  marks(runs) {
    return runs[0].head.marks.map((mark) => ({ ...mark, x: runs[0].place(mark, shared.axis), label: mark.kind === "restart" ? "restart" : runs[0].name(mark.rank) + " " + mark.text.split(/[ :]/)[2] })).filter((mark) => mark.x !== null);
  }

  showLegend(runs) {
    const legend = byId("legend");
    legend.hidden = runs.length < 2;
    legend.replaceChildren(...runs.map((run, place) => el("li", {}, el("i", { style: { background: place ? RUN_COLOURS[(place - 1) % RUN_COLOURS.length] : colour("ember") } }), (run.head.name || "run") + " " + run.id)));
  }

  draw() {
    for (const chart of this.charts.values()) chart.draw();
  }
}
