// Deletes a thread that a store of @ambient-runner/core has open, sends a message, and prints what the store shows before and after.
import { openThread } from "../../../web/packages/core/dist/index.js";
import { until } from "./web_page.mjs";

const [url, id] = process.argv.slice(2);
const store = openThread(id, { url });
const textsOf = ({ thread }) => thread.messages.map(({ content }) => content);
await until(store, ({ thread }) => thread.info);
await fetch(`${url}/thread/${id}`, { method: "DELETE" });
const gone = await until(store, ({ connection }) => connection.state === "gone");
const { runId } = await store.send("say second");
const anew = await until(
  store,
  ({ thread, connection }) => connection.state === "live" && thread.runs.some((run) => run.runId === runId && run.status === "finished"),
);
store.close();
console.log(JSON.stringify({ gone: textsOf(gone), anew: textsOf(anew), runs: anew.thread.runs.length, error: anew.error ?? null }));
