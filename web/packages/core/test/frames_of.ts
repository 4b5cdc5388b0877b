// Frames for tests.
import type { Frame, Interrupt, Message, ThreadInfo } from "../src/index.js";

export const user = (id: string, content = `says ${id}`): Message => ({ id, role: "user", content });

export const started = (runId: string, ...messages: Message[]): Frame => ({
  type: "RUN_STARTED",
  ...{ timestamp: 1000, threadId: "t", runId, protocolVersion: "1.0", metadata: { traceId: `trace-${runId}` } },
  input: { threadId: "t", runId, messages, tools: [], context: [] },
});

export const finished = (runId: string, outcome: unknown = { type: "success" }): Frame => ({
  ...{ type: "RUN_FINISHED", timestamp: 2000, threadId: "t", runId, outcome },
});

export const interrupted = (runId: string, ...interrupts: Interrupt[]): Frame => finished(runId, { type: "interrupt", interrupts });

export const failed = (message = "broken", code = "agent_error"): Frame => ({ type: "RUN_ERROR", timestamp: 2000, message, code });

export const textStart = (messageId: string): Frame => ({ type: "TEXT_MESSAGE_START", messageId, role: "assistant" });
export const delta = (messageId: string, text: string): Frame => ({ type: "TEXT_MESSAGE_CONTENT", messageId, delta: text });
export const textEnd = (messageId: string): Frame => ({ type: "TEXT_MESSAGE_END", messageId });

export const text = (messageId: string, ...deltas: string[]): Frame[] => [
  textStart(messageId),
  ...deltas.map((each) => delta(messageId, each)),
  textEnd(messageId),
];

export const call = (toolCallId: string, toolCallName = "tool", args = "{}", parentMessageId?: string): Frame[] => [
  { type: "TOOL_CALL_START", toolCallId, toolCallName, ...(parentMessageId !== undefined && { parentMessageId }) },
  { type: "TOOL_CALL_ARGS", toolCallId, delta: args },
  { type: "TOOL_CALL_END", toolCallId },
];

export const result = (toolCallId: string, content = "done"): Frame => ({
  ...{ type: "TOOL_CALL_RESULT", messageId: `${toolCallId}-result`, toolCallId, content, role: "tool" },
});

export const custom = (name: string, value: unknown): Frame => ({ type: "CUSTOM", name, value });

export const threadInfo = (more: Partial<ThreadInfo> = {}): ThreadInfo => ({
  ...{ threadId: "t", agent: "demo", title: "A title", archived: false, status: "finished", createdAt: 1, updatedAt: 2 },
  ...{ pendingCalls: [], feedback: {} },
  ...more,
});

/** Return the small run that a connection begins with. Its last frame is for the cursor. */
export const connectFrames = (
  messages: readonly Message[] = [],
  info: ThreadInfo = threadInfo(),
  { state = {}, interrupts = [] }: { state?: unknown; interrupts?: readonly Interrupt[] } = {},
): Frame[] => [
  { type: "RUN_STARTED", threadId: "t", runId: "connect-1" },
  { type: "MESSAGES_SNAPSHOT", messages },
  { type: "STATE_SNAPSHOT", snapshot: state },
  custom("ambient:thread", info),
  interrupts.length
    ? { type: "RUN_FINISHED", threadId: "t", runId: "connect-1", outcome: { type: "interrupt", interrupts } }
    : { type: "RUN_FINISHED", threadId: "t", runId: "connect-1" },
];
