// Elements without markup in strings: text is always text, so that no label of a data file can become HTML.

/**
 * @typedef {Node | string | number | null | undefined | false} Child
 */

/**
 * Creates an element. Keys of `props` that start with "on" are listeners, `class` is the class name, `data` the data
 * attributes; keys that are properties of the element are set as such, all others are attributes.
 * @param {string} tag
 * @param {Record<string, any> | null} [props]
 * @param {...(Child | Child[])} children
 * @returns {any}
 */
export function h(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2).toLowerCase(), value);
    else if (key === "class") node.className = value;
    else if (key === "data") Object.assign(node.dataset, value);
    else if (key in node && key !== "list" && key !== "form") /** @type {any} */ (node)[key] = value;
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  append(node, children);
  return node;
}

/**
 * @param {Element} node
 * @param {(Child | Child[])[]} children
 */
function append(node, children) {
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    node.append(typeof child === "number" ? String(child) : child);
  }
}

/**
 * Replaces the children of a node.
 * @param {Element} node
 * @param {...(Child | Child[])} children
 */
export function fill(node, ...children) {
  node.replaceChildren();
  append(node, children);
  return node;
}

/**
 * The element with this id, which index.html is known to have.
 * @param {string} id
 * @returns {any}
 */
export function byId(id) {
  const node = document.getElementById(id);
  if (!node) throw new Error(`no element #${id}`);
  return node;
}

/**
 * A choice from a list.
 * @param {{label: string, value: string, options: {value: string, name: string, title?: string}[], id?: string,
 *   onchange: (value: string) => void}} of
 */
export function select(of) {
  const options = of.options.map((o) => h("option", { value: o.value, title: o.title }, o.name));
  const node = h("select", { id: of.id, "aria-label": of.label, onchange: () => of.onchange(node.value) }, options);
  node.value = of.value;
  return node;
}

/**
 * Calls `work` at most once per frame, with the last arguments.
 * @template {any[]} T
 * @param {(...args: T) => void} work
 */
export function perFrame(work) {
  let asked = 0;
  /** @type {T} */
  let last;
  return (/** @type {T} */ ...args) => {
    last = args;
    if (asked) return;
    asked = requestAnimationFrame(() => {
      asked = 0;
      work(...last);
    });
  };
}

/**
 * Runs one asynchronous job at a time; of the calls that come meanwhile only the last is run.
 * @template {any[]} T
 * @param {(...args: T) => Promise<void>} work
 */
export function latest(work) {
  let running = false;
  /** @type {T | null} */
  let next = null;
  return async (/** @type {T} */ ...args) => {
    if (running) {
      next = args;
      return;
    }
    running = true;
    try {
      await work(...args);
      while (next) {
        const again = next;
        next = null;
        await work(...again);
      }
    } finally {
      running = false;
    }
  };
}

/** @param {string} text */
export async function copyText(text) {
  await navigator.clipboard.writeText(text);
}

/**
 * Offers a file for saving.
 * @param {Blob} blob
 * @param {string} name
 */
export function saveBlob(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
