// The page and the server have one origin: Vite passes /copilotkit on. It keeps the `Host` header, which the server checks.
import { defineConfig } from "vite";

const target = process.env.AMBIENT_URL ?? "http://127.0.0.1:8000";
const proxy = { "/copilotkit": { target, configure: passOnBreaks } };

/** Break the page's connection when the server's breaks. Vite would leave it open, and the page would wait for the server. */
function passOnBreaks(proxy) {
  proxy.on("proxyRes", (upstream, _request, response) => upstream.on("close", () => upstream.complete || response.destroy()));
}

// Nothing from elsewhere is loaded, run or called. CopilotKit needs no more than this.
const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data: blob:",
  "font-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

export default defineConfig({
  server: { host: "127.0.0.1", proxy },
  preview: { host: "127.0.0.1", proxy, headers: { "Content-Security-Policy": policy } },
  build: {
    chunkSizeWarningLimit: 4000, // KB: CopilotKit's components with Markdown, formulas and diagrams
    rolldownOptions: { checks: { moduleLevelDirective: false } }, // "use client" has no meaning here
  },
});
