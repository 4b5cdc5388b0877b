// The page and the server have one origin: Vite passes /api on. It keeps the `Host` header, which the server checks.
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

const target = process.env.AMBIENT_URL ?? "http://127.0.0.1:8000";
const proxy = { "/api": { target, rewrite: (path) => path.slice("/api".length), configure: passOnBreaks } };

/** Break the page's connection when the server's breaks. Vite would leave it open, and the page would wait for the server. */
function passOnBreaks(proxy) {
  proxy.on("proxyRes", (upstream, _request, response) => upstream.on("close", () => upstream.complete || response.destroy()));
}

// Nothing from elsewhere is loaded, run or called.
const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

export default defineConfig({
  plugins: [svelte()],
  server: { host: "127.0.0.1", proxy },
  preview: { host: "127.0.0.1", proxy, headers: { "Content-Security-Policy": policy } },
});
