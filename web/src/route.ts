// The hash of the URL holds the state of the page: #/VIEW?sel=SELECTION&q=FILTER. Each selection is an entry of the
// history; a filter replaces the present one.
import { signal } from "@preact/signals";

export const views = ["map", "services", "nodes", "drops", "timeline"] as const;
export type View = (typeof views)[number];

export interface Route {
  view: View;
  sel: string;
  q: string;
}

export const parse = (hash: string): Route => {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const params = new URLSearchParams(query);
  const view = views.find((v) => v === path) ?? "map";
  return { view, sel: params.get("sel") ?? "", q: params.get("q") ?? "" };
};

export const format = (r: Route): string => {
  const params = new URLSearchParams();
  if (r.sel) params.set("sel", r.sel);
  if (r.q) params.set("q", r.q);
  const query = params.toString();
  return `#/${r.view}${query ? `?${query}` : ""}`;
};

export const route = signal<Route>(parse(location.hash));

window.addEventListener("hashchange", () => {
  route.value = parse(location.hash);
});

export const go = (change: Partial<Route>, replace = false): void => {
  const next = { ...route.value, ...change };
  const hash = format(next);
  if (hash === location.hash) return;
  route.value = next;
  if (replace) history.replaceState(null, "", hash);
  else history.pushState(null, "", hash);
};

window.addEventListener("popstate", () => {
  route.value = parse(location.hash);
});

// A selection is a letter and parts, each encoded: c CLUSTER, g CLUSTER ADDRESS, l LINK, w LINK A B, s NAMESPACE NAME,
// n CLUSTER NODE, d RECORD.
export const select = (...parts: string[]): string => parts.map(encodeURIComponent).join("~");
export const selected = (sel: string): string[] => {
  try {
    return sel.split("~").map(decodeURIComponent);
  } catch {
    return [""];
  }
};
