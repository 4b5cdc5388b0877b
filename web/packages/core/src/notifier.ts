// Tells subscribers of changes, at most once per animation frame.

export type Listener = () => void;

/** A value with subscribers. */
export interface Notifier<T> {
  subscribe(listener: Listener): () => void;
  getSnapshot(): T;
  /** Return the newest value, which subscribers may not have seen. */
  latest(): T;
  /** Change members. Subscribers see it with the next animation frame. */
  set(changes: Partial<T>): void;
  /** Tell subscribers now. */
  flush(): void;
}

/** `onUse` is called with the first subscriber and after the last. */
export function createNotifier<T extends object>(initial: T, onUse?: (isUsed: boolean) => void): Notifier<T> {
  const listeners = new Set<Listener>();
  let current = initial;
  let next = initial;
  let isScheduled = false;

  const flush = (): void => {
    isScheduled = false;
    if (current === next) return;
    current = next;
    for (const listener of [...listeners]) listener();
  };

  return {
    subscribe(listener) {
      // A function of its own, so that one listener may subscribe twice.
      const own = (): void => listener();
      listeners.add(own);
      if (listeners.size === 1) onUse?.(true);
      return () => {
        if (listeners.delete(own) && !listeners.size) onUse?.(false);
      };
    },
    getSnapshot: () => current,
    latest: () => next,
    set(changes) {
      next = { ...next, ...changes };
      if (!isScheduled) onNextFrame(flush);
      isScheduled = true;
    },
    flush,
  };
}

/** Call back with the next animation frame. Hidden pages have none. */
function onNextFrame(callback: () => void): void {
  if (typeof document !== "undefined" && document.visibilityState !== "hidden") requestAnimationFrame(callback);
  else setTimeout(callback, 16);
}
