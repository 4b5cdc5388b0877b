// The shapes in `src/wire.ts` are those of @ag-ui/core: the compiler checks it (`npm run check`).
import type { AGUIEvent, Interrupt as OfficialInterrupt, Message as OfficialMessage, TokenUsage as OfficialUsage, Tool } from "@ag-ui/core";
import { expectTypeOf, test } from "vitest";
import type { Frame, Interrupt, Message, TokenUsage, ToolDeclaration } from "../src/index.js";

test("what the official package describes is what ours accepts", () => {
  expectTypeOf<OfficialMessage["role"]>().toEqualTypeOf<Message["role"]>();
  expectTypeOf<OfficialMessage["id"]>().toEqualTypeOf<Message["id"]>();
  expectTypeOf<keyof OfficialInterrupt>().toEqualTypeOf<keyof Interrupt>();
  expectTypeOf<keyof OfficialUsage>().toEqualTypeOf<keyof TokenUsage>();
  expectTypeOf<keyof Tool>().toEqualTypeOf<keyof ToolDeclaration>();
  expectTypeOf<`${AGUIEvent["type"]}`>().toExtend<Frame["type"]>();
});

test("every member of the official messages is known", () => {
  type Members<T> = T extends unknown ? keyof T : never;
  expectTypeOf<Exclude<Members<OfficialMessage>, Members<Message>>>().toEqualTypeOf<never>();
});
