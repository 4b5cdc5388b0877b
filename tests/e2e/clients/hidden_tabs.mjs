// Opens stores of @ambient-runner/core, each on a page of its own: hidden_tabs.mjs URL THREAD…. It prints `live` when all are connected; at
// each further line of stdin it hides all pages and prints `hidden`, or shows them, waits for a message more in each and prints the messages.
import { openThread } from "../../../web/packages/core/dist/index.js";
import { readLines, speedUpTimers, TestPage, until } from "./web_page.mjs";

const [url, ...ids] = process.argv.slice(2);
const heartbeat = speedUpTimers(20);
const tabs = ids.map((id) => {
  const page = new TestPage();
  return { page, store: openThread(id, { url, page, heartbeat }) };
});
const lines = readLines();
const print = (value) => process.stdout.write(JSON.stringify(value) + "\n");
const isLoaded = ({ connection, thread }) => connection.state === "live" && thread.info && !thread.restating;

const loaded = await Promise.all(tabs.map(({ store }) => until(store, isLoaded)));
print("live");
await lines.next();
for (const { page } of tabs) page.setHidden(true);
await Promise.all(tabs.map(({ store }) => until(store, ({ connection }) => connection.state === "hidden")));
print("hidden");
await lines.next();
for (const { page } of tabs) page.setHidden(false);
const isNewer = (before) => (snapshot) =>
  isLoaded(snapshot) && snapshot.thread.run.status !== "running" && snapshot.thread.messages.length > before.thread.messages.length;
const shown = await Promise.all(tabs.map(({ store }, at) => until(store, isNewer(loaded[at]))));
print(shown.map(({ thread }) => thread.messages));
await lines.next();
process.exit();
