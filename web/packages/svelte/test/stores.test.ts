// The same tests with the stores of Svelte 5 and, by `stores_svelte4.test.ts`, of Svelte 4.
import { VERSION } from "svelte/compiler";
import { describeStores } from "./describe_stores.js";

describeStores(5, VERSION);
