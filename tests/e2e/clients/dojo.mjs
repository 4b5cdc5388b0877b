// Runs conversations against agents as the dojo's pages do, through official @ag-ui/clients, and reports what the pages saw.
//
// usage: node dojo.mjs < job.json > reports.json
// A job is {url, clients: {package: query}, conversations: {agent: {tools, context, state, turns}}}. A turn is {say?, legacy?, state?, answer?: {toolName: content}, choose?}:
// the page posts a message (`legacy` instead for a client that does not know its parts), changes the state, answers the open calls of its tools, or chooses an
// answer to what an interrupt asks. Nothing is judged here: the Python test compares.

import untruncate from "untruncate-json";

const LANES = 4;
// The clients offer the arguments so far as `partialToolCallArgs`, which needs a bundler: Node wraps the default export of this package once more.
const complete = (json) => (json ? untruncate.default(json) : "{}");
console.warn = console.error = () => {};

const plain = (value) => JSON.parse(JSON.stringify(value ?? null));
const parsed = (value) => {
  try {
    return typeof value === "string" ? JSON.parse(value) : value;
  } catch {
    return value;
  }
};
const asObject = (value) => (typeof (value = parsed(value)) === "object" && value ? value : {});

/** Shows the arguments of calls as state while they are streamed, where the agent asks for it, as the page's CopilotKit component does. */
function predicting(agent, mappings) {
  return {
    onCustomEvent: ({ event }) => {
      if (event.name === "PredictState") mappings.splice(0, mappings.length, ...event.value);
    },
    onToolCallArgsEvent: ({ toolCallName, toolCallBuffer }) => {
      const known = asObject(complete(toolCallBuffer));
      const found = mappings.filter(({ tool, tool_argument: name }) => tool === toolCallName && name in known);
      const predicted = Object.fromEntries(found.map((mapping) => [mapping.state_key, known[mapping.tool_argument]]));
      if (found.length) agent.setState({ ...agent.state, ...predicted });
    },
  };
}

/**
 * What the page's interrupt hook makes of a run: the interrupts of its outcome come first, LangGraph's own event is for runs without them. There are no pages
 * for clients from 1.0 on yet: one would find the graph's value in the interrupt.
 */
function questionOf(events, isModern) {
  const standard = events.at(-1)?.outcome?.interrupts;
  const legacy = events.findLast(({ type, name }) => type === "CUSTOM" && name === "on_interrupt");
  if (standard?.length) return { interrupts: standard, value: isModern ? standard[0].metadata?.value : standard[0] };
  return legacy ? { value: parsed(legacy.value) } : null;
}

function answered(question, payload) {
  if (!question.interrupts) return { forwardedProps: { command: { resume: payload, interruptEvent: question.value } } };
  return { resume: question.interrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload })) };
}

function answerCalls(agent, answers) {
  const done = new Set(agent.messages.filter(({ role }) => role === "tool").map(({ toolCallId }) => toolCallId));
  for (const call of agent.messages.flatMap(({ toolCalls }) => toolCalls ?? [])) {
    const content = answers[call.function.name];
    if (!done.has(call.id) && content !== undefined) agent.addMessage({ id: `answer-${call.id}`, role: "tool", toolCallId: call.id, content });
  }
}

function prepare(agent, turn, index, question, version) {
  if (turn.state) agent.setState(turn.state);
  if (question) return answered(question, turn.choose);
  if (turn.answer) answerCalls(agent, turn.answer);
  const content = version === "0.0.42" ? (turn.legacy ?? turn.say) : turn.say;
  if (content !== undefined) agent.addMessage({ id: `${agent.threadId}-${index}`, role: "user", content });
  return {};
}

/** One run: how it ended, and what the page had meanwhile. */
async function run(agent, parameters) {
  const events = [];
  const states = [plain(agent.state)];
  const look = () => {
    const state = plain(agent.state);
    if (JSON.stringify(state) !== JSON.stringify(states.at(-1))) states.push(state);
  };
  const onEvent = ({ event }) => {
    look();
    events.push(plain(event));
  };
  let error = null;
  try {
    await agent.runAgent(parameters, { ...predicting(agent, []), onEvent });
  } catch (reason) {
    error = String(reason?.message ?? reason);
  }
  look();
  return { error, events, states };
}

async function converse(Client, version, url, thread, conversation) {
  const agent = new Client({ url, threadId: thread, initialState: conversation.state });
  const turns = [];
  let question = null;
  for (const [index, turn] of conversation.turns.entries()) {
    const more = prepare(agent, turn, index, question, version);
    const before = agent.messages.length;
    const { error, events, states } = await run(agent, { tools: conversation.tools, context: conversation.context, ...more });
    question = questionOf(events, version === "1.0");
    const textDeltas = events.filter(({ type }) => type === "TEXT_MESSAGE_CONTENT").length;
    const ending = events.at(-1)?.type + (events.at(-1)?.code ? ` ${events.at(-1).code}` : "");
    turns.push({ before, error, ending, states, textDeltas, messages: plain(agent.messages), question: question?.value ?? null, types: events.map(({ type }) => type) });
    if (error) break;
  }
  return { turns };
}

let input = "";
for await (const piece of process.stdin) input += piece;
const { url, prefix, clients, conversations } = JSON.parse(input);
const reports = {};
const jobs = [];
for (const [name, query] of Object.entries(clients)) {
  const { HttpAgent } = await import(name);
  reports[name] = {};
  for (const [agent, conversation] of Object.entries(conversations)) {
    jobs.push(async () => {
      const version = name.replace("ag-ui-client-", "");
      reports[name][agent] = await converse(HttpAgent, version, `${url}/agents/${agent}${query}`, `${prefix}-${version}-${agent}`, conversation);
    });
  }
}
const lane = async () => {
  for (let job = jobs.shift(); job; job = jobs.shift()) await job();
};
await Promise.all(Array.from({ length: LANES }, lane));
process.stdout.write(JSON.stringify(reports));
