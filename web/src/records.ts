// Records of drops and connections. The page reads them from the first time that the view Drops is open.
import { computed, signal } from "@preact/signals";
import { clusterOf, now } from "./store";

export interface RecordEnd {
  namespace?: string;
  pod?: string;
  ip: string;
  port?: number;
  node?: string;
  cluster?: string;
}

interface Rule {
  policy: string;
  name: string;
}

export interface Rec {
  time: string;
  node: string;
  verdict: string;
  protocol: string;
  from: RecordEnd;
  to: RecordEnd;
  service?: string;
  network?: string;
  toNetwork?: string;
  asked?: string;
  reason?: string;
  message?: string;
  table?: string;
  rule?: Rule;
  egress?: Rule;
  ingress?: Rule;
  way?: string;
  count: number;
}

export interface Row {
  id: string;
  cluster: string;
  rec: Rec;
}

interface Line {
  cluster: string;
  node?: string;
  drop?: Rec;
  connection?: Rec;
  missing?: string;
}

const most = 10_000;

// rows are the records, the newest first.
export const rows = signal<Row[]>([]);
// missing are the reasons why records are missing, the newest last.
export const missing = signal<string[]>([]);
export const reading = signal<"no" | "drops" | "all">("no");
export const failed = signal("");

let stop: AbortController | undefined;
let next = 0;

const take = (lines: Line[], left: number): void => {
  const fresh: Row[] = [];
  const why = new Set(missing.value);
  for (const l of lines) {
    const rec = l.drop ?? l.connection;
    if (rec) fresh.push({ id: `${next++}`, cluster: l.cluster, rec });
    else if (l.missing) why.add(`${clusterOf.value.get(l.cluster)?.id ?? l.cluster}${l.node ? `/${l.node}` : ""}: ${l.missing}`);
  }
  if (left) why.add(`${left} records came faster than the page shows them`);
  if (why.size !== missing.value.length) missing.value = [...why].slice(-20);
  if (fresh.length === 0) return;
  const all = [...rows.value, ...fresh].sort((x, y) => (x.rec.time < y.rec.time ? 1 : x.rec.time > y.rec.time ? -1 : 0));
  rows.value = all.slice(0, most);
};

// start reads drops, or drops and connections, until the page ends.
export const start = async (what: "drops" | "all"): Promise<void> => {
  if (reading.value === what) return;
  stop?.abort();
  const mine = new AbortController();
  stop = mine;
  reading.value = what;
  rows.value = [];
  missing.value = [];
  while (!mine.signal.aborted) {
    try {
      const answer = await fetch(`api/records?connections=${what === "all"}`, { signal: mine.signal });
      if (!answer.ok || !answer.body) throw new Error(await answer.text());
      failed.value = "";
      const reader = answer.body.pipeThrough(new TextDecoderStream() as unknown as TransformStream<Uint8Array, string>).getReader();
      for (let rest = ""; ; ) {
        const { done, value } = await reader.read();
        if (done) break;
        const events = (rest + value).split("\n\n");
        rest = events.pop() ?? "";
        for (const e of events) {
          const { lines, left } = JSON.parse(e.slice(6)) as { lines: Line[] | null; left: number };
          take(lines ?? [], left);
        }
      }
      throw new Error("the connection ended");
    } catch (e) {
      if (mine.signal.aborted) return;
      failed.value = e instanceof Error ? e.message : String(e);
    }
    await new Promise((done) => setTimeout(done, 2000));
    rows.value = [];
  }
};

export const isDrop = (r: Rec): boolean => r.verdict !== "allowed";

// recent is the number of packets that each cluster's Nodes have dropped in the last minute.
export const recent = computed(() => {
  const out = new Map<string, number>();
  for (const { cluster, rec } of rows.value) {
    if (now.value - Date.parse(rec.time) > 60_000) break;
    if (isDrop(rec)) out.set(cluster, (out.get(cluster) ?? 0) + rec.count);
  }
  return out;
});

export const endText = (e: RecordEnd): string => {
  const name = e.pod ? `${e.namespace}/${e.pod}` : e.ip.includes(":") && e.port ? `[${e.ip}]` : e.ip;
  return `${name}${e.port ? `:${e.port}` : ""}${e.cluster ? ` in ${e.cluster}` : ""}`;
};

export const whyText = (r: Rec): string => {
  const rule = r.rule ?? r.ingress ?? r.egress;
  return rule ? `${rule.policy} ${rule.name}` : (r.message ?? r.reason ?? "");
};
