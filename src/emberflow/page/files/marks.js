// Losses, restarts and the first value that is not finite, as dashed lines with labels that do not cover each other.

const NEIGHBOURS = 44; // pixels within which marks share a label
const LABEL_ROWS = [14, 27]; // the baselines of labels
const MARK_COLOURS = { loss: "red", restart: "amber", bad: "red" };

// Marks from left to right, those that are neighbours together.
function groupsOf(marks, px) {
  const found = [];
  for (const mark of [...marks].sort((a, b) => a.x - b.x)) {
    const group = found.at(-1);
    if (group && px(mark.x) - px(group[0].x) < NEIGHBOURS) group.push(mark);
    else found.push([mark]);
  }
  return found;
}

function labelOf(group) {
  const losses = [...new Set(group.filter((mark) => mark.kind === "loss").map((mark) => mark.label))];
  const others = [...new Set(group.filter((mark) => mark.kind !== "loss").map((mark) => mark.label))];
  if (losses.length > 2) losses.splice(1, losses.length, "and " + (losses.length - 1) + " more");
  return [losses.join(losses.length === 2 && losses[1].startsWith("and") ? " " : ", "), ...others].filter(Boolean).join(", ");
}

// Where each label stands: beside its marks, inside the plot, in the second row if the first is taken there.
function labelPlaces(pen, groups, px, left, right) {
  const ends = LABEL_ROWS.map(() => -Infinity);
  const found = [];
  groups.forEach((group, at) => {
    const text = labelOf(group);
    const width = pen.measureText(text).width;
    const [first, last] = [px(group[0].x), px(group.at(-1).x)];
    let x = last + 9;
    if (x + width > right) x = first - 9 - width >= left ? first - 9 - width : Math.max(left, right - width);
    const next = at + 1 < groups.length ? px(groups[at + 1][0].x) - 7 : Infinity;
    const isOnOwnMarks = x < last + 7 && x + width > first - 7; // whose heads are in the first row
    const fits = (row) => x > ends[row] + 6 && (row > 0 || (!isOnOwnMarks && (x + width < next || x > next + 14)));
    const row = LABEL_ROWS.findIndex((_, each) => fits(each));
    if (row < 0) return joinLabel(pen, found, group, ends, right);
    ends[row] = x + width;
    found.push({ text, x, row, group, colour: MARK_COLOURS[group[0].kind] });
  });
  return found;
}

// Without a place of its own a label becomes part of the one before it; where that has no room, pointing tells it.
function joinLabel(pen, found, group, ends, right) {
  const before = found.findLast((each) => each.row === 1);
  if (!before) return;
  const all = [...before.group, ...group];
  const end = before.x + pen.measureText(labelOf(all)).width;
  if (end > right) return;
  [before.group, before.text, ends[1]] = [all, labelOf(all), end];
}

function drawMark(pen, mark, x, bottom) {
  pen.strokeStyle = pen.fillStyle = colour(MARK_COLOURS[mark.kind]);
  pen.setLineDash([3, 3]);
  pen.beginPath(); pen.moveTo(x, 14); pen.lineTo(x, bottom); pen.stroke();
  pen.setLineDash([]);
  pen.beginPath();
  if (mark.kind === "restart") pen.arc(x, 9, 3.5, 0, 7);
  else if (mark.kind === "bad") pen.rect(x - 3.5, 5, 7, 7);
  else { pen.moveTo(x - 5, 3); pen.lineTo(x + 5, 3); pen.lineTo(x, 11); }
  pen.fill();
}

// Labels with a rim of the card's colour: a dashed line may pass below them.
function drawLabels(pen, places) {
  pen.textAlign = "left";
  pen.textBaseline = "alphabetic";
  pen.lineJoin = "round";
  for (const { text, x, row, colour: name } of places) {
    pen.lineWidth = 4;
    pen.strokeStyle = colour("card");
    pen.strokeText(text, x, LABEL_ROWS[row]);
    pen.fillStyle = colour(name);
    pen.fillText(text, x, LABEL_ROWS[row]);
  }
  pen.lineWidth = 1;
}
