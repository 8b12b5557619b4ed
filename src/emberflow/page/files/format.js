// Numbers, times and elements as people read them. Text becomes a text node, never HTML.

function el(tag, properties, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") made.className = value;
    else if (name === "style") Object.assign(made.style, value);
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const byId = (id) => document.getElementById(id);

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Put elements into this order. One that stands right is not touched: moving it would take its focus, or a click.
function arrange(parent, wanted) {
  const kept = new Set(wanted);
  for (const child of [...parent.children]) if (!kept.has(child)) child.remove();
  let place = parent.firstElementChild;
  for (const each of wanted) {
    if (each === place) place = place.nextElementSibling;
    else parent.insertBefore(each, place);
  }
}

const LARGE = [[1e12, "T"], [1e9, "G"], [1e6, "M"]];

// Values that are not finite come as text; older records have null for them.
const isFiniteValue = (value) => typeof value === "number";

function number(value, digits = 4) {
  if (value === null || value === undefined) return "nan";
  if (!isFiniteValue(value)) return String(value);
  const size = Math.abs(value);
  if (size >= 1e15) return value.toExponential(1).replace("e+", "e");
  const [unit, name] = LARGE.find(([least]) => size >= least) || [];
  if (unit) return Number((value / unit).toPrecision(Math.max(3, digits - 1))) + " " + name;
  if (size >= 1000) return value.toLocaleString("en", { maximumFractionDigits: Math.max(0, Math.min(digits, 15) - 5) });
  if (size === 0 || Number.isInteger(value)) return String(value);
  if (size < 1e-4) return value.toExponential(1);
  return String(Number(value.toPrecision(digits)));
}

function bytes(value) {
  if (!value) return "";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) { value /= 1000; at += 1; }
  return (value >= 100 || at === 0 ? value.toFixed(0) : value.toFixed(1)) + " " + units[at];
}

function duration(seconds) {
  if (seconds < 10) return seconds.toFixed(1) + " s";
  const whole = Math.round(seconds);
  if (whole < 60) return whole + " s";
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return minutes + " min " + String(whole % 60).padStart(2, "0") + " s";
  return Math.floor(minutes / 60) + " h " + String(minutes % 60).padStart(2, "0") + " min";
}

function clock(seconds) {
  const whole = Math.floor(seconds);
  const part = (n) => String(n).padStart(2, "0");
  return whole < 3600 ? part(Math.floor(whole / 60)) + ":" + part(whole % 60)
    : Math.floor(whole / 3600) + ":" + part(Math.floor(whole / 60) % 60) + ":" + part(whole % 60);
}

function moment(at) {
  return at ? new Date(at * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short" }) : "";
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

