// A page of examples/, built and served as its own configuration says: with its policy, and the server at the same origin.
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const EXAMPLES = join(import.meta.dirname, "../../examples");

/** Build and serve an example in front of a server. */
export async function servePage(example, server) {
  const root = join(EXAMPLES, example);
  const vite = await import(pathToFileURL(createRequire(join(root, "package.json")).resolve("vite")));
  process.env.AMBIENT_URL = server.url; // Read by the example's configuration.
  await vite.build({ root, logLevel: "error" });
  const preview = await vite.preview({ root, logLevel: "silent", preview: { port: 0 } });
  const { port } = preview.httpServer.address();
  return { url: `http://127.0.0.1:${port}`, close: () => preview.close() };
}
