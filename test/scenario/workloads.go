package scenario

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tombolo-net/tombolo/test/manifests"
)

// echoImage is the lab's test image: an HTTP server and client in one binary.
const echoImage = "tombolo/echo:dev"

// Nginx deploys a Deployment and Service named nginx in default: what the guide exports.
func (s *Scenario) Nginx(ctx context.Context, cluster string, replicas int) error {
	manifest := fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: nginx, namespace: default}
spec:
  replicas: %d
  selector: {matchLabels: {app: nginx}}
  template:
    metadata: {labels: {app: nginx}}
    spec:
      terminationGracePeriodSeconds: 1
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: DoNotSchedule
          labelSelector: {matchLabels: {app: nginx}}
      containers:
        - name: echo
          image: %s
          imagePullPolicy: Never
          args: [serve]
          env:
            - {name: CLUSTER, value: %s}
            - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
            - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
          ports: [{containerPort: 8080}]
          readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 2, timeoutSeconds: 5}
---
apiVersion: v1
kind: Service
metadata: {name: nginx, namespace: default}
spec:
  selector: {app: nginx}
  ports: [{name: http, port: 80, targetPort: 8080}]
`, replicas, echoImage, ClusterID(cluster))
	if err := s.Apply(ctx, cluster, manifest); err != nil {
		return err
	}
	_, err := s.Kubectl(ctx, cluster, "rollout", "status", "deployment/nginx", "-n", "default", "--timeout=4m")
	return err
}

// ClientPod runs a Pod on one Node that waits for commands. Its name may be prefixed with the Namespace and a slash.
func (s *Scenario) ClientPod(ctx context.Context, cluster, name, node string) error {
	namespace, name := split(name)
	manifest := fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s, labels: {app: client}}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  tolerations: [{operator: Exists}]
  containers:
    - {name: echo, image: %s, imagePullPolicy: Never, args: [serve]}
`, name, namespace, node, echoImage)
	if err := s.Apply(ctx, cluster, manifest); err != nil {
		return err
	}
	_, err := s.Kubectl(ctx, cluster, "wait", "--for=condition=Ready", "pod/"+name, "-n", namespace, "--timeout=4m")
	return err
}

// split divides a Pod's name into Namespace and name. Without a prefix the Namespace is default.
func split(pod string) (namespace, name string) {
	if namespace, name, ok := strings.Cut(pod, "/"); ok {
		return namespace, name
	}
	return "default", pod
}

// Export applies the guide's ServiceExport of default/nginx.
func (s *Scenario) Export(ctx context.Context, cluster string) error {
	manifest, err := manifests.V114().Part("export")
	if err != nil {
		return err
	}
	return s.Apply(ctx, cluster, manifest)
}

// ExportPods makes a Service for the Pods in Namespace default that have a label, and exports it. The Service is given
// as YAML.
func (s *Scenario) ExportPods(ctx context.Context, cluster, service, label string) error {
	return s.Apply(ctx, cluster, fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: default}
spec: {selector: {%[2]s}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ServiceExport
metadata: {name: %[1]s, namespace: default}
`, service, label))
}

// ImportedIP waits for the ClusterIP of an imported Service, and until its Endpoints have n addresses.
func (s *Scenario) ImportedIP(ctx context.Context, cluster, service string, n int, limit time.Duration) (string,
	error) {
	var ip string
	err := Eventually(ctx, limit, func(ctx context.Context) error {
		out, err := s.Kubectl(ctx, cluster, "get", "service", service, "-n", "default", "-o", "jsonpath={.spec.clusterIP}")
		if err != nil {
			return err
		}
		ip = out
		out, err = s.Kubectl(ctx, cluster, "get", "endpoints", service, "-n", "default", "-o",
			"jsonpath={.subsets[*].addresses[*].ip}")
		if err != nil {
			return err
		}
		if got := len(strings.Fields(out)); got != n {
			return fmt.Errorf("endpoints %s in %s has %d addresses (%s), want %d", service, cluster, got, out, n)
		}
		return nil
	})
	return ip, err
}
