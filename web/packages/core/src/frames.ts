// Reads the frames of an event stream (SSE) from the body of a response.
import { createParser } from "eventsource-parser";
import { isObject, isString, type Frame, type ReadFrame } from "./wire.js";

/** Yield the frames of a response, each with its cursor if it has one. Comments such as `: ping` only call `onSign`. */
export async function* readFrames(response: Response, onSign?: () => void): AsyncGenerator<ReadFrame, void, void> {
  for await (const batch of readBatches(response, onSign)) yield* batch;
}

/** Yield the frames that came with each chunk of the body. A frame that is cut off at the end is left out. */
export async function* readBatches(
  response: Response,
  onSign?: () => void,
): AsyncGenerator<readonly ReadFrame[], void, void> {
  if (!response.body) return;
  let batch: ReadFrame[] = [];
  const parser = createParser({
    onEvent: ({ data, id }) => void batch.push(id ? { frame: parseFrame(data), cursor: id } : { frame: parseFrame(data) }),
  });
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      onSign?.();
      parser.feed(decoder.decode(value, { stream: true }));
      if (batch.length) {
        yield batch;
        batch = [];
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** Return the frame. A text that is not one becomes a frame of the type `UNREADABLE`, which reducers keep as raw. */
export function parseFrame(data: string): Frame {
  try {
    const value: unknown = JSON.parse(data);
    if (isObject(value) && isString(value.type)) return value as unknown as Frame;
  } catch {
    // Not JSON: see below.
  }
  return { type: "UNREADABLE", data };
}
