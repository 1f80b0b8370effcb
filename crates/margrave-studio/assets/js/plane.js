// The plane: choice of axes, tools, the canvas and what the pointer and the keyboard do on it.

import { byId, fill, h, perFrame, select } from "./dom.js";
import { edit, whyNot } from "./edit.js";
import { number, percent } from "./format.js";
import { markPicture, rampPicture } from "./marks.js";
import { tell } from "./message.js";
import { drawPlane, frame, fromPixel, toX, toY } from "./plane-draw.js";
import { refreshPlane } from "./refresh.js";
import { choose } from "./session.js";
import { on, set, state } from "./store.js";
import { onTheme, ramp, theme } from "./theme.js";

/** @type {HTMLCanvasElement} */
let canvas;
/** @type {import("./plane-draw.js").Frame | null} */
let f = null;
/** @type {number | null} */
let hovered = null;
/** @type {Map<number, [number, number]>} */
const moved = new Map();
/** What the pointer is doing. @type {{row: number | null, from: [number, number], moved: boolean, last: [number, number]} | null} */
let drag = null;

const TOOLS = [
  { id: "edit", name: "Edit", title: "Click adds a sample, dragging moves one" },
  { id: "paint", name: "Paint", title: "Dragging adds samples of the chosen class" },
  { id: "erase", name: "Erase", title: "Click or drag deletes samples" },
  { id: "select", name: "Select", title: "Click chooses a sample, dragging shifts the picture (Ctrl and the wheel, + and − zoom); nothing is changed" },
];

export function startPlane() {
  canvas = byId("plane-canvas");
  canvas.addEventListener("pointerdown", onDown);
  canvas.addEventListener("pointermove", onMove);
  canvas.addEventListener("pointerup", onUp);
  canvas.addEventListener("pointercancel", onUp);
  canvas.addEventListener("pointerleave", () => hover(null));
  canvas.addEventListener("keydown", onKey);
  canvas.addEventListener("wheel", onWheel, { passive: false });
  new ResizeObserver(draw).observe(byId("plane-box"));
  onTheme(() => {
    draw();
    legendFor = "";
    legend();
  });
  on(["picture", "selected", "range"], draw);
  on(["data", "plane", "hello", "selected", "tool"], head);
  on(["data", "label", "plane", "picture"], legend);
}

const draw = perFrame(() => {
  const picture = state.picture;
  const width = byId("plane-box").clientWidth;
  if (!picture || !width) return;
  const height = Math.round(Math.min(width * 0.86, Math.max(300, window.innerHeight - 250)));
  canvas.style.height = `${height}px`;
  f = frame(width, height, picture.window);
  const names = axisNames(picture);
  drawPlane(canvas, picture, f, theme(), { selected: state.selected, hovered, moved, chosen: inRange(picture), names, size: state.plane.size ?? "equal" });
  canvas.setAttribute("aria-label", describe(picture, names));
});

/**
 * @param {any} p
 * @returns {string[]}
 */
function axisNames(p) {
  if (p.axes === "kpca") return ["first kernel principal component", "second"];
  return [p.x?.name ?? "", p.axes === "curve" ? "target" : p.y?.name ?? ""];
}

/**
 * What the picture shows, in words.
 * @param {any} p
 * @param {string[]} names
 */
function describe(p, names) {
  const vectors = p.arrays.kind.reduce((/** @type {number} */ sum, /** @type {number} */ k) => sum + (k ? 1 : 0), 0);
  return `${p.shown} of ${p.n} samples over ${names[0]} and ${names[1]}, ${vectors} of them support vectors. N and P choose samples, arrow keys move the chosen one, A adds one, Delete removes it.`;
}

/**
 * Samples whose margin or residual lies in the chosen part of the histogram.
 * @param {any} p
 */
function inRange(p) {
  const range = state.range;
  const { score, target } = p.arrays;
  const kind = state.margins?.kind;
  if (!range || !score) return null;
  const of = p.arrays.class;
  const two = state.data?.classes?.length === 2;
  if (kind === "margin" && !two) return null;
  const value = (/** @type {number} */ k) => (kind === "margin" ? (of[k] === 1 ? score[k] : -score[k]) : kind === "residual" ? target[k] - score[k] : score[k]);
  return (/** @type {number} */ k) => value(k) >= range[0] && value(k) <= range[1];
}

let headFor = "";
let legendFor = "";

/** Axes and tools. */
function head() {
  const { data, plane } = state;
  if (!data) return;
  // Made again only if something in it has changed: a list that is open, or a button that is pressed, stays.
  const now = JSON.stringify([plane, data.name, data.d, data.task, data.editable, state.selected, state.tool]);
  if (now === headFor) return;
  headFor = now;
  const features = data.features.map((/** @type {string} */ name, /** @type {number} */ at) => ({ value: String(at), name }));
  const regress = data.task === "regress";
  const views = [
    ...(data.d > 1 ? [{ value: "features", name: "features" }] : []),
    ...(regress ? [{ value: "curve", name: "feature, target" }] : []),
    { value: "kpca", name: "kernel PCA" },
  ];
  const change = (/** @type {any} */ patch) => {
    set({ plane: { ...state.plane, window: null, ...patch } });
    refreshPlane();
  };
  const held = plane.held.startsWith("row:") ? plane.held : "mean";
  fill(
    byId("plane-head"),
    h("div", { class: "group" }, select({ label: "Axes", id: "axes", value: plane.axes, options: views, onchange: (axes) => change({ axes }) }),
      plane.axes !== "kpca" && data.d > 1 && select({ label: "Horizontal feature", id: "axis-x", value: String(plane.x), options: features, onchange: (x) => change({ x: Number(x) }) }),
      plane.axes === "features" && select({ label: "Vertical feature", id: "axis-y", value: String(plane.y), options: features, onchange: (y) => change({ y: Number(y) }) }),
      plane.axes !== "kpca" && data.d > (plane.axes === "curve" ? 1 : 2) && select({
        label: "Other features",
        id: "held",
        value: held,
        options: [
          { value: "mean", name: "others: mean" },
          ...(held === "mean" ? [] : [{ value: held, name: `others: row ${Number(held.slice(4)) + 1}` }]),
          ...(state.selected !== null && held !== `row:${state.selected}` ? [{ value: `row:${state.selected}`, name: `others: row ${state.selected + 1}` }] : []),
        ],
        onchange: (to) => change({ held: to }),
      })),
    h("div", { class: "group", role: "toolbar", id: "tools", "aria-label": "Tools" },
      TOOLS.map((tool) => h("button", { id: `tool-${tool.id}`, title: tool.title, "aria-pressed": String(state.tool === tool.id), disabled: tool.id !== "select" && whyNot() !== null, onclick: () => set({ tool: tool.id }) }, tool.name)),
      plane.window && h("button", { id: "whole", title: "Show all samples (key 0)", onclick: () => change({}) }, "Whole")),
  );
}

/** Classes to choose from, and what the rings mean. */
function legend() {
  const { data } = state;
  if (!data) return;
  const grid = Boolean(state.picture?.arrays.beta);
  const p = state.picture;
  const numbersShown = grid && p.axes === "features" && !p.levels.length && !p.arrays.label;
  const now = JSON.stringify([data.classes, data.task, data.editable, state.label, state.plane, grid, Boolean(p?.arrays.weight), numbersShown && p.range, p?.explained]);
  if (now === legendFor) return;
  legendFor = now;
  const t = theme();
  const items = [];
  const classes = data.classes ?? (data.task === "classify" ? [] : null);
  if (classes) {
    classes.forEach((/** @type {any} */ of, /** @type {number} */ at) => {
      if (at >= 8) return;
      items.push(h("button", { class: "label-choice", disabled: !data.editable, "aria-pressed": String(state.label === at), title: `Added samples are of class ${of.label} (key ${at + 1})`, onclick: () => set({ label: at }) }, markPicture(at, 0, t), of.label, h("span", { class: "dim" }, String(of.count))));
    });
    const next = classes.length;
    if (data.editable && data.task === "classify" && next < 8) items.push(h("button", { class: "label-choice", id: "new-class", "aria-pressed": String(state.label === next), title: "Added samples are of a class of their own", onclick: () => set({ label: next }) }, next === 0 ? "first class" : "+ class"));
  } else if (data.task === "regress" && data.editable && state.plane.axes === "features") {
    items.push(h("label", null, "Target of added samples ", h("input", { class: "number", value: String(state.label), onchange: (/** @type {any} */ e) => set({ label: Number(e.target.value) || 0 }) })));
  }
  if (numbersShown) items.push(h("span", { class: "dim" }, number(p.range[0], 3), rampPicture(ramp), number(p.range[1], 3)));
  if (grid) {
    const sizes = [{ value: "equal", name: "equal marks" }, { value: "beta", name: "size: |β|" }, ...(state.picture?.arrays.weight ? [{ value: "weight", name: "size: IRWLS weight" }] : [])];
    items.push(select({ label: "Size of marks", id: "mark-size", value: sizes.some((v) => v.value === state.plane.size) ? /** @type {string} */ (state.plane.size) : "equal", options: sizes, onchange: (v) => {
      set({ plane: { ...state.plane, size: /** @type {any} */ (v) } });
      draw();
    } }));
  }
  items.push(h("span", { class: "dim" }, markPicture(null, 1, t), "free support vector"), h("span", { class: "dim" }, markPicture(null, 2, t), "bounded"));
  if (p?.explained !== null && p?.explained !== undefined) items.push(h("span", { class: "dim" }, `shows ${percent(p.explained, 2)} of ‖f‖²`));
  fill(byId("legend"), items);
}

/**
 * The sample nearest to a place on the canvas, within reach.
 * @param {number} x
 * @param {number} y
 * @param {number} [reach]
 * @returns {number | null} its position among the shown ones
 */
function nearest(x, y, reach = 11) {
  if (!f || !state.picture) return null;
  const { px, py } = state.picture.arrays;
  let best = null;
  let least = reach * reach;
  for (let k = 0; k < px.length; k += 1) {
    const dx = toX(f, px[k]) - x;
    const dy = toY(f, py[k]) - y;
    const far = dx * dx + dy * dy;
    if (far < least) [best, least] = [k, far];
  }
  return best;
}

/** From the first edit on the window stays: the picture must not shift under the pointer. */
function keepWindow() {
  if (!state.plane.window) set({ plane: { ...state.plane, window: short(state.picture.window) } });
}

/** @param {number[]} window @returns {[number, number, number, number]} */
function short(window) {
  return /** @type {any} */ (window.map((v) => Number(v.toPrecision(6))));
}

/** @param {PointerEvent} event @returns {[number, number]} */
function place(event) {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

/**
 * Data coordinates, to a ten-thousandth of the window: short enough for a link.
 * @param {[number, number]} at
 * @returns {[number, number]}
 */
function coordinates(at) {
  if (!f) return at;
  const [x, y] = fromPixel(f, at[0], at[1]);
  return [rounded(x, f.window[1] - f.window[0]), rounded(y, f.window[3] - f.window[2])];
}

/** @param {number} value @param {number} span */
function rounded(value, span) {
  const digits = Math.min(12, Math.max(0, Math.ceil(4 - Math.log10(span || 1))));
  return Number(value.toFixed(digits));
}

/** @param {number} x @param {number} y */
function inside(x, y) {
  return f && x >= f.left && x <= f.right && y >= f.top && y <= f.bottom;
}

/** @param {PointerEvent} event */
function onDown(event) {
  if (event.button !== 0 || !f) return;
  const at = place(event);
  if (!inside(at[0], at[1])) return;
  const near = nearest(at[0], at[1], event.pointerType === "touch" ? 18 : 11);
  const row = near === null ? null : state.picture.arrays.row[near];
  canvas.setPointerCapture(event.pointerId);
  canvas.focus({ preventScroll: true });
  drag = { row, from: at, moved: false, last: at };
  const tool = whyNot() ? "select" : state.tool;
  if (tool === "paint" || tool === "erase") stroke(at, tool);
}

/** @param {PointerEvent} event */
function onMove(event) {
  const at = place(event);
  if (!drag) {
    const near = inside(at[0], at[1]) ? nearest(at[0], at[1]) : null;
    hover(near === null ? null : state.picture.arrays.row[near], at, near);
    return;
  }
  const tool = whyNot() ? "select" : state.tool;
  if (!drag.moved && Math.hypot(at[0] - drag.from[0], at[1] - drag.from[1]) < 4) return;
  if (!drag.moved) {
    drag.moved = true;
    hover(null);
  }
  if (tool === "select") {
    const [x, y] = fromPixel(/** @type {any} */ (f), drag.last[0], drag.last[1]);
    const [u, v] = fromPixel(/** @type {any} */ (f), at[0], at[1]);
    drag.last = at;
    const [x0, x1, y0, y1] = state.picture.window;
    show([x0 + x - u, x1 + x - u, y0 + y - v, y1 + y - v]);
  } else if (tool === "edit" && drag.row !== null) dragTo(drag.row, at);
  else if ((tool === "paint" || tool === "erase") && Math.hypot(at[0] - drag.last[0], at[1] - drag.last[1]) > (tool === "paint" ? 11 : 5)) {
    drag.last = at;
    stroke(at, tool);
  }
}

/**
 * Shows a part of the plane: at once with the old grid moved, then with a new one.
 * @param {[number, number, number, number]} window
 */
function show(window) {
  const next = short(window);
  if (!(next[1] > next[0] && next[3] > next[2])) return;
  set({ plane: { ...state.plane, window: next } });
  refreshPlane();
}

/**
 * @param {number} factor  Below 1: closer
 * @param {[number, number]} [at]  What stays where it is
 */
function zoom(factor, at) {
  const [x0, x1, y0, y1] = state.picture.window;
  const [x, y] = at ?? [(x0 + x1) / 2, (y0 + y1) / 2];
  show([x + (x0 - x) * factor, x + (x1 - x) * factor, y + (y0 - y) * factor, y + (y1 - y) * factor]);
}

/** @param {WheelEvent} event */
function onWheel(event) {
  if (!(event.ctrlKey || event.metaKey) || !f || !state.picture) return;
  event.preventDefault();
  zoom(event.deltaY > 0 ? 1.25 : 0.8, fromPixel(f, event.offsetX, event.offsetY));
}

/** @param {PointerEvent} event */
function onUp(event) {
  if (!drag) return;
  const { row, moved: was } = drag;
  const at = place(event);
  drag = null;
  const why = whyNot();
  const tool = why ? "select" : state.tool;
  if (tool === "paint" || tool === "erase") {
    return;
  }
  if (was && tool === "edit" && row !== null) {
    dragTo(row, at);
    choose(row);
    setTimeout(() => {
      moved.delete(row);
    }, 400);
    return;
  }
  if (was) return;
  if (row !== null) choose(row);
  else if (tool === "edit") add(at);
  else {
    choose(null);
    if (why && state.tool !== "select") tell(why);
  }
}

/**
 * @param {number} row
 * @param {[number, number]} at
 */
function dragTo(row, at) {
  if (!f) return;
  const inFrame = /** @type {[number, number]} */ ([Math.min(Math.max(at[0], f.left), f.right), Math.min(Math.max(at[1], f.top), f.bottom)]);
  moveTo(row, coordinates(inFrame));
}

/**
 * @param {number} row
 * @param {[number, number]} to
 */
function moveTo(row, to) {
  keepWindow();
  const curve = state.plane.axes === "curve";
  // With several features a curve shows a slice: there only the target is changed.
  if (curve && state.data.d > 1) to = [state.picture.arrays.px[state.picture.arrays.row.indexOf(row)], to[1]];
  moved.set(row, to);
  draw();
  if (!curve) edit([{ op: "move", row, to }]);
  else if (state.data.d > 1) edit([{ op: "value", row, target: to[1] }]);
  else edit([{ op: "move", row, to: [to[0], to[0]] }, { op: "value", row, target: to[1] }]);
}

/** @param {[number, number]} at  Pixels */
function add(at) {
  addAt(coordinates(at));
}

/** @param {[number, number]} to */
function addAt(to) {
  if (state.plane.axes === "curve" && state.data.d > 1) {
    tell("Samples are added on a plane of two features; here their targets can be moved.");
    return;
  }
  keepWindow();
  if (state.plane.axes === "curve") edit([{ op: "add", at: [to[0], to[0]], target: to[1] }]);
  else if (state.data.task === "regress") edit([{ op: "add", at: to, target: state.label }]);
  else edit([{ op: "add", at: to, label: Math.min(state.label, state.data.classes?.length ?? 0) }]);
}

/**
 * One dab of the brush or of the eraser.
 * @param {[number, number]} at
 * @param {string} tool
 */
function stroke(at, tool) {
  if (tool === "paint") {
    const spread = () => (Math.random() + Math.random() + Math.random() - 1.5) * 14;
    for (let k = 0; k < 2; k += 1) {
      const to = /** @type {[number, number]} */ ([at[0] + spread(), at[1] + spread()]);
      if (inside(to[0], to[1])) add(to);
    }
    return;
  }
  const near = nearest(at[0], at[1], 14);
  if (near === null) return;
  const row = state.picture.arrays.row[near];
  // Rows are renumbered by every deletion, so the picture has to be renewed before the next.
  if (erasing) return;
  erasing = true;
  edit([{ op: "delete", rows: [row] }]).finally(async () => {
    await refreshPlane();
    erasing = false;
  });
}
let erasing = false;

/**
 * @param {number | null} row
 * @param {[number, number]} [at]
 * @param {number | null} [near]
 */
function hover(row, at, near) {
  const tip = byId("tip");
  if (hovered !== row) {
    hovered = row;
    draw();
  }
  if (row === null || !at || near === null || near === undefined) {
    tip.hidden = true;
    return;
  }
  const { score, beta, kind, target } = state.picture.arrays;
  const of = state.picture.arrays.class[near];
  const name = of === 255 ? (target && state.data.task === "regress" ? `target ${number(target[near])}` : "") : `class ${state.data.classes?.[of]?.label ?? of}`;
  fill(tip, h("b", null, `row ${row + 1}`), name && `, ${name}`, score && h("div", { class: "dim" }, `score ${number(score[near])}, β ${number(beta[near], 3)}${["", ", free", ", bounded"][kind[near]]}`));
  tip.hidden = false;
  const width = byId("plane-box").clientWidth;
  tip.style.left = `${Math.min(at[0] + 14, width - 190)}px`;
  tip.style.top = `${at[1] + 14}px`;
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  if (!state.picture || !f || event.ctrlKey || event.metaKey || event.altKey) return;
  const { row, px, py } = state.picture.arrays;
  const at = state.selected === null ? -1 : row.indexOf(state.selected);
  const step = event.shiftKey ? 0.05 : 0.01;
  const arrows = /** @type {Record<string, [number, number]>} */ ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] });
  const key = event.key;
  if (key in arrows) {
    if (at < 0) choose(row[0] ?? null);
    else if (whyNot()) tell(whyNot());
    else {
      const from = moved.get(row[at]) ?? [px[at], py[at]];
      const [x0, x1, y0, y1] = f.window;
      const to = /** @type {[number, number]} */ ([rounded(from[0] + arrows[key][0] * step * (x1 - x0), x1 - x0), rounded(from[1] + arrows[key][1] * step * (y1 - y0), y1 - y0)]);
      moveTo(row[at], to);
      clearTimeout(settle);
      settle = window.setTimeout(() => {
        moved.clear();
      }, 900);
    }
  } else if (key === "n" || key === "p") choose(row[(at + (key === "n" ? 1 : row.length - 1) + row.length) % row.length] ?? null);
  else if (key === "a" && !whyNot()) addAt(/** @type {any} */ ([rounded((f.window[0] + f.window[1]) / 2, f.window[1] - f.window[0]), rounded((f.window[2] + f.window[3]) / 2, f.window[3] - f.window[2])]));
  else if ((key === "Delete" || key === "Backspace") && state.selected !== null && !whyNot()) edit([{ op: "delete", rows: [state.selected] }]);
  else if (/^[1-8]$/.test(key) && state.data.classes && Number(key) <= state.data.classes.length) set({ label: Number(key) - 1 });
  else if (key === "+" || key === "-") zoom(key === "+" ? 0.8 : 1.25);
  else if (key === "0") {
    set({ plane: { ...state.plane, window: null } });
    refreshPlane();
  } else if (key === "Escape") choose(null);
  else return;
  event.preventDefault();
}
let settle = 0;
