// Find filters tables, and on the map lists what has a name that matches.
import { useEffect, useRef } from "preact/hooks";
import { Mark } from "./parts";
import { go, route, select } from "./route";
import { allNodes, clusters, links, idOf, services } from "./store";
import { matches } from "./table";
import type { State } from "./types";

interface Hit {
  kind: string;
  name: string;
  state: State;
  word: string;
  sel: string;
}

const most = 12;

const hits = (q: string): Hit[] => {
  const out: Hit[] = [];
  const add = (kind: string, name: string, state: State, word: string, ...sel: string[]) => {
    if (out.length < most && matches(`${kind} ${name} ${word}`, q)) out.push({ kind, name, state, word, sel: select(...sel) });
  };
  for (const c of clusters.value) add("Cluster", c.id, c.state, c.word, "c", c.key);
  for (const c of clusters.value)
    for (const g of c.gateways) add("Gateway", `${c.id}/${g.name || g.address}`, g.state, g.word, "g", c.key, g.address);
  for (const s of services.value ?? []) add("Service", `${s.namespace}/${s.name}`, s.state, "", "s", s.namespace, s.name);
  for (const l of links.value) add("Ways", `${idOf(l.a)} – ${idOf(l.b)}`, l.state, l.word, "l", l.key);
  if (out.length < most)
    for (const { cluster, node } of allNodes.value) add("Node", `${cluster.id}/${node.name}`, node.state, node.word, "n", cluster.key, node.name);
  return out;
};

export const Find = () => {
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const key = (e: KeyboardEvent) => {
      const at = e.target;
      if (e.key !== "/" || at instanceof HTMLInputElement) return;
      e.preventDefault();
      input.current?.focus();
    };
    document.addEventListener("keydown", key);
    return () => document.removeEventListener("keydown", key);
  }, []);
  const { q, view } = route.value;
  const found = view === "map" && q ? hits(q) : [];
  const down = (e: KeyboardEvent) => {
    if (e.key === "Escape") go({ q: "" }, true);
    const first = found[0];
    if (e.key === "Enter" && first) go({ sel: first.sel, q: "" });
  };
  return (
    <div class="find">
      <input
        ref={input}
        type="search"
        placeholder={view === "map" ? "Find  /" : "Filter  /"}
        aria-label={view === "map" ? "Find" : "Filter"}
        value={q}
        onInput={(e) => go({ q: e.currentTarget.value }, true)}
        onKeyDown={down}
      />
      {view === "map" && q ? (
        <ul class="hits" aria-label="Found">
          {found.map((h) => (
            <li key={h.sel}>
              <button type="button" onClick={() => go({ sel: h.sel, q: "" })}>
                <span class="dim">{h.kind}</span> {h.name} <Mark state={h.state} word={h.word} />
              </button>
            </li>
          ))}
          {found.length === 0 ? <li class="dim">Nothing has such a name.</li> : null}
        </ul>
      ) : null}
    </div>
  );
};
