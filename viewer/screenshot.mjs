/** A picture of an address of a running agentrl-view: node screenshot.mjs ADDRESS FILE.png [KEY ...] */
import { chromium } from "playwright-core";

const [address = "", path = "", ...keys] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"],
});
const page = await browser.newPage({ viewport: { width: 1240, height: 900 } });
await page.goto(address);
await page.locator("main h2, main .row").first().waitFor();
for (const key of keys) {
  await page.keyboard.press(key);
  await page.waitForTimeout(100);
}
await page.waitForTimeout(500);
await page.screenshot({ path });
await browser.close();
