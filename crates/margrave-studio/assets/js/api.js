// Requests to the program that serves this page. The token arrives in the fragment of the first address and is kept for
// this tab only.

const KEY = "margrave-token";

/** An answer that is an error, in the program's own words. */
export class ApiError extends Error {
  /**
   * @param {string} code
   * @param {string} message
   * @param {string | null} [hint]
   */
  constructor(code, message, hint) {
    super(hint ? `${message} ${hint}` : message);
    this.code = code;
  }
}

/**
 * Takes the token out of the address and keeps it.
 * @returns {boolean} whether there is one
 */
export function takeToken() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const token = fragment.get("token");
  if (token) {
    sessionStorage.setItem(KEY, token);
    // Only this part is taken out; the rest stays as it is written.
    history.replaceState(null, "", `#${location.hash.slice(1).replace(/(^|&)token=[^&]*/, "").replace(/^&/, "")}`);
  }
  return sessionStorage.getItem(KEY) !== null;
}

/**
 * @param {string} path
 * @param {RequestInit} [init]
 * @returns {Promise<Response>}
 */
async function ask(path, init = {}) {
  const headers = new Headers(init.headers);
  headers.set("Authorization", `Bearer ${sessionStorage.getItem(KEY) ?? ""}`);
  let answer;
  try {
    answer = await fetch(`/api/${path}`, { ...init, headers });
  } catch (error) {
    if (/** @type {Error} */ (error).name === "AbortError") throw error;
    throw new ApiError("offline", "The program does not answer. Start `margrave studio` again and open the address it prints.");
  }
  if (answer.ok) return answer;
  let reason = null;
  try {
    reason = (await answer.json()).error;
  } catch {
    // The status alone has to do.
  }
  throw new ApiError(reason?.code ?? String(answer.status), reason?.message ?? `${answer.status} ${answer.statusText}`, reason?.hint);
}

/**
 * @param {string} path
 * @returns {Promise<any>}
 */
export async function get(path) {
  return (await ask(path)).json();
}

/**
 * @param {string} path
 * @param {any} [body]
 * @returns {Promise<any>}
 */
export async function post(path, body = {}) {
  const answer = await ask(path, {
    method: "POST",
    body: JSON.stringify(body),
    headers: { "Content-Type": "application/json" },
  });
  return answer.status === 204 ? null : answer.json();
}

/**
 * Sends the bytes of a file.
 * @param {string} path
 * @param {Blob} file
 */
export async function upload(path, file) {
  const answer = await ask(path, { method: "POST", body: file, headers: { "Content-Type": "application/octet-stream" } });
  return answer.json();
}

/**
 * A file to be saved, with the name that the program gives it.
 * @param {string} path
 * @returns {Promise<{blob: Blob, name: string}>}
 */
export async function download(path) {
  const answer = await ask(path);
  const name = /filename="([^"]+)"/.exec(answer.headers.get("Content-Disposition") ?? "")?.[1] ?? "margrave";
  return { blob: await answer.blob(), name };
}

const TYPES = { f32: Float32Array, f64: Float64Array, u32: Uint32Array, u8: Uint8Array };

/**
 * A JSON header and arrays: see `GET …/plane`.
 * @param {string} path
 * @returns {Promise<any>} the header; its arrays stand under `arrays` by name
 */
export async function arrays(path) {
  return unpack(await (await ask(path)).arrayBuffer());
}

/**
 * @param {ArrayBuffer} buffer
 */
export function unpack(buffer) {
  const view = new DataView(buffer);
  if (buffer.byteLength < 8 || view.getUint32(0, false) !== 0x4d474131) throw new ApiError("format", "The answer is not in the expected form.");
  const length = view.getUint32(4, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  /** @type {Record<string, any>} */
  const out = {};
  for (const [name, of] of Object.entries(/** @type {Record<string, any>} */ (header.arrays ?? {}))) {
    const Type = TYPES[/** @type {keyof typeof TYPES} */ (of.type)];
    out[name] = new Type(buffer, 8 + length + of.offset, of.count);
  }
  header.arrays = out;
  return header;
}

/**
 * Reads the events of a session for as long as the page is open; connects again from the last one seen.
 * @param {string} session
 * @param {(event: any) => void} onevent
 * @param {(online: boolean) => void} online
 * @returns {() => void} ends it
 */
export function listen(session, onevent, online) {
  const abort = new AbortController();
  let seen = /** @type {number | null} */ (null);
  const read = async () => {
    const from = seen === null ? "" : `?from=${seen}`;
    const answer = await ask(`sessions/${session}/events${from}`, { signal: abort.signal });
    const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader();
    const decoder = new TextDecoder();
    let rest = "";
    online(true);
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) {
        if (!line) continue;
        const event = JSON.parse(line);
        if (event.seq !== undefined) seen = event.seq;
        if (event.type !== "ping") onevent(event);
      }
    }
  };
  const loop = async () => {
    let wait = 250;
    while (!abort.signal.aborted) {
      try {
        await read();
        wait = 250;
      } catch (error) {
        if (abort.signal.aborted) return;
        if (error instanceof ApiError && (error.code === "gone" || error.code === "not_found")) {
          onevent({ type: "gone" });
          return;
        }
      }
      online(false);
      await new Promise((done) => setTimeout(done, wait));
      wait = Math.min(wait * 2, 4000);
    }
  };
  loop();
  return () => abort.abort();
}
