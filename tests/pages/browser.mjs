// Chromium from npm, and pages that notice what a person would see only in the developer tools.
import { existsSync } from "node:fs";
import { mkdtemp, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import unpacked from "@sparticuz/chromium";
import { chromium } from "playwright-core";

const DIRECTORY = join(import.meta.dirname, "node_modules/.chromium");
const TIMEOUT = 30_000; // milliseconds, for a machine that is busy

// Never the arguments that the package suggests: they switch off the rules about origins, which are tested here.
const ARGUMENTS = ["--no-sandbox", "--disable-quic", "--disable-background-networking"];

export async function launchBrowser() {
  const browser = await chromium.launch({ executablePath: await unpack(), args: ARGUMENTS });
  return {
    /** Open a page in a profile of its own, as on another machine. */
    open: async (url) => {
      const context = await browser.newContext({ viewport: { width: 1100, height: 760 } });
      context.setDefaultTimeout(TIMEOUT);
      return watch(await context.newPage(), url);
    },
    close: () => browser.close(),
  };
}

/** Go to the address, and note in `problems` what is wrong: errors, violations of the policy, requests to others. */
async function watch(page, url) {
  const problems = [];
  const { origin } = new URL(url);
  page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("request", (request) => {
    const target = new URL(request.url());
    if (!["data:", "blob:"].includes(target.protocol) && target.origin !== origin) problems.push(`request to ${target}`);
  });
  const response = await page.goto(url);
  page.policy = response.headers()["content-security-policy"];
  page.problems = problems;
  return page;
}

/** Return the path of the browser. The package unpacks it to a fixed name in the temporary directory, so it gets one. */
async function unpack() {
  const path = join(DIRECTORY, "chromium");
  if (existsSync(path)) return path;
  const { TMPDIR } = process.env;
  const temporary = await mkdtemp(`${DIRECTORY}-`);
  try {
    process.env.TMPDIR = temporary;
    await unpacked.executablePath();
    await rename(temporary, DIRECTORY);
  } finally {
    if (TMPDIR === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = TMPDIR;
    await rm(temporary, { recursive: true, force: true });
  }
  return path;
}
