// The program and a browser for the tests: `margrave studio` on a free port, a page that notes everything that goes wrong.

import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** The program under test and the folder with playwright-core, from the environment that scripts/browser sets. */
const PROGRAM = process.env.MARGRAVE ?? "margrave";
const MODULES = process.env.MARGRAVE_BROWSER_MODULES ?? process.cwd();
const { chromium } = createRequire(join(MODULES, "package.json"))("playwright-core");

/** Where downloads go. */
export const scratch = mkdtempSync(join(tmpdir(), "margrave-browser-"));

/**
 * Starts the program; ends with the tests.
 * @param {...string} args
 * @returns {Promise<{address: string, end: () => Promise<void>}>}
 */
export function studio(...args) {
  const child = spawn(PROGRAM, ["studio", "--no-open", ...args], { stdio: ["ignore", "pipe", "pipe"] });
  return new Promise((resolve, reject) => {
    let said = "";
    const late = setTimeout(() => reject(new Error(`no address after 20 s: ${said}`)), 20_000);
    const hear = (chunk) => {
      said += chunk;
      const address = /http:\/\/127\.0\.0\.1:\d+\/#token=[0-9a-f]{32}/.exec(said)?.[0];
      if (!address) return;
      clearTimeout(late);
      const end = () => new Promise((done) => {
        child.once("exit", done);
        child.kill("SIGINT");
        setTimeout(() => child.kill("SIGKILL"), 5000).unref();
      });
      resolve({ address, end });
    };
    child.stdout.on("data", hear);
    child.stderr.on("data", hear);
    child.once("exit", (code) => {
      clearTimeout(late);
      reject(new Error(`the program ended with ${code}: ${said}`));
    });
  });
}

/**
 * Runs a command of the program and reads what it prints.
 * @param {...string} args
 */
export function margrave(...args) {
  const done = spawnSync(PROGRAM, args, { encoding: "utf8" });
  if (done.error) throw done.error;
  return { status: done.status, stdout: done.stdout, stderr: done.stderr };
}

/** Debian's chromium. */
export function browser() {
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-dev-shm-usage"] });
}

/**
 * A page in a context of its own. `faults` lists errors in the console, requests to other hosts and breaches of the policy.
 * @param {any} of  Browser
 * @param {{width?: number, height?: number, colorScheme?: string}} [look]
 */
export async function newPage(of, look = {}) {
  const context = await of.newContext({ viewport: { width: look.width ?? 1280, height: look.height ?? 900 }, colorScheme: look.colorScheme ?? "light", acceptDownloads: true });
  const page = await context.newPage();
  /** @type {string[]} */
  const faults = [];
  /** @type {string[]} */
  const refused = [];
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") faults.push(`console: ${message.text()}`);
  });
  page.on("response", async (response) => {
    if (response.status() >= 400) refused.push(`${response.status()} ${response.request().method()} ${new URL(response.url()).pathname} ${response.request().postData() ?? ""}: ${await response.text().catch(() => "")}`);
  });
  page.on("pageerror", (error) => faults.push(`exception: ${error.stack}`));
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.protocol !== "blob:" && url.hostname !== "127.0.0.1") faults.push(`request to ${url.origin}`);
  });
  await page.addInitScript(() => {
    addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
  });
  page.setDefaultTimeout(15_000);
  return { page, faults, refused, context };
}

/**
 * Opens an address and waits until the page is ready and nothing is being trained.
 * @param {any} page
 * @param {string} address
 */
export async function visit(page, address) {
  await page.goto(address);
  await page.waitForSelector("html[data-ready]");
  await settled(page);
}

/** Waits until no view is being fetched. */
export async function fetched(page) {
  await page.waitForFunction(() => document.documentElement.dataset.fetching === "0");
}

/** Waits until a training has ended and its views are there. */
export async function settled(page) {
  await page.waitForFunction(() => document.querySelector("#verdict")?.textContent?.match(/optimal|stationary|stalled|limit|interrupted/) && document.querySelector("#stop")?.disabled);
  await fetched(page);
}

/** The number of the run that is shown, and the numbers of its certificate as they stand on the page. */
export function numbers(page) {
  return page.evaluate(() => Object.fromEntries([...document.querySelectorAll("#numbers dd")].map((node) => [node.dataset.key, { text: node.textContent, value: Number(node.dataset.value) }])));
}

/** Does something and waits for the training that follows. */
export async function after(page, act) {
  const before = await page.evaluate(() => document.documentElement.dataset.trained ?? "0");
  await act();
  await page.waitForFunction((was) => (document.documentElement.dataset.trained ?? "0") !== was, before);
  await settled(page);
}
