// Views of the run that is shown, fetched when they have become old and only while somebody can see them.

import { ApiError, arrays, get } from "./api.js";
import { latest } from "./dom.js";
import { tell } from "./message.js";
import { runIsCurrent, set, state } from "./store.js";

/** Least milliseconds between two traces of a training that runs. */
const TRACE_EVERY = 150;

/** @param {unknown} error */
function unlessGone(error) {
  // A newer run or data set makes an answer obsolete; the next one is on its way.
  if (error instanceof ApiError && ["gone", "not_found", "no_model", "no_data", "busy"].includes(error.code)) return;
  tell(error);
}

/** How many replacements of the data are under way, views being fetched, and who waits for the last of these. */
let replacing = 0;
let fetching = 0;
/** @type {(() => void)[]} */
let waiting = [];

/** @param {number} more */
function countFetching(more) {
  fetching += more;
  // For whoever waits from outside until what is shown is that of the run.
  document.documentElement.dataset.fetching = String(fetching);
}

/**
 * A view that is fetched again on request, one request at a time.
 * @template {any[]} T
 * @param {(...args: T) => Promise<void>} work
 */
function view(work) {
  return latest(async (/** @type {T} */ ...args) => {
    if (replacing) return;
    countFetching(1);
    try {
      await work(...args);
    } finally {
      countFetching(-1);
      if (!fetching) for (const resolve of waiting.splice(0)) resolve();
    }
  });
}

/**
 * Replaces the data while no view is fetched: axes, rows and runs of the old data may not exist in the new.
 * @param {() => Promise<void>} replace
 */
export async function withoutViews(replace) {
  replacing += 1;
  try {
    if (fetching) await /** @type {Promise<void>} */ (new Promise((resolve) => waiting.push(resolve)));
    await replace();
  } finally {
    replacing -= 1;
    refreshPlane();
    refreshRow();
  }
}

/** Cells of the grid at rest, and while pictures follow each other: a slider that is dragged wants them at once. */
const FINE = [128, 112];
const COARSE = [64, 56];
/** Milliseconds without another picture after which the last one is made fine. */
const REST = 300;
let asked = -Infinity;
let resting = 0;

/** The plane: grid, boundary, samples. */
export function refreshPlane() {
  const now = performance.now();
  const cells = now - asked < REST ? COARSE : FINE;
  asked = now;
  clearTimeout(resting);
  if (cells === COARSE) resting = window.setTimeout(refreshPlane, REST + 50);
  return fetchPlane(cells);
}

const fetchPlane = view(async (/** @type {number[]} */ [nx, ny]) => {
  const { data, session, plane, run, selected } = state;
  if (!data || !session) return;
  const query = new URLSearchParams({ axes: plane.axes, nx: String(nx), ny: String(ny), output: String(plane.output) });
  const curve = plane.axes === "curve";
  if (plane.axes !== "kpca") {
    query.set("x", String(plane.x));
    query.set("y", String(curve ? plane.x : plane.y));
    query.set("held", plane.held);
  }
  if (curve) {
    // One feature on both axes: the grid is the fitted curve, many times over.
    query.set("axes", "features");
    query.set("nx", "8");
    query.set("ny", "256");
  }
  if (run && runIsCurrent() && run.kept !== false && run.model_version > 0) query.set("run", String(run.run));
  else query.set("grid", "0");
  if (selected !== null && selected < data.n) query.set("select", String(selected));
  const ends = curve && plane.window ? [plane.window[0], plane.window[1], plane.window[0], plane.window[1]] : plane.window;
  ends?.forEach((v, k) => query.set(["x0", "x1", "y0", "y1"][k], String(v)));
  try {
    const picture = await arrays(`sessions/${session}/plane?${query}`);
    if (session === state.session) set({ picture: curve ? asCurve(picture, plane.window ?? null) : picture });
  } catch (error) {
    unlessGone(error);
  }
});

/**
 * A picture of one feature against the target, from one of that feature on both axes.
 * @param {any} picture
 * @param {number[] | null} window
 */
function asCurve(picture, window) {
  const { grid, ...rest } = picture.arrays;
  const { nx, ny } = picture;
  // The later of the two coordinates counts; the value is the same all along the other.
  const upward = grid && grid[0] !== grid[nx * (ny - 1)];
  const curve = grid && Float32Array.from({ length: upward ? ny : nx }, (_, k) => grid[upward ? k * nx : k]);
  const tube = state.run?.summary?.tube ?? (/(^|-)epsilon/.test(state.run?.summary?.loss ?? "") ? state.run.settings.epsilon : null);
  const ends = [rest.target, curve ?? []].flatMap((values) => [...values]).filter(Number.isFinite);
  const [low, high] = ends.length ? [Math.min(...ends), Math.max(...ends)] : [0, 1];
  const air = 0.08 * (high - low) || 1;
  return {
    ...picture,
    axes: "curve",
    tube,
    window: window ?? [picture.window[2], picture.window[3], low - air, high + air],
    arrays: { ...rest, ...(curve ? { curve } : {}), py: rest.target },
  };
}

let traced = 0;

/** The bracket. */
export const refreshTrace = view(async () => {
  const run = state.job?.kind === "train" && state.job.run !== null ? state.job.run : state.run?.run;
  if (run === undefined || !state.session) return;
  const wait = traced + TRACE_EVERY - performance.now();
  if (state.job && wait > 0) await new Promise((done) => setTimeout(done, wait));
  traced = performance.now();
  try {
    set({ trace: await arrays(`sessions/${state.session}/runs/${run}/trace?points=2000`) });
  } catch (error) {
    unlessGone(error);
  }
});

/** The histogram and the worst samples. */
export const refreshMargins = view(async () => {
  const { run, session } = state;
  if (!run || !runIsCurrent() || run.kept === false || !run.model_version) return;
  try {
    set({ margins: await get(`sessions/${session}/runs/${run.run}/margins?bins=60`) });
  } catch (error) {
    unlessGone(error);
  }
});

/** The chosen sample. */
export const refreshRow = view(async () => {
  const { selected, session, run } = state;
  if (selected === null || !state.data || selected >= state.data.n) return;
  const of = run && runIsCurrent() ? `?run=${run.run}` : "";
  try {
    const row = await get(`sessions/${session}/rows/${selected}${of}`);
    if (row.row === state.selected) set({ row });
  } catch (error) {
    unlessGone(error);
  }
});

let later = 0;

/**
 * Everything that shows the run, after a training has ended or another run was chosen: the plane at once, the rest when it
 * is there, and only after a moment of rest if trainings follow each other.
 */
export async function refreshRun() {
  const quick = performance.now() - asked < REST;
  clearTimeout(later);
  await refreshPlane();
  clearTimeout(later);
  later = window.setTimeout(() => {
    refreshTrace();
    refreshMargins();
    refreshRow();
  }, quick ? 120 : 0);
}
