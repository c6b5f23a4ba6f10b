package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/test/lab"
	"github.com/tombolo-net/tombolo/test/scenario"
)

// testEncryption turns encryption between clusters on, and off again. A cluster that encrypts and one that does not yet
// encrypt send each other nothing. No packet goes in plain text while a Gateway comes, fails and goes, agents are
// upgraded and rolled back, and a key changes. No connection breaks. Then the clusters use other tunnels; the last ones
// stay for the steps that follow.
func testEncryption(t *testing.T) {
	url := serviceURL(t)
	installWireGuard(t)
	oneSideEncrypts(t, url)
	configureIn(t, []string{"north", "east"}, "trafficEncryptionMode: none", "trafficEncryptionMode: wireGuard")
	passesIn(t, url, "WireGuard")
	began := time.Now()
	everyNode(func(_ string, n *lab.Node) {
		eventually(t, keptOld, func(ctx context.Context) error {
			s, err := status(ctx, n)
			for _, p := range s.Problems {
				if strings.Contains(p.Object+p.Reason+p.Message, "WireGuard") {
					err = fmt.Errorf("%s: %+v", n, p)
				}
			}
			return err
		})
	})
	t.Logf("all Nodes knew the others' keys %.1f s after that", time.Since(began).Seconds())

	editedInTime(t, "north", "trafficEncryptionMode: wireGuard", "trafficEncryptionMode: none")
	configureIn(t, []string{"east", "west"}, "trafficEncryptionMode: wireGuard", "trafficEncryptionMode: none")
	answered(t, url)
	takenOver(t, "north")
	configure(t, "trafficEncryptionMode: none", "trafficEncryptionMode: wireGuard")
	passesIn(t, url, "WireGuard") // the devices come again under their names

	oneSideReaches(t, url)
	end := capture(t)
	server := kubectl(t, "west", "get", "pods", "-n", "default", "-l", "app=nginx", "--field-selector",
		"spec.nodeName=node-2", "-o", "jsonpath={.items[0].status.podIP}")
	stay := world.LongConnections(testContext(t), "http://"+server+":8080/")
	secondGateway(t, url)
	upgrades(t, url)
	keyChanges(t, url)
	kubectl(t, "west", "annotate", "node", "node-2", "multicluster.antrea.io/gateway-")
	gatewaysAre(t, url, "node-1 ,")
	noneBroke(t, stay)
	have := end()
	if passed := slices.Collect(maps.Keys(have.between)); !slices.Equal(passed, []string{"WireGuard"}) {
		t.Errorf("while there were two Gateways packets %v have passed, want those of WireGuard alone; the first of each "+
			"kind:\n%v", have.between, have.first)
	}

	configure(t, "trafficEncryptionMode: wireGuard", "trafficEncryptionMode: none", "tunnelType: geneve",
		"tunnelType: gre")
	passesIn(t, url, "GRE")
	removeWireGuard(t)
	configure(t, "tunnelType: gre", "tunnelType: vxlan")
	passesIn(t, url, "VXLAN")
}

// keptOld is how long an agent that is restarted after an edit may still have the earlier configuration. If the API
// server was unavailable, as north's was, its kubelet may mount the version it has, look for changes after another
// minute, and update the file in its next round.
const keptOld = 5 * time.Minute

// editedInTime gives a cluster's agents, which have just started, another configuration.
func editedInTime(t *testing.T, cluster string, texts ...string) {
	t.Helper()
	must(t, world.EditConfiguration(testContext(t), []string{cluster}, texts...))
}

// takenOver waits until a cluster's agents use the configuration without encryption.
func takenOver(t *testing.T, cluster string) {
	t.Helper()
	began := time.Now()
	eventually(t, keptOld, func(ctx context.Context) error {
		key, err := world.Kubectl(ctx, cluster, "get", "gateway", "-n", "kube-system", "-o", "jsonpath={.items[*].wireGuard}")
		if err == nil && key != "" {
			err = fmt.Errorf("%s's Gateway has the key %s still", cluster, key)
		}
		return err
	})
	t.Logf("%s's agents have taken an edit over by themselves %.1f s later", cluster, time.Since(began).Seconds())
}

// noneBroke ends connections that stay, and fails the test if one of them has not.
func noneBroke(t *testing.T, stay func() (broken, requests int, err error)) {
	t.Helper()
	if broken, requests, err := stay(); err != nil || broken > 0 || requests < 20*scenario.LongOnes {
		t.Errorf("%d of %d connections between Pods broke while Gateways came, failed, and went, after %d requests: %v",
			broken, scenario.LongOnes, requests, err)
	}
}

// oneSideEncrypts lets west alone encrypt: neither side sends the other anything, encrypted or not, and both report the
// reason.
func oneSideEncrypts(t *testing.T, url string) {
	t.Helper()
	configureIn(t, []string{"west"}, "trafficEncryptionMode: none", "trafficEncryptionMode: wireGuard")
	for cluster, want := range map[string]string{"east": "PeerExpectsEncryption", "west": "PeerWithoutEncryption"} {
		n := world.Lab.Cluster(cluster).Node(gatewayOf(t, cluster))
		eventually(t, stateLimit, func(ctx context.Context) error {
			s, err := status(ctx, n)
			if err == nil && !slices.ContainsFunc(s.Problems, func(p api.Problem) bool { return p.Reason == want }) {
				err = fmt.Errorf("%s has no Problem %s: %+v", n, want, s.Problems)
			}
			return err
		})
	}
	end := capture(t)
	pod := podsOf(t, "nginx")[0]
	for _, to := range []string{url + "/", "http://" + pod + ":8080/"} {
		if a, err := get(testContext(t), "east", "client", to, 3, "--timeout", "1s"); a.failed != 3 {
			t.Errorf("%s answers %d of 3 requests although west alone encrypts, want none: %v", to, a.ok, err)
		}
	}
	passed := end().pairs
	for _, a := range world.Lab.Cluster("east").Nodes() {
		for _, b := range world.Lab.Cluster("west").Nodes() {
			if n := passed[pair{a.InternalIP(), b.InternalIP()}] + passed[pair{b.InternalIP(), a.InternalIP()}]; n > 0 {
				t.Errorf("%d packets of tunnels have passed between %s and %s although west alone encrypts", n, a, b)
			}
		}
	}
}

// oneSideReaches has a firewall on the router that lets only answers pass from west to east, while both Gateways'
// sessions begin again. East's session opens the path, and connections of west's Pods use it.
func oneSideReaches(t *testing.T, url string) {
	t.Helper()
	ctx := testContext(t)
	must(t, world.Nginx(ctx, "east", 2))
	must(t, world.ClientPod(ctx, "west", "client", "node-2"))
	gateway := func(cluster string) *lab.Node { return world.Lab.Cluster(cluster).Node(gatewayOf(t, cluster)) }
	east, west := gateway("east"), gateway("west")
	var addresses [2][]string
	for i, cluster := range []string{"west", "east"} {
		for _, n := range world.Lab.Cluster(cluster).Nodes() {
			addresses[i] = append(addresses[i], n.InternalIP())
		}
	}
	onRouter(t, fmt.Sprintf(`table ip e2e-firewall {
	counter refused {}
	chain forward {
		type filter hook forward priority filter
		ip saddr { %s } ip daddr { %s } ct state new counter name refused drop
	}
}`, strings.Join(addresses[0], ", "), strings.Join(addresses[1], ", ")), "nft", "-f", "-")
	defer onRouter(t, "", "nft", "delete", "table", "ip", "e2e-firewall")
	for _, cluster := range []string{"east", "west"} {
		// its DaemonSet makes new ones
		kubectl(t, cluster, "delete", "pod", "-n", "kube-system", "-l", "component=tombolo-wireguard")
	}
	answered(t, url)
	server := kubectl(t, "east", "get", "pods", "-n", "default", "-l", "app=nginx", "-o",
		"jsonpath={.items[0].status.podIP}")
	waitAnswer(t, "west", "client", "http://"+server+":8080/")
	ask(t, "west", "client", "http://"+server+":8080/", 20)

	refused := func() string { return onRouter(t, "", "nft", "list", "counter", "ip", "e2e-firewall", "refused") }
	before := refused()
	nodeExec(t, "west", west.Name(), "bash", "-c", "echo > /dev/udp/"+east.InternalIP()+"/51821") // from a port of its own
	// The packet may wait until its Node has the router's MAC.
	eventually(t, stateLimit, func(context.Context) error {
		if refused() == before {
			return fmt.Errorf("the firewall lets west's Gateway begin: %s", before)
		}
		return nil
	})
	kubectl(t, "west", "delete", "pod", "client", "-n", "default", "--now")
}

// onRouter runs a command on the lab's router.
func onRouter(t *testing.T, input string, args ...string) string {
	t.Helper()
	out, err := world.Lab.RouterExec(testContext(t), input, args[0], args[1:]...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// installWireGuard runs WireGuard in userspace on all Nodes, as clusters need whose kernels do not have it.
func installWireGuard(t *testing.T) {
	t.Helper()
	must(t, world.InstallWireGuard(testContext(t)))
}

func removeWireGuard(t *testing.T) {
	t.Helper()
	for _, c := range world.Lab.Clusters() {
		kubectl(t, c.Name(), "delete", "daemonset", "tombolo-wireguard", "-n", "kube-system")
	}
}

// keyChanges changes the key of west's Gateway, under requests. The userspace datapath may lose a packet while it adds
// the bridge of the second device, so a request has time for another one; TestRotation counts packets.
func keyChanges(t *testing.T, url string) {
	t.Helper()
	keys := func(ctx context.Context) ([]string, error) { // that it has, and that it is to have
		out, err := world.Kubectl(ctx, "west", "get", "gateway", "-n", "kube-system", "node-1", "-o",
			"jsonpath={.wireGuard.publicKey} {.wireGuard.nextPublicKey}")
		return strings.Fields(out), err
	}
	before, err := keys(testContext(t))
	must(t, err)
	start := time.Now()
	requests := background(t, "/echo", "get", url+"/", "--count", "400", "--interval", "50ms", "--timeout", lossLimit)
	kubectl(t, "west", "annotate", "node", "node-1", "multicluster.tombolo.io/wireguard-key-not-before="+
		start.UTC().Format(time.RFC3339))
	eventually(t, stateLimit, func(ctx context.Context) error {
		now, err := keys(ctx)
		if err == nil && (len(now) != 1 || now[0] == before[0]) {
			err = fmt.Errorf("the Gateway's keys are %v, want another than %s", now, before)
		}
		return err
	})
	t.Logf("west's Gateway has another key after %.1f s", time.Since(start).Seconds())
	requests()
}

// passesIn waits until requests are answered, and checks that packets between the clusters then have one kind alone. It
// returns the packets that have passed from Node to Node of one cluster.
func passesIn(t *testing.T, url, kind string) map[string]int {
	t.Helper()
	answered(t, url)
	var passed packets
	// Agents of other Nodes may still have the earlier configuration.
	eventually(t, stateLimit, func(context.Context) error {
		end := capture(t)
		ask(t, "east", "client", url, 50)
		passed = end()
		if have := passed.between; have[kind] < 50 || len(have) != 1 {
			return fmt.Errorf("packets %v have passed, want those of %s alone; the first of each kind:\n%v", have, kind,
				passed.first)
		}
		return nil
	})
	t.Logf("between the clusters have passed packets %v, between Nodes %v", passed.between, passed.within)
	return passed.within
}

// answered waits until all requests are answered.
func answered(t *testing.T, url string) {
	t.Helper()
	eventually(t, stateLimit, func(ctx context.Context) error {
		if a, err := get(ctx, "east", "client", url+"/", 10, "--timeout", "2s"); err != nil || a.ok != 10 {
			return fmt.Errorf("%d of 10 answered, by %v: %w", a.ok, a.by, err)
		}
		return nil
	})
}

// configure replaces texts in the agents' configuration, each by the text that follows it, and restarts them.
func configure(t *testing.T, texts ...string) {
	t.Helper()
	configureIn(t, world.Members(), texts...)
}

// configureIn does that in some clusters.
func configureIn(t *testing.T, clusters []string, texts ...string) {
	t.Helper()
	must(t, world.ConfigureAgents(testContext(t), clusters, texts...))
}

// upgrades gives east's and west's agents and controllers another version, and then the earlier one again, each under
// requests.
func upgrades(t *testing.T, url string) {
	t.Helper()
	ctx := testContext(t)
	must(t, world.LoadNext(ctx))
	agent, controller := scenario.NextImage("tombolo-agent"), scenario.NextImage("tombolo-controller")
	before, err := status(ctx, world.Lab.Cluster("east").Node("node-1"))
	must(t, err)
	for _, step := range []struct {
		version       string
		agents, other []string
	}{
		{scenario.Next, []string{"set", "image", "daemonset/tombolo-agent", "tombolo-agent=" + agent, "install-cni=" + agent},
			[]string{"set", "image", "deployment/antrea-mc-controller", "antrea-mc-controller=" + controller}},
		{before.Version, []string{"rollout", "undo", "daemonset/tombolo-agent"},
			[]string{"rollout", "undo", "deployment/antrea-mc-controller"}},
	} {
		requests := background(t, "/echo", "get", url+"/", "--count", "300", "--interval", "50ms", "--timeout", lossLimit)
		for _, args := range [][]string{step.other, step.agents} {
			for _, cluster := range []string{"east", "west"} {
				kubectl(t, cluster, append(args, "-n", "kube-system")...)
			}
		}
		for _, cluster := range []string{"east", "west"} {
			for _, workload := range []string{"daemonset/tombolo-agent", "deployment/antrea-mc-controller"} {
				kubectl(t, cluster, "rollout", "status", workload, "-n", "kube-system", "--timeout=4m")
			}
			for _, n := range world.Lab.Cluster(cluster).Nodes() {
				eventually(t, stateLimit, func(ctx context.Context) error {
					s, err := status(ctx, n)
					if err == nil && (s.Version != step.version || !s.Ready) {
						err = fmt.Errorf("the agent of %s has version %s, ready %t, want %s", n, s.Version, s.Ready, step.version)
					}
					return err
				})
			}
		}
		requests()
	}
}

// packets counts packets that have passed, by kind, from cluster to cluster and from Node to Node of one cluster. One
// may be counted twice.
type packets struct {
	between, within map[string]int
	pairs           map[pair]int      // of any kind
	first           map[string]string // of each kind between clusters: what the first packets were
}

// pair is what a packet goes from and to: addresses of Nodes.
type pair struct{ from, to string }

// capture counts the packets of WireGuard and of tunnels that the lab's router sees. The router is also the switch of
// each cluster's Nodes.
func capture(t *testing.T) func() packets {
	t.Helper()
	opened := make(chan error)
	fd := -1
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends here
		ns, err := netns.GetFromName(world.Lab.Name() + "-router")
		if err == nil {
			err = netns.Set(ns)
			ns.Close()
		}
		if err == nil {
			const all = 0x0300 // ETH_P_ALL in network order; a socket for IP alone would not get packets that bridges forward
			fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, all)
		}
		if err == nil { // the reader may wait for a processor
			err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
		}
		if err == nil {
			err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000})
		}
		opened <- err
	}()
	must(t, <-opened)
	have := packets{map[string]int{}, map[string]int{}, map[pair]int{}, map[string]string{}}
	stop, done := make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		b := make([]byte, 2048)
		for {
			n, from, err := unix.Recvfrom(fd, b, 0)
			if err != nil { // nothing came
				select {
				case <-stop:
					return
				default:
					continue
				}
			}
			const ip = 0x0008 // ETH_P_IP in network order
			if a, ok := from.(*unix.SockaddrLinklayer); !ok || a.Protocol != ip || a.Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			where := have.between
			if bytes.Equal(b[12:15], b[16:19]) { // a cluster's Nodes are in one range of 24 bits
				where = have.within
			}
			if kind := kindOf(b[:n]); kind != "" {
				where[kind]++
				if have.between[kind] <= 3 && !bytes.Equal(b[12:15], b[16:19]) {
					have.first[kind] += fmt.Sprintf("%s %x\n", time.Now().Format(time.StampMilli), b[:min(n, 120)])
				}
				have.pairs[pair{net.IP(b[12:16]).String(), net.IP(b[16:20]).String()}]++
			}
		}
	}()
	return func() packets {
		close(stop)
		<-done
		unix.Close(fd)
		return have
	}
}

// kindOf returns the kind of tunnel that an IPv4 packet belongs to; "" for other packets.
func kindOf(packet []byte) string {
	header := int(packet[0]&0xf) * 4
	if packet[9] == unix.IPPROTO_GRE {
		return "GRE"
	}
	if packet[9] != unix.IPPROTO_UDP || len(packet) < header+8 {
		return ""
	}
	return map[uint16]string{51820: "WireGuard", 51821: "WireGuard", 51822: "WireGuard", 51823: "WireGuard",
		6081: "Geneve", 4789: "VXLAN"}[binary.BigEndian.Uint16(packet[header+2:])]
}
