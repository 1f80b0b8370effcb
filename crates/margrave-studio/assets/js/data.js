// Where data come from: examples, a file, a path below the opened folder, or paint.

import { arrays, get } from "./api.js";
import { byId, fill, h, select } from "./dom.js";
import { bytes, count } from "./format.js";
import { tell } from "./message.js";
import { withoutViews } from "./refresh.js";
import { begin, load, loadFile } from "./session.js";
import { set, state } from "./store.js";

/** @type {any} */
let dialog;
/** How a file is read. @type {{task: string, target: string, missing: string}} */
const options = { task: "", target: "", missing: "" };

export function startData() {
  dialog = byId("data-dialog");
  byId("data-button").addEventListener("click", openData);
  dialog.addEventListener("click", (/** @type {Event} */ e) => {
    if (e.target === dialog) dialog.close();
  });
  addEventListener("dragover", (event) => {
    event.preventDefault();
    document.body.classList.add("over");
  });
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) document.body.classList.remove("over");
  });
  addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("over");
    const file = event.dataTransfer?.files[0];
    if (file) take(() => loadFile(file, given()));
  });
}

/** The options that were chosen. */
function given() {
  return Object.fromEntries(Object.entries(options).filter(([, v]) => v !== ""));
}

/**
 * Reads data and begins with them.
 * @param {() => Promise<void>} read
 */
export async function take(read) {
  dialog.close();
  try {
    await withoutViews(async () => {
      await read();
      freshStart();
      await tellingAxes();
    });
    await begin();
  } catch (error) {
    tell(error);
  }
}

/** Another data set: nothing of the old one is chosen, and its settings are the usual ones. */
export function freshStart() {
  const data = state.data;
  const simple = data.editable && (data.d <= 2 || Boolean(data.source?.painted));
  set({
    edits: [],
    selected: null,
    row: null,
    range: null,
    station: null,
    settings: usualSettings(data),
    tool: simple ? "edit" : "select",
    label: data.task === "regress" ? Number(data.target?.mean?.toPrecision(3) ?? 0) : Math.min(1, Math.max(0, (data.classes?.length ?? 1) - 1)),
    plane: { axes: data.d === 1 ? "curve" : "features", x: 0, y: Math.min(1, data.d - 1), held: "mean", output: 0, window: data.n === 0 ? [0, 1, 0, 1] : null },
  });
}

/** With more features looking at all of them would take too long. */
const LOOKED_AT = 40;
/** Rows that are looked at. */
const ROWS = 400;
/** Features with fewer values than this draw lines of samples, not clouds. */
const VALUES = 8;

/** Chooses as axes the two features that tell most of the target, each taken alone. */
export async function tellingAxes() {
  const { data, session } = state;
  if (!data || data.d < 3 || data.d > LOOKED_AT || data.n < 3) return;
  const pairs = Array.from({ length: Math.ceil(data.d / 2) }, (_, k) => [2 * k, Math.min(2 * k + 1, data.d - 1)]);
  let pictures;
  try {
    pictures = await Promise.all(pairs.map(([x, y]) => arrays(`sessions/${session}/plane?grid=0&points=${ROWS}&x=${x}&y=${y}`)));
  } catch {
    // The first two will do.
    return;
  }
  const told = pairs.flatMap(([x, y], k) => [{ at: x, tells: tells(pictures[k].arrays.px, pictures[k].arrays) }, { at: y, tells: tells(pictures[k].arrays.py, pictures[k].arrays) }]);
  const best = told.filter((f, k) => told.findIndex((g) => g.at === f.at) === k).sort((a, b) => b.tells - a.tells);
  if (state.data === data && best.length > 1) set({ plane: { ...state.plane, x: best[0].at, y: best[1].at } });
}

/**
 * The share of the variance of a feature that lies between classes, or that goes with the target.
 * @param {Float32Array} values
 * @param {{class: Uint8Array, target: Float32Array}} of
 */
function tells(values, of) {
  const n = values.length;
  const mean = values.reduce((a, b) => a + b, 0) / n;
  const variance = values.reduce((a, b) => a + (b - mean) ** 2, 0);
  if (!(variance > 0)) return -1;
  let share = 0;
  if (of.class[0] === 255) {
    const middle = of.target.reduce((a, b) => a + b, 0) / n;
    const both = values.reduce((a, v, k) => a + (v - mean) * (of.target[k] - middle), 0);
    share = both ** 2 / (variance * of.target.reduce((a, b) => a + (b - middle) ** 2, 0));
  } else {
    const sums = new Map();
    values.forEach((v, k) => {
      const [count, sum] = sums.get(of.class[k]) ?? [0, 0];
      sums.set(of.class[k], [count + 1, sum + v]);
    });
    for (const [count, sum] of sums.values()) share += (count * (sum / count - mean) ** 2) / variance;
  }
  return new Set(values).size < VALUES ? share - 1 : share;
}

/** Features whose ranges differ by more than this factor are standardised unless somebody chooses otherwise. */
const UNEVEN = 20;

/** @param {any} data */
function usualScaling(data) {
  const spans = (data.ranges ?? []).map((/** @type {number[]} */ r) => r[1] - r[0]).filter((/** @type {number} */ v) => v > 0);
  return !data.sparse && spans.length > 1 && Math.max(...spans) > UNEVEN * Math.min(...spans) ? "standard" : "none";
}

/** @param {any} data */
export function usualSettings(data) {
  const before = state.settings;
  const same = before?.task === data.task;
  return {
    task: data.task,
    kernel: { name: same ? before.kernel.name : "rbf", gamma: "scale", degree: 3, coef0: 0 },
    loss: null, C: 1, lambda: null, epsilon: 0.1, nu: null, class_weight: null, scale: usualScaling(data), solver: "auto", multiclass: null,
    bias: true, svdd: false, probability: false, anneal: 0, tol: null, gap: null, max_seconds: null, max_iter: null, seed: 0,
  };
}

function openData() {
  const { hello } = state;
  const file = h("input", { type: "file", id: "file", class: "unseen", tabIndex: -1, onchange: () => {
    const chosen = file.files?.[0];
    if (chosen) take(() => loadFile(chosen, given()));
  } });
  fill(dialog, h("h2", { id: "data-title" }, "Data"),
    h("section", null, h("h3", null, "Examples"), h("div", { class: "examples" }, hello.examples.map((/** @type {any} */ e) => h("button", { data: { example: e.id }, title: e.about, onclick: () => take(() => load({ example: e.id })) }, e.title, h("small", null, `${e.task}, ${count(e.n)} × ${e.d}`))))),
    h("section", null, h("h3", null, "Your own"), readOptions(),
      h("div", { class: "drop" }, h("p", null, "Drop a file anywhere on this page, or"), h("button", { id: "choose-file", onclick: () => file.click() }, "Choose a file …"), file, h("p", { class: "small" }, `LIBSVM text, CSV, NPY, NPZ or MNIST idx, also .gz; at most ${hello.limits.upload_bytes >> 20} MiB. It goes to the program on this computer and nowhere else.`))),
    h("section", null, h("h3", null, "Paint"), h("div", { class: "group" }, h("button", { id: "paint-classes", onclick: () => take(() => load({ painted: { task: "classify", points: [] } })) }, "Empty plane, two classes"), h("button", { id: "paint-numbers", onclick: () => take(() => load({ painted: { task: "regress", points: [] } })) }, "Empty plane, numbers"))),
    hello.folder?.open && h("section", null, h("h3", null, `Folder ${hello.folder.name}`), h("div", { class: "files", id: "files" })),
    h("div", { class: "actions" }, h("button", { onclick: () => dialog.close() }, "Close")));
  dialog.showModal();
  if (hello.folder?.open) browse("");
}

function readOptions() {
  const field = (/** @type {string} */ label, /** @type {any} */ control) => h("div", { class: "field" }, h("label", { htmlFor: control.id }, label), control);
  return h("details", null, h("summary", { class: "dim" }, "How it is read"),
    field("Task", select({ label: "Task", id: "read-task", value: options.task, options: [{ value: "", name: "by the target" }, ...["classify", "regress", "novelty"].map((v) => ({ value: v, name: v }))], onchange: (v) => {
      options.task = v;
    } })),
    field("Target column", h("input", { id: "read-target", placeholder: "last", value: options.target, onchange: (/** @type {any} */ e) => {
      options.target = e.target.value.trim();
    } })),
    field("Missing values", select({ label: "Missing values", id: "read-missing", value: options.missing, options: [{ value: "", name: "refuse" }, ...["mean", "median", "indicator", "row"].map((v) => ({ value: v, name: v }))], onchange: (v) => {
      options.missing = v;
    } })));
}

/** @param {string} path */
async function browse(path) {
  const box = byId("files");
  try {
    const found = await get(`files?path=${encodeURIComponent(path)}`);
    const up = path.includes("/") ? path.slice(0, path.lastIndexOf("/")) : "";
    const join = (/** @type {string} */ name) => (path ? `${path}/${name}` : name);
    fill(box, path && h("button", { onclick: () => browse(up) }, "↑ up"),
      found.entries.map((/** @type {any} */ e) => h("button", { data: { file: e.name }, onclick: () => (e.kind === "folder" ? browse(join(e.name)) : take(() => load({ path: join(e.name) }, given()))) }, h("span", null, e.kind === "folder" ? `${e.name}/` : e.name), h("span", { class: "dim" }, e.kind === "folder" ? "" : bytes(e.bytes)))),
      !found.entries.length && h("p", { class: "small dim" }, "Nothing here."), found.truncated && h("p", { class: "small dim" }, "Only the first entries."));
  } catch (error) {
    fill(box, h("p", { class: "bad small" }, /** @type {Error} */ (error).message));
  }
}
