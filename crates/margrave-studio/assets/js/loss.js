// The loss seen four ways: value, slope, IRWLS weight and conjugate; its parameters; an expression of one's own.

import { post } from "./api.js";
import { Chart, keys } from "./chart.js";
import { byId, fill, h, latest } from "./dom.js";
import { number, plain } from "./format.js";
import { readNumber } from "./controls.js";
import { changeSettings } from "./session.js";
import { on, state } from "./store.js";
import { onTheme, theme } from "./theme.js";

/** @type {Chart} */
let shape;
/** @type {Chart} */
let conjugate;
/** @type {any} */
let answer = null;
let draft = "";

export function startLoss() {
  const above = h("div", { class: "chart", id: "loss-chart" });
  const below = h("div", { class: "chart" });
  const keyBox = h("div");
  byId("panel-loss").append(
    h("section", null, h("div", { class: "head" }, h("h2", { id: "loss-name" }, "Loss")), h("div", { id: "loss-parameters" }), keyBox, above, h("p", { class: "small dim", id: "loss-facts" })),
    h("section", null, h("div", { class: "head" }, h("h2", null, "Conjugate"), h("span", { class: "small dim", id: "loss-domain" })), below),
    h("section", null, h("h2", null, "Own expression"), h("p", { class: "small dim", id: "expression-help" }),
      h("textarea", { id: "expression", rows: 2, spellcheck: false, "aria-describedby": "expression-help", oninput: (/** @type {any} */ e) => tryDraft(e.target.value) }),
      h("p", { class: "small bad", id: "expression-error", role: "alert" }),
      h("div", { class: "group" }, h("button", { id: "use-expression", onclick: () => changeSettings({ loss: { expression: byId("expression").value } }) }, "Train with it"))),
  );
  shape = new Chart(above, { height: 220, x: "y·z", lines: [
    { name: "loss", colour: (t) => t.ink, width: 2 },
    { name: "slope", colour: (t) => t.classes[0], dash: [6, 3] },
    { name: "weight", colour: (t) => t.classes[1], dash: [2, 3] },
  ], over: mark });
  conjugate = new Chart(below, { height: 150, x: "u", lines: [{ name: "conjugate", colour: (t) => t.classes[2], width: 2 }] });
  const legend = () => {
    const t = theme();
    fill(keyBox, keys([{ name: "loss", colour: t.ink }, { name: "slope", colour: t.classes[0], dash: "dash" }, { name: "IRWLS weight", colour: t.classes[1], dash: "dots" }]));
  };
  legend();
  onTheme(legend);
  on(["settings", "hello", "view"], () => {
    if (state.view === "loss") update();
  });
  on(["row"], () => shape.redraw());
}

/** The loss that is drawn: the one of the settings, unless an expression is being typed. */
function current() {
  const s = state.settings;
  if (draft) return { expression: draft };
  if (s.loss) return s.loss;
  return s.task === "regress" ? `epsilon:epsilon=${s.epsilon ?? 0.1}` : "hinge";
}

/** @param {string} text */
function tryDraft(text) {
  draft = text.trim();
  update();
}

const update = latest(async () => {
  const s = state.settings;
  if (!s || !state.hello) return;
  const regress = s.task === "regress";
  fill(byId("expression-help"), `A function of ${regress ? "r = y − z" : "m = y·z"}, such as `, h("code", null, regress ? "sqrt(1 + r^2) - 1" : "log(1 + exp(-m))"), ". Its slope is computed exactly; if it is convex, the fit is proven as any other.");
  try {
    answer = await post("loss", { loss: current(), task: regress ? "regress" : "classify", y: regress ? 0 : 1, z: [-3, 3], points: 401, cap: 8 });
    byId("expression-error").textContent = "";
    byId("expression").setAttribute("aria-invalid", "false");
  } catch (error) {
    byId("expression-error").textContent = /** @type {Error} */ (error).message;
    byId("expression").setAttribute("aria-invalid", "true");
    return;
  }
  show(regress);
});

/** @param {boolean} regress */
function show(regress) {
  // For y = 1 the margin is z itself; for y = 0 the residual is −z.
  const x = regress ? answer.z.map((/** @type {number} */ z) => -z).reverse() : answer.z;
  const column = (/** @type {number[]} */ values, /** @type {number} */ sign = 1) => {
    const out = values.map((v) => (v === null ? null : sign * v));
    return regress ? out.reverse() : out;
  };
  const top = Math.max(2, ...answer.value.filter((/** @type {number} */ v) => v !== null && v < 8));
  shape.options.x = regress ? "residual y − z" : "margin y·z";
  shape.options.rangeY = [Math.max(-4, Math.min(-1.2, ...answer.slope.filter((/** @type {any} */ v) => v !== null).map((/** @type {number} */ v) => (regress ? -v : v)))), Math.min(top, 6)];
  shape.data = [x, column(answer.value), column(answer.slope, regress ? -1 : 1), column(answer.weight)];
  shape.remake();
  const name = answer.expression ?? answer.name;
  byId("loss-name").textContent = answer.expression ? `own: ${answer.expression}` : name;
  const p = answer.properties;
  fill(byId("loss-facts"), [
    p.convex ? "convex: a duality gap proves the fit" : "not convex: the fit is a stationary point",
    p.slope_bounded ? "bounded slope: a single sample has limited influence" : "unbounded slope: one outlier can pull without limit",
  ].join("; "), ".");
  byId("loss-domain").textContent = answer.conjugate ? `on [${bound(answer.domain[0], "−∞")}, ${bound(answer.domain[1], "∞")}]` : "none: the loss is not convex";
  if (answer.conjugate) conjugate.set([answer.u, answer.conjugate]);
  else conjugate.set([[0, 1], [null, null]]);
  parameters();
}

/** @param {number | null} value @param {string} infinite */
function bound(value, infinite) {
  return value === null ? infinite : number(value, 3);
}

/** Fields for the parameters of a built-in loss. */
function parameters() {
  const box = byId("loss-parameters");
  const loss = state.settings.loss ?? "";
  if (typeof loss !== "string" || draft) return fill(box);
  const [name, rest] = loss.split(":");
  const of = state.hello.losses.find((/** @type {any} */ l) => l.name === name);
  if (!of) return fill(box);
  if (box.contains(document.activeElement)) return undefined;
  const now = Object.fromEntries((rest ?? "").split(",").filter(Boolean).map((/** @type {string} */ pair) => pair.split("=")));
  return fill(box, h("p", { class: "small dim" }, of.about), of.parameters.map((/** @type {any} */ p) => {
    const input = h("input", { id: `parameter-${p.key}`, class: "number", value: plain(Number(now[p.key] ?? p.value), 6), title: p.range, onchange: () => {
      const v = readNumber(input.value);
      input.setAttribute("aria-invalid", String(v === null));
      if (v === null) return;
      const all = of.parameters.map((/** @type {any} */ q) => `${q.key}=${q.key === p.key ? v : now[q.key] ?? q.value}`).join(",");
      input.blur();
      changeSettings({ loss: `${name}:${all}`, ...(p.key === "epsilon" ? { epsilon: v } : {}) });
    } });
    return h("div", { class: "field" }, h("label", { htmlFor: input.id }, p.key, h("span", { class: "small dim" }, ` (${p.range})`)), input);
  }));
}

/** Where the chosen sample lies on the loss. */
function mark(/** @type {any} */ u, /** @type {import("./theme.js").Theme} */ t) {
  const at = state.row?.model?.margin;
  if (at === undefined || at === null || !answer) return;
  const x = u.valToPos(at, "x", true);
  if (!(x >= u.bbox.left && x <= u.bbox.left + u.bbox.width)) return;
  const c = u.ctx;
  const ratio = window.devicePixelRatio || 1;
  c.save();
  c.strokeStyle = t.accent;
  c.lineWidth = 2 * ratio;
  c.setLineDash([]);
  c.textAlign = "left";
  c.textBaseline = "alphabetic";
  c.beginPath();
  c.moveTo(x, u.bbox.top);
  c.lineTo(x, u.bbox.top + u.bbox.height);
  c.stroke();
  c.fillStyle = t.accent;
  c.font = `${11 * ratio}px Helvetica, Arial, sans-serif`;
  c.fillText(`row ${state.row.row + 1}`, x + 5 * ratio, u.bbox.top + 12 * ratio);
  c.restore();
}
