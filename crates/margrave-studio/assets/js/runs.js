// The last trainings side by side, with their certificates.

import { statusText } from "./bar.js";
import { byId, fill, h } from "./dom.js";
import { count, duration, number, percent, plain } from "./format.js";
import { showRun } from "./session.js";
import { on, state } from "./store.js";

/** Runs that are compared. @type {Set<number>} */
const compared = new Set();

export function startRuns() {
  byId("panel-runs").append(h("section", null, h("h2", null, "Trainings of this session"), h("p", { class: "small dim" }, "Choose one to see it again; mark several to compare them."), h("div", { class: "wide", id: "runs-table" })), h("section", { id: "runs-compared" }));
  on(["runs", "run", "view"], () => {
    if (state.view === "runs") show();
  });
}

function show() {
  const runs = state.runs.filter((r) => r.certificate || r.status === "running").slice(0, 60);
  fill(byId("runs-table"), h("table", null,
    h("thead", null, h("tr", null, ["", "run", "what", "relative gap", "vectors", "error", "time"].map((name, at) => h("th", { class: at > 2 || at === 1 ? "n" : "" }, name)))),
    h("tbody", null, runs.map(line))));
  compare(runs.filter((r) => compared.has(r.run)));
}

/** @param {any} run */
function line(run) {
  const pick = () => run.kept !== false && showRun(run);
  const s = run.summary;
  return h("tr", { class: run.kept === false ? "" : "pick", tabIndex: run.kept === false ? -1 : 0, data: { run: run.run }, "aria-selected": String(state.run?.run === run.run), onclick: pick, onkeydown: (/** @type {KeyboardEvent} */ e) => {
    if (e.key === "Enter" && e.target === e.currentTarget) pick();
  } },
    h("td", null, h("input", { type: "checkbox", "aria-label": `Compare run ${run.run}`, checked: compared.has(run.run), onclick: (/** @type {Event} */ e) => e.stopPropagation(), onchange: (/** @type {any} */ e) => {
      if (e.target.checked) compared.add(run.run);
      else compared.delete(run.run);
      show();
    } })),
    h("td", { class: "n" }, run.run), h("td", null, brief(run)),
    h("td", { class: `n ${run.status === "optimal" ? "good" : "bad"}`, title: statusText(run.status) }, number(run.certificate?.relative_gap, 2)),
    h("td", { class: "n" }, s ? count(s.support_vectors) : "–"), h("td", { class: "n" }, errorOf(run)), h("td", { class: "n" }, duration(s?.seconds?.train)));
}

/** @param {any} run */
function errorOf(run) {
  const e = run.summary?.train_error;
  return e === undefined || e === null ? "–" : run.settings.task === "regress" ? number(e, 3) : percent(e, 3);
}

/** @param {any} run */
function brief(run) {
  const s = run.settings;
  const loss = typeof s.loss === "string" ? s.loss : s.loss?.expression ? "own" : "";
  const gamma = typeof s.kernel.gamma === "number" ? `γ ${plain(s.kernel.gamma, 3)}` : s.kernel.name === "linear" ? "" : `γ ${s.kernel.gamma}`;
  const cost = s.nu !== null && s.nu !== undefined ? `ν ${plain(s.nu, 3)}` : `C ${plain(s.C, 3)}`;
  return [s.kernel.name, loss, cost, gamma].filter(Boolean).join(", ");
}

/** @param {any[]} runs */
function compare(runs) {
  const box = byId("runs-compared");
  if (runs.length < 2) return fill(box);
  const some = runs.slice(0, 6);
  /** @type {[string, (r: any) => string][]} */
  const fields = [
    ["data", (r) => `${r.data} (version ${r.data_version})`],
    ["status", (r) => statusText(r.status)],
    ["primal", (r) => number(r.certificate?.primal ?? r.certificate?.objective, 10)],
    ["dual", (r) => number(r.certificate?.dual, 10)],
    ["relative gap", (r) => number(r.certificate?.relative_gap, 3)],
    ["violation", (r) => number(r.certificate?.violation, 3)],
    ["support vectors", (r) => count(r.summary?.support_vectors)],
    ["bounded", (r) => count(r.summary?.bounded)],
    ["training error", errorOf],
    ["iterations", (r) => count(r.summary?.iterations)],
    ["kernel entries", (r) => count(r.summary?.kernel_entries)],
    ["time", (r) => duration(r.summary?.seconds?.train)],
    ["solver", (r) => r.summary?.solver ?? "–"],
    ["kernel", (r) => `${r.settings.kernel.name}${r.summary?.kernel?.gamma === undefined ? "" : `, γ ${number(r.summary.kernel.gamma, 3)}`}`],
    ["loss", (r) => (typeof r.settings.loss === "string" ? r.settings.loss : r.settings.loss?.expression ?? "usual")],
    ["C", (r) => number(r.settings.C, 4)],
    ["ν", (r) => number(r.settings.nu, 3)],
    ["scaling", (r) => r.settings.scale],
  ];
  return fill(box, h("div", { class: "head" }, h("h2", null, "Side by side")), h("div", { class: "wide" }, h("table", { id: "comparison" }, h("thead", null, h("tr", null, h("th"), some.map((r) => h("th", { class: "n" }, `run ${r.run}`)))),
    h("tbody", null, fields.map(([name, of]) => {
      const values = some.map(of);
      return h("tr", { class: new Set(values).size > 1 ? "differs" : "" }, h("th", null, name), values.map((v) => h("td", { class: "n" }, v)));
    })))));
}
