package main

// board is one dashboard of Grafana.
type board struct {
	UID, Title, Description string
	Panels                  []panel
}

// panel is a graph over time.
type panel struct {
	Title, Description, Unit string
	Queries                  []query
}

// query is a query of Prometheus and the text of its legend.
type query struct{ Expr, Legend string }

// on limits a query to the Nodes and clusters that are chosen on the board.
const on = `node=~"$node"`

// boards are all dashboards.
var boards = []board{
	{
		UID: "tombolo-clusterset", Title: "Tombolo: ClusterSet",
		Description: "The leader's and the members' controllers: who is connected, and which exports and imports work.",
		Panels: []panel{
			{"Members by state", "The leader removes a member that is disconnected for 24 hours.", "short",
				[]query{{`sum by (namespace, state) (tombolo_multicluster_member_info)`, "{{namespace}} {{state}}"}}},
			{"Time since the last heartbeat of members", "Members report every ten seconds.", "s",
				[]query{{`time() - max by (namespace, peer) (tombolo_multicluster_member_last_report_timestamp_seconds)`,
					"{{peer}}"}}},
			{"Members that are connected to their leader", "0: kubectl describe clusterset shows the error.", "short",
				[]query{{`max without (pod, instance) (tombolo_multicluster_leader_connected)`, "{{namespace}}"}}},
			{"Time since the leader accepted an announcement", "This cluster announces itself every ten seconds.", "s",
				[]query{{`time() - max without (pod, instance) (tombolo_multicluster_leader_last_sync_timestamp_seconds)`,
					"{{namespace}}"}}},
			{"Other clusters by state", "gone: no packet reaches it. withdrawn: the leader lacks its announcement.", "short",
				[]query{{`sum by (state) (tombolo_multicluster_peer_info)`, "{{state}}"}}},
			{"Exports of Services by state", "The conditions of ServiceExports have the fault of failed ones.", "short",
				[]query{{`sum by (state) (tombolo_multicluster_exports)`, "{{state}}"}}},
			{"Imports of Services by state", "skipped: the Namespace does not exist in this cluster.", "short",
				[]query{{`sum by (state) (tombolo_multicluster_imports)`, "{{state}}"}}},
			{"Conflicts by reason", "Exports of a Service that contradict each other, here and at the leader.", "short",
				[]query{{`sum by (reason) (tombolo_multicluster_conflicts)`, "{{reason}}"},
					{`sum by (reason) (tombolo_multicluster_leader_conflicts)`, "leader {{reason}}"}}},
			{"ResourceExports at the leader by state", "The conditions of failed ones have the fault.", "short",
				[]query{{`sum by (state) (tombolo_multicluster_leader_exports)`, "{{state}}"}}},
			{"Problems of the controllers by reason", "Events and conditions have the object and the remedy.", "short",
				[]query{{`sum by (reason) (tombolo_multicluster_problems)`, "{{reason}}"},
					{`sum by (reason) (tombolo_multicluster_leader_problems)`, "leader {{reason}}"}}},
		},
	},
	{
		UID: "tombolo-ways", Title: "Tombolo: ways between clusters",
		Description: "From which Node to which Gateway of which cluster packets get through.",
		Panels: []panel{
			{"Ways that are up", "A cluster without a way is cut off: tombolo diagnose names the lost direction.", "short",
				[]query{{`sum by (cluster) (tombolo_multicluster_way_up{` + on + `})`, "{{cluster}}"}}},
			{"Ways that are down", "The Node and the far end of each way that is down now.", "short",
				[]query{{`tombolo_multicluster_way_up{` + on + `} == 0`, "{{node}} to {{to}} of {{cluster}}"}}},
			{"Changes of ways", "Each change moves connections to another Gateway or back.", "short",
				[]query{{`changes(tombolo_multicluster_way_up{` + on + `}[$__rate_interval])`, "{{node}} to {{to}}"}}},
			{"Round-trip time of ways", "Of probes that the far Gateway's switch sends back, 99th percentile.", "s",
				[]query{{`histogram_quantile(0.99, sum by (le, peer, to) (rate(tombolo_multicluster_way_rtt_seconds_bucket{` + on +
					`}[$__rate_interval])))`, "{{to}} of {{peer}}"}}},
			{"Lost probes of ways", "One probe is sent a second.", "percentunit",
				[]query{{`rate(tombolo_multicluster_way_probes_lost_total{` + on + `}[$__rate_interval])`,
					"{{node}} to {{to}} of {{peer}}"}}},
			{"Largest packet of ways", "A fall below the Pods' MTU makes large packets vanish.", "bytes",
				[]query{{`tombolo_multicluster_way_packet_size_bytes{` + on + `}`, "{{node}} to {{to}} of {{peer}}"}}},
			{"Time from an export to flows", "From the time of a change to flows in switches, 99th percentile.", "s",
				[]query{{`histogram_quantile(0.99, sum by (le, hop) (rate(tombolo_propagation_seconds_bucket{` + on +
					`}[$__rate_interval])))`, "{{hop}}"}}},
		},
	},
	{
		UID: "tombolo-policies", Title: "Tombolo: policies and drops",
		Description: "Dropped packets, and the rules that drop them.",
		Panels: []panel{
			{"Dropped packets by reason", "tombolo observe --verdict dropped shows the ends and the rule of each.", "pps",
				[]query{{`sum by (reason) (rate(tombolo_dropped_packets_total{` + on + `}[$__rate_interval]))`, "{{reason}}"}}},
			{"Packets judged by rules", "Packets that open connections, by the ten rules that judge most.", "pps",
				[]query{{`topk(10, sum by (kind, namespace, policy, direction, index, action) ` +
					`(rate(tombolo_policy_rule_packets_total{` + on + `}[$__rate_interval])))`,
					"{{kind}} {{namespace}}/{{policy}} {{direction}}[{{index}}] {{action}}"}}},
			{"Denied by isolation", "Packets of isolated Pods that no rule allows.", "pps",
				[]query{{`sum by (node, direction) (rate(tombolo_policy_isolation_dropped_packets_total{` + on +
					`}[$__rate_interval]))`, "{{node}} {{direction}}"}}},
			{"Flows of policies", "By Namespace. Many flows make each change slower.", "short",
				[]query{{`topk(10, sum by (namespace) (tombolo_policy_flows{` + on + `}))`, "{{namespace}}"}}},
			{"Answers of DNS under rules with names", "late: the answer reached the Pod before its flows were confirmed.", "ops",
				[]query{{`sum by (result) (rate(tombolo_dns_answers_total{` + on + `}[$__rate_interval]))`, "{{result}}"}}},
		},
	},
	{
		UID: "tombolo-nodes", Title: "Tombolo: Nodes and switches",
		Description: "The state of each Node's network, and the work of the agent.",
		Panels: []panel{
			{"Nodes that are not ready", "tombolo get status on the Node names what the agent waits for.", "short",
				[]query{{`tombolo_agent_ready{` + on + `} == 0`, "{{node}}"}}},
			{"Problems by reason", "tombolo get status lists them with field and remedy.", "short",
				[]query{{`sum by (reason) (tombolo_agent_problems{` + on + `})`, "{{reason}}"}}},
			{"Tracked connections", "Beyond the limit new connections are dropped.", "percentunit",
				[]query{{`tombolo_conntrack_entries{` + on + `} / tombolo_conntrack_max{` + on + `}`, "{{node}}"}}},
			{"Flows and groups wanted", "The agent keeps so many in the switch.", "short",
				[]query{{`tombolo_flowsync_flows_wanted{` + on + `}`, "{{node}} flows"},
					{`tombolo_flowsync_groups_wanted{` + on + `}`, "{{node}} groups"}}},
			{"Refused and mended", "Refused: the switch takes a flow not. Mended: another program changed a flow.", "short",
				[]query{{`tombolo_flowsync_refused{` + on + `}`, "{{node}} refused"},
					{`increase(tombolo_flowsync_mended_total{` + on + `}[$__rate_interval])`, "{{node}} mended"}}},
			{"Time of a pass", "To evaluate what has changed, 99th percentile.", "s",
				[]query{{`histogram_quantile(0.99, sum by (le, node) (rate(tombolo_derive_pass_seconds_bucket{` + on +
					`}[$__rate_interval])))`, "{{node}}"}}},
			{"Packets to the agent", "By what became of them. Dropped ones are missing in records.", "pps",
				[]query{{`sum by (kind, result) (rate(tombolo_packets_to_agent_total{` + on + `}[$__rate_interval]))`,
					"{{kind}} {{result}}"}}},
			{"Nodes at the relay", "Absent Nodes are missing in tombolo observe.", "short",
				[]query{{`tombolo_observe_relay_nodes`, "{{state}}"}}},
		},
	},
}
