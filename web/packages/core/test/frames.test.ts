import { expect, test } from "vitest";
import { readFrames, type ReadFrame } from "../src/index.js";

/** Return a response whose body comes in these chunks. */
function respond(...chunks: readonly Uint8Array[]): Response {
  return new Response(
    new ReadableStream({
      start(controller) {
        for (const chunk of chunks) controller.enqueue(chunk);
        controller.close();
      },
    }),
  );
}

async function readAll(response: Response, onSign?: () => void): Promise<ReadFrame[]> {
  const frames: ReadFrame[] = [];
  for await (const frame of readFrames(response, onSign)) frames.push(frame);
  return frames;
}

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const STREAM = 'id: e.1\ndata: {"type":"A","text":"é😀"}\n\n: ping\n\ndata: {"type":"B"}\n\nid: e.2\nevent: x\ndata: {"type":"C"}\n\n';
const FRAMES = [
  { frame: { type: "A", text: "é😀" }, cursor: "e.1" },
  { frame: { type: "B" } },
  { frame: { type: "C" }, cursor: "e.2" },
];

test("frames come with their cursors; those without an id have none", async () => {
  expect(await readAll(respond(bytes(STREAM)))).toStrictEqual(FRAMES);
});

test("a stream may be cut into chunks anywhere, also within a letter", async () => {
  const all = bytes(STREAM);
  for (let cut = 1; cut < all.length; cut++)
    expect(await readAll(respond(all.slice(0, cut), all.slice(cut)))).toStrictEqual(FRAMES);
  expect(await readAll(respond(...[...all].map((byte) => new Uint8Array([byte]))))).toStrictEqual(FRAMES);
});

test("every chunk is a sign of life, also a comment alone", async () => {
  let signs = 0;
  expect(await readAll(respond(bytes(": ping\n\n"), bytes(": waiting\n\n")), () => signs++)).toStrictEqual([]);
  expect(signs).toBe(2);
});

test("a frame that is cut off at the end is left out", async () => {
  expect(await readAll(respond(bytes('data: {"type":"A"}\n\nid: e.2\ndata: {"type":"B"}\n')))).toStrictEqual([{ frame: { type: "A" } }]);
});

test("a response without a body has no frames", async () => {
  expect(await readAll(new Response(null, { status: 204 }))).toStrictEqual([]);
});

test("leaving the loop cancels the body", async () => {
  let isCancelled = false;
  const body = new ReadableStream({
    start: (controller) => controller.enqueue(bytes(STREAM)),
    cancel: () => void (isCancelled = true),
  });
  for await (const _ of readFrames(new Response(body))) break;
  expect(isCancelled).toBe(true);
});
