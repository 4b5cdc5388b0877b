// Folds frames from stdin and prints what they add up to, as one line of JSON for each thread. Build the packages first.
//
//   curl -sN …/threads/ID/events?until=idle | node tools/fold.mjs        an event stream (SSE)
//   node tools/fold.mjs < frames.ndjson                                  one frame per line
//   node tools/fold.mjs < threads.ndjson                                 one thread per line: {"frames": [frame, …]}
//
// Each line has `messages`, `state`, `calls`, `interrupts` and `run`, as `fold_frames` of `ambient_runner.testing` returns them, and
// `activities`, `spans`, `pendingCalls`, `failedPatches` and `raw`. `--reduce` uses `reduce` frame by frame instead of `fold`.
import { text } from "node:stream/consumers";
import { activities, callsWithResults, EMPTY_THREAD, fold, readFrames, reduce, spans } from "../packages/core/dist/index.js";

const oneByOne = process.argv.includes("--reduce");

function describe(frames) {
  const thread = oneByOne ? frames.reduce(reduce, EMPTY_THREAD) : fold(frames);
  const { messages, state, interrupts, pendingCalls, failedPatches, raw } = thread;
  const run = thread.run ? { runId: thread.run.runId, status: thread.run.status } : null;
  const calls = callsWithResults(messages).map(({ isError, ...call }) => call);
  return {
    ...{ messages, state, calls, interrupts, run },
    ...{ activities: activities(frames), spans: spans(frames), pendingCalls, failedPatches, raw },
  };
}

async function readThreads(input) {
  if (!input.trimStart().startsWith("{")) {
    const read = [];
    for await (const { frame } of readFrames(new Response(input))) read.push(frame);
    return [read];
  }
  const lines = input.split("\n").filter((line) => line.trim()).map((line) => JSON.parse(line));
  return lines.every((line) => Array.isArray(line.frames)) ? lines.map((line) => line.frames) : [lines];
}

for (const frames of await readThreads(await text(process.stdin))) process.stdout.write(JSON.stringify(describe(frames)) + "\n");
