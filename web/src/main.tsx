import { render } from "preact";
import { Find } from "./find";
import { MapView } from "./map";
import { Panel } from "./panel";
import { Age, count, Mark } from "./parts";
import { format, route, type View, views } from "./route";
import { allNodes, clusters, connection, follow, head, last, links, now, present, services } from "./store";
import { DropsView, NodesView, ServicesView, TimelineView } from "./tables";
import type { State } from "./types";

const titles: Record<View, string> = { map: "Map", services: "Services", nodes: "Nodes", drops: "Drops", timeline: "Timeline" };

// staleAfter is the time without a message after which the page no longer shows states as those of now.
const staleAfter = 15_000;

// tally counts the clusters, Nodes and Services in a state: "1 cluster, 2 Nodes".
const tally = (state: State): string =>
  (
    [
      [clusters.value, "cluster"],
      [allNodes.value.map((n) => n.node), "Node"],
      [services.value ?? [], "Service"],
    ] as [{ state: State }[], string][]
  )
    .map(([all, one]) => [all.filter((x) => x.state === state).length, one] as const)
    .filter(([n]) => n > 0)
    .map(([n, one]) => count(n, one))
    .join(", ");

// Summary says what is not well. It is green only if every part is.
const Summary = () => {
  const ways = (which: "down" | "unknown"): string => {
    const n = links.value.reduce((sum, l) => sum + l.ab[which] + l.ba[which], 0);
    return n ? `${count(n, "direction")} ${which}` : "";
  };
  const problems = clusters.value.reduce((n, c) => n + (c.problems?.length ?? 0) + (c.leftOut ?? 0), 0);
  const [bad, warn, dark] = [tally("bad"), tally("warn"), tally("unknown")];
  const marks: [State, string][] = [
    ["bad", [ways("down"), bad ? `${bad} bad` : ""].filter(Boolean).join(", ")],
    ["warn", problems ? count(problems, "problem") : warn ? `${warn} with problems` : ""],
    ["unknown", dark ? `${dark} not known` : ways("unknown") || (links.value.some((l) => l.state === "unknown") ? "no ways" : "")],
  ];
  const shown = marks.filter(([, word]) => word);
  return (
    <div class="summary" role="status">
      {shown.map(([state, word]) => (
        <Mark key={state} state={state} word={word} />
      ))}
      {shown.length === 0 && clusters.value.length ? <Mark state="ok" word="nothing is down" /> : null}
    </div>
  );
};

const App = () => {
  const c = connection.value;
  const view = route.value.view;
  const stale = c.word !== "live" || (last.value > 0 && now.value - last.value > staleAfter);
  if (c.word === "refused")
    return (
      <main class="empty">
        <p>{c.why}</p>
      </main>
    );
  return (
    <div class={stale ? "app stale" : "app"}>
      <header>
        <h1>
          <img src="icon.svg" alt="" width="18" height="18" />
          {head.value.clusterSets?.length ? head.value.clusterSets.join(", ") : "Tombolo"}
        </h1>
        <nav aria-label="Views">
          {views.map((v) => (
            <a key={v} href={format({ ...route.value, view: v, q: "" })} aria-current={v === view ? "page" : undefined}>
              {titles[v]}
            </a>
          ))}
        </nav>
        <Summary />
        <Find />
        <Age />
      </header>
      {stale ? (
        <p class="banner" role="alert">
          {c.word === "connecting" ? "Connecting to tombolo ui …" : `tombolo ui does not answer. The page is not of now. ${c.why ?? ""}`}
        </p>
      ) : null}
      <main>
        {view === "map" ? <MapView /> : null}
        {view === "services" ? <ServicesView /> : null}
        {view === "nodes" ? <NodesView /> : null}
        {view === "drops" ? <DropsView /> : null}
        {view === "timeline" ? <TimelineView /> : null}
        <Panel />
      </main>
    </div>
  );
};

const root = document.getElementById("app");
if (root) render(<App />, root);
void present().then(() => {
  if (connection.value.word !== "refused") void follow();
});
