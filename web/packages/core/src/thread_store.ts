// A thread as a store: what it is now, how it is connected, and everything a page can do with it.
import { createConnection, type Connection } from "./connection.js";
import { AmbientError, toError } from "./errors.js";
import { createFrontendTools, type OfferedCall } from "./frontend_tools.js";
import { createNotifier, type Listener } from "./notifier.js";
import type { AnyFrontendTool, ThreadOptions } from "./options.js";
import {
  areAllAnswered, mergeAnswers, postRun, userMessage, type Answer, type RunRequest, type SendOptions, type StartedRun,
} from "./post_run.js";
import { fold } from "./reduce.js";
import { createRequest, newId, withRetries } from "./request.js";
import { EMPTY_THREAD, type Feedback, type Thread } from "./thread.js";
import type { ContentPart, PatchOperation, ReadFrame, ResumeEntry, UserMessage } from "./wire.js";

export interface ThreadSnapshot {
  readonly thread: Thread;
  readonly connection: Connection;
  /** Messages on their way: the server has not confirmed them yet. */
  readonly sending: readonly UserMessage[];
  /** Answers that wait until all open interrupts have one. */
  readonly answers: readonly ResumeEntry[];
  /** Calls of frontend tools that wait for this page or another. */
  readonly offeredCalls: readonly OfferedCall[];
  /** The last request that failed; undefined after one that did not. */
  readonly error: AmbientError | undefined;
}

/** All methods that send something throw AmbientError if it is refused. */
export interface ThreadStore {
  readonly id: string;
  subscribe(listener: Listener): () => void;
  getSnapshot(): ThreadSnapshot;
  /** Send a message of the user. */
  send(content: string | readonly ContentPart[], options?: SendOptions): Promise<StartedRun>;
  /** Answer open interrupts. The answers are sent when there is one for each. */
  answer(...answers: Answer[]): Promise<StartedRun | undefined>;
  /** Run the handler of an offered call. */
  runCall(toolCallId: string): void;
  /** Answer an offered call by hand. */
  answerCall(toolCallId: string, result: unknown): Promise<unknown>;
  /** Stop the active run, or cancel the open interrupts. Returns false if there was nothing to stop. */
  stop(): Promise<boolean>;
  /** Have a user message answered again, the last one by default. All messages after it are removed. */
  retry(messageId?: string): Promise<StartedRun>;
  /** Begin a new thread as a copy of this one up to a message, with another text instead of it. Returns the new thread's run. */
  editFrom(messageId: string, content: string | readonly ContentPart[], options?: SendOptions): Promise<StartedRun>;
  feedback(messageId: string, value: Feedback, comment?: string): Promise<unknown>;
  /** Change the shared state. It is not sent again after a network error: the state tells whether it was applied. */
  patchState(operations: readonly PatchOperation[]): Promise<unknown>;
  rename(title: string): Promise<unknown>;
  archive(archived?: boolean): Promise<unknown>;
  /** Connect anew by snapshot, also after a refusal. */
  reconnect(): void;
  close(): void;
}

type RunInput = Pick<RunRequest, "messages" | "resume" | "options">;

const LAZY_GRACE = 1_000; // milliseconds without subscribers before a lazy store disconnects
const NEW_THREAD: Connection = { state: "refused", status: 404, code: "unknown_thread", message: "No message yet." };

/** Open a thread, and keep it up to date until `close`. Without an id it is a new thread. */
export function openThread(id?: string, options: ThreadOptions = {}): ThreadStore {
  const { agent, tools = [], lazy, onFrame } = options;
  const threadId = id ?? newId();
  const key = encodeURIComponent(threadId);
  const request = createRequest(options);
  const closing = new AbortController();
  const { signal } = closing;
  let isUnknown = options.isNew ?? id === undefined;
  /** The thread at the last cursor. What came after it is sent again if the stream breaks. */
  let committed = EMPTY_THREAD;
  let isAnswering = false;
  let graceTimer: ReturnType<typeof setTimeout> | undefined;

  const onUse = (isUsed: boolean): void => {
    clearTimeout(graceTimer);
    if (!isUsed) graceTimer = setTimeout(stream.close, LAZY_GRACE);
    else if (!isUnknown) stream.open();
  };

  const { subscribe, getSnapshot, latest, set, flush } = createNotifier<ThreadSnapshot>(
    {
      thread: EMPTY_THREAD,
      connection: isUnknown ? NEW_THREAD : { state: "connecting" },
      sending: [],
      answers: [],
      offeredCalls: [],
      error: undefined,
    },
    lazy ? onUse : undefined,
  );

  const currentTools = (): readonly AnyFrontendTool[] => (typeof tools === "function" ? tools() : tools);

  const frontendTools = createFrontendTools({
    tools: currentTools,
    send: (messages) => startRun({ messages }),
    onOffer: (offeredCalls) => {
      if (offeredCalls.length || latest().offeredCalls.length) set({ offeredCalls });
    },
  });

  const setThread = (thread: Thread): void => {
    if (thread === latest().thread) return;
    set({ thread });
    if (latest().sending.length) removeSending(({ id: sent }) => thread.messages.some((message) => message.id === sent));
    if (!thread.restating && thread !== EMPTY_THREAD) frontendTools.update(thread);
  };

  const removeSending = (isDone: (message: UserMessage) => boolean): void =>
    set({ sending: latest().sending.filter((message) => !isDone(message)) });

  const take = (batch: readonly ReadFrame[]): void => {
    const complete = batch.findLastIndex(({ cursor }) => cursor !== undefined) + 1;
    const frames = batch.map(({ frame }) => frame);
    const before = latest().thread;
    let thread = before;
    if (complete) committed = thread = fold(frames.slice(0, complete), thread);
    setThread(fold(frames.slice(complete), thread));
    if (onFrame) for (const { frame, cursor } of batch) onFrame(frame, cursor);
    checkFailedAnswer(before, latest().thread);
  };

  /** Connect anew if a run that answered interrupts has failed: the server may still wait for the answers. */
  const checkFailedAnswer = (before: Thread, { interrupts, run, runs }: Thread): void => {
    // Question, answer and failure may come in one batch.
    const wasAsked = before.interrupts.length || runs.findLast(({ status }) => status !== "failed")?.status === "interrupted";
    if (wasAsked && !interrupts.length) isAnswering = true;
    if (!isAnswering || run?.status === "running") return;
    isAnswering = false;
    if (run?.status === "failed") stream.reconnect();
  };

  const stream = createConnection({
    request,
    path: `/threads/${key}/events?${options.snapshots === false ? "snapshots=0&" : ""}`,
    page: options.page,
    heartbeat: options.heartbeat,
    onBatch: take,
    onBreak: () => setThread(committed),
    onReset: () => setThread((committed = EMPTY_THREAD)),
    onChange: (connection) => set({ connection }),
  });

  /** Start a run of this thread, and connect if the server did not know it before, or no longer. */
  const startRun = async (input: RunInput): Promise<StartedRun> => {
    const runId = newId();
    frontendTools.addRun(runId);
    const started = await post(input, threadId, runId);
    // After a deletion this is a new thread of the same id: the cursor is refused, and the store connects anew.
    if (isUnknown || ["refused", "gone"].includes(latest().connection.state)) {
      isUnknown = false;
      stream.open();
    }
    return started;
  };

  const post = (input: RunInput, target: string, runId: string, query?: string): Promise<StartedRun> =>
    noteError(postRun(request, { ...input, agent, threadId: target, runId, tools: currentTools(), query }, signal));

  const call = (path: string, method: string, body: unknown): Promise<unknown> =>
    noteError(withRetries(signal, () => request(path, { method, body, signal })));

  /** Keep the error of a request in the snapshot, until one succeeds. */
  const noteError = async <T>(sent: Promise<T>): Promise<T> => {
    try {
      const result = await sent;
      if (latest().error) set({ error: undefined });
      return result;
    } catch (thrown) {
      const error = toError(thrown);
      set({ error });
      throw error;
    }
  };

  if (!lazy && !isUnknown) stream.open();

  return {
    id: threadId,
    subscribe,
    getSnapshot,
    async send(content, sendOptions = {}) {
      const message = userMessage(content, sendOptions);
      set({ sending: [...latest().sending, message] });
      try {
        return await startRun({ messages: [message], options: sendOptions });
      } catch (error) {
        removeSending((each) => each === message);
        throw error;
      }
    },
    async answer(...given) {
      const { interrupts } = latest().thread;
      const resume = mergeAnswers(latest().answers, given, interrupts);
      set({ answers: resume });
      if (!areAllAnswered(interrupts, resume)) return undefined;
      set({ answers: [] });
      return startRun({ messages: [], resume });
    },
    runCall: frontendTools.run,
    answerCall: frontendTools.answer,
    async stop() {
      try {
        await call("/interrupt", "POST", { threadId });
        return true;
      } catch (error) {
        if ((error as AmbientError).code === "nothing_running") return false;
        throw error;
      }
    },
    async retry(messageId) {
      const message = latest().thread.messages.findLast(
        (each) => each.role === "user" && (messageId === undefined || each.id === messageId),
      );
      if (!message) throw new AmbientError(404, "unknown_message", "Unknown message.");
      return startRun({ messages: [message] });
    },
    editFrom: (messageId, content, sendOptions = {}) =>
      post(
        { messages: [userMessage(content, sendOptions)], options: sendOptions },
        newId(),
        newId(),
        `?fork=${key}&before=${encodeURIComponent(messageId)}`,
      ),
    feedback: (messageId, metaType, comment) =>
      call("/feedback", "POST", { type: "META", metaType, threadId, payload: { messageId, comment } }),
    // Sent once: a patch whose response was lost may have been applied, and some change the state again.
    patchState: (operations) => noteError(request(`/state/${key}`, { method: "PATCH", body: operations, signal })),
    rename: (title) => call(`/thread/${key}`, "PATCH", { title }),
    archive: (archived = true) => call(`/thread/${key}`, "PATCH", { archived }),
    reconnect() {
      isUnknown = false;
      stream.reconnect();
    },
    close() {
      clearTimeout(graceTimer);
      closing.abort();
      frontendTools.close();
      stream.close();
      flush();
    },
  };
}
