// The list of runs. Its elements stay while a run goes on: what is clicked or has the focus is not replaced.

class RunsList {
  constructor(choose) {
    this.choose = choose;
    this.items = new Map();
  }

  show(listed, shown, beside) {
    byId("runs").hidden = listed.length < 2;
    setText(byId("runs-count"), String(listed.length));
    const known = this.items;
    this.items = new Map(listed.map((run) => [run.run_id, known.get(run.run_id) || this.item(run.run_id)]));
    for (const run of listed) this.fill(this.items.get(run.run_id), run, run.run_id === shown, beside.has(run.run_id));
    arrange(byId("runs-list"), [...this.items.values()].map((item) => item.root));
  }

  item(id) {
    const made = { dot: el("i", { class: "dot" }), name: el("b"), note: el("small"), metric: el("small") };
    made.button = el("button", { type: "button", onclick: () => this.choose(id) }, made.name, made.note, made.metric);
    made.box = el("input", { type: "checkbox", title: "Draw its curves beside", "aria-label": "Draw the curves of " + id + " beside", onchange: () => this.choose(null, id, made.box.checked) });
    made.root = el("li", {}, made.dot, made.button, made.box);
    return made;
  }

  fill(item, run, isShown, isBeside) {
    item.root.classList.toggle("shown", isShown);
    item.dot.dataset.state = item.dot.title = run.status;
    setText(item.name, run.name);
    item.name.title = run.name;
    setText(item.note, run.run_id + " · " + duration(run.seconds));
    const [name, value] = Object.entries(run.metrics).find(([each]) => each !== SPEED && !HIDDEN.has(each)) || [];
    const task = run.best_ranks?.[name]; // of parallel tasks it is the best value
    setText(item.metric, name ? " · " + name + " " + number(value) + (task === undefined ? "" : " (task " + task + ")") : "");
    item.metric.classList.toggle("not-finite", Boolean(name) && !isFiniteValue(value));
    if (isShown) item.button.setAttribute("aria-current", "true"); else item.button.removeAttribute("aria-current");
    item.box.checked = isBeside;
    item.box.disabled = isShown;
  }
}
