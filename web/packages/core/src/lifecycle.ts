// The frames that begin and end something, in one shape for `spans.ts` and `activities.ts`.
import { asList, asObject, asText, isString, type Frame } from "./wire.js";

export type Status = "running" | "waiting" | "done" | "failed";

export interface LifecycleEvent {
  /** What begins or ends: the first part of the frame's type. */
  readonly kind: "TEXT_MESSAGE" | "REASONING" | "REASONING_MESSAGE" | "TOOL_CALL" | "STEP" | "SUBAGENT";
  readonly id: string;
  readonly title: string;
  /** `running` if it begins. */
  readonly status: Status;
}

const TYPE = /^([A-Z]+(?:_MESSAGE|_CALL)?)_(START|STARTED|END|FINISHED|RESULT|ERROR)$/;

/** The members with the id and the title, and the title if there is none. */
const KINDS = new Map<string | undefined, readonly [id: string, title: string, missing: string]>([
  ["TEXT_MESSAGE", ["messageId", "role", "assistant"]],
  ["REASONING", ["messageId", "", "Reasoning"]],
  ["REASONING_MESSAGE", ["messageId", "", "Reasoning"]],
  ["TOOL_CALL", ["toolCallId", "toolCallName", ""]],
  ["STEP", ["stepName", "stepName", ""]],
  ["SUBAGENT", ["subagentRunId", "name", ""]],
]);

/** Return what begins or ends with this frame; undefined if nothing does. A tool call ends with its result. */
export function lifecycleEvent(frame: Frame): LifecycleEvent | undefined {
  const [, kind, phase = ""] = TYPE.exec(frame.type) ?? [];
  const [idMember = "", titleMember = "", missing = ""] = KINDS.get(kind) ?? [];
  const id = frame[idMember];
  if (!isString(id) || frame.type === "TOOL_CALL_END") return undefined;
  const status = phase.startsWith("START") ? "running" : endStatus(frame, phase);
  return { kind: kind as LifecycleEvent["kind"], id, title: asText(frame[titleMember]) ?? missing, status };
}

function endStatus(frame: Frame, phase: string): Status {
  if (phase === "ERROR" || asObject(frame.metadata).isError === true) return "failed";
  return asObject(frame.outcome).type === "suspended" ? "waiting" : "done";
}

/** Return the ids of the tool calls that wait for an answer after a run with this outcome. */
export const waitingCallIds = (outcome: Readonly<Record<string, unknown>>): unknown[] => [
  ...asList(outcome.pendingToolCallIds),
  ...asList(outcome.interrupts).map((interrupt) => asObject(interrupt).toolCallId),
];

