// What a timeline draws: a bar for every message, tool call, step, subagent and question, with its lane, its times and what it is part of.
import { lifecycleEvent, waitingCallIds, type Status } from "./lifecycle.js";
import { asList, asObject, asText, type Frame } from "./wire.js";

export interface Span {
  /** Unique among the spans: the kind and the id of what it shows. */
  readonly key: string;
  readonly kind: "message" | "reasoning" | "tool" | "step" | "subagent" | "interrupt";
  readonly id: string;
  readonly title: string;
  /** The subagent it belongs to; empty for the agent itself. */
  readonly lane: string;
  readonly runId: string;
  /** Milliseconds since 1970, of the frame or, if it has no timestamp, of the last one before it that has. */
  readonly begin: number;
  /** Missing while it is open. */
  readonly end?: number;
  /** Key of the span that it is part of. */
  readonly parent?: string;
  readonly status: Status;
}

type Mutable = { -readonly [K in keyof Span]: Span[K] };

const KINDS: Readonly<Record<string, Span["kind"]>> = {
  TEXT_MESSAGE: "message",
  REASONING_MESSAGE: "reasoning",
  TOOL_CALL: "tool",
  STEP: "step",
  SUBAGENT: "subagent",
};

/** Return the spans of these frames, in the order in which they began. */
export function spans(frames: Iterable<Frame>): Span[] {
  const all: Mutable[] = [];
  const open = new Map<string, Mutable>();
  const newest = new Map<string, Mutable>();
  let now = 0;
  let runId = "";

  /** Begin a span, unless it is open: a resumed stream opens again what is open. */
  const begin = (kind: Span["kind"], id: string, title: string, lane: string, parent?: string, status: Status = "running"): void => {
    const name = `${kind} ${id}`;
    if (open.has(name)) return;
    const key = newest.has(name) ? `${name} ${all.length}` : name;
    const span = { key, kind, id, title, lane, runId, begin: now, ...(parent && { parent }), status };
    all.push(span);
    open.set(name, span);
    newest.set(name, span);
  };

  const end = (kind: Span["kind"], id: unknown, status: Status = "done"): void => {
    const name = `${kind} ${id}`;
    const span = open.get(name);
    if (!span) return;
    span.end = now;
    span.status = status;
    open.delete(name);
  };

  const keyOf = (kind: Span["kind"], id: unknown): string | undefined => newest.get(`${kind} ${id}`)?.key;

  /** Return the key of the innermost open step of a lane, else of its subagent. */
  const enclosing = (lane: string): string | undefined =>
    ([...open.values()].findLast((span) => span.kind === "step" && span.lane === lane) ?? open.get(`subagent ${lane}`))?.key;

  /** Close what a run left open, but not what waits for an answer. */
  const closeAll = (status: Status): void => {
    for (const span of [...open.values()]) if (span.status !== "waiting") end(span.kind, span.id, status);
  };

  const applyOther = (frame: Frame): void => {
    const outcome = asObject(frame.outcome);
    switch (frame.type) {
      case "RUN_STARTED":
        for (const message of asList(asObject(frame.input).messages)) end("tool", asObject(message).toolCallId);
        if (frame.runId === runId && open.size) break;
        runId = asText(frame.runId) ?? "";
        for (const span of [...open.values()]) if (span.kind === "interrupt") end("interrupt", span.id);
        break;
      case "RUN_FINISHED":
        for (const id of waitingCallIds(outcome)) {
          const call = open.get(`tool ${id}`);
          if (call) call.status = "waiting";
        }
        closeAll(outcome.type === "cancelled" ? "failed" : "done");
        for (const asked of asList(outcome.interrupts).map(asObject)) {
          const title = asText(asked.message) ?? asText(asked.reason) ?? "";
          const lane = asText(asked.subagentRunId) ?? "";
          begin("interrupt", String(asked.id), title, lane, keyOf("tool", asked.toolCallId), "waiting");
        }
        break;
      case "RUN_ERROR":
        closeAll("failed");
        break;
      case "CUSTOM":
        if (frame.name === "ambient:interrupts_cancelled")
          for (const id of asList(asObject(frame.value).interruptIds)) end("interrupt", id, "failed");
    }
  };

  for (const frame of frames) {
    if (typeof frame.timestamp === "number") now = frame.timestamp;
    const event = lifecycleEvent(frame);
    const kind = event && KINDS[event.kind];
    const lane = asText(frame.subagentRunId) ?? "";
    if (!kind) applyOther(frame);
    else {
      // Steps of different subagents may have one name.
      const id = kind === "step" && lane ? `${lane} ${event.id}` : event.id;
      const outer = kind === "subagent" ? (asText(frame.parentSubagentRunId) ?? "") : lane;
      const parent = keyOf("tool", frame.parentToolCallId) ?? keyOf("message", frame.parentMessageId) ?? enclosing(outer);
      if (event.status === "running") begin(kind, id, event.title, lane, parent);
      else end(kind, id, event.status);
    }
  }
  return all;
}
