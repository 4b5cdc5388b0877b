// Text, reasoning and encrypted values: messages that grow by deltas. As in all handlers, false says that the frame cannot be read.
import type { Draft } from "./draft.js";
import { isObject, isString, type Frame, type FrameWith, type Message, type Metadata } from "./wire.js";

type Growing = { -readonly [K in "content" | "metadata" | "encryptedValue"]?: unknown };

const TEXT_ROLES: readonly unknown[] = ["developer", "system", "assistant", "user"];

export function startText(draft: Draft, frame: FrameWith<"messageId">): boolean | void {
  const role = frame.role ?? "assistant";
  if (!TEXT_ROLES.includes(role)) return false;
  startMessage(draft, frame, { role, content: "", ...(isString(frame.name) && { name: frame.name }) });
}

export const startReasoning = (draft: Draft, frame: FrameWith<"messageId">): void =>
  startMessage(draft, frame, { role: "reasoning", content: "" });

function startMessage(draft: Draft, frame: FrameWith<"messageId">, members: object): void {
  const id = frame.messageId;
  if (draft.indexOf(id) < 0) draft.addMessage({ id, ...members, ...ownerOf(frame) } as Message);
  endMessage(draft, frame);
}

/** Append the delta. An activity has no text: what is streamed under its id is ignored. */
export function appendText(draft: Draft, frame: FrameWith<"messageId" | "delta">): void {
  const at = findText(draft, frame.messageId);
  if (at < 0) return;
  const message = draft.change(at) as Growing;
  message.content = (isString(message.content) ? message.content : "") + frame.delta;
  mergeMetadata(message, frame);
}

/** Merge the metadata: the end of a message has nothing else, and a start of a known one neither. */
export function endMessage(draft: Draft, frame: FrameWith<"messageId">): void {
  const at = isObject(frame.metadata) ? findText(draft, frame.messageId) : -1;
  if (at >= 0) mergeMetadata(draft.change(at) as Growing, frame);
}

export function setEncryptedValue(draft: Draft, { subtype, entityId, encryptedValue }: FrameWith<"entityId" | "encryptedValue">): void {
  const isCall = subtype === "tool-call";
  const at = isCall ? draft.carrierOf(entityId) : findText(draft, entityId);
  if (at >= 0) Object.assign(isCall ? draft.changeCall(at, entityId) : draft.change(at), { encryptedValue });
}

/** Return the member that says which subagent something belongs to. */
export const ownerOf = (frame: Frame): { subagentRunId?: string } =>
  isString(frame.subagentRunId) ? { subagentRunId: frame.subagentRunId } : {};

/** Merge the frame's metadata into what it builds, key by key; the newest value wins. */
export function mergeMetadata(target: Growing, frame: Frame): void {
  if (isObject(frame.metadata)) target.metadata = { ...(target.metadata as Metadata | undefined), ...frame.metadata };
}

/** Return the position of a message that is no activity; -1 if there is none. */
function findText(draft: Draft, id: string): number {
  const at = draft.indexOf(id);
  return draft.thread.messages[at]?.role === "activity" ? -1 : at;
}
