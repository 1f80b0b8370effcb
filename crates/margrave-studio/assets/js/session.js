// The session with the program: opening data, following events, trainings.

import { ApiError, get, listen, post, upload } from "./api.js";
import { clearMessage, tell } from "./message.js";
import { refreshPlane, refreshRow, refreshRun, refreshTrace } from "./refresh.js";
import { set, state } from "./store.js";

const KEY = "margrave-session";
/** Larger data sets are trained when asked, not at once. */
const TRAIN_AT_ONCE = 5000;

/** @type {() => void} */
let stopListening = () => {};
/** @type {{resolve: () => void, reject: (error: Error) => void} | null} */
let arriving = null;

/**
 * Opens a session on this source, or goes on with the one this tab had if it is still for the same data.
 * @param {any} source  null: what the command line named
 * @param {string} name  of source and edits, as in the link
 * @returns {Promise<boolean>} whether an existing session was taken up again
 */
export async function open(source, name) {
  const [had, of] = (sessionStorage.getItem(KEY) ?? "").split("|");
  if (had && of === name) {
    try {
      const found = await get(`sessions/${had}`);
      if (found.data) {
        enter(found);
        return true;
      }
    } catch {
      // It is no longer kept: a new one.
    }
  }
  if (source?.upload) throw new ApiError("upload", `This link was made with the file “${source.upload}”, which stays on the computer it was chosen on.`, "Choose the file again.");
  const made = await post("sessions", source ? { source } : {});
  enter(made);
  if (!state.data) await arrival(made);
  return false;
}

/**
 * Remembers which data the session is for, so that a reload finds it again.
 * @param {string} name
 */
export function keepName(name) {
  if (state.session) sessionStorage.setItem(KEY, `${state.session}|${name}`);
}

/** @param {any} found  STATE */
function enter(found) {
  stopListening();
  const run = found.runs.find((/** @type {any} */ r) => r.run === found.current) ?? null;
  set({ session: found.session, data: found.data, settings: found.settings, job: found.job, runs: found.runs, run, loading: found.loading?.name ?? null });
  stopListening = listen(found.session, onEvent, (online) => set({ online }));
}

/**
 * Waits until data that are being read have arrived.
 * @param {any} [now]
 */
function arrival(now) {
  if (now?.failed) return Promise.reject(new ApiError(now.failed.code, now.failed.message, now.failed.hint));
  if (now && !now.loading && !now.data) return Promise.resolve();
  return /** @type {Promise<void>} */ (new Promise((resolve, reject) => {
    arriving = { resolve, reject };
  }));
}

/**
 * Reads other data into the session.
 * @param {any} source
 * @param {any} [options]
 */
export async function load(source, options) {
  const ready = arrival();
  await post(`sessions/${state.session}/data`, { source, options }).catch(failLoad);
  await ready;
}

/**
 * @param {File} file
 * @param {Record<string, string>} options
 */
export async function loadFile(file, options) {
  const limit = state.hello.limits.upload_bytes;
  if (file.size > limit) throw new ApiError("too_large", `“${file.name}” is larger than ${limit >> 20} MiB.`, "Start `margrave studio FILE` to open it without uploading.");
  const ready = arrival();
  const query = new URLSearchParams({ name: file.name, ...options });
  await upload(`sessions/${state.session}/upload?${query}`, file).catch(failLoad);
  await ready;
}

/** @param {Error} error */
function failLoad(error) {
  arriving?.reject(error);
  arriving = null;
}

/** After data have arrived: the usual settings, a picture, and a training if it is quick. */
export async function begin() {
  const data = state.data;
  if (!data) return;
  set({ follow: data.n <= TRAIN_AT_ONCE });
  if (state.follow && data.n >= 2) await train();
  else refreshPlane();
}

/**
 * Trains with the settings on the screen.
 * @param {{mode?: string, start?: any, steps?: number, run?: number}} [how]
 * @returns {Promise<boolean>} whether it has been accepted; its end is an event
 */
export async function train(how = {}) {
  if (!state.data) return false;
  asking += 1;
  const body = { settings: state.settings, mode: "play", ...how };
  // From a model the first iteration of IRWLS only finds the weights again.
  if (body.mode === "step" && state.settings.solver === "irwls") body.steps = Math.max(2, body.steps ?? 1);
  try {
    // That it has begun is told by an event, which may come before this answer.
    newest = (await post(`sessions/${state.session}/train`, body)).run;
    clearMessage();
    return true;
  } catch (error) {
    refreshPlane();
    tell(error);
    return false;
  } finally {
    asking -= 1;
  }
}

/** Requests to train that are not answered yet, and the newest run that is known. */
let asking = 0;
let newest = 0;

/** Whether a run was ended only because a newer one was asked for: nobody wants to see it. */
function superseded(/** @type {any} */ run) {
  return run.status === "interrupted" && (asking > 0 || run.run < newest);
}

/** Those who wait for the end of a training. @type {(() => void)[]} */
let waiting = [];

/** Resolves when a training ends, well or not. */
export function nextEnd() {
  return /** @type {Promise<void>} */ (new Promise((resolve) => waiting.push(resolve)));
}

/** Least milliseconds between two pictures of a training that is watched. */
const FRAME = 70;

/** Trains from zero in steps that grow, so that the boundary can be seen to move and still arrives. */
export async function watch() {
  set({ watching: true });
  // There is no run 0: a new one begins.
  let how = /** @type {any} */ ({ run: 0, start: "cold" });
  try {
    for (let frame = 0; state.watching; frame += 1) {
      const from = performance.now();
      const end = nextEnd();
      if (!(await train({ mode: "step", steps: Math.max(1, Math.floor(1.06 ** frame - 1)), ...how }))) return;
      await end;
      await refreshPlane();
      how = {};
      if (state.run?.status !== "iteration_limit") return;
      await new Promise((done) => setTimeout(done, Math.max(0, from + FRAME - performance.now())));
    }
  } finally {
    set({ watching: false });
  }
}

export async function stop() {
  set({ watching: false });
  if (!state.job) return;
  await post(`sessions/${state.session}/stop`).catch(tell);
}

/**
 * Changes settings; trains if the page follows changes.
 * @param {any} patch
 */
export function changeSettings(patch) {
  set({ settings: { ...state.settings, ...patch } });
  if (state.follow) train();
}

/**
 * Shows another run, with its settings.
 * @param {any} run
 */
export function showRun(run) {
  set({ run, settings: run.settings, evaluation: null });
  refreshRun();
}

/** @param {any} event */
function onEvent(event) {
  handlers[event.type]?.(event);
}

/** @type {Record<string, (event: any) => void>} */
const handlers = {
  state: ({ state: now }) => {
    set({ data: now.data, job: now.job, runs: now.runs, loading: now.loading?.name ?? null });
    const run = now.runs.find((/** @type {any} */ r) => r.run === now.current);
    if (run) set({ run });
    if (now.data && arriving) {
      arriving.resolve();
      arriving = null;
    }
    refreshRun();
  },
  loading: ({ name }) => set({ loading: name }),
  data: ({ data }) => {
    const fresh = data.name !== state.data?.name || arriving !== null;
    set({ data, loading: null });
    if (state.job?.kind === "load") set({ job: null });
    if (!fresh) return;
    set({ run: null, evaluation: null, tune: null, path: null, range: null, margins: null, trace: null });
    arriving?.resolve();
    arriving = null;
  },
  failed: ({ what, error }) => {
    const failure = new ApiError(error.code, error.message, error.hint);
    set({ job: null, loading: null, watching: false });
    for (const resolve of waiting.splice(0)) resolve();
    if (what === "load" && arriving) {
      arriving.reject(failure);
      arriving = null;
      return;
    }
    tell(failure);
  },
  begin: ({ run, mode }) => set({ job: { kind: "train", run, mode, phase: "", iteration: 0, seconds: 0 } }),
  steps: ({ run, steps }) => {
    const last = steps.at(-1);
    if (last && state.job) set({ job: { ...state.job, run, ...last } });
    refreshTrace();
  },
  model: ({ run, model_version, certificate, final }) => {
    // The last model comes with the end of the training.
    if (final) return;
    const known = state.run?.run === run ? state.run : { run, settings: state.settings, data_version: state.data.version, kept: true, summary: null };
    set({ run: { ...known, status: "running", model_version, certificate } });
    refreshPlane();
    refreshTrace();
  },
  done: ({ run }) => {
    if (!state.job || state.job.run === run.run || state.job.kind !== "train") set({ job: null });
    const runs = [run, ...state.runs.filter((r) => r.run !== run.run)].slice(0, 200);
    if (run.status === "failed") {
      set({ runs });
      if (run.error) tell(new ApiError(run.error.code, run.error.message, run.error.hint));
    } else if (superseded(run)) set({ runs });
    else {
      set({ runs, run, evaluation: null });
      refreshRun();
    }
    for (const resolve of waiting.splice(0)) resolve();
    // Counts trainings that have ended, for whoever waits for one from outside.
    document.documentElement.dataset.trained = String(Number(document.documentElement.dataset.trained ?? 0) + 1);
  },
  cell: ({ cell, tune, done, total }) => {
    if (!state.tune || (state.tune.tune ?? tune) !== tune) return;
    const cells = state.tune.cells.filter((/** @type {any} */ c) => c.x !== cell.x || c.y !== cell.y);
    set({ tune: { ...state.tune, tune, cells: [...cells, cell], done, total } });
  },
  tuned: async () => {
    set({ job: null });
    set({ tune: await get(`sessions/${state.session}/tune`).catch(() => state.tune) });
  },
  evaluated: async ({ run }) => {
    set({ job: null });
    if (run === state.run?.run) set({ evaluation: await get(`sessions/${state.session}/runs/${run}/evaluation`).catch(() => null) });
  },
  path: async () => {
    set({ job: null, path: await get(`sessions/${state.session}/path`).catch(() => null) });
  },
  closing: () => tell(new Error("The program has ended. Start `margrave studio` again and open the address it prints.")),
  gone: () => tell(new Error("This session is no longer kept by the program. Reload the page to open its data again.")),
};

/**
 * Chooses a sample everywhere on the page.
 * @param {number | null} row
 */
export function choose(row) {
  set({ selected: row, row: row === null ? null : state.row?.row === row ? state.row : null });
  if (row !== null) refreshRow();
}
