// What a page tells the stores about its server and about itself.
import type { Frame, ToolDeclaration } from "./wire.js";

export type HeaderSource = Readonly<Record<string, string>> | (() => HeadersLike | Promise<HeadersLike>);
type HeadersLike = Readonly<Record<string, string>>;

export interface ServerOptions {
  /** Address of the server, with its prefix if it has one. The page's own origin by default. */
  readonly url?: string;
  /** Headers of every request, or a function that returns them, for tokens that expire. */
  readonly headers?: HeaderSource;
  readonly fetch?: typeof fetch;
  /** Whether the page is shown. The document of the browser by default. */
  readonly page?: Page;
}

/** Tells whether the page is shown. */
export interface Page {
  isHidden(): boolean;
  /** Call the listener at every change, and when the network is back. Returns a function that ends it. */
  onChange(listener: () => void): () => void;
}

export interface FrontendTool<Arguments = never> extends ToolDeclaration {
  /** Run the tool. What it returns is the result: a text, or a value that is sent as JSON. */
  readonly handler?: (args: Arguments, call: ToolContext) => unknown;
  /** `auto`: also run calls that were waiting when the page was loaded. They are only offered otherwise. */
  readonly resume?: "auto";
}

export interface ToolContext {
  readonly threadId: string;
  readonly toolCallId: string;
  /** Aborted if the call was answered elsewhere or given up. */
  readonly signal: AbortSignal;
}

export type AnyFrontendTool = FrontendTool<never>;

export interface ThreadOptions extends ServerOptions {
  /** Name of the agent; the server's first one by default. */
  readonly agent?: string;
  /** Frontend tools, or a function that returns those of this moment. */
  readonly tools?: readonly AnyFrontendTool[] | (() => readonly AnyFrontendTool[]);
  /** True for a thread that the server does not know yet. It is connected with the first message. */
  readonly isNew?: boolean;
  /** True to connect with the first subscriber and to disconnect after the last. */
  readonly lazy?: boolean;
  /** False to leave out MESSAGES_SNAPSHOT frames. What an agent takes back or a retry removes is then seen at the next connect only. */
  readonly snapshots?: boolean;
  /** Milliseconds between two signs of life of the server. */
  readonly heartbeat?: number;
  /** Called for every frame, also for those that the reducer leaves to the page, such as `ambient:repo_added`. */
  readonly onFrame?: (frame: Frame, cursor: string | undefined) => void;
}

/** The document of the browser. Elsewhere the page is always shown. */
export const browserPage: Page = {
  isHidden: () => typeof document !== "undefined" && document.visibilityState === "hidden",
  onChange: (listener) => {
    if (typeof document === "undefined") return () => {};
    document.addEventListener("visibilitychange", listener);
    globalThis.addEventListener?.("online", listener);
    return () => {
      document.removeEventListener("visibilitychange", listener);
      globalThis.removeEventListener?.("online", listener);
    };
  },
};
