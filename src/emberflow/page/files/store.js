// What is known of each run: the changes that Python's RunState tells, put together again.

class Run {
  constructor(id) {
    this.id = id;
    this.reset();
  }

  reset() {
    this.version = 0;
    this.t = 0;
    this.heardAt = performance.now();
    this.head = { name: "", status: "starting", phases: [], marks: [], options: {}, versions: {}, plan: {}, attempt: 0 };
    this.nodes = new Map();
    this.series = new Map();
    this.logs = [];
    this.dropped = 0; // lines that are no longer in `logs`
    this.changed = { nodes: new Set() };
  }

  // Take in what is new. A change since version 0 is all there is, as after a reconnection.
  apply(change) {
    if (!change.since) this.reset();
    this.version = change.version;
    this.t = change.t;
    this.heardAt = performance.now();
    if (change.head) this.head = change.head;
    if (change.status) this.isCut = change.status === "cut";
    for (const node of change.nodes) {
      this.nodes.set(node.rank, node);
      this.changed.nodes.add(node.rank);
    }
    for (const series of change.series) {
      const key = series.attempt + "/" + series.rank + "/" + series.name;
      const known = this.series.get(key);
      if (known) for (const point of series.points) known.points.push(point);
      else this.series.set(key, series);
    }
    if (change.logs.length) {
      for (const line of change.logs.sort((a, b) => a[1] - b[1])) this.logs.push(line);
      const over = this.logs.length - 20000;
      if (over > 0) { this.logs.splice(0, over); this.dropped += over; }
    }
  }

  get isOver() {
    return this.head.status === "succeeded" || this.head.status === "failed";
  }

  // Seconds since the run began; they go on between two messages.
  get elapsed() {
    return this.isOver || !live.isConnected ? this.t : this.t + (performance.now() - this.heardAt) / 1000;
  }

  // The loss first, the speed last.
  metricNames() {
    const place = (name) => (name === SPEED ? 2 : /^(val_)?loss$/.test(name) ? 0 : 1);
    return [...new Set([...this.series.values()].map((each) => each.name))].sort((a, b) => place(a) - place(b));
  }

  // The last value of a metric: the chief's in the newest attempt.
  last(name) {
    let found = null;
    for (const each of this.series.values()) {
      const own = each.name === name && each.points.length && (each.rank === 0 || this.head.kind === "parallel");
      if (own && (!found || each.attempt >= found.attempt)) found = each;
    }
    return found ? found.points[found.points.length - 1] : null;
  }

  name(rank) {
    const node = this.nodes.get(rank);
    return node ? node.role + " " + rank : "node " + rank;
  }

  // A moment on the horizontal axis: that of the last point before it.
  place(mark, axis) {
    if (axis === "time") return mark.t;
    let best = null;
    for (const series of this.series.values()) {
      if (series.attempt > mark.attempt) continue;
      for (let at = series.points.length - 1; at >= 0; at -= 1) {
        const point = series.points[at];
        if (point[1] <= mark.t) {
          if (!best || point[1] > best[1]) best = point;
          break;
        }
      }
    }
    return best ? best[AXES[axis]] : null;
  }
}

const AXES = { step: 0, time: 1, epoch: 2 };
const VALUE = 3;
const SPEED = "rows_per_second";
