// What the page knows, in one place. Views subscribe to the keys they show.

/**
 * @typedef {object} Plane
 * @property {"features" | "kpca" | "curve"} axes
 * @property {number} x
 * @property {number} y
 * @property {string} held  "mean" or "row:17"
 * @property {number} output
 * @property {[number, number, number, number] | null} [window]  Ends of the axes, if a part was chosen
 * @property {"equal" | "beta" | "weight"} [size]  What the size of a mark means
 */

/**
 * @typedef {object} State
 * @property {any} hello  Limits, examples, kernels, losses
 * @property {string} session
 * @property {any} data  DATA of the interface, or null
 * @property {string | null} loading
 * @property {any} settings  SETTINGS, complete
 * @property {any} run  RUN that is shown, or null
 * @property {any[]} runs
 * @property {any} job  What is under way, or null
 * @property {boolean} watching  Whether a training is played step by step
 * @property {string} view  Chosen tab
 * @property {Plane} plane
 * @property {any} picture  Last answer of /plane
 * @property {any} trace
 * @property {any} margins
 * @property {number | null} selected  Row
 * @property {any} row  Answer of /rows
 * @property {[number, number] | null} range  Chosen part of the histogram
 * @property {any} tune
 * @property {any} evaluation
 * @property {any} path
 * @property {string} tool
 * @property {number} label  Class, or target value, of added samples
 * @property {boolean} follow  Train at every change
 * @property {string[]} edits  What was done to the data, for the link
 * @property {string | null} station
 * @property {any} tour
 * @property {boolean} online
 */

/** @type {State} */
export const state = {
  hello: null,
  session: "",
  data: null,
  loading: null,
  settings: null,
  run: null,
  runs: [],
  job: null,
  watching: false,
  view: "proof",
  plane: { axes: "features", x: 0, y: 1, held: "mean", output: 0 },
  picture: null,
  trace: null,
  margins: null,
  selected: null,
  row: null,
  range: null,
  tune: null,
  evaluation: null,
  path: null,
  tool: "edit",
  label: 1,
  follow: true,
  edits: [],
  station: null,
  tour: null,
  online: true,
};

/** @type {{keys: Set<string>, listener: () => void}[]} */
const listeners = [];

/**
 * Calls the listener after any of these keys has changed.
 * @param {(keyof State)[]} keys
 * @param {() => void} listener
 */
export function on(keys, listener) {
  listeners.push({ keys: new Set(keys), listener });
}

/**
 * Changes keys and tells who shows them.
 * @param {Partial<State>} patch
 */
export function set(patch) {
  const changed = Object.keys(patch).filter((key) => /** @type {any} */ (state)[key] !== /** @type {any} */ (patch)[key]);
  if (!changed.length) return;
  Object.assign(state, patch);
  for (const { keys, listener } of listeners) {
    if (changed.some((key) => keys.has(key))) listener();
  }
}

/** Whether the chosen run is for the data as they are now. */
export function runIsCurrent() {
  return Boolean(state.run && state.data && state.run.data_version === state.data.version);
}

/** Whether a training, a search or an evaluation is under way. */
export function busy() {
  return state.job !== null;
}
