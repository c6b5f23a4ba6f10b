package main

import "fmt"

// alert is one alert of Prometheus. When a series ends, its alert ends too. So a cluster that has left raises no alert.
type alert struct {
	Name     string
	Expr     string
	For      string // how long the expression holds before the alert fires
	Severity string // critical: traffic stops or will stop; warning: look within a day
	Summary  string // one sentence with the labels of the series
	Meaning  string // what has happened, and what it does to traffic
	Remedy   string // the first command or step
}

// alerts are all alerts, in the order of docs/alerts.md.
var alerts = []alert{
	{
		Name: "TomboloAgentNotReady", Expr: `tombolo_agent_ready == 0`, For: "5m", Severity: "critical",
		Summary: "The network of Node {{ $labels.node }} is not ready.",
		Meaning: "The agent runs and has not set up the Node's network. New Pods of the Node get no network. Pods that run " +
			"keep theirs.",
		Remedy: "`tombolo get status` in the agent's Pod names what the agent waits for.",
	},
	{
		Name: "TomboloSwitchDisconnected", Expr: `tombolo_flowsync_connected == 0`, For: "2m", Severity: "critical",
		Summary: "The agent of Node {{ $labels.node }} has no connection to its switch.",
		Meaning: "ovs-vswitchd does not answer on its OpenFlow socket. With the userspace datapath the Node forwards " +
			"nothing. With the kernel's the flows stay as they are.",
		Remedy: "Look at the Pod `tombolo-ovs` of the Node and its log.",
	},
	{
		Name: "TomboloObjectsNotWatched", Expr: `tombolo_agent_unwatched_kinds > 0`, For: "10m", Severity: "warning",
		Summary: "The agent of Node {{ $labels.node }} does not read {{ $value }} kinds of objects.",
		Meaning: "The API server cannot be reached, or denies a kind. The Node keeps what it has and learns of no change.",
		Remedy:  "`tombolo get status` names the kinds and the errors. `tombolo diagnose` checks the API server.",
	},
	{
		Name: "TomboloFlowsRefused", Expr: `tombolo_flowsync_refused > 0`, For: "5m", Severity: "critical",
		Summary: "The switch of Node {{ $labels.node }} refuses {{ $value }} flows, groups or meters.",
		Meaning: "A policy, a Service or a way of these flows does not work on the Node.",
		Remedy:  "`tombolo get status` lists the refused flows with the error of the switch.",
	},
	{
		Name: "TomboloForeignChanges", Expr: `rate(tombolo_flowsync_mended_total[10m]) > 0`, For: "30m",
		Severity: "warning", Summary: "Another program changes the flows of Node {{ $labels.node }}.",
		Meaning: "The agent puts its flows right again and again. Between a change and the repair packets may be lost.",
		Remedy:  "Find the program that writes to the bridge, such as a second CNI plugin, with `tombolo openflow monitor`.",
	},
	{
		Name: "TomboloConntrackNearlyFull", Expr: `tombolo_conntrack_entries / tombolo_conntrack_max > 0.8`, For: "5m",
		Severity: "critical",
		Summary:  "Node {{ $labels.node }} tracks {{ $value | humanizePercentage }} of the connections that it can.",
		Meaning:  "At the limit the datapath drops new connections of any Pod of the Node.",
		Remedy: "`tombolo observe --node NODE --follow` shows who opens connections. Raise " +
			"`net.netfilter.nf_conntrack_max`, or " +
			"with the userspace datapath `ovs-appctl dpctl/ct-set-maxconns`.",
	},
	{
		Name: "TomboloWayDown", Expr: `tombolo_multicluster_way_up == 0`, For: "2m", Severity: "warning",
		Summary: "The way from Node {{ $labels.node }} to {{ $labels.to }} of cluster {{ $labels.cluster }} is down.",
		Meaning: "BFD receives nothing from the far end, or the far end receives nothing. Traffic goes by other Gateways " +
			"of the cluster if there are any.",
		Remedy: "`tombolo diagnose --context A,B` of both clusters names the direction in which packets are lost.",
	},
	{
		Name: "TomboloNoWayToCluster", Expr: `max without (to) (tombolo_multicluster_way_up) == 0`, For: "1m",
		Severity: "critical",
		Summary:  "Node {{ $labels.node }} has no way to cluster {{ $labels.cluster }}.",
		Meaning:  "No Gateway of the cluster can be reached from this one. Requests to the cluster's Services and Pods fail.",
		Remedy:   "`tombolo diagnose --context A,B` of both clusters. `kubectl get gateways -A` shows the Gateways of each.",
	},
	{
		Name: "TomboloWayFlaps", Expr: `changes(tombolo_multicluster_way_up[15m]) > 4`, For: "5m", Severity: "warning",
		Summary: "The way from Node {{ $labels.node }} to {{ $labels.to }} of cluster {{ $labels.cluster }} comes and goes.",
		Meaning: "Each change moves connections to another Gateway or back.",
		Remedy:  "Look for loss on the link: `tombolo get peers -o wide` on the Node has the counters of BFD.",
	},
	{
		Name: "TomboloWayLoss", Expr: `rate(tombolo_multicluster_way_probes_lost_total[5m]) > 0.01`, For: "10m",
		Severity: "warning",
		Summary:  "Packets from Node {{ $labels.node }} to {{ $labels.to }} of cluster {{ $labels.peer }} are lost.",
		Meaning:  "Of one probe a second more than one in a hundred has no answer. Connections to the cluster are slow.",
		Remedy:   "`tombolo get latency` on both Gateways shows loss, time and size of each way.",
	},
	{
		Name: "TomboloNodeNotAnswering", Expr: `increase(tombolo_node_probes_lost_total[5m]) >= 3`, For: "5m",
		Severity: "warning",
		Summary:  "Node {{ $labels.peer_node }} does not answer probes of Node {{ $labels.node }}.",
		Meaning: "At least three probes in five minutes have no answer. Packets between Pods of the two Nodes may be lost. " +
			"With a pingIntervalSeconds of more than 100 this does not fire.",
		Remedy: "`tombolo get latency` shows all Nodes, and `tombolo diagnose` the cause.",
	},
	{
		Name: "TomboloProblems", Expr: `sum without (reason) (tombolo_agent_problems) > 0`, For: "1h", Severity: "warning",
		Summary: "Node {{ $labels.node }} reports {{ $value }} Problems of objects.",
		Meaning: "Parts of objects have no effect: a policy, a Service or a setting that cannot be understood or done.",
		Remedy:  "`tombolo get status` lists them with the field and the remedy.",
	},
	{
		Name: "TomboloPacketsToAgentDropped",
		Expr: `sum without (kind) (rate(tombolo_packets_to_agent_total{result="dropped"}[10m])) > 1`,
		For:  "15m", Severity: "warning",
		Summary: "The agent of Node {{ $labels.node }} drops {{ $value | humanize }} packets a second from its switch.",
		Meaning: "Answers of DNS wait for their time limit, and records of drops are missing. The traffic itself goes on.",
		Remedy:  "`tombolo observe --node NODE --verdict dropped` shows whose packets they are.",
	},
	{
		Name: "TomboloDropsRise",
		Expr: `sum without (reason) (rate(tombolo_dropped_packets_total[5m])) > 100 and ` +
			`sum without (reason) (rate(tombolo_dropped_packets_total[5m])) > ` +
			`10 * sum without (reason) (rate(tombolo_dropped_packets_total[1h] offset 1h))`,
		For: "10m", Severity: "warning",
		Summary: "Node {{ $labels.node }} drops {{ $value | humanize }} packets a second, ten times as many as before.",
		Meaning: "A policy, a route or an attacker has changed. The traffic that is dropped does not arrive.",
		Remedy:  "`tombolo observe --node NODE --verdict dropped` names the rule or the reason of each.",
	},
	{
		Name: "TomboloObserveNodesAbsent", Expr: `tombolo_observe_relay_nodes{state="absent"} > 0`, For: "15m",
		Severity: "warning",
		Summary:  "{{ $value }} Nodes are not connected to the relay.",
		Meaning:  "`tombolo observe` and metrics through the relay miss these Nodes. Traffic is not concerned.",
		Remedy:   "`tombolo observe` names the Nodes. Look at their agents' logs for the relay's certificate or address.",
	},
}

// runbook is the address of an alert's section. base is where docs/ is found.
func (a alert) runbook(base string) string {
	return fmt.Sprintf("%s/alerts.md#%s", base, lower(a.Name))
}
