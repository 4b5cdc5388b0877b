import { expect, test } from "vitest";
import { spans, type Frame } from "../src/index.js";
import { custom, failed, finished, interrupted, result, started, user } from "./frames_of.js";

const at = (timestamp: number, frame: Frame): Frame => ({ ...frame, timestamp });
const brief = (frames: readonly Frame[]): unknown[] =>
  spans(frames).map(({ key, lane, begin, end, parent, status }) => [key, lane, begin, end, parent, status]);

test("messages, calls, steps and subagents have lanes, times and parents", () => {
  const frames = [
    at(10, started("r", user("u"))),
    at(11, { type: "STEP_STARTED", stepName: "plan" }),
    at(12, { type: "REASONING_MESSAGE_START", messageId: "think" }),
    at(13, { type: "REASONING_MESSAGE_END", messageId: "think" }),
    at(14, { type: "TEXT_MESSAGE_START", messageId: "a" }),
    { type: "TEXT_MESSAGE_CONTENT", messageId: "a", delta: "x" },
    at(16, { type: "TEXT_MESSAGE_END", messageId: "a" }),
    at(17, { type: "TOOL_CALL_START", toolCallId: "c", toolCallName: "task", parentMessageId: "a" }),
    { type: "TOOL_CALL_END", toolCallId: "c" },
    at(18, { type: "SUBAGENT_STARTED", subagentRunId: "s", name: "helper", parentToolCallId: "c" }),
    at(19, { type: "TEXT_MESSAGE_START", messageId: "b", subagentRunId: "s" }),
    at(20, { type: "TEXT_MESSAGE_END", messageId: "b", subagentRunId: "s" }),
    at(21, { type: "SUBAGENT_FINISHED", subagentRunId: "s" }),
    at(22, result("c")),
    at(23, { type: "STEP_FINISHED", stepName: "plan" }),
    at(24, finished("r")),
  ];
  expect(brief(frames)).toStrictEqual([
    ["step plan", "", 11, 23, undefined, "done"],
    ["reasoning think", "", 12, 13, "step plan", "done"],
    ["message a", "", 14, 16, "step plan", "done"],
    ["tool c", "", 17, 22, "message a", "done"],
    ["subagent s", "s", 18, 21, "tool c", "done"],
    ["message b", "s", 19, 20, "subagent s", "done"],
  ]);
});

test("a whole span names what it shows and its run", () => {
  expect(spans([at(1, started("r")), at(2, { type: "TEXT_MESSAGE_START", messageId: "a" })])).toStrictEqual([
    { key: "message a", kind: "message", id: "a", title: "assistant", lane: "", runId: "r", begin: 2, status: "running" },
  ]);
});

test("a question begins with the end of its run and ends with the next; the call that it is about waits as long", () => {
  const asked = [
    at(1, started("r1")),
    at(2, { type: "TOOL_CALL_START", toolCallId: "c", toolCallName: "pay" }),
    at(3, interrupted("r1", { id: "i", reason: "tool_call", toolCallId: "c" })),
  ];
  expect(brief(asked)).toStrictEqual([
    ["tool c", "", 2, undefined, undefined, "waiting"],
    ["interrupt i", "", 3, undefined, "tool c", "waiting"],
  ]);
  expect(brief([...asked, at(7, started("r2")), at(9, result("c"))])).toStrictEqual([
    ["tool c", "", 2, 9, undefined, "done"],
    ["interrupt i", "", 3, 7, "tool c", "done"],
  ]);
  expect(brief([...asked, at(8, custom("ambient:interrupts_cancelled", { interruptIds: ["i"] }))])[1]).toStrictEqual(
    ["interrupt i", "", 3, 8, "tool c", "failed"],
  );
});

test("a frontend call waits until the run that brings its result", () => {
  const frames = [
    at(1, started("r1")),
    at(2, { type: "TOOL_CALL_START", toolCallId: "c", toolCallName: "pick" }),
    at(3, finished("r1", { type: "success", pendingToolCallIds: ["c"] })),
    at(9, started("r2", { id: "x", role: "tool", toolCallId: "c", content: "red" })),
  ];
  expect(brief(frames)).toStrictEqual([["tool c", "", 2, 9, undefined, "done"]]);
});

test("what is open when a run fails or is stopped has failed", () => {
  const open = [at(1, started("r")), at(2, { type: "TEXT_MESSAGE_START", messageId: "a" })];
  expect(brief([...open, at(5, failed())])).toStrictEqual([["message a", "", 2, 5, undefined, "failed"]]);
  expect(brief([...open, at(6, finished("r", { type: "cancelled" }))])).toStrictEqual([["message a", "", 2, 6, undefined, "failed"]]);
});

test("what a resumed stream opens again is one span; what happens again is another", () => {
  const step = (time: number): Frame[] => [at(time, { type: "STEP_STARTED", stepName: "plan" })];
  const end = at(9, { type: "STEP_FINISHED", stepName: "plan" });
  expect(brief([at(1, started("r")), ...step(2), at(1, started("r")), ...step(5), end])).toHaveLength(1);
  expect(brief([at(1, started("r")), ...step(2), end, ...step(10)])).toStrictEqual([
    ["step plan", "", 2, 9, undefined, "done"],
    ["step plan 1", "", 10, undefined, undefined, "running"],
  ]);
});
