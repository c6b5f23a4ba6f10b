// The panel shows the selection: state, reason, conditions, problems, and the commands to run.
import { useEffect, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { endKey } from "./map";
import { Commands, Conditions, count, Mark, Part, Problems, quote, Time } from "./parts";
import { Questions } from "./questions";
import { endText, isDrop, type Row, rows } from "./records";
import { go, route, select, selected } from "./route";
import { asOf, clusterOf, fetchLink, idOf, links, nodesOf, order, services } from "./store";
import type { Cluster, Direction, Link, Quality, Service, State, Way } from "./types";

const To = ({ sel, children }: { sel: string[]; children: ComponentChildren }) => (
  <button type="button" class="to" onClick={() => go({ sel: select(...sel) })}>
    {children}
  </button>
);

const Facts = ({ rows }: { rows: [string, ComponentChildren][] }) => (
  <dl>
    {rows
      .filter(([, v]) => v !== "" && v !== undefined && v !== null && v !== false)
      .map(([k, v]) => (
        <div key={k}>
          <dt>{k}</dt>
          <dd>{v}</dd>
        </div>
      ))}
  </dl>
);

const AsOf = ({ cluster }: { cluster: string }) => {
  const at = asOf.value?.[cluster];
  return at ? <Time at={at} /> : <span class="dim">not asked</span>;
};

const Shell = ({ kind, title, state, word, why, children }: {
  kind: string;
  title: string;
  state: State;
  word: string;
  why?: string;
  children?: ComponentChildren;
}) => (
  <>
    <p class="kind">{kind}</p>
    <h2>{title}</h2>
    <Mark state={state} word={word} />
    {why ? <p class="why">{why}</p> : null}
    {children}
  </>
);

const ClusterPanel = ({ c }: { c: Cluster }) => {
  const near = links.value.filter((l) => l.a === c.key || l.b === c.key);
  return (
    <Shell kind={c.leader ? "Cluster, leader" : "Cluster"} title={c.id} state={c.state} word={c.word} why={c.why}>
      <Facts
        rows={[
          ["as of", <AsOf cluster={c.key} />],
          ["ClusterSet", c.clusterSet],
          ["context", c.context],
          ["Kubernetes", c.version],
          ["agents", c.agents?.join(", ")],
          ["Nodes", c.nodes.all ? `${c.nodes.all}, of which ${c.nodes.ready} are Ready` : ""],
          ["asked", c.nodes.asked ? `${c.nodes.answered} of ${count(c.nodes.asked, "agent")} answered` : ""],
          ["Services", c.services?.join(", ")],
          ["Pods", c.pods?.join(", ")],
          ["policies", Object.entries(c.policies ?? {}).map(([k, n]) => `${n} ${k}`).join(", ")],
          ["exports", c.exports],
          ["imports", c.imports],
        ]}
      />
      <Problems list={c.problems} leftOut={c.leftOut} />
      {c.gateways.length ? (
        <Part title="Gateways">
          <ul class="rows">
            {[...c.gateways].sort((x, y) => order(x.name ?? x.address, y.name ?? y.address)).map((g) => (
              <li key={g.address}>
                <To sel={["g", c.key, g.address]}>{g.name || g.address}</To>
                <Mark state={g.state} word={g.phase ? `${g.phase}, ${g.word}` : g.word} />
              </li>
            ))}
          </ul>
        </Part>
      ) : null}
      {near.length ? (
        <Part title="Ways to">
          <ul class="rows">
            {near.map((l) => (
              <li key={l.key}>
                <To sel={["l", l.key]}>{idOf(l.a === c.key ? l.b : l.a)}</To>
                <Mark state={l.state} word={l.word} />
              </li>
            ))}
          </ul>
        </Part>
      ) : null}
      {c.seen?.length ? (
        <Part title="Conditions">
          <Conditions list={c.seen.map((s) => ({ ...s.condition, by: `${s.kind} in ${s.by}` }))} />
        </Part>
      ) : null}
      <Commands list={c.commands} />
    </Shell>
  );
};

// useWays returns a link with its ways. It asks for them if the Model is without them.
const useWays = (l: Link): Link => {
  const [full, set] = useState<Link | undefined>();
  useEffect(() => {
    let wanted = true;
    if (!l.ways) void fetchLink(l.key).then((got) => wanted && set(got));
    return () => {
      wanted = false;
    };
  }, [l]);
  return l.ways ? l : full?.key === l.key ? full : l;
};

const Ways = ({ link, only }: { link: Link; only?: (w: Way) => boolean }) => {
  const ways = (useWays(link).ways ?? []).filter(only ?? (() => true));
  return ways.length ? (
    <Part title={count(ways.length, "way")}>
      <ul class="rows">
        {ways.slice(0, 256).map((w) => (
          <li key={`${endKey(w.a)} ${endKey(w.b)}`}>
            <To sel={["w", link.key, endKey(w.a), endKey(w.b)]}>
              {idOf(link.a)}/{endKey(w.a)} – {idOf(link.b)}/{endKey(w.b)}
            </To>
            <span class="pair">
              <Mark state={w.ab.state} word={`→ ${w.ab.word}`} />
              <Mark state={w.ba.state} word={`← ${w.ba.word}`} />
            </span>
          </li>
        ))}
      </ul>
    </Part>
  ) : null;
};

const LinkPanel = ({ l }: { l: Link }) => (
  <Shell kind="Ways between two clusters" title={`${idOf(l.a)} – ${idOf(l.b)}`} state={l.state} word={l.word}>
    <Facts
      rows={[
        [`to ${idOf(l.b)}`, `${l.ab.up} up, ${l.ab.down} down, ${l.ab.unknown} unknown`],
        [`to ${idOf(l.a)}`, `${l.ba.up} up, ${l.ba.down} down, ${l.ba.unknown} unknown`],
        [`as of, ${idOf(l.a)}`, <AsOf cluster={l.a} />],
        [`as of, ${idOf(l.b)}`, <AsOf cluster={l.b} />],
      ]}
    />
    <Ways link={l} />
    <Commands list={l.commands} />
  </Shell>
);

const worst = (w: Way): State => {
  const states = [w.ab.state, w.ba.state];
  return states.includes("bad") ? (states.includes("ok") ? "warn" : "bad") : states.includes("warn") ? "warn" : states.includes("unknown") ? "unknown" : "ok";
};

const remedy = (w: Way): string => {
  const states = [w.ab.state, w.ba.state];
  if (states.every((s) => s === "ok")) return "";
  if (states.includes("bad") && states.includes("ok"))
    return "One end reports the way as down. If that stays, a firewall or NAT between the Gateways may let the tunnel through in one direction only: allow its UDP port both ways (6081 for Geneve, 51821 with WireGuard).";
  if (states.includes("bad"))
    return "Check that both Gateways' Nodes run, and that nothing between them drops the tunnel's UDP port (6081 for Geneve, 51821 with WireGuard).";
  return "";
};

const ms = (seconds: number): string => `${seconds < 0.01 ? (1000 * seconds).toFixed(1) : Math.round(1000 * seconds)} ms`;

// Probes is the result of the probes of a way: time, loss, and size of packets.
const Probes = ({ q }: { q: Quality }) => (
  <p>
    {q.samples ? `There and back p50 ${ms(q.p50)}, p99 ${ms(q.p99)}; ${(100 * q.loss).toFixed(1)} % of ${q.samples} probes lost. ` : ""}
    {q.size ? `Packets of up to ${q.size}${q.size < q.mtu ? ` of ${q.mtu}` : ""} bytes pass.` : ""}
  </p>
);

const Heading = ({ to, d }: { to: string; d: Direction }) => (
  <li>
    <span>to {to}</span>
    <Mark state={d.state} word={d.word} />
    {d.why ? <p>{d.why}</p> : null}
    {d.quality ? <Probes q={d.quality} /> : null}
  </li>
);

const WayPanel = ({ link, a, b }: { link: Link; a?: string; b?: string }) => {
  const { ways } = useWays(link);
  if (!ways) return <p class="dim">Asking for the ways …</p>;
  const way = ways.find((w) => endKey(w.a) === a && endKey(w.b) === b);
  if (!way) return <Gone what={`Way ${a} – ${b}`} />;
  const [x, y] = [`${idOf(link.a)}/${endKey(way.a)}`, `${idOf(link.b)}/${endKey(way.b)}`];
  const state = worst(way);
  const poor = [way.ab, way.ba].find((d) => d.state === "warn");
  const word = { ok: "up", warn: poor ? poor.word : "down in one direction", bad: "down", unknown: "not fully known" }[state];
  return (
    <Shell kind="Way between two Gateways" title={`${x} – ${y}`} state={state} word={word} why={remedy(way)}>
      <Part title="Directions">
        <ul class="rows directions">
          <Heading to={y} d={way.ab} />
          <Heading to={x} d={way.ba} />
        </ul>
      </Part>
      <Facts
        rows={[
          [x, way.a.address],
          [y, way.b.address],
          [`as of, ${idOf(link.a)}`, <AsOf cluster={link.a} />],
          [`as of, ${idOf(link.b)}`, <AsOf cluster={link.b} />],
        ]}
      />
      <p>
        <To sel={["l", link.key]}>
          all ways between {idOf(link.a)} and {idOf(link.b)}
        </To>
      </p>
      <Commands list={link.commands} />
    </Shell>
  );
};

const GatewayPanel = ({ c, address }: { c: Cluster; address?: string }) => {
  const g = c.gateways.find((x) => x.address === address);
  if (!g) return <Gone what={`Gateway ${address}`} />;
  const near = links.value.filter((l) => l.a === c.key || l.b === c.key);
  const node = nodesOf(c.key).find((n) => n.name === g.name);
  return (
    <Shell kind="Gateway" title={g.name || g.address} state={g.state} word={g.word}>
      <Facts
        rows={[
          ["as of", <AsOf cluster={c.key} />],
          ["cluster", <To sel={["c", c.key]}>{c.id}</To>],
          ["address", g.address],
          ["internal", g.internal],
          ["phase", c.context ? g.phase || "in use" : g.phase],
          ["Node", node ? <To sel={["n", c.key, node.name]}>{`${node.name}: ${node.word}`}</To> : ""],
        ]}
      />
      <Problems list={node?.problems} />
      {near.map((l) => (
        <Ways key={l.key} link={l} only={(w) => endKey(l.a === c.key ? w.a : w.b) === (g.name || g.address)} />
      ))}
      <Commands list={g.commands} />
    </Shell>
  );
};

const ServicePanel = ({ s }: { s: Service }) => (
  <Shell
    kind="Service"
    title={`${s.namespace}/${s.name}`}
    state={s.state}
    word={`${s.exports.length} exported, ${s.imports.length} imported`}
  >
    {(
      [
        ["Exported by", s.exports],
        ["Imported in", s.imports],
      ] as const
    ).map(([title, ends]) => (
      <Part key={title} title={ends.length ? title : `${title} no cluster`}>
        {ends.map((e) => (
          <div key={e.cluster} class="end">
            <p class="row">
              <To sel={["c", e.cluster]}>{idOf(e.cluster)}</To>
              <Mark state={e.state} word={e.word} />
            </p>
            <Facts
              rows={[
                ["as of", <AsOf cluster={e.cluster} />],
                ["from", e.from?.join(", ")],
                ["address", e.ips?.join(", ")],
                ["ports", e.ports?.join(", ")],
              ]}
            />
            {e.conditions?.length ? <Conditions list={e.conditions} /> : null}
            <Commands list={e.state === "ok" ? undefined : e.commands} />
          </div>
        ))}
      </Part>
    ))}
  </Shell>
);

const NodePanel = ({ c, name }: { c: Cluster; name?: string }) => {
  const n = nodesOf(c.key).find((x) => x.name === name);
  if (!n) return <Gone what={`Node ${name}`} />;
  return (
    <Shell kind={n.gateway ? "Node, Gateway" : "Node"} title={n.name} state={n.state} word={n.word}>
      <Facts
        rows={[
          ["as of", <AsOf cluster={c.key} />],
          ["cluster", <To sel={["c", c.key]}>{c.id}</To>],
          ["addresses", n.addresses?.join(", ")],
          ["kubelet", n.kubelet],
          ["agent", n.agent],
          ["agent as of", n.asOf ? <Time at={n.asOf} /> : "has not answered"],
        ]}
      />
      <Problems list={n.problems} />
      <Commands list={n.commands} />
    </Shell>
  );
};

const ruleText = (r?: { policy: string; name: string }) => (r ? `${r.policy} ${r.name}` : "");

const RecordPanel = ({ row: { id, cluster, rec } }: { row: Row }) => {
  const c = clusterOf.value.get(cluster);
  const to = rec.to.pod ? `${rec.to.namespace}/${rec.to.pod}` : rec.to.ip;
  return (
    <Shell
      kind={isDrop(rec) ? "Dropped packet" : "Connection"}
      title={`${endText(rec.from)} → ${endText(rec.to)}`}
      state={isDrop(rec) ? "bad" : "ok"}
      word={rec.verdict}
      why={rec.message}
    >
      <Facts
        rows={[
          ["time", <Time at={rec.time} />],
          ["cluster", <To sel={["c", cluster]}>{idOf(cluster)}</To>],
          ["Node", <To sel={["n", cluster, rec.node]}>{rec.node}</To>],
          ["reason", rec.reason],
          ["rule", ruleText(rec.rule)],
          ["let out by", ruleText(rec.egress)],
          ["let in by", ruleText(rec.ingress)],
          ["protocol", rec.protocol],
          ["from", rec.from.ip],
          ["to", rec.to.ip],
          ["VirtualNetwork", rec.network],
          ["VirtualNetwork of to", rec.toNetwork],
          ["Service", rec.service],
          ["asked", rec.asked],
          ["way", rec.way],
          ["table", rec.table],
          ["packets", rec.count],
        ]}
      />
      <Questions row={{ id, cluster, rec }} />
      {c?.observe ? <Commands list={[`${c.observe} --to ${quote(to)}`]} /> : null}
    </Shell>
  );
};

const Gone = ({ what }: { what: string }) => (
  <>
    <h2>{what}</h2>
    <p class="dim">It is not on the map any more.</p>
  </>
);

const Content = ({ sel }: { sel: string }) => {
  const [kind, a = "", b, d] = selected(sel);
  const cluster = clusterOf.value.get(a);
  const link = links.value.find((l) => l.key === a);
  switch (kind) {
    case "d": {
      const row = rows.value.find((r) => r.id === a);
      return row ? <RecordPanel row={row} /> : <Gone what="Record" />;
    }
    case "c":
      return cluster ? <ClusterPanel c={cluster} /> : <Gone what="Cluster" />;
    case "g":
      return cluster ? <GatewayPanel c={cluster} address={b} /> : <Gone what="Gateway" />;
    case "n":
      return cluster ? <NodePanel c={cluster} name={b} /> : <Gone what="Node" />;
    case "l":
      return link ? <LinkPanel l={link} /> : <Gone what="Ways" />;
    case "w":
      return link ? <WayPanel link={link} a={b} b={d} /> : <Gone what="Way" />;
    case "s": {
      const service = services.value?.find((s) => s.namespace === a && s.name === b);
      return service ? <ServicePanel s={service} /> : <Gone what={`Service ${a}/${b}`} />;
    }
  }
  return <Gone what="Selection" />;
};

export const Panel = () => {
  const sel = route.value.sel;
  const ref = useRef<HTMLElement>(null);
  const from = useRef<Element | null>(null);
  useEffect(() => {
    if (!sel) return;
    if (!ref.current?.contains(document.activeElement)) from.current = document.activeElement;
    ref.current?.focus({ preventScroll: true });
    ref.current?.scrollTo(0, 0);
  }, [sel]);
  if (!sel) return null;
  const close = () => {
    go({ sel: "" });
    const back = from.current;
    if (back instanceof HTMLElement || back instanceof SVGElement) back.focus();
  };
  return (
    <aside class="panel" ref={ref} tabIndex={-1} aria-label="Selection" onKeyDown={(e) => e.key === "Escape" && close()}>
      <button type="button" class="close" onClick={close} aria-label="Close">
        ✕
      </button>
      <Content key={sel} sel={sel} />
    </aside>
  );
};
