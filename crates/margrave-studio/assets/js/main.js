// Starts the page: token, views, data, and the link in the address.

import { get, takeToken } from "./api.js";
import { startBar } from "./bar.js";
import { startBracket } from "./bracket.js";
import { startControls } from "./controls.js";
import { freshStart, startData, tellingAxes, usualSettings } from "./data.js";
import { byId, fill, h } from "./dom.js";
import { replay } from "./edit.js";
import { startLeftOut } from "./left-out.js";
import { decode, encode, remember } from "./link.js";
import { startLoss } from "./loss.js";
import { startMargins } from "./margins.js";
import { tell } from "./message.js";
import { startPlane } from "./plane.js";
import { refreshRun, withoutViews } from "./refresh.js";
import { startRuns } from "./runs.js";
import { startSelected } from "./selected.js";
import { begin, choose, keepName, load, open } from "./session.js";
import { startShare } from "./share.js";
import { on, set, state } from "./store.js";
import { startTabs, VIEWS } from "./tabs.js";
import { startTour } from "./tour.js";
import { startTune } from "./tune.js";

/** @param {import("./link.js").Link} link */
function nameOf(link) {
  return JSON.stringify([link.source, link.edits]);
}

/** View and selection of a link. @param {Record<string, string>} view */
function look(view) {
  const [x, y] = (view.xy ?? "").split(",").map(Number);
  const plane = { ...state.plane };
  if (view.xy) Object.assign(plane, { x, y });
  if (view.axes) plane.axes = /** @type {any} */ (view.axes);
  if (view.held) plane.held = view.held;
  const ends = (view.window ?? "").split(",").map(Number);
  plane.window = ends.length === 4 && ends.every(Number.isFinite) && ends[1] > ends[0] && ends[3] > ends[2] ? /** @type {any} */ (ends) : null;
  if (view.size) plane.size = /** @type {any} */ (view.size);
  if (view.output) plane.output = Number(view.output) || 0;
  set({ plane, station: view.station ?? null, view: VIEWS.some((v) => v.id === view.view) ? view.view : "proof" });
  if (view.row !== undefined && Number(view.row) < (state.data?.n ?? 0)) choose(Number(view.row));
}

/** Settings and view of a link. @param {import("./link.js").Link} link */
function applyLink(link) {
  const usual = usualSettings(state.data);
  set({ settings: { ...usual, ...link.settings, kernel: { ...usual.kernel, ...link.settings.kernel } } });
  look(link.view);
}

/**
 * Data, settings and view of a link.
 * @param {import("./link.js").Link} link
 */
async function follow(link) {
  const source = link.source ?? (state.hello.start ? null : { example: "moons" });
  const again = await open(source, nameOf(link));
  if (!state.data) return;
  if (!again) {
    freshStart();
    if (!link.view.xy) await tellingAxes();
    await replay(link.edits);
  } else set({ edits: link.edits, tool: state.data.d <= 2 && state.data.editable ? "edit" : "select" });
  const usual = again && !Object.keys(link.settings).length ? state.settings : usualSettings(state.data);
  set({ settings: { ...usual, ...link.settings, kernel: { ...usual.kernel, ...link.settings.kernel } } });
  look(link.view);
  if (again && state.run) refreshRun();
  else await begin();
}

/** Back and forward, and addresses typed into a page that is open. */
async function onAddress() {
  const fragment = location.hash.slice(1);
  if (fragment === encode()) return;
  const link = decode(fragment);
  try {
    if (link.source && !link.source.upload && (nameOf(link) !== nameOf(decode(encode())))) {
      const { source } = link;
      await withoutViews(async () => {
        await load(source);
        freshStart();
        if (!link.view.xy) await tellingAxes();
        await replay(link.edits);
        applyLink(link);
      });
    } else applyLink(link);
    await begin();
  } catch (error) {
    tell(error);
  }
}

async function start() {
  if (!takeToken()) {
    fill(byId("waiting"), h("p", null, h("b", null, "This page has no token. "), "Open the address that ", h("code", null, "margrave studio"), " printed: it ends in #token=…"));
    return;
  }
  startShare();
  startTabs();
  startBar();
  startControls();
  startPlane();
  startSelected();
  startBracket();
  startMargins();
  startLoss();
  startTune();
  startLeftOut();
  startRuns();
  startTour();
  startData();
  try {
    set({ hello: await get("hello") });
  } catch (error) {
    fill(byId("waiting"), h("p", { class: "bad" }, /** @type {Error} */ (error).message));
    return;
  }
  const link = decode(location.hash.slice(1));
  byId("waiting").hidden = true;
  try {
    await follow(link);
  } catch (error) {
    tell(error);
    if (!state.session) await open(null, "");
    if (!state.data) byId("data-button").click();
  }
  on(["settings", "view", "plane", "selected", "edits", "data", "station"], () => {
    remember();
    keepName(nameOf(decode(encode())));
  });
  remember();
  keepName(nameOf(decode(encode())));
  addEventListener("popstate", onAddress);
  addEventListener("hashchange", onAddress);
  document.documentElement.dataset.ready = "yes";
}

start();
