// @vitest-environment happy-dom
import { act, StrictMode, type ReactNode } from "react";
import { createRoot, type Root } from "react-dom/client";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import {
  AmbientProvider, useAgents, useApprovals, useFrontendTool, useMessage, useMessageIds, useThread, useThreads, useThreadSelector,
  type ApprovalWithAnswer,
} from "../src/index.js";
import { FakePage, FakeServer, json, settle } from "../../core/test/fake_server.js";
import { call, connectFrames, delta, finished, started, textStart, threadInfo, user } from "../../core/test/frames_of.js";

let server: FakeServer;
let root: Root;
let container: HTMLElement;
let page: FakePage;

beforeEach(() => {
  vi.useFakeTimers();
  (globalThis as { IS_REACT_ACT_ENVIRONMENT?: boolean }).IS_REACT_ACT_ENVIRONMENT = true;
  server = new FakeServer();
  page = new FakePage();
  container = document.createElement("div");
  root = createRoot(container);
});

afterEach(async () => {
  await act(async () => root.unmount());
  await settle(2_000);
  expect([server.openStreams, page.listenerCount]).toStrictEqual([0, 0]);
  vi.useRealTimers();
});

async function render(children: ReactNode, headers: Record<string, string> = {}): Promise<void> {
  const provider = (
    <AmbientProvider url="http://server" fetch={server.fetch} page={page} headers={headers}>
      {children}
    </AmbientProvider>
  );
  await act(async () => root.render(<StrictMode>{provider}</StrictMode>));
  await act(() => settle(50));
}

/** Send frames on the open stream, the last one with this cursor, and let the page render them. */
async function send(cursor: string, ...frames: ReturnType<typeof connectFrames>): Promise<void> {
  server.stream.send(...frames.slice(0, -1), [cursor, frames.at(-1) as never]);
  await act(() => settle(50));
}

const shown = (): string => container.textContent ?? "";

test("a thread is shown and followed, and its store sends", async () => {
  function Chat(): ReactNode {
    const { thread, connection, store } = useThread("t");
    return (
      <>
        <p>{`${connection.state}: ${thread.messages.map(({ content }) => content).join(", ")}`}</p>
        <button onClick={() => void store.send("hello")} />
      </>
    );
  }
  await render(<Chat />);
  expect([shown(), server.openStreams]).toStrictEqual(["live: ", 1]);
  await send("e.1", ...connectFrames([user("u")]));
  expect(shown()).toBe("live: says u");
  await act(async () => container.querySelector("button")?.click());
  await act(() => settle(50));
  expect(server.posts()[0]?.body.messages).toMatchObject([{ role: "user", content: "hello" }]);
});

test("a delta renders one message", async () => {
  const renders: Record<string, number> = {};
  function Bubble({ id }: { readonly id: string }): ReactNode {
    renders[id] = (renders[id] ?? 0) + 1;
    return <p>{useMessage("t", id)?.content as string}</p>;
  }
  function Chat(): ReactNode {
    renders.list = (renders.list ?? 0) + 1;
    return useMessageIds("t").map((id) => <Bubble key={id} id={id} />);
  }
  await render(<Chat />);
  await send("e.1", ...connectFrames([user("u1"), user("u2")]), started("r", user("u3")), textStart("a"));
  const before = { ...renders };
  await send("e.2", delta("a", "hel"));
  await send("e.3", delta("a", "lo"));
  expect(shown()).toBe("says u1says u2says u3hello");
  // StrictMode renders everything twice.
  expect(renders).toStrictEqual({ ...before, a: (before.a as number) + 4 });
});

test("two components share one stream, and a selector of new values needs an equality", async () => {
  const counts = { roles: 0 };
  function Roles(): ReactNode {
    counts.roles++;
    return useThreadSelector("t", ({ thread }) => thread.messages.map(({ role }) => role), (a, b) => a.join() === b.join()).join();
  }
  function Title(): ReactNode {
    return useThreadSelector("t", ({ thread }) => thread.info?.title);
  }
  await render([<Roles key="a" />, <Title key="b" />]);
  await send("e.1", ...connectFrames([user("u")], threadInfo({ title: "T" })), started("r"), textStart("a"));
  const { roles } = counts;
  await send("e.2", delta("a", "x"));
  expect([shown(), counts.roles, server.streams.length]).toStrictEqual(["user,assistantT", roles, 1]);
});

test("another thread is another stream, and the first is left", async () => {
  function Chat({ id }: { readonly id: string }): ReactNode {
    return useThread(id).thread.messages.length;
  }
  await render(<Chat id="t1" />);
  await render(<Chat id="t2" />);
  await act(() => settle(2_000));
  expect([server.stream.request.path, server.openStreams]).toStrictEqual(["http://server/threads/t2/events?from=snapshot", 1]);
});

test("the headers are those of the newest render", async () => {
  function Chat(): ReactNode {
    const { store } = useThread("t");
    return <button onClick={() => void store.rename("x")} />;
  }
  await render(<Chat />, { "x-token": "1" });
  await render(<Chat />, { "x-token": "2" });
  await act(async () => container.querySelector("button")?.click());
  await act(() => settle(50));
  expect([server.openStreams, server.requests.at(-1)?.headers["x-token"]]).toStrictEqual([1, "2"]);
});

const listed = (threadId: string, status: string): unknown => ({
  ...{ threadId, agent: "demo", title: `Title ${threadId}`, archived: false, status, createdAt: 1, updatedAt: 1, cursor: "c1" },
});

test("the list of threads is shown", async () => {
  server.handler = () => json({ threads: [listed("a", "finished"), listed("b", "running")], next: null });
  function List(): ReactNode {
    const { threads, isLoaded } = useThreads();
    return isLoaded ? threads.map(({ title }) => title).join() : "…";
  }
  await render(<List />);
  expect(shown()).toBe("Title a,Title b");
});

test("questions of all threads are shown and answered", async () => {
  server.handler = ({ method }) => (method === "GET" ? json({ threads: [listed("a", "waiting")], next: null, cursor: "c1" }) : undefined);
  let approvals: readonly ApprovalWithAnswer[] = [];
  function Inbox(): ReactNode {
    approvals = useApprovals();
    return approvals.map(({ thread, interrupt }) => `${thread.title}: ${interrupt.message}`).join();
  }
  await render(<Inbox />);
  server.stream.send(...connectFrames([], threadInfo(), { interrupts: [{ id: "i", reason: "confirmation", message: "Pay?" }] }));
  server.stream.end();
  await act(() => settle(100));
  expect(shown()).toBe("Title a: Pay?");
  await act(async () => approvals[0]?.answer({ approved: true }));
  await act(() => settle(100));
  expect(server.posts()[0]?.body.resume).toStrictEqual([{ interruptId: "i", status: "resolved", payload: { approved: true } }]);
  expect(shown()).toBe("");
});

test("the agents of the server are listed", async () => {
  server.handler = () => json({ agents: { demo: {}, other: {} } });
  function Agents(): ReactNode {
    return useAgents().agents.map(({ name }) => name).join();
  }
  await render(<Agents />);
  expect(shown()).toBe("demo,other");
});

test("a frontend tool runs with the handler of the newest render, and is gone with its component", async () => {
  const seen: unknown[] = [];
  function Chat({ value, hasTool = true }: { readonly value: number; readonly hasTool?: boolean }): ReactNode {
    const { store } = useThread("t");
    return (
      <>
        <button onClick={() => void store.send("hello")} />
        {hasTool && <Tool value={value} />}
      </>
    );
  }
  function Tool({ value }: { readonly value: number }): ReactNode {
    useFrontendTool({ name: "pick", description: "Picks.", handler: (args: { x: number }) => (seen.push([args, value]), "red") });
    return null;
  }
  await render(<Chat value={1} />);
  await send("e.1", ...connectFrames([]));
  await act(async () => container.querySelector("button")?.click());
  await render(<Chat value={2} />);
  const [post] = server.posts();
  expect(post?.body.tools).toStrictEqual([{ name: "pick", description: "Picks." }]);
  const runId = post?.body.runId as string;
  await send("e.2", started(runId), ...call("c", "pick", '{"x":1}'), finished(runId, { type: "success", pendingToolCallIds: ["c"] }));
  expect([seen, server.posts()[1]?.body.messages]).toMatchObject([[[{ x: 1 }, 2]], [{ role: "tool", toolCallId: "c", content: "red" }]]);
  await render(<Chat value={2} hasTool={false} />);
  await act(async () => container.querySelector("button")?.click());
  await act(() => settle(50));
  expect(server.posts()[2]?.body.tools).toStrictEqual([]);
});

test("a hook outside of the provider says what is missing", async () => {
  function Alone(): ReactNode {
    return useThread("t").thread.threadId;
  }
  const other = createRoot(document.createElement("div"));
  await expect(async () => act(async () => other.render(<Alone />))).rejects.toThrow("Wrap the component in <AmbientProvider url=…>.");
});
