// The page of examples/copilotkit-react in Chromium, on a real server.
import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { launchBrowser } from "./browser.mjs";
import { servePage } from "./pages.mjs";
import { startServer } from "./server.mjs";

const LIMIT = { timeout: 120_000 }; // milliseconds
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

let server, site, browser, thread;

before(async () => {
  server = await startServer();
  site = await servePage("copilotkit-react", server);
  browser = await launchBrowser();
}, LIMIT);

after(async () => {
  await browser?.close();
  await site?.close();
  await server?.stop();
});

beforeEach(() => void (thread = crypto.randomUUID()));

const openThread = () => browser.open(`${site.url}/#${thread}`);

async function say(page, text) {
  const box = page.getByTestId("copilot-chat-textarea");
  await box.fill(text);
  await box.press("Enter");
}

const shows = (page, text) => page.getByText(text, { exact: true }).first().waitFor();
const answers = (page) => page.getByTestId("copilot-assistant-message").allInnerTexts();
const approval = (page) => page.getByRole("group", { name: "Approval" });
const threadRow = (page, name) => page.getByRole("listitem").filter({ hasText: name });

/** Wait until the page is ready for the next message: its button sends again, and does not stop. */
const isIdle = (page) => page.locator("[data-testid=copilot-send-button]:has(.lucide-arrow-up)").waitFor();

/** All messages that are shown, with their tool calls. */
const conversation = async (page) => (await page.getByTestId(/^copilot-(user|assistant)-message$/).allInnerTexts()).join("\n");

/** Nothing went wrong behind the scenes, under the policy of the page. */
function assertClean(...pages) {
  for (const page of pages) {
    assert.equal(page.policy, POLICY);
    assert.deepEqual(page.problems, []);
  }
}

test("a conversation with a backend tool is the same after a reload", LIMIT, async () => {
  const page = await openThread();
  await say(page, "weather Lisbon");
  await shows(page, "It is windy in Lisbon, 22 degrees.");
  await say(page, "say hello there");
  await shows(page, "hello there");
  await isIdle(page);
  const before = await conversation(page);
  await page.reload();
  await shows(page, "hello there");
  assert.equal(await conversation(page), before);
  assert.match(before, /get_weather/);
  assertClean(page);
});

test("a frontend tool runs in the page and its result is answered", LIMIT, async () => {
  const page = await openThread();
  await say(page, "color teal");
  await shows(page, "Your client has done it and answered: The background is teal.");
  assert.equal(await page.locator("section").evaluate((section) => section.style.getPropertyValue("--chosen")), "teal");
  assertClean(page);
});

test("an approval is answered in a second page, and the first one shows it after a reload", LIMIT, async () => {
  const first = await openThread();
  await say(first, "approve the deploy");
  await approval(first).waitFor();
  const second = await openThread();
  assert.equal(await approval(second).getByRole("paragraph").innerText(), "May I the deploy?");
  await approval(second).getByRole("button", { name: "Approve" }).click();
  await shows(second, "Approved: I may the deploy.");
  await first.reload();
  await shows(first, "Approved: I may the deploy.");
  assert.equal(await approval(first).count(), 0);
  await say(first, "say and now something else");
  await shows(first, "and now something else");
  assertClean(first, second);
});

test("a page that is opened during a run joins it, and ends with the same text", LIMIT, async () => {
  const first = await openThread();
  await say(first, "count 200 every 30ms");
  await first.getByText("1 2 3").waitFor();
  const second = await openThread();
  await second.getByText("1 2 3").waitFor();
  assert.doesNotMatch((await answers(second)).join(), /200/);
  const text = Array.from({ length: 200 }, (_, at) => at + 1).join(" ");
  for (const page of [first, second]) {
    await shows(page, text);
    await isIdle(page);
  }
  assert.deepEqual(await answers(second), await answers(first));
  assertClean(first, second);
});

test("a run is stopped by the button of the page, which says so and goes on", LIMIT, async () => {
  const page = await openThread();
  await say(page, "hang");
  await shows(page, "hanging…");
  await page.getByTestId("copilot-send-button").click();
  await shows(page, "The last answer was stopped.");
  await page.reload();
  await shows(page, "The last answer was stopped.");
  await say(page, "say still here");
  await shows(page, "still here");
  assert.equal(await page.getByRole("status").count(), 0);
  assertClean(page);
});

test("a thread is listed under its first words, renamed and archived", LIMIT, async () => {
  const [words, name] = [`say ${thread}`, `Plans of ${thread}`];
  const page = await openThread();
  await say(page, words);
  await threadRow(page, words).waitFor();
  page.once("dialog", (dialog) => dialog.accept(name));
  await threadRow(page, words).hover();
  await threadRow(page, words).getByTitle("Rename").click();
  await threadRow(page, name).waitFor();
  await page.reload();
  await threadRow(page, name).hover();
  await threadRow(page, name).getByTitle("Archive").click();
  await threadRow(page, name).waitFor({ state: "detached" });
  const [archived] = await server.threads("archived=only");
  assert.deepEqual([archived.threadId, archived.title], [thread, name]);
  assertClean(page);
});

test("another thread is opened from the list", LIMIT, async () => {
  const page = await openThread();
  await say(page, `say first ${thread}`);
  await shows(page, `first ${thread}`);
  await page.getByRole("button", { name: "New thread" }).click();
  await say(page, `say second ${thread}`);
  await shows(page, `second ${thread}`);
  assert.doesNotMatch(await conversation(page), new RegExp(`first ${thread}`));
  await threadRow(page, `say first ${thread}`).getByRole("button").first().click();
  await shows(page, `first ${thread}`);
  assert.doesNotMatch(await conversation(page), new RegExp(`second ${thread}`));
  assertClean(page);
});

test("suggestions are shown and used, and no thread comes of them", LIMIT, async () => {
  const known = await server.threads("");
  const page = await openThread();
  const suggestion = page.getByTestId("copilot-suggestion").getByText("think", { exact: true });
  await suggestion.waitFor();
  assert.deepEqual(await server.threads(""), known);
  await suggestion.click();
  await shows(page, "I have thought about it, and the short answer is yes.");
  await suggestion.waitFor({ state: "detached" });
  const threads = await server.threads("");
  assert.deepEqual([threads[0].threadId, threads.length], [thread, known.length + 1]);
  assertClean(page);
});

test("a thumb stays after a reload", LIMIT, async () => {
  const page = await openThread();
  await say(page, "say rate me");
  await isIdle(page);
  const up = page.getByTestId("copilot-thumbs-up-button");
  await up.click();
  await page.locator("[data-testid=copilot-thumbs-up-button][aria-pressed=true]").waitFor();
  await page.reload();
  await page.locator("[data-testid=copilot-thumbs-up-button][aria-pressed=true]").waitFor();
  assert.equal(await page.locator("[data-testid=copilot-thumbs-down-button][aria-pressed=false]").count(), 1);
  assertClean(page);
});

test("after a server is killed in the middle of an answer, the page shows all that was stored and how it ended", LIMIT, async () => {
  const page = await openThread();
  await say(page, "count 1000 every 20ms");
  await page.getByText("1 2 3 4 5 6 7 8 9 10").waitFor();
  await server.kill();
  await server.restart();
  page.problems.length = 0; // The page has noticed that its server was gone.
  await page.reload();
  await shows(page, "The last answer failed.");
  const [asked, answer] = await server.messages(thread);
  assert.equal(asked.content, "count 1000 every 20ms");
  assert.match(answer.content, /^1 2 3 4 5 6 7 8 9 10 /);
  assert.deepEqual(await answers(page), [answer.content.trim()]);
  await say(page, "say and on it goes");
  await shows(page, "and on it goes");
  assertClean(page);
});
