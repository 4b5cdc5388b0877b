// The public names of @ambient-runner/react.
export {
  useAgents, useApprovals, useFrontendTool, useMessage, useMessageIds, useThread, useThreads, useThreadSelector, useThreadStore,
  type AgentsState, type ApprovalWithAnswer,
} from "./hooks.js";
export { AmbientProvider, useAmbient, type AmbientProviderProps } from "./provider.js";
