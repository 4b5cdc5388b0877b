// Starts runs. The server answers as soon as a run has begun; its frames come with the stream of the thread.
import type { AnyFrontendTool } from "./options.js";
import { newId, withRetries, type Request } from "./request.js";
import { asObject, asText, type ContentPart, type Interrupt, type Message, type Metadata, type ResumeEntry, type UserMessage } from "./wire.js";

export interface SendOptions {
  readonly id?: string;
  readonly metadata?: Metadata;
  readonly state?: unknown;
  readonly context?: readonly { readonly description: string; readonly value: string }[];
  readonly forwardedProps?: unknown;
  /** What to do if the thread has an active run; the server's setting by default. */
  readonly onBusy?: "reject" | "queue" | "supersede" | "join";
}

/** A run that the server has accepted. */
export interface StartedRun {
  readonly threadId: string;
  readonly runId: string;
  /** The server's key of the run. */
  readonly run?: string;
}

/** An answer to an interrupt; `resolved` by default. */
export type Answer = Omit<ResumeEntry, "status"> & { readonly status?: ResumeEntry["status"] };

export interface RunRequest {
  readonly agent: string | undefined;
  readonly threadId: string;
  readonly runId: string;
  readonly messages: readonly Message[];
  readonly resume?: readonly ResumeEntry[] | undefined;
  readonly tools?: readonly AnyFrontendTool[];
  readonly options?: SendOptions | undefined;
  readonly query?: string | undefined;
}

/** Start a run. It is repeated after network errors: the server starts one run per key. Throws AmbientError. */
export async function postRun(request: Request, run: RunRequest, signal: AbortSignal): Promise<StartedRun> {
  const { agent, threadId, runId, messages, resume, tools = [], options = {}, query = "" } = run;
  const { state, context = [], forwardedProps, onBusy } = options;
  const body = {
    threadId,
    runId,
    protocolVersion: "1.0",
    messages,
    context,
    tools: tools.map(({ handler: _handler, resume: _resume, ...declaration }) => declaration),
    // JSON omits what is undefined.
    resume,
    state,
    forwardedProps,
  };
  const headers = {
    prefer: "respond-async",
    "idempotency-key": newId(),
    accept: "text/event-stream",
    ...(onBusy && { "x-ambient-on-busy": onBusy }),
  };
  const path = (agent === undefined ? "/" : `/agents/${encodeURIComponent(agent)}`) + query;
  const response = await withRetries(signal, () => request(path, { method: "POST", body, headers, signal }));
  const key = await readRunKey(response);
  return { threadId, runId, ...(key && { run: key }) };
}

/** Return the server's key of the run. A server that streams the run instead goes on with it when the stream is left. */
async function readRunKey(response: Response): Promise<string | undefined> {
  if (response.status === 202) return asText(asObject(await response.json().catch(() => undefined)).run);
  response.body?.cancel().catch(() => {});
  return response.headers.get("x-ambient-run") ?? undefined;
}

export const userMessage = (content: string | readonly ContentPart[], { id = newId(), metadata }: SendOptions): UserMessage => ({
  id,
  role: "user",
  content,
  ...(metadata && { metadata }),
});

/** Return the answers of before with these: each names the arguments that were shown, so that it answers no other question. */
export function mergeAnswers(
  before: readonly ResumeEntry[],
  given: readonly Answer[],
  interrupts: readonly Interrupt[],
): readonly ResumeEntry[] {
  const made = given.map((answer): ResumeEntry => {
    const digest = interrupts.find(({ id }) => id === answer.interruptId)?.metadata?.argumentsDigest;
    return { status: "resolved", ...(digest !== undefined && { metadata: { argumentsDigest: digest } }), ...answer };
  });
  return [...before.filter((old) => !made.some((answer) => answer.interruptId === old.interruptId)), ...made];
}

export const areAllAnswered = (interrupts: readonly Interrupt[], answers: readonly ResumeEntry[]): boolean =>
  interrupts.every(({ id }) => answers.some((answer) => answer.interruptId === id));
