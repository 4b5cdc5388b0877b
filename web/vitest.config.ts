import { defineConfig } from "vitest/config";

// The tests of every package run on its sources, not on what was built last.
export default defineConfig({
  resolve: {
    alias: {
      "@ambient-runner/core/client": new URL("packages/core/src/client.ts", import.meta.url).pathname,
      "@ambient-runner/core": new URL("packages/core/src/index.ts", import.meta.url).pathname,
      "@ambient-runner/react": new URL("packages/react/src/index.ts", import.meta.url).pathname,
      "@ambient-runner/svelte": new URL("packages/svelte/src/index.ts", import.meta.url).pathname,
    },
  },
  test: { include: ["packages/*/test/**/*.test.{ts,tsx}", "test/**/*.test.ts"], testTimeout: 10_000 },
});
