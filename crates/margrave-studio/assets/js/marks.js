// Samples as marks: a shape and a colour for each class, a ring for support vectors (solid: free, dashed: bounded).

import { SHAPES } from "./theme.js";

/**
 * Adds the outline of a mark to the path.
 * @param {CanvasRenderingContext2D} c
 * @param {string} shape
 * @param {number} x
 * @param {number} y
 * @param {number} r
 */
export function outline(c, shape, x, y, r) {
  c.beginPath();
  if (shape === "square") c.rect(x - 0.88 * r, y - 0.88 * r, 1.76 * r, 1.76 * r);
  else if (shape === "triangle") polygon(c, x, y, [0, -1.2, 1.1, 0.75, -1.1, 0.75], r);
  else if (shape === "down") polygon(c, x, y, [0, 1.2, 1.1, -0.75, -1.1, -0.75], r);
  else if (shape === "diamond") polygon(c, x, y, [0, -1.25, 1.25, 0, 0, 1.25, -1.25, 0], r);
  else if (shape === "plus") polygon(c, x, y, [-0.4, -1.1, 0.4, -1.1, 0.4, -0.4, 1.1, -0.4, 1.1, 0.4, 0.4, 0.4, 0.4, 1.1, -0.4, 1.1, -0.4, 0.4, -1.1, 0.4, -1.1, -0.4, -0.4, -0.4], r);
  else if (shape === "cross") polygon(c, x, y, [0, -0.5, 0.7, -1.2, 1.2, -0.7, 0.5, 0, 1.2, 0.7, 0.7, 1.2, 0, 0.5, -0.7, 1.2, -1.2, 0.7, -0.5, 0, -1.2, -0.7, -0.7, -1.2], r);
  else c.arc(x, y, r, 0, 7);
}

/**
 * @param {CanvasRenderingContext2D} c
 * @param {number} x
 * @param {number} y
 * @param {number[]} corners
 * @param {number} r
 */
function polygon(c, x, y, corners, r) {
  for (let k = 0; k < corners.length; k += 2) c.lineTo(x + r * corners[k], y + r * corners[k + 1]);
  c.closePath();
}

/**
 * @param {CanvasRenderingContext2D} c
 * @param {number} x
 * @param {number} y
 * @param {number} kind  0 not a support vector, 1 free, 2 bounded
 * @param {number} r
 * @param {import("./theme.js").Theme} t
 * @param {boolean} [light]  Thinner, where there are many
 */
export function ring(c, x, y, kind, r, t, light = false) {
  if (!kind) return;
  c.beginPath();
  c.arc(x, y, r, 0, 7);
  c.strokeStyle = t.ink;
  c.lineWidth = (kind === 1 ? 1.7 : 1.1) * (light ? 0.65 : 1);
  c.setLineDash(kind === 1 ? [] : [2.2, 2.2]);
  c.stroke();
  c.setLineDash([]);
}

/**
 * A small picture of a mark, for legends.
 * @param {number | null} of  Class, or null for an empty mark
 * @param {number} kind
 * @param {import("./theme.js").Theme} t
 */
export function markPicture(of, kind, t) {
  const canvas = document.createElement("canvas");
  const scale = window.devicePixelRatio || 1;
  canvas.width = canvas.height = 18 * scale;
  canvas.style.width = canvas.style.height = "18px";
  canvas.setAttribute("aria-hidden", "true");
  const c = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  c.scale(scale, scale);
  if (of !== null) {
    outline(c, shapeOf(of), 9, 9, 4);
    c.fillStyle = t.classes[of % t.classes.length];
    c.fill();
  }
  ring(c, 9, 9, kind, 7, t);
  return canvas;
}

/** @param {number} of */
export function shapeOf(of) {
  return SHAPES[of % SHAPES.length];
}

/**
 * The colours of numbers, from low to high.
 * @param {(share: number) => number[]} ramp
 */
export function rampPicture(ramp) {
  const canvas = document.createElement("canvas");
  canvas.width = 90;
  canvas.height = 12;
  canvas.setAttribute("aria-hidden", "true");
  const c = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  for (let x = 0; x < 90; x += 1) {
    c.fillStyle = `rgb(${ramp(x / 89).join(" ")})`;
    c.fillRect(x, 0, 1, 12);
  }
  return canvas;
}
