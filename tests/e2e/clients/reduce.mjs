// Lets the official clients fold streams. One thread per line on stdin: {"runs": [{"add": [message], "events": [event]}]}.
// For each, one line on stdout: {"<client>": [{"messages", "state", "error"}, one per run]}. `add` is what the user's side puts into
// the client's list before it starts the run. The arguments name other versions of the client.
import { createInterface } from "node:readline";
import { from } from "rxjs";

const clients = {};
const versions = process.argv.slice(2);
for (const version of versions.length ? versions : ["1.0", "0.0.59"]) {
  const { AbstractAgent } = await import(`ag-ui-client-${version}`);
  clients[version] = class extends AbstractAgent {
    events = [];
    run() {
      return from(structuredClone(this.events));
    }
  };
}
console.warn = console.error = () => {};

async function fold(Agent, runs) {
  const agent = new Agent({ threadId: "thread" });
  const results = [];
  for (const { add, events } of runs) {
    agent.messages.push(...structuredClone(add));
    agent.events = events;
    const resume = (agent.pendingInterrupts ?? []).map(({ id }) => ({ interruptId: id, status: "resolved" }));
    let error = null;
    try {
      await agent.runAgent(resume.length ? { resume } : {});
    } catch (raised) {
      error = String(raised);
    }
    results.push({ messages: structuredClone(agent.messages), state: structuredClone(agent.state), error });
  }
  return results;
}

for await (const line of createInterface({ input: process.stdin })) {
  const { runs } = JSON.parse(line);
  const folded = {};
  for (const [version, Agent] of Object.entries(clients)) folded[version] = await fold(Agent, runs);
  process.stdout.write(JSON.stringify(folded) + "\n");
}
