// Judges single events with the official clients' own validators, without a server.
//
// usage: node schemas.mjs < jobs.ndjson > verdicts.ndjson
// A job is {"client": "1.0" | "0.0.59" | "0.0.42", "event": {...}}; its verdict {"ok": true} or {"ok": false, "why": "..."}.
// 1.0: the enforcement stage, and it must have had nothing to strip. The others: the schema their transport parses every frame with.

import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { of, lastValueFrom } from "rxjs";

const { enforceEvents } = await import("ag-ui-client-1.0");
const schemas = (version) => createRequire(import.meta.resolve(`ag-ui-client-${version}`))("@ag-ui/core").EventSchemas;

const warnings = [];
console.warn = (...words) => warnings.push(words.map(String).join(" "));

async function modern(event) {
  warnings.length = 0;
  await lastValueFrom(enforceEvents()(of(event)), { defaultValue: null });
  if (warnings.length) throw new Error(warnings.join("; "));
}

function legacy(version) {
  const known = schemas(version);
  return (event) => known.parse(event);
}

const judges = { "1.0": modern, "0.0.59": legacy("0.0.59"), "0.0.42": legacy("0.0.42") };

for (const line of readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  const { client, event } = JSON.parse(line);
  let verdict = { ok: true };
  try {
    await judges[client](event);
  } catch (error) {
    verdict = { ok: false, why: String(error?.message ?? error) };
  }
  console.log(JSON.stringify(verdict));
}
