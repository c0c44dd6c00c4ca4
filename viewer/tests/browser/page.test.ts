/**
 * The page in Chromium. tests/viewer/test_viewer_browser.py starts the server and sets VIEWER_URL, the
 * exported page VIEWER_FILE, and the browser CHROMIUM.
 */
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";

const url = process.env.VIEWER_URL ?? "", file = process.env.VIEWER_FILE ?? "";
const axe = readFileSync(fileURLToPath(import.meta.resolve("axe-core/axe.min.js")), "utf8");
const RUN = 0, HOSTILE = 1, LARGE = 2;
let browser: Browser, page: Page, faults: string[];

beforeAll(async () => {
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
});
afterAll(() => browser?.close());
beforeEach(() => open(""));

/** A new page; whatever goes wrong in it, or is loaded from elsewhere, is a fault. */
async function open(hash: string, options: BrowserContextOptions = {}, base = url) {
  await page?.context().close();
  page = await (await browser.newContext({ viewport: { width: 1300, height: 800 }, ...options })).newPage();
  const current: string[] = (faults = []);
  page.on("pageerror", (error) => current.push(error.message));
  page.on("console", (message) => message.type() === "error" && current.push(message.text()));
  page.on("request", (request) => {
    if (!request.url().startsWith(base) && !request.url().startsWith("data:")) current.push(`loads ${request.url()}`);
  });
  await page.goto(base + hash);
  await page.locator("main").waitFor();
}

/** Another view of the same page. */
async function show(hash: string) {
  await page.evaluate((x) => { location.hash = x; }, hash);
}

const rows = () => page.locator(".sheet [role=row]");
const total = () => page.locator(".filters output").textContent();
const heading = () => page.locator("h2").first().textContent();

test("the list is worked by keys", async () => {
  await rows().first().waitFor();
  expect(await total()).toBe("24 episodes");
  await page.keyboard.press("j");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("k");
  expect(await page.locator("[role=grid]").getAttribute("aria-activedescendant")).toBe("row-1");
  await page.keyboard.press("Enter");
  await page.locator(".turn").first().waitFor();
  expect(page.url()).toContain("episode");
  const first = await page.locator(".crumbs .dim").textContent();
  await page.keyboard.press("j");
  await page.waitForFunction((x) => document.querySelector(".crumbs .dim")?.textContent !== x, first);
  await page.keyboard.press("Escape");
  await rows().first().waitFor();
  expect(await page.locator("[role=row][aria-selected=true]").getAttribute("id")).toBe("row-2");
  await page.keyboard.press("/");
  await page.keyboard.type("v0#1");
  await expect.poll(total).toBe("8 episodes");
  await page.keyboard.press("Escape");
  await page.keyboard.press("g");
  await page.locator(".column").first().waitFor();
  expect(await page.locator(".column").count()).toBe(4);
  expect(faults).toEqual([]);
});

test("a column sorts both ways", async () => {
  const header = page.locator(".c-total_reward[role=columnheader]");
  const returns = async () => (await page.locator(".sheet .c-total_reward").allTextContents()).map((x) => Number(x.replace("−", "-")));
  await header.getByRole("button").click();
  await expect.poll(() => header.getAttribute("aria-sort")).toBe("descending");
  await expect.poll(async () => { const x = await returns(); return x.length > 9 && x.every((v, i) => i === 0 || v <= (x[i - 1] ?? v)); }).toBe(true);
  await header.getByRole("button").click();
  await expect.poll(() => header.getAttribute("aria-sort")).toBe("ascending");
  await expect.poll(async () => { const x = await returns(); return x.every((v, i) => i === 0 || v >= (x[i - 1] ?? v)); }).toBe(true);
});

test("of a long list only the rows in sight exist", async () => {
  await show(`#/episodes?run=${LARGE}`);
  await expect.poll(total).toBe("3,000 episodes");
  expect(await rows().count()).toBeLessThan(70);
  await page.keyboard.press("End");
  const last = page.locator("#row-2999");
  await expect.poll(() => last.locator(".c-step").textContent()).toBe("0");
  expect(await rows().count()).toBeLessThan(70);
});

test("tokens are colored, and the one in focus shows its numbers", async () => {
  await show(`#/episode?run=${RUN}&id=0-000000/0`);
  const tokens = page.locator(".tokens").first();
  await tokens.focus();
  await page.keyboard.press("ArrowRight");
  await expect.poll(() => page.locator(".panel h3").textContent()).toMatch(/^Token 2 of/);
  const numbers = page.locator(".panel dl div");
  expect(await numbers.locator("dt").allTextContents()).toEqual([
    "Id", "Weight in the loss", "Advantage", "Sampler log-prob", "Learner log-prob", "Log-prob ratio", "Entropy", "Value", "Value target", "Weights' version",
  ]);
  await page.getByRole("combobox", { name: "Agent's text" }).selectOption("advantage");
  const signed = await page.locator(".token.positive, .token.negative").count();
  expect(signed).toBeGreaterThan(20);
  const tail = page.locator(".tokens").last();
  expect(await tail.textContent()).toMatch(/^On Sunday .*<\|im_end\|>$/);
  await page.getByRole("combobox", { name: "Agent's text" }).selectOption("none");
  await expect.poll(() => page.locator(".tokens").count()).toBe(0);
  expect(await page.locator(".tool-call").first().textContent()).toContain("look_up");
  expect(await page.locator(".tool img").first().evaluate((x: HTMLImageElement) => x.complete && x.naturalWidth)).toBe(24);
  expect(faults).toEqual([]);
});

test("hostile texts stay texts", async () => {
  await show(`#/episodes?run=${HOSTILE}`);
  await expect.poll(total).toBe("16 episodes");
  for (let i = 0; i < 16; i++) {
    await show(`#/episode?run=${HOSTILE}&id=0-000000/${i}`);
    await expect.poll(() => page.locator(".crumbs .dim").textContent()).toBe(`0-000000/${i}`);
    await page.locator(".facts, main > .error").first().waitFor();
    for (const summary of await page.locator("summary").all()) await summary.click();
  }
  await show(`#/group?run=${HOSTILE}&phase=rl&step=0&group=0`);
  await page.locator(".column").first().waitFor();
  expect(await page.evaluate(() => (window as { broken?: number }).broken)).toBeUndefined();
  expect(await page.locator("main script, main iframe, main img[src^=http]").count()).toBe(0);
  await show(`#/episode?run=${HOSTILE}&id=0-000000/2`);
  await expect.poll(heading).toContain("⟨U+202E⟩txet desrever⟨U+202C⟩");
  expect(faults).toEqual([]);
});

test("a long message is cut until it is asked for", async () => {
  await show(`#/episode?run=${HOSTILE}&id=0-000000/0`);
  const more = page.getByRole("button", { name: "Show all 1,000,000 characters" });
  await more.click();
  await expect.poll(() => page.locator(".text").evaluateAll((x) => Math.max(...x.map((e) => e.textContent?.length ?? 0)))).toBe(1_000_000);
});

test("a damaged line is shown as such", async () => {
  await show(`#/episode?run=${HOSTILE}&id=0-000000/8`);
  await expect.poll(() => page.locator(".error").textContent()).toContain("This line of the record is damaged");
});

test("timeline, curves and runs", async () => {
  await show("#/timeline?run=0");
  await expect.poll(() => page.locator("svg rect.decode").count()).toBeGreaterThan(10);
  expect(await page.locator(".kinds li").allTextContents()).toHaveLength(4);
  await show("#/curves");
  await expect.poll(() => page.locator("figure").count()).toBe(4);
  expect(await page.locator("figure").first().locator("path.line").count()).toBe(3);
  await show("#/compare");
  await expect.poll(() => page.locator("table").count()).toBe(3);
  expect(faults).toEqual([]);
});

const VIEWS = ["#/episodes", "#/episode?run=0&id=0-000000/0", "#/episode?run=1&id=0-000000/0", "#/group?phase=rl&step=0&group=0", "#/timeline?run=0", "#/curves", "#/compare"];

for (const colorScheme of ["light", "dark"] as const) {
  test(`a screen reader and weak eyes find their way, ${colorScheme}`, async () => {
    await open("", { colorScheme });
    for (const view of VIEWS) {
      await show(view);
      await page.waitForTimeout(400);
      await page.evaluate(axe);
      const violations = await page.evaluate(async () => {
        const result = await (window as never as { axe: { run: (o: object) => Promise<{ violations: { id: string; nodes: { html: string }[] }[] }> } }).axe.run({
          runOnly: ["wcag2a", "wcag2aa", "wcag21aa"],
        });
        return result.violations.map((x) => `${x.id}: ${x.nodes.slice(0, 3).map((node) => node.html).join(" | ")}`);
      });
      expect(violations, view).toEqual([]);
    }
  });
}

test("a chosen theme stays", async () => {
  const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await back();
  await page.keyboard.press("t");
  await page.keyboard.press("t");
  await expect.poll(back).not.toBe(light);
  await page.reload();
  await expect.poll(back).not.toBe(light);
});

test("an exported page needs no server", async () => {
  await open("", { offline: true }, `file://${file}`);
  await rows().first().waitFor();
  expect(await total()).toBe("6 episodes");
  await page.keyboard.press("Enter");
  await page.locator(".token").first().waitFor();
  await page.keyboard.press("g");
  await page.locator(".column").first().waitFor();
  await show("#/timeline");
  await page.locator("svg rect.decode").first().waitFor();
  await show("#/curves");
  await page.locator("figure").first().waitFor();
  expect(faults).toEqual([]);
});
