// What an agent did and does, as a flat list that any page can show. The twin of `fold_activities` in `ambient_runner.testing`.
import { lifecycleEvent, waitingCallIds, type Status } from "./lifecycle.js";
import { asList, asObject, isObject, isString, type Frame } from "./wire.js";

export interface Activity {
  readonly id: string;
  readonly kind: "tool" | "step" | "subagent" | "reasoning" | "activity" | "clone";
  readonly title: string;
  readonly status: Status;
  /** The subagent it belongs to. */
  readonly parent?: string;
  readonly progress?: number;
}

type Item = { -readonly [K in keyof Activity]: Activity[K] };

const KINDS: Readonly<Record<string, Activity["kind"]>> = { TOOL_CALL: "tool", STEP: "step", SUBAGENT: "subagent", REASONING: "reasoning" };
const STATUSES: readonly unknown[] = ["running", "waiting", "done", "failed"];

/** Return the activities of these frames, in the order in which they began. */
export function activities(frames: Iterable<Frame>): Activity[] {
  const items = new Map<string, Item>();

  const begin = (kind: Activity["kind"], id: string, title: string, parent?: unknown): Item => {
    const key = `${kind} ${id}`;
    const item = items.get(key) ?? { id, kind, title, status: "running", ...(isString(parent) && parent && { parent }) };
    item.status = "running";
    items.set(key, item);
    return item;
  };

  const end = (kind: Activity["kind"], id: unknown, status: Status): void => {
    const item = items.get(`${kind} ${id}`);
    if (item) item.status = status;
  };

  const closeAll = (status: Status): void => {
    for (const item of items.values()) if (item.status === "running" && item.kind !== "clone") item.status = status;
  };

  const applyOther = (frame: Frame): void => {
    const item = items.get(`activity ${frame.messageId}`);
    const value = asObject(frame.value);
    const outcome = asObject(frame.outcome);
    switch (frame.type) {
      case "ACTIVITY_SNAPSHOT":
        if (isString(frame.messageId) && isObject(frame.content))
          mergeContent(begin("activity", frame.messageId, frame.activityType as string, frame.subagentRunId), frame.content);
        break;
      case "ACTIVITY_DELTA":
        for (const operation of item ? asList(frame.patch).map(asObject) : [])
          mergeContent(item as Item, { [String(operation.path).slice(1)]: operation.value });
        break;
      case "CUSTOM":
        if (!isString(value.name)) break;
        if (frame.name === "ambient:repo_progress") begin("clone", value.name, value.name).progress = value.percent as number;
        if (frame.name === "ambient:repo_added") end("clone", value.name, "done");
        break;
      case "RUN_STARTED":
        for (const message of asList(asObject(frame.input).messages)) end("tool", asObject(message).toolCallId, "done");
        break;
      case "RUN_FINISHED":
        for (const id of waitingCallIds(outcome)) end("tool", id, "waiting");
        closeAll(outcome.type === "cancelled" ? "failed" : "done");
        break;
      case "RUN_ERROR":
        closeAll("failed");
    }
  };

  for (const frame of frames) {
    const event = lifecycleEvent(frame);
    const kind = event && KINDS[event.kind];
    if (!kind) applyOther(frame);
    else if (event.status !== "running") end(kind, event.id, event.status);
    else begin(kind, event.id, event.title, kind === "subagent" ? frame.parentSubagentRunId : frame.subagentRunId);
  }
  return [...items.values()];
}

/** Take the title, the progress and the status of an activity from its content. */
function mergeContent(item: Item, { title, progress, status }: Readonly<Record<string, unknown>>): void {
  if (isString(title)) item.title = title;
  if (typeof progress === "number") item.progress = progress;
  if (STATUSES.includes(status)) item.status = status as Status;
}
