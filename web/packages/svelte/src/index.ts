// Svelte stores over @ambient-runner/core: plain `readable` stores, no compiled components, for Svelte 4 and 5.
// They see folded frames, and nothing of how the server stores them.
import type {
  AmbientError, AnyFrontendTool, Message, ThreadOptions, ThreadSnapshot, ThreadsOptions, ThreadsSnapshot, ThreadsStore, ThreadStore,
} from "@ambient-runner/core";
import {
  createClient, type Agent, type AmbientClient, type Approval, type ApprovalsStore, type ClientOptions,
} from "@ambient-runner/core/client";
import { derived, readable, type Readable } from "svelte/store";

/** A readable store, and the methods of the core's store: `send`, `answer`, `stop`, … */
export type SvelteThread = Omit<ThreadStore, "subscribe"> & Readable<ThreadSnapshot>;
export type SvelteThreads = Omit<ThreadsStore, "subscribe"> & Readable<ThreadsSnapshot>;
export type SvelteApprovals = Omit<ApprovalsStore, "subscribe"> & Readable<readonly Approval[]>;

export interface AgentsState {
  readonly agents: readonly Agent[];
  readonly isLoaded: boolean;
  readonly error: AmbientError | undefined;
}

export interface Ambient {
  readonly client: AmbientClient;
  /** A thread, connected while it has subscribers. */
  thread(id: string, options?: Pick<ThreadOptions, "agent" | "isNew">): SvelteThread;
  threads(filters?: Pick<ThreadsOptions, "agent" | "status" | "archived" | "search" | "pageSize">): SvelteThreads;
  /** Every question that waits for a person, over all threads. */
  approvals(): SvelteApprovals;
  agents(): Readable<AgentsState>;
  /** Offer a frontend tool to the agents. Returns a function that takes it back: `onDestroy(ambient.frontendTool({…}))`. */
  frontendTool(tool: AnyFrontendTool): () => void;
}

/** Return the stores of a server. Make it once, in a module or in the context of the app. */
export function createAmbient(options: ClientOptions | AmbientClient = {}): Ambient {
  const client = isClient(options) ? options : createClient(options);
  return {
    client,
    thread: (id, given) => toReadable<ThreadSnapshot, ThreadStore>(client.thread(id, given)),
    threads: (filters) => toReadable<ThreadsSnapshot, ThreadsStore>(client.threads(filters)),
    approvals: () => toReadable<readonly Approval[], ApprovalsStore>(client.approvals()),
    agents: () => readAgents(client),
    frontendTool: (tool) => client.addTool(tool),
  };
}

const isClient = (given: ClientOptions | AmbientClient): given is AmbientClient => "addTool" in given;

/** Return a part of a store. Subscribers are called only if that part has changed. */
export function select<T, Selected>(store: Readable<T>, selector: (value: T) => Selected): Readable<Selected> {
  const nothing = {};
  let last: Selected | typeof nothing = nothing;
  return derived(store, (value, set: (selected: Selected) => void) => {
    const selected = selector(value);
    if (!Object.is(selected, last)) set((last = selected));
  });
}

/** Return one message of a thread: only its own deltas call subscribers. */
export const selectMessage = (thread: Readable<ThreadSnapshot>, messageId: string): Readable<Message | undefined> =>
  select(thread, (snapshot) => snapshot.thread.messages.findLast((message) => message.id === messageId));

interface CoreStore<T> {
  subscribe(listener: () => void): () => void;
  getSnapshot(): T;
}

const follow = <T>(store: CoreStore<T>): Readable<T> =>
  readable(store.getSnapshot(), (set) => {
    const update = (): void => set(store.getSnapshot());
    update();
    return store.subscribe(update);
  });

/** Return the core's store with the `subscribe` of Svelte. */
function toReadable<T, Store extends CoreStore<T> & object>(store: Store): Omit<Store, "subscribe"> & Readable<T> {
  const { subscribe } = follow(store);
  return new Proxy(store, {
    get: (target, name) => {
      if (name === "subscribe") return subscribe;
      const member: unknown = Reflect.get(target, name, target);
      return typeof member === "function" ? member.bind(target) : member;
    },
  }) as Omit<Store, "subscribe"> & Readable<T>;
}

const readAgents = (client: AmbientClient): Readable<AgentsState> =>
  readable<AgentsState>({ agents: [], isLoaded: false, error: undefined }, (set) => {
    client.agents().then(
      (agents) => set({ agents, isLoaded: true, error: undefined }),
      (error: AmbientError) => set({ agents: [], isLoaded: false, error }),
    );
  });
