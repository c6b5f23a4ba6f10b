// The Model, as the server's events keep it current.
import { computed, signal } from "@preact/signals";
import type { Change, Cluster, Head, Link, Node, Service, Update } from "./types";

type Sections = Map<string, unknown>;

const sections = signal<Sections>(new Map());

// Connection is how the page reaches tombolo ui.
export const connection = signal<{ word: "connecting" | "live" | "lost" | "refused"; why?: string }>({ word: "connecting" });
// skew is the server's time less the browser's, in milliseconds.
export const skew = signal(0);
// now is the server's time. It ticks each second.
export const now = signal(Date.now());
// last is when the last message came, in the server's time.
export const last = signal(0);

const list = <T>(kind: string) =>
  computed(() => {
    const out: T[] = [];
    for (const [name, v] of sections.value) if (name.startsWith(kind)) out.push(v as T);
    return out;
  });

const section = <T>(name: string, empty: T) => computed(() => (sections.value.get(name) as T) ?? empty);

export const head = section<Head>("head", { clusterSets: [], started: "" });
// order compares names as people do: node-2 is before node-10.
export const order = new Intl.Collator("en", { numeric: true }).compare;
const byKey = (a: { key: string }, b: { key: string }) => order(a.key, b.key);
const clusterList = list<Cluster>("cluster:");
export const clusters = computed(() => [...clusterList.value].sort(byKey));
export const clusterOf = computed(() => new Map(clusters.value.map((c) => [c.key, c])));
const linkList = list<Link>("link:");
export const links = computed(() => [...linkList.value].sort(byKey));
export const services = section<Service[] | null>("services", []);
export const timeline = section<Change[] | null>("timeline", []);
export const asOf = section<Record<string, string> | null>("asof", {});
export const nodesOf = (key: string): Node[] => (sections.value.get(`nodes:${key}`) as Node[]) ?? [];
export const allNodes = computed(() => clusters.value.flatMap((c) => nodesOf(c.key).map((node) => ({ cluster: c, node }))));

export const idOf = (key: string): string => clusterOf.value.get(key)?.id ?? key;

const apply = (update: Update): void => {
  skew.value = Date.parse(update.now) - Date.now();
  last.value = now.value = Date.parse(update.now);
  const set = Object.entries(update.set ?? {});
  if (!update.full && set.length === 0 && !update.gone?.length) return;
  const next: Sections = update.full ? new Map() : new Map(sections.value);
  for (const [name, v] of set) next.set(name, v);
  for (const name of update.gone ?? []) next.delete(name);
  sections.value = next;
};

// read calls apply with each event of a stream of server-sent events.
const read = async (body: ReadableStream<Uint8Array>): Promise<void> => {
  const reader = body.pipeThrough(new TextDecoderStream() as unknown as TransformStream<Uint8Array, string>).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop() ?? "";
    for (const event of events) if (event.startsWith("data: ")) apply(JSON.parse(event.slice(6)) as Update);
  }
};

const pause = (ms: number) => new Promise((done) => setTimeout(done, ms));

// follow reads events until the page ends. It connects again after each loss.
export const follow = async (): Promise<void> => {
  for (;;) {
    try {
      const answer = await fetch("api/events");
      if (answer.status === 401 || answer.status === 403) {
        connection.value = { word: "refused", why: await answer.text() };
        return;
      }
      if (!answer.ok || !answer.body) throw new Error(await answer.text());
      connection.value = { word: "live" };
      await read(answer.body);
      throw new Error("the connection ended");
    } catch (e) {
      connection.value = { word: "lost", why: e instanceof Error ? e.message : String(e) };
    }
    await pause(1000);
  }
};

// present changes the token of the URL into a cookie, and removes it from the URL.
export const present = async (): Promise<void> => {
  const token = /^#token=(.+)$/.exec(location.hash)?.[1];
  if (!token) return;
  history.replaceState(null, "", "#/map");
  const answer = await fetch("session", { method: "POST", body: token });
  if (!answer.ok) connection.value = { word: "refused", why: await answer.text() };
};

setInterval(() => {
  now.value = Date.now() + skew.value;
}, 1000);

export const fetchLink = async (key: string): Promise<Link | undefined> => {
  const answer = await fetch(`api/link?key=${encodeURIComponent(key)}`);
  return answer.ok ? ((await answer.json()) as Link) : undefined;
};
