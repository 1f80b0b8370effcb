// Colours for canvases, read from the style sheet so that they are defined once.

/**
 * @typedef {object} Theme
 * @property {boolean} dark
 * @property {string} ink
 * @property {string} dim
 * @property {string} line
 * @property {string} fine
 * @property {string} paper
 * @property {string} accent
 * @property {string} good
 * @property {string} bad
 * @property {string} boundary
 * @property {string} margin
 * @property {string[]} classes  Okabe and Ito's colours without the yellow
 * @property {[number, number, number][]} rgb  The same as numbers
 * @property {[number, number, number]} ground  Paper as numbers
 */

/** Marks of classes: told apart without colour. */
export const SHAPES = /** @type {const} */ (["circle", "square", "triangle", "diamond", "down", "plus", "cross"]);

/** From dark blue to yellow; equal steps look equal, also in grey. */
const RAMP = [
  [68, 1, 84],
  [65, 68, 135],
  [42, 120, 142],
  [34, 168, 132],
  [122, 209, 81],
  [253, 231, 37],
];

/** @type {Theme | null} */
let current = null;
/** @type {Set<() => void>} */
const listeners = new Set();

/** @returns {Theme} */
export function theme() {
  if (current) return current;
  const style = getComputedStyle(document.documentElement);
  const get = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
  const classes = [0, 1, 2, 3, 4, 5, 6].map((at) => get(`class-${at}`));
  current = {
    dark: get("dark") === "1",
    ink: get("ink"),
    dim: get("dim"),
    line: get("line"),
    fine: get("fine"),
    paper: get("paper"),
    accent: get("accent"),
    good: get("good"),
    bad: get("bad"),
    boundary: get("boundary"),
    margin: get("margin"),
    classes,
    rgb: classes.map(rgb),
    ground: rgb(get("paper")),
  };
  return current;
}

/** @param {() => void} listener */
export function onTheme(listener) {
  listeners.add(listener);
}

/**
 * Follows the system unless light or dark was chosen.
 * @param {"auto" | "light" | "dark"} choice
 */
export function setTheme(choice) {
  if (choice === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
  changed();
}

function changed() {
  current = null;
  for (const listener of listeners) listener();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);

/**
 * @param {string} hex  #rgb or #rrggbb
 * @returns {[number, number, number]}
 */
export function rgb(hex) {
  const long = hex.length === 4 ? [...hex.slice(1)].map((c) => c + c).join("") : hex.slice(1);
  const channel = (/** @type {number} */ at) => Number.parseInt(long.slice(at, at + 2), 16) || 0;
  return [channel(0), channel(2), channel(4)];
}

/**
 * A colour of the ramp.
 * @param {number} share
 * @returns {[number, number, number]}
 */
export function ramp(share) {
  const at = Math.min(Math.max(Number.isNaN(share) ? 0 : share, 0), 1) * (RAMP.length - 1);
  const low = Math.min(Math.floor(at), RAMP.length - 2);
  const t = at - low;
  const mix = (/** @type {number} */ k) => Math.round(RAMP[low][k] + t * (RAMP[low + 1][k] - RAMP[low][k]));
  return [mix(0), mix(1), mix(2)];
}
