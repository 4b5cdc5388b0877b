import { expect, test } from "vitest";
import { createClient } from "../src/client.js";
import { FakePage, FakeServer, json, refusal } from "./fake_server.js";

const make = (server: FakeServer) => createClient({ url: "http://server", fetch: server.fetch, page: new FakePage(), agent: "demo" });

test("components share a store per thread, agent and filter", () => {
  const client = make(new FakeServer());
  expect(client.thread("t")).toBe(client.thread("t", { agent: "demo" }));
  expect(client.thread("t")).not.toBe(client.thread("u"));
  expect(client.thread("t")).not.toBe(client.thread("t", { agent: "other" }));
  expect(client.threads({ search: "x" })).toBe(client.threads({ search: "x" }));
  expect(client.threads()).not.toBe(client.threads({ search: "x" }));
  expect(client.approvals()).toBe(client.approvals());
});

test("nothing is asked before somebody subscribes", async () => {
  const server = new FakeServer();
  const client = make(server);
  client.thread("t");
  client.threads();
  client.approvals();
  await Promise.resolve();
  expect(server.requests).toStrictEqual([]);
});

test("the agents are asked for once, and again after a failure", async () => {
  const server = new FakeServer();
  const client = make(server);
  server.handler = () => refusal(503, "draining");
  await expect(client.agents()).rejects.toMatchObject({ status: 503 });
  server.handler = () => json({ framework: {}, agents: { demo: { identity: { name: "demo" } }, other: {} } });
  const agents = [
    { name: "demo", capabilities: { identity: { name: "demo" } } },
    { name: "other", capabilities: {} },
  ];
  expect([await client.agents(), await client.agents()]).toStrictEqual([agents, agents]);
  expect(server.requests).toHaveLength(2);
});

test("tools are offered until they are taken back", async () => {
  const server = new FakeServer();
  const client = make(server);
  const remove = client.addTool({ name: "pick", description: "Picks." });
  const store = client.thread("t", { isNew: true });
  await store.send("one");
  remove();
  await store.send("two");
  expect(server.posts().map(({ body }) => body.tools)).toStrictEqual([[{ name: "pick", description: "Picks." }], []]);
  store.close();
});
