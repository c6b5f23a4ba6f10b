// Questions about a connection like that of a record: which rules decide, and which path its first packet takes. The
// answers stay as long as the record is selected.
import { useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { count, Mark, Part } from "./parts";
import type { Row } from "./records";

interface WhyEnd {
  kind?: string;
  name?: string;
  address?: string;
  node?: string;
  cluster?: string;
}

interface Stage {
  direction: string;
  node?: string;
  allowed: boolean;
  reason: string;
  service?: string;
  pod?: string;
  policies?: string[];
  trace?: { judged: boolean; agrees: boolean; error?: string };
}

interface Why {
  from: WhyEnd;
  to: WhyEnd;
  connections: { from: string; to: WhyEnd; protocol: string; port?: number; allowed: boolean; stages: Stage[] | null }[] | null;
  leftOut?: number;
  notes?: string[];
}

interface Choice {
  chosen: number;
  buckets: { to?: string; name?: string }[] | null;
  leftOut?: number;
}

interface Hop {
  cluster: string;
  node: string;
  steps: { table: string; rule?: string }[] | null;
  choices?: Choice[];
  end: { verdict: string; table: string; to?: string; reason?: string; message?: string; rule?: string; next?: { node?: string; cluster?: string; gateway?: string; outerDst?: string } };
}

interface Trace {
  paths: { hops: Hop[] | null; end: { verdict: string; text: string } }[] | null;
  networks?: string[];
}

type About = "why" | "trace";

interface Answer {
  why?: Why;
  trace?: Trace;
  failed?: string;
}

const ask = async (about: About, { cluster, rec }: Row): Promise<Answer> => {
  const answer = await fetch(`api/question?about=${about}`, { method: "POST", body: JSON.stringify({ cluster, record: rec }) });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return (await answer.json()) as Answer;
};

const whyEnd = (e: WhyEnd): string =>
  [e.kind, e.name, e.address, e.node && e.kind !== "Node" ? `on ${e.node}` : "", e.cluster ? `of cluster ${e.cluster}` : ""].filter(Boolean).join(" ");

const said = (allowed: boolean): string => (allowed ? "allowed" : "denied");

const StageItem = ({ s }: { s: Stage }) => {
  const about = s.pod ?? s.service ?? "";
  return (
    <li>
      <span>
        {s.direction}
        {about ? <span class="dim"> of {about}</span> : null}
        {s.node ? <span class="dim"> on {s.node}</span> : null}
      </span>
      {s.node || !s.allowed ? <Mark state={s.allowed ? "ok" : "bad"} word={said(s.allowed)} /> : null}
      <p>{s.reason}</p>
      {s.policies?.length ? <p>Policies that apply: {s.policies.join(", ")}</p> : null}
      {s.trace?.judged ? <p>{s.trace.agrees ? "The switch agrees." : "The switch disagrees: see tombolo get status on this Node."}</p> : null}
    </li>
  );
};

const WhyAnswer = ({ why }: { why: Why }) => (
  <>
    <p>
      {whyEnd(why.from)} → {whyEnd(why.to)}
    </p>
    {why.notes?.map((n) => (
      <p key={n} class="dim">
        {n}
      </p>
    ))}
    {(why.connections ?? []).map((c, i) => (
      <div key={i} class="end">
        <p class="row">
          <span>
            {whyEnd(c.to)}
            {c.port ? `, port ${c.port}` : ""}
          </span>
          <Mark state={c.allowed ? "ok" : "bad"} word={said(c.allowed)} />
        </p>
        <ul class="rows">
          {(c.stages ?? []).map((s, j) => (
            <StageItem key={j} s={s} />
          ))}
        </ul>
      </div>
    ))}
    {why.leftOut ? <p class="dim">{count(why.leftOut, "more endpoint")} left out</p> : null}
  </>
);

const chosen = (c: Choice): string => {
  const all = c.buckets ?? [];
  const bucket = all[c.chosen];
  const of = count(all.length + (c.leftOut ?? 0), "choice");
  return bucket ? `chooses ${bucket.name || bucket.to || "an endpoint"} of ${of}` : `none of ${of} is alive`;
};

const goesTo = ({ end }: Hop): string => {
  const n = end.next;
  if (end.to) return `${end.verdict} to ${end.to}`;
  if (!n) return [end.verdict, end.reason ? `(${end.reason})` : "", end.message].filter(Boolean).join(" ");
  return `goes to ${n.node ? `Node ${n.node}` : n.cluster ? `Gateway ${n.gateway} of ${n.cluster}` : (n.outerDst ?? "the next Node")}`;
};

const HopItem = ({ h }: { h: Hop }) => {
  const tables = [...new Set((h.steps ?? []).map((s) => s.table))];
  const rules = [...new Set((h.steps ?? []).flatMap((s) => (s.rule ? [s.rule] : [])))];
  return (
    <li>
      <b>{h.node}</b>
      <span>{goesTo(h)}</span>
      {h.end.rule ? <p>rule {h.end.rule}</p> : null}
      {rules.filter((r) => r !== h.end.rule).map((r) => (
        <p key={r}>by {r}</p>
      ))}
      {(h.choices ?? []).map((c, i) => (
        <p key={i}>{chosen(c)}</p>
      ))}
      <p class="tables">{tables.join(" → ")}</p>
    </li>
  );
};

// lanes are the hops of each cluster that a packet is in, in their order.
const lanes = (hops: Hop[]): Hop[][] => {
  const out: Hop[][] = [];
  for (const h of hops) {
    const lane = out.at(-1);
    if (lane?.[0]?.cluster === h.cluster) lane.push(h);
    else out.push([h]);
  }
  return out;
};

const TraceAnswer = ({ trace }: { trace: Trace }) => (
  <>
    {trace.networks?.map((n) => <p key={n}>{n}</p>)}
    {(trace.paths ?? []).map((p, i) => (
      <div key={i} class="end">
        {lanes(p.hops ?? []).map((lane, j) => (
          <div key={j} class="lane">
            <p class="kind">Cluster {lane[0]?.cluster}</p>
            <ol class="rows">
              {lane.map((h, k) => (
                <HopItem key={k} h={h} />
              ))}
            </ol>
          </div>
        ))}
        <Mark state={p.end.verdict === "delivered" ? "ok" : p.end.verdict === "left" ? "unknown" : "bad"} word={p.end.text} />
      </div>
    ))}
  </>
);

const titles: Record<About, string> = { why: "Rules that decide now", trace: "Path of a new first packet" };
const verbs: Record<About, string> = { why: "Which rules decide?", trace: "Which path does it take?" };

// Questions has a button for each question, and the latest answer.
export const Questions = ({ row }: { row: Row }) => {
  const [asked, set] = useState<{ about: About; answer?: Answer } | undefined>();
  const start = async (about: About) => {
    set({ about });
    const answer = await ask(about, row).catch((e: unknown): Answer => ({ failed: e instanceof Error ? e.message : String(e) }));
    set({ about, answer });
  };
  const waits = asked !== undefined && !asked.answer;
  const { why, trace, failed } = asked?.answer ?? {};
  let content: ComponentChildren = <p class="dim">Asking the Nodes …</p>;
  if (failed) content = <p class="why">{failed}</p>;
  else if (why) content = <WhyAnswer why={why} />;
  else if (trace) content = <TraceAnswer trace={trace} />;
  return (
    <>
      <p class="questions">
        {(["why", "trace"] as const).map((about) => (
          <button key={about} type="button" aria-disabled={waits} onClick={() => void (waits || start(about))}>
            {verbs[about]}
          </button>
        ))}
      </p>
      <div aria-live="polite">{asked ? <Part title={titles[asked.about]}>{content}</Part> : null}</div>
    </>
  );
};
