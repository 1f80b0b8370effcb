// The search: a map of scores that fills while it runs. A click trains that cell.

import { post } from "./api.js";
import { byId, fill, h, select } from "./dom.js";
import { readNumber } from "./controls.js";
import { number, percent, plain } from "./format.js";
import { tell } from "./message.js";
import { train } from "./session.js";
import { on, set, state } from "./store.js";
import { ramp } from "./theme.js";

const USUAL = /** @type {Record<string, string>} */ ({ C: "2^-5..2^11*4", gamma: "2^-11..2^3*4", epsilon: "0.01,0.03,0.1,0.3,1", nu: "0.1..0.9+0.1", lambda: "1e-6..1e2*10" });
const NAMES = /** @type {Record<string, string>} */ ({ C: "C", gamma: "γ", epsilon: "ε", nu: "ν", lambda: "λ" });
const ranges = { ...USUAL };
let axes = ["C", "gamma"];
let folds = 5;
let score = "";

export function startTune() {
  byId("panel-tune").append(h("section", null, h("h2", null, "Search by cross-validation"), h("div", { id: "tune-form" })), h("section", { id: "tune-map", "aria-label": "Scores" }));
  on(["settings", "data", "job", "hello"], form);
  on(["tune"], map);
}

/** Parameters that mean something for these settings. */
function possible() {
  const s = state.settings;
  const out = [s.nu !== null && s.nu !== undefined ? "nu" : "C"];
  if (state.hello.kernels.find((/** @type {any} */ k) => k.name === s.kernel.name)?.parameters.includes("gamma")) out.push("gamma");
  if (s.task === "regress" && /epsilon/.test(s.loss ?? "epsilon")) out.push("epsilon");
  return out;
}

function form() {
  const { settings, data, hello } = state;
  const box = byId("tune-form");
  if (!settings || !data || !hello || box.contains(document.activeElement)) return;
  const all = possible();
  if (!axes.every((a) => all.includes(a)) || (axes.length < 2 && all.length > 1)) axes = all.slice(0, 2);
  const pick = (/** @type {number} */ at, /** @type {string} */ label) => {
    if (axes[at] === undefined) return null;
    const input = h("input", { id: `range-${at}`, "aria-label": `Values of ${NAMES[axes[at]]}`, value: ranges[axes[at]], onchange: () => {
      const bad = readRange(input.value) === null;
      input.setAttribute("aria-invalid", String(bad));
      if (!bad) ranges[axes[at]] = input.value;
    } });
    return h("div", { class: "field" }, select({ label, id: `axis-${at}`, value: axes[at], options: all.map((v) => ({ value: v, name: NAMES[v] })), onchange: (v) => {
      axes = at === 0 ? [v, axes[1] === v ? axes[0] : axes[1]] : [axes[0] === v ? axes[1] : axes[0], v];
      byId(`axis-${at}`).blur();
      form();
    } }), input);
  };
  const scores = hello.metrics[settings.task] ?? [];
  fill(box, pick(0, "Across"), pick(1, "Up"),
    h("div", { class: "field" }, h("label", { htmlFor: "folds" }, "Folds"), h("input", { id: "folds", class: "number", value: folds, onchange: (/** @type {any} */ e) => {
      folds = Math.max(2, Math.round(readNumber(e.target.value) ?? 5));
      e.target.value = folds;
    } })),
    scores.length > 0 && h("div", { class: "field" }, h("label", { htmlFor: "score" }, "Score"), select({ label: "Score", id: "score", value: score, options: [{ value: "", name: "usual" }, ...scores.map((/** @type {string} */ v) => ({ value: v, name: v }))], onchange: (v) => {
      score = v;
    } })),
    h("div", { class: "group" }, h("button", { id: "tune-start", class: "main", disabled: state.job !== null || settings.task === "novelty", onclick: start }, "Search")),
    settings.task === "novelty" && h("p", { class: "small dim" }, "Novelty has no targets to score against."));
}

/**
 * `from..to*factor`, `from..to+step` or a list, as on the command line.
 * @param {string} text
 * @returns {number[] | null}
 */
export function readRange(text) {
  const found = /^(.+)\.\.(.+)([*+])(.+)$/.exec(text.replaceAll(" ", ""));
  if (!found) {
    const list = text.split(",").map(readNumber);
    return list.length && list.every((v) => v !== null) ? /** @type {number[]} */ (list) : null;
  }
  const [from, to, by] = [found[1], found[2], found[4]].map(readNumber);
  if (from === null || to === null || by === null) return null;
  const out = [];
  if (found[3] === "*") {
    if (!(by > 1) || !(from > 0)) return null;
    for (let v = from; v <= to * (1 + 1e-9) && out.length < 400; v *= by) out.push(v);
  } else {
    if (!(by > 0)) return null;
    for (let k = 0; from + k * by <= to + 1e-9 * by && out.length < 400; k += 1) out.push(Number((from + k * by).toPrecision(12)));
  }
  return out.length ? out : null;
}

async function start() {
  const grid = Object.fromEntries(axes.map((a) => [a, readRange(ranges[a])]));
  if (Object.values(grid).some((v) => v === null)) return tell(new Error("A range is from..to*factor, from..to+step or a list a,b,c."));
  // Events may come before the answer does.
  set({
    tune: { tune: null, status: "running", axes: { x: axes[0], y: axes[1] ?? null }, x: grid[axes[0]], y: axes[1] ? grid[axes[1]] : [null], cells: [], best: null, folds, scoring: score, larger_is_better: true },
    job: { kind: "tune", run: null, phase: "", iteration: 0, seconds: 0 },
  });
  try {
    await post(`sessions/${state.session}/tune`, { settings: state.settings, grid, folds, score: score || null });
  } catch (error) {
    set({ job: null, tune: null });
    tell(error);
  }
  return undefined;
}

/** The grid on the page and what it was made for. */
let made = "";

/** A button for each cell: arrow keys walk, Enter trains. Made once, then coloured. */
function map() {
  const t = state.tune;
  const box = byId("tune-map");
  if (!t) {
    made = "";
    return fill(box);
  }
  const now = JSON.stringify([t.x, t.y, t.axes]);
  if (now !== made) {
    made = now;
    fill(box, h("div", { class: "head" }, h("h2", { id: "tune-title" }), h("span", { class: "small dim", id: "tune-progress" })), gridOf(t), h("p", { class: "small dim", id: "tune-note" }), h("p", { id: "tune-best" }));
  }
  const known = t.cells.filter((/** @type {any} */ c) => c.score !== null && c.score !== undefined);
  const scores = known.map((/** @type {any} */ c) => c.score);
  const [low, high] = [Math.min(...scores), Math.max(...scores)];
  const better = t.larger_is_better !== false;
  const best = t.best ?? leader(known, better);
  for (const found of t.cells) colour(t, found, { low, high, best });
  const total = t.x.length * (t.y?.length || 1);
  byId("tune-title").textContent = `${t.scoring || "score"}, ${t.folds} folds`;
  byId("tune-progress").textContent = t.status === "running" ? `${t.cells.length} of ${total}` : `${t.status}, ${t.cells.length} cells`;
  byId("tune-note").textContent = `${NAMES[t.axes.x]} across${t.axes.y ? `, ${NAMES[t.axes.y]} up` : ""}; ${better ? "lighter is better" : "darker is better"}.`;
  const found = best && cellAt(t, best.x, best.y);
  if (found) fill(byId("tune-best"), "Best: ", h("b", null, show(found.score)), ` at ${describe(found.params)}. `, h("button", { id: "train-best", onclick: () => trainCell(found) }, "Train it"));
  return undefined;
}

/** @param {any} t */
function gridOf(t) {
  const columns = t.x.length;
  const rows = t.y?.length || 1;
  const grid = h("div", { class: "heat", role: "grid", "aria-label": `Scores by ${NAMES[t.axes.x]}${t.axes.y ? ` and ${NAMES[t.axes.y]}` : ""}`, onkeydown: walk });
  grid.style.gridTemplateColumns = `auto repeat(${columns}, minmax(0, 1fr))`;
  for (let y = rows - 1; y >= 0; y -= 1) {
    const line = h("div", { role: "row", class: "heat-row" }, h("span", { role: "rowheader", class: "small dim n" }, t.axes.y ? short(t.y[y]) : ""));
    for (let x = 0; x < columns; x += 1) line.append(h("button", { role: "gridcell", tabIndex: x === 0 && y === rows - 1 ? 0 : -1, data: { cell: `${x},${y}` }, disabled: true, onclick: () => trainCell(cellAt(state.tune, x, y)) }));
    grid.append(line);
  }
  grid.append(h("div", { role: "row", class: "heat-row" }, h("span", { role: "columnheader" }), t.x.map((/** @type {number} */ v) => h("span", { role: "columnheader", class: "small dim" }, short(v)))));
  return grid;
}

/** @param {any[]} cells @param {boolean} better */
function leader(cells, better) {
  return cells.reduce((best, c) => (!best || (better ? c.score > best.score : c.score < best.score) ? c : best), null);
}

/** @param {any} t @param {number} x @param {number} y */
function cellAt(t, x, y) {
  return t.cells.find((/** @type {any} */ c) => c.x === x && (c.y ?? 0) === (y ?? 0));
}

/** @param {any} t @param {any} found @param {any} of */
function colour(t, found, { low, high, best }) {
  const [x, y] = [found.x, found.y ?? 0];
  const button = /** @type {HTMLButtonElement | null} */ (byId("tune-map").querySelector(`[data-cell="${x},${y}"]`));
  if (!button) return;
  button.disabled = false;
  button.classList.toggle("best", Boolean(best) && best.x === x && (best.y ?? 0) === y);
  button.title = `${describe(found.params)}: ${show(found.score)} ± ${number(found.std, 2)}`;
  if (found.score === null || found.score === undefined) return;
  button.textContent = t.x.length <= 9 ? show(found.score, true) : "";
  button.setAttribute("aria-label", button.title);
  const shade = ramp(high > low ? (found.score - low) / (high - low) : 1);
  button.style.background = `rgb(${shade.join(" ")})`;
  button.style.color = 0.299 * shade[0] + 0.587 * shade[1] + 0.114 * shade[2] > 120 ? "#111" : "#fff";
}

/** @param {any} found */
function trainCell(found) {
  if (!found) return;
  const { gamma, ...rest } = found.params;
  const s = state.settings;
  const kernel = gamma === undefined ? s.kernel : { ...s.kernel, gamma };
  const loss = rest.epsilon !== undefined ? (typeof s.loss === "string" ? s.loss : "epsilon:epsilon=0.1").replace(/epsilon=[^,]*/, `epsilon=${rest.epsilon}`) : s.loss;
  set({ settings: { ...s, ...rest, kernel, loss } });
  train();
}

/** @param {KeyboardEvent} event */
function walk(event) {
  const at = /** @type {HTMLElement} */ (event.target).dataset.cell?.split(",").map(Number);
  const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
  if (!at || !step) return;
  const next = /** @type {HTMLElement | null} */ (byId("tune-map").querySelector(`[data-cell="${at[0] + step[0]},${at[1] + step[1]}"]`));
  next?.focus();
  event.preventDefault();
}

/** @param {number} v */
function short(v) {
  const power = Math.log2(v);
  return v > 0 && Math.abs(power - Math.round(power)) < 1e-9 && Math.abs(power) > 2 ? `2${[...String(Math.round(power))].map((d) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(d)] ?? "⁻").join("")}` : number(v, 2);
}

/** @param {number | null} value @param {boolean} [tight] */
function show(value, tight = false) {
  if (value === null) return "–";
  const share = ["", "accuracy", "f1", "balanced-accuracy", "roc-auc"].includes(state.tune?.scoring ?? "");
  return share && !tight && value <= 1 && value >= 0 ? percent(value, 4) : number(value, 3);
}

/** @param {any} params */
function describe(params) {
  return Object.entries(params ?? {}).map(([k, v]) => `${NAMES[k] ?? k} = ${plain(/** @type {number} */ (v), 3)}`).join(", ");
}
