// What is on the screen, to take away: report, model, picture, link, command, Python.

import { download, post } from "./api.js";
import { byId, copyText, fill, h, saveBlob } from "./dom.js";
import { encode, tooLong } from "./link.js";
import { tell } from "./message.js";
import { on, state } from "./store.js";
import { setTheme } from "./theme.js";

const THEMES = /** @type {const} */ (["auto", "light", "dark"]);
const KEY = "margrave-theme";

export function startShare() {
  const kept = /** @type {any} */ (localStorage.getItem(KEY)) ?? "auto";
  setTheme(THEMES.includes(kept) ? kept : "auto");
  const look = h("select", { id: "theme", "aria-label": "Light or dark", onchange: () => {
    localStorage.setItem(KEY, look.value);
    setTheme(look.value);
  } }, THEMES.map((v) => h("option", { value: v }, v)));
  look.value = THEMES.includes(kept) ? kept : "auto";
  const exported = h("select", { id: "export", "aria-label": "Export", onchange: () => {
    const what = exported.value;
    exported.value = "";
    save(what).catch(tell);
  } }, h("option", { value: "" }, "Export …"), h("option", { value: "report" }, "Report (HTML)"), h("option", { value: "model" }, "Model file"), h("option", { value: "data" }, "Data (CSV)"), h("option", { value: "picture" }, "Plane (PNG)"));
  fill(byId("menus"), exported, h("button", { id: "copy", onclick: openCopy }, "Copy as …"), h("button", { id: "link", onclick: copyLink }, "Link"), look);
  on(["run", "job"], () => {
    exported.disabled = !state.run?.model_version || state.run.kept === false;
  });
  byId("copy-dialog").addEventListener("click", (/** @type {Event} */ e) => {
    if (e.target === byId("copy-dialog")) byId("copy-dialog").close();
  });
}

/** @param {string} what */
async function save(what) {
  if (what === "picture") {
    const canvas = /** @type {HTMLCanvasElement} */ (byId("plane-canvas"));
    canvas.toBlob((blob) => blob && saveBlob(blob, `${state.data.name.replace(/\.[^.]*$/, "")}.png`));
    return;
  }
  if (what === "report") tell("Writing the report; left-out figures are computed first if there are none …");
  const { blob, name } = await download(`sessions/${state.session}/${what === "data" ? what : `runs/${state.run.run}/${what}`}`);
  byId("message").hidden = true;
  saveBlob(blob, name);
}

async function copyLink() {
  const source = state.data?.source;
  const address = `${location.origin}${location.pathname}#${encode()}`;
  try {
    await copyText(address);
  } catch {
    history.replaceState(null, "", `#${encode()}`);
    return tell("The address bar holds the link.");
  }
  if (source?.upload) tell("Link copied. It names the uploaded file but does not contain it: whoever opens it chooses the file again.");
  else if (tooLong()) tell("Link copied, but there were too many edits for an address: it has the data as they were before.");
  else tell("Link copied. It needs the program to run, and its token: open it in a tab that was opened from there.");
  return undefined;
}

async function openCopy() {
  let both;
  try {
    both = await post(`sessions/${state.session}/copy`, { settings: state.settings });
  } catch (error) {
    tell(error);
    return;
  }
  const dialog = byId("copy-dialog");
  const part = (/** @type {string} */ title, /** @type {string} */ id, /** @type {string} */ text) => {
    const button = h("button", { onclick: async () => {
      try {
        await copyText(text);
        fill(button, "Copied");
      } catch {
        getSelection()?.selectAllChildren(byId(id));
      }
    } }, "Copy");
    return h("section", null, h("div", { class: "head" }, h("h3", null, title), button), h("pre", { id }, text));
  };
  const saved = both.save_data_first ? h("p", { class: "small dim" }, `The data exist only here: save them first, as ${both.file ?? "a file"}. `, h("button", { onclick: () => save("data").catch(tell) }, "Save the data")) : null;
  const why = (/** @type {string} */ title, /** @type {string | null} */ reason) => h("section", null, h("h3", null, title), h("p", { class: "small dim" }, reason ?? "not possible"));
  fill(dialog, h("h2", { id: "copy-title" }, "The same elsewhere"), saved,
    both.command ? part("Command", "command-text", both.command) : why("Command", both.why_no_command),
    both.python ? part("Python", "python-text", both.python) : why("Python", both.why_no_python),
    h("div", { class: "actions" }, h("button", { onclick: () => dialog.close() }, "Close")));
  dialog.showModal();
}
