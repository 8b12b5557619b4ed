// Charts by metric: the training and its validation together, of this run and of those beside it.

const RUN_COLOURS = ["#8b6cf0", "#1098ad", "#e64980", "#74b816", "#339af0"]; // seen on light and on dark
const HIDDEN = new Set(["progress", "epoch"]);
const MOST_LINES = 16; // nodes or tasks of one run: more colours cannot be told apart

// Far apart for neighbours; after 13 tasks the hues come again, lighter or darker.
function taskColour(rank) {
  const isDark = document.documentElement.dataset.theme === "dark";
  const isSecond = Math.floor(rank / 13) % 2 === 1;
  const bright = isDark ? (isSecond ? 88 : 72) : isSecond ? 42 : 60;
  return "oklch(" + bright + "% " + (isSecond ? 0.11 : 0.17) + " " + Math.round((45 + rank * 137.5) % 360) + ")";
}

const runColour = (place) => (place ? RUN_COLOURS[(place - 1) % RUN_COLOURS.length] : colour("ember"));

// The ranks whose lines are drawn: all, or the best tasks and the first ones.
function drawnRanks(run) {
  const all = [...new Set([...run.series.values()].map((each) => each.rank))].sort((a, b) => a - b);
  const best = (run.head.best || []).map((each) => each.rank);
  const drawn = new Set([...best.filter((rank) => all.includes(rank)), ...all].slice(0, MOST_LINES + best.length));
  return { all, drawn: [...drawn].slice(0, MOST_LINES).sort((a, b) => a - b) };
}

class CurvesView {
  constructor() {
    this.charts = new Map();
  }

  show(runs) {
    const names = [...new Set(runs.flatMap((run) => run.metricNames()))].filter((name) => !HIDDEN.has(name));
    const bases = [...new Set(names.map((name) => name.replace(/^val_/, "")))].sort((a, b) => (a === SPEED) - (b === SPEED));
    byId("no-curves").hidden = bases.length > 0;
    const hasEpochs = runs.some((run) => [...run.series.values()].some((each) => each.points.at(-1)?.[AXES.epoch]));
    document.querySelector('[data-axis="epoch"]').disabled = !hasEpochs;
    for (const name of this.charts.keys()) if (!bases.includes(name)) { this.charts.get(name).root.remove(); this.charts.delete(name); }
    const ranks = runs.map(drawnRanks);
    for (const name of bases) {
      if (!this.charts.has(name)) {
        this.charts.set(name, new Chart(name === SPEED ? "rows per second" : name, name === SPEED));
        byId("charts").append(this.charts.get(name).root);
      }
      const lines = runs.flatMap((run, place) => this.lines(run, name, ranks[place].drawn, runs.length > 1 ? place : null));
      this.charts.get(name).show(lines, [...this.marks(runs[0]), ...lines.flatMap(badMark)]);
    }
    this.showLegend(runs, ranks);
  }

  // The lines of one run; `place` is its place among several, null if it is alone.
  lines(run, base, drawn, place) {
    const found = [];
    for (const series of run.series.values()) {
      const isValidation = series.name === "val_" + base;
      if ((series.name !== base && !isValidation) || !drawn.includes(series.rank)) continue;
      const axis = AXES[shared.axis];
      const points = series.points.filter((point) => point[axis] !== null).map((point) => [point[axis], isFiniteValue(point[VALUE]) ? point[VALUE] : null, point[VALUE]]);
      const style = run.isParallel ? this.taskStyle(run, series, place) : this.nodeStyle(run, series, isValidation, place);
      const bad = series.firstBad && series.firstBad[axis] !== null ? { x: series.firstBad[axis], value: series.firstBad[VALUE], step: series.firstBad[0] } : null;
      found.push({ points, bad, name: series.name, isDashed: isValidation && (run.isParallel || place !== null), ...style });
    }
    return found.sort((a, b) => b.width - a.width); // the chief or the best task on top
  }

  nodeStyle(run, series, isValidation, place) {
    const isChief = series.rank === 0; // what it learned before a restart is part of the curve
    const isNamed = isChief && series.attempt === run.newest;
    const own = isValidation ? "validation" : series.name === SPEED ? "" : "training";
    const label = place === null ? own : run.head.name + " " + run.id.slice(0, 4) + (isValidation ? " validation" : "");
    return {
      colour: place === null ? colour(isValidation ? "blue" : "ember") : runColour(place), label, isNamed, isInHead: isNamed,
      alpha: isNamed ? 1 : isChief ? 0.7 : 0.38, width: isChief ? 1.9 : 1.2,
    };
  }

  // Of several runs each has one colour, and only the best task of each has a name.
  taskStyle(run, series, place) {
    const best = run.best(series.name);
    const isBest = best ? best.rank === series.rank : false;
    const isFirst = !best && series.rank === 0;
    const what = (isBest ? "best " : "") + run.name(series.rank) + (series.name.startsWith("val_") ? " validation" : "");
    const isAlone = place === null;
    return {
      colour: isAlone ? taskColour(series.rank) : runColour(place), label: isAlone ? what : run.head.name + " " + run.id.slice(0, 4) + " " + what,
      isNamed: isAlone || isBest || isFirst, isInHead: isBest || (isFirst && !isAlone), value: isBest ? best.value : undefined,
      alpha: isAlone || isBest ? 1 : 0.38, width: isBest ? 2.4 : 1.5,
    };
  }

  marks(run) {
    const label = (mark) => (mark.kind === "restart" ? "restart" : run.name(mark.rank) + " " + mark.text.split(/[ :]/)[2]);
    return run.head.marks.map((mark) => ({ ...mark, x: run.place(mark, shared.axis), label: label(mark) })).filter((mark) => mark.x !== null);
  }

  showLegend(runs, ranks) {
    const legend = byId("legend");
    const item = (shade, text) => el("li", {}, el("i", { style: { background: shade } }), text);
    const items = runs.length > 1 ? runs.map((run, place) => item(runColour(place), (run.head.name || "run") + " " + run.id))
      : runs[0].isParallel ? ranks[0].drawn.map((rank) => item(taskColour(rank), runs[0].name(rank))) : [];
    legend.hidden = !items.length;
    legend.replaceChildren(...items);
    const left = ranks.map(({ all, drawn }, at) => (all.length > drawn.length ? drawn.length + " of " + all.length + " " + runs[at].unit + "s are drawn" + (runs[at].head.best?.length ? ": the best and the first" : "") : "")).filter(Boolean);
    byId("drawn").hidden = !left.length;
    setText(byId("drawn"), left.join("; "));
  }

  draw() {
    for (const chart of this.charts.values()) chart.draw();
  }
}

// The first value of a line that is not finite.
function badMark(line) {
  if (!line.bad || !line.isNamed) return [];
  const what = number(line.bad.value);
  return [{ kind: "bad", x: line.bad.x, label: what, text: line.name + " is " + what + " from step " + line.bad.step + (line.label ? " (" + line.label + ")" : "") }];
}
