// One server, as the components of a page share it: a store per thread, one list, and the frontend tools of all components.
// `@ambient-runner/core/client`, apart from the rest: pages without a framework need none of it.
import { openApprovals, type ApprovalsStore } from "./approvals.js";
import type { AnyFrontendTool, ServerOptions, ThreadOptions } from "./options.js";
import { createRequest } from "./request.js";
import { openThread, type ThreadStore } from "./thread_store.js";
import { openThreads, type ThreadsOptions, type ThreadsStore } from "./threads_store.js";
import { asObject } from "./wire.js";

export { openApprovals, type Approval, type ApprovalsStore } from "./approvals.js";

export interface ClientOptions extends ServerOptions {
  /** Agent of the threads that name none. */
  readonly agent?: string;
}

/** An agent of the server, with its AG-UI capabilities. */
export interface Agent {
  readonly name: string;
  readonly capabilities: Readonly<Record<string, unknown>>;
}

/** Stores connect with their first subscriber and disconnect after the last. The same arguments return the same store. */
export interface AmbientClient {
  thread(id: string, options?: Pick<ThreadOptions, "agent" | "isNew">): ThreadStore;
  threads(filters?: Omit<ThreadsOptions, keyof ServerOptions>): ThreadsStore;
  approvals(): ApprovalsStore;
  /** Return the agents of the server. It is asked once. Throws AmbientError. */
  agents(): Promise<readonly Agent[]>;
  /** Offer a frontend tool to all threads. Returns a function that takes it back. */
  addTool(tool: AnyFrontendTool): () => void;
}

export function createClient(options: ClientOptions = {}): AmbientClient {
  const { agent: defaultAgent, ...server } = options;
  const tools: AnyFrontendTool[] = [];
  const threads = new Map<string, ThreadStore>();
  const lists = new Map<string, ThreadsStore>();
  let approvals: ApprovalsStore | undefined;
  let agents: Promise<readonly Agent[]> | undefined;

  const open = (id: string, agent: string | undefined, isNew = false): ThreadStore =>
    openThread(id, { ...server, ...(agent !== undefined && { agent }), isNew, lazy: true, tools: () => tools });

  return {
    thread: (id, { agent = defaultAgent, isNew } = {}) => cached(threads, JSON.stringify([id, agent]), () => open(id, agent, isNew)),
    threads: (filters = {}) =>
      cached(lists, JSON.stringify(filters), () => openThreads({ ...server, ...filters, lazy: true })),
    approvals: () => (approvals ??= openApprovals({ ...server, lazy: true })),
    agents: () =>
      (agents ??= readAgents(server).catch((error: unknown) => {
        agents = undefined;
        throw error;
      })),
    addTool: (tool) => {
      tools.push(tool);
      return () => void tools.splice(tools.indexOf(tool), 1);
    },
  };
}

function cached<T>(cache: Map<string, T>, key: string, make: () => T): T {
  const found = cache.get(key);
  if (found !== undefined) return found;
  const made = make();
  cache.set(key, made);
  return made;
}

async function readAgents(server: ServerOptions): Promise<readonly Agent[]> {
  const response = await createRequest(server)("/capabilities");
  const body = asObject(await response.json());
  return Object.entries(asObject(body.agents)).map(([name, capabilities]) => ({ name, capabilities: asObject(capabilities) }));
}
