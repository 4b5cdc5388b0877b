// Every question that waits for a person, over all threads.
import { readFrames } from "./frames.js";
import { createNotifier, type Listener } from "./notifier.js";
import type { ServerOptions } from "./options.js";
import { areAllAnswered, mergeAnswers, postRun } from "./post_run.js";
import { reduce } from "./reduce.js";
import { createRequest, newId } from "./request.js";
import { EMPTY_THREAD } from "./thread.js";
import { openThreads, type ListedThread, type ThreadsOptions } from "./threads_store.js";
import type { Interrupt, ResumeEntry } from "./wire.js";

/** An open interrupt, and the thread that waits for its answer. */
export interface Approval {
  readonly thread: ListedThread;
  readonly interrupt: Interrupt;
}

export interface ApprovalsStore {
  subscribe(listener: Listener): () => void;
  getSnapshot(): readonly Approval[];
  /** Answer a question. The answers of a thread are sent when all its questions have one. Throws AmbientError. */
  answer(approval: Approval, answer: Pick<ResumeEntry, "status" | "payload">): Promise<void>;
  close(): void;
}

/** Follow the list of threads that wait, and read the questions of each once per change. */
export function openApprovals(options: ServerOptions & Pick<ThreadsOptions, "interval" | "lazy"> = {}): ApprovalsStore {
  const request = createRequest(options);
  const waiting = openThreads({ ...options, status: "waiting", archived: "with", lazy: true });
  /** The questions of each thread as of its cursor. */
  const known = new Map<string, { readonly cursor: string; readonly interrupts: readonly Interrupt[] }>();
  const answers = new Map<string, readonly ResumeEntry[]>();
  let unsubscribe: (() => void) | undefined;

  const start = (): void => void (unsubscribe ??= waiting.subscribe(update));

  const close = (): void => {
    unsubscribe?.();
    unsubscribe = undefined;
  };

  const { subscribe, getSnapshot, set } = createNotifier<{ readonly approvals: readonly Approval[] }>(
    { approvals: [] },
    options.lazy ? (isUsed) => (isUsed ? start() : close()) : undefined,
  );

  const update = (): void => {
    for (const thread of waiting.getSnapshot().threads) {
      const { threadId, cursor } = thread;
      if (known.get(threadId)?.cursor === cursor) continue;
      known.set(threadId, { cursor, interrupts: [] });
      void read(thread);
    }
    publish();
  };

  const read = async ({ threadId, cursor }: ListedThread): Promise<void> => {
    try {
      const path = `/threads/${encodeURIComponent(threadId)}/events?from=snapshot&until=idle`;
      const response = await request(path, { headers: { accept: "text/event-stream" } });
      let thread = EMPTY_THREAD;
      for await (const { frame } of readFrames(response)) thread = reduce(thread, frame);
      if (known.get(threadId)?.cursor === cursor) known.set(threadId, { cursor, interrupts: thread.interrupts });
    } catch {
      known.delete(threadId); // Read again with the next change.
    }
    publish();
  };

  const publish = (): void => {
    const { threads } = waiting.getSnapshot();
    for (const id of [...known.keys()]) if (!threads.some((thread) => thread.threadId === id)) known.delete(id);
    const questionsOf = (thread: ListedThread): Approval[] =>
      (known.get(thread.threadId)?.interrupts ?? []).map((interrupt) => ({ thread, interrupt }));
    set({ approvals: threads.flatMap(questionsOf) });
  };

  if (!options.lazy) start();

  return {
    subscribe,
    getSnapshot: () => getSnapshot().approvals,
    async answer({ thread, interrupt }, answer) {
      const { threadId, agent, cursor } = thread;
      const interrupts = known.get(threadId)?.interrupts ?? [interrupt];
      const resume = mergeAnswers(answers.get(threadId) ?? [], [{ interruptId: interrupt.id, ...answer }], interrupts);
      answers.set(threadId, resume);
      if (!areAllAnswered(interrupts, resume)) return;
      answers.delete(threadId);
      await postRun(request, { agent, threadId, runId: newId(), messages: [], resume }, new AbortController().signal);
      known.set(threadId, { cursor, interrupts: [] });
      publish();
      await waiting.refresh();
    },
    close,
  };
}
