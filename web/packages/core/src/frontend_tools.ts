// Runs the frontend tools that an agent calls, once, in the page that sent the message.
import type { AnyFrontendTool } from "./options.js";
import { newId } from "./request.js";
import { callsWithResults, EMPTY_THREAD, type Thread } from "./thread.js";
import type { ToolMessage } from "./wire.js";

/** A call of a frontend tool that waits for `runCall` or `answerCall`. */
export interface OfferedCall {
  readonly id: string;
  readonly name: string;
  /** The arguments as JSON. */
  readonly arguments: string;
  /** True if this page has a handler for it. */
  readonly canRun: boolean;
}

export interface FrontendToolsOptions {
  readonly tools: () => readonly AnyFrontendTool[];
  /** Send the results: tool messages for all calls that the thread waits for. */
  readonly send: (messages: readonly ToolMessage[]) => Promise<unknown>;
  readonly onOffer: (calls: readonly OfferedCall[]) => void;
}

/** The calls of one thread. */
export interface FrontendTools {
  /** Note that this page starts the run: it runs the calls at its end. */
  addRun(runId: string): void;
  /** Call it with every change of the thread. */
  update(thread: Thread): void;
  /** Run the handler of an offered call. */
  run(id: string): void;
  /** Answer a call by hand. The promise ends when the results are sent, or at once if other calls still wait. */
  answer(id: string, result: unknown): Promise<unknown>;
  /** Abort all handlers. */
  close(): void;
}

type Result = Pick<ToolMessage, "content" | "error">;

export function createFrontendTools({ tools, send, onOffer }: FrontendToolsOptions): FrontendTools {
  const ownRuns = new Set<string>();
  /** Calls that this page has run by itself. It never does so twice. */
  const attempted = new Set<string>();
  const running = new Map<string, AbortController>();
  const results = new Map<string, ToolMessage>();
  let thread = EMPTY_THREAD;
  let pending = thread.pendingCalls;

  const handlerOf = (id: string): AnyFrontendTool | undefined => {
    const name = pending.find((call) => call.id === id)?.name;
    return tools().find((tool) => tool.name === name && tool.handler);
  };

  const update = (next: Thread): void => {
    thread = next;
    if (thread.pendingCalls === pending) return;
    pending = thread.pendingCalls;
    for (const id of [...running.keys(), ...results.keys()]) if (!pending.some((call) => call.id === id)) drop(id);
    for (const { id } of pending) {
      const tool = handlerOf(id);
      if (!tool || attempted.has(id) || !(ownRuns.has(thread.run?.runId ?? "") || tool.resume)) continue;
      attempted.add(id);
      run(id);
    }
    offer();
  };

  const drop = (id: string): void => {
    running.get(id)?.abort();
    running.delete(id);
    results.delete(id);
  };

  const run = (id: string): void => {
    const handler = handlerOf(id)?.handler;
    if (!handler || running.has(id) || results.has(id)) return;
    const abort = new AbortController();
    running.set(id, abort);
    offer();
    const context = { threadId: thread.threadId, toolCallId: id, signal: abort.signal };
    const settle = (result: Result): void => {
      // The page learns of a refusal by the store's `error`: another page may have answered first.
      if (running.get(id) !== abort) return;
      running.delete(id);
      store(id, result).catch(() => {});
    };
    Promise.resolve(argumentsOf(id))
      .then((text) => handler(parseArguments(text) as never, context))
      .then(
        (result) => settle({ content: toText(result) }),
        (thrown) => {
          const error = String(thrown?.message ?? thrown);
          settle({ content: error, error });
        },
      );
  };

  /** Keep a result. Send all when no call waits any more. */
  const store = async (id: string, result: Result): Promise<unknown> => {
    if (!pending.some((call) => call.id === id)) return;
    drop(id);
    results.set(id, { id: newId(), role: "tool", toolCallId: id, ...result });
    offer();
    const messages = pending.flatMap((call) => results.get(call.id) ?? []);
    if (messages.length < pending.length) return;
    return send(messages).catch((error: unknown) => {
      results.clear();
      offer();
      throw error;
    });
  };

  const argumentsOf = (id: string): string => callsWithResults(thread.messages).find((call) => call.id === id)?.arguments ?? "";

  const offer = (): void =>
    onOffer(
      pending
        .filter(({ id }) => !running.has(id) && !results.has(id))
        .map(({ id, name }) => ({ id, name, arguments: argumentsOf(id), canRun: !!handlerOf(id) })),
    );

  return {
    addRun: (runId) => void ownRuns.add(runId),
    update,
    run,
    answer: (id, result) => store(id, { content: toText(result) }),
    close: () => [...running.keys()].forEach(drop),
  };
}

function parseArguments(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

const toText = (value: unknown): string => (typeof value === "string" ? value : (JSON.stringify(value) ?? ""));
