// Talks to the demo agent through stores of @ambient-runner/core, until told to end: web_store.mjs URL SEED COMMAND…. Pages are hidden
// now and then.
// The line that ends it names the server's own address. It then prints, as JSON, each thread as its store has it, and as a store has it
// that was never cut.
import { openThread } from "../../../web/packages/core/dist/index.js";
import { readLines, speedUpTimers, TestPage, until } from "./web_page.mjs";

const [url, seed, ...commands] = process.argv.slice(2);
const STORES = 4;
const HIDE_EVERY = 6; // commands
const heartbeat = speedUpTimers(20);
let isEnding = false;

function makeRandom(state) {
  return () => {
    state = (state * 1664525 + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

class Tab {
  page = new TestPage();
  /** The cursors that came, from each connect by snapshot on. */
  cursors = [];
  resumes = 0;
  hidden = 0;
  sent = [];
  handled = [];

  constructor(number) {
    this.random = makeRandom(Number(seed) + number);
    this.snapshots = number % 2 === 0;
    this.store = openThread(undefined, {
      ...{ url, heartbeat, page: this.page, snapshots: this.snapshots, fetch: (...request) => this.fetch(...request) },
      onFrame: (_, cursor) => cursor !== undefined && this.cursors.at(-1).push(cursor),
      tools: [{ name: "change_background", description: "", parameters: { type: "object" }, handler: (_, call) => this.handle(call) }],
    });
  }

  async fetch(input, init) {
    const response = await fetch(input, init);
    if (input.includes("from=snapshot")) this.cursors.push([]);
    else if (input.includes("after=")) this.resumes++;
    return response;
  }

  handle({ toolCallId }) {
    this.handled.push(toolCallId);
    return "done";
  }

  async talk() {
    for (let count = 1; !isEnding; count++) {
      const text = commands[Math.floor(this.random() * commands.length)];
      const isHidden = count % HIDE_EVERY === 2;
      if (isHidden) this.page.setHidden(true);
      const { runId } = await this.store.send(text);
      this.sent.push(text);
      if (isHidden) await this.showAgain();
      await this.settle(runId);
    }
  }

  async showAgain() {
    await until(this.store, ({ connection }) => connection.state === "hidden");
    this.hidden++;
    this.page.setHidden(false);
  }

  /** Wait for the end of the run, and for the runs that follow from it. */
  async settle(runId) {
    await until(this.store, ({ thread: { runs } }) => runs.some((run) => run.runId === runId && run.status !== "running"));
    // A store whose answer has failed connects anew, and learns that the question is still open.
    const { thread } = await until(this.store, isSettled);
    if (!thread.interrupts.length) return;
    const started = await this.store.answer(...thread.interrupts.map(({ id }) => ({ interruptId: id, payload: { approved: true } })));
    await this.settle(started.runId);
  }
}

const isSettled = ({ connection, sending, thread: { info, restating, run, pendingCalls } }) =>
  connection.state === "live" && !sending.length && info && !restating && run.status !== "running" && !pendingCalls.length;

const describe = ({ messages, state, run, interrupts, pendingCalls, feedback, failedPatches, rawCount }) => ({
  ...{ messages, state, interrupts, pendingCalls, feedback, failedPatches, rawCount },
  run: { runId: run.runId, status: run.status },
});

async function readUncut(id, server) {
  const store = openThread(id, { url: server });
  const { thread } = await until(store, ({ thread: { info, restating } }) => info && !restating);
  store.close();
  return thread;
}

const tabs = Array.from({ length: STORES }, (_, number) => new Tab(number));
const talks = Promise.all(tabs.map((tab) => tab.talk()));
const { value: server } = await Promise.race([readLines().next(), talks]);
isEnding = true;
await talks;
const results = [];
for (const { store, cursors, resumes, hidden, sent, handled, snapshots } of tabs) {
  const { thread } = store.getSnapshot();
  store.close();
  const runIds = thread.runs.map((run) => run.runId);
  results.push({
    ...{ id: store.id, cursors, resumes, hidden, sent, handled, snapshots, runIds },
    thread: describe(thread),
    uncut: describe(await readUncut(store.id, server)),
  });
}
process.stdout.write(JSON.stringify(results), () => process.exit());
