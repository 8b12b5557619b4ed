// The nodes: how many are in which state, a map of many, and a table of which a part is shown.

const WAITED_FOR = { source: "rows", sink: "training", neither: "nobody" };
const COLUMNS = [
  { key: "rank", label: "Node", of: (node) => node.role + " " + node.rank },
  { key: "host", label: "Host", of: (node) => node.host },
  { key: "state", label: "State" },
  { key: "rows", label: "Rows", isNumber: true, isOptional: true, of: (node) => (node.rows ? node.rows.toLocaleString("en") : "") },
  { key: "rows_per_second", label: "Rows/s", isNumber: true, isOptional: true, of: (node) => (node.rows_per_second ? number(Math.round(node.rows_per_second)) : "") },
  { key: "waiting_for", label: "Waits for", isOptional: true, of: (node, run) => (run.isOver || ENDED.has(node.state) ? "" : WAITED_FOR[node.waiting_for] || "") },
  { key: "memory", label: "Memory", isNumber: true, isOptional: true, of: (node) => bytes(node.memory || node.memory_peak) },
  { key: "cpus", label: "Cores", isNumber: true, isOptional: true, of: (node) => (node.cpus ? node.cpus.toFixed(1) : "") },
  { key: "gpu", label: "GPU", isOptional: true, of: (node) => node.gpus.map((gpu) => gpu.name + " " + (gpu.utilisation ?? 0) + " %, " + bytes(gpu.memory_used)).join("; ") },
];
const PART = 25;

class NodesView {
  constructor() {
    this.run = null;
    this.shown = PART;
    this.state = "";
    this.sort = { key: "rank", isDown: false };
    this.rows = new Map();
    this.cells = new Map();
    this.chips = new Map();
    this.table = byId("node-table");
    this.body = this.table.tBodies[0];
    this.heads = COLUMNS.map((column) => el("th", { scope: "col", class: column.isNumber ? "num" : "", "aria-sort": "none" }, el("button", { type: "button", onclick: () => this.sortBy(column.key) }, column.label)));
    this.table.tHead.replaceChildren(el("tr", {}, ...this.heads));
    byId("node-filter").addEventListener("input", () => this.arrange());
    byId("more-nodes").addEventListener("click", () => { this.shown += 4 * PART; this.arrange(); });
    this.showSort();
  }

  showSort() {
    const order = this.sort.isDown ? "descending" : "ascending";
    COLUMNS.forEach((column, at) => this.heads[at].setAttribute("aria-sort", column.key === this.sort.key ? order : "none"));
  }

  sortBy(key) {
    this.sort = { key, isDown: this.sort.key === key ? !this.sort.isDown : key !== "rank" && key !== "host" };
    this.showSort();
    this.arrange();
  }

  show(run) {
    if (run !== this.run) this.begin(run);
    let changed = run.changed.nodes;
    run.changed.nodes = new Set();
    if (this.isOver !== run.isOver) changed = new Set(run.nodes.keys()); // a cut run knows no state of its nodes
    this.isOver = run.isOver;
    const isNew = [...changed].some((rank) => !this.cells.has(rank));
    this.showColumns();
    this.showMap(changed, isNew);
    const bad = [...run.nodes.values()].filter((node) => FAILED.has(node.state)).length; // these come first
    if (isNew || bad !== this.bad || this.sort.key !== "rank" || this.state) this.arrange();
    this.bad = bad;
    for (const rank of changed) if (this.rows.has(rank)) this.fill(this.rows.get(rank), run.nodes.get(rank));
    this.showStates();
  }

  begin(run) {
    this.run = run;
    this.rows.clear();
    this.cells.clear();
    this.shown = PART;
    this.state = "";
    this.isOver = null;
    run.changed.nodes = new Set(run.nodes.keys());
    this.arrange();
  }

  // What no node has needs no column.
  showColumns() {
    const nodes = [...this.run.nodes.values()];
    for (const column of COLUMNS.filter((each) => each.isOptional)) {
      this.table.classList.toggle("no-" + column.key, !nodes.some((node) => column.of(node, this.run)));
    }
    const unit = this.run.unit;
    setText(byId("nodes-title"), unit === "task" ? "Tasks" : "Nodes");
    setText(this.heads[0].firstChild, unit === "task" ? "Task" : "Node");
    byId("node-filter").setAttribute("aria-label", "Filter " + unit + "s by name or host");
    this.table.hidden = !nodes.length;
    byId("node-filter").hidden = !nodes.length;
    byId("no-nodes").hidden = nodes.length > 0;
    setText(byId("no-nodes"), this.run.isOver ? "There were no " + unit + "s." : "No " + unit + "s yet. They are listed when the run is planned.");
  }

  showStates() {
    const counts = new Map();
    for (const node of this.run.nodes.values()) counts.set(this.run.stateOf(node), (counts.get(this.run.stateOf(node)) || 0) + 1);
    const focused = [...this.chips].find(([, chip]) => chip === document.activeElement)?.[0];
    for (const kept of [this.state, focused]) if (kept && !counts.has(kept)) counts.set(kept, 0); // it is in use
    for (const [state, count] of counts) {
      if (!this.chips.has(state)) this.chips.set(state, this.chip(state));
      const chip = this.chips.get(state);
      chip.setAttribute("aria-pressed", String(this.state === state));
      setText(chip.lastChild, count + " " + state);
    }
    arrange(byId("node-states"), [...this.chips].filter(([state]) => counts.has(state)).map(([, chip]) => chip));
  }

  chip(state) {
    const choose = () => { this.state = this.state === state ? "" : state; this.arrange(); this.showStates(); };
    return el("button", { type: "button", onclick: choose }, el("i", { class: "dot", "data-state": state }), el("span"));
  }

  showMap(changed, isNew) {
    const map = byId("node-map");
    map.hidden = this.run.nodes.size <= 12;
    if (isNew) {
      const ranks = [...this.run.nodes.keys()].sort((a, b) => a - b);
      this.cells = new Map(ranks.map((rank) => [rank, el("i", {})]));
      map.replaceChildren(...this.cells.values());
    }
    for (const rank of isNew ? this.cells.keys() : changed) {
      const node = this.run.nodes.get(rank);
      const cell = this.cells.get(rank);
      const state = this.run.stateOf(node);
      if (cell.dataset.state === state) continue;
      cell.dataset.state = state;
      cell.title = node.role + " " + rank + (node.host ? " on " + node.host : "") + ": " + state;
    }
  }

  // Choose which rows are there, and in which order.
  arrange() {
    if (!this.run) return;
    const words = byId("node-filter").value.toLowerCase();
    const { key, isDown } = this.sort;
    const fits = (node) => (!this.state || this.run.stateOf(node) === this.state) && (!words || (node.role + " " + node.rank + " " + node.host).toLowerCase().includes(words));
    const order = (a, b) => {
      const bad = FAILED.has(b.state) - FAILED.has(a.state);
      if (bad && key === "rank") return bad;
      return ((a[key] > b[key]) - (a[key] < b[key])) * (isDown ? -1 : 1) || a.rank - b.rank;
    };
    const found = [...this.run.nodes.values()].filter(fits).sort(order);
    const wanted = found.slice(0, this.shown);
    const before = this.rows;
    this.rows = new Map(wanted.map((node) => [node.rank, before.get(node.rank) || this.row(node)]));
    arrange(this.body, [...this.rows.values()]);
    const more = byId("more-nodes");
    more.hidden = found.length <= wanted.length;
    setText(more, "Show more of " + found.length.toLocaleString("en") + " " + this.run.unit + "s");
  }

  row(node) {
    const row = el("tr", {}, ...COLUMNS.map((column) => el("td", { class: column.isNumber ? "num" : "", "data-label": ["rank", "state"].includes(column.key) ? null : column.label })));
    this.fill(row, node);
    return row;
  }

  fill(row, node) {
    row.classList.toggle("bad", FAILED.has(node.state));
    COLUMNS.forEach((column, at) => {
      const cell = row.cells[at];
      if (column.of) setText(cell, column.of(node, this.run));
      else this.fillState(cell, node);
      if (column.key === "memory") cell.title = node.memory_peak ? "At most " + bytes(node.memory_peak) : "";
      cell.classList.toggle("blank", !cell.textContent);
    });
  }

  fillState(cell, node) {
    const state = this.run.stateOf(node);
    const text = state + node.problem + node.before;
    if (cell.dataset.text === text) return;
    cell.dataset.text = text;
    const why = node.problem.trim().split("\n").pop();
    const parts = [el("span", { class: "state" }, el("i", { class: "dot", "data-state": state }), state)];
    if (why || node.before) parts.push(el("span", { class: why ? "why" : "why past" }, why || node.before));
    cell.replaceChildren(...parts);
  }
}
