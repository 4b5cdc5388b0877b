// One stream of a thread, kept open: it connects by snapshot, follows, and resumes by cursor. It knows nothing of what the frames mean.
import { AmbientError, toError } from "./errors.js";
import { readBatches } from "./frames.js";
import { browserPage, type Page } from "./options.js";
import { retryDelay, wait, type Request } from "./request.js";
import type { ReadFrame } from "./wire.js";

/** How a store is connected to its thread. */
export type Connection =
  | { readonly state: "connecting" }
  | { readonly state: "live" }
  /** The stream broke at `since` (milliseconds since 1970); so many attempts to resume it have failed. */
  | { readonly state: "resuming"; readonly since: number; readonly missed: number }
  /** The page is hidden and holds no connection. */
  | { readonly state: "hidden" }
  /** The server refused. It is asked again after a message was sent, or with `reconnect`. */
  | { readonly state: "refused"; readonly status: number; readonly code: string; readonly message: string }
  /** The thread was deleted, or is no longer retained. The next message that is sent begins it anew. */
  | { readonly state: "gone" };

export interface StreamOptions {
  readonly request: Request;
  /** Path of the stream, up to the parameter `from` or `after`: it ends with `?` or `&`. */
  readonly path: string;
  readonly page?: Page | undefined;
  readonly heartbeat?: number | undefined;
  readonly onBatch: (batch: readonly ReadFrame[]) => void;
  /** The stream broke: drop what came after the last cursor, it will be sent again. */
  readonly onBreak: () => void;
  /** The thread begins anew: a snapshot follows. */
  readonly onReset: () => void;
  readonly onChange: (connection: Connection) => void;
}

const STALE = "stale_cursor";
const HEARTBEAT = 15_000; // milliseconds, of the server
const MISSED_HEARTBEATS = 3;
const HIDDEN_GRACE = 10_000; // milliseconds that a hidden page keeps its connection

/** At most one stream at a time. Its functions may be called at any time. */
export interface StreamConnection {
  /** Connect, or resume where the last stream ended. */
  open(): void;
  /** Connect by snapshot, whatever is known. */
  reconnect(): void;
  close(): void;
}

export function createConnection(options: StreamOptions): StreamConnection {
  const { request, path, page = browserPage, heartbeat = HEARTBEAT, onBatch, onBreak, onReset, onChange } = options;
  let cursor: string | undefined;
  let attempt: AbortController | undefined;
  let hiddenTimer: ReturnType<typeof setTimeout> | undefined;
  let stopWatching: (() => void) | undefined;
  let brokenSince = 0;
  let failed = 0;
  let wasLive = false;
  /** False after a refusal: changes of the page do not repeat the request. */
  let isWanted = true;

  const open = (): void => {
    stopWatching ??= page.onChange(onPageChange);
    if (page.isHidden()) onPageChange();
    if (!attempt) void run();
  };

  const abort = (): void => {
    attempt?.abort();
    attempt = undefined;
    onBreak();
  };

  const stopHiddenTimer = (): void => {
    clearTimeout(hiddenTimer);
    hiddenTimer = undefined;
  };

  const onPageChange = (): void => {
    if (!isWanted) return;
    if (page.isHidden()) {
      hiddenTimer ??= setTimeout(hide, HIDDEN_GRACE);
      return;
    }
    stopHiddenTimer();
    // A page that is shown, or online, again does not wait for the next attempt.
    if (brokenSince && attempt) abort();
    if (!attempt) void run();
  };

  const hide = (): void => {
    if (!isWanted) return;
    abort();
    brokenSince ||= Date.now();
    failed = 0;
    onChange({ state: "hidden" });
  };

  const run = async (): Promise<void> => {
    const { signal } = (attempt = new AbortController());
    isWanted = true;
    while (!signal.aborted) {
      announceAttempt();
      const error = await follow(signal);
      if (signal.aborted) return;
      onBreak();
      if (error && cursor !== undefined && (error.code === STALE || error.status === 400)) {
        cursor = undefined;
        continue;
      }
      if (error && !error.isTemporary) return refuse(error);
      brokenSince ||= Date.now();
      announceAttempt();
      await wait(retryDelay(failed++, error), signal);
    }
  };

  const announceAttempt = (): void =>
    onChange(brokenSince && wasLive ? { state: "resuming", since: brokenSince, missed: failed } : { state: "connecting" });

  const refuse = ({ status, code, message }: AmbientError): void => {
    attempt = undefined;
    isWanted = false;
    onChange(
      status === 410 || (status === 404 && wasLive) ? { state: "gone" } : { state: "refused", status, code, message },
    );
  };

  /** Read one stream to its end. Return the error if it did not begin or broke. */
  const follow = async (outer: AbortSignal): Promise<AmbientError | undefined> => {
    const inner = new AbortController();
    const cancel = (): void => inner.abort();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const onSign = (): void => {
      clearTimeout(timer);
      timer = setTimeout(cancel, heartbeat * MISSED_HEARTBEATS);
    };
    outer.addEventListener("abort", cancel);
    onSign();
    try {
      const start = cursor === undefined ? "from=snapshot" : `after=${encodeURIComponent(cursor)}`;
      const response = await request(path + start, { headers: { accept: "text/event-stream" }, signal: inner.signal });
      checkIsStream(response);
      onLive();
      for await (const batch of readBatches(response, onSign)) {
        if (outer.aborted) return undefined;
        if (!take(batch)) return new AmbientError(409, STALE, "");
      }
      return undefined;
    } catch (thrown) {
      return toError(thrown);
    } finally {
      clearTimeout(timer);
      outer.removeEventListener("abort", cancel);
      cancel();
    }
  };

  const onLive = (): void => {
    if (cursor === undefined) onReset();
    brokenSince = 0;
    wasLive = true;
    onChange({ state: "live" });
  };

  /** Hand a batch on. Return false if it belongs to another epoch of the thread. */
  const take = (batch: readonly ReadFrame[]): boolean => {
    const newest = batch.findLast((read) => read.cursor !== undefined)?.cursor;
    if (newest !== undefined) {
      if (cursor !== undefined && epochOf(newest) !== epochOf(cursor)) return false;
      cursor = newest;
    }
    failed = 0;
    onBatch(batch);
    return true;
  };

  return {
    open,
    reconnect() {
      cursor = undefined;
      abort();
      open();
    },
    close() {
      stopWatching?.();
      stopWatching = undefined;
      stopHiddenTimer();
      abort();
    },
  };
}

function checkIsStream(response: Response): void {
  const type = response.headers.get("content-type");
  if (type?.startsWith("text/event-stream")) return;
  response.body?.cancel().catch(() => {});
  throw new AmbientError(0, "not_a_stream", `Not an event stream: ${type}`);
}

const epochOf = (cursor: string): string => cursor.slice(0, cursor.lastIndexOf(".") + 1);
