// The bar: data, transport, menus. And what is proven, in one sentence.

import { byId, fill, h } from "./dom.js";
import { count, duration, number, percent } from "./format.js";
import { stop, train, watch } from "./session.js";
import { busy, on, runIsCurrent, state } from "./store.js";

export function startBar() {
  makeTransport();
  on(["data", "job", "run", "watching"], transport);
  on(["data", "loading", "edits"], dataName);
  on(["run", "job", "data", "online"], verdict);
}

function dataName() {
  const { data, loading, edits } = state;
  const button = byId("data-button");
  if (loading) return fill(button, `Reading ${loading} …`);
  if (!data) return fill(button, "Data …");
  return fill(button, h("b", null, data.name), ` · ${count(data.n)} × ${data.d}`, edits.length ? " · edited" : "", " ▾");
}

/** Play, watch, step, stop, resume, polish. Made once: a button that is replaced while it is pressed is never clicked. */
function makeTransport() {
  const buttons = [
    { id: "play", name: "▶ Train", title: "Train from the model before", act: () => train() },
    { id: "watch", name: "Watch", title: "Train from zero, slowly enough to see it", act: watch },
    { id: "step", name: "Step", title: "One iteration of the solver", act: () => train({ mode: "step", steps: 1 }) },
    { id: "stop", name: "■ Stop", title: "Stop and keep the best model", act: stop },
    { id: "resume", name: "Resume", title: "Go on to the end", act: () => train({ mode: "resume" }) },
    { id: "polish", name: "Polish", title: "Go on to a relative gap of 1e−9", act: () => train({ mode: "polish" }) },
    { id: "restart", name: "From zero", title: "Train without the model before", act: () => train({ start: "cold" }) },
  ];
  fill(byId("transport"), buttons.map((b) => h("button", { id: b.id, class: b.id === "play" ? "main" : "", title: b.title, disabled: true, onclick: b.act }, b.name)), h("span", { class: "dim small", id: "progress" }));
}

function transport() {
  const { run, data, job, watching } = state;
  const running = busy() || watching;
  const ready = Boolean(data && data.n > 1) && !running;
  const open = ready && runIsCurrent() && ["interrupted", "iteration_limit", "time_limit", "stalled"].includes(run?.status);
  const gap = run?.certificate?.relative_gap;
  const polish = ready && runIsCurrent() && gap !== undefined && gap !== null && gap > 1e-9;
  const possible = /** @type {Record<string, boolean>} */ ({ play: ready, watch: ready, step: ready, stop: running, resume: open, polish, restart: ready });
  for (const [id, on] of Object.entries(possible)) byId(id).disabled = !on;
  byId("progress").textContent = job ? progress(job) : "";
}

/** @param {any} job */
function progress(job) {
  const parts = [job.kind === "train" ? job.phase || "training" : job.kind];
  if (job.iteration) parts.push(`${count(job.iteration)} iterations`);
  if (job.seconds) parts.push(duration(job.seconds));
  if (job.fraction) parts.push(percent(job.fraction, 2));
  return parts.join(", ");
}

/** The certificate in a sentence, and its numbers as `verify` prints them. */
function verdict() {
  const { run, data } = state;
  const line = byId("verdict");
  const box = byId("numbers");
  if (!state.online) {
    fill(line, h("b", { class: "bad" }, "The program does not answer."), " Waiting for it …");
    return;
  }
  if (!run?.certificate) {
    fill(line, data ? (state.job?.kind === "train" ? "Training …" : data.n < 2 ? "Click on the plane to add samples of two classes." : "Not trained yet.") : "");
    fill(box);
    return;
  }
  const c = run.certificate;
  const s = run.summary;
  line.dataset.status = run.status;
  if (c.relative_gap === undefined || c.relative_gap === null) {
    fill(line, h("b", null, "A stationary point."), " This loss is not convex, so no gap can prove it optimal.");
  } else {
    const fine = run.status === "optimal";
    fill(line, h("b", { class: fine ? "good" : "bad" }, `Within ${number(c.relative_gap, 3)} of optimal`), ` (${statusText(run.status)})`, !runIsCurrent() && h("span", { class: "dim" }, ", before the last edit"));
  }
  const facts = numbersOf(c, s);
  fill(byId("cautions"), [...(data?.notes ?? []), ...(s?.cautions ?? [])].map((text) => h("p", null, text)));
  fill(box, facts.map(([name, value, raw]) => h("div", null, h("dt", null, name), h("dd", { data: { key: name, value: raw } }, value))));
}

/** @param {string} status */
export function statusText(status) {
  return status === "optimal" ? "proven optimal" : status.replaceAll("_", " ");
}

/**
 * @param {any} c
 * @param {any} s
 * @returns {[string, string, any][]}
 */
function numbersOf(c, s) {
  /** @type {[string, string, any][]} */
  const out = [];
  const put = (/** @type {string} */ name, /** @type {any} */ value, /** @type {number} */ digits) => {
    if (value !== undefined && value !== null) out.push([name, number(value, digits), value]);
  };
  put("primal", c.primal, 10);
  put("dual", c.dual, 10);
  put("gap", c.gap, 3);
  put("objective", c.objective, 10);
  put("stationarity", c.stationarity, 3);
  put("violation", c.violation, 3);
  if (s) {
    out.push(["support vectors", `${count(s.support_vectors)}${s.bounded === null || s.bounded === undefined ? "" : `, ${count(s.bounded)} bounded`}`, s.support_vectors]);
    if (s.train_error !== null && s.train_error !== undefined) out.push(["training error", state.settings.task === "regress" ? number(s.train_error) : percent(s.train_error), s.train_error]);
    out.push(["iterations", count(s.iterations), s.iterations]);
    out.push(["seconds", duration(s.seconds?.train), s.seconds?.train]);
  }
  return out;
}
