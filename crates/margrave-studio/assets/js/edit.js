// Edits of the data: sent in order, one request at a time, and written down for the link.

import { ApiError, get, post } from "./api.js";
import { tell } from "./message.js";
import { refreshPlane } from "./refresh.js";
import { choose, train } from "./session.js";
import { set, state } from "./store.js";

/** @typedef {{op: "add", at: number[], label?: number, target?: number} | {op: "move", row: number, to: number[]}
 *   | {op: "label", row: number, label: number} | {op: "value", row: number, target: number} | {op: "delete", rows: number[]}} Op */

/** @type {Op[]} */
let waiting = [];
let sending = false;

/** Why the data cannot be edited here, or null. */
export function whyNot() {
  if (!state.data) return "There are no data yet.";
  if (!state.data.editable) return `Data of more than ${state.hello.limits.editable_rows} rows are not edited here.`;
  if (state.plane.axes === "kpca") return "Samples are edited on features; choose two of them as axes.";
  return null;
}

/**
 * @param {Op[]} ops
 */
export async function edit(ops) {
  // A drag asks faster than anybody answers: of moves of one sample only the last counts.
  for (const op of ops) {
    for (let last = waiting.at(-1); (op.op === "move" || (op.op === "value" && last?.op === "value")) && (last?.op === "move" || last?.op === "value") && last.row === op.row; last = waiting.at(-1)) waiting.pop();
    waiting.push(op);
  }
  if (sending) return;
  sending = true;
  try {
    while (waiting.length) {
      const now = waiting.slice(0, 2000);
      waiting = waiting.slice(now.length);
      await send(now);
      if (state.data.n < 2) refreshPlane();
      else if (state.follow) await train();
      else refreshPlane();
    }
  } catch (error) {
    waiting = [];
    tell(error);
    refreshPlane();
  } finally {
    sending = false;
  }
}

/** @param {Op[]} ops */
async function send(ops) {
  const { x, y, held, axes } = state.plane;
  // On the curve of a single feature both coordinates are that feature; the target is set by itself.
  const second = axes === "curve" ? (state.data.d === 1 ? x : otherThan(x)) : y;
  const body = { x, y: second, held: heldBody(held), ops };
  const ask = () => post(`sessions/${state.session}/edit`, { version: state.data.version, ...body });
  let data;
  try {
    data = await ask();
  } catch (error) {
    if (!(error instanceof ApiError) || error.code !== "busy") throw error;
    // Another tab has changed the data: once more on what they are now.
    set({ data: (await get(`sessions/${state.session}`)).data });
    data = await ask();
  }
  const deleted = ops.flatMap((op) => (op.op === "delete" ? op.rows : []));
  set({ data, edits: logged(state.edits, `p${x},${second},${held}`, ops) });
  if (deleted.length && state.selected !== null) choose(null);
}

/** A second feature, for edits that set none. @param {number} x */
function otherThan(x) {
  return x === 0 ? 1 : 0;
}

/** @param {string} held */
function heldBody(held) {
  return held.startsWith("row:") ? { row: Number(held.slice(4)) } : { mean: true };
}

/**
 * @param {string[]} log
 * @param {string} where
 * @param {Op[]} ops
 */
function logged(log, where, ops) {
  const out = [...log];
  const last = out.findLast((entry) => entry.startsWith("p"));
  if (last !== where) out.push(where);
  for (const op of ops) {
    const text = entry(op);
    // Where a sample went on the way does not matter.
    while ((op.op === "move" && out.at(-1)?.startsWith(`m${op.row},`)) || ((op.op === "move" || op.op === "value") && out.at(-1)?.startsWith(`v${op.row},`))) out.pop();
    out.push(text);
  }
  return out;
}

/** @param {Op} op */
function entry(op) {
  switch (op.op) {
    case "add":
      return `a${op.at.join(",")},${op.label ?? `t${op.target}`}`;
    case "move":
      return `m${op.row},${op.to.join(",")}`;
    case "label":
      return `l${op.row},${op.label}`;
    case "value":
      return `v${op.row},${op.target}`;
    case "delete":
      return `d${op.rows.join(".")}`;
  }
}

/**
 * Does again what a link says was done.
 * @param {string[]} log
 */
export async function replay(log) {
  /** @type {{x: number, y: number, held: any}} */
  let where = { x: 0, y: 1, held: { mean: true } };
  /** @type {Op[]} */
  let ops = [];
  const flush = async () => {
    if (!ops.length) return;
    const data = await post(`sessions/${state.session}/edit`, { version: state.data.version, ...where, ops });
    set({ data });
    ops = [];
  };
  for (const text of log) {
    const fields = text.slice(1).split(",");
    if (text[0] === "p") {
      await flush();
      where = { x: Number(fields[0]), y: Number(fields[1]), held: heldBody(fields[2]) };
      continue;
    }
    const op = parse(text[0], fields);
    if (op) ops.push(op);
  }
  await flush();
  set({ edits: log });
}

/**
 * @param {string} kind
 * @param {string[]} fields
 * @returns {Op | null}
 */
function parse(kind, fields) {
  const target = fields.at(-1)?.startsWith("t") ? Number(fields.pop()?.slice(1)) : undefined;
  const values = fields.map(Number);
  switch (kind) {
    case "a":
      return target === undefined ? { op: "add", at: values.slice(0, -1), label: values.at(-1) } : { op: "add", at: values, target };
    case "m":
      return { op: "move", row: values[0], to: values.slice(1) };
    case "l":
      return { op: "label", row: values[0], label: values[1] };
    case "v":
      return { op: "value", row: values[0], target: values[1] };
    case "d":
      return { op: "delete", rows: fields[0].split(".").map(Number) };
    default:
      return null;
  }
}
