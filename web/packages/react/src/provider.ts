// The server that the hooks below use.
import { createClient, type AmbientClient, type ClientOptions } from "@ambient-runner/core/client";
import { createContext, createElement, useContext, useRef, type ReactElement, type ReactNode } from "react";

const ClientContext = createContext<AmbientClient | undefined>(undefined);

export interface AmbientProviderProps extends ClientOptions {
  /** A client of your own, instead of the options. */
  readonly client?: AmbientClient;
  readonly children?: ReactNode;
}

/** Provides a server to the hooks. `url` and `agent` make a new client when they change; headers and `fetch` are those of the newest render. */
export function AmbientProvider({ client, children, ...options }: AmbientProviderProps): ReactElement {
  const newest = useRef(options);
  newest.current = options;
  const made = useRef<{ readonly key: string; readonly client: AmbientClient }>(undefined);
  const key = JSON.stringify([options.url, options.agent]);
  if (!client && made.current?.key !== key) made.current = { key, client: createClient(withNewest(options, newest)) };
  return createElement(ClientContext.Provider, { value: client ?? made.current?.client }, children);
}

/** Return options whose headers and fetch are read from the newest render at each request. */
const withNewest = (options: ClientOptions, newest: { readonly current: ClientOptions }): ClientOptions => ({
  ...options,
  headers: () => {
    const { headers = {} } = newest.current;
    return typeof headers === "function" ? headers() : headers;
  },
  fetch: (...request) => (newest.current.fetch ?? globalThis.fetch)(...request),
});

export function useAmbient(): AmbientClient {
  const client = useContext(ClientContext);
  if (!client) throw new Error("Wrap the component in <AmbientProvider url=…>.");
  return client;
}
