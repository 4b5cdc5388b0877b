// What a request that was refused or failed throws.
import { asObject, asText } from "./wire.js";

/** The server refused a request, or could not be reached (`status` 0). `code` is one of the server's error codes. */
export class AmbientError extends Error {
  override readonly name = "AmbientError";
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    /** Milliseconds to wait before another attempt, if the server named them. */
    readonly retryAfter?: number,
  ) {
    super(message);
  }

  /** True if the same request may succeed later. */
  get isTemporary(): boolean {
    return this.status === 0 || this.status === 408 || this.status === 429 || this.status >= 500;
  }
}

/** Return the error of a response that is not 2xx. */
export async function readError(response: Response): Promise<AmbientError> {
  const body = asObject(await response.json().catch(() => undefined));
  const error = asObject(body.error);
  const message = asText(error.message) ?? asText(body.message) ?? response.statusText;
  return new AmbientError(response.status, asText(error.code) ?? "", message, retryAfter(response.headers));
}

/** Return what was thrown as one of ours. `fetch` throws a TypeError if there is no connection. */
export const toError = (thrown: unknown): AmbientError =>
  thrown instanceof AmbientError
    ? thrown
    : new AmbientError(0, "unreachable", thrown instanceof Error ? thrown.message : String(thrown));

/** Return `Retry-After`, seconds or a date, in milliseconds. */
function retryAfter(headers: Headers): number | undefined {
  const text = headers.get("retry-after");
  if (!text) return undefined;
  const wait = /^\d+$/.test(text) ? Number(text) * 1000 : Date.parse(text) - Date.now();
  return Number.isFinite(wait) ? Math.max(0, wait) : undefined;
}
