// The nodes: how many are in which state, a map of many, and a table of which a part is shown.

const COLUMNS = [
  { key: "rank", label: "Node", of: (node) => node.role + " " + node.rank },
  { key: "host", label: "Host", of: (node) => node.host },
  { key: "state", label: "State" },
  { key: "rows", label: "Rows", isNumber: true, of: (node) => (node.rows ? node.rows.toLocaleString("en") : "") },
  { key: "rows_per_second", label: "Rows/s", isNumber: true, of: (node) => (node.rows_per_second ? number(Math.round(node.rows_per_second)) : "") },
  { key: "waiting_for", label: "Waits for", of: (node) => ({ source: "rows", sink: "training", neither: "nobody" })[node.waiting_for] || "" },
  { key: "memory", label: "Memory", isNumber: true },
  { key: "cpus", label: "Cores", isNumber: true, of: (node) => (node.cpus ? node.cpus.toFixed(1) : "") },
  { key: "gpu", label: "GPU" },
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
    this.body = byId("node-table").tBodies[0];
    byId("node-filter").addEventListener("input", () => this.arrange());
    byId("more-nodes").addEventListener("click", () => { this.shown += 4 * PART; this.arrange(); });
    this.makeHead();
  }

  makeHead() {
    const cells = COLUMNS.map((column) => {
      const button = el("button", { type: "button", onclick: () => this.sortBy(column.key) }, column.label);
      const isSorted = this.sort.key === column.key;
      const order = isSorted ? (this.sort.isDown ? "descending" : "ascending") : "none";
      return el("th", { scope: "col", class: column.isNumber ? "num" : "", "aria-sort": order }, button);
    });
    byId("node-table").tHead.replaceChildren(el("tr", {}, ...cells));
  }

  sortBy(key) {
    this.sort = { key, isDown: this.sort.key === key ? !this.sort.isDown : key !== "rank" && key !== "host" };
    this.makeHead();
    this.arrange();
  }

  show(run) {
    if (run !== this.run) { this.run = run; this.rows.clear(); this.cells.clear(); this.shown = PART; this.state = ""; }
    const changed = run.changed.nodes;
    run.changed.nodes = new Set();
    const isNew = [...changed].some((rank) => !this.cells.has(rank));
    this.largest = Math.max(1, ...[...run.nodes.values()].map((node) => node.memory_peak));
    byId("node-table").classList.toggle("no-gpu", ![...run.nodes.values()].some((node) => node.gpus.length));
    this.showMap(changed, isNew);
    const bad = [...run.nodes.values()].filter((node) => FAILED.has(node.state)).length; // these come first
    if (isNew || bad !== this.bad || this.sort.key !== "rank" || this.state) this.arrange();
    this.bad = bad;
    for (const rank of changed) if (this.rows.has(rank)) this.fill(this.rows.get(rank), run.nodes.get(rank));
    this.showStates();
  }

  showStates() {
    const counts = new Map();
    for (const node of this.run.nodes.values()) counts.set(node.state, (counts.get(node.state) || 0) + 1);
    const text = [...counts].join() + this.state;
    if (text === this.stateText) return;
    this.stateText = text;
    byId("node-states").replaceChildren(...[...counts].map(([state, count]) => el("button", {
      type: "button", "aria-pressed": String(this.state === state),
      onclick: () => { this.state = this.state === state ? "" : state; this.stateText = ""; this.arrange(); this.showStates(); },
    }, el("i", { class: "dot", "data-state": state }), count + " " + state)));
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
      if (cell.dataset.state === node.state) continue;
      cell.dataset.state = node.state;
      cell.title = node.role + " " + rank + (node.host ? " on " + node.host : "") + ": " + node.state;
    }
  }

  // Choose which rows are there, and in which order.
  arrange() {
    if (!this.run) return;
    const words = byId("node-filter").value.toLowerCase();
    const { key, isDown } = this.sort;
    const fits = (node) => (!this.state || node.state === this.state) && (!words || (node.role + " " + node.rank + " " + node.host).toLowerCase().includes(words));
    const order = (a, b) => {
      const bad = FAILED.has(b.state) - FAILED.has(a.state);
      if (bad && key === "rank") return bad;
      return ((a[key] > b[key]) - (a[key] < b[key])) * (isDown ? -1 : 1) || a.rank - b.rank;
    };
    const found = [...this.run.nodes.values()].filter(fits).sort(order);
    const wanted = found.slice(0, this.shown);
    const before = this.rows;
    this.rows = new Map(wanted.map((node) => [node.rank, before.get(node.rank) || this.row(node)]));
    const rows = [...this.rows.values()];
    if (rows.length !== this.body.rows.length || rows.some((row, at) => this.body.rows[at] !== row)) this.body.replaceChildren(...rows);
    const more = byId("more-nodes");
    more.hidden = found.length <= wanted.length;
    setText(more, "Show more of " + found.length.toLocaleString("en") + " nodes");
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
      if (column.of) setText(cell, column.of(node));
      else this["fill_" + column.key](cell, node);
      cell.classList.toggle("blank", !cell.textContent);
    });
  }

  fill_state(cell, node) {
    const text = node.state + node.problem + node.before;
    if (cell.dataset.text === text) return;
    cell.dataset.text = text;
    const why = node.problem.trim().split("\n").pop();
    const parts = [el("span", { class: "state" }, el("i", { class: "dot", "data-state": node.state }), node.state)];
    if (why || node.before) parts.push(el("span", { class: why ? "why" : "why past" }, why || node.before));
    cell.replaceChildren(...parts);
  }

  fill_memory(cell, node) {
    const text = bytes(node.memory || node.memory_peak);
    if (!cell.firstChild) cell.append("", el("span", { class: "meter" }, el("i", {})));
    setText(cell.firstChild, text);
    cell.title = node.memory_peak ? "At most " + bytes(node.memory_peak) : "";
    cell.lastChild.hidden = !text;
    cell.lastChild.firstChild.style.width = Math.round((100 * (node.memory || node.memory_peak)) / this.largest) + "%";
  }

  fill_gpu(cell, node) {
    setText(cell, node.gpus.map((gpu) => gpu.name + " " + (gpu.utilisation ?? 0) + " %, " + bytes(gpu.memory_used)).join("; "));
  }
}
