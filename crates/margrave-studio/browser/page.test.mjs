// The page in a real browser: what a person does with it, with the console watched all the time.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { after as atEnd, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { after, browser, fetched, margrave, newPage, numbers, scratch, settled, studio, visit } from "./studio.mjs";

const HERE = dirname(fileURLToPath(import.meta.url));
const HEART = join(HERE, "../data/heart_scale.svm");
const VIEWS = ["proof", "loss", "tune", "left-out", "runs", "tour"];

let chromium;
let program;
let origin;

before(async () => {
  [chromium, program] = await Promise.all([browser(), studio("--folder", join(HERE, "../data"))]);
  origin = program.address.split("#")[0];
});

atEnd(async () => {
  await chromium?.close();
  await program?.end();
});

/** A test with a page of its own on a link; fails if anything went wrong on the page, but for what `look.expected` describes. */
function pageTest(name, fragment, body, look = {}) {
  test(name, { timeout: 90_000 }, async () => {
    const { page, faults, refused, context } = await newPage(chromium, look);
    try {
      await visit(page, `${program.address}&${fragment}`);
      await body(page, context);
      assert.deepEqual(faults.filter((fault) => !look.expected?.test(fault)), [], `refused requests: ${refused.join("; ")}`);
    } finally {
      await context.close();
    }
  });
}

/** Where the sample of a row is on the screen. */
async function screenOf(page, row) {
  return page.evaluate(async (wanted) => {
    const { state } = await import("/js/store.js");
    const { frame, toX, toY } = await import("/js/plane-draw.js");
    const canvas = document.querySelector("#plane-canvas").getBoundingClientRect();
    const picture = state.picture;
    const f = frame(document.querySelector("#plane-box").clientWidth, canvas.height, picture.window);
    const at = picture.arrays.row.indexOf(wanted);
    return { x: canvas.left + toX(f, picture.arrays.px[at]), y: canvas.top + toY(f, picture.arrays.py[at]), data: [picture.arrays.px[at], picture.arrays.py[at]] };
  }, row);
}

async function download(page, what) {
  const [file] = await Promise.all([page.waitForEvent("download", { timeout: 60_000 }), page.selectOption("#export", what)]);
  const path = join(scratch, `${Date.now()}-${file.suggestedFilename()}`);
  await file.saveAs(path);
  return path;
}

pageTest("the token leaves the address and stays in the tab", "data=example:moons", async (page) => {
  assert.ok(!page.url().includes("token"), page.url());
  const kept = await page.evaluate(() => sessionStorage.getItem("margrave-token"));
  assert.match(kept, /^[0-9a-f]{32}$/);
  assert.equal(await page.evaluate(() => document.cookie), "");
});

test("without a token the page says what to open", async () => {
  const { page, context } = await newPage(chromium);
  await page.goto(origin);
  await page.waitForFunction(() => document.querySelector("#waiting")?.textContent?.includes("no token"));
  await context.close();
});

pageTest("numbers are written as the program writes them", "data=example:moons", async (page) => {
  // The cases of margrave-plot's own test, with a true minus.
  const cases = [[0, "0"], [1, "1"], [0.25, "0.25"], [-0.012345, "−0.01235"], [1234567, "1.235e6"], [123456, "123456"], [9.9996, "10"], [1e-9, "1e−9"], [581012, "581012"]];
  const texts = await page.evaluate(async (values) => {
    const { number } = await import("/js/format.js");
    return values.map((v) => number(v, 4));
  }, cases.map(([value]) => value));
  assert.deepEqual(texts, cases.map(([, text]) => text));
  const ranges = await page.evaluate(async () => {
    const { readRange } = await import("/js/tune.js");
    return ["2^-2..2^2*4", "0.1..0.5+0.2", "1, 2,1e3", "1..0*2", "x", "1..9*1"].map(readRange);
  });
  assert.deepEqual(ranges, [[0.25, 1, 4], [0.1, 0.3, 0.5], [1, 2, 1000], null, null, null]);
});

pageTest("the boundary lies where the score changes sign", "data=example:moons", async (page) => {
  const pieces = await page.evaluate(async () => {
    const { contour } = await import("/js/contour.js");
    // z = column − 1.5, three columns by two rows; and a saddle, whose middle decides which corners are joined.
    return [contour([-1.5, -0.5, 0.5, -1.5, -0.5, 0.5], 3, 2, 0), contour([3, -1, -1, 3], 2, 2, 0), contour([1, -3, -3, 1], 2, 2, 0)];
  });
  assert.deepEqual(pieces[0], [1.5, 0, 1.5, 1]);
  // High corners joined: the pieces cut off the low corners (1, 0) and (0, 1).
  assert.deepEqual(pieces[1], [0.75, 0, 1, 0.25, 0.25, 1, 0, 0.75]);
  // Low middle: the pieces cut off the high corners (0, 0) and (1, 1).
  assert.deepEqual(pieces[2], [0.25, 0, 0, 0.25, 1, 0.75, 0.75, 1]);
});

pageTest("numbers on the page are those of verify, to the digit", "data=path:heart_scale.svm&C=2", async (page) => {
  const shown = await numbers(page);
  const model = await download(page, "model");
  const verified = margrave("verify", model, HEART, "--json");
  assert.equal(verified.status, 0, verified.stderr);
  const certificate = JSON.parse(verified.stdout);
  for (const key of ["primal", "dual", "gap", "violation"]) assert.equal(shown[key].value, certificate[key], key);
  const lines = margrave("verify", model, HEART).stdout;
  for (const key of ["primal", "dual", "violation"]) assert.equal(shown[key].text, new RegExp(`${key}\\s+(\\S+)`).exec(lines)[1].replaceAll("-", "−"), key);
  const relative = /relative gap\s+([^,\s]+)/.exec(lines)[1].replaceAll("-", "−");
  assert.ok((await page.textContent("#verdict")).includes(`Within ${relative} of optimal`), `${await page.textContent("#verdict")} has not ${relative}`);
});

pageTest("dragging a sample moves it and trains again", "data=example:moons", async (page) => {
  const from = await screenOf(page, 3);
  const first = await numbers(page);
  await after(page, async () => {
    await page.mouse.move(from.x, from.y);
    await page.mouse.down();
    for (let k = 1; k <= 6; k += 1) await page.mouse.move(from.x + 12 * k, from.y + 6 * k);
    await page.mouse.up();
  });
  await page.waitForTimeout(700);
  const to = await screenOf(page, 3);
  assert.ok(Math.hypot(to.data[0] - from.data[0], to.data[1] - from.data[1]) > 0.1, `${from.data} → ${to.data}`);
  assert.notEqual((await numbers(page)).primal.value, first.primal.value);
  assert.match(await page.textContent("#data-button"), /edited/);
  assert.match(await page.textContent("#selected h2"), /Row 4,/, "rows count from 1");
});

pageTest("a click adds a sample, Delete removes it, arrow keys move it", "data=example:moons", async (page) => {
  const rows = () => page.evaluate(async () => (await import("/js/store.js")).state.data.n);
  const count = await rows();
  const corner = await page.evaluate(() => {
    const box = document.querySelector("#plane-canvas").getBoundingClientRect();
    return { x: box.right - 20, y: box.top + 14 };
  });
  await after(page, () => page.mouse.click(corner.x, corner.y));
  assert.equal(await rows(), count + 1);
  await page.focus("#plane-canvas");
  await page.keyboard.press("n");
  await page.waitForSelector("#selected h2");
  const row = Number(/Row (\d+)/.exec(await page.textContent("#selected h2"))[1]) - 1;
  const from = await screenOf(page, row);
  await after(page, () => page.keyboard.press("Shift+ArrowRight"));
  await page.waitForTimeout(1100);
  assert.ok((await screenOf(page, row)).data[0] > from.data[0]);
  await after(page, () => page.keyboard.press("Delete"));
  assert.equal(await rows(), count);
});

pageTest("moving C trains from the model before, and the numbers change", "data=example:heart", async (page) => {
  const first = await numbers(page);
  await page.focus("#C-slider");
  await after(page, () => page.keyboard.press("PageUp"));
  const second = await numbers(page);
  assert.ok(second.primal.value > first.primal.value, "a larger C costs more");
  assert.notEqual(await page.inputValue("#C"), "1");
  await page.waitForFunction((c) => new URLSearchParams(location.hash.slice(1)).get("C") === c, await page.inputValue("#C"));
});

pageTest("steps raise the dual, and the gap falls to the end", "data=example:moons&solver=smo", async (page) => {
  await page.click("#controls details summary");
  await page.uncheck("#follow");
  await page.fill("#C", "3");
  await page.press("#C", "Enter");
  const [gaps, duals] = [[], []];
  for (let k = 0; k < 6; k += 1) {
    await after(page, () => page.click("#step"));
    const shown = await numbers(page);
    gaps.push(shown.gap.value);
    duals.push(shown.dual.value);
  }
  assert.equal(await page.getAttribute("#verdict", "data-status"), "iteration_limit");
  // Every pair step raises the dual; the primal, and with it the gap, may rise for a while.
  assert.ok(duals.every((dual, k) => k === 0 || dual >= duals[k - 1]), duals.join(" "));
  await after(page, () => page.click("#resume"));
  assert.equal(await page.getAttribute("#verdict", "data-status"), "optimal");
  assert.ok((await numbers(page)).gap.value < Math.min(...gaps) / 100, gaps.join(" "));
  await page.waitForFunction(() => Number(document.querySelector("#bracket-chart").dataset.points) >= 7);
});

pageTest("stop keeps the best model, resume goes on to the end", "data=example:heart&C=1000&solver=smo&tol=0.000001&gamma=0.05&kernel=rbf", async (page) => {
  await page.click("#restart");
  await page.waitForSelector("#stop:not([disabled])");
  await page.waitForTimeout(150);
  await page.click("#stop");
  await settled(page);
  const stopped = await page.getAttribute("#verdict", "data-status");
  assert.equal(stopped, "interrupted");
  const gap = (await numbers(page)).gap.value;
  await after(page, () => page.click("#resume"));
  assert.equal(await page.getAttribute("#verdict", "data-status"), "optimal");
  assert.ok((await numbers(page)).gap.value < gap);
});

pageTest("the report is one file with the model's figures", "data=example:heart", async (page) => {
  const text = readFileSync(await download(page, "report"), "utf8");
  assert.match(text, /^<!DOCTYPE html>/);
  assert.match(text, /Certificate/);
  assert.ok(!/(src|href)="http/.test(text), "refers to other files");
});

pageTest("a link reproduces data, edits, settings and view", "data=example:moons&C=5&gamma=2&kernel=rbf", async (page) => {
  const from = await screenOf(page, 7);
  await after(page, async () => {
    await page.mouse.move(from.x, from.y);
    await page.mouse.down();
    await page.mouse.move(from.x + 30, from.y + 20);
    await page.mouse.move(from.x + 40, from.y + 24);
    await page.mouse.up();
  });
  await page.click("#tab-loss");
  await page.waitForFunction(() => location.hash.includes("view=loss") && location.hash.includes("edits="));
  await after(page, () => page.click("#restart"));
  const link = new URL(page.url()).hash.slice(1);
  const shown = await numbers(page);
  const { page: other, faults, context } = await newPage(chromium);
  await visit(other, `${program.address}&${link}`);
  await other.waitForFunction((wanted) => location.hash.slice(1) === wanted, link);
  assert.equal(await other.getAttribute("#tab-loss", "aria-selected"), "true");
  assert.match(await other.textContent("#selected h2"), /Row 8,/);
  const again = await numbers(other);
  assert.equal(again.primal.text, shown.primal.text);
  assert.equal(again.dual.text, shown.dual.text);
  assert.deepEqual(faults, []);
  await context.close();
});

pageTest("a reload finds the session of the tab again", "data=example:iris", async (page) => {
  const session = () => page.evaluate(async () => (await import("/js/store.js")).state.session);
  const first = await session();
  await page.reload();
  await page.waitForSelector("html[data-ready]");
  await settled(page);
  assert.equal(await session(), first);
});

pageTest("the search fills its map, a cell trains", "data=example:moons&view=tune", async (page) => {
  await page.fill("#range-0", "0.1,1,10");
  await page.fill("#range-1", "0.1,1");
  await page.click("#tune-start");
  await page.waitForSelector("#train-best", { timeout: 60_000 });
  await page.waitForFunction(() => document.querySelectorAll("#tune-map [data-cell]:not([disabled])").length === 6);
  await after(page, () => page.click('#tune-map [data-cell="2,1"]'));
  assert.equal(await page.inputValue("#C"), "10");
  assert.equal(await page.inputValue("#gamma"), "1");
});

pageTest("left-out figures come with their curves", "data=example:heart&view=left-out", async (page) => {
  await page.click("#evaluate");
  await page.waitForSelector("#quality tbody tr", { timeout: 60_000 });
  assert.ok((await page.$$(".confusion")).length >= 1);
  assert.ok((await page.$$("#figures canvas")).length >= 1);
});

pageTest("runs are compared side by side", "data=example:moons", async (page) => {
  await page.focus("#C-slider");
  await after(page, () => page.keyboard.press("PageUp"));
  await page.click("#tab-runs");
  await page.waitForFunction(() => document.querySelectorAll("#runs-table tbody tr").length >= 2);
  for (const at of [0, 1]) await page.locator("#runs-table tbody tr input").nth(at).check();
  await page.waitForSelector("#comparison .differs");
  const shown = (await numbers(page)).primal.text;
  await page.locator("#runs-table tbody tr").nth(1).click();
  await page.waitForFunction((was) => document.querySelector('#numbers dd[data-key="primal"]').textContent !== was, shown);
});

pageTest("an own loss is drawn, refused with its place, and trained", "data=example:moons&view=loss", async (page) => {
  await page.fill("#expression", "log(1 + exp(-m)");
  await page.waitForFunction(() => document.querySelector("#expression-error").textContent.length > 5);
  await page.fill("#expression", "log(1 + exp(-m))");
  await page.waitForFunction(() => document.querySelector("#expression-error").textContent === "");
  await after(page, () => page.click("#use-expression"));
  assert.match(await page.textContent("#verdict"), /Within/);
}, { expected: /status of 400/ });

pageTest("text of data files stays text", "data=example:moons", async (page) => {
  const csv = "<img src=x onerror=alert(1)>,b,label\n0,1,a\n1,0,<b>c</b>\n0,2,a\n2,0,<b>c</b>\n";
  await page.click("#data-button");
  await after(page, () => page.setInputFiles("#file", { name: "evil.csv", mimeType: "text/csv", buffer: Buffer.from(csv) }));
  assert.equal(await page.locator("main img, #legend b").count(), 0);
  assert.match(await page.textContent("#legend"), /<b>c<\/b>/);
});

pageTest("Watch plays a training from zero to the end", "data=example:moons", async (page) => {
  await page.click("#watch");
  await page.waitForSelector("#stop:not([disabled])");
  await page.waitForFunction(() => document.querySelector("#verdict").textContent.includes("iteration limit"));
  await page.waitForFunction(() => document.querySelector("#verdict").textContent.includes("proven optimal") && document.querySelector("#stop").disabled, null, { timeout: 40_000 });
  await page.waitForFunction(() => Number(document.querySelector("#bracket-chart").dataset.points) >= 10);
});

pageTest("a regression is drawn as a curve, and targets can be dragged", "data=example:sine&axes=curve", async (page) => {
  const curve = () => page.evaluate(async () => Array.from((await import("/js/store.js")).state.picture.arrays.curve));
  const first = await curve();
  // The example is a sine: what is fitted rises and falls.
  assert.ok(Math.max(...first) > 0.5 && Math.min(...first) < -0.5, `${Math.min(...first)} … ${Math.max(...first)}`);
  const from = await screenOf(page, 5);
  await after(page, async () => {
    await page.mouse.move(from.x, from.y);
    await page.mouse.down();
    await page.mouse.move(from.x + 10, from.y - 30);
    await page.mouse.move(from.x + 20, from.y - 60);
    await page.mouse.up();
  });
  await page.waitForTimeout(700);
  const to = await screenOf(page, 5);
  // Of several features the curve is a slice, on which only targets move.
  assert.ok(to.data[0] === from.data[0] && to.data[1] > from.data[1], `${from.data} → ${to.data}`);
  assert.notDeepEqual(await curve(), first);
});

pageTest("samples of one feature are added and dragged on its curve", "data=example:moons", async (page) => {
  const csv = `x,y\n${Array.from({ length: 60 }, (_, k) => `${k / 10},${Math.sin(k / 10).toFixed(4)}`).join("\n")}\n`;
  await page.click("#data-button");
  await page.click("#data-dialog summary");
  await page.selectOption("#read-task", "regress");
  await after(page, () => page.setInputFiles("#file", { name: "one.csv", mimeType: "text/csv", buffer: Buffer.from(csv) }));
  const from = await screenOf(page, 20);
  await after(page, async () => {
    await page.mouse.move(from.x, from.y);
    await page.mouse.down();
    await page.mouse.move(from.x + 20, from.y + 30);
    await page.mouse.move(from.x + 40, from.y + 60);
    await page.mouse.up();
  });
  await page.waitForTimeout(700);
  const to = await screenOf(page, 20);
  assert.ok(to.data[0] > from.data[0] && to.data[1] < from.data[1], `${from.data} → ${to.data}`);
  const box = await page.locator("#plane-canvas").boundingBox();
  await after(page, () => page.mouse.click(box.x + 60, box.y + box.height - 60));
  assert.match(await page.textContent("#data-button"), /61 × 1 · edited/);
});

pageTest("no view of the old data is asked for while a file replaces them", "data=example:moons", async (page) => {
  // The program tells of the new data at once; its answer to the upload comes when the picture of the last change is due.
  await page.route("**/upload?*", async (route) => {
    const response = await route.fetch();
    await new Promise((done) => setTimeout(done, 900));
    await route.fulfill({ response });
  });
  await page.click("#data-button");
  await page.evaluate(async () => {
    const { refreshPlane } = await import("/js/refresh.js");
    refreshPlane();
    refreshPlane();
  });
  await after(page, () => page.setInputFiles("#file", { name: "one.csv", mimeType: "text/csv", buffer: Buffer.from("x,y\n0,a\n1,b\n2,a\n3,b\n") }));
  assert.match(await page.textContent("#data-button"), /one\.csv · 4 × 1/);
  assert.equal(await page.isVisible("#message:not([hidden])"), false, await page.textContent("#message"));
});

pageTest("every station of the tour runs", "data=example:moons&view=tour", async (page) => {
  await page.waitForSelector("#stations button");
  const stations = await page.locator("#stations button").count();
  assert.equal(stations, 5);
  for (let at = 0; at < stations; at += 1) {
    await after(page, () => page.locator("#stations button").nth(at).click());
    const actions = await page.locator(".station-action").count();
    for (let k = 0; k < actions; k += 1) {
      await page.locator(".station-action").nth(k).click();
      await page.waitForTimeout(250);
      await settled(page);
    }
    assert.equal(await page.isVisible("#message.note, #message:not([hidden])"), false, await page.textContent("#message"));
  }
});

pageTest("a station replaces the data, Back brings them again", "data=example:heart&C=4&view=tour", async (page) => {
  await page.waitForSelector("#stations button");
  await after(page, () => page.click('#stations [data-station="margin"]'));
  assert.match(await page.textContent("#data-button"), /blobs/);
  await page.waitForFunction(() => location.hash.includes("example:blobs"));
  await after(page, () => page.goBack());
  assert.match(await page.textContent("#data-button"), /heart/);
  assert.equal(await page.inputValue("#C"), "4");
});

pageTest("files of the opened folder are read from the dialog", "data=example:moons", async (page) => {
  await page.click("#data-button");
  await after(page, () => page.click('#files [data-file="iris.csv"]'));
  assert.match(await page.textContent("#data-button"), /iris\.csv · 150 × 4/);
  await page.waitForFunction(() => location.hash.includes("data=path:iris.csv"));
});

pageTest("a sample chosen in one view is chosen in all", "data=example:heart", async (page) => {
  const row = await page.getAttribute("#worst tr.pick", "data-row");
  await page.click("#worst tr.pick");
  await page.waitForFunction((wanted) => document.querySelector("#selected h2")?.textContent?.startsWith(`Row ${Number(wanted) + 1},`), row);
  assert.equal(await page.textContent(`#worst tr[data-row="${row}"] td`), String(Number(row) + 1));
  assert.equal(await page.getAttribute(`#worst tr[data-row="${row}"]`, "aria-selected"), "true");
  await page.waitForFunction((wanted) => new URLSearchParams(location.hash.slice(1)).get("row") === wanted, row);
  // The slice goes through the sample: others are held at its values.
  await page.click("#hold");
  await page.waitForFunction((wanted) => document.querySelector("#held").value === `row:${wanted}` && location.hash.includes(`held=row:${wanted}`), row);
  await fetched(page);
  assert.deepEqual(await page.evaluate(async () => (await import("/js/store.js")).state.picture.held), { row: Number(row) });
  await page.focus("#plane-canvas");
  await page.keyboard.press("Escape");
  assert.equal(await page.isVisible("#selected"), false);
});

test("large data are shown at once and trained when asked", { timeout: 90_000 }, async () => {
  // Long enough to be still read when the page connects.
  const file = join(scratch, "large.csv");
  const row = (k) => `${(k % 1009) / 1009},${(k % 757) / 757},${(k % 1009) / 1009 + (k % 757) / 757 > 1 ? "a" : "b"}`;
  writeFileSync(file, `u,v,label\n${Array.from({ length: 1_000_000 }, (_, k) => row(k)).join("\n")}\n`);
  const own = await studio(file);
  const { page, faults, context } = await newPage(chromium);
  try {
    await page.goto(own.address);
    await page.waitForSelector("#play:not([disabled])");
    await page.waitForFunction(() => document.querySelector("#verdict").textContent === "Not trained yet.");
    await fetched(page);
    const shown = await page.evaluate(async () => {
      const { picture, data } = (await import("/js/store.js")).state;
      return { shown: picture.arrays.px.length, n: picture.n, editable: data.editable };
    });
    assert.deepEqual(shown, { shown: 4000, n: 1_000_000, editable: false });
    assert.equal(await page.isDisabled("#tool-edit"), true);
    assert.deepEqual(faults, []);
  } finally {
    await context.close();
    await own.end();
  }
});

for (const width of [1280, 390]) {
  for (const colorScheme of ["light", "dark"]) {
    pageTest(`nothing overflows and text has contrast at ${width} px, ${colorScheme}`, "data=example:heart&row=3", async (page) => {
      for (const view of VIEWS) {
        await page.click(`#tab-${view}`);
        await page.waitForTimeout(150);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth);
        assert.ok(wide <= width, `${view}: ${wide} px`);
        assert.deepEqual(await page.evaluate(faint), [], view);
      }
    }, { width, height: 844, colorScheme });
  }
}

/** Texts whose contrast is below WCAG's AA. Runs in the page. */
function faint() {
  const parse = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
  const channel = (v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const out = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || node.disabled || node.closest(":disabled, dialog:not([open]), option, noscript") || !node.checkVisibility({ checkVisibilityCSS: true })) continue;
    const style = getComputedStyle(node);
    const [a, b] = [luminance(parse(style.color)), luminance(ground(node))].sort((p, q) => q - p);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) out.push(`${node.tagName} ${node.className} "${node.textContent.trim().slice(0, 30)}" ${ratio.toFixed(2)}`);
  }
  return out;
}
