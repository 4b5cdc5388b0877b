// Our own events, `CUSTOM` with a name that begins with `ambient:`. All others are left to the page.
import type { Draft } from "./draft.js";
import { changeRun } from "./reduce_runs.js";
import type { Feedback, PendingCall, Run, ThreadInfo } from "./thread.js";
import { asList, asObject, isObject, isString, type FrameWith, type TokenUsage } from "./wire.js";

export function applyCustom(draft: Draft, frame: FrameWith<"name">): void {
  const { thread } = draft;
  const value = asObject(frame.value);
  const { messageId, metaType, interruptIds, usage, after, before } = value;
  switch (frame.name) {
    case "ambient:thread":
      return applyThreadInfo(draft, value);
    case "ambient:feedback":
      if (isString(messageId) && isFeedback(metaType)) thread.feedback = { ...thread.feedback, [messageId]: metaType };
      break;
    case "ambient:interrupts_cancelled":
      thread.interrupts = thread.interrupts.filter((interrupt) => !asList(interruptIds).includes(interrupt.id));
      break;
    case "ambient:usage":
      if (Array.isArray(usage)) changeRun(draft, { usage: usage as TokenUsage[] });
      break;
    case "ambient:gap":
      withdrawRestatingRun(draft);
      thread.gaps = [...thread.gaps, { after, before }];
  }
}

function applyThreadInfo(draft: Draft, value: Readonly<Record<string, unknown>>): void {
  const { thread } = draft;
  const info = value as unknown as ThreadInfo;
  const isSnapshot = withdrawRestatingRun(draft);
  thread.info = info;
  if (isString(info.threadId)) thread.threadId = info.threadId;
  if (isObject(value.feedback)) thread.feedback = value.feedback as Record<string, Feedback>;
  if (thread.run?.status !== "running") thread.pendingCalls = asList(value.pendingCalls).filter(isPendingCall);
  if (isSnapshot && !thread.runs.length && isObject(value.lastRun) && isString(value.lastRun.runId)) {
    // A run that is live follows from its RUN_STARTED, so this one has ended.
    thread.runs = [(thread.run = value.lastRun as unknown as Run)];
  }
}

const isFeedback = (value: unknown): value is Feedback => value === "thumbs_up" || value === "thumbs_down";

const isPendingCall = (value: unknown): value is PendingCall => isObject(value) && isString(value.id) && isString(value.name);

/** Take back the run that only restates the thread. Return true if there was one. */
function withdrawRestatingRun({ thread }: Draft): boolean {
  if (!thread.restating || thread.run?.runId !== thread.restating) return false;
  thread.runs = thread.runs.slice(0, -1);
  thread.run = thread.runs.at(-1);
  return true;
}
