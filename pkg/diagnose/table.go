package diagnose

// checks are all checks, in the order in which they run: the cause of a fault comes before its effects. A code is never
// used for another check. The entries of docs/diagnose.md are made from this table.
var checks = []Check{
	{
		Code: "TD001", Name: "API server", Severity: Critical, all: apiServers, faults: true,
		Cause: "The API server of a cluster does not answer, or refuses the user. Nothing else is known of the cluster, " +
			"and the checks of it are unknown.",
		Remedy: "Check the context of the kubeconfig, the network to the API server, and the user's credentials " +
			"(`kubectl --context NAME get --raw /version`).",
	},
	{
		Code: "TD002", Name: "clocks", Severity: Warning, all: clocks,
		Cause: "The clocks of two API servers differ by more than 30 s. Tokens may be refused, and a member may look " +
			"silent " +
			"to the leader.",
		Remedy: "Run NTP on the Nodes of both control planes (`chronyc tracking`).",
	},
	{
		Code: "TD003", Name: "Nodes", Severity: Critical, each: nodesReady, needs: []Kind{Nodes},
		Cause:  "A Node is not Ready for another reason than its network.",
		Remedy: "Read the conditions of the Node and the log of its kubelet.",
	},
	{
		Code: "TD004", Name: "clocks of Nodes", Severity: Warning, each: nodeClocks, agents: true,
		Cause: "The clock of a Node differs from the API server's by more than 30 s. Records of `tombolo observe` are in a " +
			"wrong order, and tokens and certificates may be refused on the Node.",
		Remedy: "Run NTP on the Node (`chronyc tracking`).",
	},
	{
		Code: "TD010", Name: "agents run", Severity: Critical, each: agentsRun, needs: []Kind{Nodes},
		Cause: "A Node has no running Pod of tombolo-agent: the Pod waits, crashes, or was not made. Pods of the Node keep " +
			"the network that they have; new Pods get no network.",
		Remedy: "Read the events of the Pod and the previous log of the container tombolo-agent. If there is no Pod, look " +
			"at " +
			"the taints of the Node and at the DaemonSet's selector.",
	},
	{
		Code: "TD011", Name: "agents answer", Severity: Critical, each: agentsAnswer,
		Cause: "The agent runs and does not answer on its socket, or the API server does not reach the kubelet of the Node.",
		Remedy: "Read the log of the agent. If `kubectl exec` into other Pods of the Node fails too, the way from the API " +
			"server " +
			"to the kubelet (TCP port 10250) is cut.",
	},
	{
		Code: "TD012", Name: "agents are ready", Severity: Critical, each: agentsReady, agents: true,
		Cause: "The agent waits for something: the OVSDB, the switch, the Node's podCIDR, or objects that it may not " +
			"watch. The " +
			"result names it.",
		Remedy: "Mend what it waits for. `tombolo get status` in the Pod has all of it.",
	},
	{
		Code: "TD013", Name: "flows", Severity: Critical, each: flowsTaken, agents: true,
		Cause: "The switch refuses flows of the agent, or the connection to it is lost. Traffic that needs the flows is " +
			"dropped.",
		Remedy: "The switch's reason names what it does not support. Check the version of Open vSwitch and of its kernel " +
			"module.",
	},
	{
		Code: "TD014", Name: "versions", Severity: Warning, all: versions, agents: true,
		Cause: "The agents of a cluster have several versions, or clusters have versions that differ by more than one " +
			"minor " +
			"version.",
		Remedy: "Complete the upgrade (docs/upgrade.md). `kubectl rollout status` of the DaemonSet " +
			"shows " +
			"whether it waits for a Node.",
	},
	{
		Code: "TD015", Name: "controllers", Severity: Critical, each: controllers, needs: []Kind{Deployments},
		Cause: "A controller of the cluster, or its relay, has no ready replica, or a controller is missing: Services are " +
			"not exchanged, policies " +
			"get " +
			"no status, and their webhook refuses writes.",
		Remedy: "Read the events of its Pods and their log.",
	},
	{
		Code: "TD016", Name: "elected replicas", Severity: Warning, each: elected, needs: []Kind{Leases, Deployments},
		Cause:  "No replica of a controller has renewed its Lease for a minute. All of them wait or hang.",
		Remedy: "Read the log of the replica that holds the Lease, and delete its Pod.",
	},
	{
		Code: "TD017", Name: "certificates of webhooks", Severity: Warning, each: webhookCertificates,
		needs: []Kind{Webhooks},
		Cause: "The certificate of a webhook ends within 30 days. Controllers renew it 90 days before its end, so " +
			"something " +
			"prevents this. When it ends, the API server refuses writes of these kinds.",
		Remedy: "Read the log of the controller for `certificate`. It needs the right to update its Secret and its webhook " +
			"configuration.",
	},
	{
		Code: "TD018", Name: "packets lost by switches", Severity: Critical, each: upcalls, agents: true,
		Cause: "The switch of a Node drops first packets of connections at this moment: they come faster than ovs-vswitchd " +
			"takes them. New connections take a second longer or fail.",
		Remedy: "Find the Pod or the client that opens very many connections (`tombolo observe --follow --connections " +
			"--by from,to`), and look at the load of the Node.",
	},
	{
		Code: "TD019", Name: "ports of switches", Severity: Critical, each: ports, agents: true,
		Cause: "Open vSwitch cannot use a port: its device is missing, or its settings are refused. The Pod behind it, or " +
			"the tunnel, has no network.",
		Remedy: "The error is Open vSwitch's own. Delete a Pod whose device is missing. For a tunnel, look for another " +
			"program that uses its UDP port.",
	},
	{
		Code: "TD020", Name: "member's token", Severity: Critical, each: memberToken, member: true, needs: []Kind{Secrets},
		Cause: "The Secret that the ClusterSet names for the leader is missing, has no token, or the token or the leader's " +
			"CA " +
			"in it ends within 30 days.",
		Remedy: "Make a new token in the leader (`tombolo mc create membertoken`), and apply its Secret in the member.",
	},
	{
		Code: "TD021", Name: "one ClusterSet", Severity: Critical, all: oneClusterSet, needs: []Kind{ClusterSets},
		Cause: "Two of the clusters have the same cluster ID, use the token of one account, or are in different " +
			"ClusterSets. " +
			"The leader accepts one of them only.",
		Remedy: "Give each member an ID and a token of its own, and join them to one leader.",
	},
	{
		Code: "TD022", Name: "member and leader", Severity: Critical, each: connected, member: true,
		Cause: "The member's controller does not reach the leader, or the leader refuses it. Exports and imports stay as " +
			"they " +
			"are. The message has the error of the leader's API server.",
		Remedy: "`Unauthorized` is a wrong or old token, `forbidden` a missing RoleBinding, `connection refused` or a " +
			"timeout a " +
			"firewall or a wrong `server`, `x509` a wrong ca.crt in the Secret.",
	},
	{
		Code: "TD030", Name: "ranges", Severity: Critical, all: ranges, needs: []Kind{ClusterSets, Nodes, Gateways},
		Cause: "Ranges of Pods or Services of two clusters meet. The leader accepts the first and refuses the other, or " +
			"packets " +
			"go to the wrong cluster.",
		Remedy: "Give one of the clusters ranges of its own. If Pods of the two clusters need not reach each other, their " +
			"Pod ranges may overlap: remove these from podCIDRs of the member's configuration.",
	},
	{
		Code: "TD031", Name: "tunnels", Severity: Critical, all: tunnels, agents: true,
		Cause: "The ends of tunnels have different settings: type, port, encryption, or version of IP. No packet between " +
			"them " +
			"is accepted.",
		Remedy: "Set the same values in antrea-agent.conf of all clusters (tunnelType, tunnelPort, " +
			"multicluster.trafficEncryptionMode), and restart the agents.",
	},
	{
		Code: "TD032", Name: "MTU", Severity: Critical, all: mtus, agents: true,
		Cause: "Packets of Pods with the header of a tunnel are larger than a link on their way. Small packets pass, and " +
			"large " +
			"ones are lost: connections open and then hang.",
		Remedy: "Remove defaultMTU of antrea-agent.conf or lower it, or raise the MTU of the link. Pods get the new MTU " +
			"when " +
			"they are made again.",
	},
	{
		Code: "TD033", Name: "Gateways", Severity: Critical, each: gatewaysUsable, member: true,
		needs: []Kind{Gateways, Nodes, Infos},
		Cause: "The cluster has no Gateway, or the Node of a Gateway is not Ready.",
		Remedy: "Annotate a Ready Node with `multicluster.antrea.io/gateway=true`. With a second Gateway the loss of one " +
			"is " +
			"no interruption.",
	},
	{
		Code: "TD034", Name: "clusters know each other", Severity: Critical, all: known,
		needs: []Kind{ClusterSets, Infos, Gateways},
		Cause: "A cluster has not received the ranges and Gateways of another one, refuses them, or has old ones.",
		Remedy: "Read the condition of the ClusterInfoImport, and the condition of the ResourceExport of kind ClusterInfo " +
			"in the " +
			"leader.",
	},
	{
		Code: "TD035", Name: "cut Gateways", Severity: Critical, all: cutGateways, agents: true, needs: []Kind{Gateways},
		Cause: "All ways of a Gateway to other clusters are down in both directions. The Node is off, its switch does not " +
			"run, " +
			"or a firewall of its own stops all tunnels.",
		Remedy: "Check the Node, its Pod of tombolo-ovs, and the firewalls at its site.",
	},
	{
		Code: "TD036", Name: "ways", Severity: Critical, all: ways, agents: true, needs: []Kind{Gateways},
		Cause: "BFD finds a way between two Nodes down. The result names the direction in which packets are lost, from the " +
			"reports of both ends. A direction about which neither end reports is named as unknown.",
		Remedy: "Let the port of the tunnels pass in the named direction. If both directions are lost, check the Gateway's " +
			"address. Behind NAT the annotation `tunnel-sources.multicluster.antrea.io/ID` is needed. BFD cannot watch such a " +
			"way, so the check is `unknown`: use `tombolo mc verify`.",
	},
	{
		Code: "TD037", Name: "reachable clusters", Severity: Critical, each: reachable, member: true,
		Cause: "The member's controller has found no way to another cluster up, from the reports of its Nodes.",
		Remedy: "See TD036. The result without TD036 means that reports of Nodes are old: look at the agents' Pods on the " +
			"Gateways.",
	},
	{
		Code: "TD038", Name: "other clusters", Severity: Warning, each: otherClusters,
		needs: []Kind{ClusterSets, Infos},
		Cause: "The controller of another cluster does not renew its announcement at the leader. Or the cluster is gone: " +
			"no way to it is up, here and elsewhere. Or it is withdrawn.",
		Remedy: "Look at that cluster's controller and its way to the leader, and at its Gateways if it is gone. If it was " +
			"withdrawn by mistake, join it again.",
	},
	{
		Code: "TD039", Name: "packet sizes on ways", Severity: Critical, all: sizes, agents: true,
		Cause: "A link between two Gateways carries smaller packets than Pods send, with the header of the tunnel. Small " +
			"packets pass, and large ones are lost without a message: connections open and then hang. Probes of all " +
			"sizes have measured the largest packet that passes there and back (docs/probes.md).",
		Remedy: "Raise the MTU of the links between the two, or set defaultMTU in antrea-agent.conf of both clusters to " +
			"the size that passes.",
	},
	{
		Code: "TD040", Name: "exports at the leader", Severity: Warning, each: resourceExports,
		needs: []Kind{ClusterSets, ResourceExports},
		Cause: "The leader does not import an export of a member, or only a part of it. The message has the reason: " +
			"ranges, " +
			"names that collide, endpoints outside the member's ranges, conflicts with other exports.",
		Remedy: "Correct the exported object in the member that the result names.",
	},
	{
		Code: "TD041", Name: "exported Services", Severity: Warning, each: serviceExports, needs: []Kind{ServiceExports},
		Cause: "A ServiceExport is not valid, is not ready, or conflicts with the export of another cluster.",
		Remedy: "The message names what to change: make the Service, give its ports the names and numbers of the other " +
			"clusters, or delete the ServiceExport.",
	},
	{
		Code: "TD042", Name: "endpoints of exported Services", Severity: Warning, each: endpoints,
		needs: []Kind{ServiceExports, EndpointSlices},
		Cause: "An exported Service has no ready endpoint in its cluster. Requests go to the other clusters that export " +
			"it; without such clusters they fail.",
		Remedy: "Check the selector of the Service against the labels of the Pods, and that the Pods are Ready.",
	},
	{
		Code: "TD043", Name: "imported Services", Severity: Warning, each: serviceImports, needs: []Kind{ServiceImports},
		Cause: "An import is not ready: its Namespace is missing, another object has its name already, or it has no " +
			"address.",
		Remedy: "The message names the object. `kubectl get events` in the Namespace has more.",
	},
	{
		Code: "TD044", Name: "loss and time on ways", Severity: Warning, all: losses, agents: true,
		Cause: "A way between two clusters loses more than 1 % of the probes of the last five minutes, or half of them " +
			"take longer than 300 ms. BFD finds such a way up.",
		Remedy: "Look for errors and full queues between the two Gateways, and at the load of their Nodes. `tombolo get " +
			"latency` shows all ways (docs/probes.md).",
	},
	{
		Code: "TD045", Name: "probes between Nodes", Severity: Critical, each: nodeProbes, needs: []Kind{Nodes}, agents: true,
		Cause: "A Node does not answer the newest three probes of other Nodes of its cluster, or half of them take longer " +
			"than 300 ms. Packets of Pods take the same way. Nodes are probed while a NodeLatencyMonitor asks for it.",
		Remedy: "Let the tunnels' port pass between the Nodes, and look at the agent and the switch of the named Node. " +
			"`tombolo get latency` shows all Nodes (docs/probes.md).",
	},
	{
		Code: "TD046", Name: "NodeLatencyMonitor", Severity: Warning, each: monitored, needs: []Kind{Monitors, Nodes},
		agents: true,
		Cause: "A NodeLatencyMonitor asks for probes between Nodes, and agents send none: their feature gate " +
			"NodeLatencyMonitor is off, or they cannot open a socket for it.",
		Remedy: "Set featureGates: {NodeLatencyMonitor: true} in antrea-agent.conf, and restart the agents. If it is set, " +
			"read the log of the named agents.",
	},
	{
		Code: "TD047", Name: "names in clusterset.local", Severity: Warning, each: resolved,
		needs: []Kind{ServiceImports, Names},
		Cause: "CoreDNS serves the zone clusterset.local, and does not answer with the addresses of an imported Service. " +
			"The check asks a Pod of CoreDNS through the API server. It is skipped without the zone, and " +
			"without ready endpoints.",
		Remedy: "Apply coredns-clusterset.yml, which lets CoreDNS read ServiceImports, and read the log of CoreDNS " +
			"(docs/multicluster-services.md#names-in-clustersetlocal).",
	},
	{
		Code: codeStale, Name: "endpoints of imported Services", Severity: Warning, all: staleEndpoints,
		needs: []Kind{ClusterSets, ResourceImports, ImportedSlices},
		Cause: "A member's EndpointSlices of an imported Service are older than the leader's import: they have endpoints " +
			"that the leader has no longer, or none at all. Requests to them fail.",
		Remedy: "Look at the condition of the member's ClusterSet (TD022), and at the log of its antrea-mc-controller.",
	},
	{
		Code: "TD049", Name: "limits of members", Severity: Warning, each: limits,
		needs: []Kind{ClusterSets, ResourceExports, Quotas},
		Cause: "A member has 80 % of the exports that the leader accepts from one member, or a ResourceQuota of the Common " +
			"Area is used to 80 %. At the limit the leader refuses further writes.",
		Remedy: "Remove ServiceExports that are not needed, and labels that differ from Pod to Pod " +
			"(docs/multicluster-security.md has all limits). A ResourceQuota is yours to raise.",
	},
	{
		Code: "TD050", Name: "policies", Severity: Warning, each: policiesRealized,
		needs: []Kind{ClusterPolicies, Policies, StandardPolicies},
		Cause: "A policy is not in force on all Nodes that have Pods of it, or a part of it is not understood. A rule that " +
			"is " +
			"not understood allows nothing.",
		Remedy: "The message names the field or the Nodes. `tombolo policy why` on a Node explains a connection.",
	},
	{
		Code: "TD051", Name: "scope ClusterSet", Severity: Warning, each: stretched,
		needs: []Kind{ClusterPolicies, Policies},
		Cause: "A policy has rules with `scope: ClusterSet`, and the agents do not know labels of other clusters: the " +
			"rules mean " +
			"this cluster alone.",
		Remedy: "Set multicluster.enableStretchedNetworkPolicy: true in antrea-agent.conf and enableStretchedNetworkPolicy " +
			"in " +
			"the member's configuration.",
	},
	{
		Code: "TD052", Name: "problems of Nodes", Severity: Warning, each: problemsOfNodes, agents: true,
		Cause:  "Agents go on without something that an object asks for. Each reason is one result, with the objects.",
		Remedy: "The message of the problem has the remedy. It is gone as soon as the object is right.",
	},
	{
		Code: "TD060", Name: "kube-proxy", Severity: Info, each: kubeProxy, needs: []Kind{DaemonSets},
		Cause: "kube-proxy runs in the cluster too. This is supported: it serves the Nodes' own connections, and Tombolo " +
			"the " +
			"Pods'. This check never fails.",
		Remedy: "Nothing. With antreaProxy.proxyAll kube-proxy can be removed " +
			"(docs/services.md#clients-outside-of-the-pods-network).",
	},
}

// Checks returns the table of checks.
func Checks() []Check { return checks }
