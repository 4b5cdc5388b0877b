import { expect, test } from "vitest";
import { applyPatch, PatchConflict } from "../src/index.js";
import vectors from "../../../../tests/recordings/json_patch.json" with { type: "json" };
import { freeze } from "./freeze.js";

interface Vector {
  readonly name: string;
  readonly document: unknown;
  readonly patch: readonly unknown[];
  readonly result?: unknown;
  readonly conflict?: true;
}

test.each(vectors as readonly Vector[])("JSON Patch, shared with the server: $name", (vector) => {
  const apply = (): unknown => applyPatch(freeze(vector.document), freeze(vector.patch));
  if (vector.conflict) expect(apply).toThrow(PatchConflict);
  else expect(apply()).toStrictEqual(vector.result);
});

test("a patch copies only the containers on its way", () => {
  const document = freeze({ a: { b: [1] }, c: { d: 1 } });
  const after = applyPatch(document, [{ op: "add", path: "/a/b/-", value: 2 }]) as typeof document;
  expect(after).toStrictEqual({ a: { b: [1, 2] }, c: { d: 1 } });
  expect(after.c).toBe(document.c);
});
