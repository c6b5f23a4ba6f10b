package node

import (
	"bytes"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tombolo-net/tombolo/test/apiserver"
	"github.com/tombolo-net/tombolo/test/child"
)

// kubeProxy starts Kubernetes' own proxy on a Node. It serves node ports at the Node's address outside.
func (n *secureNode) kubeProxy() {
	n.t.Helper()
	path, err := apiserver.Kubernetes()
	if err != nil {
		n.t.Fatal(err)
	}
	config := filepath.Join(n.t.TempDir(), "kubeconfig")
	access := clientcmdapi.NewConfig()
	access.Clusters["cluster"] = &clientcmdapi.Cluster{Server: n.url}
	access.Contexts["cluster"] = &clientcmdapi.Context{Cluster: "cluster"}
	access.CurrentContext = "cluster"
	if err := clientcmd.WriteToFile(*access, config); err != nil {
		n.t.Fatal(err)
	}
	var log bytes.Buffer
	proxy := exec.Command(path, "--kubeconfig="+config, "--hostname-override="+n.name, "--proxy-mode=nftables",
		"--cluster-cidr=10.14.0.0/16", "--nodeport-addresses=10.200.1.0/24", "--healthz-bind-address=127.0.0.1:10356",
		"--metrics-bind-address=127.0.0.1:10249", "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0",
		"--conntrack-tcp-timeout-close-wait=0")
	proxy.Args[0] = "kube-proxy" // the component that the binary runs
	proxy.Stdout, proxy.Stderr = &log, &log
	n.in(func() {
		if err := child.Start(proxy); err != nil {
			n.t.Fatal(err)
		}
	})
	ended := make(chan struct{})
	go func() { _ = proxy.Wait(); close(ended) }()
	n.t.Cleanup(func() {
		_ = proxy.Process.Kill()
		<-ended
		if n.t.Failed() {
			n.t.Logf("kube-proxy:\n%s", log.String())
		}
	})
	n.eventually("kube-proxy runs", func() (err error) {
		select {
		case <-ended:
			n.t.Fatalf("kube-proxy has ended: %v", proxy.ProcessState)
		default:
		}
		n.in(func() {
			var conn net.Conn
			if conn, err = net.DialTimeout("tcp4", "127.0.0.1:10249", time.Second); err == nil {
				conn.Close()
			}
		})
		return err
	})
}

// testKubeProxy switches a Node from kube-proxy to antreaProxy.proxyAll and back, while kube-proxy runs. The
// agent's table serves new connections as long as it is there. All open connections stay.
func testKubeProxy(t *testing.T, n *secureNode, check func(outsideRow)) {
	n.kubeProxy()
	address := fmt.Sprint("10.200.1.2:", nearPort)
	outside := func(f func()) { f() }
	var open []net.Conn
	for _, step := range []struct {
		who      string
		proxyAll bool
		want     string
	}{
		{"kube-proxy", false, "near 10.14.1.1"}, // it translates the client's address
		{"the agent", true, "near 10.200.1.1"},
		{"kube-proxy again", false, "near 10.14.1.1"},
	} {
		if n.spec.ProxyAll != step.proxyAll {
			n.kill()
			n.spec.ProxyAll = step.proxyAll
			n.start()
		}
		check(outsideRow{"node port of " + step.who, outside, "tcp4", address, step.want})
		check(outsideRow{"node port of " + step.who, outside, "udp4", address, step.want})
		conn := n.dialled("tcp4", address)
		defer conn.Close()
		open = append(open, conn)
		for i, conn := range open {
			if _, err := ask(conn, "still", time.Minute); err != nil {
				t.Errorf("node port of %s: connection %d: %v", step.who, i, err)
			}
		}
	}
}
