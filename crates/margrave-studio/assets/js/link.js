// The page as a link: data, settings and view in the fragment, only where they differ from what would be chosen anyway.

import { state } from "./store.js";

/** Settings that travel by their own name. */
const PLAIN = ["C", "lambda", "epsilon", "nu", "scale", "solver", "multiclass", "tol", "gap", "max_seconds", "max_iter", "anneal", "seed"];
const FLAGS = ["bias", "svdd", "probability"];
/** Longer lists of edits do not fit into an address. */
const LONGEST = 12_000;

/**
 * @typedef {object} Link
 * @property {any} source  SOURCE, or null
 * @property {any} settings  Those that are named
 * @property {string[]} edits
 * @property {Record<string, string>} view
 */

/** @returns {string} */
export function encode() {
  const out = new URLSearchParams();
  const source = state.data?.source;
  if (source?.example) out.set("data", `example:${source.example}`);
  else if (source?.path) out.set("data", `path:${source.path}`);
  else if (source?.upload) out.set("data", `upload:${source.upload}`);
  else if (source?.painted) out.set("data", `painted:${source.painted.task ?? state.data.task}`);
  const edits = state.edits.join(";");
  if (edits && edits.length <= LONGEST) out.set("edits", edits);
  encodeSettings(out, state.settings);
  if (state.view !== "proof") out.set("view", state.view);
  const { axes, x, y, held, output, size, window } = state.plane;
  if (axes !== "features") out.set("axes", axes);
  if (axes !== "kpca" && (x !== 0 || y !== 1 || state.data?.d > 2)) out.set("xy", `${x},${y}`);
  if (held !== "mean") out.set("held", held);
  if (window) out.set("window", window.join(","));
  if (output) out.set("output", String(output));
  if (size && size !== "equal") out.set("size", size);
  if (state.selected !== null) out.set("row", String(state.selected));
  if (state.station && state.view === "tour") out.set("station", state.station);
  // Readable: these characters need no escapes in a fragment.
  return out.toString().replaceAll("%3A", ":").replaceAll("%2C", ",").replaceAll("%2F", "/").replaceAll("%3B", ";").replaceAll("%3D", "=");
}

/** Whether the edits are too many for an address. */
export function tooLong() {
  return state.edits.join(";").length > LONGEST;
}

/**
 * @param {URLSearchParams} out
 * @param {any} s
 */
function encodeSettings(out, s) {
  if (!s) return;
  out.set("task", s.task);
  out.set("kernel", s.kernel.name);
  const parameters = state.hello?.kernels.find((/** @type {any} */ k) => k.name === s.kernel.name)?.parameters ?? [];
  for (const key of parameters) out.set(key, String(s.kernel[key]));
  if (typeof s.loss === "string") out.set("loss", s.loss);
  else if (s.loss?.expression) out.set("expression", s.loss.expression);
  const usual = { solver: "auto", anneal: 0, seed: 0, ...(s.task === "regress" ? {} : { epsilon: 0.1 }) };
  for (const key of PLAIN) {
    const value = s[key];
    if (value !== null && value !== undefined && /** @type {any} */ (usual)[key] !== value) out.set(key, String(value));
  }
  if (s.bias === false) out.set("bias", "false");
  for (const key of ["svdd", "probability"]) if (s[key]) out.set(key, "true");
  if (s.class_weight) out.set("weights", typeof s.class_weight === "string" ? s.class_weight : Object.entries(s.class_weight).map(([k, v]) => `${k}=${v}`).join(","));
}

/**
 * @param {string} fragment  Without the leading #
 * @returns {Link}
 */
export function decode(fragment) {
  const all = new URLSearchParams(fragment);
  const [kind, ...rest] = (all.get("data") ?? "").split(":");
  const name = rest.join(":");
  const source = kind === "painted" ? { painted: { task: name || "classify", points: [] } } : kind ? { [kind]: name } : null;
  /** @type {any} */
  const settings = {};
  if (all.has("task")) settings.task = all.get("task");
  if (all.has("kernel")) {
    settings.kernel = { name: all.get("kernel") };
    for (const key of ["gamma", "degree", "coef0"]) if (all.has(key)) settings.kernel[key] = scalar(all.get(key));
  }
  if (all.has("loss")) settings.loss = all.get("loss");
  if (all.has("expression")) settings.loss = { expression: all.get("expression") };
  for (const key of PLAIN) if (all.has(key)) settings[key] = scalar(all.get(key));
  for (const key of FLAGS) if (all.has(key)) settings[key] = all.get(key) === "true";
  const weights = all.get("weights");
  if (weights === "balanced") settings.class_weight = weights;
  else if (weights) settings.class_weight = Object.fromEntries(weights.split(",").map((pair) => pair.split("=")).map(([k, v]) => [k, Number(v)]));
  /** @type {Record<string, string>} */
  const view = {};
  for (const key of ["view", "axes", "xy", "held", "window", "output", "size", "row", "station"]) {
    const value = all.get(key);
    if (value !== null) view[key] = value;
  }
  return { source, settings, edits: (all.get("edits") ?? "").split(";").filter(Boolean), view };
}

/** @param {string | null} text */
function scalar(text) {
  const value = Number(text);
  return text !== null && text !== "" && !Number.isNaN(value) ? value : text;
}

let timer = 0;

/** Writes the link into the address, at most a few times a second: browsers limit it. */
export function remember() {
  clearTimeout(timer);
  timer = window.setTimeout(() => {
    const next = `#${encode()}`;
    if (next !== location.hash) history.replaceState(null, "", next);
  }, 250);
}
