// Where the lines of a grid are, and what is written at them.

const STEPS = [1, 2, 5, 10];
const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400];
const MOST_TICKS = 60;

// The distance of about `count` ticks; `least` is 1 where only whole numbers have a meaning.
function tickStep(low, high, count, least = 0) {
  const raw = Math.max((high - low) / count || 1, least);
  const power = 10 ** Math.floor(Math.log10(raw));
  return STEPS.map((each) => each * power).find((each) => each >= 0.7 * raw && each >= least);
}

function timeStep(low, high, count) {
  const raw = (high - low) / count;
  return SECONDS.find((each) => each >= 0.7 * raw) || 86400 * Math.ceil(raw / 86400);
}

function ticks(low, high, step) {
  const first = Math.ceil(low / step - 1e-6);
  const count = Math.min(Math.floor(high / step + 1e-6) - first + 1, MOST_TICKS);
  return Array.from({ length: Math.max(count, 0) }, (_, at) => Number(((first + at) * step).toPrecision(12)));
}

// As many decimals as the distance of the ticks needs: no two have the same text.
function tickText(value, step, largest) {
  if (value === 0) return "0";
  const bounded = (digits) => Math.min(Math.max(digits, 0), 15);
  if (largest >= 1e15 || largest < 1e-4) {
    const digits = Math.floor(Math.log10(Math.abs(value)) + 1e-9) - Math.floor(Math.log10(step) + 1e-9);
    return value.toExponential(bounded(digits)).replace("e+", "e");
  }
  const [unit, name] = LARGE.find(([least]) => largest >= least) || [1, ""];
  const digits = bounded(Math.ceil(-Math.log10(step / unit) - 1e-9));
  const text = (value / unit).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return name ? text + " " + name : text;
}

// The ticks of a vertical axis: value and text of each. `low` and `high` are logarithms on a logarithmic one.
function verticalTicks(low, high, count, isLog) {
  const decades = isLog ? decadeTicks(low, high, count) : null;
  if (decades) return decades.map((value) => [value, number(value)]);
  if (isLog) [low, high] = [10 ** low, 10 ** high];
  const step = tickStep(low, high, count);
  const found = ticks(low, high, step);
  const largest = Math.max(...found.map(Math.abs));
  return found.map((value) => [value, tickText(value, step, largest)]);
}

// 1, 2, 5, 10, 20 ...; powers of ten alone where these are too many, null where they are too few.
function decadeTicks(low, high, count) {
  const found = [];
  for (let power = Math.floor(low); power <= high; power += 1) {
    for (const each of [1, 2, 5]) found.push(Number((each + "e" + power)));
  }
  const seen = found.filter((value) => Math.log10(value) >= low && Math.log10(value) <= high);
  if (seen.length < 3) return null;
  if (seen.length <= 2 * count) return seen;
  const step = Math.max(1, Math.ceil((high - low) / count));
  return ticks(low, high, step).map((power) => Number("1e" + power));
}

// The ticks of the horizontal axis: steps and epochs are whole numbers, times are clocks.
function horizontalTicks(low, high, count, axis) {
  const step = axis === "time" ? timeStep(low, high, count) : tickStep(low, high, count, 1);
  const found = ticks(low, high, step);
  const largest = Math.max(...found.map(Math.abs));
  return found.map((value) => [value, axis === "time" ? clock(value) : tickText(value, step, largest)]);
}
