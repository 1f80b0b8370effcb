// The bracket: primal and dual closing on each other, with the phases of the solver, and the distance between them.

import { Chart, keys } from "./chart.js";
import { byId, fill, h } from "./dom.js";
import { number } from "./format.js";
import { on, state } from "./store.js";
import { onTheme, theme } from "./theme.js";

/** @type {Chart} */
let bracket;
/** @type {Chart} */
let distance;
let bySeconds = false;
/** Where phases begin, on the horizontal axis. @type {{x: number, name: string}[]} */
let phases = [];

export function startBracket() {
  const above = h("div", { class: "chart", id: "bracket-chart" });
  const below = h("div", { class: "chart", id: "distance-chart" });
  const keyBox = h("div");
  const axis = h("button", { class: "plain small", id: "trace-axis", title: "What the horizontal axis counts", onclick: () => {
    bySeconds = !bySeconds;
    fill(axis, bySeconds ? "by seconds" : "by iterations");
    bracket.change({ x: bySeconds ? "seconds" : "iterations" });
    distance.change({ x: bySeconds ? "seconds" : "iterations" });
    show();
  } }, "by iterations");
  byId("panel-proof").append(h("section", { "aria-label": "Bracket" }, h("div", { class: "head" }, h("h2", null, "The optimum lies between dual and primal"), axis), keyBox, above, below, h("p", { class: "small dim", id: "too-quick", hidden: true }, "Too quick to see: Watch plays it from the start.")));
  bracket = new Chart(above, { height: 168, x: "", logY: true, lines: [
    { name: "primal", colour: (t) => t.classes[1] },
    { name: "dual", colour: (t) => t.classes[0] },
    { name: "certified primal", colour: (t) => t.classes[1], kind: "marked" },
    { name: "certified dual", colour: (t) => t.classes[0], kind: "marked" },
  ], over: drawPhases });
  distance = new Chart(below, { height: 150, x: "iterations", logY: true, lines: [
    { name: "relative gap", colour: (t) => t.ink, width: 2 },
    { name: "KKT violation", colour: (t) => t.classes[2], dash: [5, 3] },
    { name: "certified gap", colour: (t) => t.ink, kind: "marked" },
  ], over: (u, t) => {
    drawPhases(u, t, false);
    drawAsked(u, t);
  } });
  const legend = () => {
    const t = theme();
    fill(keyBox, keys([{ name: "primal", colour: t.classes[1] }, { name: "dual", colour: t.classes[0] }, { name: "relative gap", colour: t.ink }, { name: "KKT violation", colour: t.classes[2], dash: "dash" }]));
  };
  legend();
  onTheme(legend);
  on(["trace"], show);
}

function show() {
  const trace = state.trace;
  if (!trace) return;
  const from = performance.now();
  const a = trace.arrays;
  const x = bySeconds ? a.seconds : a.iteration;
  const certified = trace.certified ?? [];
  const marks = certified.map((/** @type {any} */ c) => (bySeconds ? c.seconds : c.iteration));
  phases = [];
  for (let k = 0; k < a.phase.length; k += 1) {
    if (k === 0 || a.phase[k] !== a.phase[k - 1]) phases.push({ x: x[k], name: trace.phases[a.phase[k]] });
  }
  // Novelty's objective is negative: no logarithm.
  const log = ![...a.primal, ...certified.map((/** @type {any} */ c) => c.primal)].some((v) => v < 0);
  const [xs, columns] = merged(x, [a.primal, a.dual, relative(a.primal, a.dual), a.violation], marks, [
    certified.map((/** @type {any} */ c) => c.primal ?? c.objective),
    certified.map((/** @type {any} */ c) => c.dual),
    certified.map((/** @type {any} */ c) => c.relative_gap),
  ], log ? [] : [0, 1, 4, 5]);
  const [primal, dual, gap, violation, certainPrimal, certainDual, certainGap] = columns;
  const last = xs.at(-1) ?? 1;
  const ends = /** @type {[number, number]} */ ([0, last + 0.015 * last || 1]);
  bracket.options.rangeX = distance.options.rangeX = ends;
  bracket.options.logY = log;
  bracket.options.rangeY = log ? window_(primal, dual, certainPrimal, certainDual) : null;
  bracket.data = [xs, primal, dual, certainPrimal, certainDual];
  bracket.remake();
  distance.data = [xs, gap, violation, certainGap];
  distance.remake();
  byId("bracket-chart").dataset.drawn = (performance.now() - from).toFixed(1);
  byId("too-quick").hidden = state.job !== null || xs.length > 4;
  byId("bracket-chart").dataset.points = String(xs.length);
}

/**
 * The dual begins at nothing: what is far below the optimum is left out of the picture.
 * @param {...(number | null)[]} columns
 * @returns {[number, number] | null}
 */
function window_(...columns) {
  const values = /** @type {number[]} */ (columns.flat().filter((v) => v !== null));
  if (!values.length) return null;
  const best = columns[0].findLast((v) => v !== null) ?? columns[2].findLast((v) => v !== null) ?? Math.max(...values);
  let [low, high] = [Infinity, 0];
  for (const v of values) [low, high] = [Math.min(low, v), Math.max(high, v)];
  [low, high] = [Math.max(low, best / 30), Math.min(high, best * 1000)];
  const air = Math.max((high / low) ** 0.08, 1.02);
  return [low / air, high * air];
}

/** @param {Float64Array} primal @param {Float64Array} dual */
function relative(primal, dual) {
  return primal.map((p, k) => {
    const size = Math.max(Math.abs(p), Math.abs(dual[k]));
    return size > 0 ? (p - dual[k]) / size : Number.NaN;
  });
}

/**
 * Two sets of columns on one ascending axis. A logarithmic axis has no place for what is not positive.
 * @param {ArrayLike<number>} x
 * @param {ArrayLike<number>[]} columns
 * @param {number[]} marks
 * @param {number[][]} points
 * @param {number[]} signed  Columns that may be negative
 * @returns {[number[], (number | null)[][]]}
 */
function merged(x, columns, marks, points, signed) {
  const order = [...Array.from(x, (v, k) => ({ v, k, mark: false })), ...marks.map((v, k) => ({ v, k, mark: true }))].filter((o) => Number.isFinite(o.v)).sort((p, q) => p.v - q.v || Number(p.mark) - Number(q.mark));
  const drawn = (/** @type {number | undefined | null} */ v, /** @type {number} */ at) => (v !== undefined && v !== null && (signed.includes(at) ? Number.isFinite(v) : v > 0) ? v : null);
  /** @type {number[]} */
  const xs = [];
  /** @type {(number | null)[][]} */
  const out = [...columns, ...points].map(() => []);
  // A mark at the place of a step shares its row: charts want each place once.
  for (const { v, k, mark } of order) {
    const shared = mark && xs.length > 0 && xs.at(-1) === v && out.slice(columns.length).every((column) => column.at(-1) === null);
    if (!shared) {
      xs.push(v);
      for (const column of out) column.push(null);
    }
    const [from, values] = mark ? [columns.length, points] : [0, columns];
    values.forEach((column, at) => {
      out[from + at][xs.length - 1] = drawn(column[k], from + at);
    });
  }
  return [xs, out];
}

/** Thin lines where the solver goes from one phase to the next, with their names. */
function drawPhases(/** @type {any} */ u, /** @type {import("./theme.js").Theme} */ t, named = true) {
  const c = u.ctx;
  const ratio = window.devicePixelRatio || 1;
  c.save();
  c.font = `${11 * ratio}px Helvetica, Arial, sans-serif`;
  c.fillStyle = t.dim;
  c.strokeStyle = t.line;
  c.setLineDash([4 * ratio, 4 * ratio]);
  c.textBaseline = "top";
  c.textAlign = "left";
  c.lineWidth = ratio;
  let free = -Infinity;
  for (const [k, phase] of phases.entries()) {
    const x = Math.round(u.valToPos(phase.x, "x", true));
    if (k) {
      c.beginPath();
      c.moveTo(x, u.bbox.top);
      c.lineTo(x, u.bbox.top + u.bbox.height);
      c.stroke();
    }
    const width = c.measureText(phase.name).width;
    if (named && phase.name && x + 4 * ratio > free && x + 4 * ratio + width < u.bbox.left + u.bbox.width) {
      c.fillText(phase.name, x + 4 * ratio, u.bbox.top + 2 * ratio);
      free = x + 12 * ratio + width;
    }
  }
  c.restore();
}

/** The relative gap that was asked for. */
function drawAsked(/** @type {any} */ u, /** @type {import("./theme.js").Theme} */ t) {
  const asked = state.run?.summary?.asked?.gap;
  if (!asked) return;
  const y = u.valToPos(asked, "y", true);
  if (!(y > u.bbox.top && y < u.bbox.top + u.bbox.height)) return;
  const c = u.ctx;
  const ratio = window.devicePixelRatio || 1;
  c.save();
  c.strokeStyle = t.dim;
  c.setLineDash([2 * ratio, 3 * ratio]);
  c.beginPath();
  c.moveTo(u.bbox.left, y);
  c.lineTo(u.bbox.left + u.bbox.width, y);
  c.stroke();
  c.font = `${11 * ratio}px Helvetica, Arial, sans-serif`;
  c.fillStyle = t.dim;
  c.textBaseline = "alphabetic";
  c.textAlign = "right";
  c.fillText(`asked: ${number(asked, 2)}`, u.bbox.left + u.bbox.width - 4 * ratio, y - 4 * ratio);
  c.restore();
}
