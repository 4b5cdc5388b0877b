import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { AmbientError, openThread, type ThreadOptions, type ThreadStore } from "../src/index.js";
import { FakePage, FakeServer, json, refusal, settle } from "./fake_server.js";
import { connectFrames, custom, delta, failed, finished, interrupted, started, text, textStart, threadInfo, user } from "./frames_of.js";

let server: FakeServer;
let page: FakePage;
const stores: ThreadStore[] = [];

beforeEach(() => {
  vi.useFakeTimers();
  vi.spyOn(Math, "random").mockReturnValue(1);
  server = new FakeServer();
  page = new FakePage();
});

afterEach(() => {
  for (const store of stores.splice(0)) store.close();
  expect(page.listenerCount).toBe(0);
  vi.useRealTimers();
  vi.restoreAllMocks();
});

function open(options: ThreadOptions = {}, id: string | undefined = "t"): ThreadStore {
  const store = openThread(id, { url: "http://server/", fetch: server.fetch, page, ...options });
  stores.push(store);
  return store;
}

const [a, b, c, d, e] = connectFrames([user("u")]) as [never, never, never, never, never];
const connected = [a, b, c, d, ["e.5", e]] as const;
const contents = (store: ThreadStore): unknown[] => store.getSnapshot().thread.messages.map(({ content }) => content);
const connection = (store: ThreadStore): unknown => store.getSnapshot().connection;

/** Return a store that is connected to a thread with one message, at the cursor `e.5`. */
async function openConnected(options: ThreadOptions = {}): Promise<ThreadStore> {
  const store = open(options);
  await settle();
  server.stream.send(...connected);
  await settle();
  return store;
}

test("a store connects by snapshot and follows", async () => {
  const store = open({ headers: { authorization: "Bearer x" } });
  expect(connection(store)).toStrictEqual({ state: "connecting" });
  await settle();
  expect(server.stream.request).toStrictEqual({
    ...{ method: "GET", path: "http://server/threads/t/events?from=snapshot", body: undefined },
    headers: { accept: "text/event-stream", authorization: "Bearer x" },
  });
  server.stream.send(...connected);
  await settle();
  expect([connection(store), contents(store)]).toStrictEqual([{ state: "live" }, ["says u"]]);
  server.stream.send(["e.6", started("r", user("u2"))], ["e.7", textStart("a")], ["e.8", delta("a", "hi")]);
  await settle();
  expect([contents(store), store.getSnapshot().thread.run?.status]).toStrictEqual([["says u", "says u2", "hi"], "running"]);
});

test("ids and cursors are escaped, headers may be a function, and snapshots can be left out", async () => {
  const store = open({ headers: async () => ({ "x-token": "1" }), snapshots: false }, "a/b ?");
  await settle();
  expect([server.stream.request.path, server.stream.request.headers["x-token"]]).toStrictEqual([
    "http://server/threads/a%2Fb%20%3F/events?snapshots=0&from=snapshot",
    "1",
  ]);
  server.stream.send(a, ["e+1", e]);
  server.stream.end();
  await settle(300);
  expect(server.stream.request.path).toBe("http://server/threads/a%2Fb%20%3F/events?snapshots=0&after=e%2B1");
  store.close();
});

test("many frames are one notification, with the next animation frame", async () => {
  const store = await openConnected();
  const listener = vi.fn();
  store.subscribe(listener);
  const before = store.getSnapshot();
  server.stream.send(["e.6", started("r")], ["e.7", textStart("a")]);
  server.stream.send(["e.8", delta("a", "x")]);
  server.stream.send(["e.9", delta("a", "y")]);
  await settle(1);
  expect([listener.mock.calls.length, store.getSnapshot() === before]).toStrictEqual([0, true]);
  await settle(20);
  expect([listener.mock.calls.length, contents(store)]).toStrictEqual([1, ["says u", "xy"]]);
});

test("a stream that ends is resumed after the last cursor, and nothing is lost or doubled", async () => {
  const store = await openConnected();
  server.stream.send(["e.6", started("r")], ["e.7", textStart("a")], ["e.8", delta("a", "x")]);
  await settle();
  server.stream.end();
  await settle(1);
  await settle(20);
  expect(connection(store)).toStrictEqual({ state: "resuming", since: expect.any(Number), missed: 0 });
  await settle(250);
  expect(server.stream.request.path).toBe("http://server/threads/t/events?after=e.8");
  server.stream.send(started("r"), textStart("a"), ["e.9", delta("a", "y")], ["e.10", finished("r")]);
  await settle();
  expect([connection(store), contents(store), store.getSnapshot().thread.runs.length]).toStrictEqual([
    { state: "live" },
    ["says u", "xy"],
    1,
  ]);
});

test("frames after the last cursor are dropped when the stream breaks: the server sends their entry again", async () => {
  const store = await openConnected();
  server.stream.send(["e.6", started("r")], ["e.7", textStart("a")], delta("a", "one "));
  await settle();
  expect(contents(store)).toStrictEqual(["says u", "one "]);
  server.stream.fail();
  await settle();
  expect(contents(store)).toStrictEqual(["says u", ""]);
  await settle(250);
  expect(server.stream.request.path).toBe("http://server/threads/t/events?after=e.7");
  server.stream.send(started("r"), textStart("a"), delta("a", "one "), ["e.8", delta("a", "two")]);
  await settle();
  expect(contents(store)).toStrictEqual(["says u", "one two"]);
});

test("a snapshot that breaks off is taken from its beginning again", async () => {
  const store = open();
  await settle();
  server.stream.send(a, b);
  server.stream.fail();
  await settle();
  expect(contents(store)).toStrictEqual([]);
  await settle(250);
  expect(server.stream.request.path).toBe("http://server/threads/t/events?from=snapshot");
  server.stream.send(...connected);
  await settle();
  expect(contents(store)).toStrictEqual(["says u"]);
});

test("attempts come at growing intervals up to 10 s, and at once again after a success", async () => {
  const store = await openConnected();
  const times: number[] = [];
  const begin = Date.now();
  server.refusals.push(...Array.from({ length: 8 }, () => new TypeError("fetch failed")));
  server.stream.fail();
  for (let count = server.requests.length; times.length < 9; count = server.requests.length) {
    while (server.requests.length === count) await settle(10);
    times.push(Date.now() - begin);
  }
  const waits = times.map((time, at) => Math.round((time - (times[at - 1] ?? 0)) / 250) * 250);
  expect(waits).toStrictEqual([250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000]);
  server.stream.send(custom("x", 1));
  await settle();
  expect(connection(store)).toStrictEqual({ state: "live" });
  const count = server.requests.length;
  server.stream.end();
  await settle(300);
  expect(server.requests.length).toBe(count + 1);
});

test("the waiting times have jitter", async () => {
  vi.spyOn(Math, "random").mockReturnValue(0);
  await openConnected();
  server.stream.fail();
  await settle(120);
  expect(server.streams).toHaveLength(1);
  await settle(10);
  expect(server.streams).toHaveLength(2);
});

test.each([
  ["seconds", () => "7"],
  ["a date", () => new Date(Date.now() + 7_000).toUTCString()],
])("Retry-After is obeyed: %s", async (_, value) => {
  await openConnected();
  server.refusals.push(refusal(503, "draining", { "retry-after": value() }));
  server.stream.end();
  await settle(5_900);
  expect(server.streams).toHaveLength(1);
  await settle(1_400);
  expect(server.streams).toHaveLength(2);
});

test.each([401, 403, 404, 422, 405])("a first answer of %d is not asked again", async (status) => {
  server.refusals.push(refusal(status, "some_code"));
  const store = open();
  await settle(60_000);
  expect(connection(store)).toStrictEqual({ state: "refused", status, code: "some_code", message: "refused: some_code" });
  page.isShown = false;
  page.isShown = true;
  await settle(60_000);
  expect(server.requests).toHaveLength(1);
});

test("a thread that is no longer there is gone", async () => {
  const store = await openConnected();
  server.refusals.push(refusal(404, "unknown_thread"));
  server.stream.end();
  await settle(60_000);
  expect([connection(store), server.requests.length, contents(store)]).toStrictEqual([{ state: "gone" }, 2, ["says u"]]);
  server.refusals.push(refusal(410, "run_gone"));
  const other = open();
  await settle();
  expect(connection(other)).toStrictEqual({ state: "gone" });
});

test("a message on a thread that is gone begins it anew, and the store follows it", async () => {
  const store = await openConnected();
  server.refusals.push(refusal(404, "unknown_thread"));
  server.stream.end();
  await settle(60_000);
  server.refusals.push(refusal(409, "stale_cursor"));
  await store.send("again");
  await settle();
  expect(server.stream.request.path).toBe("http://server/threads/t/events?from=snapshot");
  server.stream.send(...connectFrames([user("again")]).map((frame, at) => (at === 4 ? (["f.1", frame] as const) : frame)));
  await settle();
  expect([connection(store), contents(store)]).toStrictEqual([{ state: "live" }, ["says again"]]);
});

test("a refused store can be connected again", async () => {
  server.refusals.push(refusal(401, "unauthorized"));
  const store = open();
  await settle();
  store.reconnect();
  await settle();
  server.stream.send(...connected);
  await settle();
  expect([connection(store), contents(store)]).toStrictEqual([{ state: "live" }, ["says u"]]);
});

test.each([
  ["409 stale_cursor", refusal(409, "stale_cursor")],
  ["400 invalid_cursor", refusal(400, "invalid_cursor")],
])("%s connects anew, at once, from a snapshot", async (_, response) => {
  const store = await openConnected();
  server.refusals.push(response);
  server.stream.end();
  await settle(280);
  expect(server.stream.request.path).toBe("http://server/threads/t/events?from=snapshot");
  server.stream.send(...connectFrames([user("other")]).map((frame, at) => (at === 4 ? (["f.1", frame] as const) : frame)));
  await settle();
  expect(contents(store)).toStrictEqual(["says other"]);
});

test("a new epoch within a stream connects anew", async () => {
  const store = await openConnected();
  server.stream.send(["f.1", started("r", user("other"))]);
  await settle();
  expect([server.stream.request.path, server.openStreams]).toStrictEqual(["http://server/threads/t/events?from=snapshot", 1]);
  expect(contents(store)).toStrictEqual([]);
});

test("a page that is not an event stream is not read, and tried again", async () => {
  server.refusals.push(new Response("<html>", { headers: { "content-type": "text/html" } }));
  const store = open();
  await settle();
  expect(connection(store)).toStrictEqual({ state: "connecting" });
  await settle(300);
  expect(server.streams).toHaveLength(1);
});

test("silence of three heartbeats counts as a broken connection; comments are signs of life", async () => {
  await openConnected();
  for (let at = 0; at < 8; at++) {
    await settle(30_000);
    server.stream.write(": ping\n\n");
    await settle();
  }
  expect(server.streams).toHaveLength(1);
  await settle(44_900);
  expect(server.streams).toHaveLength(1);
  await settle(500);
  expect([server.streams.length, server.openStreams, server.stream.request.path]).toStrictEqual([
    2,
    1,
    "http://server/threads/t/events?after=e.5",
  ]);
});

test("a server that does not answer at all counts as broken too", async () => {
  const hanging: typeof fetch = (_, init) =>
    new Promise((_resolve, reject) => init?.signal?.addEventListener("abort", () => reject(new DOMException("aborted", "AbortError"))));
  const calls: unknown[] = [];
  const store = open({ fetch: (...request) => (calls.push(request), hanging(...request)) });
  await settle(45_300);
  expect([calls.length, connection(store)]).toStrictEqual([2, { state: "connecting" }]);
});

test("a page that is hidden for 10 s gives its connection up, and resumes when it is shown", async () => {
  const store = await openConnected();
  page.isShown = false;
  await settle(9_900);
  expect([server.openStreams, connection(store)]).toStrictEqual([1, { state: "live" }]);
  await settle(200);
  expect([server.openStreams, connection(store)]).toStrictEqual([0, { state: "hidden" }]);
  await settle(3_600_000);
  expect(server.requests).toHaveLength(1);
  page.isShown = true;
  await settle();
  expect([server.openStreams, server.stream.request.path]).toStrictEqual([1, "http://server/threads/t/events?after=e.5"]);
  expect(connection(store)).toStrictEqual({ state: "live" });
});

test("a page that is hidden for a moment keeps its connection", async () => {
  await openConnected();
  page.isShown = false;
  await settle(9_000);
  page.isShown = true;
  await settle(60_000 / 2);
  expect([server.streams.length, server.openStreams]).toStrictEqual([1, 1]);
});

test("a page that was opened in the background gives its connection up as well", async () => {
  page.isShown = false;
  const store = open();
  await settle(10_100);
  expect([server.openStreams, connection(store)]).toStrictEqual([0, { state: "hidden" }]);
});

test("a page that is shown does not wait for the next attempt", async () => {
  await openConnected();
  server.refusals.push(...Array.from({ length: 6 }, () => new TypeError("fetch failed")));
  server.stream.fail();
  await settle(9_000);
  const count = server.requests.length;
  page.isShown = false;
  page.isShown = true;
  await settle(1);
  expect(server.requests.length).toBe(count + 1);
});

test("there is never more than one stream", async () => {
  const store = await openConnected();
  store.reconnect();
  store.reconnect();
  page.isShown = false;
  page.isShown = true;
  await settle();
  expect(server.openStreams).toBe(1);
});

test("a closed store holds nothing", async () => {
  const store = await openConnected();
  store.close();
  await settle(120_000);
  expect([server.openStreams, server.requests.length, page.listenerCount]).toStrictEqual([0, 1, 0]);
  expect(contents(store)).toStrictEqual(["says u"]);
});

test("send posts the message once, with a key, and is confirmed by the stream", async () => {
  const store = await openConnected({ agent: "demo" });
  const sent = store.send("hello", { id: "m1", state: { a: 1 }, onBusy: "queue" });
  await settle();
  const [post] = server.posts();
  expect([post?.path, post?.headers.prefer, post?.headers["x-ambient-on-busy"]]).toStrictEqual([
    "http://server/agents/demo",
    "respond-async",
    "queue",
  ]);
  expect(post?.headers["idempotency-key"]).toMatch(/^[0-9a-f-]{36}$/);
  expect(post?.body).toStrictEqual({
    ...{ threadId: "t", runId: expect.any(String), protocolVersion: "1.0", tools: [], context: [], state: { a: 1 } },
    messages: [{ id: "m1", role: "user", content: "hello" }],
  });
  expect(await sent).toStrictEqual({ threadId: "t", runId: post?.body.runId, run: "key" });
  expect(store.getSnapshot().sending).toStrictEqual([{ id: "m1", role: "user", content: "hello" }]);
  server.stream.send(["e.6", started(post?.body.runId, user("m1", "hello"))]);
  await settle();
  expect([store.getSnapshot().sending, contents(store)]).toStrictEqual([[], ["says u", "hello"]]);
});

test("a send is tried again after network errors, with the same key and body", async () => {
  const store = await openConnected();
  const answers: (Error | Response | undefined)[] = [new TypeError("fetch failed"), refusal(503, "draining"), undefined];
  server.handler = () => answers.shift();
  const sent = store.send("hello");
  await settle(2_000);
  expect((await sent).run).toBe("key");
  const posts = server.posts("http://server/");
  expect(posts).toHaveLength(3);
  expect(new Set(posts.map((post) => JSON.stringify([post.headers["idempotency-key"], post.body]))).size).toBe(1);
});

test("a send that is refused is not tried again, and says why", async () => {
  const store = await openConnected();
  server.handler = () => refusal(409, "thread_busy");
  await expect(store.send("hello")).rejects.toStrictEqual(new AmbientError(409, "thread_busy", "refused: thread_busy"));
  await settle();
  expect([server.posts().length, store.getSnapshot().sending, store.getSnapshot().error?.code]).toStrictEqual([1, [], "thread_busy"]);
  server.handler = () => undefined;
  await store.send("again");
  await settle();
  expect(store.getSnapshot().error).toBeUndefined();
});

test("a new thread is connected with its first message", async () => {
  const store = openThread(undefined, { url: "http://server", fetch: server.fetch, page });
  stores.push(store);
  await settle(1_000);
  expect([server.requests.length, connection(store)]).toStrictEqual([
    0,
    { state: "refused", status: 404, code: "unknown_thread", message: "No message yet." },
  ]);
  await store.send("hello");
  await settle();
  expect([server.posts()[0]?.body.threadId, server.stream.request.path]).toStrictEqual([
    store.id,
    `http://server/threads/${store.id}/events?from=snapshot`,
  ]);
});

test("a server that streams the run instead of confirming it is left alone", async () => {
  const store = await openConnected();
  let isCancelled = false;
  const body = new ReadableStream({ cancel: () => void (isCancelled = true) });
  server.handler = () => new Response(body, { headers: { "content-type": "text/event-stream", "x-ambient-run": "k2" } });
  expect((await store.send("hello")).run).toBe("k2");
  expect(isCancelled).toBe(true);
});

test("answers are sent when every interrupt has one, each for the arguments that were shown", async () => {
  const store = await openConnected();
  const first = { id: "i1", reason: "tool_call", metadata: { argumentsDigest: "d1" } };
  server.stream.send(["e.6", started("r")], ["e.7", interrupted("r", first, { id: "i2", reason: "confirmation" })]);
  await settle();
  expect(await store.answer({ interruptId: "i1", payload: { approved: true } })).toBeUndefined();
  await settle();
  expect([server.posts().length, store.getSnapshot().answers.length]).toStrictEqual([0, 1]);
  await store.answer({ interruptId: "i2", status: "cancelled" });
  await settle();
  expect(server.posts()[0]?.body).toMatchObject({
    messages: [],
    resume: [
      { interruptId: "i1", status: "resolved", payload: { approved: true }, metadata: { argumentsDigest: "d1" } },
      { interruptId: "i2", status: "cancelled" },
    ],
  });
  expect(store.getSnapshot().answers).toStrictEqual([]);
});

test("a run that answers and fails may leave its questions open: the store connects anew to learn it", async () => {
  const store = await openConnected();
  server.stream.send(["e.6", started("r1")], ["e.7", interrupted("r1", { id: "i", reason: "confirmation" })]);
  await settle();
  server.stream.send(["e.8", started("r2")]);
  await settle();
  expect(store.getSnapshot().thread.interrupts).toStrictEqual([]);
  server.stream.send(["e.9", failed()]);
  await settle();
  expect([server.streams.length, server.openStreams]).toStrictEqual([2, 1]);
  const interrupts = [{ id: "i", reason: "confirmation" }];
  server.stream.send(...connectFrames([user("u")], threadInfo({ status: "waiting" }), { interrupts }));
  await settle();
  expect(store.getSnapshot().thread.interrupts).toStrictEqual(interrupts);
});

test("stop says whether there was something to stop", async () => {
  const store = await openConnected();
  expect(await store.stop()).toBe(true);
  expect(server.posts("http://server/interrupt")[0]?.body).toStrictEqual({ threadId: "t" });
  server.handler = () => refusal(409, "nothing_running");
  expect(await store.stop()).toBe(false);
});

test("a question, its answer and the failed run of the answer may come at once: the store connects anew all the same", async () => {
  await openConnected();
  const question = interrupted("r1", { id: "i1", reason: "confirmation" });
  server.stream.send(["e.6", started("r1", user("u1"))], ["e.7", question], ["e.8", started("r2")], ["e.9", failed()]);
  await settle();
  expect(server.streams.map(({ request }) => request.path.split("?")[1])).toStrictEqual(["from=snapshot", "from=snapshot"]);
});

test("a patch of the state is not sent again after a network error: it may have been applied", async () => {
  const store = await openConnected();
  server.handler = () => new TypeError("fetch failed");
  const refused = expect(store.patchState([{ op: "add", path: "/list/-", value: 1 }])).rejects.toMatchObject({ status: 0 });
  await settle(60_000);
  await refused;
  expect(server.requests.filter(({ method }) => method === "PATCH")).toHaveLength(1);
});

test("retry has the last message of the user answered again, or an earlier one", async () => {
  const store = await openConnected();
  server.stream.send(["e.6", started("r", user("u2"))], ...text("a", "x"), ["e.9", failed()]);
  await settle();
  await store.retry();
  await store.retry("u");
  expect(server.posts().map((post) => post.body.messages)).toStrictEqual([[user("u2")], [user("u")]]);
  await expect(store.retry("a")).rejects.toMatchObject({ code: "unknown_message" });
});

test("editFrom begins another thread and leaves this one as it is", async () => {
  const store = await openConnected({ agent: "demo" });
  const { threadId } = await store.editFrom("u", "else");
  const [post] = server.posts();
  expect(post?.path).toBe("http://server/agents/demo?fork=t&before=u");
  expect([post?.body.threadId, post?.body.messages]).toStrictEqual([threadId, [{ id: expect.any(String), role: "user", content: "else" }]]);
  expect(threadId).not.toBe("t");
  expect([server.openStreams, contents(store)]).toStrictEqual([1, ["says u"]]);
});

test("feedback, patches, titles and the archive are requests of their own", async () => {
  const store = await openConnected();
  await store.feedback("a", "thumbs_down", "wrong");
  await store.patchState([{ op: "add", path: "/a", value: 1 }]);
  await store.rename("A title");
  await store.archive();
  expect(server.requests.slice(1).map(({ method, path, body }) => [method, path, body])).toStrictEqual([
    ["POST", "http://server/feedback", { type: "META", metaType: "thumbs_down", threadId: "t", payload: { messageId: "a", comment: "wrong" } }],
    ["PATCH", "http://server/state/t", [{ op: "add", path: "/a", value: 1 }]],
    ["PATCH", "http://server/thread/t", { title: "A title" }],
    ["PATCH", "http://server/thread/t", { archived: true }],
  ]);
});

test("onFrame sees every frame, also those that the reducer leaves to the page", async () => {
  const seen: unknown[] = [];
  await openConnected({ onFrame: (frame, cursor) => seen.push([frame.type, cursor]) });
  server.stream.send(["e.6", custom("ambient:repo_added", { name: "x" })]);
  await settle();
  expect(seen.slice(-2)).toStrictEqual([["RUN_FINISHED", "e.5"], ["CUSTOM", "e.6"]]);
});

test("a lazy store is connected while it has subscribers, and resumes with the next", async () => {
  const store = open({ lazy: true });
  await settle(1_000);
  expect(server.requests).toHaveLength(0);
  const leave = store.subscribe(() => {});
  await settle();
  server.stream.send(...connected);
  await settle();
  leave();
  const leaveAgain = store.subscribe(() => {});
  await settle(5_000);
  expect(server.openStreams).toBe(1);
  leaveAgain();
  await settle(1_100);
  expect(server.openStreams).toBe(0);
  store.subscribe(() => {});
  await settle();
  expect(server.stream.request.path).toBe("http://server/threads/t/events?after=e.5");
});

test("an error is one of ours, whatever the server sends", async () => {
  const store = await openConnected();
  server.handler = () => new Response("<html>Bad Gateway", { status: 400, statusText: "Bad" });
  await expect(store.rename("x")).rejects.toStrictEqual(new AmbientError(400, "", "Bad"));
  server.handler = () => json({ error: "code", message: "A sentence." }, 400);
  await expect(store.rename("x")).rejects.toMatchObject({ status: 400, message: "A sentence." });
});
