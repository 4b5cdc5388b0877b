import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { openApprovals } from "../src/client.js";
import { openThreads, type ListedThread, type ThreadsOptions, type ThreadsStore } from "../src/index.js";
import { FakePage, FakeServer, json, refusal, settle } from "./fake_server.js";
import { connectFrames, threadInfo } from "./frames_of.js";

let server: FakeServer;
let page: FakePage;
let store: ThreadsStore | undefined;

beforeEach(() => {
  vi.useFakeTimers();
  server = new FakeServer();
  page = new FakePage();
});

afterEach(() => {
  store?.close();
  store = undefined;
  vi.useRealTimers();
});

const thread = (threadId: string, updatedAt: number, more: Partial<ListedThread> = {}): ListedThread => ({
  ...{ threadId, agent: "demo", title: `Title ${threadId}`, archived: false, status: "finished", createdAt: 1, updatedAt, cursor: `c${updatedAt}` },
  ...more,
});

/** Answer requests for the list by what they ask for. */
function serve(pages: Readonly<Record<string, unknown>>): void {
  server.handler = ({ method, path }) => {
    if (method !== "GET") return undefined;
    const query = new URL(path).searchParams;
    const key = query.get("changed_after") ?? query.get("before") ?? "first";
    const newest = key === "first" && ((pages.first as { threads: ListedThread[] }).threads[0]?.cursor ?? null);
    return json({ next: null, cursor: newest || key, ...(pages[key] ?? { threads: [], erased: [] }) });
  };
}

function open(options: ThreadsOptions = {}): ThreadsStore {
  return (store = openThreads({ url: "http://server", fetch: server.fetch, page, ...options }));
}

const ids = (): unknown => store?.getSnapshot().threads.map(({ threadId }) => threadId);

test("the list is read once, and then only what has changed", async () => {
  serve({
    first: { threads: [thread("b", 2), thread("a", 1)], next: "c1" },
    c2: { threads: [thread("a", 3, { title: "New" })], erased: [], next: null, cursor: "c3" },
    c3: { threads: [], erased: ["b"], cursor: "c4" },
  });
  open();
  expect(store?.getSnapshot()).toStrictEqual({ threads: [], isLoaded: false, hasMore: false, error: undefined });
  await settle(100);
  expect([ids(), store?.getSnapshot().isLoaded, store?.getSnapshot().hasMore]).toStrictEqual([["b", "a"], true, true]);
  await settle(2_000);
  expect([ids(), store?.getSnapshot().threads[0]?.title]).toStrictEqual([["a", "b"], "New"]);
  await settle(2_000);
  expect(ids()).toStrictEqual(["a"]);
  await settle(2_000);
  expect(server.requests.map(({ path }) => path)).toStrictEqual([
    "http://server/thread/list?limit=50",
    "http://server/thread/list?changed_after=c2&limit=100",
    "http://server/thread/list?changed_after=c3&limit=100",
    "http://server/thread/list?changed_after=c4&limit=100",
  ]);
});

test("nothing new is no notification", async () => {
  serve({ first: { threads: [thread("a", 1)], next: null } });
  const listener = vi.fn();
  open().subscribe(listener);
  await settle(9_900);
  expect([listener.mock.calls.length, server.requests.length]).toStrictEqual([1, 5]);
});

test("many changes are read at once", async () => {
  const many = Array.from({ length: 100 }, (_, at) => thread(`m${at}`, 10 + at));
  serve({ first: { threads: [thread("a", 1)] }, c1: { threads: many, erased: [], cursor: "c2" }, c2: { threads: [], erased: ["a"], cursor: "c3" } });
  open();
  await settle(2_100);
  expect([store?.getSnapshot().threads.length, server.requests.length]).toStrictEqual([100, 3]);
});

test("more pages follow the first", async () => {
  serve({ first: { threads: [thread("c", 3)], next: "c3" }, c3: { threads: [thread("b", 2)], next: null } });
  open({ interval: 60_000 });
  await settle(100);
  await store?.loadMore();
  await store?.loadMore();
  await settle(100);
  expect([ids(), store?.getSnapshot().hasMore, server.requests.length]).toStrictEqual([["c", "b"], false, 2]);
});

test("filters go to the server, and changed threads that they do not admit leave the list", async () => {
  serve({
    first: { threads: [thread("a", 1, { status: "waiting" }), thread("b", 0, { status: "waiting" })], next: null },
    c1: {
      cursor: "c9",
      threads: [
        thread("a", 3),
        thread("x", 4, { status: "waiting", agent: "other" }),
        thread("y", 5, { status: "waiting", title: "else" }),
        thread("z", 6, { status: "waiting", archived: true }),
        thread("n", 7, { status: "waiting", title: "TITLE n" }),
      ],
    },
  });
  open({ agent: "demo", status: "waiting", search: "title", pageSize: 10 });
  await settle(2_200);
  expect([ids(), server.requests[0]?.path]).toStrictEqual([
    ["n", "b"],
    "http://server/thread/list?limit=10&agent=demo&status=waiting&search=title",
  ]);
});

test("a hidden page asks nothing, and asks at once when it is shown", async () => {
  serve({ first: { threads: [thread("a", 1)], next: null } });
  open();
  await settle(100);
  page.isShown = false;
  await settle(60_000);
  expect(server.requests).toHaveLength(1);
  page.isShown = true;
  await settle(1);
  expect(server.requests).toHaveLength(2);
});

test("errors are shown; temporary ones are asked again, refusals are not", async () => {
  serve({ first: { threads: [thread("a", 1)], next: null } });
  open();
  await settle(100);
  const { handler } = server;
  server.handler = () => new TypeError("fetch failed");
  await settle(2_000);
  expect([store?.getSnapshot().error?.code, ids()]).toStrictEqual(["unreachable", ["a"]]);
  server.handler = handler;
  await settle(3_000);
  expect(store?.getSnapshot().error).toBeUndefined();
  server.handler = () => refusal(401, "unauthorized");
  await settle(3_000);
  const count = server.requests.length;
  await settle(60_000);
  expect([store?.getSnapshot().error?.code, server.requests.length]).toStrictEqual(["unauthorized", count]);
});

test.each([refusal(400, "invalid_cursor"), refusal(409, "stale_cursor")])("a cursor that the server does not know begins the list anew (%#)", async (response) => {
  serve({ first: { threads: [thread("a", 1)], next: null } });
  open();
  await settle(100);
  const { handler } = server;
  server.handler = (request) => (request.path.includes("changed_after") ? response.clone() : handler(request));
  await settle(2_000);
  expect([ids(), server.requests.slice(1).map(({ path }) => path.split("?")[1])]).toStrictEqual([["a"], ["changed_after=c1&limit=100", "limit=50"]]);
});

test("threads are renamed, archived and deleted, and the list follows at once", async () => {
  serve({ first: { threads: [thread("a", 1)], next: null }, c1: { threads: [thread("a", 2, { title: "New" })], cursor: "c2" } });
  open({ interval: 60_000 });
  await settle(100);
  await store?.rename("a", "New");
  await settle(100);
  expect(store?.getSnapshot().threads[0]?.title).toBe("New");
  await store?.archive("a");
  await store?.delete("a");
  await settle(100);
  expect(ids()).toStrictEqual([]);
  expect(server.requests.filter(({ method }) => method !== "GET").map(({ method, path, body }) => [method, path, body])).toStrictEqual([
    ["PATCH", "http://server/thread/a", { title: "New" }],
    ["PATCH", "http://server/thread/a", { archived: true }],
    ["DELETE", "http://server/thread/a", undefined],
  ]);
});

test("every question that waits is listed over all threads, and answered in its own", async () => {
  let threads = [thread("a", 2, { status: "waiting" }), thread("b", 1, { status: "waiting", agent: "other" })];
  server.handler = ({ method }) => (method === "GET" ? json({ threads, next: null, erased: [], cursor: "c" }) : undefined);
  const approvals = openApprovals({ url: "http://server", fetch: server.fetch, page });
  await settle(100);
  expect(server.streams.map(({ request }) => request.path)).toStrictEqual([
    "http://server/threads/a/events?from=snapshot&until=idle",
    "http://server/threads/b/events?from=snapshot&until=idle",
  ]);
  const info = threadInfo({ status: "waiting" });
  server.streams[0]?.send(...connectFrames([], info, { interrupts: [{ id: "i1", reason: "confirmation" }, { id: "i2", reason: "confirmation" }] }));
  server.streams[1]?.send(...connectFrames([], info, { interrupts: [{ id: "i3", reason: "confirmation" }] }));
  for (const stream of server.streams) stream.end();
  await settle(100);
  const list = approvals.getSnapshot();
  expect(list.map(({ thread: { threadId }, interrupt: { id } }) => [threadId, id])).toStrictEqual([["a", "i1"], ["a", "i2"], ["b", "i3"]]);

  await approvals.answer(list[0] as never, { status: "resolved", payload: true });
  expect(server.posts()).toHaveLength(0);
  await approvals.answer(list[1] as never, { status: "cancelled" });
  await approvals.answer(list[2] as never, { status: "resolved", payload: 1 });
  expect(server.posts().map(({ path, body }) => [path, body.threadId, body.resume])).toStrictEqual([
    ["http://server/agents/demo", "a", [{ interruptId: "i1", status: "resolved", payload: true }, { interruptId: "i2", status: "cancelled" }]],
    ["http://server/agents/other", "b", [{ interruptId: "i3", status: "resolved", payload: 1 }]],
  ]);
  threads = [];
  await settle(3_000);
  expect(approvals.getSnapshot()).toStrictEqual([]);
  approvals.close();
});
