import { expect, test } from "vitest";
import { activities, EMPTY_THREAD, fold, parseFrame, reduce, spans, type Frame } from "../src/index.js";
import { freeze } from "./freeze.js";

const TYPES = [
  ...["RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "STEP_STARTED", "STEP_FINISHED", "SUBAGENT_STARTED", "SUBAGENT_FINISHED", "SUBAGENT_ERROR"],
  ...["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT"],
  ...["REASONING_ENCRYPTED_VALUE", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT", "MESSAGES_SNAPSHOT"],
  ...["STATE_SNAPSHOT", "STATE_DELTA", "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA", "CUSTOM", "OTHER", "__proto__"],
];
const MEMBERS = [
  ...["runId", "threadId", "messageId", "toolCallId", "toolCallName", "parentMessageId", "subagentRunId", "stepName", "name", "value"],
  ...["delta", "role", "content", "messages", "snapshot", "patch", "activityType", "metadata", "outcome", "input", "usage", "subtype"],
  ...["entityId", "encryptedValue", "replace", "timestamp", "result", "message", "code"],
];
const LEAVES = [null, true, 0, -1, 1.5, "", "a", "b", "assistant", "tool", "ambient:thread", "ambient:gap", "__proto__", "/a", [], {}];
const KEYS = ["id", "role", "toolCalls", "toolCallId", "function", "messages", "type", "op", "path", "value", "interrupts", "lastRun", "pendingCalls", "feedback", "ambient"];

/** Return a generator of numbers from 0 to 1, the same for the same seed. */
function makeRandom(seed: number): () => number {
  return () => {
    seed = (seed * 1664525 + 1013904223) >>> 0;
    return seed / 2 ** 32;
  };
}

function makeValue(random: () => number, depth = 0): unknown {
  const kind = random();
  if (depth > 3 || kind < 0.5) return LEAVES[Math.floor(random() * LEAVES.length)];
  const items = Array.from({ length: Math.floor(random() * 4) }, () => makeValue(random, depth + 1));
  if (kind < 0.7) return items;
  return Object.fromEntries(items.map((item) => [KEYS[Math.floor(random() * KEYS.length)] as string, item]));
}

function makeFrame(random: () => number): Frame {
  const members = MEMBERS.filter(() => random() < 0.5).map((name) => [name, makeValue(random)]);
  return { ...Object.fromEntries(members), type: TYPES[Math.floor(random() * TYPES.length)] as string };
}

test("no frame makes the reducer, the spans or the activities throw, or changes anything in place", () => {
  const random = makeRandom(7);
  for (let round = 0; round < 300; round++) {
    const frames = freeze(Array.from({ length: 60 }, () => makeFrame(random)));
    const whole = fold(frames);
    expect(frames.reduce((thread, frame) => freeze(reduce(thread, frame)), EMPTY_THREAD)).toStrictEqual(whole);
    spans(frames);
    activities(frames);
  }
});

test.each(["", "no JSON", "1", "null", "[]", "{}", '{"type": 1}'])("what is not a frame becomes one that is kept as raw: %j", (data) => {
  expect(reduce(EMPTY_THREAD, parseFrame(data)).raw).toStrictEqual([{ type: "UNREADABLE", data }]);
});
