// Opens a thread with a store of @ambient-runner/core, and prints what a person sees of it: the length of the text of each message.
import { openThread } from "../../../web/packages/core/dist/index.js";
import { until } from "./web_page.mjs";

const [url, id] = process.argv.slice(2);
const store = openThread(id, { url });
const { thread, connection } = await until(store, ({ thread }) => thread.info);
store.close();
const messages = thread.messages.map(({ role, content }) => [role, content.length]);
console.log(JSON.stringify({ messages, connection: connection.state, gaps: thread.gaps.length }));
