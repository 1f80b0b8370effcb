// The plane on its canvas: regions, margins, boundary, samples, axes.

import { contour } from "./contour.js";
import { tick, ticks } from "./format.js";
import { outline, ring, shapeOf } from "./marks.js";
import { ramp } from "./theme.js";

/** @typedef {import("./theme.js").Theme} Theme */

/**
 * @typedef {object} Frame  Where the plane lies on the canvas, in CSS pixels
 * @property {number} width
 * @property {number} height
 * @property {number} left
 * @property {number} top
 * @property {number} right
 * @property {number} bottom
 * @property {[number, number, number, number]} window
 */

/**
 * @param {number} width
 * @param {number} height
 * @param {[number, number, number, number]} window
 * @returns {Frame}
 */
export function frame(width, height, window) {
  return { width, height, left: 46, top: 6, right: width - 6, bottom: height - 38, window };
}

/** @param {Frame} f @param {number} x */
export const toX = (f, x) => f.left + ((x - f.window[0]) / (f.window[1] - f.window[0])) * (f.right - f.left);
/** @param {Frame} f @param {number} y */
export const toY = (f, y) => f.bottom - ((y - f.window[2]) / (f.window[3] - f.window[2])) * (f.bottom - f.top);
/** @param {Frame} f @param {number} px @param {number} py @returns {[number, number]} */
export const fromPixel = (f, px, py) => [
  f.window[0] + ((px - f.left) / (f.right - f.left)) * (f.window[1] - f.window[0]),
  f.window[2] + ((f.bottom - py) / (f.bottom - f.top)) * (f.window[3] - f.window[2]),
];

/**
 * @typedef {object} Look  What is chosen
 * @property {number | null} selected
 * @property {number | null} hovered
 * @property {Map<number, [number, number]>} moved  Samples that are being dragged, and where they are
 * @property {((at: number) => boolean) | null} chosen  Samples in the chosen part of the histogram
 * @property {string[]} names  Of the axes
 * @property {"equal" | "beta" | "weight"} size  What the size of a mark means
 */

/**
 * @param {HTMLCanvasElement} canvas
 * @param {any} picture  Answer of /plane
 * @param {Frame} f
 * @param {Theme} t
 * @param {Look} look
 */
export function drawPlane(canvas, picture, f, t, look) {
  const scale = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(f.width * scale), Math.round(f.height * scale)];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  const c = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  c.setTransform(scale, 0, 0, scale, 0, 0);
  c.fillStyle = t.paper;
  c.fillRect(0, 0, f.width, f.height);
  c.save();
  c.beginPath();
  c.rect(f.left, f.top, f.right - f.left, f.bottom - f.top);
  c.clip();
  const a = picture.arrays;
  if (picture.axes === "curve") drawCurve(c, picture, f, t);
  else if (a.grid) {
    regions(c, picture, f, t);
    lines(c, picture, f, t);
  }
  samples(c, picture, f, t, look);
  c.restore();
  axes(c, f, t, look.names);
}

/** Tinted regions, one colour per pixel of the page, from the grid by linear interpolation. */
function regions(/** @type {CanvasRenderingContext2D} */ c, /** @type {any} */ p, /** @type {Frame} */ f, /** @type {Theme} */ t) {
  const [wide, tall] = [Math.round(f.right - f.left), Math.round(f.bottom - f.top)];
  const image = new ImageData(wide, tall);
  const paint = p.arrays.label ? paintClasses(p, t) : paintScores(p, t);
  const { nx, ny } = p;
  const grid = p.arrays.grid;
  const columns = new Int32Array(wide);
  const shares = new Float32Array(wide);
  for (let x = 0; x < wide; x += 1) {
    const at = Math.min(Math.max(((x + 0.5) / wide) * nx - 0.5, 0), nx - 1);
    columns[x] = Math.min(Math.floor(at), nx - 2);
    shares[x] = at - columns[x];
  }
  for (let y = 0; y < tall; y += 1) {
    const at = Math.min(Math.max((1 - (y + 0.5) / tall) * ny - 0.5, 0), ny - 1);
    const row = Math.min(Math.floor(at), ny - 2);
    const v = at - row;
    for (let x = 0; x < wide; x += 1) {
      const k = row * nx + columns[x];
      const u = shares[x];
      const low = grid[k] + u * (grid[k + 1] - grid[k]);
      const high = grid[k + nx] + u * (grid[k + nx + 1] - grid[k + nx]);
      paint(image.data, 4 * (y * wide + x), low + v * (high - low), k, u, v);
    }
  }
  const off = new OffscreenCanvas(wide, tall);
  /** @type {any} */ (off.getContext("2d")).putImageData(image, 0, 0);
  c.drawImage(off, f.left, f.top, f.right - f.left, f.bottom - f.top);
}

/** Colours a pixel: its value, the cell below and left of it, and where it lies between that and the next ones.
 * @typedef {(out: Uint8ClampedArray, at: number, value: number, cell: number, u: number, v: number) => void} Paint */

/** Two classes: the colour deepens with the score, up to the margin. Numbers: the ramp.
 * @returns {Paint} */
function paintScores(/** @type {any} */ p, /** @type {Theme} */ t) {
  const ground = t.ground;
  if (!p.levels.length) {
    const [low, high] = p.range;
    return (out, at, value) => {
      const colour = ramp(high > low ? (value - low) / (high - low) : 0.5);
      for (let k = 0; k < 3; k += 1) out[at + k] = ground[k] + 0.62 * (colour[k] - ground[k]);
      out[at + 3] = 255;
    };
  }
  const cut = p.levels.length === 1 ? p.levels[0] : 0;
  const [base, more] = t.dark ? [0.16, 0.3] : [0.1, 0.22];
  return (out, at, value) => {
    const colour = t.rgb[value > cut ? 1 : 0];
    const share = base + more * Math.min(Math.abs(value - cut), 1);
    for (let k = 0; k < 3; k += 1) out[at + k] = ground[k] + share * (colour[k] - ground[k]);
    out[at + 3] = 255;
  };
}

/** Shares of pictures, so that edges and colours come from the same. @type {WeakMap<object, Map<number, Float32Array>>} */
const shared = new WeakMap();

/**
 * For each class its share of the cells around each node. Votes of pairs jump from one class to the next; the edges are
 * smooth, and lie where two shares are equal.
 * @param {any} p
 */
function classShares(p) {
  const found = shared.get(p);
  if (found) return found;
  const { nx, ny } = p;
  const label = p.arrays.label;
  const out = new Map();
  const smooth = (/** @type {Float32Array} */ from, /** @type {number} */ step, /** @type {number} */ length, /** @type {number} */ stride, /** @type {number} */ lines) => {
    const to = new Float32Array(from.length);
    for (let line = 0; line < lines; line += 1) {
      for (let k = 0; k < length; k += 1) {
        const at = line * stride + k * step;
        const value = (/** @type {number} */ j) => from[line * stride + Math.min(Math.max(j, 0), length - 1) * step];
        to[at] = (value(k - 2) + 4 * value(k - 1) + 6 * value(k) + 4 * value(k + 1) + value(k + 2)) / 16;
      }
    }
    return to;
  };
  for (const of of [...new Set(label)].sort()) {
    const own = Float32Array.from(label, (v) => (v === of ? 1 : 0));
    out.set(of, smooth(smooth(own, 1, nx, nx, ny), nx, ny, 1, nx));
  }
  shared.set(p, out);
  return out;
}

/** Several classes: the predicted one; the colour deepens with its lead.
 * @returns {Paint} */
function paintClasses(/** @type {any} */ p, /** @type {Theme} */ t) {
  const ground = t.ground;
  const { label } = p.arrays;
  const nx = p.nx;
  const shares = classShares(p);
  // The class with the largest share between the four nodes around a pixel.
  const winner = (/** @type {number} */ cell, /** @type {number} */ u, /** @type {number} */ v) => {
    const nodes = [cell, cell + 1, cell + nx, cell + nx + 1];
    const first = label[cell];
    if (nodes.every((k) => label[k] === first)) return first;
    const weights = [(1 - u) * (1 - v), u * (1 - v), (1 - u) * v, u * v];
    let [best, most] = [first, -Infinity];
    for (const of of new Set(nodes.map((k) => label[k]))) {
      const share = shares.get(of);
      const sum = nodes.reduce((total, k, j) => total + weights[j] * (share ? share[k] : 0), 0);
      if (sum > most) [best, most] = [of, sum];
    }
    return best;
  };
  return (out, at, value, cell, u, v) => {
    const colour = t.rgb[winner(cell, u, v) % t.rgb.length];
    const share = (t.dark ? 0.18 : 0.12) + 0.2 * Math.min(Math.max(value, 0), 1);
    for (let k = 0; k < 3; k += 1) out[at + k] = ground[k] + share * (colour[k] - ground[k]);
    out[at + 3] = 255;
  };
}

/** Margins and boundary; between several classes the edges of their regions. */
function lines(/** @type {CanvasRenderingContext2D} */ c, /** @type {any} */ p, /** @type {Frame} */ f, /** @type {Theme} */ t) {
  const { nx, ny } = p;
  const x = (/** @type {number} */ k) => f.left + ((k + 0.5) / nx) * (f.right - f.left);
  const y = (/** @type {number} */ k) => f.bottom - ((k + 0.5) / ny) * (f.bottom - f.top);
  const stroke = (/** @type {ArrayLike<number>} */ values, /** @type {number} */ level) => {
    const pieces = contour(values, nx, ny, level);
    c.beginPath();
    for (let k = 0; k < pieces.length; k += 4) {
      c.moveTo(x(pieces[k]), y(pieces[k + 1]));
      c.lineTo(x(pieces[k + 2]), y(pieces[k + 3]));
    }
    c.stroke();
  };
  c.lineCap = "round";
  const label = p.arrays.label;
  if (label) {
    c.strokeStyle = t.boundary;
    c.lineWidth = 1.6;
    for (const share of [...classShares(p).values()].slice(0, -1)) stroke(share, 0.5);
    return;
  }
  const main = p.levels.length === 1 ? p.levels[0] : 0;
  for (const level of p.levels) {
    c.strokeStyle = level === main ? t.boundary : t.margin;
    c.lineWidth = level === main ? 2.2 : 1.1;
    stroke(p.arrays.grid, level);
  }
}

/** One feature against the target: the fitted curve and its tube. */
function drawCurve(/** @type {CanvasRenderingContext2D} */ c, /** @type {any} */ p, /** @type {Frame} */ f, /** @type {Theme} */ t) {
  const curve = p.arrays.curve;
  if (!curve) return;
  const [x0, x1] = p.window;
  const at = (/** @type {number} */ k) => toX(f, x0 + ((k + 0.5) / curve.length) * (x1 - x0));
  const trace = (/** @type {number} */ shift, /** @type {boolean} */ back = false) => {
    for (let k = 0; k < curve.length; k += 1) {
      const j = back ? curve.length - 1 - k : k;
      c.lineTo(at(j), toY(f, curve[j] + shift));
    }
  };
  if (p.tube) {
    c.beginPath();
    trace(p.tube);
    trace(-p.tube, true);
    c.closePath();
    c.fillStyle = `${t.classes[0]}26`;
    c.fill();
    for (const side of [p.tube, -p.tube]) {
      c.beginPath();
      trace(side);
      c.strokeStyle = t.margin;
      c.lineWidth = 1.1;
      c.stroke();
    }
  }
  c.beginPath();
  trace(0);
  c.strokeStyle = t.boundary;
  c.lineWidth = 2.2;
  c.stroke();
}

/** Samples; support vectors last, so that they lie on top. */
function samples(/** @type {CanvasRenderingContext2D} */ c, /** @type {any} */ p, /** @type {Frame} */ f, /** @type {Theme} */ t, /** @type {Look} */ look) {
  const { px, py, row, kind, target } = p.arrays;
  const of = p.arrays.class;
  const many = px.length > 1500;
  const size = many ? 2.2 : px.length > 400 ? 3.1 : 4;
  const numbers = p.axes !== "curve" && !p.levels.length && !p.arrays.label && of[0] === 255 && target;
  const [low, high] = numbers ? p.range ?? [0, 1] : [0, 1];
  let vectors = 0;
  for (const k of kind) vectors += k ? 1 : 0;
  // Where every sample is a support vector the rings say nothing.
  const rings = vectors < px.length;
  const light = vectors > 150;
  const sizes = markSizes(p, look.size, size);
  const draw = (/** @type {number} */ k) => {
    const size = sizes(k);
    const place = look.moved.get(row[k]);
    const x = toX(f, place ? place[0] : px[k]);
    const y = toY(f, place ? place[1] : py[k]);
    const shown = !look.chosen || look.chosen(k);
    c.globalAlpha = shown ? 1 : 0.15;
    outline(c, of[k] === 255 ? "circle" : shapeOf(of[k]), x, y, size);
    if (numbers) c.fillStyle = `rgb(${ramp(high > low ? (target[k] - low) / (high - low) : 0.5).join(" ")})`;
    else c.fillStyle = of[k] === 255 ? t.classes[0] : t.classes[of[k] % t.classes.length];
    c.fill();
    if (!many) {
      c.strokeStyle = t.paper;
      c.lineWidth = 0.8;
      c.stroke();
    }
    if (rings && (!many || shown)) ring(c, x, y, kind[k], size + (light ? 1.9 : 2.6), t, light);
  };
  for (let k = 0; k < px.length; k += 1) if (!kind[k]) draw(k);
  for (let k = 0; k < px.length; k += 1) if (kind[k]) draw(k);
  c.globalAlpha = 1;
  for (let k = 0; k < px.length; k += 1) {
    if (row[k] !== look.selected && row[k] !== look.hovered) continue;
    const place = look.moved.get(row[k]);
    const [x, y] = [toX(f, place ? place[0] : px[k]), toY(f, place ? place[1] : py[k])];
    c.beginPath();
    c.arc(x, y, size + 6.5, 0, 7);
    c.strokeStyle = row[k] === look.selected ? t.accent : t.dim;
    c.lineWidth = row[k] === look.selected ? 2.6 : 1.2;
    c.stroke();
  }
}

/**
 * The area of a mark follows |β| or the IRWLS weight, relative to the largest.
 * @param {any} p
 * @param {string} by
 * @param {number} usual
 * @returns {(k: number) => number}
 */
function markSizes(p, by, usual) {
  const values = by === "beta" ? p.arrays.beta : by === "weight" ? p.arrays.weight : null;
  if (!values) return () => usual;
  // The largest IRWLS weights are those of samples on the margin, without limit: the scale ends at the 90th percentile.
  const sorted = Array.from(values, Math.abs).filter((v) => v > 0).sort((a, b) => a - b);
  const top = sorted[Math.floor(0.9 * (sorted.length - 1))] || 1;
  return (k) => 1.6 + 6 * Math.sqrt(Math.min(Math.abs(values[k]) / top || 0, 1));
}

/** Frame, ticks and names. */
function axes(/** @type {CanvasRenderingContext2D} */ c, /** @type {Frame} */ f, /** @type {Theme} */ t, /** @type {string[]} */ names) {
  c.strokeStyle = t.line;
  c.lineWidth = 1;
  c.strokeRect(f.left + 0.5, f.top + 0.5, f.right - f.left - 1, f.bottom - f.top - 1);
  c.font = "11px Helvetica, Arial, 'Liberation Sans', sans-serif";
  c.fillStyle = t.dim;
  c.textAlign = "center";
  c.textBaseline = "top";
  const across = ticks(f.window[0], f.window[1], Math.max(3, Math.floor((f.right - f.left) / 90)));
  for (const v of across) c.fillText(tick(v, across), toX(f, v), f.bottom + 5);
  c.textAlign = "right";
  c.textBaseline = "middle";
  const up = ticks(f.window[2], f.window[3], Math.max(3, Math.floor((f.bottom - f.top) / 70)));
  for (const v of up) c.fillText(tick(v, up), f.left - 5, toY(f, v));
  c.fillStyle = t.ink;
  c.font = "12px Helvetica, Arial, 'Liberation Sans', sans-serif";
  c.textAlign = "center";
  c.textBaseline = "bottom";
  c.fillText(names[0], (f.left + f.right) / 2, f.height - 2);
  c.save();
  c.translate(10, (f.top + f.bottom) / 2);
  c.rotate(-Math.PI / 2);
  c.textBaseline = "middle";
  c.fillText(names[1], 0, 0);
  c.restore();
}
