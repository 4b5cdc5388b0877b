// The public names of @ambient-runner/core.
export { activities, type Activity } from "./activities.js";
export type { Connection } from "./connection.js";
export { AmbientError } from "./errors.js";
export { parseFrame, readFrames } from "./frames.js";
export type { OfferedCall } from "./frontend_tools.js";
export type { Listener } from "./notifier.js";
export type { AnyFrontendTool, FrontendTool, HeaderSource, Page, ServerOptions, ThreadOptions, ToolContext } from "./options.js";
export { applyPatch, PatchConflict } from "./patch.js";
export { fold, reduce } from "./reduce.js";
export { spans, type Span } from "./spans.js";
export {
  callsWithResults, EMPTY_THREAD,
  type CallWithResult, type Feedback, type Gap, type PendingCall, type Run, type RunInfo, type RunStatus, type Step, type Subagent,
  type Thread, type ThreadInfo, type ThreadStatus,
} from "./thread.js";
export type { Answer, SendOptions, StartedRun } from "./post_run.js";
export { openThread, type ThreadSnapshot, type ThreadStore } from "./thread_store.js";
export { openThreads, type ListedThread, type ThreadsOptions, type ThreadsSnapshot, type ThreadsStore } from "./threads_store.js";
export type {
  ActivityMessage, AssistantMessage, ContentPart, Frame, Interrupt, Message, Metadata, PatchOperation, ReadFrame, ResumeEntry,
  TextMessage, TokenUsage, ToolCall, ToolDeclaration, ToolMessage, UserMessage,
} from "./wire.js";
