// Where things are on the map. The same Model has the same layout: clusters are on a ring, by ID.
import type { Cluster, Gateway, State } from "./types";

export const box = { w: 250, h: 92 };
export const tab = { w: 118, h: 24 };
// mostBoxes is the number of clusters up to which each is a box. mostTabs is the number of Gateways up to which each is
// a tab of its box.
export const mostBoxes = 12;
const mostTabs = 4;

export interface Point {
  x: number;
  y: number;
}

export interface Tab extends Point {
  key: string; // address of the Gateway, empty for all
  label: string;
  state: State;
  word: string;
  gateway?: Gateway;
  anchor: Anchor;
}

// Anchor is where lines begin, and the direction in which they leave.
export interface Anchor extends Point {
  nx: number;
  ny: number;
}

export interface Box extends Point {
  cluster: Cluster;
  tabs: Tab[];
}

export interface Layout {
  boxes: Map<string, Box>;
  view: { x: number; y: number; w: number; h: number };
}

const rank: Record<State, number> = { ok: 0, unknown: 1, warn: 2, bad: 3 };

const groupOf = (all: Gateway[]): { state: State; word: string } => {
  const bad = all.filter((g) => g.state === "bad" || g.state === "warn").length;
  const state = all.reduce<State>((s, g) => (rank[g.state] > rank[s] ? g.state : s), "ok");
  return { state, word: bad ? `${bad} of ${all.length} have ways that are down` : state === "ok" ? "all ways up" : "unknown" };
};

const place = (center: Point, cluster: Cluster): Tab[] => {
  const all = cluster.gateways;
  if (all.length === 0) return [];
  const across = Math.abs(center.x) / box.w > Math.abs(center.y) / box.h;
  const grouped = all.length > mostTabs;
  const count = grouped ? 1 : all.length;
  const sign = across ? (center.x > 0 ? -1 : 1) : center.y > 0 ? -1 : 1;
  return Array.from({ length: count }, (_, i) => {
    const off = i - (count - 1) / 2;
    const p: Point = across
      ? { x: center.x + sign * (box.w / 2 + tab.w / 2), y: center.y + off * (tab.h + 6) }
      : { x: center.x + off * (tab.w + 8), y: center.y + sign * (box.h / 2 + tab.h / 2) };
    const anchor: Anchor = across
      ? { x: p.x + (sign * tab.w) / 2, y: p.y, nx: sign, ny: 0 }
      : { x: p.x, y: p.y + (sign * tab.h) / 2, nx: 0, ny: sign };
    const g = all[i];
    if (grouped || !g) return { ...p, anchor, key: "", label: `${all.length} Gateways`, ...groupOf(all) };
    return { ...p, anchor, key: g.address, label: g.name || g.address, state: g.state, word: g.word, gateway: g };
  });
};

export const layout = (clusters: Cluster[]): Layout => {
  const n = clusters.length;
  const rx = n < 2 ? 0 : n === 2 ? 400 : Math.max(390, n * 74);
  const ry = n < 3 ? 0 : Math.max(215, n * 46);
  const boxes = new Map<string, Box>();
  const start = n === 2 ? Math.PI : -Math.PI / 2;
  clusters.forEach((cluster, i) => {
    const angle = start + (2 * Math.PI * i) / n;
    const p = { x: Math.round(rx * Math.cos(angle)), y: Math.round(ry * Math.sin(angle)) };
    boxes.set(cluster.key, { ...p, cluster, tabs: place(p, cluster) });
  });
  const all = [...boxes.values()];
  const xs = all.flatMap((b) => [b.x - box.w / 2, b.x + box.w / 2]);
  const ys = all.flatMap((b) => [b.y - box.h / 2, b.y + box.h / 2, ...b.tabs.flatMap((t) => [t.y - tab.h, t.y + tab.h])]);
  const x = Math.min(-300, ...xs) - 24;
  const y = Math.min(-120, ...ys) - 24;
  return { boxes, view: { x, y, w: Math.max(300, ...xs) + 24 - x, h: Math.max(120, ...ys) + 24 - y } };
};

// ring is the layout of many clusters: a point and an angle for each, on a circle of radius r.
export interface Ring {
  r: number;
  at: Map<string, Point & { angle: number; cluster: Cluster }>;
}

export const ring = (clusters: Cluster[]): Ring => {
  const r = Math.max(240, Math.round((clusters.length * 19) / (2 * Math.PI)));
  const at: Ring["at"] = new Map();
  clusters.forEach((cluster, i) => {
    const angle = -Math.PI / 2 + (2 * Math.PI * i) / clusters.length;
    at.set(cluster.key, { x: r * Math.cos(angle), y: r * Math.sin(angle), angle, cluster });
  });
  return { r, at };
};

// short cuts a text in its middle.
export const short = (text: string, most: number): string =>
  text.length <= most ? text : `${text.slice(0, Math.ceil(most / 2) - 1)}…${text.slice(text.length - Math.floor(most / 2) + 1)}`;

// cut cuts a text at its end.
export const cut = (text: string, most: number): string => (text.length <= most ? text : `${text.slice(0, most - 1).trimEnd()} …`);

// Curve is a cubic curve from a to d.
export interface Curve {
  a: Point;
  b: Point;
  c: Point;
  d: Point;
}

// curve returns the line of one direction: a little to the right, seen from its start, and along the normals at its
// ends.
export const curve = (from: Anchor, to: Anchor, gap: number): Curve => {
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  const ox = (-(to.y - from.y) / length) * gap;
  const oy = ((to.x - from.x) / length) * gap;
  const k = length * 0.3;
  const at = (p: Anchor, far: number): Point => ({ x: p.x + ox + p.nx * far, y: p.y + oy + p.ny * far });
  return { a: at(from, 0), b: at(from, k), c: at(to, k), d: at(to, 0) };
};

export const path = ({ a, b, c, d }: Curve): string =>
  `M${a.x.toFixed(1)} ${a.y.toFixed(1)}C${b.x.toFixed(1)} ${b.y.toFixed(1)} ${c.x.toFixed(1)} ${c.y.toFixed(1)} ${d.x.toFixed(1)} ${d.y.toFixed(1)}`;

// on returns a point of a curve, and its direction in degrees.
export const on = ({ a, b, c, d }: Curve, t: number): Point & { angle: number } => {
  const mix = (f: (p: Point) => number) => {
    const u = 1 - t;
    return [
      u * u * u * f(a) + 3 * u * u * t * f(b) + 3 * u * t * t * f(c) + t * t * t * f(d),
      3 * u * u * (f(b) - f(a)) + 6 * u * t * (f(c) - f(b)) + 3 * t * t * (f(d) - f(c)),
    ] as const;
  };
  const [x, dx] = mix((p) => p.x);
  const [y, dy] = mix((p) => p.y);
  return { x, y, angle: (Math.atan2(dy, dx) * 180) / Math.PI };
};
