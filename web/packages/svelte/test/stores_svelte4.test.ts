import { vi } from "vitest";
// @ts-expect-error Svelte 4 declares its types by the name `svelte` only.
import { VERSION } from "svelte-4/compiler";
import { describeStores } from "./describe_stores.js";

// @ts-expect-error as above
vi.mock("svelte/store", () => import("svelte-4/store"));

describeStores(4, VERSION);
