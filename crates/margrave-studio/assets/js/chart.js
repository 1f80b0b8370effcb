// Charts by uPlot, in the colours and type of the page.

import vendored from "../vendor/uplot/uPlot.esm.js";
import { number, tick, ticks } from "./format.js";
import { onTheme, theme } from "./theme.js";

/**
 * @typedef {object} Line
 * @property {string} name
 * @property {string | ((t: import("./theme.js").Theme) => string)} colour
 * @property {number[]} [dash]
 * @property {number} [width]
 * @property {"line" | "marked" | "dots"} [kind]  A line, one with a dot at every point, or dots alone
 */

/**
 * @typedef {object} ChartOptions
 * @property {number} height
 * @property {string} x  Name of the horizontal axis
 * @property {string} [y]
 * @property {boolean} [logY]
 * @property {boolean} [logX]
 * @property {Line[]} lines
 * @property {[number, number] | null} [rangeX]
 * @property {[number, number] | null} [rangeY]
 * @property {(u: any, t: import("./theme.js").Theme) => void} [over]  Draws on top, in pixels of the canvas
 * @property {(x: number, index: number) => void} [onpick]  A click at this place
 * @property {boolean} [square]  As tall as wide
 */

/** @type {any} */
const uPlot = vendored;
const FONT = "11px Helvetica, Arial, 'Liberation Sans', sans-serif";

/** A chart that fits the width of its box and follows the theme. */
export class Chart {
  /**
   * @param {HTMLElement} box
   * @param {ChartOptions} options
   */
  constructor(box, options) {
    this.box = box;
    this.options = options;
    /** @type {(number | null)[][]} */
    this.data = [[], ...options.lines.map(() => [])];
    /** @type {any} */
    this.plot = null;
    this.width = 0;
    new ResizeObserver(() => this.fit()).observe(box);
    onTheme(() => this.remake());
  }

  /** @param {(ArrayLike<number | null>)[]} data */
  set(data) {
    this.data = /** @type {any} */ (data);
    if (this.plot && data[0].length) this.plot.setData(this.data);
    else this.remake();
  }

  /** Draws again what lies on top. */
  redraw() {
    this.plot?.redraw(false);
  }

  /** @param {Partial<ChartOptions>} options */
  change(options) {
    Object.assign(this.options, options);
    this.remake();
  }

  fit() {
    const width = Math.floor(this.box.clientWidth);
    if (!width || width === this.width) return;
    this.width = width;
    if (this.plot) this.plot.setSize({ width, height: this.height() });
    else this.remake();
  }

  height() {
    return this.options.square ? Math.min(this.width, this.options.height) : this.options.height;
  }

  remake() {
    this.width = Math.floor(this.box.clientWidth);
    if (!this.width) return;
    this.plot?.destroy();
    this.plot = null;
    // Axes without data say nothing.
    if (!this.data[0].length) return;
    this.plot = new uPlot(this.uplot(), this.data, this.box);
  }

  uplot() {
    const t = theme();
    const o = this.options;
    const axis = (/** @type {string | undefined} */ label, /** @type {boolean} */ vertical, /** @type {boolean} */ log) => ({
      stroke: t.dim,
      font: FONT,
      labelFont: FONT,
      label,
      labelSize: label ? 16 : 0,
      labelGap: 0,
      size: vertical ? 52 : 28,
      gap: 4,
      grid: { stroke: t.fine, width: 1, ...(log ? { filter: keep } : {}) },
      ticks: { stroke: t.line, width: 1, size: 4, ...(log ? { filter: keep } : {}) },
      space: vertical ? 26 : 56,
      ...(log ? { splits: (/** @type {any} */ _u, /** @type {number} */ _axis, /** @type {number} */ low, /** @type {number} */ high) => decades(low, high, vertical ? 5 : 6), filter: keep } : {}),
      values: (/** @type {any} */ _u, /** @type {number[]} */ values) => values.map((v) => tickText(v, values, log)),
    });
    return {
      width: this.width,
      height: this.height(),
      padding: [8, 10, 0, 0],
      pxAlign: 0,
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { size: 6 }, y: false },
      scales: {
        x: { time: false, distr: o.logX ? 3 : 1, ...(o.rangeX ? { range: o.rangeX } : {}) },
        y: { distr: o.logY ? 3 : 1, ...(o.rangeY ? { range: o.rangeY } : o.logY ? { range: spread } : {}) },
      },
      axes: [axis(o.x, false, Boolean(o.logX)), axis(o.y, true, Boolean(o.logY))],
      series: [{}, ...o.lines.map((line) => series(line, t))],
      hooks: {
        draw: [(/** @type {any} */ u) => this.options.over?.(u, theme())],
        ready: [(/** @type {any} */ u) => this.pick(u)],
      },
    };
  }

  /** @param {any} u */
  pick(u) {
    if (!this.options.onpick) return;
    u.over.addEventListener("click", () => {
      if (u.cursor.left >= 0) this.options.onpick?.(u.posToVal(u.cursor.left, "x"), u.cursor.idx ?? -1);
    });
  }
}

/** uPlot leaves out ticks of logarithmic axes; these are few already. */
const keep = (/** @type {any} */ _u, /** @type {number[]} */ splits) => splits;

/**
 * @param {Line} line
 * @param {import("./theme.js").Theme} t
 */
function series(line, t) {
  const colour = typeof line.colour === "string" ? line.colour : line.colour(t);
  const kind = line.kind ?? "line";
  const paths = kind === "dots" ? () => null : uPlot.paths.linear();
  return {
    label: line.name,
    stroke: colour,
    width: line.width ?? 1.6,
    dash: line.dash,
    paths,
    points: { show: kind !== "line", size: 5, fill: colour },
    spanGaps: true,
  };
}

/**
 * @param {number | null} value
 * @param {number[]} all
 * @param {boolean} log
 */
function tickText(value, all, log) {
  if (value === null) return "";
  const whole = Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-9;
  return log && whole ? number(value, 2) : tick(value, all);
}

/**
 * The range of a logarithmic axis: what there is and a little air.
 * @param {any} _u
 * @param {number | null} low
 * @param {number | null} high
 * @returns {[number, number]}
 */
function spread(_u, low, high) {
  if (low === null || high === null || !(low > 0)) return [0.1, 1];
  // At least three decades: a single point needs surroundings.
  const air = Math.max((high / low) ** 0.06, 1.05, high / low < 1000 ? Math.sqrt(1000 * (low / high)) : 1);
  return [low / air, high * air];
}

/**
 * Ticks of a logarithmic axis: every decade, or every second, third …; finer ones where there is hardly a decade.
 * @param {number} low
 * @param {number} high
 * @param {number} most
 */
function decades(low, high, most) {
  const [from, to] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  if (to - from < 1) return ticks(low, high, 4).filter((v) => v > 0);
  const step = Math.ceil((to - from + 1) / most);
  const out = [];
  for (let power = Math.ceil(from / step) * step; power <= to; power += step) out.push(Number(`1e${power}`));
  return out;
}

/**
 * A line of keys below or above a chart.
 * @param {{name: string, colour: string, dash?: "dash" | "dots"}[]} keys
 */
export function keys(keys) {
  const row = document.createElement("div");
  row.className = "keys";
  for (const key of keys) {
    const item = document.createElement("span");
    const mark = document.createElement("i");
    mark.style.color = key.colour;
    if (key.dash) mark.className = key.dash;
    item.append(mark, key.name);
    row.append(item);
  }
  return row;
}
