// Measures the fold of 100,000 frames, with and without reading them from an event stream. `npm run bench` builds the packages first.
// `--json` prints an object for each measurement instead of a sentence.
import { EMPTY_THREAD, fold, readFrames, reduce } from "../packages/core/dist/index.js";

const FRAMES = 100_000;
const PER_RUN = 1_000;
const LIMITS = { fold: 300, "read from SSE and fold": 800 }; // milliseconds
const isJson = process.argv.includes("--json");

/** Return runs of text in small deltas, tool calls and state patches, as agents send them. */
function makeFrames() {
  const frames = [];
  for (let run = 0; frames.length < FRAMES; run++) {
    const runId = `run-${run}`;
    const [threadId, messageId, toolCallId] = ["thread", `message-${run}`, `call-${run}`];
    const user = { role: "user", id: `user-${run}`, content: "And then?" };
    frames.push({ type: "RUN_STARTED", timestamp: run, threadId, runId, input: { threadId, runId, messages: [user], tools: [], context: [] } });
    frames.push({ type: "STATE_SNAPSHOT", snapshot: { count: 0, items: [] } });
    frames.push({ type: "TOOL_CALL_START", toolCallId, toolCallName: "lookup", parentMessageId: messageId });
    for (let at = 0; at < 96; at++) frames.push({ type: "TOOL_CALL_ARGS", toolCallId, delta: "word " });
    frames.push({ type: "TOOL_CALL_END", toolCallId });
    frames.push({ type: "TOOL_CALL_RESULT", messageId: `result-${run}`, toolCallId, content: "found", role: "tool" });
    for (let at = 0; at < 96; at++) frames.push({ type: "STATE_DELTA", delta: [{ op: "replace", path: "/count", value: at }] });
    frames.push({ type: "TEXT_MESSAGE_START", messageId: `answer-${run}`, role: "assistant" });
    while (frames.length % PER_RUN < PER_RUN - 2) frames.push({ type: "TEXT_MESSAGE_CONTENT", messageId: `answer-${run}`, delta: " word" });
    frames.push({ type: "TEXT_MESSAGE_END", messageId: `answer-${run}` });
    frames.push({ type: "RUN_FINISHED", timestamp: run, threadId, runId, outcome: { type: "success" } });
  }
  return frames;
}

const encoder = new TextEncoder();

/** Return the frames as a body of 16 KiB chunks. */
function makeResponse(frames) {
  const bytes = encoder.encode(frames.map((frame, at) => `id: epoch.${at}\ndata: ${JSON.stringify(frame)}\n\n`).join(""));
  let at = 0;
  const pull = (controller) => {
    if (at >= bytes.length) return controller.close();
    controller.enqueue(bytes.subarray(at, (at += 16_384)));
  };
  return new Response(new ReadableStream({ pull }));
}

async function measure(name, work) {
  let best = Infinity;
  for (let round = 0; round < 5; round++) {
    const input = work.prepare();
    const begin = performance.now();
    await work.run(input);
    best = Math.min(best, performance.now() - begin);
  }
  const limit = LIMITS[name];
  const sentence = `${name}: ${best.toFixed(0)} ms for ${FRAMES.toLocaleString("en")} frames${limit ? ` (at most ${limit} ms)` : ""}`;
  console.log(isJson ? JSON.stringify({ name, frames: FRAMES, ms: best, limit }) : sentence);
  return best <= (limit ?? Infinity);
}

const frames = makeFrames();
const results = [
  await measure("fold", { prepare: () => frames, run: (input) => fold(input) }),
  await measure("reduce one by one", { prepare: () => frames, run: (input) => input.reduce(reduce, EMPTY_THREAD) }),
  await measure("read from SSE and fold", {
    prepare: () => makeResponse(frames),
    run: async (response) => {
      const read = [];
      for await (const { frame } of readFrames(response)) read.push(frame);
      fold(read);
    },
  }),
];
process.exitCode = results.every(Boolean) ? 0 : 1;
