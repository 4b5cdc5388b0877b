// Tool calls and their results.
import type { Draft } from "./draft.js";
import { mergeMetadata, ownerOf } from "./reduce_messages.js";
import { callsOf } from "./thread.js";
import { isObject, isString, type Frame, type FrameWith, type Message, type ToolCall } from "./wire.js";

/** Add a call to its assistant message. A call that is known keeps its arguments: servers send its start again after a reconnect. */
export function startCall(draft: Draft, frame: FrameWith<"toolCallId" | "toolCallName">): void {
  const { toolCallId: id, toolCallName: name } = frame;
  const known = draft.carrierOf(id);
  if (known < 0) draft.addCall(carrierFor(draft, frame, id), { id, type: "function", function: { name, arguments: "" } });
  else if (findCall(draft, id)?.function.name !== name) draft.changeCall(known, id).function.name = name;
  endCall(draft, frame);
}

/** Return the position of a new call's message: the parent if it is the assistant's, else a new one with the id of the parent or the call. */
function carrierFor(draft: Draft, frame: Frame, callId: string): number {
  const parent = isString(frame.parentMessageId) && frame.parentMessageId;
  const at = parent ? draft.indexOf(parent) : -1;
  if (draft.thread.messages[at]?.role === "assistant") return at;
  const id = parent && at < 0 ? parent : callId;
  draft.addMessage({ id, role: "assistant", toolCalls: [], ...(draft.indexOf(id) < 0 && ownerOf(frame)) });
  return draft.thread.messages.length - 1;
}

export function findCall(draft: Draft, id: string): ToolCall | undefined {
  const carrier = draft.thread.messages[draft.carrierOf(id)];
  return carrier && callsOf(carrier).find((call) => call.id === id);
}

export function appendArguments(draft: Draft, frame: FrameWith<"toolCallId" | "delta">): void {
  const at = draft.carrierOf(frame.toolCallId);
  if (at < 0) return;
  const call = draft.changeCall(at, frame.toolCallId);
  call.function.arguments += frame.delta;
  mergeMetadata(call, frame);
}

/** Merge the metadata: the end of a call has nothing else. */
export function endCall(draft: Draft, frame: FrameWith<"toolCallId">): void {
  const at = isObject(frame.metadata) ? draft.carrierOf(frame.toolCallId) : -1;
  if (at >= 0) mergeMetadata(draft.changeCall(at, frame.toolCallId), frame);
}

/** Place a result after its assistant message and the results already there. A result whose id is known replaces that message. */
export function addResult(draft: Draft, frame: FrameWith<"messageId" | "toolCallId">): boolean | void {
  const { messageId: id, toolCallId, content, metadata } = frame;
  const { thread } = draft;
  if (!isString(content) && !Array.isArray(content)) return false;
  const message = { id, toolCallId, role: "tool", content, ...ownerOf(frame), ...(isObject(metadata) && { metadata }) } as Message;
  if (thread.pendingCalls.some((call) => call.id === toolCallId))
    thread.pendingCalls = thread.pendingCalls.filter((call) => call.id !== toolCallId);
  const known = draft.indexOf(id);
  if (known >= 0) draft.replace(known, message);
  else draft.addMessage(message, placeOf(draft, toolCallId));
}

function placeOf(draft: Draft, toolCallId: string): number {
  const { messages } = draft.thread;
  let at = draft.carrierOf(toolCallId);
  if (at < 0) return messages.length;
  do at++;
  while (messages[at]?.role === "tool");
  return at;
}
