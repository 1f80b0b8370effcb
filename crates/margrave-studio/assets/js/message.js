// The one line below the bar that says what went wrong, or what to know.

import { byId, fill, h } from "./dom.js";

/**
 * @param {unknown} what  An error, or words
 */
export function tell(what) {
  const error = what instanceof Error;
  if (error && what.name === "AbortError") return;
  const text = error ? what.message : String(what);
  const box = byId("message");
  box.className = error ? "" : "note";
  fill(box, h("span", null, text), h("button", { class: "plain", onclick: clearMessage }, "Close"));
  box.hidden = false;
}

export function clearMessage() {
  byId("message").hidden = true;
}
