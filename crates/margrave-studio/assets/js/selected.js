// The chosen sample: its row, its place in the model, what can be done with it.

import { byId, fill, h, select } from "./dom.js";
import { edit, whyNot } from "./edit.js";
import { number, percent } from "./format.js";
import { refreshPlane } from "./refresh.js";
import { choose } from "./session.js";
import { on, set, state } from "./store.js";

export function startSelected() {
  on(["row", "selected", "data"], show);
}

function show() {
  const { row, selected, data } = state;
  const box = byId("selected");
  box.hidden = selected === null;
  if (selected === null || !data) return;
  if (!row) return fill(box, h("h2", null, `Row ${selected + 1}`));
  const m = row.model;
  /** @type {[string, string][]} */
  const facts = [];
  if (m) {
    facts.push(["predicted", data.task === "regress" ? number(Number(m.prediction)) : m.prediction], ["score", m.score.map((/** @type {number} */ v) => number(v)).join(", ")]);
    if (m.margin !== null && m.margin !== undefined) facts.push([data.task === "regress" ? "residual" : "margin", number(m.margin)]);
    if (m.loss !== null && m.loss !== undefined) facts.push(["loss", number(m.loss)]);
    facts.push(["β", m.beta.map((/** @type {number} */ v) => number(v)).join(", ")], ["kind", kindName(m.kind)]);
    if (m.irwls_weight !== null && m.irwls_weight !== undefined) facts.push(["IRWLS weight", number(m.irwls_weight)]);
    if (m.gap_share !== null && m.gap_share !== undefined) facts.push(["share of the gap", percent(m.gap_share)]);
    if (m.cost !== null && m.cost !== undefined) facts.push(["cost", number(m.cost)]);
  }
  const hold = `row:${row.row}`;
  const editable = whyNot() === null;
  return fill(box,
    h("div", { class: "head" }, h("h2", null, `Row ${row.row + 1}, ${data.task === "regress" ? "target" : "class"} ${row.target ?? "none"}`),
      h("div", { class: "group" },
        data.classes && editable && select({ label: "Class of this sample", id: "relabel", value: String(row.class), options: data.classes.map((/** @type {any} */ c, /** @type {number} */ at) => ({ value: String(at), name: `class ${c.label}` })), onchange: (v) => edit([{ op: "label", row: row.row, label: Number(v) }]) }),
        data.d > 2 && h("button", { id: "hold", "aria-pressed": String(state.plane.held === hold), title: "The plane passes through this sample", onclick: () => {
          set({ plane: { ...state.plane, held: state.plane.held === hold ? "mean" : hold } });
          refreshPlane();
          show();
        } }, "Slice here"),
        editable && h("button", { id: "delete-row", onclick: () => edit([{ op: "delete", rows: [row.row] }]) }, "Delete"),
        h("button", { class: "plain", "aria-label": "Choose no sample", onclick: () => choose(null) }, "✕"))),
    h("dl", { class: "row-values" }, facts.map(([k, v]) => h("div", null, h("dt", null, k), h("dd", null, v)))),
    h("dl", { class: "row-values" }, row.features.map((/** @type {any} */ x) => h("div", null, h("dt", { title: x.name }, x.name), h("dd", null, number(x.value))))),
    row.d > row.features.length && h("p", { class: "small dim" }, `The ${row.features.length} largest of ${row.d} features.`));
}

/** @param {string} kind */
function kindName(kind) {
  return { free: "free support vector", bounded: "bounded support vector", none: "no support vector" }[kind] ?? kind;
}
