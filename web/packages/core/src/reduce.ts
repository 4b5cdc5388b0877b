// The reducer: what a thread is after one frame more. It agrees with the official client's (@ag-ui/client 1.0.0) and with the server's own fold.
import { createDraft, type Draft } from "./draft.js";
import { applyCustom } from "./reduce_custom.js";
import { appendText, endMessage, setEncryptedValue, startReasoning, startText } from "./reduce_messages.js";
import {
  failRun, failSubagent, finishRun, finishStep, finishSubagent, startRun, startStep, startSubagent,
} from "./reduce_runs.js";
import { mergeMessages, patchActivity, patchState, setState, showActivity } from "./reduce_snapshots.js";
import { addResult, appendArguments, endCall, startCall } from "./reduce_tools.js";
import { EMPTY_THREAD, type Thread } from "./thread.js";
import { isString, type Frame } from "./wire.js";

/** Applies a frame. Returns false if it cannot be read. */
type Handler = (draft: Draft, frame: never) => boolean | void;

const ignore: Handler = () => {};

/** The handler of each type, and the members that have to be texts. */
const HANDLERS = new Map<string, readonly [handler: Handler, ...texts: string[]]>([
  ["RUN_STARTED", [startRun, "runId"]],
  ["RUN_FINISHED", [finishRun]],
  ["RUN_ERROR", [failRun]],
  ["STEP_STARTED", [startStep, "stepName"]],
  ["STEP_FINISHED", [finishStep, "stepName"]],
  ["SUBAGENT_STARTED", [startSubagent, "subagentRunId", "name"]],
  ["SUBAGENT_FINISHED", [finishSubagent, "subagentRunId"]],
  ["SUBAGENT_ERROR", [failSubagent, "subagentRunId"]],
  ["TEXT_MESSAGE_START", [startText, "messageId"]],
  ["TEXT_MESSAGE_CONTENT", [appendText, "messageId", "delta"]],
  ["TEXT_MESSAGE_END", [endMessage, "messageId"]],
  ["REASONING_START", [ignore]],
  ["REASONING_MESSAGE_START", [startReasoning, "messageId"]],
  ["REASONING_MESSAGE_CONTENT", [appendText, "messageId", "delta"]],
  ["REASONING_MESSAGE_END", [endMessage, "messageId"]],
  ["REASONING_END", [ignore]],
  ["REASONING_ENCRYPTED_VALUE", [setEncryptedValue, "entityId", "encryptedValue"]],
  ["TOOL_CALL_START", [startCall, "toolCallId", "toolCallName"]],
  ["TOOL_CALL_ARGS", [appendArguments, "toolCallId", "delta"]],
  ["TOOL_CALL_END", [endCall, "toolCallId"]],
  ["TOOL_CALL_RESULT", [addResult, "messageId", "toolCallId"]],
  ["MESSAGES_SNAPSHOT", [mergeMessages]],
  ["STATE_SNAPSHOT", [setState]],
  ["STATE_DELTA", [patchState]],
  ["ACTIVITY_SNAPSHOT", [showActivity, "messageId", "activityType"]],
  ["ACTIVITY_DELTA", [patchActivity, "messageId", "activityType"]],
  ["CUSTOM", [applyCustom, "name"]],
]);

function apply(draft: Draft, frame: Frame): void {
  const [handler, ...texts] = HANDLERS.get(frame.type) ?? [];
  if (!handler || !texts.every((name) => isString(frame[name])) || handler(draft, frame as never) === false) draft.keepRaw(frame);
}

/** Return the thread after this frame. It never throws: a frame that it cannot read is kept in `raw`. */
export const reduce = (thread: Thread, frame: Frame): Thread => fold([frame], thread);

/** Return the thread after these frames, as `reduce` one by one, and faster. */
export function fold(frames: Iterable<Frame>, thread: Thread = EMPTY_THREAD): Thread {
  const draft = createDraft(thread);
  for (const frame of frames) apply(draft, frame);
  return draft.finish();
}
