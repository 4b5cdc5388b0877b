// The pages of examples/react and examples/svelte in Chromium, on a real server. Both look alike, so one test is for both.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { launchBrowser } from "./browser.mjs";
import { servePage } from "./pages.mjs";
import { startServer } from "./server.mjs";

const LIMIT = { timeout: 120_000 }; // milliseconds
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; " +
  "form-action 'none'; frame-ancestors 'none'";

for (const example of ["react", "svelte"]) {
  describe(`examples/${example}`, () => {
    let server, site, browser;

    before(async () => {
      server = await startServer();
      site = await servePage(example, server);
      browser = await launchBrowser();
    }, LIMIT);

    after(async () => {
      await browser?.close();
      await site?.close();
      await server?.stop();
    });

    /** Open the page, and begin a thread in it. */
    async function begin() {
      const page = await browser.open(site.url);
      await page.getByRole("button", { name: "New thread" }).click();
      return page;
    }

    /** Open the thread of this page in another one. */
    const openAgain = (page) => browser.open(page.url());

    test("a conversation with a tool of the page is the same after a reload and in another page", LIMIT, async () => {
      const page = await begin();
      await say(page, "weather Lisbon");
      await shows(page, "It is windy in Lisbon, 22 degrees.");
      await say(page, "color teal");
      await shows(page, "Your client has done it and answered: The background is teal.");
      assert.equal(await page.locator("section").evaluate((section) => section.style.getPropertyValue("--chosen")), "teal");
      const before = await messages(page);
      await page.reload();
      await shows(page, "Your client has done it and answered: The background is teal.");
      const other = await openAgain(page);
      await shows(other, "Your client has done it and answered: The background is teal.");
      assert.deepEqual([await messages(page), await messages(other)], [before, before]);
      assertClean(page, other);
    });

    test("an approval is answered in a page that shows another thread, and both learn it", LIMIT, async () => {
      const page = await begin();
      await say(page, "approve the deploy");
      await approval(page).waitFor();
      const other = await begin();
      assert.equal(await approval(other).getByRole("paragraph").innerText(), "approve the deploy: May I the deploy?");
      await approval(other).getByRole("button", { name: "Approve" }).click();
      await shows(page, "Approved: I may the deploy.");
      await approval(page).waitFor({ state: "detached" });
      await approval(other).waitFor({ state: "detached" });
      assertClean(page, other);
    });

    test("a second page follows a run as it goes, and can stop it", LIMIT, async () => {
      const page = await begin();
      await say(page, "count 1000 every 20ms");
      await page.getByText("1 2 3").waitFor();
      const other = await openAgain(page);
      await other.getByText("1 2 3").waitFor();
      await other.getByRole("button", { name: "Stop" }).click();
      await shows(page, "The last answer was stopped.");
      await shows(other, "The last answer was stopped.");
      assert.deepEqual(await messages(other), await messages(page));
      assertClean(page, other);
    });

    test("threads are listed under their first words, in all pages, renamed and archived", LIMIT, async () => {
      const page = await begin();
      const other = await begin();
      await say(page, "say my plans");
      await row(other, "say my plans").waitFor();
      other.once("dialog", (dialog) => dialog.accept("Plans"));
      await row(other, "say my plans").hover();
      await row(other, "say my plans").getByTitle("Rename").click();
      await row(page, "Plans").waitFor();
      await row(page, "Plans").hover();
      await row(page, "Plans").getByTitle("Archive").click();
      await row(page, "Plans").waitFor({ state: "detached" });
      await row(other, "Plans").waitFor({ state: "detached" });
      assert.deepEqual((await server.threads("archived=only")).map(({ title }) => title), ["Plans"]);
      assertClean(page, other);
    });

    test("a thumb is stored, and shown in all pages and after a reload", LIMIT, async () => {
      const page = await begin();
      await say(page, "say rate me");
      await shows(page, "rate me");
      const other = await openAgain(page);
      await page.getByRole("button", { name: "Good" }).click();
      await other.getByRole("button", { name: "Good", pressed: true }).waitFor();
      await page.reload();
      await page.getByRole("button", { name: "Good", pressed: true }).waitFor();
      assertClean(page, other);
    });

    test("a page whose server is killed and started again goes on without a reload", LIMIT, async () => {
      const page = await begin();
      await say(page, "count 1000 every 20ms");
      await page.getByText("1 2 3 4 5 6 7 8 9 10").waitFor();
      await server.kill();
      await shows(page, "Not connected.");
      await server.restart();
      await shows(page, "The last answer failed.");
      const [asked, answer] = await server.messages(new URL(page.url()).hash.slice(1));
      assert.deepEqual(await messages(page), [asked.content, answer.content.trim()]);
      await say(page, "say and on it goes");
      await shows(page, "and on it goes");
      const other = await openAgain(page);
      await shows(other, "and on it goes");
      assert.deepEqual(await messages(other), await messages(page));
      assertClean(other);
    });
  });
}

async function say(page, text) {
  await page.getByLabel("Message", { exact: true }).fill(text);
  await page.getByRole("button", { name: "Send" }).click();
}

const shows = (page, text) => page.getByText(text).first().waitFor();
const approval = (page) => page.getByRole("group", { name: "Approval" });
const row = (page, title) => page.getByRole("navigation").getByRole("listitem").filter({ hasText: title });

/** The texts of the messages, without their buttons. */
const messages = (page) =>
  page.getByLabel("Messages").getByRole("listitem").evaluateAll((items) =>
    items.map((item) => {
      const copy = item.cloneNode(true);
      copy.querySelector(".thumbs")?.remove();
      return copy.textContent.trim();
    }),
  );

/** Nothing went wrong behind the scenes, under the policy of the page. */
function assertClean(...pages) {
  for (const page of pages) {
    assert.equal(page.policy, POLICY);
    assert.deepEqual(page.problems, []);
  }
}
