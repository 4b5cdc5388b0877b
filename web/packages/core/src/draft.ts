// A thread that is being changed. Every part is copied once, before its first change, so that a batch of frames costs one copy.
import { callsOf, type Thread } from "./thread.js";
import type { Frame, Message, ToolCall } from "./wire.js";

type Mutable<T> = { -readonly [K in keyof T]: T[K] };
type MutableCall = Mutable<ToolCall> & { function: { name: string; arguments: string } };

/** Changes of one `Thread`. Use `finish` once, and the draft no more. */
export interface Draft {
  /** The thread. Its messages change only by the functions below. */
  readonly thread: Mutable<Thread>;
  /** Return the changed thread, or the one from before if nothing has changed. */
  finish(): Thread;
  keepRaw(frame: Frame): void;
  /** Return the position of a message; -1 if there is none. */
  indexOf(id: string): number;
  /** Return the position of the assistant message that has this call; -1 if there is none. */
  carrierOf(callId: string): number;
  /** Add a message that was made here. */
  addMessage(message: Message, at?: number): void;
  /** Add a message that belongs to a frame: it is copied before it is changed. */
  adoptMessage(message: Message, at?: number): void;
  /** Return a copy of the message that may be changed in place; it is in the thread already. */
  change(at: number): Mutable<Message>;
  /** Return a copy of the call that may be changed in place, with a `function` of its own. */
  changeCall(at: number, callId: string): MutableCall;
  addCall(at: number, call: ToolCall): void;
  replace(at: number, message: Message): void;
  setMessages(messages: Message[]): void;
}

const MAX_RAW = 100;
const NEAR = 8; // Messages at the end that are searched before an index is made: nearly every delta is for one of them.

export function createDraft(base: Thread): Draft {
  const thread: Mutable<Thread> = { ...base };
  /** What was made or copied for this draft, and may be changed in place. */
  const owned = new Set<unknown>();
  let positions: Map<string, number> | undefined;
  let callIds: Set<string> | undefined;

  const ownMessages = (): Message[] => {
    if (!owned.has(thread.messages)) owned.add((thread.messages = thread.messages.slice()));
    return thread.messages as Message[];
  };

  const findNear = (matches: (message: Message) => boolean): number => {
    const { messages } = thread;
    for (let at = messages.length - 1; at >= 0 && at >= messages.length - NEAR; at--) if (matches(messages[at] as Message)) return at;
    return -1;
  };

  const indexOf = (id: string): number => {
    const near = findNear((message) => message.id === id);
    if (near >= 0) return near;
    positions ??= new Map(thread.messages.map((message, at) => [message.id, at]));
    return positions.get(id) ?? -1;
  };

  const carrierOf = (id: string): number => {
    const hasCall = (message: Message): boolean => callsOf(message).some((call) => call.id === id);
    const near = findNear(hasCall);
    if (near >= 0) return near;
    callIds ??= new Set(thread.messages.flatMap(callsOf).map((call) => call.id));
    return callIds.has(id) ? thread.messages.findLastIndex(hasCall) : -1;
  };

  const adoptMessage = (message: Message, at = thread.messages.length): void => {
    if (at < thread.messages.length) positions = undefined;
    else positions?.set(message.id, at);
    ownMessages().splice(at, 0, message);
    for (const call of callsOf(message)) callIds?.add(call.id);
  };

  const replace = (at: number, message: Message): void => {
    ownMessages()[at] = message;
    owned.add(message);
  };

  const change = (at: number): Mutable<Message> => {
    if (!owned.has(thread.messages[at])) replace(at, { ...(thread.messages[at] as Message) });
    return thread.messages[at] as Message;
  };

  /** Return the list of a message's calls, to be changed in place. */
  const ownCalls = (at: number): ToolCall[] => {
    const message = change(at) as { toolCalls?: readonly ToolCall[] };
    if (!owned.has(message.toolCalls)) owned.add((message.toolCalls = [...(message.toolCalls ?? [])]));
    return message.toolCalls as ToolCall[];
  };

  return {
    thread,
    finish: () => ((Object.keys(thread) as (keyof Thread)[]).some((key) => thread[key] !== base[key]) ? thread : base),
    keepRaw(frame) {
      thread.raw = [...thread.raw.slice(1 - MAX_RAW), frame];
      thread.rawCount += 1;
    },
    indexOf,
    carrierOf,
    addMessage(message, at) {
      adoptMessage(message, at);
      owned.add(message);
    },
    adoptMessage,
    change,
    changeCall(at, callId) {
      const calls = ownCalls(at);
      const found = calls.findIndex((call) => call.id === callId);
      const call = calls[found] as ToolCall;
      if (owned.has(call)) return call;
      const copy = (calls[found] = { ...call, function: { ...call.function } });
      owned.add(copy);
      return copy;
    },
    addCall(at, call) {
      ownCalls(at).push(call);
      callIds?.add(call.id);
    },
    replace,
    setMessages(messages) {
      owned.add((thread.messages = messages));
      positions = callIds = undefined;
    },
  };
}
