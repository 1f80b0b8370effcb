// How far the samples lie from the boundary, and which of them hold the gap open.

import { byId, fill, h } from "./dom.js";
import { number, percent, tick, ticks } from "./format.js";
import { choose } from "./session.js";
import { on, set, state } from "./store.js";
import { onTheme, theme } from "./theme.js";

/** @type {HTMLCanvasElement} */
let canvas;
/** @type {HTMLElement} */
let table;
/** @type {HTMLElement} */
let title;
/** @type {"worst" | "below"} */
let listed = "worst";
const HEIGHT = 150;
const [LEFT, TOP, RIGHT, BOTTOM] = [40, 6, 6, 22];
/** @type {number | null} */
let from = null;

export function startMargins() {
  canvas = h("canvas", { id: "histogram", tabIndex: 0, role: "img" });
  title = h("h2", null, "Margins");
  table = h("div", { class: "wide", id: "worst" });
  const clear = h("button", { class: "plain small", id: "clear-range", hidden: true, onclick: () => set({ range: null }) }, "show all");
  const which = (/** @type {"worst" | "below"} */ of, /** @type {string} */ name) => h("button", { class: "small", id: `list-${of}`, "aria-pressed": String(listed === of), onclick: () => {
    listed = of;
    for (const each of ["worst", "below"]) byId(`list-${each}`).setAttribute("aria-pressed", String(each === of));
    list();
  } }, name);
  byId("panel-proof").append(
    h("section", { "aria-label": "Margins" }, h("div", { class: "head" }, title, clear), h("div", { class: "chart", id: "margins-chart" }, canvas)),
    h("section", { "aria-label": "Worst samples" }, h("div", { class: "head" }, h("h2", null, "Samples to look at"), h("div", { class: "group" }, which("worst", "by share of the gap"), which("below", "farthest off"))), table),
  );
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    from = value(event);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (from !== null) range(from, value(event));
  });
  canvas.addEventListener("pointerup", (event) => {
    if (from !== null && Math.abs(value(event) - from) < binWidth() / 4) set({ range: state.range ? null : bin(from) });
    from = null;
  });
  new ResizeObserver(draw).observe(byId("margins-chart"));
  onTheme(draw);
  on(["margins", "row", "range"], draw);
  on(["margins", "selected"], list);
  on(["range"], () => {
    clear.hidden = !state.range;
  });
}

/** @param {PointerEvent} event */
function value(event) {
  const box = canvas.getBoundingClientRect();
  const edges = state.margins?.edges ?? [0, 1];
  const share = (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
  return edges[0] + Math.min(Math.max(share, 0), 1) * (edges.at(-1) - edges[0]);
}

function binWidth() {
  const edges = state.margins?.edges ?? [0, 1];
  return edges[1] - edges[0];
}

/** @param {number} at @returns {[number, number]} */
function bin(at) {
  const edges = state.margins.edges;
  const k = Math.min(Math.max(Math.floor((at - edges[0]) / binWidth()), 0), edges.length - 2);
  return [edges[k], edges[k + 1]];
}

/** @param {number} a @param {number} b */
function range(a, b) {
  if (Math.abs(a - b) > binWidth() / 4) set({ range: a < b ? [a, b] : [b, a] });
}

function draw() {
  const m = state.margins;
  const width = byId("margins-chart").clientWidth;
  if (!m || !width) return;
  const t = theme();
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(HEIGHT * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${HEIGHT}px`;
  const c = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  c.scale(scale, scale);
  const [right, bottom] = [width - RIGHT, HEIGHT - BOTTOM];
  const [low, high] = [m.edges[0], m.edges.at(-1)];
  const x = (/** @type {number} */ v) => LEFT + ((v - low) / (high - low)) * (right - LEFT);
  const bins = m.edges.length - 1;
  const totals = Array.from({ length: bins }, (_, k) => m.series.reduce((/** @type {number} */ sum, /** @type {any} */ s) => sum + s.counts[k], 0));
  const most = Math.max(1, ...totals);
  const y = (/** @type {number} */ v) => bottom - (v / most) * (bottom - TOP);
  title.textContent = { margin: "Margins y·z", residual: "Residuals y − z", score: "Scores" }[/** @type {"margin"} */ (m.kind)] ?? "Margins";
  c.font = "11px Helvetica, Arial, sans-serif";
  axes(c, t, { low, high, most, x, y, right, bottom });
  for (let k = 0; k < bins; k += 1) {
    let base = 0;
    const middle = (m.edges[k] + m.edges[k + 1]) / 2;
    c.globalAlpha = !state.range || (middle >= state.range[0] && middle <= state.range[1]) ? 0.85 : 0.25;
    m.series.forEach((/** @type {any} */ s, /** @type {number} */ of) => {
      if (!s.counts[k]) return;
      c.fillStyle = t.classes[of % t.classes.length];
      const [x0, x1] = [x(m.edges[k]), x(m.edges[k + 1])];
      c.fillRect(x0 + 0.5, y(base + s.counts[k]), Math.max(x1 - x0 - 1, 1), y(base) - y(base + s.counts[k]));
      base += s.counts[k];
    });
  }
  c.globalAlpha = 1;
  marks(c, t, m, x, bottom);
  canvas.setAttribute("aria-label", `Histogram of ${m.n} values between ${number(low)} and ${number(high)}`);
}

/** @param {CanvasRenderingContext2D} c @param {import("./theme.js").Theme} t @param {any} a */
function axes(c, t, { low, high, most, x, y, right, bottom }) {
  c.fillStyle = t.dim;
  c.strokeStyle = t.fine;
  c.textAlign = "right";
  c.textBaseline = "middle";
  const up = ticks(0, most, 3).filter((v) => v === Math.round(v));
  for (const v of up) {
    c.fillText(tick(v, up), LEFT - 5, y(v));
    c.beginPath();
    c.moveTo(LEFT, y(v));
    c.lineTo(right, y(v));
    c.stroke();
  }
  c.textAlign = "center";
  c.textBaseline = "top";
  const across = ticks(low, high, 6);
  for (const v of across) c.fillText(tick(v, across), x(v), bottom + 5);
}

/** @param {CanvasRenderingContext2D} c @param {import("./theme.js").Theme} t @param {any} m @param {(v: number) => number} x @param {number} bottom */
function marks(c, t, m, x, bottom) {
  c.strokeStyle = t.margin;
  c.setLineDash([4, 4]);
  for (const mark of m.marks) {
    c.beginPath();
    c.moveTo(x(mark), TOP);
    c.lineTo(x(mark), bottom);
    c.stroke();
  }
  c.setLineDash([]);
  const chosen = state.row?.model?.margin;
  if (chosen === undefined || chosen === null) return;
  c.strokeStyle = t.accent;
  c.fillStyle = t.accent;
  c.lineWidth = 2;
  c.beginPath();
  c.moveTo(x(chosen), TOP);
  c.lineTo(x(chosen), bottom);
  c.stroke();
  c.lineWidth = 1;
  c.beginPath();
  c.moveTo(x(chosen), TOP + 8);
  c.lineTo(x(chosen) - 5, TOP);
  c.lineTo(x(chosen) + 5, TOP);
  c.closePath();
  c.fill();
}

/** The class of a row, if it is on the plane. @param {number} row */
function classOf(row) {
  const p = state.picture?.arrays;
  const at = p ? p.row.indexOf(row) : -1;
  return at < 0 ? "" : state.data?.classes?.[p.class[at]]?.label ?? "";
}

function list() {
  const m = state.margins;
  if (!m) return;
  const rows = (listed === "worst" && m.worst?.length ? m.worst : m.below) ?? [];
  const shares = rows.some((/** @type {any} */ r) => r.share !== undefined);
  fill(table, h("table", null,
    h("thead", null, h("tr", null, h("th", { class: "n" }, "row"), shares && h("th", { class: "n" }, "share of the gap"), h("th", { class: "n" }, m.kind === "residual" ? "residual" : m.kind), h("th", null, m.kind === "residual" ? "target" : "class"))),
    h("tbody", null, rows.slice(0, 10).map((/** @type {any} */ r) => h("tr", { class: "pick", tabIndex: 0, data: { row: r.row }, "aria-selected": String(state.selected === r.row), onclick: () => choose(r.row), onkeydown: (/** @type {KeyboardEvent} */ e) => {
      if (e.key === "Enter" || e.key === " ") {
        e.preventDefault();
        choose(r.row);
      }
    } }, h("td", { class: "n" }, r.row + 1), shares && h("td", { class: "n" }, percent(r.share)), h("td", { class: "n" }, number(r.margin)), h("td", null, r.target ?? classOf(r.row)))))));
}
