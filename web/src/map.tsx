// The map: clusters on a ring, their Gateways, and the ways between them.
import { useMemo } from "preact/hooks";
import { type Anchor, box, type Box, curve, cut, layout, mostBoxes, on, path, type Point, ring, short, tab } from "./layout";
import { count, press, Shape } from "./parts";
import { recent } from "./records";
import { go, route, select, selected } from "./route";
import { clusters, head, idOf, links, services } from "./store";
import type { Cluster, Direction, Link, Service, State, Way } from "./types";

const pick = (...parts: string[]) => press(() => go({ sel: select(...parts) }));
const chosen = (...parts: string[]) => route.value.sel === select(...parts);
const lit = (yes: boolean) => (yes ? " selected" : "");

export const endKey = (e: { name?: string; address: string }) => e.name || e.address;

// Line is one direction, with its state as stroke.
const Line = ({ from, to, d }: { from: Anchor; to: Anchor; d: Direction }) => {
  const c = curve(from, to, 3.5);
  const arrow = on(c, 0.72);
  return (
    <g class={`line ${d.state}`}>
      <path class="stroke" d={path(c)} />
      <path class="arrow" d="M-5 -3.5L4 0L-5 3.5Z" transform={`translate(${arrow.x} ${arrow.y}) rotate(${arrow.angle})`} />
    </g>
  );
};

// Tag is the state of a direction as a shape and, if it is down, a word.
const Tag = ({ from, to, d, word }: { from: Anchor; to: Anchor; d: Direction; word: boolean }) => {
  const mark = on(curve(from, to, 3.5), 0.4);
  const half = d.word.length * 3.1 + 14;
  return (
    <g class={`line ${d.state}`}>
      {d.state === "unknown" ? (
        <g transform={`translate(${mark.x} ${mark.y})`}>
          <Shape state={d.state} r={4} />
        </g>
      ) : null}
      {word && (d.state === "bad" || d.state === "warn") ? (
        <g transform={`translate(${mark.x} ${mark.y})`}>
          <rect class="tag" x={-half} y={-9} width={2 * half} height={18} rx={9} />
          <g transform={`translate(${12 - half} 0)`}>
            <Shape state={d.state} r={4} />
          </g>
          <text x={20 - half} y={4}>
            {d.word}
          </text>
        </g>
      ) : null}
    </g>
  );
};

const Hit = ({ from, to }: { from: Anchor; to: Anchor }) => <path class="hit" d={path(curve(from, to, 0))} />;

const WayLine = ({ link, way, from, to, word }: { link: Link; way: Way; from: Anchor; to: Anchor; word: boolean }) => {
  const [a, b] = [`${idOf(link.a)}/${endKey(way.a)}`, `${idOf(link.b)}/${endKey(way.b)}`];
  const sel = ["w", link.key, endKey(way.a), endKey(way.b)];
  return (
    <g
      class={`way${lit(chosen(...sel))}`}
      {...pick(...sel)}
      aria-label={`Way between ${a} and ${b}: to ${b} ${way.ab.word}, to ${a} ${way.ba.word}`}
    >
      <Hit from={from} to={to} />
      <Line from={from} to={to} d={way.ab} />
      <Line from={to} to={from} d={way.ba} />
      <Tag from={from} to={to} d={way.ab} word={word} />
      <Tag from={to} to={from} d={way.ba} word={word} />
    </g>
  );
};

const directionOf = (c: Link["ab"]): Direction => {
  const all = c.up + c.down + c.unknown;
  if (c.down) return { state: c.up ? "warn" : "bad", word: `${c.down} of ${all} down` };
  if (c.unknown || !all) return { state: "unknown", word: all ? `${c.unknown} of ${all} unknown` : "no ways" };
  return { state: "ok", word: `${c.up} up` };
};

const LinkLine = ({ link, from, to }: { link: Link; from: Anchor; to: Anchor }) => (
  <g
    class={`way${lit(chosen("l", link.key))}`}
    {...pick("l", link.key)}
    aria-label={`Ways between ${idOf(link.a)} and ${idOf(link.b)}: ${link.word}`}
  >
    <Hit from={from} to={to} />
    <Line from={from} to={to} d={directionOf(link.ab)} />
    <Line from={to} to={from} d={directionOf(link.ba)} />
    <Tag from={from} to={to} d={directionOf(link.ab)} word />
    <Tag from={to} to={from} d={directionOf(link.ba)} word />
  </g>
);

const worst = (d: Direction[]): number => Math.max(...d.map((x) => ["ok", "unknown", "warn", "bad"].indexOf(x.state)));

// lines returns the lines of all links, the faulty ones last, so that they are on top.
const lines = (all: Link[], boxes: Map<string, Box>) =>
  all
    .flatMap((link) => {
      const [a, b] = [boxes.get(link.a), boxes.get(link.b)];
      if (!a || !b) return [];
      const at = (x: Box, address: string): Anchor =>
        (x.tabs.find((t) => t.key === address) ?? x.tabs[0])?.anchor ?? { x: x.x, y: x.y, nx: 0, ny: 0 };
      const grouped = !link.ways || a.tabs[0]?.key === "" || b.tabs[0]?.key === "";
      if (grouped) {
        const line = <LinkLine key={link.key} link={link} from={at(a, "")} to={at(b, "")} />;
        return [{ rank: worst([directionOf(link.ab), directionOf(link.ba)]), line }];
      }
      const ways = link.ways ?? [];
      return ways.map((w) => {
        const key = `${link.key} ${w.a.address} ${w.b.address}`;
        const [from, to] = [at(a, addressOf(a, w.a)), at(b, addressOf(b, w.b))];
        return { rank: worst([w.ab, w.ba]), line: <WayLine key={key} link={link} way={w} from={from} to={to} word={ways.length <= 4} /> };
      });
    })
    .sort((x, y) => x.rank - y.rank)
    .map((x) => x.line);

// addressOf returns the address of the tab of an end. Inside WireGuard an end has another address than its Gateway.
const addressOf = (x: Box, end: { name?: string; address: string }): string =>
  x.tabs.find((t) => t.gateway?.name && t.gateway.name === end.name)?.key ?? end.address;

const Title = ({ cluster }: { cluster: Cluster }) => (
  <>
    <g transform="translate(16 22)">
      <Shape state={cluster.state} r={6} />
    </g>
    <text class="name" x={30} y={27}>
      {short(cluster.id, cluster.leader ? 19 : 26)}
    </text>
  </>
);

const ClusterBox = ({ at }: { at: Box }) => {
  const c = at.cluster;
  const drops = recent.value.get(c.key) ?? 0;
  const facts = [
    c.nodes.all ? count(c.nodes.all, "Node") : "",
    c.exports ? `${c.exports} exported` : "",
    c.imports ? `${c.imports} imported` : "",
  ].filter(Boolean);
  return (
    <g class={`cluster ${c.state}${lit(chosen("c", c.key))}`} transform={`translate(${at.x - box.w / 2} ${at.y - box.h / 2})`}>
      <g {...pick("c", c.key)} clip-path="url(#box)" aria-label={`Cluster ${c.id}${c.leader ? ", leader" : ""}: ${c.word}`}>
        <title>{c.id}</title>
        <rect class="frame" width={box.w} height={box.h} rx={8} />
        <Title cluster={c} />
        {c.leader ? (
          <g transform={`translate(${box.w - 62} 12)`}>
            <rect class="badge" width={50} height={18} rx={9} />
            <text class="badge-text" x={25} y={13} text-anchor="middle">
              leader
            </text>
          </g>
        ) : null}
        <text class={`word ${c.state}`} x={16} y={48}>
          {cut(c.word, 36)}
        </text>
        <text class="dim" x={16} y={65}>
          {cut([c.version ? `Kubernetes ${c.version}` : "", c.problems?.length ? count(c.problems.length, "problem") : ""].filter(Boolean).join(" · ") || c.why || "", 38)}
        </text>
        <text class="dim" x={16} y={81}>
          {facts.join(" · ")}
        </text>
      </g>
      {drops ? (
        <g
          transform={`translate(0 ${(at.tabs[0]?.y ?? 0) > at.y + box.h / 2 ? -15 : box.h + 15})`}
          {...press(() => go({ view: "drops", q: c.id, sel: "" }))}
          aria-label={`${count(drops, "packet")} dropped in ${c.id} in the last minute`}
        >
          <rect class="hit-box" x={8} y={-11} width={200} height={20} />
          <g transform="translate(16 0)">
            <Shape state="bad" r={4} />
          </g>
          <text class="word bad" x={28} y={4}>
            {count(drops, "packet")} dropped in a minute
          </text>
        </g>
      ) : null}
    </g>
  );
};

const Tabs = ({ at }: { at: Box }) => (
  <>
    {at.tabs.map((t) => {
      const sel = t.gateway ? ["g", at.cluster.key, t.key] : ["c", at.cluster.key];
      return (
        <g
          key={t.key}
          class={`tab ${t.state}${lit(chosen(...sel))}`}
          transform={`translate(${t.x - tab.w / 2} ${t.y - tab.h / 2})`}
          clip-path="url(#tab)"
          {...pick(...sel)}
          aria-label={`Gateway ${t.label} of ${at.cluster.id}: ${t.gateway?.phase ? `${t.gateway.phase}, ` : ""}${t.word}`}
        >
          <title>{t.label}</title>
          <rect width={tab.w} height={tab.h} rx={5} />
          <g transform="translate(13 12)">
            <Shape state={t.state} r={4.5} />
          </g>
          <text x={24} y={16}>
            {short(t.gateway?.phase ? `${short(t.label, 8)} ${t.gateway.phase}` : t.label, 15)}
          </text>
        </g>
      );
    })}
  </>
);

// Flow shows who imports the selected Service from whom.
const Flow = ({ service, at }: { service: Service; at: (key: string) => Point | undefined }) => (
  <g class="flow" aria-hidden="true">
    {service.imports.flatMap((i) =>
      service.exports
        .filter((e) => e.cluster !== i.cluster)
        .map((e) => {
          const [a, b] = [at(e.cluster), at(i.cluster)];
          if (!a || !b) return null;
          const m = { x: (a.x + b.x) / 2 - (b.y - a.y) * 0.18, y: (a.y + b.y) / 2 + (b.x - a.x) * 0.18 };
          return <path key={`${e.cluster} ${i.cluster}`} class={i.state} d={`M${a.x} ${a.y}Q${m.x} ${m.y} ${b.x} ${b.y}`} />;
        }),
    )}
  </g>
);

const selectedService = (): Service | undefined => {
  const [kind, namespace, name] = selected(route.value.sel);
  return kind === "s" ? services.value?.find((s) => s.namespace === namespace && s.name === name) : undefined;
};

const Boxes = () => {
  const { boxes, view } = useMemo(() => layout(clusters.value), [clusters.value]);
  const flow = selectedService();
  return (
    <svg class="map" viewBox={`${view.x} ${view.y} ${view.w} ${view.h}`} role="group" aria-label="Map of the ClusterSet">
      <defs>
        <clipPath id="box">
          <rect x={-2} y={-2} width={box.w + 4} height={box.h + 4} rx={9} />
        </clipPath>
        <clipPath id="tab">
          <rect x={-2} y={-2} width={tab.w + 4} height={tab.h + 4} rx={6} />
        </clipPath>
      </defs>
      {lines(links.value, boxes)}
      {[...boxes.values()].map((b) => (
        <Tabs key={b.cluster.key} at={b} />
      ))}
      {flow ? <Flow service={flow} at={(key) => boxes.get(key)} /> : null}
      {[...boxes.values()].map((b) => (
        <ClusterBox key={b.cluster.key} at={b} />
      ))}
    </svg>
  );
};

// Ring is the map of many clusters. Links whose ways are all up are one line of the drawing.
const Ring = () => {
  const { r, at } = useMemo(() => ring(clusters.value), [clusters.value]);
  const [kind, key] = selected(route.value.sel);
  const chord = (l: Link): string => {
    const [a, b] = [at.get(l.a), at.get(l.b)];
    return a && b ? `M${a.x.toFixed(1)} ${a.y.toFixed(1)}Q${((a.x + b.x) * 0.15).toFixed(1)} ${((a.y + b.y) * 0.15).toFixed(1)} ${b.x.toFixed(1)} ${b.y.toFixed(1)}` : "";
  };
  const paths = useMemo(() => {
    const of = (s: State) => links.value.filter((l) => l.state === s).map(chord).join("");
    return { ok: of("ok"), unknown: of("unknown") };
  }, [links.value, at]);
  const faulty = links.value.filter((l) => l.state === "bad" || l.state === "warn");
  const near = kind === "c" ? links.value.filter((l) => l.a === key || l.b === key) : [];
  const flow = selectedService();
  const edge = r + 190;
  return (
    <svg class="map ring" viewBox={`${-edge} ${-edge} ${2 * edge} ${2 * edge}`} role="group" aria-label="Map of the ClusterSet">
      <path class="chords ok" d={paths.ok} />
      <path class="chords unknown" d={paths.unknown} />
      {near.map((l) => (
        <path key={l.key} class={`chord near ${l.state}`} d={chord(l)} />
      ))}
      {faulty.map((l) => (
        <g
          key={l.key}
          class={`chord ${l.state}${lit(chosen("l", l.key))}`}
          {...pick("l", l.key)}
          aria-label={`Ways between ${idOf(l.a)} and ${idOf(l.b)}: ${l.word}`}
        >
          <path class="hit" d={chord(l)} />
          <path d={chord(l)} />
        </g>
      ))}
      {flow ? <Flow service={flow} at={(k) => at.get(k)} /> : null}
      {[...at.values()].map((p) => {
        const left = p.angle > Math.PI / 2;
        const degrees = (p.angle * 180) / Math.PI;
        return (
          <g
            key={p.cluster.key}
            class={`spoke ${p.cluster.state}${lit(chosen("c", p.cluster.key))}`}
            transform={`rotate(${degrees}) translate(${r} 0)`}
            {...pick("c", p.cluster.key)}
            aria-label={`Cluster ${p.cluster.id}${p.cluster.leader ? ", leader" : ""}: ${p.cluster.word}`}
          >
            <title>{`${p.cluster.id}: ${p.cluster.word}`}</title>
            <rect class="hit" x={-4} y={-9} width={170} height={18} />
            <g transform={`translate(6 0) rotate(${-degrees})`}>
              <Shape state={p.cluster.state} r={5} />
            </g>
            <text x={left ? -16 : 16} y={4} transform={left ? "rotate(180)" : ""} text-anchor={left ? "end" : "start"}>
              {short(p.cluster.id, 20)}
              {p.cluster.leader ? " (leader)" : ""}
            </text>
          </g>
        );
      })}
    </svg>
  );
};

const Legend = () => (
  <div class="legend">
    {(
      [
        ["ok", "up"],
        ["warn", "some down"],
        ["bad", "down"],
        ["unknown", "not known"],
      ] as const
    ).map(([state, word]) => (
      <span key={state} class={`mark ${state}`}>
        <svg viewBox="-20 -7 40 14" width="40" height="14" aria-hidden="true">
          <g class={`line ${state}`}>
            <path class="stroke" d="M-20 0H20" />
          </g>
          <Shape state={state} r={4.5} />
        </svg>
        {word}
      </span>
    ))}
    {head.value.grouped ? <span class="dim">ways are grouped by pairs of clusters</span> : null}
  </div>
);

export const MapView = () => {
  const n = clusters.value.length;
  if (n === 0)
    return (
      <div class="empty">
        <p>There is no cluster yet.</p>
        <p class="dim">Start tombolo ui with --context, once for each cluster of the ClusterSet.</p>
      </div>
    );
  return (
    <div class="canvas" onClick={() => route.value.sel && go({ sel: "" })}>
      {n <= mostBoxes ? <Boxes /> : <Ring />}
      <Legend />
    </div>
  );
};
