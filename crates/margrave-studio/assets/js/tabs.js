// The tabs of the views: arrow keys move between them, as everywhere.

import { byId, fill, h } from "./dom.js";
import { on, set, state } from "./store.js";

export const VIEWS = [
  { id: "proof", name: "Proof" },
  { id: "loss", name: "Loss" },
  { id: "tune", name: "Tune" },
  { id: "left-out", name: "Left out" },
  { id: "runs", name: "Runs" },
  { id: "tour", name: "Tour" },
];

export function startTabs() {
  fill(byId("tabs"), VIEWS.map((v) => h("button", { role: "tab", id: `tab-${v.id}`, "aria-controls": `panel-${v.id}`, onclick: () => set({ view: v.id }) }, v.name)));
  byId("tabs").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = VIEWS.findIndex((v) => v.id === state.view);
    const next = VIEWS[(at + step + VIEWS.length) % VIEWS.length];
    set({ view: next.id });
    byId(`tab-${next.id}`).focus();
    event.preventDefault();
  });
  on(["view"], show);
  show();
}

function show() {
  for (const v of VIEWS) {
    const chosen = v.id === state.view;
    const tab = byId(`tab-${v.id}`);
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    byId(`panel-${v.id}`).hidden = !chosen;
  }
}
