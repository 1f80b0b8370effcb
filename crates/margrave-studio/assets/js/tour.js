// The tour: pictures of the five papers, each on live code.

import { get, post } from "./api.js";
import { Chart, keys } from "./chart.js";
import { byId, fill, h } from "./dom.js";
import { number } from "./format.js";
import { tell } from "./message.js";
import { withoutViews } from "./refresh.js";
import { load, nextEnd, train } from "./session.js";
import { on, set, state } from "./store.js";
import { theme } from "./theme.js";

export function startTour() {
  byId("panel-tour").append(h("div", { class: "stations", id: "stations" }), h("div", { class: "prose", id: "station" }), h("div", { id: "path-box" }));
  on(["view"], enter);
  on(["tour", "station", "job"], show);
  on(["path"], pathChart);
}

async function enter() {
  if (state.view !== "tour") return;
  if (!state.tour) {
    try {
      set({ tour: await get("tour") });
    } catch (error) {
      tell(error);
      return;
    }
  }
  show();
}

/** @returns {any} */
function station() {
  return state.tour?.stations.find((/** @type {any} */ s) => s.id === state.station) ?? null;
}

function show() {
  if (state.view !== "tour" || !state.tour) return;
  const now = station();
  fill(byId("stations"), state.tour.stations.map((/** @type {any} */ s, /** @type {number} */ at) => h("button", { data: { station: s.id }, "aria-pressed": String(s === now), onclick: () => visit(s) }, `${at + 1}. ${s.title}`)));
  if (!now) {
    fill(byId("station"), h("p", null, "Margrave is based on five papers. Each station sets up the picture of one of them: data, kernel, loss and solver as there, on live code. Everything stays editable: drag a sample, move a slider, step on."), h("p", { class: "dim" }, "A station replaces the data on the plane; the browser's Back brings yours again."));
    return;
  }
  const all = state.tour.stations;
  const at = all.indexOf(now);
  fill(byId("station"), h("h2", null, now.title), h("p", { class: "small dim" }, now.paper), now.text.map((/** @type {string} */ p) => h("p", null, p)),
    h("div", { class: "group actions" }, now.actions.map((/** @type {any} */ a) => h("button", { class: "station-action", onclick: () => act(a) }, a.label))),
    h("div", { class: "group actions" }, at > 0 && h("button", { class: "plain", onclick: () => visit(all[at - 1]) }, "← before"), at + 1 < all.length && h("button", { class: "plain", id: "next-station", onclick: () => visit(all[at + 1]) }, "next →")));
}

/**
 * @param {any} s  Station
 * @param {boolean} [push]  Whether Back should lead to what was there before
 */
export async function visit(s, push = true) {
  try {
    if (push) history.pushState(null, "", location.hash);
    set({ station: s.id, path: null, edits: [], selected: null, row: null, range: null });
    await withoutViews(async () => {
      await load(s.source);
      set({ settings: complete(s.settings), plane: { axes: s.plane?.axes ?? (state.data.d === 1 ? "curve" : "features"), x: s.plane?.x ?? 0, y: s.plane?.y ?? 1, held: "mean", output: 0, size: s.id === "irwls" ? "weight" : "equal" }, follow: true });
    });
    const first = s.train ?? (s.actions.some((/** @type {any} */ a) => a.train?.mode === "step") ? { mode: "step", steps: 1 } : {});
    const end = nextEnd();
    await train({ start: "cold", ...first });
    // One thing at a time: the path would end the training.
    if (s.show?.[0] === "path") {
      await end;
      await askPath();
    }
  } catch (error) {
    tell(error);
  }
}

/** A station names what matters; the rest as usual. @param {any} settings */
function complete(settings) {
  const usual = { task: state.data.task, kernel: { name: "rbf", gamma: "scale", degree: 3, coef0: 0 }, loss: null, C: 1, lambda: null, epsilon: 0.1, nu: null, class_weight: null, scale: "none", solver: "auto", multiclass: null, bias: true, svdd: false, probability: false, anneal: 0, tol: null, gap: null, max_seconds: null, max_iter: null, seed: 0 };
  return { ...usual, ...settings, kernel: { ...usual.kernel, ...settings.kernel } };
}

function askPath() {
  return post(`sessions/${state.session}/path`, { settings: state.settings, lambdas: null }).catch(tell);
}

/** @param {any} action */
async function act(action) {
  if (action.path) {
    await askPath();
    return;
  }
  if (action.settings) {
    const { kernel, ...rest } = action.settings;
    // A cost replaces the λ that was chosen on the path.
    if (rest.C !== undefined) rest.lambda = null;
    set({ settings: { ...state.settings, ...rest, kernel: { ...state.settings.kernel, ...kernel } } });
  }
  await train(action.train ?? {});
}

/** A line at the best λ. */
function bestLine(/** @type {any} */ u, /** @type {import("./theme.js").Theme} */ t, /** @type {number} */ lambda) {
  const x = Math.round(u.valToPos(lambda, "x", true));
  const c = u.ctx;
  c.save();
  c.strokeStyle = t.dim;
  c.setLineDash([4, 4]);
  c.beginPath();
  c.moveTo(x, u.bbox.top);
  c.lineTo(x, u.bbox.top + u.bbox.height);
  c.stroke();
  c.restore();
}

/** Errors along the path. */
function pathChart() {
  const p = state.path;
  const box = byId("path-box");
  if (!p) return fill(box);
  const t = theme();
  const points = [...p.path].sort((a, b) => a.lambda - b.lambda);
  const chartBox = h("div", { class: "chart", id: "path-chart" });
  fill(box, h("section", null, h("div", { class: "head" }, h("h2", null, "Every λ from one decomposition")), keys([{ name: "leave-one-out error", colour: t.classes[1] }, { name: "training error", colour: t.classes[0], dash: "dash" }]), chartBox, h("p", { class: "small dim" }, `Best: λ = ${number(p.best.lambda, 3)}, leave-one-out error ${number(p.best.loo_mse)}. Click on the chart to train at a λ.`)));
  const chart = new Chart(chartBox, { height: 220, x: "λ", y: "mean square", logX: true, logY: true, lines: [{ name: "leave one out", colour: (c) => c.classes[1] }, { name: "training", colour: (c) => c.classes[0], dash: [5, 3] }], over: (u, c) => bestLine(u, c, p.best.lambda), onpick: (lambda) => {
    const far = (/** @type {any} */ point) => Math.abs(Math.log(point.lambda / lambda));
    const nearest = points.reduce((a, b) => (far(b) < far(a) ? b : a));
    set({ settings: { ...state.settings, loss: "square", C: nearest.C ?? 1 / nearest.lambda, lambda: null } });
    train();
  } });
  chart.set([points.map((v) => v.lambda), points.map((v) => v.loo_mse), points.map((v) => v.train_mse)]);
  return undefined;
}
