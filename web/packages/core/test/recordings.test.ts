import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { activities, callsWithResults, EMPTY_THREAD, fold, reduce, type Frame } from "../src/index.js";
import { freeze } from "./freeze.js";

interface Recording {
  readonly frames: readonly Frame[];
  readonly folded: { readonly messages: unknown; readonly state: unknown; readonly calls: unknown; readonly interrupts: unknown; readonly run: unknown };
  readonly activities: unknown;
}

const directory = new URL("../../../../tests/recordings/frames/", import.meta.url);
const names = readdirSync(directory).filter((name) => name.endsWith(".json"));
const read = (name: string): Recording => freeze(JSON.parse(readFileSync(new URL(name, directory), "utf8")));

function describeThread(frames: readonly Frame[]): Recording["folded"] {
  const { messages, state, interrupts, run } = fold(frames);
  const calls = callsWithResults(messages).map(({ isError: _, ...call }) => call);
  return { messages, state, calls, interrupts, run: run ? { runId: run.runId, status: run.status } : null };
}

test("there are recordings", () => expect(names.length).toBeGreaterThanOrEqual(8));

describe.each(names)("the recording %s", (name) => {
  const recording = read(name);

  test("folds to what the server folds it to", () => {
    expect(describeThread(recording.frames)).toStrictEqual(recording.folded);
  });

  test("has the activities that the server finds", () => {
    expect(activities(recording.frames)).toStrictEqual(recording.activities);
  });

  test("is the same thread frame by frame, and cut anywhere", () => {
    const whole = fold(recording.frames);
    expect(recording.frames.reduce(reduce, EMPTY_THREAD)).toStrictEqual(whole);
    for (let cut = 0; cut <= recording.frames.length; cut++) {
      const before = freeze(fold(recording.frames.slice(0, cut)));
      expect(fold(recording.frames.slice(cut), before)).toStrictEqual(whole);
    }
  });

  test("is left as it is by a repetition of its last snapshot", () => {
    const thread = fold(recording.frames);
    const snapshot = recording.frames.findLast((frame) => frame.type === "MESSAGES_SNAPSHOT") as Frame;
    expect(reduce(thread, structuredClone(snapshot))).toBe(thread);
  });
});
