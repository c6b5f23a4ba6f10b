// The Model of pkg/observe/ui/model.go.

export type State = "ok" | "unknown" | "warn" | "bad";

export interface Condition {
  type: string;
  status: string;
  reason?: string;
  message?: string;
  since?: string;
}

export interface Problem {
  object: string;
  reason: string;
  message: string;
  command?: string;
}

export interface Gateway {
  name?: string;
  address: string;
  internal?: string;
  phase?: string;
  state: State;
  word: string;
  commands?: string[];
}

export interface Cluster {
  key: string;
  id: string;
  clusterSet?: string;
  context?: string;
  state: State;
  word: string;
  why?: string;
  version?: string;
  agents?: string[];
  leader?: boolean;
  services?: string[];
  pods?: string[];
  gateways: Gateway[];
  seen?: { by: string; kind: string; condition: Condition }[];
  policies?: Record<string, number>;
  nodes: { all: number; ready: number; asked: number; answered: number };
  exports: number;
  imports: number;
  problems?: Problem[];
  leftOut?: number;
  commands?: string[];
  observe?: string;
}

export interface Count {
  up: number;
  down: number;
  unknown: number;
}

export interface End {
  name?: string;
  address: string;
}

export interface Direction {
  state: State;
  word: string;
  why?: string;
  quality?: Quality;
}

// Quality is what probes of a way have found out. Times are in seconds.
export interface Quality {
  p50: number;
  p99: number;
  loss: number;
  samples: number;
  size: number;
  mtu: number;
}

export interface Way {
  a: End;
  b: End;
  ab: Direction;
  ba: Direction;
}

export interface Link {
  key: string;
  a: string;
  b: string;
  state: State;
  word: string;
  ab: Count;
  ba: Count;
  ways?: Way[];
  commands?: string[];
}

export interface ServiceEnd {
  cluster: string;
  state: State;
  word: string;
  conditions?: Condition[];
  from?: string[];
  ips?: string[];
  ports?: string[];
  commands?: string[];
}

export interface Service {
  namespace: string;
  name: string;
  state: State;
  exports: ServiceEnd[];
  imports: ServiceEnd[];
}

export interface Node {
  name: string;
  state: State;
  word: string;
  ready: string;
  gateway?: boolean;
  addresses?: string[];
  kubelet?: string;
  agent?: string;
  asOf?: string;
  problems?: Problem[];
  commands?: string[];
}

export interface Change {
  time: string;
  cluster?: string;
  object: string;
  from: string;
  to: string;
  state: State;
}

export interface Head {
  clusterSets: string[] | null;
  started: string;
  grouped?: boolean;
}

export interface Update {
  now: string;
  full?: boolean;
  set?: Record<string, unknown>;
  gone?: string[];
}
