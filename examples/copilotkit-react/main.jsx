// The smallest CopilotKit page on an Ambient Runner server: chat, a frontend tool, an approval, the list of threads, thumbs. CopilotKit's
// Node runtime is not needed: `/copilotkit` of the server is the runtime.
// Start `ambient serve demo`, then here `npm install` and `npm run dev`.
import {
  CopilotChat, CopilotChatAssistantMessage, CopilotKitProvider, useAgent, useConfigureSuggestions, useDefaultRenderTool,
  useFrontendTool, useInterrupt, useThreads,
} from "@copilotkit/react-core/v2";
import "@copilotkit/react-core/v2/styles.css";
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { z } from "zod";
import "./style.css";

const RUNTIME = "/copilotkit";
const AGENT = "default"; // The server's first agent. Others have their names.

/** The thread is part of the address, so a reload shows it again. */
const currentThread = () => location.hash.slice(1) || crypto.randomUUID();

function App() {
  const [threadId, setThreadId] = useState(currentThread);
  useEffect(() => {
    history.replaceState(null, "", `#${threadId}`);
    const follow = () => setThreadId(currentThread());
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, [threadId]);
  const { isReady } = useAgent({ agentId: AGENT }); // CopilotKit loses a message that is sent before the runtime has answered.
  return (
    <main>
      <Threads threadId={threadId} onOpen={setThreadId} />
      {isReady && <Chat key={threadId} threadId={threadId} />}
    </main>
  );
}

function Threads({ threadId, onOpen }) {
  const { threads, renameThread, archiveThread, refetchThreads } = useThreads({ agentId: AGENT });
  const { agent } = useAgent({ agentId: AGENT });
  useEffect(() => agent.subscribe({ onRunFinalized: refetchThreads }).unsubscribe, [agent, refetchThreads]);
  const rename = (thread) => {
    const name = prompt("Name of the thread", thread.name);
    if (name) renameThread(thread.id, name);
  };
  return (
    <nav aria-label="Threads">
      <button className="new" onClick={() => onOpen(crypto.randomUUID())}>New thread</button>
      <ul>
        {threads.map((thread) => (
          <li key={thread.id} aria-current={thread.id === threadId}>
            <button onClick={() => onOpen(thread.id)}>{thread.name}</button>
            <button title="Rename" onClick={() => rename(thread)}>✎</button>
            <button title="Archive" onClick={() => archiveThread(thread.id)}>×</button>
          </li>
        ))}
      </ul>
    </nav>
  );
}

function Chat({ threadId }) {
  const [background, setBackground] = useState();
  useDefaultRenderTool();
  useConfigureSuggestions({ instructions: "Suggest what to ask next.", available: "always" });
  useFrontendTool({
    name: "change_background",
    description: "Change the background color of the page.",
    parameters: z.object({ background: z.string() }),
    handler: async ({ background }) => {
      setBackground(background);
      return `The background is ${background}.`;
    },
  });
  useInterrupt({
    render: ({ interrupt, resolve }) => (
      <div className="approval" role="group" aria-label="Approval">
        <p>{interrupt.message}</p>
        <button onClick={() => resolve({ approved: true })}>Approve</button>
        <button onClick={() => resolve({ approved: false })}>Decline</button>
      </div>
    ),
  });
  return (
    <section style={{ "--chosen": background }}>
      <CopilotChat agentId={AGENT} threadId={threadId} messageView={{ assistantMessage: Answer }} />
      <LastRun />
    </section>
  );
}

/** CopilotKit's message, with thumbs that are stored and shown again after a reload. */
function Answer(props) {
  const { agent } = useAgent({ agentId: AGENT });
  const [chosen, setChosen] = useState();
  const value = chosen ?? props.message.metadata?.ambient?.feedback;
  const rate = (value) => async ({ id }) => {
    const { ok } = await fetch(`${RUNTIME}/annotate`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({
        type: "feedback",
        threadId: agent.threadId,
        clientEventId: crypto.randomUUID(),
        payload: { messageId: id, value },
      }),
    });
    if (ok) setChosen(value);
  };
  return (
    <CopilotChatAssistantMessage
      {...props}
      onThumbsUp={rate("thumbs_up")}
      onThumbsDown={rate("thumbs_down")}
      thumbsUpButton={{ "aria-pressed": value === "thumbs_up" }}
      thumbsDownButton={{ "aria-pressed": value === "thumbs_down" }}
    />
  );
}

/** Tells how the last run ended if it did not end well: messages alone do not say it after a reload. */
function LastRun() {
  const { agent } = useAgent({ agentId: AGENT });
  const [status, setStatus] = useState();
  useEffect(() => {
    const { unsubscribe } = agent.subscribe({
      onRunStartedEvent: () => setStatus(undefined),
      onRunErrorEvent: ({ event }) => setStatus(event.code === "abort" ? "stopped" : "failed"),
      onCustomEvent: ({ event }) => event.name === "ambient:thread" && setStatus(event.value.status),
    });
    return unsubscribe;
  }, [agent]);
  const text = { failed: "The last answer failed.", stopped: "The last answer was stopped." }[status];
  return text && <p className="last-run" role="status">{text}</p>;
}

createRoot(document.getElementById("root")).render(
  <CopilotKitProvider runtimeUrl={RUNTIME} enableInspector={false}>
    <App />
  </CopilotKitProvider>,
);
