// Requests to the server, and how long to wait before another attempt.
import { AmbientError, readError, toError } from "./errors.js";
import type { ServerOptions } from "./options.js";

const FIRST_DELAY = 250; // milliseconds
const LAST_DELAY = 10_000;
const MAX_RETRY_AFTER = 600_000;
const MAX_ATTEMPTS = 8;

export interface RequestOptions {
  readonly method?: string;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

export type Request = (path: string, options?: RequestOptions) => Promise<Response>;

/** Return a function that sends requests. It throws AmbientError for any response but 2xx, and if there is none. */
export function createRequest({ url = "", headers, fetch: fetchGiven }: ServerOptions): Request {
  const base = url.replace(/\/+$/, "");
  return async (path, { method = "GET", body, headers: more, signal } = {}) => {
    const send = fetchGiven ?? globalThis.fetch;
    const own = typeof headers === "function" ? await headers() : headers;
    const type = body !== undefined && { "content-type": "application/json" };
    const init = { method, headers: { ...own, ...type, ...more }, body: JSON.stringify(body), signal: signal ?? null };
    const response = await send(base + path, init).catch((thrown: unknown) => {
      throw toError(thrown);
    });
    if (!response.ok) throw await readError(response);
    return response;
  };
}

/** Return how long to wait after so many failed attempts: 0.25 s to 10 s with jitter, or longer if the server says so. */
export function retryDelay(attempt: number, error?: AmbientError): number {
  const delay = Math.min(LAST_DELAY, FIRST_DELAY * 2 ** attempt) * (0.5 + Math.random() / 2);
  return Math.max(delay, Math.min(error?.retryAfter ?? 0, MAX_RETRY_AFTER));
}

/** Repeat a request that is safe to repeat until it is answered or refused. Throws AmbientError. */
export async function withRetries<T>(signal: AbortSignal, attempt: () => Promise<T>): Promise<T> {
  for (let failed = 0; ; failed++) {
    try {
      return await attempt();
    } catch (thrown) {
      const error = toError(thrown);
      if (!error.isTemporary || signal.aborted || failed + 1 >= MAX_ATTEMPTS) throw error;
      await wait(retryDelay(failed, error), signal);
    }
  }
}

/** Wait so many milliseconds, or until the signal is aborted. */
export const wait = (milliseconds: number, signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    if (signal.aborted) end();
    else signal.addEventListener("abort", end);
  });

/** Return a UUID. `crypto.randomUUID` is missing on pages that are not served over https. */
export const newId = (): string =>
  "10000000-1000-4000-8000-100000000000".replace(/[018]/g, (digit) =>
    (Number(digit) ^ ((crypto.getRandomValues(new Uint8Array(1))[0] as number) & (15 >> (Number(digit) / 4)))).toString(16),
  );
