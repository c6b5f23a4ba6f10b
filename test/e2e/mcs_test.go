package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tombolo-net/tombolo/test/scenario"
)

// hello has two Pods and the Service that the rows are about, in one cluster: ports tcp and udp 42.
const hello = `
apiVersion: v1
kind: Namespace
metadata: {name: mcs}
---
apiVersion: apps/v1
kind: %[2]s
metadata: {name: hello, namespace: mcs}
spec:
  replicas: 2
  %[3]s
  selector: {matchLabels: {app: hello}}
  template:
    metadata: {labels: {app: hello}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - name: echo
          image: tombolo/echo:dev
          imagePullPolicy: Never
          args: [serve]
          env:
            - {name: CLUSTER, value: %[1]s}
            - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
            - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
          readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1, timeoutSeconds: 5}
---
apiVersion: v1
kind: Service
metadata: {name: hello, namespace: mcs}
spec:
  %[4]s
  selector: {app: hello}
  ports:
    - {name: tcp, port: 42, targetPort: 8080, protocol: TCP}
    - {name: udp, port: 42, targetPort: 8080, protocol: UDP}
`

const helloExport = `
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: hello, namespace: mcs}
`

// solo is a Service of one Pod that takes seconds to end, and answers meanwhile.
const solo = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: solo, namespace: mcs}
spec:
  replicas: 1
  selector: {matchLabels: {app: solo}}
  template:
    metadata: {labels: {app: solo}}
    spec:
      terminationGracePeriodSeconds: 40
      containers:
        - name: echo
          image: tombolo/echo:dev
          imagePullPolicy: Never
          args: [serve]
          env:
            - {name: CLUSTER, value: %[1]s}
            - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
            - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
          lifecycle: {preStop: {sleep: {seconds: 20}}}
          readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1, timeoutSeconds: 5}
---
apiVersion: v1
kind: Service
metadata: {name: solo, namespace: mcs}
spec: {selector: {app: solo}, ports: [{name: http, port: 42, targetPort: 8080}]}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: solo, namespace: mcs}
`

// testMultiClusterServices has the rows of docs/multicluster-conformance.md's table that need packets and names, with
// their numbers. The rows that API servers can show are in pkg/multicluster/member.
func testMultiClusterServices(t *testing.T) {
	ctx := testContext(t)
	const name, local = "hello.mcs.svc.clusterset.local", "hello.mcs.svc.cluster.local"
	both := []string{"east", "west"}
	must(t, world.DNS(ctx, both...))
	manifest := func(cluster, kind, workload, service string) string {
		return fmt.Sprintf(hello, scenario.ClusterID(cluster), kind, workload, service)
	}
	for _, cluster := range both {
		must(t, world.Apply(ctx, cluster, manifest(cluster, "Deployment", "", "sessionAffinity: None")))
	}
	must(t, world.Apply(ctx, "west", fmt.Sprintf(solo, scenario.ClusterID("west"))))
	for _, cluster := range both {
		kubectl(t, cluster, "rollout", "status", "deployment/hello", "-n", "mcs", "--timeout=4m")
		must(t, world.ClientPod(ctx, cluster, "mcs/client", "node-2"))
	}
	resolves := func(t *testing.T, cluster, what string, want []string, options ...string) {
		t.Helper()
		eventually(t, stateLimit, func(ctx context.Context) error {
			have, err := world.Resolve(ctx, cluster, "mcs/client", what, options...)
			if err != nil {
				return err
			}
			if diff := cmp.Diff(want, have); diff != "" {
				return errors.New(diff)
			}
			return nil
		})
	}
	nowhere := func(t *testing.T, cluster string) {
		t.Helper()
		eventually(t, stateLimit, func(ctx context.Context) error {
			have, err := world.Resolve(ctx, cluster, "mcs/client", name)
			if err == nil {
				return fmt.Errorf("%s leads to %v", name, have)
			}
			if !strings.Contains(err.Error(), "no such host") {
				return err
			}
			return nil
		})
	}
	ips := func(t *testing.T, cluster string) []string {
		t.Helper()
		var out string
		eventually(t, stateLimit, func(ctx context.Context) (err error) {
			out, err = world.Kubectl(ctx, cluster, "get", "serviceimports.v1beta1.multicluster.x-k8s.io", "hello", "-n", "mcs",
				"-o", "jsonpath={.spec.ips[0]}")
			if err == nil && out == "" {
				err = errors.New("the import has no IP")
			}
			return err
		})
		return []string{out}
	}
	// only asks until all answers come from a number of Pods, and only from the named clusters. Without session affinity
	// each of the 40 connections has a choice of its own, so a wrong endpoint is found.
	only := func(t *testing.T, from, kind, address string, pods int, to ...string) {
		t.Helper()
		eventually(t, stateLimit, func(ctx context.Context) error {
			out, err := world.Exec(ctx, from, "mcs/client", "/echo", kind, address, "--count", "40", "--timeout", "2s")
			if err != nil {
				return fmt.Errorf("%w\n%s", err, out)
			}
			a, right := parseAnswers(out), 0
			for _, cluster := range to {
				right += a.share(scenario.ClusterID(cluster) + "/")
			}
			if right != 40 || len(a.by) != pods {
				return fmt.Errorf("asked from %s, answers come from %v, want %d Pods, of %v alone", from, a.by, pods, to)
			}
			return nil
		})
	}
	// headless asks for the names of the two Pods that a headless Service has in each cluster, and returns the addresses
	// of all.
	headless := func(t *testing.T, workload string) []string {
		t.Helper()
		var all, srv []string
		own, named := map[string][]string{}, map[string]string{}
		for _, cluster := range both {
			kubectl(t, cluster, "rollout", "status", workload, "-n", "mcs", "--timeout=4m")
			pods := kubectl(t, cluster, "get", "pods", "-l", "app=hello", "-n", "mcs", "-o",
				`jsonpath={range .items[*]}{.status.podIP} {.spec.hostname}{"\n"}{end}`)
			for line := range strings.Lines(pods) {
				ip, host, _ := strings.Cut(strings.TrimSpace(line), " ")
				if host == "" {
					host = strings.ReplaceAll(ip, ".", "-")
				}
				host = fmt.Sprintf("%s.%s.%s", host, scenario.ClusterID(cluster), name)
				own[cluster], named[host] = append(own[cluster], ip), ip
				srv = append(srv, "8080 "+host+".")
			}
			if len(own[cluster]) != 2 {
				t.Fatalf("%s has the Pods %q, want two", cluster, pods)
			}
			slices.Sort(own[cluster])
			all = append(all, own[cluster]...)
		}
		slices.Sort(all)
		slices.Sort(srv)
		for _, cluster := range both {
			resolves(t, cluster, name, all)
			resolves(t, cluster, name, srv, "--srv")
			for host, ip := range named {
				resolves(t, cluster, host, []string{ip})
			}
			resolves(t, cluster, local, own[cluster])
		}
		return all
	}

	t.Run("17 not exported", func(t *testing.T) {
		for _, cluster := range both {
			nowhere(t, cluster)
		}
	})
	must(t, world.Apply(ctx, "east", helloExport))
	t.Run("18, 19, 22 to 24 exported by one of two", func(t *testing.T) {
		for _, cluster := range both {
			resolves(t, cluster, name, ips(t, cluster))
			// Both ports have one number, and one record without their names.
			for _, of := range []string{"", "_tcp._tcp.", "_udp._udp."} {
				resolves(t, cluster, of+name, []string{"42 " + name + "."}, "--srv")
			}
			resolves(t, cluster, local,
				[]string{kubectl(t, cluster, "get", "service", "hello", "-n", "mcs", "-o", "jsonpath={.spec.clusterIP}")})
			only(t, cluster, "get", "http://"+name+":42/", 2, "east")
			only(t, cluster, "udp", name+":42", 2, "east")
			only(t, cluster, "get", "http://"+local+":42/", 2, cluster)
		}
	})
	t.Run("20 one port name, two numbers", func(t *testing.T) {
		kubectl(t, "west", "patch", "service", "hello", "-n", "mcs", "--type=json", "-p",
			`[{"op":"replace","path":"/spec/ports/0/port","value":43}]`)
		must(t, world.Apply(ctx, "west", helloExport))
		for _, cluster := range both {
			eventually(t, stateLimit, func(ctx context.Context) error {
				out, err := world.Kubectl(ctx, cluster, "get", "serviceexport", "hello", "-n", "mcs", "-o",
					`jsonpath={.status.conditions[?(@.type=="Conflict")].reason}`)
				if err == nil && out != "PortConflict" {
					err = fmt.Errorf("conflict %q, want PortConflict", out)
				}
				return err
			})
			only(t, cluster, "udp", name+":42", 4, both...) // what west exports has arrived
			only(t, cluster, "get", "http://"+name+":42/", 2, "east")
		}
	})
	t.Run("21 other names and numbers", func(t *testing.T) {
		kubectl(t, "west", "patch", "service", "hello", "-n", "mcs", "--type=json", "-p",
			`[{"op":"replace","path":"/spec/ports/0","value":{"name":"other","port":43,"targetPort":8080,"protocol":"TCP"}}]`)
		for _, cluster := range both {
			only(t, cluster, "get", "http://"+name+":43/", 2, "west")
			only(t, cluster, "get", "http://"+name+":42/", 2, "east")
			resolves(t, cluster, name, []string{"42 " + name + ".", "43 " + name + "."}, "--srv") // row 23
			resolves(t, cluster, "_tcp._tcp."+name, []string{"42 " + name + "."}, "--srv")
			resolves(t, cluster, "_other._tcp."+name, []string{"43 " + name + "."}, "--srv")
		}
	})
	t.Run("5 session affinity", func(t *testing.T) {
		for _, cluster := range both {
			kubectl(t, cluster, "patch", "service", "hello", "-n", "mcs", "-p", `{"spec":{"sessionAffinity":"ClientIP"}}`)
		}
		for _, cluster := range both {
			only(t, cluster, "get", "http://"+name+":42/", 1, "east")
			only(t, cluster, "udp", name+":42", 1, both...)
		}
	})
	// The only Pod behind an exported Service ends, and another one comes. The import stays, with its address and
	// annotations.
	t.Run("2 the import lives while an export does", func(t *testing.T) {
		const annotation, annotated = "multicluster.tombolo.io/requests=spread",
			`{.spec.ips[0]} {.metadata.annotations.multicluster\.tombolo\.io/requests}`
		kubectl(t, "west", "rollout", "status", "deployment/solo", "-n", "mcs", "--timeout=4m")
		state := func() string {
			return kubectl(t, "east", "get", "serviceimport", "solo", "-n", "mcs", "-o", "jsonpath="+annotated)
		}
		kubectl(t, "east", "annotate", "serviceimport", "solo", "-n", "mcs", annotation)
		first := state()
		ip, _, _ := strings.Cut(first, " ")
		url := "http://" + ip + ":42/"
		only(t, "east", "get", url, 1, "west")
		kubectl(t, "west", "scale", "deployment", "solo", "-n", "mcs", "--replicas=0")
		terminating := func(ctx context.Context) (string, error) {
			return world.Kubectl(ctx, "west", "get", "endpointslices", "-l", "kubernetes.io/service-name=solo", "-n",
				"mcs", "-o",
				"jsonpath={.items[*].endpoints[*].conditions.serving}{.items[*].endpoints[*].conditions.terminating}")
		}
		eventually(t, stateLimit, func(ctx context.Context) error {
			have, err := terminating(ctx)
			if err == nil && have != "truetrue" {
				err = fmt.Errorf("endpoint is serving and terminating: %q", have)
			}
			return err
		})
		// The Pod answers for seconds until it has ended. From then on connections are refused. Each request gets one or the
		// other.
		whole := 0 // clients of which every request was answered
		eventually(t, stateLimit, func(ctx context.Context) error {
			out, err := world.Exec(ctx, "east", "mcs/client", "/echo", "get", url, "--count", "20", "--timeout", "2s",
				"--interval", "50ms")
			if parseAnswers(out).share(scenario.ClusterID("west")+"/") == 20 {
				whole++
			}
			if n := strings.Count(out, "connection refused"); n != 20 {
				return fmt.Errorf("%d of 20 refused: %w\n%s", n, err, out)
			}
			return nil
		})
		if whole == 0 {
			t.Error("while the Pod ended for 20 seconds there was no client of which every request was answered")
		}
		if have := state(); have != first {
			t.Errorf("without an endpoint the import has %q, want %q", have, first)
		}
		kubectl(t, "west", "scale", "deployment", "solo", "-n", "mcs", "--replicas=1")
		only(t, "east", "get", url, 1, "west")
		if have := state(); have != first {
			t.Errorf("with another Pod the import has %q, want %q", have, first)
		}
	})
	for _, cluster := range both {
		kubectl(t, cluster, "delete", "serviceexport", "hello", "-n", "mcs")
		kubectl(t, cluster, "delete", "service", "hello", "-n", "mcs")
	}
	t.Run("25, 27 headless Deployment", func(t *testing.T) {
		for _, cluster := range both {
			nowhere(t, cluster)
		}
		for _, cluster := range both {
			must(t, world.Apply(ctx, cluster, manifest(cluster, "Deployment", "", "clusterIP: None")+"---"+helloExport))
		}
		all := headless(t, "deployment/hello")

		// A fifth Pod runs, and this test makes it ready.
		kubectl(t, "east", "run", "gated", "-n", "mcs", "--image=tombolo/echo:dev", "--image-pull-policy=Never",
			"--labels=app=hello",
			`--overrides={"apiVersion":"v1","spec":{"readinessGates":[{"conditionType":"test/ready"}]}}`, "--", "serve")
		kubectl(t, "east", "wait", "--for=condition=ContainersReady", "pod/gated", "-n", "mcs", "--timeout=4m")
		five := append(slices.Clone(all),
			kubectl(t, "east", "get", "pod", "gated", "-n", "mcs", "-o", "jsonpath={.status.podIP}"))
		slices.Sort(five)
		for _, step := range []struct {
			ready string
			want  []string
		}{{"False", all}, {"True", five}, {"False", all}} {
			kubectl(t, "east", "patch", "pod", "gated", "-n", "mcs", "--subresource=status", "-p",
				fmt.Sprintf(`{"status":{"conditions":[{"type":"test/ready","status":%q}]}}`, step.ready))
			for _, cluster := range both {
				resolves(t, cluster, name, step.want)
			}
		}
	})
	kubectl(t, "east", "delete", "pod", "gated", "-n", "mcs")
	for _, cluster := range both {
		kubectl(t, cluster, "delete", "serviceexport", "hello", "-n", "mcs")
		kubectl(t, cluster, "delete", "deployment", "hello", "-n", "mcs")
		kubectl(t, cluster, "wait", "--for=delete", "pod", "-l", "app=hello", "-n", "mcs", "--timeout=4m")
	}
	t.Run("25 to 27 headless StatefulSet", func(t *testing.T) {
		for _, cluster := range both {
			nowhere(t, cluster)
		}
		for _, cluster := range both {
			must(t, world.Apply(ctx, cluster,
				manifest(cluster, "StatefulSet", "serviceName: hello", "clusterIP: None")+"---"+helloExport))
		}
		headless(t, "statefulset/hello")
		for _, cluster := range both {
			kubectl(t, cluster, "delete", "serviceexport", "hello", "-n", "mcs")
		}
		for _, cluster := range both {
			nowhere(t, cluster)
			kubectl(t, cluster, "delete", "namespace", "mcs", "--wait=false")
		}
	})
}
