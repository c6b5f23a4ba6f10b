// The views that are tables.
import { useEffect } from "preact/hooks";
import { clock, Mark } from "./parts";
import { endText, failed, isDrop, missing, reading, rows, start, whyText } from "./records";
import { go, route, select } from "./route";
import { allNodes, head, idOf, services, timeline } from "./store";
import { matches, Table } from "./table";
import type { ServiceEnd, State } from "./types";

const picked = (...parts: string[]) => route.value.sel === select(...parts);
const pick = (...parts: string[]) => go({ sel: select(...parts) });
const rank: Record<State, number> = { bad: 0, warn: 1, unknown: 2, ok: 3 };

const Ends = ({ list }: { list: ServiceEnd[] }) => (
  <span class="ends">
    {list.slice(0, 8).map((e) => (
      <Mark key={e.cluster} state={e.state} word={e.state === "ok" ? idOf(e.cluster) : `${idOf(e.cluster)}: ${e.word}`} />
    ))}
    {list.length > 8 ? <span class="dim">and {list.length - 8} more</span> : null}
  </span>
);

const text = (list: ServiceEnd[]) => list.map((e) => `${idOf(e.cluster)} ${e.word}`).join(" ");

export const ServicesView = () => {
  const list = (services.value ?? []).filter((s) =>
    matches(`${s.namespace}/${s.name} ${text(s.exports)} ${text(s.imports)}`, route.value.q),
  );
  return (
    <Table
      label="Exported and imported Services"
      rows={list}
      keyOf={(s) => `${s.namespace}/${s.name}`}
      onPick={(s) => pick("s", s.namespace, s.name)}
      isPicked={(s) => picked("s", s.namespace, s.name)}
      none={route.value.q ? "No Service matches the filter." : "No cluster exports or imports a Service."}
      columns={[
        { title: "Namespace", width: "minmax(90px, 1fr)", cell: (s) => s.namespace },
        { title: "Service", width: "minmax(120px, 1.4fr)", cell: (s) => <b>{s.name}</b> },
        { title: "Exported by", width: "minmax(160px, 3fr)", cell: (s) => <Ends list={s.exports} /> },
        { title: "Imported in", width: "minmax(160px, 3fr)", cell: (s) => <Ends list={s.imports} /> },
      ]}
    />
  );
};

export const NodesView = () => {
  const list = allNodes.value
    .filter(({ cluster, node }) =>
      matches(`${cluster.id} ${node.name} ${node.word} ${node.gateway ? "gateway" : ""} ${node.problems?.map((p) => p.reason).join(" ") ?? ""}`, route.value.q),
    )
    .sort((x, y) => rank[x.node.state] - rank[y.node.state]);
  return (
    <Table
      label="Nodes of all clusters"
      rows={list}
      keyOf={(r) => `${r.cluster.key} ${r.node.name}`}
      onPick={(r) => pick("n", r.cluster.key, r.node.name)}
      isPicked={(r) => picked("n", r.cluster.key, r.node.name)}
      none={route.value.q ? "No Node matches the filter." : "No cluster shows a Node."}
      columns={[
        { title: "State", width: "minmax(110px, 1.2fr)", cell: (r) => <Mark state={r.node.state} word={r.node.word} /> },
        { title: "Cluster", width: "minmax(90px, 1fr)", cell: (r) => r.cluster.id },
        { title: "Node", width: "minmax(120px, 1.6fr)", cell: (r) => <b>{r.node.name}</b> },
        { title: "Role", width: "80px", cell: (r) => (r.node.gateway ? "Gateway" : "") },
        { title: "Agent", width: "minmax(80px, 1fr)", cell: (r) => r.node.agent ?? <span class="dim">not asked</span> },
        { title: "As of", width: "84px", cell: (r) => (r.node.asOf ? clock(Date.parse(r.node.asOf)) : "–") },
        {
          title: "Problems",
          width: "minmax(140px, 3fr)",
          cell: (r) => [...new Set(r.node.problems?.map((p) => p.reason))].join(", "),
        },
      ]}
    />
  );
};

export const DropsView = () => {
  useEffect(() => {
    if (reading.value === "no") void start("drops");
  }, []);
  const shown = rows.value.filter(({ cluster, rec }) =>
    matches(`${idOf(cluster)} ${rec.verdict} ${endText(rec.from)} ${endText(rec.to)} ${rec.service ?? ""} ${rec.protocol} ${rec.reason ?? ""} ${whyText(rec)}`, route.value.q),
  );
  return (
    <div class="column">
      <div class="bar">
        <label>
          <input
            type="checkbox"
            checked={reading.value === "all"}
            onChange={(e) => void start(e.currentTarget.checked ? "all" : "drops")}
          />
          new connections too
        </label>
        <span class="dim">
          {failed.value ? `Not reading: ${failed.value}` : `${rows.value.length} records of the agents, read while this page is open`}
        </span>
        {missing.value.length ? <Mark state="warn" word={`incomplete: ${missing.value.at(-1)}`} /> : null}
      </div>
      <Table
        label="Dropped packets and connections, the newest first"
        rows={shown}
        keyOf={(r) => r.id}
        onPick={(r) => pick("d", r.id)}
        isPicked={(r) => picked("d", r.id)}
        none={route.value.q ? "No record matches the filter." : "No agent has sent a record yet."}
        columns={[
          { title: "Time", width: "84px", cell: (r) => clock(Date.parse(r.rec.time)) },
          { title: "Cluster", width: "minmax(80px, .8fr)", cell: (r) => idOf(r.cluster) },
          { title: "Verdict", width: "100px", cell: (r) => <Mark state={isDrop(r.rec) ? "bad" : "ok"} word={r.rec.verdict} /> },
          { title: "From", width: "minmax(130px, 2fr)", cell: (r) => endText(r.rec.from) },
          { title: "To", width: "minmax(130px, 2fr)", cell: (r) => endText(r.rec.to) },
          { title: "Protocol", width: "68px", cell: (r) => r.rec.protocol },
          { title: "Why", width: "minmax(160px, 3fr)", cell: (r) => whyText(r.rec) },
          { title: "Count", width: "56px", cell: (r) => r.rec.count },
        ]}
      />
    </div>
  );
};

export const TimelineView = () => {
  const list = (timeline.value ?? [])
    .map((c, i) => ({ ...c, i }))
    .filter((c) => matches(`${c.cluster ? idOf(c.cluster) : ""} ${c.object} ${c.from} ${c.to}`, route.value.q));
  const since = head.value.started ? clock(Date.parse(head.value.started)) : "the start";
  return (
    <Table
      label="Changes, the newest first"
      rows={list}
      keyOf={(c) => `${c.time} ${c.object} ${c.i}`}
      none={route.value.q ? "No change matches the filter." : `Nothing has changed since ${since}, when tombolo ui started.`}
      columns={[
        { title: "Time", width: "84px", cell: (c) => clock(Date.parse(c.time)) },
        { title: "Cluster", width: "minmax(90px, 1fr)", cell: (c) => (c.cluster ? idOf(c.cluster) : "") },
        { title: "Object", width: "minmax(200px, 3fr)", cell: (c) => c.object },
        { title: "Was", width: "minmax(90px, 1.4fr)", cell: (c) => <span class="dim">{c.from}</span> },
        { title: "Is", width: "minmax(110px, 1.4fr)", cell: (c) => <Mark state={c.state} word={c.to} /> },
      ]}
    />
  );
};
