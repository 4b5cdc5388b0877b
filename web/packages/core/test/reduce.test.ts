import { expect, test } from "vitest";
import { callsWithResults, EMPTY_THREAD, fold, reduce, type Frame, type Message } from "../src/index.js";
import { call, connectFrames, custom, delta, failed, finished, interrupted, result, started, text, textStart, threadInfo, user } from "./frames_of.js";
import { freeze } from "./freeze.js";

const contents = (messages: readonly Message[]): unknown[] => messages.map(({ id, role, content }) => [id, role, content]);

test("text, calls and results become messages in the order of the conversation", () => {
  const thread = fold([
    started("r", user("u")),
    ...text("a", "let me ", "look"),
    ...call("c1", "lookup", '{"x":1}', "a"),
    ...text("b", "meanwhile"),
    result("c1"),
    finished("r"),
  ]);
  expect(thread.messages).toStrictEqual([
    { id: "u", role: "user", content: "says u" },
    {
      ...{ id: "a", role: "assistant", content: "let me look" },
      toolCalls: [{ id: "c1", type: "function", function: { name: "lookup", arguments: '{"x":1}' } }],
    },
    { id: "c1-result", toolCallId: "c1", role: "tool", content: "done" },
    { id: "b", role: "assistant", content: "meanwhile" },
  ]);
  expect(callsWithResults(thread.messages)).toStrictEqual([{ id: "c1", name: "lookup", arguments: '{"x":1}', result: "done" }]);
});

test("results stand by their assistant message in the order in which they came", () => {
  const frames = [...call("c1", "tool", "{}", "a"), ...call("c2", "tool", "{}", "a"), ...text("b", "x"), result("c2"), result("c1"), result("unknown")];
  expect(fold(frames).messages.map(({ id }) => id)).toStrictEqual(["a", "c2-result", "c1-result", "b", "unknown-result"]);
});

test("a delta changes one message, and shares all others and everything else", () => {
  const before = freeze(fold([started("r", user("u")), { type: "STATE_SNAPSHOT", snapshot: { a: [] } }, ...text("a", "x"), textStart("b")]));
  const after = reduce(before, delta("b", "y"));
  expect(contents(after.messages)).toStrictEqual([["u", "user", "says u"], ["a", "assistant", "x"], ["b", "assistant", "y"]]);
  expect(after.messages.map((message, at) => message === before.messages[at])).toStrictEqual([true, true, false]);
  expect({ ...after, messages: before.messages }).toStrictEqual(before);
  expect([after.state, after.run, after.runs]).toStrictEqual([before.state, before.run, before.runs]);
  expect(after.runs).toBe(before.runs);
});

test("a patch shares the parts of the state that it does not touch", () => {
  const before = freeze(reduce(EMPTY_THREAD, { type: "STATE_SNAPSHOT", snapshot: { a: [1], b: { c: 1 } } }));
  const after = reduce(before, { type: "STATE_DELTA", delta: [{ op: "add", path: "/a/-", value: 2 }] });
  expect(after.state).toStrictEqual({ a: [1, 2], b: { c: 1 } });
  expect((after.state as { b: unknown }).b).toBe((before.state as { b: unknown }).b);
});

test("a frame that says nothing new leaves the same thread", () => {
  const thread = fold([started("r", user("u")), ...text("a", "x")]);
  expect(reduce(thread, textStart("a"))).toBe(thread);
  expect(reduce(thread, delta("unknown", "x"))).toBe(thread);
  expect(reduce(thread, { type: "REASONING_START", messageId: "x" })).toBe(thread);
});

test.each<Frame>([
  { type: "SOMETHING_NEW", value: 1 },
  { type: "RAW", event: {} },
  { type: "TEXT_MESSAGE_START" },
  { type: "TEXT_MESSAGE_START", messageId: "x", role: "tool" },
  { type: "TEXT_MESSAGE_CONTENT", messageId: "u" },
  { type: "TEXT_MESSAGE_END" },
  { type: "TOOL_CALL_START", toolCallId: "x" },
  { type: "TOOL_CALL_ARGS", toolCallId: 1, delta: "x" },
  { type: "TOOL_CALL_END" },
  { type: "TOOL_CALL_RESULT", messageId: "x", toolCallId: "y" },
  { type: "MESSAGES_SNAPSHOT", messages: [null] },
  { type: "MESSAGES_SNAPSHOT" },
  { type: "MESSAGES_SNAPSHOT", messages: [{ id: "a", role: "assistant", toolCalls: {} }] },
  { type: "MESSAGES_SNAPSHOT", messages: [{ id: "a", role: "assistant", toolCalls: [{ id: "c" }] }] },
  { type: "STATE_SNAPSHOT" },
  { type: "STATE_DELTA", delta: {} },
  { type: "ACTIVITY_SNAPSHOT", messageId: "x", activityType: "y", content: [] },
  { type: "ACTIVITY_DELTA", messageId: "x" },
  { type: "REASONING_ENCRYPTED_VALUE", subtype: "message" },
  { type: "RUN_STARTED" },
  { type: "STEP_STARTED" },
  { type: "STEP_FINISHED" },
  { type: "SUBAGENT_STARTED", subagentRunId: "x" },
  { type: "SUBAGENT_FINISHED" },
  { type: "CUSTOM" },
])("a frame that cannot be read is kept as raw and changes nothing else: %j", (frame) => {
  const before = fold([started("r", user("u"))]);
  expect(reduce(before, frame)).toStrictEqual({ ...before, raw: [frame], rawCount: 1 });
});

test("at most 100 raw frames are kept, and all are counted", () => {
  const thread = fold(Array.from({ length: 250 }, (_, at) => ({ type: "NEW", at })));
  expect([thread.raw.length, thread.raw.at(-1), thread.rawCount]).toStrictEqual([100, { type: "NEW", at: 249 }, 250]);
});

test("patches that do not apply change nothing and are counted", () => {
  const activity = { type: "ACTIVITY_SNAPSHOT", messageId: "p", activityType: "plan", content: { list: [] } };
  const before = fold([{ type: "STATE_SNAPSHOT", snapshot: { a: 1 } }, activity]);
  const after = fold(
    [
      { type: "STATE_DELTA", delta: [{ op: "replace", path: "/a", value: 2 }, { op: "remove", path: "/gone" }] },
      { type: "STATE_DELTA", delta: [{ op: "add", path: "/__proto__/x", value: 1 }] },
      { type: "ACTIVITY_DELTA", messageId: "p", activityType: "plan", patch: [{ op: "remove", path: "/gone" }] },
    ],
    before,
  );
  expect(after).toStrictEqual({ ...before, failedPatches: 3 });
});

test("a message id that comes twice is one message", () => {
  const thread = fold([
    started("r", user("u"), user("u", "again")),
    ...call("c", "tool", "{}", "a"),
    result("c", "first"),
    result("c", "second"),
    { type: "MESSAGES_SNAPSHOT", messages: [user("u"), user("x", "one"), user("x", "two")] },
  ]);
  expect(contents(thread.messages)).toStrictEqual([["u", "user", "says u"], ["x", "user", "two"]]);
  expect(contents(fold([...call("c"), result("c", "first"), result("c", "second")]).messages)).toStrictEqual([
    ["c", "assistant", undefined],
    ["c-result", "tool", "second"],
  ]);
});

test("metadata of frames is merged into what they build, without changing the frames", () => {
  const snapshot = freeze({ type: "MESSAGES_SNAPSHOT", messages: [{ id: "a", role: "assistant", content: "x", metadata: { k: 1 } }] });
  const thread = fold([snapshot, { ...delta("a", "y"), metadata: { l: 2 } }, { type: "TEXT_MESSAGE_END", messageId: "a", metadata: { k: 3 } }]);
  expect(thread.messages).toStrictEqual([{ id: "a", role: "assistant", content: "xy", metadata: { k: 3, l: 2 } }]);
});

test("frames are never changed, also by a fold of many", () => {
  const frames = freeze([
    started("r", { id: "a", role: "assistant", content: "x", toolCalls: [{ id: "c", type: "function", function: { name: "n", arguments: "" } }] }),
    delta("a", "y"),
    { type: "TOOL_CALL_ARGS", toolCallId: "c", delta: "{}" },
    { type: "REASONING_ENCRYPTED_VALUE", subtype: "tool-call", entityId: "c", encryptedValue: "e" },
  ]);
  expect(fold(frames).messages).toStrictEqual([
    {
      ...{ id: "a", role: "assistant", content: "xy" },
      toolCalls: [{ id: "c", type: "function", function: { name: "n", arguments: "{}" }, encryptedValue: "e" }],
    },
  ]);
});

test("a run that is opened again after a reconnect is the same run, and nothing of it is doubled", () => {
  const subagent = { type: "SUBAGENT_STARTED", subagentRunId: "s", name: "helper", description: "helps" };
  const step = { type: "STEP_STARTED", stepName: "plan" };
  const [callStart] = call("c", "tool", "{}", "a") as [Frame];
  const open = [started("r", user("u")), subagent, step, textStart("a"), delta("a", "x"), callStart];
  const before = fold(open);
  const again = fold([started("r", user("u")), subagent, step, textStart("a"), callStart], before);
  expect(again).toStrictEqual(before);
  expect([again.runs.length, again.steps.length, again.subagents.length]).toStrictEqual([1, 1, 1]);
});

test("runs, their times, usage, errors and results are kept", () => {
  const usage = [{ model: "m", inputTokens: 3, outputTokens: 4 }];
  const thread = fold([
    started("r1", user("u1")),
    { ...finished("r1"), result: { ok: true }, usage },
    started("r2", user("u2")),
    custom("ambient:usage", { usage }),
    failed("no", "agent_error"),
  ]);
  expect(thread.runs).toStrictEqual([
    { runId: "r1", status: "finished", traceId: "trace-r1", startedAt: 1000, endedAt: 2000, result: { ok: true }, usage },
    { runId: "r2", status: "failed", traceId: "trace-r2", startedAt: 1000, endedAt: 2000, usage, error: { message: "no", code: "agent_error" } },
  ]);
  expect(thread.run).toBe(thread.runs[1]);
});

test("steps and subagents run, wait, end and fail", () => {
  const thread = fold([
    started("r"),
    { type: "STEP_STARTED", stepName: "one" },
    { type: "STEP_STARTED", stepName: "one", subagentRunId: "s1" },
    { type: "STEP_FINISHED", stepName: "one" },
    { type: "SUBAGENT_STARTED", subagentRunId: "s1", name: "a", parentToolCallId: "c" },
    { type: "SUBAGENT_STARTED", subagentRunId: "s2", name: "b" },
    { type: "SUBAGENT_STARTED", subagentRunId: "s3", name: "c" },
    { type: "SUBAGENT_FINISHED", subagentRunId: "s1", result: 1 },
    { type: "SUBAGENT_FINISHED", subagentRunId: "s2", outcome: { type: "suspended" } },
    { type: "SUBAGENT_ERROR", subagentRunId: "s3", message: "no" },
  ]);
  expect(thread.steps).toStrictEqual([
    { name: "one", status: "done" },
    { name: "one", subagentRunId: "s1", status: "running" },
  ]);
  expect(thread.subagents).toStrictEqual([
    { id: "s1", name: "a", parentToolCallId: "c", status: "done", result: 1 },
    { id: "s2", name: "b", status: "waiting" },
    { id: "s3", name: "c", status: "failed", error: "no" },
  ]);
});

test("what a run leaves open ends with it", () => {
  const open = [started("r"), { type: "STEP_STARTED", stepName: "one" }, { type: "SUBAGENT_STARTED", subagentRunId: "s", name: "a" }];
  const states = (frame: Frame): unknown[] => {
    const { steps, subagents } = fold([...open, frame]);
    return [steps[0]?.status, subagents[0]?.status];
  };
  expect([states(finished("r")), states(failed())]).toStrictEqual([["done", "done"], ["done", "failed"]]);
});

test("interrupts are open until the next run or until they are cancelled", () => {
  const asked = fold([started("r1"), interrupted("r1", { id: "i1", reason: "confirmation" }, { id: "i2", reason: "confirmation" })]);
  expect(asked.interrupts.map(({ id }) => id)).toStrictEqual(["i1", "i2"]);
  const cancelled = reduce(asked, custom("ambient:interrupts_cancelled", { interruptIds: ["i1"] }));
  expect(cancelled.interrupts.map(({ id }) => id)).toStrictEqual(["i2"]);
  expect(reduce(asked, started("r2")).interrupts).toStrictEqual([]);
});

test("pending calls wait for their results, by name", () => {
  const waiting = fold([started("r1"), ...call("c1", "pick"), ...call("c2", "pay"), finished("r1", { type: "success", pendingToolCallIds: ["c1", "c2"] })]);
  expect(waiting.pendingCalls).toStrictEqual([{ id: "c1", name: "pick" }, { id: "c2", name: "pay" }]);
  expect(reduce(waiting, result("c1")).pendingCalls).toStrictEqual([{ id: "c2", name: "pay" }]);
  expect(reduce(waiting, started("r2")).pendingCalls).toStrictEqual([]);
});

test("feedback comes from facts and from the thread", () => {
  const thread = fold([
    custom("ambient:thread", threadInfo({ feedback: { u1: "thumbs_up", u2: "thumbs_up" } })),
    custom("ambient:feedback", { metaType: "thumbs_down", messageId: "u2", userId: "x", recorded: false }),
    custom("ambient:feedback", { metaType: "else", messageId: "u4" }),
  ]);
  expect(thread.feedback).toStrictEqual({ u1: "thumbs_up", u2: "thumbs_down" });
});

test("a connection's snapshot restores the thread, and is not a run of it", () => {
  const lastRun = { run: "key", runId: "r9", status: "finished", traceId: "x", startedAt: 1, endedAt: 2 } as const;
  const info = threadInfo({ pendingCalls: [{ id: "c", name: "pick" }], feedback: { u: "thumbs_up" }, lastRun });
  const interrupts = [{ id: "i", reason: "confirmation" }];
  const thread = fold(connectFrames([user("u")], info, { state: { a: 1 }, interrupts }));
  expect(thread).toStrictEqual({
    ...EMPTY_THREAD,
    ...{ threadId: "t", messages: [user("u")], state: { a: 1 }, info, interrupts },
    ...{ pendingCalls: info.pendingCalls, feedback: info.feedback },
    run: lastRun,
    runs: [lastRun],
  });
});

test("a live run follows the connection's snapshot from its beginning", () => {
  const thread = fold([...connectFrames([user("u1")]), started("r", user("u2")), textStart("a"), delta("a", "x")]);
  expect([thread.run?.runId, thread.run?.status, thread.runs.length]).toStrictEqual(["r", "running", 1]);
  expect(contents(thread.messages)).toStrictEqual([["u1", "user", "says u1"], ["u2", "user", "says u2"], ["a", "assistant", "x"]]);
});

test("facts about the thread within a run do not end it", () => {
  const before = fold([started("r", user("u"))]);
  const info = threadInfo({ title: "Another", pendingCalls: [{ id: "c", name: "n" }] });
  const after = reduce(before, custom("ambient:thread", info));
  expect(after).toStrictEqual({ ...before, info });
});

test("a run of a server that sends no input is a run", () => {
  const thread = fold([{ type: "RUN_STARTED", threadId: "t", runId: "r" }, ...text("a", "x")]);
  expect([thread.run, thread.runs.length]).toStrictEqual([{ runId: "r", status: "running" }, 1]);
});

test("a gap is kept as a fact, and its run is none of the thread", () => {
  const before = fold([started("r1", user("u")), finished("r1")]);
  const thread = fold(
    [
      { type: "RUN_STARTED", threadId: "t", runId: "gap-1" },
      custom("ambient:gap", { after: 3, before: 9 }),
      { type: "MESSAGES_SNAPSHOT", messages: [user("u"), user("v")] },
      { type: "RUN_FINISHED", threadId: "t", runId: "gap-1" },
    ],
    before,
  );
  expect(thread).toStrictEqual({ ...before, messages: [user("u"), user("v")], gaps: [{ after: 3, before: 9 }] });
});

test("odd names of ids are ordinary names", () => {
  const thread = fold([
    ...text("__proto__", "x"),
    custom("ambient:feedback", { metaType: "thumbs_up", messageId: "__proto__" }),
    custom("constructor", {}),
    custom("__proto__", {}),
  ]);
  expect(contents(thread.messages)).toStrictEqual([["__proto__", "assistant", "x"]]);
  expect(Object.entries(thread.feedback)).toStrictEqual([["__proto__", "thumbs_up"]]);
  expect([thread.raw, Object.keys(Object.prototype)]).toStrictEqual([[], []]);
});
