// Each attempt from its begin to its first step, as lengths, and what it waits for now.

const PHASES = { planned: "planned", slots: "slots", executors: "executors", nodes: "nodes up", rows: "rows", "first step": "first step" };

const phaseColour = (name) => "var(--phase-" + (Object.keys(PHASES).indexOf(name) + 1) + ")";

function showStart(run) {
  const { phases, waiting } = run.head;
  const isStarting = run.head.status === "starting" && !run.isOver;
  const text = [run.id, run.status, JSON.stringify(phases), run.head.attempt, waiting, isStarting ? Math.floor(run.elapsed) : ""].join();
  if (text === showStart.text) return;
  showStart.text = text;
  const rows = startAttempts(run, isStarting).slice(-3).flatMap((attempt, _, all) => startRow(run, attempt, all.length > 1));
  if (isStarting && waiting) rows.push(el("p", { class: "reason" }, waiting[0].toUpperCase() + waiting.slice(1)));
  byId("start").hidden = !rows.length;
  byId("timeline").replaceChildren(...rows);
  const end = phases.filter((phase) => phase.attempt === 0).at(-1);
  setText(byId("start-total"), end && end.name === "first step" ? "first step after " + duration(end.t) : "");
}

// Those that have come anywhere, and the newest while it starts. Parallel tasks share no start but their slots.
function startAttempts(run, isStarting) {
  const found = new Set(run.head.phases.map((phase) => phase.attempt));
  if (isStarting && (!run.isParallel || run.head.waiting)) found.add(run.head.attempt);
  return [...found];
}

function startRow(run, attempt, isOneOfSeveral) {
  const { phases, marks } = run.head;
  const own = phases.filter((phase) => phase.attempt === attempt);
  let since = attempt ? marks.filter((mark) => mark.kind === "restart" && mark.attempt < attempt).at(-1)?.t ?? own[0]?.t ?? run.t : 0;
  const lengths = own.map((phase) => { const length = Math.max(phase.t - since, 0); since = phase.t; return [phase.name, length]; });
  const isWaiting = attempt === run.head.attempt && !run.isOver && own.at(-1)?.name !== "first step";
  const waited = isWaiting && run.head.status === "starting" ? Math.max(run.elapsed - since, 0) : null;
  const total = lengths.reduce((sum, each) => sum + each[1], waited || 0);
  const bars = lengths.map(([name, length]) => el("div", { style: { flexGrow: Math.max(length / (total || 1), 0.01), background: phaseColour(name) }, title: PHASES[name] + ": " + duration(length) }, length / total > 0.12 ? duration(length) : ""));
  if (isWaiting) bars.push(el("div", { class: "now", style: { flexGrow: bars.length ? Math.max(waited / total || 0, 0.4) : 1 } }, waitingFor(run, own) + (waited === null ? "" : ", " + duration(waited))));
  const names = lengths.map(([name, length]) => el("li", {}, el("i", { style: { background: phaseColour(name) } }), PHASES[name] + " ", el("b", {}, duration(length))));
  if (isOneOfSeveral) names.unshift(el("li", {}, el("b", {}, attempt ? "attempt " + (attempt + 1) : "first attempt")));
  return [el("div", { class: "phases" }, ...bars), el("ul", { class: "phase-names" }, ...names)];
}

function waitingFor(run, own) {
  const names = Object.keys(PHASES);
  if (run.head.waiting) return "waiting for slots";
  if (!own.length) return run.head.attempt ? "waiting for slots" : "planning";
  return "waiting for " + PHASES[names[names.indexOf(own.at(-1).name) + 1]];
}
