// `ambient serve demo` as a process that a test can kill, with its threads in a directory of its own.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const AMBIENT = process.env.AMBIENT ?? join(import.meta.dirname, "../../.venv/bin/ambient");
const LEASE = "1"; // seconds

/** Start a server. `restart` starts it again at the same address, with the same threads. */
export async function startServer() {
  const directory = await mkdtemp(join(tmpdir(), "ambient-browser-"));
  let child = await listen(directory, "0");
  const { port } = new URL(child.url);

  const end = async (signal) => {
    if (child.process.exitCode !== null || child.process.signalCode !== null) return;
    const exited = once(child.process, "exit");
    child.process.kill(signal);
    await exited;
  };

  return {
    url: child.url,
    /** End the process as a power cut would. */
    kill: () => end("SIGKILL"),
    restart: async () => void (child = await listen(directory, port)),
    stop: async () => {
      await end("SIGTERM");
      await rm(directory, { recursive: true });
    },
    /** The messages of a thread as the server has stored them. */
    messages: async (thread) => (await readJson(`${child.url}/message_snapshot/${thread}`)).messages,
    /** The list of threads, newest change first. */
    threads: async (query) => (await readJson(`${child.url}/thread/list?${query}`)).threads,
  };
}

const readJson = async (url) => (await fetch(url)).json();

/** Start the process, and wait until it listens. Rejects with its output if it ends before. */
async function listen(directory, port) {
  const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith("AMBIENT_"));
  const env = { ...Object.fromEntries(inherited), AMBIENT_LEASE: LEASE, PYTHONUNBUFFERED: "1" };
  const options = ["serve", "demo", "--port", port, "--store", `sqlite:///${join(directory, "ambient.db")}`];
  const child = spawn(AMBIENT, options, { cwd: directory, env, stdio: ["ignore", "pipe", "pipe"] });
  const lines = [];
  return new Promise((resolve, reject) => {
    const read = (line) => {
      lines.push(line);
      const [url] = line.match(/http:\/\/[\w.:]+/) ?? [];
      if (url) resolve({ process: child, url });
    };
    createInterface(child.stdout).on("line", read);
    createInterface(child.stderr).on("line", read);
    child.on("error", reject);
    child.on("exit", () => reject(new Error(`The server ended before it listened:\n${lines.join("\n")}`)));
  });
}
