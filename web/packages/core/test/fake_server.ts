// A server for tests: it answers requests of `fetch` with real responses, whose streams the test writes.
import { vi } from "vitest";
import type { Frame } from "../src/index.js";

export interface Received {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: any;
}

/** An event stream that a client has opened. */
export class OpenStream {
  isOpen = true;
  readonly response: Response;
  private controller!: ReadableStreamDefaultController<Uint8Array>;

  constructor(
    readonly request: Received,
    signal: AbortSignal | null | undefined,
  ) {
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => void (this.controller = controller),
      cancel: () => void (this.isOpen = false),
    });
    this.response = new Response(body, { headers: { "content-type": "text/event-stream" } });
    signal?.addEventListener("abort", () => this.fail(new DOMException("aborted", "AbortError")));
  }

  /** Send frames, each with its cursor, or without one. */
  send(...frames: readonly (Frame | readonly [cursor: string, frame: Frame])[]): void {
    this.write(frames.map((each) => (Array.isArray(each) ? sse(each[1], each[0]) : sse(each as Frame))).join(""));
  }

  write(text: string | Uint8Array): void {
    if (this.isOpen) this.controller.enqueue(typeof text === "string" ? new TextEncoder().encode(text) : text);
  }

  end(): void {
    if (this.isOpen) this.controller.close();
    this.isOpen = false;
  }

  fail(error: Error = new TypeError("network error")): void {
    if (this.isOpen) this.controller.error(error);
    this.isOpen = false;
  }
}

export const sse = (frame: Frame, cursor?: string): string =>
  `${cursor === undefined ? "" : `id: ${cursor}\n`}data: ${JSON.stringify(frame)}\n\n`;

type Handler = (request: Received) => Response | Error | undefined;

export class FakeServer {
  readonly requests: Received[] = [];
  readonly streams: OpenStream[] = [];
  /** Answers to the next requests for a stream, instead of a stream. */
  readonly refusals: (Response | Error)[] = [];
  /** Answers other requests. 202 for a POST and 200 `{}` for others by default. */
  handler: Handler = () => undefined;

  readonly fetch: typeof fetch = async (input, init = {}) => {
    const headers = Object.fromEntries(new Headers(init.headers).entries());
    const body = typeof init.body === "string" ? JSON.parse(init.body) : undefined;
    const request = { method: init.method ?? "GET", path: String(input), headers, body };
    this.requests.push(request);
    if (/\/threads\/[^/]*\/events/.test(request.path)) return this.openStream(request, init.signal);
    const answer = this.handler(request) ?? this.defaultAnswer(request);
    if (answer instanceof Error) throw answer;
    return answer;
  };

  get stream(): OpenStream {
    const stream = this.streams.at(-1);
    if (!stream) throw new Error("no stream was opened");
    return stream;
  }

  get openStreams(): number {
    return this.streams.filter((stream) => stream.isOpen).length;
  }

  posts(path?: string): Received[] {
    return this.requests.filter((request) => request.method === "POST" && (path === undefined || request.path === path));
  }

  private openStream(request: Received, signal: AbortSignal | null | undefined): Response {
    const refusal = this.refusals.shift();
    if (refusal instanceof Error) throw refusal;
    if (refusal) return refusal;
    const stream = new OpenStream(request, signal);
    this.streams.push(stream);
    return stream.response;
  }

  private defaultAnswer({ method, body }: Received): Response {
    if (method !== "POST") return json({});
    return json({ threadId: body.threadId, run: "key", runId: body.runId, after: "e.1" }, 202);
  }
}

export const json = (body: unknown, status = 200, headers: Record<string, string> = {}): Response =>
  new Response(JSON.stringify(body), { status, headers: { "content-type": "application/json", ...headers } });

export const refusal = (status: number, code: string, headers?: Record<string, string>): Response =>
  json({ error: { code, message: `refused: ${code}` } }, status, headers);

/** A page whose visibility the test sets. */
export class FakePage {
  private hidden = false;
  private readonly listeners = new Set<() => void>();

  readonly isHidden = (): boolean => this.hidden;

  readonly onChange = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  set isShown(shown: boolean) {
    this.hidden = !shown;
    for (const listener of [...this.listeners]) listener();
  }

  get listenerCount(): number {
    return this.listeners.size;
  }
}

/** Let everything happen that is due within so many milliseconds of the fake clock. */
export const settle = async (milliseconds = 20): Promise<void> => void (await vi.advanceTimersByTimeAsync(milliseconds));
