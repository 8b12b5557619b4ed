// What the nodes printed: of one or all, filtered, the newest in sight.

const SHOWN_LINES = 800;

class LogsView {
  constructor() {
    this.run = null;
    this.box = byId("log-lines");
    this.isFollowing = true;
    for (const id of ["log-node", "log-filter"]) byId(id).addEventListener("input", () => this.again());
    byId("follow").addEventListener("click", () => this.follow(!this.isFollowing));
    this.box.addEventListener("scroll", () => {
      const isAtEnd = this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < 24;
      if (isAtEnd !== this.isFollowing && this.settled) this.follow(isAtEnd);
    });
  }

  follow(isOn) {
    this.isFollowing = isOn;
    byId("follow").setAttribute("aria-pressed", String(isOn));
    if (isOn) this.toEnd();
  }

  toEnd() {
    this.settled = false;
    this.box.scrollTop = this.box.scrollHeight;
    requestAnimationFrame(() => { this.settled = true; });
  }

  show(run) {
    if (run !== this.run || run.logs.length + run.dropped < this.read) { this.run = run; this.again(); return; }
    if (run.logs.length + run.dropped > this.read) this.add(run.logs.slice(this.read - run.dropped));
  }

  again() {
    this.showNodes();
    this.read = 0;
    this.box.replaceChildren();
    if (this.run) this.add(this.run.logs);
  }

  showNodes() {
    const select = byId("log-node");
    const ranks = [...new Set(this.run ? this.run.logs.map((line) => line[0]) : [])].sort((a, b) => a - b);
    const all = "All " + (this.run ? this.run.unit : "node") + "s";
    const names = ranks.map((rank) => this.run.name(rank));
    const text = [this.run?.id, all, ...names].join(); // two runs may have the same ranks with other names
    if (text === this.named) return;
    this.named = text;
    const chosen = select.value;
    select.replaceChildren(el("option", { value: "" }, all), ...ranks.map((rank, at) => el("option", { value: rank }, names[at])));
    select.value = ranks.includes(Number(chosen)) && chosen ? chosen : "";
  }

  add(lines) {
    this.read = this.run.logs.length + this.run.dropped;
    const rank = byId("log-node").value;
    const words = byId("log-filter").value.toLowerCase();
    const fits = (line) => (!rank || line[0] === Number(rank)) && (!words || line[2].toLowerCase().includes(words));
    const found = lines.filter(fits).slice(-SHOWN_LINES);
    const rows = found.map(([from, t, text]) => el("div", {}, el("span", { class: "when" }, clock(t)), el("span", { class: "who" }, this.run.name(from)), el("span", { class: "text" }, text)));
    if (rows.length) this.box.querySelector(".empty")?.remove();
    this.box.append(...rows);
    while (this.box.childElementCount > SHOWN_LINES) this.box.firstChild.remove();
    if (!this.box.childElementCount) this.box.append(el("p", { class: "empty" }, words || rank ? "No line fits." : this.run.isOver ? "Nothing was printed." : "Nothing printed yet."));
    if (lines.length) this.showNodes();
    if (this.isFollowing) this.toEnd();
  }
}
