// The hooks. They see frames folded by @ambient-runner/core, and nothing of how the server stores them.
import type {
  AmbientError, AnyFrontendTool, FrontendTool, Message, ThreadOptions, ThreadSnapshot, ThreadsOptions, ThreadsSnapshot, ThreadsStore, ThreadStore,
} from "@ambient-runner/core";
import type { Agent, Approval } from "@ambient-runner/core/client";
import { useEffect, useRef, useState } from "react";
import { useAmbient } from "./provider.js";
import { areListsEqual, useStore } from "./use_store.js";

type UseThreadOptions = Pick<ThreadOptions, "agent" | "isNew">;

/** Return the store of a thread, without following it. For buttons that only send. */
export const useThreadStore = (id: string, options?: UseThreadOptions): ThreadStore => useAmbient().thread(id, options);

/** Follow a thread. Return its snapshot and its store, whose methods send, answer, stop and so on. */
export function useThread(id: string, options?: UseThreadOptions): ThreadSnapshot & { readonly store: ThreadStore } {
  const store = useThreadStore(id, options);
  return { ...useStore(store, (snapshot) => snapshot), store };
}

/** Follow a part of a thread: the component renders only if what the selector returns has changed. */
export function useThreadSelector<Selected>(
  id: string,
  selector: (snapshot: ThreadSnapshot) => Selected,
  isEqual?: (left: Selected, right: Selected) => boolean,
): Selected {
  return useStore(useThreadStore(id), selector, isEqual);
}

/** Return the ids of a thread's messages: the list renders when one is added, not with every delta. */
export const useMessageIds = (id: string): readonly string[] =>
  useThreadSelector(id, ({ thread }) => thread.messages.map((message) => message.id), areListsEqual);

/** Return one message of a thread: only its own deltas render it. */
export const useMessage = (id: string, messageId: string): Message | undefined =>
  useThreadSelector(id, ({ thread }) => thread.messages.findLast((message) => message.id === messageId));

/** Follow the list of threads. Return it and its store, whose methods rename, archive, delete and load more. */
export function useThreads(
  filters?: Pick<ThreadsOptions, "agent" | "status" | "archived" | "search" | "pageSize">,
): ThreadsSnapshot & { readonly store: ThreadsStore } {
  const store = useAmbient().threads(filters);
  return { ...useStore(store, (snapshot) => snapshot), store };
}

export interface ApprovalWithAnswer extends Approval {
  /** Answer the question. The answers of a thread are sent when all its questions have one. */
  answer(payload: unknown): Promise<void>;
  /** Cancel the question: nothing that waits for it is executed. */
  cancel(): Promise<void>;
}

/** Return every question that waits for a person, over all threads. */
export function useApprovals(): readonly ApprovalWithAnswer[] {
  const store = useAmbient().approvals();
  const approvals = useStore(store, (snapshot) => snapshot);
  return approvals.map((approval) => ({
    ...approval,
    answer: (payload) => store.answer(approval, { status: "resolved", payload }),
    cancel: () => store.answer(approval, { status: "cancelled" }),
  }));
}

export interface AgentsState {
  readonly agents: readonly Agent[];
  readonly isLoaded: boolean;
  readonly error: AmbientError | undefined;
}

/** Return the agents of the server. */
export function useAgents(): AgentsState {
  const client = useAmbient();
  const [state, setState] = useState<AgentsState>({ agents: [], isLoaded: false, error: undefined });
  useEffect(() => {
    let isUsed = true;
    client.agents().then(
      (agents) => isUsed && setState({ agents, isLoaded: true, error: undefined }),
      (error: AmbientError) => isUsed && setState((old) => ({ ...old, error })),
    );
    return () => void (isUsed = false);
  }, [client]);
  return state;
}

/** Offer a frontend tool to the agents while the component is shown. The handler is that of the newest render. */
export function useFrontendTool<Arguments>(tool: FrontendTool<Arguments>): void {
  const client = useAmbient();
  const newest = useRef(tool);
  useEffect(() => void (newest.current = tool));
  const { handler, ...declaration } = tool;
  const hasHandler = handler !== undefined;
  const key = JSON.stringify(declaration);
  useEffect(() => {
    const run: AnyFrontendTool["handler"] = (args, call) => newest.current.handler?.(args, call);
    return client.addTool({ ...(JSON.parse(key) as AnyFrontendTool), ...(hasHandler && { handler: run }) });
  }, [client, key, hasHandler]);
}
