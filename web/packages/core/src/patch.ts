// JSON Patch (RFC 6902), the twin of the server's `projections/json_patch.py`: both pass `tests/recordings/json_patch.json`.
// Agents stream patches token by token, so only the containers on the path to a change are copied.
import { isObject, isString } from "./wire.js";

/** The patch does not apply. */
export class PatchConflict extends Error {}

/** Return the document after the patch, all or nothing; unchanged parts are shared. Throws PatchConflict if it does not apply. */
export function applyPatch(document: unknown, operations: readonly unknown[]): unknown {
  for (const operation of operations) document = applyOperation(document, operation);
  return document;
}

function applyOperation(document: unknown, operation: unknown): unknown {
  if (!isObject(operation)) throw new PatchConflict();
  const path = parsePath(operation.path);
  switch (operation.op) {
    case "add":
      return put(document, path, valueOf(operation));
    case "replace":
      get(document, path);
      return put(document, path, valueOf(operation), true);
    case "remove":
      return remove(document, path);
    case "copy":
      return put(document, path, get(document, parsePath(operation.from)));
    case "move":
      return move(document, parsePath(operation.from), path);
    case "test":
      if (jsonEqual(get(document, path), valueOf(operation))) return document;
  }
  throw new PatchConflict();
}

function valueOf(operation: Record<string, unknown>): unknown {
  if (!Object.hasOwn(operation, "value")) throw new PatchConflict();
  return operation.value;
}

/** Return the keys of a JSON pointer. Keys that change the prototype of objects are refused, as in the official client. */
function parsePath(pointer: unknown): string[] {
  if (!isString(pointer) || (pointer && !pointer.startsWith("/"))) throw new PatchConflict();
  const path = pointer.split("/").slice(1).map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
  if (path.includes("__proto__") || pointer.includes("constructor/prototype")) throw new PatchConflict();
  return path;
}

function get(document: unknown, path: readonly string[]): unknown {
  for (const segment of path) document = read(document, keyOf(document, segment));
  return document;
}

/** Return a copy with the value at the path. Arrays get it inserted, unless `overwrite` is set. */
const put = (document: unknown, path: readonly string[], value: unknown, overwrite = false): unknown =>
  edit(document, path, value, !overwrite, (container, key) => {
    if (Array.isArray(container) && !overwrite) container.splice(key as number, 0, value);
    else (container as Container)[key] = value;
  });

const remove = (document: unknown, path: readonly string[]): unknown =>
  edit(document, path, null, false, (container, key) => {
    read(container, key);
    if (Array.isArray(container)) container.splice(key as number, 1);
    else delete (container as Container)[key];
  });

type Container = Record<string | number, unknown>;

/** Return a copy whose container at the end of the path was changed; `whole` if the path is empty. */
function edit(
  document: unknown,
  path: readonly string[],
  whole: unknown,
  allowEnd: boolean,
  change: (container: unknown, key: string | number) => void,
): unknown {
  const [segment, ...rest] = path;
  if (segment === undefined) return whole;
  const key = keyOf(document, segment, allowEnd && !rest.length);
  const copy = Array.isArray(document) ? document.slice() : { ...(document as Container) };
  if (rest.length) (copy as Container)[key] = edit(read(document, key), rest, whole, allowEnd, change);
  else change(copy, key);
  return copy;
}

function move(document: unknown, source: readonly string[], target: readonly string[]): unknown {
  if (target.length > source.length && source.every((segment, at) => segment === target[at])) throw new PatchConflict();
  return put(remove(document, source), target, get(document, source));
}

/** Return the segment as a key of this object or an index of this array. `allowEnd` permits the index after the last item. */
function keyOf(container: unknown, segment: string, allowEnd = false): string | number {
  if (isObject(container)) return segment;
  if (!Array.isArray(container)) throw new PatchConflict();
  if (allowEnd && segment === "-") return container.length;
  const index = /^(0|[1-9]\d{0,9})$/.test(segment) ? Number(segment) : -1;
  if (index < 0 || index >= container.length + (allowEnd ? 1 : 0)) throw new PatchConflict();
  return index;
}

function read(container: unknown, key: string | number): unknown {
  if (!Object.hasOwn(container as object, key)) throw new PatchConflict();
  return (container as Record<string | number, unknown>)[key];
}

/** Return true if both are the same JSON value. */
export function jsonEqual(left: unknown, right: unknown): boolean {
  if (left === right) return true;
  if (Array.isArray(left) && Array.isArray(right))
    return left.length === right.length && left.every((item, at) => jsonEqual(item, right[at]));
  if (!isObject(left) || !isObject(right)) return false;
  const keys = Object.keys(left);
  return (
    keys.length === Object.keys(right).length &&
    keys.every((key) => Object.hasOwn(right, key) && jsonEqual(left[key], right[key]))
  );
}
