// Table draws the visible rows of a long table.
import { useEffect, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";

const height = 30;

export interface Column<T> {
  title: string;
  width: string; // of CSS grid
  cell: (row: T) => ComponentChildren;
}

export const Table = <T,>({ label, rows, columns, keyOf, onPick, isPicked, none }: {
  label: string;
  rows: T[];
  columns: Column<T>[];
  keyOf: (row: T) => string;
  onPick?: (row: T) => void;
  isPicked?: (row: T) => boolean;
  none: string;
}) => {
  const ref = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [room, setRoom] = useState(800);
  useEffect(() => {
    const e = ref.current;
    if (!e) return;
    const observer = new ResizeObserver(() => setRoom(e.clientHeight));
    observer.observe(e);
    return () => observer.disconnect();
  }, []);
  const first = Math.max(0, Math.floor(top / height) - 8);
  const shown = rows.slice(first, first + Math.ceil(room / height) + 16);
  const grid = { gridTemplateColumns: columns.map((c) => c.width).join(" ") };
  // Arrow keys move between rows, also to rows that are not drawn yet.
  const move = (e: KeyboardEvent, at: number) => {
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1, PageDown: at + 20, PageUp: at - 20 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    const i = Math.min(Math.max(to, 0), rows.length - 1);
    const body = ref.current;
    if (!body) return;
    if (i * height < body.scrollTop) body.scrollTop = i * height;
    if ((i + 2) * height > body.scrollTop + room) body.scrollTop = (i + 2) * height - room;
    requestAnimationFrame(() => requestAnimationFrame(() => body.querySelector<HTMLElement>(`[aria-rowindex="${i + 2}"]`)?.focus()));
  };
  return (
    <div class="table" role="table" aria-label={label} aria-rowcount={rows.length + 1} ref={ref} onScroll={(e) => setTop(e.currentTarget.scrollTop)}>
      <div class="tr th" role="row" aria-rowindex={1} style={grid}>
        {columns.map((c) => (
          <div key={c.title} role="columnheader">
            {c.title}
          </div>
        ))}
      </div>
      {rows.length === 0 ? <p class="none">{none}</p> : null}
      <div class="body" role="rowgroup" style={{ height: `${rows.length * height}px` }}>
        {shown.map((row, i) => (
          <div
            key={keyOf(row)}
            class={`tr${isPicked?.(row) ? " selected" : ""}${onPick ? " pick" : ""}`}
            role="row"
            aria-rowindex={first + i + 2}
            tabIndex={onPick ? 0 : undefined}
            style={{ ...grid, transform: `translateY(${(first + i) * height}px)` }}
            onClick={() => onPick?.(row)}
            onKeyDown={(e) => {
              if (e.target === e.currentTarget && (e.key === "Enter" || e.key === " ")) {
                e.preventDefault();
                onPick?.(row);
              } else move(e, first + i);
            }}
          >
            {columns.map((c) => (
              <div key={c.title} role="cell">
                {c.cell(row)}
              </div>
            ))}
          </div>
        ))}
      </div>
    </div>
  );
};

// matches reports whether a text has all words of a filter.
export const matches = (text: string, filter: string): boolean => {
  const lower = text.toLowerCase();
  return filter.toLowerCase().split(/\s+/).every((word) => lower.includes(word));
};
