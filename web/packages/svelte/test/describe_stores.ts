import { get } from "svelte/store";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { createAmbient, select, selectMessage, type Ambient } from "../src/index.js";
import { FakePage, FakeServer, json, settle } from "../../core/test/fake_server.js";
import { call, connectFrames, delta, finished, started, textStart, threadInfo, user } from "../../core/test/frames_of.js";

export function describeStores(major: number, version: string): void {
  describe(`the stores of Svelte ${major}`, () => {
    let server: FakeServer;
    let ambient: Ambient;
    const leave: (() => void)[] = [];

    beforeEach(() => {
      vi.useFakeTimers();
      server = new FakeServer();
      ambient = createAmbient({ url: "http://server", fetch: server.fetch, page: new FakePage() });
    });

    afterEach(async () => {
      for (const unsubscribe of leave.splice(0)) unsubscribe();
      await settle(2_000);
      expect(server.openStreams).toBe(0);
      vi.useRealTimers();
    });

    /** Subscribe, and return the values that the subscriber gets. */
    function watch<T>(store: { subscribe(run: (value: T) => void): () => void }): T[] {
      const values: T[] = [];
      leave.push(store.subscribe((value) => values.push(value)));
      return values;
    }

    async function send(cursor: string, ...frames: ReturnType<typeof connectFrames>): Promise<void> {
      server.stream.send(...frames.slice(0, -1), [cursor, frames.at(-1) as never]);
      await settle(50);
    }

    test("are those of this version", () => expect(version.split(".")[0]).toBe(String(major)));

    test("call a subscriber at once, and with every change", async () => {
      const thread = ambient.thread("t");
      const values = watch(thread);
      expect(values.map(({ connection }) => connection.state)).toStrictEqual(["connecting"]);
      await settle(50);
      await send("e.1", ...connectFrames([user("u")]));
      expect(values.at(-1)?.thread.messages).toStrictEqual([user("u")]);
      expect([thread.id, thread.getSnapshot().thread.messages.length, get(thread).connection.state]).toStrictEqual(["t", 1, "live"]);
    });

    test("are connected while they have subscribers, with one stream for all", async () => {
      const thread = ambient.thread("t");
      expect(server.requests).toHaveLength(0);
      const first = thread.subscribe(() => {});
      const second = ambient.thread("t").subscribe(() => {});
      await settle(50);
      first();
      await settle(2_000);
      expect(server.openStreams).toBe(1);
      second();
      await settle(2_000);
      expect([server.openStreams, server.streams.length]).toStrictEqual([0, 1]);
    });

    test("have the methods of the thread", async () => {
      const thread = ambient.thread("t");
      watch(thread);
      await settle(50);
      const { send: sendMessage } = thread;
      await sendMessage("hello");
      expect(server.posts()[0]?.body.messages).toMatchObject([{ role: "user", content: "hello" }]);
    });

    test("select parts: a delta calls only the subscribers of its message", async () => {
      const thread = ambient.thread("t");
      const messages = [watch(selectMessage(thread, "u")), watch(selectMessage(thread, "a"))];
      const titles = watch(select(thread, (snapshot) => snapshot.thread.info?.title));
      await settle(50);
      await send("e.1", ...connectFrames([user("u")], threadInfo({ title: "T" })), started("r"), textStart("a"));
      await send("e.2", delta("a", "x"));
      await send("e.3", delta("a", "y"));
      expect(messages.map((values) => values.map((message) => message?.content))).toStrictEqual([
        [undefined, "says u"],
        [undefined, "", "x", "xy"],
      ]);
      expect(titles).toStrictEqual([undefined, "T"]);
    });

    test("list threads, questions and agents", async () => {
      const thread = { ...{ threadId: "a", agent: "demo", title: "T", archived: false, status: "waiting" }, createdAt: 1, updatedAt: 1, cursor: "c" };
      server.handler = ({ method, path }) => {
        if (method !== "GET") return undefined;
        return json(path.includes("capabilities") ? { agents: { demo: {} } } : { threads: [thread], next: null, cursor: "c" });
      };
      const threads = watch(ambient.threads());
      const inbox = ambient.approvals();
      const approvals = watch(inbox);
      const agents = watch(ambient.agents());
      await settle(100);
      server.stream.send(...connectFrames([], threadInfo(), { interrupts: [{ id: "i", reason: "confirmation" }] }));
      server.stream.end();
      await settle(100);
      expect(threads.at(-1)?.threads).toStrictEqual([thread]);
      expect(approvals.at(-1)).toStrictEqual([{ thread, interrupt: { id: "i", reason: "confirmation" } }]);
      expect(agents).toStrictEqual([
        { agents: [], isLoaded: false, error: undefined },
        { agents: [{ name: "demo", capabilities: {} }], isLoaded: true, error: undefined },
      ]);
      await inbox.answer(approvals.at(-1)?.[0] as never, { status: "cancelled" });
      expect(server.posts()[0]?.body.resume).toStrictEqual([{ interruptId: "i", status: "cancelled" }]);
    });

    test("run frontend tools until they are taken back", async () => {
      const remove = ambient.frontendTool({ name: "pick", description: "Picks.", handler: () => "red" });
      const thread = ambient.thread("t");
      watch(thread);
      await settle(50);
      await send("e.1", ...connectFrames([]));
      const { runId } = await thread.send("hello");
      await send("e.2", started(runId), ...call("c", "pick"), finished(runId, { type: "success", pendingToolCallIds: ["c"] }));
      expect(server.posts()[1]?.body.messages).toMatchObject([{ role: "tool", toolCallId: "c", content: "red" }]);
      remove();
      await thread.send("again");
      expect(server.posts()[2]?.body.tools).toStrictEqual([]);
    });
  });
}
