// What a page downloads of each package: bundled, minified and compressed. What another package has, and the frameworks, are not counted:
// `core` includes its parser, `react` and `svelte` include `@ambient-runner/core/client`, which only they use.
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "vite";
import { expect, test } from "vitest";

const KB = 1024;
const resolve = (path: string): string => fileURLToPath(new URL(`../packages/${path}`, import.meta.url));
const CLIENT = ["core/src/client.ts", "core/src/approvals.ts"].map(resolve);

/** Return true for what a framework's package does not bring itself. */
const isForeign = (id: string, importer: string | undefined): boolean => {
  if (id === "react" || id === "svelte/store" || id === "@ambient-runner/core") return true;
  return importer !== undefined && CLIENT.includes(importer) && !/approvals\.[jt]s$/.test(id);
};

async function gzipSize(name: string): Promise<number> {
  const output = await build({
    configFile: false,
    logLevel: "silent",
    resolve: { alias: { "@ambient-runner/core/client": CLIENT[0] as string } },
    build: {
      write: false,
      target: "es2022",
      modulePreload: false,
      rollupOptions: {
        input: resolve(`${name}/src/index.ts`),
        preserveEntrySignatures: "strict",
        external: name === "core" ? [] : isForeign,
      },
    },
  });
  const [bundle] = Array.isArray(output) ? output : [output];
  if (!bundle || !("output" in bundle)) throw new Error("vite has built nothing");
  return gzipSync(bundle.output.map((chunk) => ("code" in chunk ? chunk.code : "")).join(""), { level: 9 }).length;
}

test.each([
  ["core", 12],
  ["react", 3],
  ["svelte", 2],
])("%s has at most %d KB", async (name, limit) => {
  const size = await gzipSize(name);
  console.log(`@ambient-runner/${name}: ${(size / KB).toFixed(2)} KB gzip (at most ${limit} KB)`);
  expect(size).toBeGreaterThan(KB / 2);
  expect(size).toBeLessThanOrEqual(limit * KB);
});
