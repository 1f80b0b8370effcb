// What is trained: kernel, loss, cost and the rest. Every change trains again, from the model before.

import { byId, fill, h, select } from "./dom.js";
import { number, plain } from "./format.js";
import { changeSettings } from "./session.js";
import { on, set, state } from "./store.js";

/** Ends of the sliders, as powers of ten; a typed number may lie outside. */
const SPAN = { C: [-3, 5], gamma: [-4, 3], epsilon: [-3, 2], lambda: [-8, 3] };

export function startControls() {
  on(["settings", "data", "hello", "follow"], () => {
    // A slider that is being held must not be replaced under the finger.
    if (!holding) build();
  });
  on(["run"], showResolved);
  addEventListener("pointerup", () => release());
  addEventListener("keyup", () => release());
}

let holding = false;
function release() {
  if (!holding) return;
  holding = false;
}

/** The focused control keeps the focus when the list is made again. */
function build() {
  const { settings: s, data, hello } = state;
  if (!s || !data || !hello) return;
  const box = byId("controls");
  const focused = box.contains(document.activeElement) ? document.activeElement?.id : null;
  const opened = box.querySelector("details")?.open ?? false;
  fill(box, problem(s, hello), kernel(s, hello), cost(s), weights(s, data), more(s, hello, data, opened));
  if (focused) document.getElementById(focused)?.focus();
  showResolved();
}

/**
 * @param {string} label
 * @param {HTMLElement} control
 * @param {...any} rest
 */
function field(label, control, ...rest) {
  return h("div", { class: "field" }, h("label", { htmlFor: control.id }, label), control, rest);
}

/** @param {any} s @param {any} hello */
function problem(s, hello) {
  const regress = s.task === "regress";
  const losses = hello.losses.filter((/** @type {any} */ l) => (regress ? l.regression : l.classification));
  const current = typeof s.loss === "string" ? s.loss.split(":")[0] : s.loss?.expression ? "own" : regress ? "epsilon" : "hinge";
  const options = losses.map((/** @type {any} */ l) => ({ value: l.name, name: l.convex ? l.name : `${l.name} (not convex)`, title: l.about }));
  if (current === "own") options.push({ value: "own", name: "own expression" });
  const tasks = [...new Set([state.data.task, ...(state.data.task === "regress" ? [] : ["classify"]), "novelty"])].filter((t) => t !== "classify" || state.data.task === "classify" || state.data.classes?.length > 1);
  return h("fieldset", null, h("legend", null, "Problem"),
    field("Task", select({ label: "Task", id: "task", value: s.task, options: tasks.map((t) => ({ value: t, name: t })), onchange: (task) => changeSettings({ task, loss: null, nu: null }) })),
    s.task !== "novelty" && field("Loss", select({ label: "Loss", id: "loss", value: current ?? "", options, onchange: (name) => {
      const spec = losses.find((/** @type {any} */ l) => l.name === name)?.spec;
      changeSettings({ loss: withEpsilon(spec, s), nu: null });
    } })),
    field("Scaling", select({ label: "Scaling", id: "scale", value: s.scale, options: [{ value: "none", name: "none" }, { value: "minmax", name: "to [−1, 1]" }, { value: "standard", name: "standard" }], onchange: (scale) => changeSettings({ scale }) })),
  );
}

/** The ε of the slider belongs to the loss.
 * @param {string} spec @param {any} s */
function withEpsilon(spec, s) {
  return /^(squared-)?epsilon/.test(spec ?? "") && s.epsilon !== null && s.epsilon !== undefined ? spec.replace(/epsilon=[^,]*/, `epsilon=${s.epsilon}`) : spec;
}

/** @param {any} s @param {any} hello */
function kernel(s, hello) {
  const of = hello.kernels.find((/** @type {any} */ k) => k.name === s.kernel.name);
  const change = (/** @type {any} */ patch) => changeSettings({ kernel: { ...state.settings.kernel, ...patch } });
  const has = (/** @type {string} */ key) => of?.parameters.includes(key);
  const rule = typeof s.kernel.gamma === "string" ? s.kernel.gamma : "number";
  return h("fieldset", null, h("legend", null, "Kernel"),
    field("Kernel", select({ label: "Kernel", id: "kernel", value: s.kernel.name, options: hello.kernels.filter((/** @type {any} */ k) => k.name !== "precomputed").map((/** @type {any} */ k) => ({ value: k.name, name: k.name, title: k.formula })), onchange: (name) => change({ name }) })),
    of?.formula && h("p", { class: "small dim" }, of.formula),
    has("gamma") && field("γ by", select({ label: "Rule for γ", id: "gamma-rule", value: rule, options: ["scale", "auto", "median", "number"].map((v) => ({ value: v, name: v })), onchange: (v) => change({ gamma: v === "number" ? resolvedGamma() : v }) })),
    has("gamma") && slider("gamma", "γ", rule === "number" ? s.kernel.gamma : resolvedGamma(), (v) => change({ gamma: v })),
    has("degree") && field("Degree", numberInput("degree", s.kernel.degree, (v) => change({ degree: v }), { min: 1, step: 1 })),
    has("coef0") && field("Constant", numberInput("coef0", s.kernel.coef0, (v) => change({ coef0: v }), { step: "any" })),
  );
}

/** @param {any} s */
function cost(s) {
  const parts = [];
  const classify = s.task === "classify";
  const nuPossible = (classify && usual(s, "hinge")) || (s.task === "regress" && usual(s, "epsilon"));
  const nu = s.nu !== null && s.nu !== undefined;
  if (s.task === "novelty") parts.push(nuSlider(s.nu ?? 0.5));
  else {
    if (!(nu && classify)) parts.push(slider("C", "C", s.lambda ? 1 / s.lambda : s.C, (v) => changeSettings({ C: v, lambda: null })));
    if (nuPossible) parts.push(h("div", { class: "field" }, h("label", { htmlFor: "use-nu" }, classify ? "ν in place of C" : "ν in place of ε"), h("input", { type: "checkbox", id: "use-nu", checked: nu, onchange: (/** @type {any} */ e) => changeSettings({ nu: e.target.checked ? (classify ? 0.3 : 0.5) : null }) })));
    if (nu) parts.push(nuSlider(s.nu));
    if (s.task === "regress" && !nu && /epsilon/.test(lossName(s))) parts.push(slider("epsilon", "ε", epsilonOf(s), (v) => changeSettings({ epsilon: v, loss: withEpsilon(typeof s.loss === "string" ? s.loss : "epsilon:epsilon=0.1", { epsilon: v }) })));
  }
  return h("fieldset", { class: "cost" }, h("legend", null, "Cost"), parts);
}

/** @param {any} s */
function lossName(s) {
  return typeof s.loss === "string" ? s.loss : s.loss?.expression ? "own" : s.task === "regress" ? "epsilon" : "hinge";
}
/** @param {any} s @param {string} name */
function usual(s, name) {
  return lossName(s).split(":")[0] === name;
}
/** @param {any} s */
function epsilonOf(s) {
  const found = /epsilon=([^,]+)/.exec(lossName(s));
  return found ? Number(found[1]) : s.epsilon ?? 0.1;
}

/** @param {number} value */
function nuSlider(value) {
  const change = (/** @type {number} */ v) => changeSettings({ nu: Math.min(Math.max(v, 0.001), 1) });
  const input = numberInput("nu", value, change, { min: 0.001, max: 1, step: "any" });
  const range = h("input", { type: "range", id: "nu-slider", class: "whole", "aria-label": "ν", min: 0.01, max: 1, step: 0.01, value, oninput: () => {
    holding = true;
    input.value = range.value;
    change(Number(range.value));
  } });
  return field("ν", input, range);
}

/**
 * A logarithmic slider with a field for the exact number.
 * @param {"C" | "gamma" | "epsilon" | "lambda"} id
 * @param {string} label
 * @param {number} value
 * @param {(value: number) => void} change
 */
function slider(id, label, value, change) {
  const [low, high] = SPAN[id];
  const input = numberInput(id, value, change, { min: 0, step: "any" });
  const at = Math.log10(value > 0 ? value : 10 ** low);
  const range = h("input", { type: "range", id: `${id}-slider`, class: "whole", "aria-label": label, "aria-valuetext": plain(value), min: low, max: high, step: 0.02, value: at, oninput: () => {
    holding = true;
    const v = Number((10 ** Number(range.value)).toPrecision(3));
    input.value = plain(v);
    range.setAttribute("aria-valuetext", plain(v));
    change(v);
  } });
  return field(label, input, range, h("div", { class: "marks", "aria-hidden": "true" }, h("span", null, number(10 ** low, 1)), h("span", null, number(10 ** high, 1))));
}

/**
 * @param {string} id
 * @param {number | null | undefined} value
 * @param {(value: number) => void} change
 * @param {any} [limits]
 */
function numberInput(id, value, change, limits = {}) {
  const input = h("input", { id, class: "number", inputMode: "decimal", value: value === null || value === undefined ? "" : plain(value, 6), onchange: () => {
    const v = readNumber(input.value);
    const bad = v === null || (limits.min !== undefined && v < limits.min) || (limits.max !== undefined && v > limits.max);
    input.setAttribute("aria-invalid", String(bad));
    if (!bad) change(v);
  } });
  return input;
}

/**
 * 0.1, 1e-3 and 2^-5 are numbers here as on the command line.
 * @param {string} text
 * @returns {number | null}
 */
export function readNumber(text) {
  const [base, power] = text.trim().replaceAll("−", "-").split("^");
  const value = power === undefined ? Number(base) : Number(base) ** Number(power);
  return text.trim() === "" || !Number.isFinite(value) ? null : value;
}

/** @param {any} s @param {any} data */
function weights(s, data) {
  if (s.task !== "classify" || !data.classes) return null;
  const kind = s.class_weight === null || s.class_weight === undefined ? "none" : typeof s.class_weight === "string" ? "balanced" : "own";
  const own = () => Object.fromEntries(data.classes.map((/** @type {any} */ c) => [c.label, 1]));
  const parts = kind !== "own" ? [] : data.classes.slice(0, 12).map((/** @type {any} */ c, /** @type {number} */ at) => field(c.label, numberInput(`weight-${at}`, s.class_weight[c.label] ?? 1, (v) => changeSettings({ class_weight: { ...s.class_weight, [c.label]: v } }), { min: 0 })));
  return h("fieldset", null, h("legend", null, "Class weights"),
    field("Weights", select({ label: "Class weights", id: "class-weights", value: kind, options: [{ value: "none", name: "none" }, { value: "balanced", name: "balanced" }, { value: "own", name: "own" }], onchange: (v) => changeSettings({ class_weight: v === "none" ? null : v === "balanced" ? "balanced" : own() }) })),
    parts);
}

/** @param {any} s @param {any} hello @param {any} data @param {boolean} opened */
function more(s, hello, data, opened) {
  const choice = (/** @type {string} */ id, /** @type {string} */ label, /** @type {string[]} */ options, /** @type {string} */ value, /** @type {(v: string) => void} */ onchange) =>
    field(label, select({ label, id, value, options: options.map((v) => ({ value: v, name: v })), onchange }));
  const flag = (/** @type {string} */ id, /** @type {string} */ label, /** @type {boolean} */ value, /** @type {(v: boolean) => void} */ onchange) =>
    h("div", { class: "field" }, h("label", { htmlFor: id }, label), h("input", { type: "checkbox", id, checked: value, onchange: (/** @type {any} */ e) => onchange(e.target.checked) }));
  const optional = (/** @type {string} */ id, /** @type {string} */ label, /** @type {string} */ key) =>
    field(label, h("input", { id, class: "number", placeholder: "none", value: s[key] ?? "", onchange: (/** @type {any} */ e) => changeSettings({ [key]: readNumber(e.target.value) }) }));
  const several = data.classes?.length > 2;
  return h("details", { open: opened }, h("summary", null, "More"),
    choice("solver", "Solver", hello.solvers, s.solver, (solver) => changeSettings({ solver })),
    several && s.task === "classify" && choice("multiclass", "Several classes", ["usual", "ovo", "ovr", "crammer-singer"], s.multiclass ?? "usual", (v) => changeSettings({ multiclass: v === "usual" ? null : v })),
    s.task === "novelty" && flag("svdd", "SVDD", s.svdd, (svdd) => changeSettings({ svdd })),
    s.task !== "novelty" && flag("bias", "Bias", s.bias, (bias) => changeSettings({ bias })),
    optional("tol", "Tolerance (KKT)", "tol"), optional("gap", "Relative gap", "gap"), optional("max-seconds", "Seconds at most", "max_seconds"),
    flag("follow", "Train at every change", state.follow, (follow) => set({ follow })),
  );
}

function resolvedGamma() {
  return state.run?.summary?.kernel?.gamma ?? (typeof state.settings?.kernel.gamma === "number" ? state.settings.kernel.gamma : 1 / Math.max(state.data?.d ?? 1, 1));
}

/** γ by a rule is known after a training. */
function showResolved() {
  const gamma = state.settings?.kernel.gamma;
  const input = /** @type {HTMLInputElement | null} */ (document.getElementById("gamma"));
  const range = /** @type {HTMLInputElement | null} */ (document.getElementById("gamma-slider"));
  if (!input || !range || typeof gamma !== "string") return;
  const value = resolvedGamma();
  input.value = plain(value, 4);
  range.value = String(Math.log10(value));
}
