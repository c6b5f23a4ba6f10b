import { render } from "preact";
import { Find } from "./find";
import { MapView } from "./map";
import { Panel } from "./panel";
import { Age, count, Mark } from "./parts";
import { format, route, type View, views } from "./route";
import { clusters, connection, follow, head, last, links, now, present } from "./store";
import { DropsView, NodesView, ServicesView, TimelineView } from "./tables";

const titles: Record<View, string> = { map: "Map", services: "Services", nodes: "Nodes", drops: "Drops", timeline: "Timeline" };

// staleAfter is the time without a message after which the page no longer shows states as those of now.
const staleAfter = 15_000;

const Summary = () => {
  const bad = links.value.reduce((n, l) => n + l.ab.down + l.ba.down, 0);
  const problems = clusters.value.reduce((n, c) => n + (c.problems?.length ?? 0) + (c.leftOut ?? 0), 0);
  const dark = clusters.value.filter((c) => c.state === "unknown").length;
  return (
    <div class="summary" role="status">
      {bad ? <Mark state="bad" word={`${bad} ${bad === 1 ? "direction" : "directions"} down`} /> : null}
      {problems ? <Mark state="warn" word={count(problems, "problem")} /> : null}
      {dark ? <Mark state="unknown" word={`${count(dark, "cluster")} not known`} /> : null}
      {!bad && !problems && !dark && clusters.value.length ? <Mark state="ok" word="nothing is down" /> : null}
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
