// A part of a store as React state: the component renders only if that part has changed.
import { useCallback, useRef, useSyncExternalStore } from "react";

interface Store<T> {
  subscribe(listener: () => void): () => void;
  getSnapshot(): T;
}

/** Return what the selector takes from the store. A selector that makes new values needs an `isEqual`. */
export function useStore<T, Selected>(
  store: Store<T>,
  selector: (snapshot: T) => Selected,
  isEqual: (left: Selected, right: Selected) => boolean = Object.is,
): Selected {
  const last = useRef<{ readonly value: Selected }>(undefined);
  const getSelected = (): Selected => {
    const value = selector(store.getSnapshot());
    if (!last.current || !isEqual(last.current.value, value)) last.current = { value };
    return last.current.value;
  };
  const subscribe = useCallback((listener: () => void) => store.subscribe(listener), [store]);
  return useSyncExternalStore(subscribe, getSelected, getSelected);
}

export const areListsEqual = (left: readonly unknown[], right: readonly unknown[]): boolean =>
  left.length === right.length && left.every((item, at) => Object.is(item, right[at]));
