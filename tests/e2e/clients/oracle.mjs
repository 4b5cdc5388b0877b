// Runs scenarios through one official @ag-ui/client and says what that client ended with.
//
// usage: node oracle.mjs <package> < job.json > results.json
// A job is {url, query?, scenarios: [{name, thread, tools?, turns: [...]} | {name, replay: thread, resume?: true}]}.
// A turn is {say} | {answer: {toolName: content}} | {resume: "resolved" | "cancelled", payload?}, with {stop: true} to stop the run at its first delta.
// Nothing is judged here: the Python test compares.

const [, , packageName] = process.argv;
const client = await import(packageName);
const { AbstractAgent, HttpAgent, runHttpRequest, transformHttpEventStream } = client;
const protocol = packageName.endsWith("1.0") ? "1.0" : "0";

const warnings = [];
console.warn = (...words) => warnings.push(words.map(String).join(" "));
console.error = console.warn;

const plain = (value) => JSON.parse(JSON.stringify(value ?? null));

async function getJson(url) {
  const response = await fetch(url);
  return { status: response.status, body: await response.json() };
}

/** One runAgent call: how it settled, what it saw, and what the messages were just before each snapshot put them right. */
async function attempt(agent, parameters, onEvent = async () => {}) {
  const seen = { resolved: false, error: null, events: [], beforeSnapshots: [] };
  const subscriber = {
    onEvent: async ({ event }) => {
      seen.events.push(plain(event));
      await onEvent(event);
    },
    onMessagesSnapshotEvent: ({ messages }) => {
      seen.beforeSnapshots.push(plain(messages));
    },
  };
  try {
    await agent.runAgent(parameters, subscriber);
    seen.resolved = true;
  } catch (error) {
    seen.error = String(error?.stack ?? error);
  }
  return { ...seen, messages: plain(agent.messages), state: plain(agent.state), interrupts: plain(agent.pendingInterrupts) };
}

function answerCalls(agent, answers) {
  const answered = new Set(agent.messages.filter((message) => message.role === "tool").map((message) => message.toolCallId));
  const calls = agent.messages.flatMap((message) => message.toolCalls ?? []).filter((call) => !answered.has(call.id));
  for (const call of calls) {
    const content = answers[call.function.name];
    agent.addMessage({ id: `answer-${call.id}`, role: "tool", toolCallId: call.id, content });
  }
}

function prepare(agent, turn, index) {
  if (turn.say !== undefined) agent.addMessage({ id: `${agent.threadId}-user-${index}`, role: "user", content: turn.say });
  if (turn.answer) answerCalls(agent, turn.answer);
  if (!turn.resume) return {};
  const entry = ({ id }) => ({ interruptId: id, status: turn.resume, ...(turn.payload === undefined ? {} : { payload: turn.payload }) });
  return { resume: (agent.pendingInterrupts ?? []).map(entry) };
}

/** Stops the run through the door when its first text delta arrives. */
function stopper(url, threadId) {
  let asked = false;
  return async (event) => {
    if (asked || event.type !== "TEXT_MESSAGE_CONTENT") return;
    asked = true;
    await fetch(`${url}/interrupt`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ threadId }),
    });
  };
}

async function talk(url, query, scenario) {
  const agent = new HttpAgent({ url: `${url}/${query}`, threadId: scenario.thread });
  const turns = [];
  for (const [index, turn] of scenario.turns.entries()) {
    const parameters = { ...prepare(agent, turn, index), tools: scenario.tools ?? [] };
    const result = await attempt(agent, parameters, turn.stop ? stopper(url, scenario.thread) : undefined);
    const id = encodeURIComponent(scenario.thread);
    turns.push({
      ...result,
      messageSnapshot: await getJson(`${url}/message_snapshot/${id}`),
      stateSnapshot: await getJson(`${url}/state_snapshot/${id}`),
    });
  }
  return { turns };
}

/** An agent whose run is a stored stream, cut or resumed as the scenario says, through the official pipeline. */
class ReplayAgent extends AbstractAgent {
  constructor(threadId, open) {
    super({ threadId });
    this.open = open;
  }
  run() {
    return transformHttpEventStream(runHttpRequest(this.open));
  }
}

const eventsUrl = (url, thread) => `${url}/threads/${encodeURIComponent(thread)}/events?until=idle&protocol=${protocol}&strict=1`;

const asResponse = (frames) => new Response(frames.join(""), { headers: { "content-type": "text/event-stream" } });

async function framesOf(url, headers = {}) {
  const response = await fetch(url, { headers });
  const text = await response.text();
  if (!response.ok) throw new Error(`HTTP ${response.status}: ${text}`);
  return text.split("\n\n").slice(0, -1).map((frame) => `${frame}\n\n`);
}

// Not a regular expression: for those U+2028 ends a line.
const fieldOf = (frame, name) => frame.split("\n").find((line) => line.startsWith(name))?.slice(name.length) ?? "";
const idOf = (frame) => fieldOf(frame, "id: ");
const eventOf = (frame) => JSON.parse(fieldOf(frame, "data: "));

/** Reads up to one cursor, loses the connection there, and goes on after it: one client object all the time. */
async function resumed(url, thread, frames, cut) {
  const agent = new ReplayAgent(thread, async () => asResponse(frames.slice(0, cut + 1)));
  const first = await attempt(agent, {});
  const cursor = idOf(frames[cut]);
  agent.open = async () => fetch(eventsUrl(url, thread), { headers: { "Last-Event-ID": cursor } });
  const second = await attempt(agent, {});
  return { cursor, cutAfter: eventOf(frames[cut]).type, first, second };
}

async function replay(url, scenario) {
  const thread = scenario.replay;
  const whole = await attempt(new ReplayAgent(thread, async () => fetch(eventsUrl(url, thread))), {});
  const result = {
    whole,
    messageSnapshot: await getJson(`${url}/message_snapshot/${encodeURIComponent(thread)}`),
    stateSnapshot: await getJson(`${url}/state_snapshot/${encodeURIComponent(thread)}`),
    resumes: [],
  };
  if (!scenario.resume) return result;
  const frames = await framesOf(eventsUrl(url, thread));
  for (const [index, frame] of frames.entries()) {
    if (idOf(frame)) result.resumes.push(await resumed(url, thread, frames, index));
  }
  return result;
}

let input = "";
for await (const piece of process.stdin) input += piece;
const { url, query = "", scenarios } = JSON.parse(input);
const results = {};
for (const scenario of scenarios) {
  results[scenario.name] = await (scenario.replay ? replay(url, scenario) : talk(url, query, scenario));
}
process.stdout.write(JSON.stringify({ results, warnings }));
