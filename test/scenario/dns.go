package scenario

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// dnsImage is CoreDNS as `make coredns` makes it.
const dnsImage = "tombolo/coredns:dev"

// DNS installs CoreDNS as the DNS server of clusters, with the names of clusterset.local as in the documentation.
func (s *Scenario) DNS(ctx context.Context, clusters ...string) error {
	tar := filepath.Join(s.Lab.Repo(), "bin/dns/coredns.tar")
	if _, err := os.Stat(tar); err != nil {
		return fmt.Errorf("the image of the DNS server is missing, run `make coredns`: %w", err)
	}
	rights, err := os.ReadFile(filepath.Join(s.Lab.Repo(), "deploy/multicluster/coredns-clusterset.yml"))
	if err != nil {
		return err
	}
	for _, name := range clusters {
		c := s.Lab.Cluster(name)
		for _, n := range c.Nodes() {
			if err := n.LoadImage(ctx, tar); err != nil {
				return err
			}
		}
		if err := s.Apply(ctx, name, string(rights)+dnsManifestOf(c.DNS())); err != nil {
			return err
		}
		if _, err := s.Kubectl(ctx, name, "rollout", "status", "deployment/coredns", "-n", "kube-system",
			"--timeout=4m"); err != nil {
			return err
		}
	}
	return nil
}

// dnsManifestOf returns the manifest with the server's ClusterIPs.
func dnsManifestOf(addresses []netip.Addr) string {
	list := strings.Join(strings.Fields(strings.Trim(fmt.Sprintf("%q", addresses), "[]")), ", ")
	return fmt.Sprintf(dnsManifest, dnsImage, addresses[0], list)
}

// Resolve asks a cluster's DNS server from a Pod, and returns its answers in their order.
func (s *Scenario) Resolve(ctx context.Context, cluster, pod, name string, options ...string) ([]string, error) {
	out, err := s.Exec(ctx, cluster, pod, append([]string{"/echo", "resolve", name}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("resolve %s in %s: %w: %s", name, cluster, err, out)
	}
	return strings.Split(strings.TrimSpace(out), "\n"), nil
}

const dnsManifest = `
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: coredns, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "system:coredns"}
rules:
  - {apiGroups: [""], resources: [endpoints, services, pods, namespaces], verbs: [list, watch]}
  - {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "system:coredns"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:coredns"}
subjects: [{kind: ServiceAccount, name: coredns, namespace: kube-system}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
data:
  Corefile: |
    .:53 {
        errors
        health
        ready
        kubernetes cluster.local clusterset.local in-addr.arpa ip6.arpa {
            multicluster clusterset.local
            ttl 1
        }
    }
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: coredns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  replicas: 1
  selector: {matchLabels: {k8s-app: kube-dns}}
  template:
    metadata: {labels: {k8s-app: kube-dns}}
    spec:
      serviceAccountName: coredns
      dnsPolicy: Default
      terminationGracePeriodSeconds: 1
      containers:
        - name: coredns
          image: %s
          imagePullPolicy: Never
          args: [-conf, /etc/coredns/Corefile]
          readinessProbe: {httpGet: {path: /ready, port: 8181}, periodSeconds: 1, timeoutSeconds: 5}
          volumeMounts: [{name: config, mountPath: /etc/coredns}]
      volumes: [{name: config, configMap: {name: coredns}}]
---
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec:
  clusterIP: "%s"
  clusterIPs: [%s]
  ipFamilyPolicy: PreferDualStack
  selector: {k8s-app: kube-dns}
  ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
`
