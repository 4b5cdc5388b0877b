// Snapshots and patches: all messages at once, activities, and the shared state.
import type { Draft } from "./draft.js";
import { applyPatch, jsonEqual } from "./patch.js";
import { mergeMetadata, ownerOf } from "./reduce_messages.js";
import { isObject, isString, type ActivityMessage, type Frame, type FrameWith, type Message } from "./wire.js";

/** Replace the messages: known ones change in place, new ones follow, others go. Equal messages stay the same objects. */
export function mergeMessages(draft: Draft, frame: Frame): boolean | void {
  if (!Array.isArray(frame.messages) || !frame.messages.every(isMessage)) return false;
  const named = new Map(frame.messages.map((message) => [message.id, message]));
  // Most agents leave reasoning and activities out: they stay if the snapshot has none of their kind.
  const roles = new Set(frame.messages.map((message) => message.role));
  const survives = ({ role }: Message): boolean => (role === "reasoning" || role === "activity") && !roles.has(role);
  const merged: Message[] = [];
  for (const old of draft.thread.messages) {
    const restated = named.get(old.id);
    if (restated) merged.push(jsonEqual(old, restated) ? old : restated);
    else if (survives(old)) merged.push(old);
    named.delete(old.id);
  }
  merged.push(...named.values());
  if (merged.length !== draft.thread.messages.length || merged.some((message, at) => message !== draft.thread.messages[at]))
    draft.setMessages(merged);
}

export const isMessage = (value: unknown): value is Message =>
  isObject(value) &&
  isString(value.id) &&
  isString(value.role) &&
  (value.toolCalls === undefined || (Array.isArray(value.toolCalls) && value.toolCalls.every(isCall)));

const isCall = (value: unknown): boolean =>
  isObject(value) && isString(value.id) && isObject(value.function) && isString(value.function.arguments);

export function showActivity(draft: Draft, frame: FrameWith<"messageId" | "activityType">): boolean | void {
  const { messageId: id, activityType, content } = frame;
  if (!isObject(content)) return false;
  const at = draft.indexOf(id);
  const old = draft.thread.messages[at];
  const made: ActivityMessage = { id, role: "activity", activityType, content, ...ownerOf(frame) };
  if (!old) draft.addMessage(made);
  else if (frame.replace !== false)
    draft.replace(at, { ...made, ...(old.role === "activity" && old.metadata && { metadata: old.metadata }) });
  else if (old.role !== "activity") return;
  if (isObject(frame.metadata)) mergeMetadata(draft.change(draft.indexOf(id)) as never, frame);
}

/** Patch the content of an activity. If the patch does not apply, only the metadata is merged. */
export function patchActivity(draft: Draft, frame: FrameWith<"messageId" | "activityType">): boolean | void {
  const { messageId: id, activityType, patch } = frame;
  if (!Array.isArray(patch)) return false;
  const at = draft.indexOf(id);
  const old = draft.thread.messages[at];
  if (old?.role !== "activity") return;
  const content = tryPatch(draft, old.content, patch);
  const metadata = isObject(frame.metadata) && { metadata: { ...old.metadata, ...frame.metadata } };
  if (isObject(content)) draft.replace(at, { ...old, ...metadata, content, activityType });
  else if (metadata) draft.replace(at, { ...old, ...metadata });
}

export function setState(draft: Draft, { snapshot }: Frame): boolean | void {
  if (snapshot === undefined) return false;
  if (!jsonEqual(draft.thread.state, snapshot)) draft.thread.state = snapshot;
}

export function patchState(draft: Draft, { delta }: Frame): boolean | void {
  if (!Array.isArray(delta)) return false;
  const state = tryPatch(draft, draft.thread.state, delta);
  if (state !== undefined) draft.thread.state = state;
}

/** Return the patched document; undefined, and count it, if the patch does not apply. */
function tryPatch(draft: Draft, document: unknown, operations: readonly unknown[]): unknown {
  try {
    return applyPatch(document, operations);
  } catch {
    draft.thread.failedPatches += 1;
    return undefined;
  }
}
