// What stands around curves, nodes and output: the title, figures at a glance, the failure, the details.

function showTitle(run) {
  const { head } = run;
  const kind = { cluster: "live cluster", parallel: "parallel runs" }[head.kind] || "run";
  const size = run.nodes.size ? run.nodes.size + " " + run.unit + (run.nodes.size === 1 ? "" : "s") : "";
  setText(byId("title"), head.name || "Waiting for the run");
  setText(byId("subtitle"), [kind + " " + head.id, size, moment(head.at)].filter(Boolean).join("  ·  "));
  const pill = byId("status");
  setText(pill, run.status + "  " + duration(run.elapsed));
  pill.dataset.state = run.status;
  document.title = (head.name || "Run") + ": " + run.status + " · Emberflow";
  const done = run.status === "succeeded" ? 1 : head.progress || 0;
  const bar = byId("bar");
  bar.setAttribute("aria-valuenow", Math.round(100 * done));
  bar.dataset.state = run.status;
  bar.firstElementChild.style.transform = "scaleX(" + (run.status === "succeeded" ? 0 : done) + ")";
}

function showCut(run) {
  byId("cut").hidden = !run.isCut;
  setText(byId("cut"), "The record ends here: its driver was killed or lost its storage. Last sign of life " + moment(run.head.at + run.t) + ", " + duration(run.t) + " after the start.");
}

// Label, value and note of each tile; a value or note that is bad is red.
function tilesOf(run) {
  const nodes = [...run.nodes.values()];
  const found = run.isParallel ? bestTiles(run) : trainingTiles(run);
  const told = run.last(SPEED)?.[VALUE];
  const speed = isFiniteValue(told) ? told : nodes.reduce((sum, node) => sum + node.rows_per_second, 0);
  if (speed) found.push({ label: "Rows per second", value: number(Math.round(speed)), note: "all " + run.unit + "s together" });
  if (nodes.length) found.push(run.isParallel ? tasksTile(run, nodes) : nodesTile(run, nodes));
  const memory = nodes.reduce((sum, node) => sum + (node.memory || node.memory_peak), 0);
  if (memory) found.push({ label: "Memory", value: bytes(memory), note: "all " + run.unit + "s together" });
  if (run.head.attempt) found.push({ label: "Restarts", value: String(run.head.attempt), note: "attempt " + (run.head.attempt + 1) });
  return found;
}

function trainingTiles(run) {
  const { progress } = run.head;
  const { step, epoch } = run.position;
  const found = [];
  const at = step.toLocaleString("en");
  if (progress !== null && progress !== undefined) found.push({ label: "Trained", value: Math.round(100 * progress) + " %", note: (epoch ? "epoch " + epoch + ", " : "") + "step " + at });
  else if (step) found.push({ label: "Step", value: at, note: epoch ? "epoch " + epoch : "" });
  for (const name of run.metricNames().filter((each) => each !== SPEED && !each.startsWith("val_")).slice(0, 2)) {
    const [last, validation] = [run.last(name)?.[VALUE], run.last("val_" + name)?.[VALUE]];
    if (last === undefined) continue;
    const note = validation === undefined ? "" : "validation " + number(validation);
    found.push({ label: name, value: number(last), note, isBad: !isFiniteValue(last), isNoteBad: note && !isFiniteValue(validation) });
  }
  return found;
}

// The best task of each metric, as the driver tells it.
function bestTiles(run) {
  const names = run.metricNames().filter((name) => name !== SPEED && run.best(name)).slice(0, 3);
  return names.map((name) => {
    const { value, rank } = run.best(name);
    return { label: name, value: number(value), note: "best: " + run.name(rank), isBad: !isFiniteValue(value) };
  });
}

const withState = (nodes, ...states) => nodes.filter((node) => states.includes(node.state)).length;

function nodesTile(run, nodes) {
  const failed = withState(nodes, ...FAILED);
  const size = "of " + nodes.length.toLocaleString("en");
  if (run.isCut) return { label: "Nodes", value: nodes.length.toLocaleString("en"), note: failed ? failed + " failed" : "state unknown", isNoteBad: failed > 0 };
  const up = withState(nodes, "running", "returned");
  return { label: "Nodes up", value: up.toLocaleString("en"), note: size + (failed ? ", " + failed + " failed" : ""), isBad: failed > 0 };
}

function tasksTile(run, nodes) {
  const failed = withState(nodes, ...FAILED);
  const running = run.isOver ? 0 : withState(nodes, "running");
  const note = ["of " + nodes.length.toLocaleString("en"), running ? running + " running" : "", failed ? failed + " failed" : ""].filter(Boolean).join(", ");
  return { label: "Tasks done", value: withState(nodes, "returned").toLocaleString("en"), note, isBad: failed > 0 };
}

function showTiles(run) {
  const found = tilesOf(run);
  const box = byId("tiles");
  box.hidden = !found.length;
  while (box.childElementCount > found.length) box.lastChild.remove();
  while (box.childElementCount < found.length) box.append(el("div", {}, el("span"), el("b"), el("small")));
  found.forEach(({ label, value, note, isBad, isNoteBad }, at) => {
    const tile = box.children[at];
    tile.className = isBad ? "tile bad" : "tile";
    tile.children[2].className = isNoteBad ? "not-finite" : "";
    [label, value, note || "\u00a0"].forEach((text, part) => setText(tile.children[part], text));
  });
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
  const text = JSON.stringify(groups);
  if (text === showDetails.text) return;
  showDetails.text = text;
  byId("facts").replaceChildren(...groups.map(list));
}
