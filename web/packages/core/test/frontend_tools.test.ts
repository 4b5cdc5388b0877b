import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { openThread, type AnyFrontendTool, type FrontendTool, type ThreadStore } from "../src/index.js";
import { FakePage, FakeServer, refusal, settle } from "./fake_server.js";
import { call, connectFrames, finished, started, threadInfo, user } from "./frames_of.js";

let server: FakeServer;
const stores: ThreadStore[] = [];

beforeEach(() => {
  vi.useFakeTimers();
  server = new FakeServer();
});

afterEach(() => {
  for (const store of stores.splice(0)) store.close();
  vi.useRealTimers();
});

const [first, ...rest] = connectFrames([user("u")]);

/** Return a store with these tools, connected to a thread with one message. */
async function open(tools: readonly AnyFrontendTool[], frames = [first, ...rest]): Promise<ThreadStore> {
  const store = openThread("t", { url: "http://server", fetch: server.fetch, page: new FakePage(), tools });
  stores.push(store);
  await settle();
  server.stream.send(...(frames.slice(0, -1) as never[]), ["e.1", frames.at(-1) as never]);
  await settle();
  return store;
}

function tool(name: string, more: Partial<FrontendTool<never>> = {}): AnyFrontendTool & { handler: ReturnType<typeof vi.fn> } {
  return { name, description: `Does ${name}.`, handler: vi.fn(() => `did ${name}`), ...more } as never;
}

/** Let the run that was posted last end with these calls waiting. */
async function endWithCalls(...calls: readonly [id: string, name: string, args?: string][]): Promise<void> {
  const { runId } = server.posts().at(-1)?.body as { runId: string };
  const frames = [started(runId, user("m")), ...calls.flatMap(([id, name, args = "{}"]) => call(id, name, args, "answer"))];
  server.stream.send(...frames, ["e.9", finished(runId, { type: "success", pendingToolCallIds: calls.map(([id]) => id) })]);
  await settle();
}

const answers = (at: number): unknown => server.posts()[at]?.body.messages;
const answer = (toolCallId: string, content: string, more = {}): object => ({
  ...{ id: expect.any(String), role: "tool", toolCallId, content, ...more },
});

const waiting = (name: string): ReturnType<typeof connectFrames> => {
  const messages = [
    user("u"),
    { id: "a", role: "assistant", toolCalls: [{ id: "c", type: "function", function: { name, arguments: '{"x":1}' } }] } as const,
  ];
  return connectFrames(messages, threadInfo({ status: "waiting", pendingCalls: [{ id: "c", name }] }));
};

test("the declarations of the tools go with every run, without what only the page needs", async () => {
  const store = await open([tool("pick", { parameters: { type: "object" }, resume: "auto" })]);
  await store.send("hello");
  expect(server.posts()[0]?.body.tools).toStrictEqual([{ name: "pick", description: "Does pick.", parameters: { type: "object" } }]);
});

test("a call of the page's own run is run once and its result is sent", async () => {
  const pick = tool("pick", { handler: vi.fn(async () => ({ color: "red" })) as never });
  const store = await open([pick]);
  await store.send("hello");
  await endWithCalls(["c", "pick", '{"from":["red"]}']);
  expect(pick.handler.mock.calls).toStrictEqual([
    [{ from: ["red"] }, { threadId: "t", toolCallId: "c", signal: expect.any(AbortSignal) }],
  ]);
  expect(answers(1)).toStrictEqual([answer("c", '{"color":"red"}')]);
  store.reconnect();
  await settle();
  server.stream.send(...(waiting("pick") as never[]));
  await settle();
  expect([pick.handler.mock.calls.length, server.posts().length]).toStrictEqual([1, 2]);
});

test("several calls are answered together, and a failure is a result too", async () => {
  const store = await open([
    tool("pick"),
    tool("pay", { handler: vi.fn(() => Promise.reject(new Error("no money"))) as never }),
    tool("odd", { handler: vi.fn(() => undefined) as never }),
  ]);
  await store.send("hello");
  await endWithCalls(["c1", "pick"], ["c2", "pay"], ["c3", "odd", "no JSON"]);
  expect(answers(1)).toStrictEqual([answer("c1", "did pick"), answer("c2", "no money", { error: "no money" }), answer("c3", "")]);
});

test("the run that brings the results is the page's own as well", async () => {
  const pick = tool("pick");
  const store = await open([pick]);
  await store.send("hello");
  await endWithCalls(["c1", "pick"]);
  await endWithCalls(["c2", "pick"]);
  expect([pick.handler.mock.calls.length, server.posts().length]).toStrictEqual([2, 3]);
});

test("a call of another page's run is offered, not run", async () => {
  const pick = tool("pick");
  const store = await open([pick]);
  server.stream.send(started("other"), ...call("c", "pick", '{"x":1}'), ["e.9", finished("other", { type: "success", pendingToolCallIds: ["c"] })]);
  await settle();
  expect(store.getSnapshot().offeredCalls).toStrictEqual([{ id: "c", name: "pick", arguments: '{"x":1}', canRun: true }]);
  expect(pick.handler).not.toHaveBeenCalled();
});

test("a call found waiting at load is offered, and run if the person says so", async () => {
  const pick = tool("pick");
  const store = await open([pick], waiting("pick"));
  expect([store.getSnapshot().offeredCalls, pick.handler.mock.calls.length]).toStrictEqual([
    [{ id: "c", name: "pick", arguments: '{"x":1}', canRun: true }],
    0,
  ]);
  store.runCall("c");
  store.runCall("c");
  await settle();
  expect([pick.handler.mock.calls.length, answers(0)]).toStrictEqual([1, [answer("c", "did pick")]]);
});

test("a tool declared to resume runs a call found waiting at load", async () => {
  const pick = tool("pick", { resume: "auto" });
  await open([pick], waiting("pick"));
  expect([pick.handler.mock.calls.length, answers(0)]).toStrictEqual([1, [answer("c", "did pick")]]);
});

test("a call without a handler is answered by hand", async () => {
  const store = await open([{ name: "ask", description: "Asks." }, tool("pick")]);
  await store.send("hello");
  await endWithCalls(["c1", "pick"], ["c2", "ask"]);
  expect([store.getSnapshot().offeredCalls, server.posts().length]).toStrictEqual([
    [{ id: "c2", name: "ask", arguments: "{}", canRun: false }],
    1,
  ]);
  await store.answerCall("c2", "yes");
  expect(answers(1)).toStrictEqual([answer("c1", "did pick"), answer("c2", "yes")]);
});

test("a page that answers second learns it: its handler is aborted and its result is not sent", async () => {
  let signal: AbortSignal | undefined;
  const slow = tool("pick", { handler: vi.fn((_: never, context: { signal: AbortSignal }) => ((signal = context.signal), new Promise(() => {}))) as never });
  const store = await open([slow]);
  await store.send("hello");
  await endWithCalls(["c", "pick"]);
  server.stream.send(["e.10", started("other", { id: "x", role: "tool", toolCallId: "c", content: "red" })]);
  await settle();
  expect([signal?.aborted, server.posts().length, store.getSnapshot().offeredCalls]).toStrictEqual([true, 1, []]);
});

test("a result that the server refuses is reported, and the call is offered again, not run again", async () => {
  const pick = tool("pick");
  const store = await open([pick]);
  await store.send("hello");
  server.handler = () => refusal(422, "invalid_input");
  await endWithCalls(["c", "pick"]);
  expect([store.getSnapshot().error?.code, store.getSnapshot().offeredCalls.length, pick.handler.mock.calls.length]).toStrictEqual([
    "invalid_input",
    1,
    1,
  ]);
  store.reconnect();
  await settle();
  const lastRun = { run: "key", runId: server.posts()[0]?.body.runId, status: "finished" } as const;
  server.stream.send(...(connectFrames([], threadInfo({ pendingCalls: [{ id: "c", name: "pick" }], lastRun })) as never[]));
  await settle();
  expect([store.getSnapshot().offeredCalls.length, pick.handler.mock.calls.length]).toStrictEqual([1, 1]);
});

test("a call that was answered by hand meanwhile is not answered again by its handler", async () => {
  let finish = (_: string): void => {};
  const slow = tool("pick", { handler: vi.fn(() => new Promise<string>((resolve) => (finish = resolve))) as never });
  const store = await open([slow]);
  await store.send("hello");
  await endWithCalls(["c", "pick"]);
  await store.answerCall("c", "by hand");
  finish("late");
  await settle();
  expect([server.posts().length, answers(1)]).toStrictEqual([2, [answer("c", "by hand")]]);
});

test("a reconnect does not disturb a handler that runs", async () => {
  let finish = (_: string): void => {};
  let signal: AbortSignal | undefined;
  const slow = tool("pick", {
    handler: vi.fn((_: never, context: { signal: AbortSignal }) => {
      signal = context.signal;
      return new Promise<string>((resolve) => (finish = resolve));
    }) as never,
  });
  const store = await open([slow]);
  await store.send("hello");
  await endWithCalls(["c", "pick"]);
  store.reconnect();
  await settle();
  const frames = waiting("pick");
  server.stream.send(...(frames.slice(0, 2) as never[]));
  await settle();
  server.stream.send(...(frames.slice(2) as never[]));
  await settle();
  finish("red");
  await settle();
  expect([signal?.aborted, slow.handler.mock.calls.length, answers(1)]).toStrictEqual([false, 1, [answer("c", "red")]]);
});
