import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

const read = (path: string): string => readFileSync(new URL(`../${path}`, import.meta.url), "utf8");
const readJson = (path: string): any => JSON.parse(read(path));
const PACKAGES = ["core", "react", "svelte"];

test("package-lock.json has a hash and no download address for every package", () => {
  const entries = Object.entries<any>(readJson("package-lock.json").packages).filter(([path]) => path.includes("node_modules/"));
  const installed = entries.filter(([, entry]) => !entry.link);
  expect(installed.length).toBeGreaterThan(50);
  expect(installed.filter(([, entry]) => !/^sha512-/.test(entry.integrity)).map(([path]) => path)).toStrictEqual([]);
  expect(entries.filter(([, entry]) => /:\/\//.test(entry.resolved ?? "")).map(([path]) => path)).toStrictEqual([]);
  expect(read(".npmrc").split("\n")).toContain("omit-lockfile-registry-resolved=true");
});

test("package-lock.json is complete for every platform: npm ci refuses it otherwise", () => {
  const { packages } = readJson("package-lock.json");
  const wanted = Object.values<any>(packages).flatMap((entry) => Object.keys(entry.optionalDependencies ?? {}));
  expect(wanted.length).toBeGreaterThan(20);
  expect(wanted.filter((name) => !Object.keys(packages).some((path) => path.endsWith(`node_modules/${name}`)))).toStrictEqual([]);
});

test("all versions are pinned exactly", () => {
  const { devDependencies } = readJson("package.json");
  const dependencies = PACKAGES.flatMap((name) => Object.entries(readJson(`packages/${name}/package.json`).dependencies));
  const loose = [...Object.entries(devDependencies), ...dependencies].filter(
    ([, version]) => !/^(npm:[a-z]+@)?\d+\.\d+\.\d+$/.test(version as string),
  );
  expect(loose).toStrictEqual([]);
});

test("core depends on its parser only, the others on core", () => {
  expect(PACKAGES.map((name) => Object.keys(readJson(`packages/${name}/package.json`).dependencies))).toStrictEqual([
    ["eventsource-parser"],
    ["@ambient-runner/core"],
    ["@ambient-runner/core"],
  ]);
});
