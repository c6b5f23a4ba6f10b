// Package lint checks the manifests that users apply against written rules: a container's rights on its Node, a role's
// rights to read, and the kubelet's settings for each container.
package lint

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// grants are the capabilities that containers may add, by the container's name. A container that is not listed may add
// none.
var grants = map[string][]corev1.Capability{
	"ovs-vswitchd":  {"NET_ADMIN", "NET_RAW", "NET_BROADCAST", "IPC_LOCK"},
	"tombolo-agent": {"NET_ADMIN", "NET_RAW", "SYS_ADMIN", "SYS_PTRACE"},
	"wireguard":     {"NET_ADMIN"},
	"uninstall":     {"NET_ADMIN"},
}

// rootPods run as root: they own files and sockets of the Node. Every other Pod may not.
var rootPods = []string{"tombolo-ovs", "tombolo-agent", "tombolo-wireguard", "tombolo-uninstall"}

// hostPaths are the Node's directories that Pods may mount, by the name of their workload.
var hostPaths = map[string][]string{
	"tombolo-ovs": {"/var/run/openvswitch", "/var/lib/openvswitch", "/var/log/openvswitch", "/dev/net"},
	"tombolo-agent": {
		"/var/run/tombolo", "/var/lib/tombolo", "/var/log/tombolo", "/var/run/openvswitch", "/var/run/netns", "/proc/sys/net",
		"/opt/cni/bin", "/etc/cni/net.d",
		"/var/run/wireguard", "/dev/net",
	},
	"tombolo-wireguard": {"/var/run/wireguard", "/dev/net"},
	"tombolo-uninstall": {
		"/var/run/tombolo", "/var/lib/tombolo", "/var/run/openvswitch", "/proc/sys/net", "/opt/cni/bin", "/etc/cni/net.d",
	},
}

// idle are containers that do nothing but wait, so there is nothing to probe.
var idle = []string{"done"}

// File returns what breaks a rule in one file of YAML documents.
func File(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	found, err := Documents(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return found, nil
}

// Documents returns what breaks a rule in YAML documents.
func Documents(r io.Reader) ([]string, error) {
	var found []string
	documents := utilyaml.NewYAMLReader(bufio.NewReader(r))
	for {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(text, &kind); err != nil {
			return nil, err
		}
		c := checker{}
		switch kind.Kind {
		case "Deployment":
			var o appsv1.Deployment
			err = yaml.UnmarshalStrict(text, &o)
			c.workload("Deployment", o.Name, o.Spec.Selector, o.Spec.Template)
		case "DaemonSet":
			var o appsv1.DaemonSet
			err = yaml.UnmarshalStrict(text, &o)
			c.workload("DaemonSet", o.Name, o.Spec.Selector, o.Spec.Template)
		case "Role":
			var o rbacv1.Role
			err = yaml.UnmarshalStrict(text, &o)
			c.rules("Role "+o.Name, o.Rules)
		case "ClusterRole":
			var o rbacv1.ClusterRole
			err = yaml.UnmarshalStrict(text, &o)
			c.rules("ClusterRole "+o.Name, o.Rules)
		case "RoleBinding", "ClusterRoleBinding":
			var o rbacv1.ClusterRoleBinding // the same fields
			err = yaml.UnmarshalStrict(text, &o)
			if o.RoleRef.Name == forPeople {
				c.failf("%s %s: binds %s, which administrators bind to people", kind.Kind, o.Name, forPeople)
			}
		case "Pod", "Job", "CronJob", "StatefulSet", "ReplicaSet":
			c.failf("%s: no rule reads this kind: teach package lint", kind.Kind)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind.Kind, err)
		}
		found = append(found, c.found...)
	}
}

type checker struct{ found []string }

func (c *checker) failf(format string, args ...any) {
	c.found = append(c.found, fmt.Sprintf(format, args...))
}

func (c *checker) workload(kind, name string, selector *metav1.LabelSelector, template corev1.PodTemplateSpec) {
	where, pod := kind+" "+name, template.Spec
	for k, v := range selector.MatchLabels {
		if template.Labels[k] != v {
			c.failf("%s: the selector wants label %s=%s, which its Pods lack", where, k, v)
		}
	}
	security := pod.SecurityContext
	if security == nil {
		security = &corev1.PodSecurityContext{}
	}
	if p := security.SeccompProfile; p == nil || p.Type != corev1.SeccompProfileTypeRuntimeDefault {
		c.failf("%s: seccompProfile is not RuntimeDefault", where)
	}
	root := slices.Contains(rootPods, name)
	if !root && (security.RunAsNonRoot == nil || !*security.RunAsNonRoot || security.RunAsUser == nil ||
		*security.RunAsUser == 0) {
		c.failf("%s: want runAsNonRoot and a runAsUser", where)
	}
	if !root && (pod.HostPID || pod.HostIPC) {
		c.failf("%s: uses the Node's process or IPC namespace", where)
	}
	if pod.ServiceAccountName == "" && (pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken) {
		c.failf("%s: mounts the token of the Namespace's default ServiceAccount", where)
	}
	if pod.PriorityClassName == "" {
		c.failf("%s: has no priorityClassName: it would be evicted before what depends on it", where)
	}
	for _, v := range pod.Volumes {
		if v.HostPath != nil && !slices.Contains(hostPaths[name], v.HostPath.Path) {
			c.failf("%s: mounts the Node's %s", where, v.HostPath.Path)
		}
	}
	for _, x := range pod.InitContainers {
		c.container(where, x)
	}
	for _, x := range pod.Containers {
		c.container(where, x)
		if slices.Contains(idle, x.Name) {
			continue
		}
		if x.LivenessProbe == nil || x.ReadinessProbe == nil && x.StartupProbe == nil {
			c.failf("%s, container %s: want a livenessProbe, and a readinessProbe or a startupProbe", where, x.Name)
		}
		for _, p := range []*corev1.Probe{x.LivenessProbe, x.ReadinessProbe} {
			if p != nil && p.Exec != nil && p.PeriodSeconds < 20 {
				c.failf("%s, container %s: a probe runs a program every %d seconds, which costs each Node: want httpGet, or "+
					"periodSeconds 20", where, x.Name, p.PeriodSeconds)
			}
		}
	}
}

func (c *checker) container(where string, x corev1.Container) {
	where += ", container " + x.Name
	s := x.SecurityContext
	if s == nil {
		s = &corev1.SecurityContext{}
	}
	isTrue := func(b *bool) bool { return b != nil && *b }
	if isTrue(s.Privileged) {
		c.failf("%s: is privileged: name the capabilities that it needs", where)
	}
	if s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation {
		c.failf("%s: want allowPrivilegeEscalation: false", where)
	}
	if !isTrue(s.ReadOnlyRootFilesystem) {
		c.failf("%s: want readOnlyRootFilesystem: true", where)
	}
	if s.SeccompProfile != nil || s.RunAsUser != nil || s.RunAsNonRoot != nil {
		c.failf("%s: overrides what the Pod says of seccomp or users", where)
	}
	capabilities := s.Capabilities
	if capabilities == nil {
		capabilities = &corev1.Capabilities{}
	}
	if !slices.Equal(capabilities.Drop, []corev1.Capability{"ALL"}) {
		c.failf("%s: want capabilities: {drop: [ALL]}", where)
	}
	for _, added := range capabilities.Add {
		if !slices.Contains(grants[x.Name], added) {
			c.failf("%s: adds capability %s", where, added)
		}
	}
	for _, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if q, ok := x.Resources.Requests[r]; !ok || q.IsZero() {
			c.failf("%s: requests no %s", where, r)
		}
	}
	if _, ok := x.Resources.Limits[corev1.ResourceCPU]; ok {
		c.failf("%s: a CPU limit throttles what other Pods' traffic waits for", where)
	}
	// Nodes must not pull images of the shipped manifests: their names in a public registry are not ours.
	if given := strings.HasPrefix(x.Image, "tombolo/"); given != (x.ImagePullPolicy == corev1.PullNever) {
		c.failf("%s: image %s with imagePullPolicy %s: want Never for tombolo/..., and no Never for a registry's", where,
			x.Image, x.ImagePullPolicy)
	}
	if x.ImagePullPolicy == corev1.PullAlways || x.ImagePullPolicy == "" || strings.HasSuffix(x.Image, ":latest") ||
		!strings.Contains(x.Image, ":") {
		c.failf("%s: want an image with a tag and imagePullPolicy IfNotPresent or Never", where)
	}
}

// rules finds roles that let a stolen token do more than the component needs.
func (c *checker) rules(where string, rules []rbacv1.PolicyRule) {
	for _, r := range rules {
		what := strings.Join(r.Resources, ",")
		if slices.Contains(slices.Concat(r.APIGroups, r.Resources, r.Verbs), "*") {
			c.failf("%s: a wildcard for %s", where, what)
		}
		for _, verb := range []string{"escalate", "bind", "impersonate", "deletecollection"} {
			if slices.Contains(r.Verbs, verb) && !ownSecrets(r) {
				c.failf("%s: verb %s for %s", where, verb, what)
			}
		}
		core := slices.Contains(r.APIGroups, "")
		if core && slices.Contains(r.Resources, "secrets") && len(r.ResourceNames) == 0 &&
			slices.ContainsFunc(r.Verbs, func(v string) bool { return v != "create" }) {
			c.failf("%s: may %s Secrets that it does not name", where, strings.Join(r.Verbs, ", "))
		}
		if core && slices.ContainsFunc(r.Resources, func(x string) bool {
			return strings.HasPrefix(x, "pods/exec") || strings.HasPrefix(x, "nodes/proxy") || x == "serviceaccounts/token"
		}) && where != "ClusterRole "+forPeople {
			c.failf("%s: may use %s", where, what)
		}
	}
}

// forPeople is a role that allows commands in Pods. No component has it.
const forPeople = "tombolo-gather-pods"

// ownSecrets reports whether a rule is for the Role by which the member controller may read the Secret of its
// ClusterSet. Admission policies restrict its rules (TestSecretAccess of pkg/multicluster/member).
func ownSecrets(r rbacv1.PolicyRule) bool {
	return slices.Equal(r.Resources, []string{"roles"}) &&
		slices.Equal(r.ResourceNames, []string{"antrea-mc-controller-secrets"})
}
