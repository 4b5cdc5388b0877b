// What travels between server and page: the JSON shapes of AG-UI 1.0 that the packages use. `test/types.test.ts` compares them with @ag-ui/core.

/** Additional members of a frame, message or call, by name. */
export type Metadata = Readonly<Record<string, unknown>>;

/** One AG-UI event as the server sends it. Its members are checked where they are used: a newer server may send others. */
export interface Frame {
  readonly type: string;
  readonly [member: string]: unknown;
}

/** A frame whose members of these names are texts. `reduce.ts` has checked it. */
export type FrameWith<Names extends string> = Frame & { readonly [Name in Names]: string };

/** A frame, and the cursor after it. Frames that the server made for this connection only have none. */
export interface ReadFrame {
  readonly frame: Frame;
  readonly cursor?: string;
}

export interface ContentPart {
  readonly type: string;
  readonly text?: string;
  readonly [member: string]: unknown;
}

export interface ToolCall {
  readonly id: string;
  readonly type: "function";
  readonly function: { readonly name: string; readonly arguments: string };
  readonly encryptedValue?: string;
  readonly metadata?: Metadata;
}

interface BaseMessage {
  readonly id: string;
  readonly name?: string;
  readonly subagentRunId?: string;
  readonly encryptedValue?: string;
  readonly metadata?: Metadata;
}

export interface TextMessage extends BaseMessage {
  readonly role: "developer" | "system" | "reasoning";
  readonly content: string;
}

export interface UserMessage extends BaseMessage {
  readonly role: "user";
  readonly content: string | readonly ContentPart[];
}

export interface AssistantMessage extends BaseMessage {
  readonly role: "assistant";
  readonly content?: string;
  readonly toolCalls?: readonly ToolCall[];
}

export interface ToolMessage extends BaseMessage {
  readonly role: "tool";
  readonly content: string | readonly ContentPart[];
  readonly toolCallId: string;
  readonly error?: string;
}

export interface ActivityMessage extends BaseMessage {
  readonly role: "activity";
  readonly activityType: string;
  readonly content: Readonly<Record<string, unknown>>;
}

export type Message = TextMessage | UserMessage | AssistantMessage | ToolMessage | ActivityMessage;

export interface Interrupt {
  readonly id: string;
  readonly reason: string;
  readonly message?: string;
  readonly toolCallId?: string;
  readonly responseSchema?: Readonly<Record<string, unknown>>;
  readonly expiresAt?: string;
  readonly subagentRunId?: string;
  readonly metadata?: Metadata;
}

export interface TokenUsage {
  readonly provider?: string;
  readonly model?: string;
  readonly inputTokens?: number;
  readonly outputTokens?: number;
  readonly totalTokens?: number;
  readonly reasoningTokens?: number;
  readonly cachedInputTokens?: number;
  readonly cacheWriteInputTokens?: number;
}

/** One operation of JSON Patch (RFC 6902). */
export interface PatchOperation {
  readonly op: string;
  readonly path: string;
  readonly from?: string;
  readonly value?: unknown;
}

/** A tool as an agent sees it. `parameters` is a JSON Schema. */
export interface ToolDeclaration {
  readonly name: string;
  readonly description: string;
  readonly parameters?: Readonly<Record<string, unknown>>;
  readonly metadata?: Metadata;
}

/** An answer to one interrupt. */
export interface ResumeEntry {
  readonly interruptId: string;
  readonly status: "resolved" | "cancelled";
  readonly payload?: unknown;
  readonly metadata?: Metadata;
}

export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

export const isString = (value: unknown): value is string => typeof value === "string";

/** Return the value if it is a text, else undefined. */
export const asText = (value: unknown): string | undefined => (isString(value) ? value : undefined);

/** Return the value if it is a list, else an empty one. */
export const asList = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

/** Return the value if it is an object, else an empty one. */
export const asObject = (value: unknown): Readonly<Record<string, unknown>> => (isObject(value) ? value : {});
