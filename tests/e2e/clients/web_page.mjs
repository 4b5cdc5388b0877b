// What the programs on @ambient-runner/core share: pages that are hidden and shown by hand, and a faster clock.
import { createInterface } from "node:readline";

const HEARTBEAT = 15_000; // milliseconds, of the server

/** Let the timers of the stores run so many times as fast. Returns the heartbeat, in their time, that is the server's. */
export function speedUpTimers(factor) {
  const { setTimeout: setTimer } = globalThis;
  globalThis.setTimeout = (callback, delay, ...values) => setTimer(callback, delay / factor, ...values);
  return HEARTBEAT * factor;
}

export class TestPage {
  #isHidden = false;
  #listeners = new Set();
  isHidden = () => this.#isHidden;
  onChange = (listener) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };
  setHidden(isHidden) {
    this.#isHidden = isHidden;
    for (const listener of this.#listeners) listener();
  }
}

/** Wait until a snapshot of the store is as wanted, and return it. */
export function until(store, isWanted) {
  return new Promise((resolve) => {
    let leave = () => {};
    const check = () => {
      const snapshot = store.getSnapshot();
      if (!isWanted(snapshot)) return;
      leave();
      resolve(snapshot);
    };
    leave = store.subscribe(check);
    check();
  });
}

/** Return an iterator over the lines of stdin. */
export const readLines = () => createInterface({ input: process.stdin })[Symbol.asyncIterator]();
