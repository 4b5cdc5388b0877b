// A thread whose connection is cut at random, within entries, frames and letters, is in the end the thread that was never cut.
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { fold, openThread, type Frame, type Message } from "../src/index.js";
import { FakePage, FakeServer, settle, sse, type OpenStream } from "./fake_server.js";
import { call, connectFrames, delta, finished, result, started, textEnd, textStart, threadInfo, user } from "./frames_of.js";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

function makeRandom(seed: number): () => number {
  return () => {
    seed = (seed * 1664525 + 1013904223) >>> 0;
    return seed / 2 ** 32;
  };
}

/** Entries of one run: some have several frames, of which only the last carries the cursor. */
function makeRun(run: number): Frame[][] {
  const [answer, tool] = [`a${run}`, `c${run}`];
  const [callStart, callArguments, callEnd] = call(tool, "lookup", '{"q":"é"}', answer) as [Frame, Frame, Frame];
  return [
    [started(`r${run}`, user(`u${run}`))],
    [{ type: "STATE_SNAPSHOT", snapshot: { run, list: [] } }],
    [textStart(answer)],
    ...["one ", "zwei ", "três ", "😀"].map((word) => [delta(answer, word)]),
    [callStart],
    [callArguments, callEnd], // As summaries for the audience `safe` are sent.
    [{ type: "STATE_DELTA", delta: [{ op: "add", path: "/list/-", value: run }] }],
    [result(tool), { type: "STATE_DELTA", delta: [{ op: "add", path: "/list/-", value: "done" }] }],
    [delta(answer, " end")],
    [textEnd(answer)],
    [finished(`r${run}`)],
  ];
}

/** A ledger that grows, and serves streams as the server does: by snapshot, and by cursor with what is open opened again. */
class FakeLedger {
  readonly entries: Frame[][] = [];

  /** Return the frames of a new stream up to now, as text. */
  open(path: string): string {
    const after = /after=e\.(\d+)/.exec(path);
    if (!after) return this.connect();
    const seq = Number(after[1]);
    return this.reopen(seq).map((frame) => sse(frame)).join("") + this.render(seq);
  }

  render(after: number): string {
    return this.entries.slice(after).map((frames, at) => this.renderEntry(frames, after + at + 1)).join("");
  }

  private renderEntry(frames: Frame[], seq: number): string {
    return frames.map((frame, at) => sse(frame, at === frames.length - 1 ? `e.${seq}` : undefined)).join("");
  }

  private runStart(until: number): number {
    const starts = this.entries.slice(0, until).findLastIndex(([frame]) => frame?.type === "RUN_STARTED");
    const ended = this.entries.slice(Math.max(starts, 0), until).some(([frame]) => frame?.type === "RUN_FINISHED");
    return starts < 0 || ended ? -1 : starts;
  }

  private connect(): string {
    const begin = this.runStart(this.entries.length);
    const seq = begin < 0 ? this.entries.length : begin;
    const before = fold(this.entries.slice(0, seq).flat());
    const frames = connectFrames(before.messages as Message[], threadInfo(), { state: before.state });
    const last = frames.pop() as Frame;
    return frames.map((frame) => sse(frame)).join("") + sse(last, `e.${seq}`) + this.render(seq);
  }

  private reopen(seq: number): Frame[] {
    const begin = this.runStart(seq);
    if (begin < 0) return [];
    const open: Frame[] = [];
    for (const frame of this.entries.slice(begin, seq).flat()) {
      if (["RUN_STARTED", "TEXT_MESSAGE_START", "TOOL_CALL_START"].includes(frame.type)) open.push(frame);
      if (frame.type === "TEXT_MESSAGE_END") open.splice(open.findIndex((each) => each.messageId === frame.messageId), 1);
      if (frame.type === "TOOL_CALL_END") open.splice(open.findIndex((each) => each.toolCallId === frame.toolCallId), 1);
    }
    return open;
  }
}

test.each([1, 2])("1,000 random cuts, some while hidden, lose nothing and double nothing (seed %d)", async (seed) => {
  const random = makeRandom(seed);
  const ledger = new FakeLedger();
  const script = Array.from({ length: 40 }, (_, run) => makeRun(run)).flat();
  const server = new FakeServer();
  const page = new FakePage();
  const store = openThread("t", { url: "http://server", fetch: server.fetch, page });
  const pending = new Map<OpenStream, Uint8Array>();
  const encoder = new TextEncoder();
  const append = (stream: OpenStream, text: string): void =>
    void pending.set(stream, Buffer.concat([pending.get(stream) ?? new Uint8Array(), encoder.encode(text)]));

  let cuts = 0;
  while (ledger.entries.length < script.length || cuts < 1_000) {
    const { stream } = server.streams.length ? server : { stream: undefined };
    if (stream?.isOpen && !pending.has(stream)) append(stream, ledger.open(stream.request.path));
    if (ledger.entries.length < script.length && random() < 0.3) {
      const seq = ledger.entries.push(script[ledger.entries.length] as Frame[]) - 1;
      if (stream?.isOpen) append(stream, ledger.render(seq));
    }
    const bytes = stream && pending.get(stream);
    if (stream?.isOpen && bytes?.length) {
      const size = Math.ceil(random() * Math.min(bytes.length, 600));
      stream.write(bytes.slice(0, size));
      pending.set(stream, bytes.slice(size));
    }
    await settle(1);
    if (stream?.isOpen && random() < 0.3) {
      cuts++;
      if (random() < 0.1) {
        page.isShown = false;
        await settle(11_000);
        expect(server.openStreams).toBe(0);
        page.isShown = true;
      } else if (random() < 0.5) stream.end();
      else stream.fail();
    }
    if (!stream?.isOpen) await settle(500);
    expect(server.openStreams).toBeLessThanOrEqual(1);
  }
  while (!server.stream.isOpen) await settle(500);
  if (!pending.has(server.stream)) append(server.stream, ledger.open(server.stream.request.path));
  server.stream.write(pending.get(server.stream) as Uint8Array);
  await settle(100);

  const { messages, state, run, runs, failedPatches, rawCount } = fold(script.flat());
  const { thread } = store.getSnapshot();
  expect([thread.messages, thread.state, thread.run, thread.runs.at(-1)]).toStrictEqual([messages, state, run, runs.at(-1)]);
  expect([failedPatches, rawCount, thread.failedPatches, thread.rawCount]).toStrictEqual([0, 0, 0, 0]);
  expect(new Set(thread.runs.map(({ runId }) => runId)).size).toBe(thread.runs.length);
  store.close();
});
