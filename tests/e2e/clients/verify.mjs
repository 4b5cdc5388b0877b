// Asks both official clients whether streams are legal: each goes through HttpAgent's whole pipeline, from SSE bytes to messages.
//
// usage: node verify.mjs [package…] < streams.ndjson
// A line in is a JSON array of events; a line out, per stream and client, is {stream, client, ok, error}.

import { createInterface } from "node:readline";

const packages = process.argv.length > 2 ? process.argv.slice(2) : ["ag-ui-client-1.0", "ag-ui-client-0.0.59"];
const clients = await Promise.all(packages.map(async (name) => [name, (await import(name)).HttpAgent]));

// Clients warn about what they tolerate, such as a patch that does not apply: that is not what is asked here.
console.warn = console.error = console.debug = () => {};

/** What the client says about a stream: nothing when it accepts every event. */
async function objection(HttpAgent, events) {
  const body = events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("");
  globalThis.fetch = async () => new Response(body, { headers: { "Content-Type": "text/event-stream" } });
  const started = events.find((event) => event.type === "RUN_STARTED");
  const agent = new HttpAgent({ url: "http://agent.invalid/", threadId: started?.threadId });
  let seen = 0;
  try {
    await agent.runAgent({ runId: started?.runId }, { onEvent: () => void (seen += 1) });
  } catch (error) {
    return String(error?.message ?? error);
  }
  return seen === events.length ? null : `saw ${seen} of ${events.length} events`;
}

let stream = 0;
for await (const line of createInterface({ input: process.stdin })) {
  const events = JSON.parse(line);
  for (const [client, HttpAgent] of clients) {
    const error = await objection(HttpAgent, events);
    process.stdout.write(`${JSON.stringify({ stream, client, ok: error === null, error })}\n`);
  }
  stream += 1;
}
