// Small parts that all views share.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { last, now, skew } from "./store";
import type { Condition, Problem, State } from "./types";

const names: Record<State, string> = { ok: "good", warn: "warning", bad: "bad", unknown: "unknown" };

// Shape is the state as a shape: a disc, a triangle, a cross, a ring. It is drawn around 0, 0.
export const Shape = ({ state, r = 5 }: { state: State; r?: number }) => {
  const c = `shape ${state}`;
  switch (state) {
    case "ok":
      return <circle class={c} r={r} />;
    case "warn":
      return <path class={c} d={`M0 ${-r}L${r} ${r * 0.8}H${-r}Z`} />;
    case "bad":
      return <path class={c} d={`M${-r} ${-r}L${r} ${r}M${r} ${-r}L${-r} ${r}`} />;
    default:
      return <circle class={c} r={r - 1} />;
  }
};

// Mark is a state as shape and word.
export const Mark = ({ state, word, tiny }: { state: State; word: string; tiny?: boolean }) => (
  <span class={`mark ${state}${tiny ? " tiny" : ""}`}>
    <svg viewBox="-7 -7 14 14" width="12" height="12" role="img" aria-label={names[state]}>
      <Shape state={state} />
    </svg>
    <span>{word}</span>
  </span>
);

// quote makes a text one word of a shell, as the server's commands are made.
export const quote = (word: string): string =>
  /^[-a-zA-Z0-9_./:=,@%+]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;

const copied = signal("");

// Command is a command to run, with a button that copies it.
export const Command = ({ text }: { text: string }) => (
  <div class="command">
    <code>{text}</code>
    <button
      type="button"
      onClick={() => {
        void navigator.clipboard.writeText(text).then(() => {
          copied.value = text;
        });
      }}
      aria-label={`Copy the command ${text}`}
    >
      {copied.value === text ? "copied" : "copy"}
    </button>
  </div>
);

export const Commands = ({ list }: { list?: string[] }) =>
  list?.length ? (
    <Part title="To run">
      {list.map((c) => (
        <Command key={c} text={c} />
      ))}
    </Part>
  ) : null;

export const Part = ({ title, children }: { title: string; children: ComponentChildren }) => (
  <section>
    <h3>{title}</h3>
    {children}
  </section>
);

export const Conditions = ({ list }: { list: (Condition & { by?: string })[] }) => (
  <ul class="conditions">
    {list.map((c, i) => (
      <li key={i}>
        <b>{c.type}</b> is <b>{c.status || "Unknown"}</b>
        {c.by ? <span class="dim"> by {c.by}</span> : null}
        {c.reason ? <span class="dim"> {c.reason}</span> : null}
        {c.message ? <p>{c.message}</p> : null}
        {c.since ? (
          <p class="dim">
            since <Time at={c.since} />
          </p>
        ) : null}
      </li>
    ))}
  </ul>
);

export const Problems = ({ list, leftOut = 0 }: { list?: Problem[]; leftOut?: number }) =>
  list?.length ? (
    <Part title={list.length + leftOut === 1 ? "1 problem" : `${list.length + leftOut} problems`}>
      <ul class="problems">
        {list.map((p, i) => (
          <li key={i}>
            <b>{p.reason}</b> <span class="dim">{p.object}</span>
            <p>{p.message}</p>
            {p.command ? <Command text={p.command} /> : null}
          </li>
        ))}
      </ul>
      {leftOut ? <p class="dim">{leftOut} more are not shown.</p> : null}
    </Part>
  ) : null;

const two = (n: number) => String(n).padStart(2, "0");

export const clock = (ms: number): string => {
  const d = new Date(ms);
  const time = `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
  const today = new Date(now.peek()).toDateString() === d.toDateString();
  return today ? time : `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${time}`;
};

const span = (ms: number): string => {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  return s < 48 * 3600 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} d`;
};

// Time is a time of the server, with how long ago it was.
export const Time = ({ at }: { at: string | number }) => {
  const ms = typeof at === "number" ? at : Date.parse(at);
  return (
    <time dateTime={new Date(ms).toISOString()}>
      {clock(ms)} <span class="dim">({span(now.value - ms)} ago)</span>
    </time>
  );
};

// Age is how old the page's newest data is.
export const Age = () => (
  <span class="age">
    as of {last.value ? clock(last.value) : "–"}
    {Math.abs(skew.value) > 5000 ? <span title="The browser's clock differs from the server's"> (server's clock)</span> : null}
  </span>
);

export const count = (n: number, one: string, many = `${one}s`): string => `${n} ${n === 1 ? one : many}`;

// press makes an element of SVG a button.
export const press = (f: () => void) => ({
  role: "button" as const,
  tabindex: 0, // SVG knows no tabIndex
  onClick: (e: Event) => {
    e.stopPropagation();
    f();
  },
  onKeyDown: (e: KeyboardEvent) => {
    if (e.key !== "Enter" && e.key !== " ") return;
    e.preventDefault();
    f();
  },
});
