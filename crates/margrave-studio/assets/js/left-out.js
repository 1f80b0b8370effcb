// Figures of left-out predictions beside those of the training: what to expect on new data.

import { get, post } from "./api.js";
import { Chart, keys } from "./chart.js";
import { byId, fill, h } from "./dom.js";
import { count, number, percent } from "./format.js";
import { tell } from "./message.js";
import { changeSettings } from "./session.js";
import { on, runIsCurrent, set, state } from "./store.js";
import { theme } from "./theme.js";

export function startLeftOut() {
  const probability = h("input", { type: "checkbox", id: "probability", onchange: () => changeSettings({ probability: probability.checked }) });
  on(["settings"], () => {
    probability.checked = Boolean(state.settings?.probability);
    probability.disabled = state.settings?.task !== "classify";
  });
  byId("panel-left-out").append(h("section", null, h("div", { class: "head" }, h("h2", null, "Left-out predictions"), h("div", { class: "group" }, h("label", { class: "small" }, probability, " calibrated probabilities"), h("button", { id: "evaluate", onclick: evaluate }, "Evaluate"))), h("p", { class: "small dim", id: "how" }, "Every row is predicted by a model that has not seen it. Training figures flatter every model.")), h("div", { id: "figures" }));
  on(["run", "job", "evaluation", "view"], show);
}

async function evaluate() {
  set({ job: { kind: "evaluate", run: state.run.run, phase: "", iteration: 0, seconds: 0 } });
  try {
    await post(`sessions/${state.session}/runs/${state.run.run}/evaluate`);
  } catch (error) {
    set({ job: null });
    tell(error);
  }
}

/** The evaluation that is drawn. @type {any} */
let drawn = null;

async function show() {
  if (state.view !== "left-out") return;
  const { run, job, evaluation } = state;
  byId("evaluate").disabled = job !== null || !run || !runIsCurrent() || state.settings?.task === "novelty";
  fill(byId("evaluate"), job?.kind === "evaluate" ? "Evaluating …" : "Evaluate");
  if (!evaluation && run?.evaluated && run.kept !== false) {
    const found = await get(`sessions/${state.session}/runs/${run.run}/evaluation`).catch(() => null);
    if (found && state.run?.run === run.run) set({ evaluation: found });
    return;
  }
  if (drawn === evaluation) return;
  drawn = evaluation;
  if (!evaluation) {
    fill(byId("figures"));
    return;
  }
  byId("how").textContent = `Left out: ${evaluation.how}. Training figures flatter every model; expect those of left-out rows on new data.`;
  const sets = evaluation.sets;
  fill(byId("figures"), quality(sets), sets.some((/** @type {any} */ s) => s.confusion) && confusions(sets, evaluation.labels));
  curves(sets, evaluation.positive);
  calibration(sets);
  residuals(sets);
}

/** @param {string} title @param {...any} content */
function section(title, ...content) {
  const node = h("section", null, h("div", { class: "head" }, h("h2", null, title)), content);
  byId("figures").append(node);
  return node;
}

/** Metrics side by side. @param {any[]} sets */
function quality(sets) {
  const of = (/** @type {any} */ s) => rows(s.quality);
  const names = [...new Set(sets.flatMap((s) => of(s).map(([k]) => k)))];
  const value = (/** @type {any} */ s, /** @type {string} */ name) => of(s).find(([k]) => k === name)?.[1] ?? "–";
  return h("div", { class: "wide" }, h("table", { id: "quality" }, h("thead", null, h("tr", null, h("th", null, ""), sets.map((s) => h("th", { class: "n" }, s.name)))), h("tbody", null, names.map((name) => h("tr", null, h("td", null, name.replaceAll("_", " ")), sets.map((s) => h("td", { class: "n" }, value(s, name))))))));
}

/**
 * Plain numbers of the quality; nested ones stand elsewhere.
 * @param {any} q
 * @returns {[string, string][]}
 */
function rows(q) {
  return Object.entries(q ?? {}).filter(([k, v]) => typeof v === "number" && k !== "positive" && k !== "n").map(([k, v]) => [k, number(/** @type {number} */ (v), 4)]);
}

/** @param {any[]} sets @param {string[]} labels */
function confusions(sets, labels) {
  return h("section", null, h("div", { class: "head" }, h("h2", null, "Confusion"), h("span", { class: "small dim" }, "true class down, predicted across")), h("div", { class: "confusions" }, sets.filter((s) => s.confusion).map((s) => {
    const most = Math.max(1, ...s.confusion.flat());
    return h("div", { class: "wide" }, h("table", { class: "confusion" }, h("caption", { class: "small dim" }, s.name),
      h("thead", null, h("tr", null, h("th"), labels.map((l) => h("th", { class: "n" }, l)), h("th", { class: "n" }, "recall"))),
      h("tbody", null, s.confusion.map((/** @type {number[]} */ line, /** @type {number} */ at) => {
        const total = line.reduce((a, b) => a + b, 0);
        return h("tr", null, h("th", null, labels[at]), line.map((v, k) => shaded(v / most, k === at, count(v))), h("td", { class: "n dim" }, total ? percent(line[at] / total) : "–"));
      }))));
  })));
}

/** @param {number} share @param {boolean} right @param {string} text */
function shaded(share, right, text) {
  const cell = h("td", { class: "n" }, text);
  cell.style.background = `color-mix(in srgb, var(--class-${right ? 0 : 1}) ${Math.round(40 * share)}%, transparent)`;
  return cell;
}

/** ROC and precision–recall. @param {any[]} sets @param {string} positive */
function curves(sets, positive) {
  for (const [key, title, x, y] of [["roc", "ROC", "false positive rate", "true positive rate"], ["pr", "Precision and recall", "recall", "precision"]]) {
    const known = sets.filter((s) => s[key]?.length);
    if (!known.length) continue;
    const t = theme();
    const box = h("div", { class: "chart" });
    section(`${title} of class ${positive}`, keys(known.map((s, at) => ({ name: key === "roc" && s.roc_auc !== null && s.roc_auc !== undefined ? `${s.name}: area ${number(s.roc_auc)}` : s.name, colour: t.classes[at], dash: at ? "dash" : undefined }))), box);
    const chart = new Chart(box, { height: 300, square: true, x, y, rangeX: [0, 1], rangeY: [0, 1.01], lines: known.map((s, at) => ({ name: s.name, colour: (c) => c.classes[at], dash: at ? [5, 3] : undefined, kind: key === "roc" ? "line" : "line" })) });
    chart.set(table(known.map((s) => s[key])));
  }
}

/**
 * Several curves on one axis: every chart has one list of x.
 * @param {[number, number][][]} lines
 * @returns {(number | null)[][]}
 */
function table(lines) {
  const all = lines.flatMap((line, of) => line.map(([x, y]) => ({ x, y, of }))).sort((a, b) => a.x - b.x);
  return [all.map((p) => p.x), ...lines.map((_, of) => all.map((p) => (p.of === of ? p.y : null)))];
}

/** @param {any[]} sets */
function calibration(sets) {
  const known = sets.filter((s) => s.calibration?.bins?.length);
  if (!known.length) return;
  const t = theme();
  const box = h("div", { class: "chart" });
  section("Calibration", keys(known.map((s, at) => ({ name: `${s.name}: off by ${number(s.calibration.error, 3)}`, colour: t.classes[at], dash: at ? "dash" : undefined }))), box);
  const chart = new Chart(box, { height: 280, square: true, x: "predicted probability", y: "observed share", rangeX: [0, 1], rangeY: [0, 1.01], lines: known.map((_, at) => ({ name: "", colour: (c) => c.classes[at], dash: at ? [5, 3] : undefined })), over: diagonal });
  const bins = (/** @type {any} */ s) => s.calibration.bins.filter((/** @type {any} */ b) => b.rows > 0).map((/** @type {any} */ b) => [b.mean, b.observed]);
  chart.set(table(known.map(bins)));
}

/** @param {any[]} sets */
function residuals(sets) {
  const known = sets.filter((s) => s.residuals);
  if (!known.length) return;
  const s = known[0];
  const box = h("div", { class: "chart" });
  section(`Predicted and observed, ${s.name}`, box);
  const pairs = s.residuals.predicted.map((/** @type {number} */ p, /** @type {number} */ k) => [p, s.residuals.target[k]]).sort((/** @type {number[]} */ a, /** @type {number[]} */ b) => a[0] - b[0]);
  const all = pairs.flat();
  const range = /** @type {[number, number]} */ ([Math.min(...all), Math.max(...all)]);
  const chart = new Chart(box, { height: 320, square: true, x: "predicted", y: "observed", rangeX: range, rangeY: range, lines: [{ name: "rows", colour: (c) => c.classes[0], kind: "dots" }], over: diagonal });
  chart.set([pairs.map((/** @type {number[]} */ p) => p[0]), pairs.map((/** @type {number[]} */ p) => p[1])]);
}

/** What a perfect model would draw. */
function diagonal(/** @type {any} */ u, /** @type {import("./theme.js").Theme} */ t) {
  const c = u.ctx;
  const low = Math.max(u.scales.x.min, u.scales.y.min);
  const high = Math.min(u.scales.x.max, u.scales.y.max);
  c.save();
  c.strokeStyle = t.dim;
  c.setLineDash([4, 4]);
  c.beginPath();
  c.moveTo(u.valToPos(low, "x", true), u.valToPos(low, "y", true));
  c.lineTo(u.valToPos(high, "x", true), u.valToPos(high, "y", true));
  c.stroke();
  c.restore();
}
