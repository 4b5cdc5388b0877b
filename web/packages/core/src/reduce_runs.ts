// The life cycle of runs, steps and subagents; interrupts and pending calls.
import type { Draft } from "./draft.js";
import { ownerOf } from "./reduce_messages.js";
import { isMessage } from "./reduce_snapshots.js";
import { findCall } from "./reduce_tools.js";
import type { Run, RunStatus, Step, Subagent } from "./thread.js";
import { asList, asObject, asText, isObject, isString, type Frame, type FrameWith, type Interrupt, type TokenUsage } from "./wire.js";

export function startRun(draft: Draft, frame: FrameWith<"runId">): void {
  const { thread } = draft;
  if (isString(frame.threadId)) thread.threadId = frame.threadId;
  // A resumed connection opens the run again under its id.
  if (thread.run?.status !== "running" || thread.run.runId !== frame.runId) beginRun(draft, frame);
  for (const message of asList(asObject(frame.input).messages))
    if (isMessage(message) && draft.indexOf(message.id) < 0) draft.adoptMessage(message);
}

function beginRun({ thread }: Draft, frame: FrameWith<"runId">): void {
  const { runId, input, metadata, timestamp } = frame;
  const traceId = asText(asObject(metadata).traceId);
  thread.run = { runId, status: "running", ...(traceId && { traceId }), ...(isNumber(timestamp) && { startedAt: timestamp }) };
  thread.runs = [...thread.runs, thread.run];
  thread.restating = isObject(input) ? "" : runId;
  thread.steps = thread.interrupts = thread.pendingCalls = [];
}

const isNumber = (value: unknown): value is number => typeof value === "number";

export function finishRun(draft: Draft, frame: Frame): void {
  const { type, interrupts, pendingToolCallIds } = asObject(frame.outcome);
  const { result } = frame;
  const isInterrupted = type === "interrupt";
  const status = isInterrupted ? "interrupted" : type === "cancelled" ? "stopped" : "finished";
  endRun(draft, frame, { status, ...(result !== undefined && { result }) });
  if (isInterrupted) draft.thread.interrupts = asList(interrupts).filter(isInterrupt);
  const pending = asList(pendingToolCallIds).filter(isString);
  if (pending.length) draft.thread.pendingCalls = pending.map((id) => ({ id, name: findCall(draft, id)?.function.name ?? "" }));
}

export function failRun(draft: Draft, frame: Frame): void {
  const code = asText(frame.code);
  endRun(draft, frame, { status: "failed", error: { message: asText(frame.message) ?? "", ...(code && { code }) } });
}

/** End the run, and what it left open. */
function endRun(draft: Draft, { timestamp, usage }: Frame, changes: Partial<Run> & { readonly status: RunStatus }): void {
  const { thread } = draft;
  if (thread.run?.status === "running")
    changeRun(draft, {
      ...changes,
      ...(isNumber(timestamp) && { endedAt: timestamp }),
      ...(asList(usage).length && { usage: usage as TokenUsage[] }),
    });
  thread.restating = "";
  thread.steps = changeWhere(thread.steps, isRunning, { status: "done" });
  thread.subagents = changeWhere(thread.subagents, isRunning, { status: changes.status === "finished" ? "done" : "failed" });
}

/** Change members of the newest run. */
export function changeRun({ thread }: Draft, changes: Partial<Run>): void {
  if (!thread.run) return;
  thread.run = { ...thread.run, ...changes };
  thread.runs = [...thread.runs.slice(0, -1), thread.run];
}

const isInterrupt = (value: unknown): value is Interrupt => isObject(value) && isString(value.id);

const isRunning = ({ status }: Step | Subagent): boolean => status === "running";

/** Return the list with these members changed in the items that match; the same list if none does. */
const changeWhere = <T>(items: readonly T[], matches: (item: T) => boolean, changes: Partial<T>): readonly T[] =>
  items.some(matches) ? items.map((item) => (matches(item) ? { ...item, ...changes } : item)) : items;

export function startStep({ thread }: Draft, frame: FrameWith<"stepName">): void {
  if (!thread.steps.some(isOpenStep(frame)))
    thread.steps = [...thread.steps, { name: frame.stepName, ...ownerOf(frame), status: "running" }];
}

export function finishStep({ thread }: Draft, frame: FrameWith<"stepName">): void {
  thread.steps = changeWhere(thread.steps, isOpenStep(frame), { status: "done" });
}

const isOpenStep =
  (frame: FrameWith<"stepName">) =>
  (step: Step): boolean =>
    isRunning(step) && step.name === frame.stepName && step.subagentRunId === ownerOf(frame).subagentRunId;

/** Add a subagent, or run one again that has waited. */
export function startSubagent({ thread }: Draft, frame: FrameWith<"subagentRunId" | "name">): void {
  const { type: _type, timestamp: _timestamp, subagentRunId: id, ...members } = frame;
  const subagent: Subagent = { ...members, id, status: "running" };
  const { subagents } = thread;
  const changed = changeWhere(subagents, (each) => each.id === id, subagent);
  thread.subagents = changed === subagents ? [...subagents, subagent] : changed;
}

export function finishSubagent(draft: Draft, frame: FrameWith<"subagentRunId">): void {
  const { result, outcome } = frame;
  const status = asObject(outcome).type === "suspended" ? "waiting" : "done";
  endSubagent(draft, frame, { status, ...(result !== undefined && { result }) });
}

export const failSubagent = (draft: Draft, frame: FrameWith<"subagentRunId">): void =>
  endSubagent(draft, frame, { status: "failed", error: asText(frame.message) ?? "" });

function endSubagent({ thread }: Draft, frame: FrameWith<"subagentRunId">, changes: Partial<Subagent>): void {
  thread.subagents = changeWhere(thread.subagents, ({ id }) => id === frame.subagentRunId, changes);
}
