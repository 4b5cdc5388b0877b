// What the frames of a thread add up to. `reduce.ts` makes it; nothing here changes in place, and unchanged parts are shared.
import type { ContentPart, Frame, Interrupt, Message, TokenUsage, ToolCall, ToolMessage } from "./wire.js";

export type RunStatus = "running" | "finished" | "failed" | "stopped" | "interrupted";

/** A run that was seen from its beginning, or the last one before the snapshot that the connection began with. */
export interface Run {
  /** The client's id of the run. Some clients use one twice. */
  readonly runId: string;
  /** The server's key of the run, if it was told. */
  readonly run?: string;
  readonly status: RunStatus;
  readonly traceId?: string;
  readonly startedAt?: number;
  readonly endedAt?: number;
  readonly usage?: readonly TokenUsage[];
  readonly result?: unknown;
  readonly error?: { readonly message: string; readonly code?: string };
}

export interface Step {
  readonly name: string;
  readonly subagentRunId?: string;
  readonly status: "running" | "done";
}

export interface Subagent {
  readonly id: string;
  readonly name: string;
  readonly description?: string;
  readonly parentSubagentRunId?: string;
  readonly parentToolCallId?: string;
  readonly parentMessageId?: string;
  readonly status: "running" | "waiting" | "done" | "failed";
  readonly result?: unknown;
  readonly error?: string;
}

/** A call of a frontend tool that the thread waits for. */
export interface PendingCall {
  readonly id: string;
  readonly name: string;
}

export type Feedback = "thumbs_up" | "thumbs_down";
export type ThreadStatus = "running" | "waiting" | "finished" | "failed" | "stopped";

/** A run as `ambient:thread` and `GET /threads/{id}/runs` describe it. */
export interface RunInfo {
  readonly run: string;
  readonly runId: string;
  readonly status: RunStatus;
  readonly traceId?: string;
  readonly startedAt?: number;
  readonly endedAt?: number;
  readonly usage?: readonly TokenUsage[];
}

/** The value of `ambient:thread`. */
export interface ThreadInfo {
  readonly threadId: string;
  readonly agent: string;
  readonly title: string;
  readonly archived: boolean;
  readonly status: ThreadStatus;
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly forkedFrom?: unknown;
  readonly pendingCalls: readonly PendingCall[];
  readonly feedback: Readonly<Record<string, Feedback>>;
  readonly lastRun?: RunInfo;
}

/** Entries that the server no longer retains. */
export interface Gap {
  readonly after: unknown;
  readonly before: unknown;
}

export interface Thread {
  readonly threadId: string;
  readonly messages: readonly Message[];
  readonly state: unknown;
  /** The newest run; undefined before the first. */
  readonly run: Run | undefined;
  readonly runs: readonly Run[];
  /** Steps of the newest run. */
  readonly steps: readonly Step[];
  readonly subagents: readonly Subagent[];
  /** Questions that wait for a person. */
  readonly interrupts: readonly Interrupt[];
  readonly pendingCalls: readonly PendingCall[];
  readonly feedback: Readonly<Record<string, Feedback>>;
  readonly info: ThreadInfo | undefined;
  readonly gaps: readonly Gap[];
  /** The newest frames that the reducer does not know or cannot read, at most 100. */
  readonly raw: readonly Frame[];
  readonly rawCount: number;
  /** Patches that did not apply. They changed nothing. */
  readonly failedPatches: number;
  /** Id of a run in progress that only restates the thread (a connect or a gap); empty otherwise. */
  readonly restating: string;
}

export const EMPTY_THREAD: Thread = {
  threadId: "",
  messages: [],
  state: {},
  run: undefined,
  runs: [],
  steps: [],
  subagents: [],
  interrupts: [],
  pendingCalls: [],
  feedback: {},
  info: undefined,
  gaps: [],
  raw: [],
  rawCount: 0,
  failedPatches: 0,
  restating: "",
};

/** A tool call with its result, if there is one. */
export interface CallWithResult {
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
  readonly result?: string | readonly ContentPart[];
  readonly isError?: boolean;
}

/** Return all tool calls of the messages, in their order, with their results. */
export function callsWithResults(messages: readonly Message[]): CallWithResult[] {
  const results = new Map<string, ToolMessage>(messages.flatMap((message) => (message.role === "tool" ? [[message.toolCallId, message]] : [])));
  return messages.flatMap(callsOf).map(({ id, function: called }) => {
    const result = results.get(id);
    return {
      id,
      ...called,
      ...(result && { result: result.content }),
      ...(result?.metadata?.isError === true && { isError: true }),
    };
  });
}

/** Return the tool calls of a message. */
export const callsOf = (message: Message): readonly ToolCall[] => (message.role === "assistant" && message.toolCalls) || [];
