// A chat on @ambient-runner/react: messages, a frontend tool, approvals of all threads, the list of threads, thumbs.
// Start `ambient serve demo`, then `npm ci` and `npm run build` in web/, and here `npm install` and `npm run dev`.
import {
  AmbientProvider, useApprovals, useFrontendTool, useMessage, useMessageIds, useThread, useThreads, useThreadSelector,
  useThreadStore,
} from "@ambient-runner/react";
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import "./style.css";

const COLOR_SCHEMA = { type: "object", properties: { background: { type: "string" } }, required: ["background"] };

/** The thread is part of the address, so a reload shows it again. */
const currentThread = () => location.hash.slice(1);

function App() {
  const [id, setId] = useState(currentThread);
  useEffect(() => {
    const follow = () => setId(currentThread());
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return (
    <main>
      <Threads id={id} />
      {id ? <Chat key={id} id={id} /> : <NewThread />}
    </main>
  );
}

/** Threads that begin in this page: the server need not be asked for them. */
const begun = new Set();

function newThread() {
  const id = crypto.randomUUID();
  begun.add(id);
  location.hash = id;
}

function NewThread() {
  return <section><p className="hint">Choose a thread, or begin a <button onClick={newThread}>new one</button>.</p></section>;
}

function Threads({ id }) {
  const { threads, store } = useThreads();
  const approvals = useApprovals();
  const rename = ({ threadId, title }) => {
    const name = prompt("Name of the thread", title);
    if (name) store.rename(threadId, name);
  };
  return (
    <nav aria-label="Threads">
      <button className="new" onClick={newThread}>New thread</button>
      <ul>
        {threads.map((thread) => (
          <li key={thread.threadId} aria-current={thread.threadId === id}>
            <a href={`#${thread.threadId}`}>{thread.title || "Untitled"}</a>
            <small>{thread.status !== "finished" && thread.status}</small>
            <button title="Rename" onClick={() => rename(thread)}>✎</button>
            <button title="Archive" onClick={() => store.archive(thread.threadId)}>×</button>
          </li>
        ))}
      </ul>
      {approvals.map(({ thread, interrupt, answer }) => (
        <div key={interrupt.id} className="approval" role="group" aria-label="Approval">
          <p><a href={`#${thread.threadId}`}>{thread.title}</a>: {interrupt.message}</p>
          <button onClick={() => answer({ approved: true })}>Approve</button>
          <button onClick={() => answer({ approved: false })}>Decline</button>
        </div>
      ))}
    </nav>
  );
}

function Chat({ id }) {
  useThreadStore(id, { isNew: begun.has(id) });
  const [background, setBackground] = useState();
  useFrontendTool({
    name: "change_background",
    description: "Change the background color of the page.",
    parameters: COLOR_SCHEMA,
    handler: ({ background }) => {
      setBackground(background);
      return `The background is ${background}.`;
    },
  });
  return (
    <section style={{ "--chosen": background }}>
      <div className="messages">
        <ol aria-label="Messages">
          {useMessageIds(id).map((messageId) => <Message key={messageId} id={id} messageId={messageId} />)}
        </ol>
      </div>
      <Status id={id} />
      <Composer id={id} />
    </section>
  );
}

/** One message. A delta renders only the message that it belongs to. */
function Message({ id, messageId }) {
  const message = useMessage(id, messageId);
  const feedback = useThreadSelector(id, ({ thread }) => thread.feedback[messageId]);
  const store = useThreadStore(id);
  if (!message?.content && !message?.toolCalls) return null;
  return (
    <li className={message.role}>
      {message.toolCalls?.map((call) => <code key={call.id}>{call.function.name}({call.function.arguments})</code>)}
      {typeof message.content === "string" && <span className="text">{message.content}</span>}
      {message.role === "assistant" && message.content && (
        <span className="thumbs">
          <button aria-pressed={feedback === "thumbs_up"} onClick={() => store.feedback(messageId, "thumbs_up")}>Good</button>
          <button aria-pressed={feedback === "thumbs_down"} onClick={() => store.feedback(messageId, "thumbs_down")}>Bad</button>
        </span>
      )}
    </li>
  );
}

const ENDS = { failed: "The last answer failed.", stopped: "The last answer was stopped." };

/** What a person should know beside the messages: the connection, a refusal, how the last run ended. */
function Status({ id }) {
  const { thread, connection, sending, error } = useThread(id);
  const isUnknown = connection.state === "refused" && connection.status === 404;
  const isOffline = connection.state === "resuming" || (connection.state === "refused" && !isUnknown);
  const text = error?.message ?? (isOffline ? "Not connected." : sending.length ? "Sending…" : ENDS[thread.run?.status]);
  return text && <p role="status">{text}</p>;
}

function Composer({ id }) {
  const { thread, store } = useThread(id);
  const isRunning = thread.run?.status === "running";
  const submit = (event) => {
    event.preventDefault();
    const { text } = event.target.elements;
    store.send(text.value).catch(() => {}); // `error` of the snapshot has it.
    text.value = "";
  };
  return (
    <form onSubmit={submit}>
      <input name="text" aria-label="Message" placeholder="weather Lisbon, color teal, approve the deploy …" autoComplete="off" />
      {isRunning ? <button type="button" onClick={() => store.stop()}>Stop</button> : <button>Send</button>}
    </form>
  );
}

createRoot(document.getElementById("root")).render(
  <AmbientProvider url="/api">
    <App />
  </AmbientProvider>,
);
