package diagnosis

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tombolo-net/tombolo/test/lab"
	"github.com/tombolo-net/tombolo/test/scenario"
	"github.com/tombolo-net/tombolo/test/wallclock"
)

// faults are all kinds of faults.
func faults() []fault {
	return []fault{
		{name: "firewall one way", inject: oneWay},
		{name: "Gateway cut off", inject: cutOff},
		{name: "large packets lost", inject: largeLost},
		{name: "two of a hundred lost", limit: 8 * time.Minute, inject: someLost},
		{name: "token of another member", inject: otherToken},
		{name: "no token", inject: noToken},
		{name: "CA expired", inject: expired},
		{name: "leader unreachable", inject: noLeader},
		{name: "one range twice", inject: oneRange},
		{name: "agent hangs", inject: agentHangs},
		{name: "API server hangs", inject: serverHangs},
		{name: "kubelet dead", inject: kubeletDead},
		{name: "controller away", inject: controllerAway},
		{name: "no Gateway", inject: noGateway},
		{name: "clock of an agent", inject: agentClock},
		{name: "clock of an API server", inject: serverClock},
		{name: "no endpoints", inject: noEndpoints},
		{name: "export without Service", inject: noService},
		{name: "policy not understood", inject: policy},
		{name: "device of a Pod missing", inject: noDevice},
		{name: "quota used up", inject: quota},
	}
}

// gateway is the Gateway of each cluster.
func gateway(c *lab.Cluster) *lab.Node { return c.Node("node-1") }

// named is a cluster as the command names it.
func named(c *lab.Cluster) string { return c.Name() + "/kubeconfig" }

// ofNode is a Node as the command names it.
func ofNode(c *lab.Cluster, n *lab.Node) string { return named(c) + "/" + n.Name() }

// member changes a place to a cluster other than the leader.
func (p place) member() place {
	if p.cluster.Name() == scenario.Leader {
		p.cluster, p.other = p.other, p.cluster
		p.node = p.cluster.Node(p.node.Name())
	}
	return p
}

// firewall sets rules on the router between the clusters, and returns how to remove them.
func firewall(ctx context.Context, rules string) (func(context.Context) error, error) {
	text := "table ip diagnosis { chain forward { type filter hook forward priority filter; " + rules + "; }; }"
	_, err := world.Lab.RouterExec(ctx, text, "nft", "-f", "-")
	return func(ctx context.Context) error {
		_, err := world.Lab.RouterExec(ctx, "", "nft", "delete", "table", "ip", "diagnosis")
		return err
	}, err
}

func oneWay(ctx context.Context, at place) (effect, error) {
	from, to := gateway(at.cluster), gateway(at.other)
	heal, err := firewall(ctx, fmt.Sprintf("ip saddr %s ip daddr %s udp dport 6081 drop", from.InternalIP(),
		to.InternalIP()))
	return effect{where: fmt.Sprintf("from %s to %s", from, to), code: "TD036", heal: heal,
		words: []string{"UDP 6081 (geneve) from " + ofNode(at.cluster, from) + " to " + ofNode(at.other, to) +
			" does not arrive, and the other direction works"},
		shown: link(at.cluster, at.other)}, err
}

func cutOff(ctx context.Context, at place) (effect, error) {
	g := gateway(at.cluster)
	heal, err := firewall(ctx, fmt.Sprintf("ip saddr %[1]s udp dport 6081 drop; ip daddr %[1]s udp dport 6081 drop",
		g.InternalIP()))
	return effect{where: g.String(), code: "TD035", heal: heal,
		words: []string{"Gateway " + ofNode(at.cluster, g) + ": it is cut off"}, shown: link(at.cluster, at.other)}, err
}

func largeLost(ctx context.Context, at place) (effect, error) {
	from, to := gateway(at.cluster), gateway(at.other)
	heal, err := firewall(ctx, fmt.Sprintf("ip saddr %s ip daddr %s udp dport 6081 meta length > 1300 drop",
		from.InternalIP(), to.InternalIP()))
	return effect{where: fmt.Sprintf("from %s to %s", from, to), code: "TD039", heal: heal,
		words: []string{ofNode(at.cluster, from), ofNode(at.other, to)}, shown: link(at.cluster, at.other)}, err
}

func someLost(ctx context.Context, at place) (effect, error) {
	from, to := gateway(at.cluster), gateway(at.other)
	heal, err := firewall(ctx, fmt.Sprintf("ip saddr %s ip daddr %s udp dport 6081 numgen random mod 100 < 2 drop",
		from.InternalIP(), to.InternalIP()))
	return effect{where: fmt.Sprintf("from %s to %s", from, to), code: "TD044", heal: heal,
		words: []string{ofNode(at.cluster, from), ofNode(at.other, to)}, shown: link(at.cluster, at.other)}, err
}

// tokenSecret returns the name of a member's Secret.
func tokenSecret(c *lab.Cluster) string { return "member-" + c.Name() + "-token" }

// secretKey returns the value of a key of a member's Secret, in base64.
func secretKey(ctx context.Context, c *lab.Cluster, key string) (string, error) {
	return c.Kubectl(ctx, "get", "secret", "-n", scenario.MemberNamespace, tokenSecret(c), "-o",
		"jsonpath={.data."+strings.ReplaceAll(key, ".", `\.`)+"}")
}

// changesSecret sets a key of a member's Secret.
func changesSecret(ctx context.Context, c *lab.Cluster, key, value string) (heal func(context.Context) error,
	err error) {
	before, err := secretKey(ctx, c, key)
	if err != nil {
		return nil, err
	}
	set := func(ctx context.Context, value string) error {
		_, err := c.Kubectl(ctx, "patch", "secret", "-n", scenario.MemberNamespace, tokenSecret(c), "-p",
			fmt.Sprintf(`{"data":{%q:%q}}`, key, value))
		return err
	}
	return func(ctx context.Context) error { return set(ctx, before) }, set(ctx, value)
}

func otherToken(ctx context.Context, at place) (effect, error) {
	e := effect{where: "in " + at.cluster.Name(), code: "TD021", words: []string{named(at.cluster), named(at.other),
		"use the token of one account"}}
	theirs, err := secretKey(ctx, at.other, "token")
	if err == nil {
		e.heal, err = changesSecret(ctx, at.cluster, "token", theirs)
	}
	return e, err
}

func noToken(ctx context.Context, at place) (effect, error) {
	heal, err := changesSecret(ctx, at.cluster, "token", base64.StdEncoding.EncodeToString([]byte("none")))
	return effect{where: "in " + at.cluster.Name(), code: "TD020", heal: heal, words: []string{named(at.cluster),
		"Secret kube-system/" + tokenSecret(at.cluster)}, shown: cluster(at.cluster)}, err
}

// expired gives a member a CA certificate of the leader that has ended.
func expired(ctx context.Context, at place) (effect, error) {
	e := effect{where: "in " + at.cluster.Name(), code: "TD020", words: []string{named(at.cluster),
		"Secret kube-system/" + tokenSecret(at.cluster),
		"the CA of the leader in it ended"}, shown: cluster(at.cluster)}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return e, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "leader"}, IsCA: true,
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(-24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return e, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	e.heal, err = changesSecret(ctx, at.cluster, "ca.crt", base64.StdEncoding.EncodeToString(text))
	return e, err
}

// noLeader has the router drop what Nodes of a member send to the leader's API server.
func noLeader(ctx context.Context, at place) (effect, error) {
	at = at.member()
	e := effect{where: "from " + at.cluster.Name(), code: "TD022", words: []string{named(at.cluster)},
		shown: cluster(at.cluster)}
	server, err := url.Parse(world.Lab.Cluster(scenario.Leader).ServerFor(at.cluster))
	if err != nil {
		return e, err
	}
	n := slices.Index(world.Lab.Clusters(), at.cluster)
	e.heal, err = firewall(ctx, fmt.Sprintf(`iifname { "m%[1]d", "t%[1]d" } ip daddr %[2]s tcp dport %[3]s drop`, n,
		server.Hostname(), server.Port()))
	return e, err
}

func oneRange(ctx context.Context, at place) (effect, error) {
	e := effect{where: "in " + at.cluster.Name() + " and " + at.other.Name(), code: "TD030"}
	ranges := map[*lab.Cluster]string{}
	for _, c := range []*lab.Cluster{at.cluster, at.other} {
		text, err := world.MemberConfigText(ctx, c.Name())
		found := regexp.MustCompile(`(?m)^podCIDRs: *(\[.*\])$`).FindStringSubmatch(text)
		if err != nil || found == nil {
			return e, fmt.Errorf("the configuration of %s has no podCIDRs: %w\n%s", c.Name(), err, text)
		}
		ranges[c] = found[1]
	}
	theirs := strings.Trim(ranges[at.other], `[" ]`)
	e.words = []string{"the Pod range " + theirs, named(at.cluster), named(at.other)}
	set := func(ctx context.Context, value string) error {
		return world.MemberConfig(ctx, at.cluster.Name(), map[string]string{"podCIDRs": value})
	}
	e.heal = func(ctx context.Context) error { return set(ctx, ranges[at.cluster]) }
	return e, set(ctx, ranges[at.other])
}

func agentHangs(_ context.Context, at place) (effect, error) {
	return effect{where: at.node.String(), code: "TD011", words: []string{named(at.cluster), "Node " + at.node.Name(),
		"there was no answer"}, shown: node(at.cluster, at.node),
		heal: func(context.Context) error { return at.node.Signal("tombolo-agent", syscall.SIGCONT) },
	}, at.node.Signal("tombolo-agent", syscall.SIGSTOP)
}

func serverHangs(_ context.Context, at place) (effect, error) {
	e := effect{where: "in " + at.cluster.Name(), code: "TD001", words: []string{named(at.cluster)},
		shown: cluster(at.cluster)}
	p, err := at.cluster.APIServer()
	if err != nil {
		return e, err
	}
	e.heal = func(context.Context) error { return syscall.Kill(p.PID, syscall.SIGCONT) }
	return e, syscall.Kill(p.PID, syscall.SIGSTOP)
}

func kubeletDead(_ context.Context, at place) (effect, error) {
	return effect{where: at.node.String(), code: "TD003", words: []string{named(at.cluster), "Node " + at.node.Name()},
		shown: node(at.cluster, at.node),
		heal:  func(context.Context) error { return at.node.StartKubelet() },
	}, at.node.Signal("kubelet", syscall.SIGKILL)
}

func controllerAway(ctx context.Context, at place) (effect, error) {
	name := []string{"-n", scenario.MemberNamespace, "deployment/antrea-mc-controller"}
	e := effect{where: "in " + at.cluster.Name(), code: "TD015", words: []string{named(at.cluster),
		"antrea-mc-controller"}}
	replicas, err := at.cluster.Kubectl(ctx, append([]string{"get", "-o", "jsonpath={.spec.replicas}"}, name...)...)
	if err != nil {
		return e, err
	}
	scale := func(ctx context.Context, to string) error {
		_, err := at.cluster.Kubectl(ctx, append([]string{"scale", "--replicas=" + to}, name...)...)
		return err
	}
	e.heal = func(ctx context.Context) error { return scale(ctx, replicas) }
	return e, scale(ctx, "0")
}

func noGateway(ctx context.Context, at place) (effect, error) {
	annotate := func(ctx context.Context, value string) error {
		_, err := at.cluster.Kubectl(ctx, "annotate", "node", gateway(at.cluster).Name(),
			"multicluster.antrea.io/gateway"+value)
		return err
	}
	return effect{where: "in " + at.cluster.Name(), code: "TD033", words: []string{named(at.cluster), "no Gateway"},
		heal: func(ctx context.Context) error { return annotate(ctx, "=true") }}, annotate(ctx, "-")
}

// off puts the clock of a process off by ten minutes, ahead or behind.
func (p place) off(pid int) (string, func(context.Context) error, error) {
	by := 10 * time.Minute
	if p.random.IntN(2) == 0 {
		by = -by
	}
	c, err := wallclock.Find(pid)
	if err != nil {
		return by.String(), nil, err
	}
	return by.String(), func(context.Context) error { return c.PutRight() }, c.PutOff(by)
}

func agentClock(_ context.Context, at place) (effect, error) {
	e := effect{where: at.node.String(), code: "TD004", words: []string{named(at.cluster), "Node " + at.node.Name()}}
	all, err := at.node.Processes()
	if err != nil {
		return e, err
	}
	i := slices.IndexFunc(all, func(p lab.Process) bool { return p.Name() == "tombolo-agent" })
	if i < 0 {
		return e, errors.New("the agent does not run")
	}
	var by string
	by, e.heal, err = at.off(all[i].PID)
	e.where += " by " + by
	return e, err
}

func serverClock(_ context.Context, at place) (effect, error) {
	e := effect{where: "in " + at.cluster.Name(), code: "TD002", words: []string{named(at.cluster)}}
	p, err := at.cluster.APIServer()
	if err != nil {
		return e, err
	}
	var by string
	by, e.heal, err = at.off(p.PID)
	e.where += " by " + by
	return e, err
}

// applied creates objects of a cluster, and returns how to delete them.
func applied(ctx context.Context, c *lab.Cluster, manifest string) (func(context.Context) error, error) {
	heal := func(ctx context.Context) error {
		_, err := c.KubectlInput(ctx, manifest, "delete", "--ignore-not-found", "-f", "-")
		return err
	}
	_, err := c.KubectlInput(ctx, manifest, "apply", "-f", "-")
	return heal, err
}

func noEndpoints(ctx context.Context, at place) (effect, error) {
	heal, err := applied(ctx, at.cluster, `
apiVersion: v1
kind: Service
metadata: {name: empty, namespace: default}
spec: {selector: {app: missing}, ports: [{port: 80}]}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: empty, namespace: default}
`)
	return effect{where: "in " + at.cluster.Name(), code: "TD042", words: []string{named(at.cluster) +
		": Service default/empty", "no ready endpoint"}, heal: heal}, err
}

func noService(ctx context.Context, at place) (effect, error) {
	heal, err := applied(ctx, at.cluster, `
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: missing, namespace: default}
`)
	return effect{where: "in " + at.cluster.Name(), code: "TD041", words: []string{named(at.cluster), "default/missing"},
		shown: service("missing"), heal: heal}, err
}

func policy(ctx context.Context, at place) (effect, error) {
	heal, err := applied(ctx, at.cluster, `
apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: diagnosis}
spec: {priority: 5, appliedTo: [{group: missing}], ingress: [{action: Allow}]}
`)
	return effect{where: "in " + at.cluster.Name(), code: "TD050", words: []string{named(at.cluster),
		"ClusterNetworkPolicy diagnosis", "there is no ClusterGroup missing"}, heal: heal}, err
}

// noDevice removes the device of a Pod on its Node. The Pod's Deployment replaces the Pod afterwards.
func noDevice(ctx context.Context, at place) (effect, error) {
	if at.cluster.Name() == "east" { // it has no Pods of nginx
		at.cluster = world.Lab.Cluster("west")
		at.node = at.cluster.Node(at.node.Name())
	}
	e := effect{where: at.node.String(), code: "TD019", words: []string{named(at.cluster), at.node.Name()},
		shown: node(at.cluster, at.node)}
	pod, err := at.cluster.Kubectl(ctx, "get", "pods", "-l", "app=nginx", "--field-selector",
		"spec.nodeName="+at.node.Name(), "-o", "jsonpath={.items[0].metadata.name}")
	if err != nil {
		return e, err
	}
	e.heal = func(ctx context.Context) error {
		_, err := at.cluster.Kubectl(ctx, "delete", "pod", pod)
		return err
	}
	device, err := at.node.Exec(ctx, "ovs-vsctl", "--bare", "--columns=name", "find", "Port",
		"external_ids:pod-name="+pod)
	if err == nil {
		_, err = at.node.Exec(ctx, "ip", "link", "delete", strings.TrimSpace(device))
	}
	e.where += ", " + pod
	return e, err
}

func quota(ctx context.Context, at place) (effect, error) {
	leader := world.Lab.Cluster(scenario.Leader)
	const exports = "resourceexports.multicluster.crd.antrea.io"
	have, err := leader.Kubectl(ctx, "get", exports, "-n", scenario.LeaderNamespace, "-o", "name")
	if err != nil {
		return effect{}, err
	}
	heal, err := applied(ctx, leader, fmt.Sprintf(`
apiVersion: v1
kind: ResourceQuota
metadata: {name: diagnosis, namespace: %s}
spec: {hard: {count/%s: "%d"}}
`, scenario.LeaderNamespace, exports, len(strings.Fields(have))))
	return effect{where: "in " + leader.Name(), code: "TD049", words: []string{"ResourceQuota", "diagnosis"},
		heal: heal}, err
}
