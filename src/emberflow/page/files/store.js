// What is known of each run: the changes that Python's RunState tells, put together again.

const AXES = { step: 0, time: 1, epoch: 2 };
const VALUE = 3;
const SPEED = "rows_per_second";
const FAILED = new Set(["lost", "raised", "refused", "undelivered"]);
const ENDED = new Set([...FAILED, "returned", "ended"]);
const POINTS = 20000; // of one series; a screen has fewer columns
const TOTAL_POINTS = 400000; // of all series of a run

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
    for (const node of change.nodes) {
      this.nodes.set(node.rank, node);
      this.changed.nodes.add(node.rank);
    }
    for (const series of change.series) this.addPoints(series);
    if (change.logs.length) {
      for (const line of change.logs.sort((a, b) => a[1] - b[1])) this.logs.push(line);
      const over = this.logs.length - 20000;
      if (over > 0) { this.logs.splice(0, over); this.dropped += over; }
    }
  }

  addPoints(series) {
    const key = series.attempt + "/" + series.rank + "/" + series.name;
    const known = this.series.get(key) || { ...series, points: [], firstBad: null };
    this.series.set(key, known);
    for (const point of series.points) {
      known.points.push(point);
      if (!isFiniteValue(point[VALUE])) known.firstBad ||= point;
    }
    const limit = Math.max(Math.min(POINTS, Math.floor(TOTAL_POINTS / this.series.size)), 200);
    if (known.points.length > limit) known.points = evenly(known.points, limit / 2, known.firstBad);
  }

  // Whether the record ends without an end. Its driver cannot tell: the list of runs does, or the report.
  get isCut() {
    return live.statuses.get(this.id) === "cut";
  }

  get status() {
    return this.isCut ? "cut" : this.head.status;
  }

  get isOver() {
    return this.isCut || this.head.status === "succeeded" || this.head.status === "failed";
  }

  get isParallel() {
    return this.head.kind === "parallel";
  }

  // What its parts are called.
  get unit() {
    return this.isParallel ? "task" : "node";
  }

  // Seconds since the run began; they go on between two messages.
  get elapsed() {
    return this.isOver || !live.isConnected ? this.t : this.t + (performance.now() - this.heardAt) / 1000;
  }

  // Nobody has told how the nodes of a cut run ended.
  stateOf(node) {
    return this.isCut && !ENDED.has(node.state) ? "unknown" : node.state;
  }

  // The loss first, the speed last.
  metricNames() {
    const place = (name) => (name === SPEED ? 2 : /^(val_)?loss$/.test(name) ? 0 : 1);
    return [...new Set([...this.series.values()].map((each) => each.name))].sort((a, b) => place(a) - place(b));
  }

  // The newest attempt of which the chief has told anything.
  get newest() {
    return Math.max(0, ...[...this.series.values()].filter((each) => each.rank === 0).map((each) => each.attempt));
  }

  // How far the chief is in that attempt: step and epoch.
  get position() {
    const own = [...this.series.values()].filter((each) => each.rank === 0 && each.attempt === this.newest);
    const most = (axis) => own.reduce((far, each) => Math.max(far, each.points.at(-1)?.[axis] ?? 0), 0);
    return { step: most(AXES.step), epoch: most(AXES.epoch) };
  }

  // The last point of a metric: the chief's in the newest attempt.
  last(name) {
    let found = null;
    for (const each of this.series.values()) {
      const isOwn = each.name === name && each.points.length && each.rank === 0;
      if (isOwn && (!found || each.attempt >= found.attempt)) found = each;
    }
    return found ? found.points.at(-1) : null;
  }

  // The best value of a metric over all tasks of a parallel run: name, value, rank.
  best(name) {
    return this.head.best?.find((each) => each.name === name) ?? null;
  }

  name(rank) {
    const node = this.nodes.get(rank);
    return (node ? node.role : this.unit) + " " + rank;
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

// A selection of points that is even in time, with the first, the last and one that must stay.
function evenly(points, count, wanted) {
  const [first, last] = [points[0], points.at(-1)];
  const width = (last[AXES.time] - first[AXES.time]) / count;
  let before = null;
  return points.filter((point, at) => {
    const place = width > 0 ? Math.floor((point[AXES.time] - first[AXES.time]) / width) : Math.floor((at * count) / points.length);
    const isNew = place !== before;
    before = place;
    return isNew || point === last || point === wanted;
  });
}
