// The list of threads as a store, kept up to date by asking for what has changed.
import { toError, type AmbientError } from "./errors.js";
import { createNotifier, type Listener } from "./notifier.js";
import { browserPage, type ServerOptions } from "./options.js";
import { createRequest, retryDelay } from "./request.js";
import type { ThreadStatus } from "./thread.js";
import { asList, asObject, asText, isString } from "./wire.js";

/** A thread as `GET /thread/list` describes it. */
export interface ListedThread {
  readonly threadId: string;
  readonly agent: string;
  readonly title: string;
  readonly archived: boolean;
  readonly status: ThreadStatus;
  readonly createdAt: number;
  readonly updatedAt: number;
  /** Position in the list. */
  readonly cursor: string;
}

export interface ThreadsSnapshot {
  /** Newest change first. */
  readonly threads: readonly ListedThread[];
  /** False until the first page has been read. */
  readonly isLoaded: boolean;
  readonly hasMore: boolean;
  /** Why the list is not up to date; undefined if it is. */
  readonly error: AmbientError | undefined;
}

export interface ThreadsOptions extends ServerOptions {
  readonly agent?: string;
  readonly status?: ThreadStatus;
  /** Threads that are archived: left out by default, `only` these, or `with` the others. */
  readonly archived?: "only" | "with";
  /** Text in the title or the id. */
  readonly search?: string;
  readonly pageSize?: number;
  /** Milliseconds between two questions for changes. */
  readonly interval?: number;
  /** True to ask only while there are subscribers. */
  readonly lazy?: boolean;
}

/** All methods that send something throw AmbientError if it is refused. */
export interface ThreadsStore {
  subscribe(listener: Listener): () => void;
  getSnapshot(): ThreadsSnapshot;
  loadMore(): Promise<void>;
  /** Ask for changes now. */
  refresh(): Promise<void>;
  rename(threadId: string, title: string): Promise<void>;
  archive(threadId: string, archived?: boolean): Promise<void>;
  /** Erase a thread. */
  delete(threadId: string): Promise<void>;
  close(): void;
}

const INTERVAL = 2_000; // milliseconds
const PAGE_SIZE = 50;
const CHANGES_SIZE = 100;

interface ThreadPage {
  readonly threads: ListedThread[];
  readonly erased: readonly unknown[];
  readonly next: string | undefined;
  readonly cursor: string | undefined;
}

export function openThreads(options: ThreadsOptions = {}): ThreadsStore {
  const { agent, status, archived, search = "", pageSize = PAGE_SIZE, interval = INTERVAL, lazy, page = browserPage } = options;
  const request = createRequest(options);
  let timer: ReturnType<typeof setTimeout> | undefined;
  let stopWatching: (() => void) | undefined;
  let asking: Promise<void> | undefined;
  let changedAfter: string | undefined;
  let next: string | undefined;
  let failed = 0;

  const start = (): void => {
    stopWatching ??= page.onChange(() => void poll());
    void poll();
  };

  const close = (): void => {
    stopWatching?.();
    stopWatching = undefined;
    clearTimeout(timer);
  };

  const { subscribe, getSnapshot, latest, set } = createNotifier<ThreadsSnapshot>(
    { threads: [], isLoaded: false, hasMore: false, error: undefined },
    lazy ? (isUsed) => (isUsed ? start() : close()) : undefined,
  );

  /** Ask for changes, and again after a while. Hidden pages do not ask. */
  const poll = async (): Promise<void> => {
    clearTimeout(timer);
    if (page.isHidden()) return;
    let delay = interval;
    try {
      await refresh();
      failed = 0;
    } catch (thrown) {
      const error = toError(thrown);
      set({ error });
      if (!error.isTemporary) return;
      delay = Math.max(delay, retryDelay(failed++, error));
    }
    clearTimeout(timer);
    if (stopWatching) timer = setTimeout(() => void poll(), delay);
  };

  const refresh = (): Promise<void> => (asking ??= readChanges().finally(() => (asking = undefined)));

  const readChanges = async (): Promise<void> => {
    while (changedAfter !== undefined) {
      try {
        const { threads, erased, cursor } = await readPage({ changed_after: changedAfter, limit: CHANGES_SIZE });
        changedAfter = cursor ?? changedAfter;
        merge(threads, erased);
        if (threads.length + erased.length < CHANGES_SIZE) return;
      } catch (thrown) {
        // A cursor that is too old, or of another store: list again.
        if (![400, 409].includes(toError(thrown).status)) throw thrown;
        changedAfter = undefined;
      }
    }
    const first = await readPage(filters());
    changedAfter = first.cursor;
    next = first.next;
    set({ threads: first.threads, isLoaded: true, hasMore: next !== undefined, error: undefined });
  };

  const filters = (): Record<string, unknown> => ({ limit: pageSize, agent, status, archived, search: search || undefined });

  const readPage = async (query: Record<string, unknown>): Promise<ThreadPage> => {
    const given = Object.entries(query).filter(([, value]) => value !== undefined) as [string, string][];
    const response = await request(`/thread/list?${new URLSearchParams(given)}`);
    const body = asObject(await response.json());
    const threads = asList(body.threads).filter((thread): thread is ListedThread => isString(asObject(thread).threadId));
    return { threads, erased: asList(body.erased), next: asText(body.next), cursor: asText(body.cursor) };
  };

  /** Add and replace threads; those that were erased, or that the filters no longer admit, go. */
  const merge = (changed: readonly ListedThread[], erased: readonly unknown[] = []): void => {
    const { threads, error } = latest();
    if (!changed.length && !erased.length && !error) return;
    const gone = new Set([...erased, ...changed.map((thread) => thread.threadId)]);
    const merged = [...threads.filter((thread) => !gone.has(thread.threadId)), ...changed.filter(admits)];
    set({ threads: merged.sort((left, right) => right.updatedAt - left.updatedAt), error: undefined });
  };

  const admits = (thread: ListedThread): boolean =>
    (agent === undefined || thread.agent === agent) &&
    (status === undefined || thread.status === status) &&
    (archived === "with" || thread.archived === (archived === "only")) &&
    `${thread.title}\n${thread.threadId}`.toLowerCase().includes(search.toLowerCase());

  const change = async (threadId: string, method: string, body?: unknown): Promise<void> => {
    await request(`/thread/${encodeURIComponent(threadId)}`, { method, body });
    if (method === "DELETE") merge([], [threadId]);
    await refresh();
  };

  if (!lazy) start();

  return {
    subscribe,
    getSnapshot,
    async loadMore() {
      if (next === undefined) return;
      const { threads, next: following } = await readPage({ ...filters(), before: next });
      next = following;
      merge(threads);
      set({ hasMore: next !== undefined });
    },
    refresh,
    rename: (threadId, title) => change(threadId, "PATCH", { title }),
    archive: (threadId, isArchived = true) => change(threadId, "PATCH", { archived: isArchived }),
    delete: (threadId) => change(threadId, "DELETE"),
    close,
  };
}
