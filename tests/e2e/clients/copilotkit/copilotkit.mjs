// CopilotKit's client, as a page uses it but without components, through everything that a page does. One JSON object comes out: for each
// scenario, what the page saw.
//
// usage: node copilotkit.mjs URL rest|single PREFIX   (PREFIX is that of the thread ids)

import { CopilotKitCore, ɵcreateThreadStore } from "@copilotkit/core";
import { z } from "zod";

const [url, transport, prefix] = process.argv.slice(2);
const runtimeUrl = `${url}/copilotkit`;
globalThis.window = {}; // Without one, the client asks for nothing.
console.warn = console.error = console.debug = () => {};

const requests = [];
let onResponse = () => {};
const plainFetch = globalThis.fetch;
globalThis.fetch = async (input, init) => {
  const { pathname } = new URL(String(input?.url ?? input));
  requests.push(pathname.endsWith("/copilotkit") ? JSON.parse(init.body).method : pathname.split("/copilotkit/")[1]);
  const response = await plainFetch(input, init);
  onResponse(response);
  return response;
};

/** A promise, and what settles it. */
function signal() {
  let resolve;
  const promise = new Promise((done) => (resolve = done));
  return { promise, resolve };
}

/** A page that has loaded: the client, its agent on this thread, and what a page would show. */
async function open(thread, { agentId = "default", tools = [], headers = {} } = {}) {
  const connected = signal();
  const core = new CopilotKitCore({ runtimeUrl, runtimeTransport: transport, tools, headers });
  const page = { core, errors: [], interrupts: [], custom: {}, subagents: [], reasoning: "" };
  const isOver = (status) => ["connected", "error"].includes(status);
  core.subscribe({
    onRuntimeConnectionStatusChanged: ({ status }) => isOver(status) && connected.resolve(status),
    onError: ({ code, error }) => page.errors.push({ code, message: error.message }),
  });
  page.status = isOver(core.runtimeConnectionStatus) ? core.runtimeConnectionStatus : await connected.promise;
  page.agent = core.getAgent(agentId);
  page.agent.threadId = thread;
  page.agent.subscribe({
    onRunStartedEvent: ({ event }) => void (page.runId = event.runId),
    onRunFinishedEvent: ({ event }) => void (page.interrupts = event.outcome?.interrupts ?? []),
    onCustomEvent: ({ event }) => void (page.custom[event.name] = event.value),
    onReasoningMessageContentEvent: ({ event }) => void (page.reasoning += event.delta),
    onEvent: ({ event }) => void (event.type.startsWith("SUBAGENT_") && page.subagents.push(event.type)),
  });
  return page;
}

/** Load a page on a thread that exists: the client asks for its history. */
async function load(thread, options) {
  const page = await open(thread, options);
  await page.core.connectAgent({ agent: page.agent });
  return page;
}

async function say(page, text, options = {}) {
  page.agent.addMessage({ id: crypto.randomUUID(), role: "user", content: text });
  await page.core.runAgent({ agent: page.agent, ...options });
}

/** Resolves with the next response, as soon as its headers are there. */
function nextResponse() {
  const answered = signal();
  onResponse = (response) => answered.resolve(response);
  return answered.promise;
}

/** Resolves when the page shows this text. */
function shows(page, text) {
  const seen = signal();
  const check = () => page.agent.messages.some(({ content }) => String(content).includes(text)) && seen.resolve();
  page.agent.subscribe({ onMessagesChanged: check });
  check();
  return seen.promise;
}

const plain = ({ id, role, content, toolCalls, toolCallId }) => ({ id, role, content, toolCalls, toolCallId });
const view = (page) => ({
  messages: JSON.parse(JSON.stringify(page.agent.messages.map(plain))),
  state: page.agent.state,
  errors: page.errors,
});
const threadOf = (name) => `${prefix}-${name}`;
const changeBackground = (calls) => ({
  name: "change_background",
  description: "Change the background color of the page.",
  parameters: z.object({ background: z.string() }),
  handler: async (args) => {
    calls.push(args);
    return "changed";
  },
});

/** The first state of a store of threads that fits. */
function stateOf(store, fits) {
  const found = signal();
  const subscription = store.select((state) => state).subscribe((state) => fits(state) && found.resolve(state));
  return found.promise.finally(() => subscription.unsubscribe());
}

/** The list of threads as `useThreads` has it, loaded. */
async function listThreads(core, context = {}) {
  const store = ɵcreateThreadStore({ fetch: core.ɵruntimeFetch });
  store.start();
  store.setContext({ runtimeUrl, headers: {}, agentId: "default", ...context });
  const state = await stateOf(store, ({ isLoading, error, threads }) => error || (!isLoading && threads.length));
  return { store, state };
}

const rows = ({ threads }) => threads.map(({ id, name, archived, agentId }) => ({ id, name, archived, agentId }));
const idle = ({ inFlightMutationCount }) => inFlightMutationCount === 0;
const json = async (core, path, init) => (await core.ɵruntimeFetch(`${runtimeUrl}${path}`, init)).json();

/** What the agent suggests, once all of it has come. */
async function suggestions(core) {
  const finished = signal();
  const subscription = core.subscribe({ onSuggestionsFinishedLoading: () => finished.resolve() });
  core.reloadSuggestions("default");
  await finished.promise;
  subscription.unsubscribe();
  return core.getSuggestions("default").suggestions.map(({ title, message }) => ({ title, message }));
}

const scenarios = {
  async info() {
    const { core, status } = await open(threadOf("info"));
    return {
      status,
      version: core.runtimeVersion,
      agents: Object.keys(core.agents).sort(),
      threadEndpoints: core.threadEndpoints,
      suggestions: core.suggestions,
      mode: core.runtimeMode,
    };
  },

  /** A conversation, a reload, and a second connect of the same page. */
  async conversation() {
    const calls = [];
    const tools = [changeBackground(calls)];
    const page = await open(threadOf("conversation"), { tools });
    for (const text of ["weather Lisbon", "color red", "think", "state", "subagent"]) await say(page, text);
    const reloaded = await load(threadOf("conversation"), { tools });
    const once = view(reloaded);
    await reloaded.core.connectAgent({ agent: reloaded.agent });
    const { reasoning, subagents } = page;
    const thread = reloaded.custom["ambient:thread"];
    return { page: view(page), calls, reasoning, subagents, reloaded: once, again: view(reloaded), thread };
  },

  async interrupt() {
    const page = await open(threadOf("interrupt"));
    await say(page, "approve the deploy");
    const reloaded = await load(threadOf("interrupt"));
    const restored = reloaded.interrupts;
    const resume = restored.map(({ id }) => ({
      interruptId: id,
      status: "resolved",
      payload: { approved: true },
    }));
    await reloaded.core.runAgent({ agent: reloaded.agent, resume, runId: page.runId });
    const after = await load(threadOf("interrupt"));
    return {
      asked: page.interrupts,
      restored,
      sameRunId: reloaded.runId === page.runId,
      answered: view(reloaded),
      after: { ...view(after), interrupts: after.interrupts },
    };
  },

  async stop() {
    const page = await open(threadOf("stop"));
    const run = say(page, "hang");
    await shows(page, "hanging");
    const began = performance.now();
    page.core.stopAgent({ agent: page.agent });
    await run;
    const seconds = (performance.now() - began) / 1000;
    await say(page, "say still here");
    return { seconds, isRunning: page.agent.isRunning, page: view(page) };
  },

  /** A page that joined a run stops it, without the id of the run. */
  async stopAfterConnect() {
    const page = await open(threadOf("stopAfterConnect"));
    const run = say(page, "hang");
    await shows(page, "hanging");
    const other = await open(threadOf("stopAfterConnect"));
    const joined = other.core.connectAgent({ agent: other.agent });
    await shows(other, "hanging");
    other.core.stopAgent({ agent: other.agent });
    await Promise.all([run, joined]);
    return { page: view(page), other: view(other) };
  },

  async join() {
    const page = await open(threadOf("join"));
    await say(page, "say before");
    const run = say(page, "count 30 every 40ms");
    await shows(page, "3 ");
    const other = await load(threadOf("join"));
    await run;
    return { page: view(page), other: view(other) };
  },

  async busy() {
    const page = await open(threadOf("busy"));
    const run = say(page, "hang");
    await shows(page, "hanging");
    const other = await open(threadOf("busy"));
    await say(other, "say hello");
    const { errors, core } = other;
    const status = core.runtimeConnectionStatus;
    page.core.stopAgent({ agent: page.agent });
    await run;
    return { errors, status, page: view(page) };
  },

  /** A run that waits in the queue of its thread. */
  async queued() {
    const page = await open(threadOf("queued"));
    const run = say(page, "hang");
    await shows(page, "hanging");
    const other = await open(threadOf("queued"), { headers: { "X-Ambient-On-Busy": "queue" } });
    const first = nextResponse();
    const waits = say(other, "say my turn");
    await first;
    const left = await open(threadOf("queued"), { headers: { "X-Ambient-On-Busy": "queue" } });
    const opened = nextResponse();
    const leaves = say(left, "say never");
    const { status } = await opened;
    left.core.stopAgent({ agent: left.agent });
    await leaves;
    page.core.stopAgent({ agent: page.agent });
    await Promise.all([run, waits]);
    return { status, other: view(other), left: view(left) };
  },

  async unknown() {
    return view(await load(threadOf("unknown")));
  },

  async crash() {
    const page = await open(threadOf("crash"));
    await say(page, "crash");
    const reloaded = await load(threadOf("crash"));
    return { page: view(page), reloaded: view(reloaded) };
  },

  async suggestions() {
    const page = await open(threadOf("suggestions"));
    await say(page, "think");
    page.core.addSuggestionsConfig({ instructions: "Suggest something.", available: "always", maxSuggestions: 9 });
    const first = requests.length;
    const suggested = await suggestions(page.core);
    return { suggested, asked: requests.slice(first), errors: page.errors };
  },

  async threads() {
    const page = await open(threadOf("threads"));
    const { core } = page;
    const { store, state: first } = await listThreads(core, { limit: 2 });
    store.fetchNextPage();
    const more = await stateOf(store, ({ threads, isFetchingNextPage }) => !isFetchingNextPage && threads.length > 2);
    const all = rows((await listThreads(core)).state);
    const [busy, crash, join] = ["busy", "crash", "join"].map(threadOf);
    const changed = (await listThreads(core)).store;
    await changed.renameThread(busy, "Tea & cakes");
    await changed.archiveThread(crash);
    await changed.archiveThread(join);
    const archived = rows((await listThreads(core)).state);
    const withArchived = rows((await listThreads(core, { includeArchived: true })).state);
    await changed.unarchiveThread(join);
    await changed.deleteThread(crash);
    await stateOf(changed, idle);
    const end = rows((await listThreads(core, { includeArchived: true })).state);
    const failed = await changed.renameThread(threadOf("nothing"), "x").catch((error) => error.message);
    const dates = first.threads.map(({ createdAt, updatedAt }) => [createdAt, updatedAt]);
    return { pages: [rows(first), rows(more)], all, archived, withArchived, end, failed, dates };
  },

  async inspect() {
    const { core } = await open(threadOf("inspect"));
    const path = `/threads/${encodeURIComponent(threadOf("conversation"))}`;
    const parts = ["messages", "events", "state"].map((part) => json(core, `${path}/${part}`));
    return Object.assign({}, ...(await Promise.all(parts)));
  },

  async feedback() {
    const thread = threadOf("feedback");
    const page = await open(thread);
    await say(page, "say rate me");
    const messageId = page.agent.messages.at(-1).id;
    const payload = { messageId, value: "thumbs_up", comment: "nice" };
    const annotation = { type: "feedback", threadId: thread, clientEventId: crypto.randomUUID(), payload };
    const body = JSON.stringify(annotation);
    const post = { method: "POST", headers: { "Content-Type": "application/json" }, body };
    const answers = [await json(page.core, "/annotate", post), await json(page.core, "/annotate", post)];
    const reloaded = await load(thread);
    const { metadata } = reloaded.agent.messages.at(-1);
    return { id: annotation.clientEventId, answers, metadata, ...view(reloaded) };
  },
};

const results = {};
for (const [name, play] of Object.entries(scenarios)) results[name] = await play();
process.stdout.write(JSON.stringify(results));
process.exit(0);
