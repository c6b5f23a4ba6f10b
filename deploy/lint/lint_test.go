package lint

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestManifests lints every manifest that users apply.
func TestManifests(t *testing.T) {
	files := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yml" {
			return err
		}
		files++
		found, err := File(path)
		if err != nil {
			return err
		}
		for _, x := range found {
			t.Errorf("%s: %s", path, x)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 6 {
		t.Errorf("%d manifests were found, want 6 or more", files)
	}
}

const good = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: x}
spec:
  selector: {matchLabels: {app: x}}
  template:
    metadata: {labels: {app: x}}
    spec:
      serviceAccountName: x
      priorityClassName: system-cluster-critical
      securityContext: {runAsNonRoot: true, runAsUser: 1, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: x
          image: x:1
          imagePullPolicy: IfNotPresent
          securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
          resources: {requests: {cpu: 1m, memory: 1Mi}}
          livenessProbe: {exec: {command: [x]}, periodSeconds: 20}
          readinessProbe: {httpGet: {port: 80}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: x}
rules:
  - {apiGroups: [""], resources: [secrets], resourceNames: [x], verbs: [get]}
`

// TestRules breaks one rule at a time in a manifest that breaks none.
func TestRules(t *testing.T) {
	if found, err := Documents(strings.NewReader(good)); err != nil || len(found) > 0 {
		t.Fatalf("the good manifest: %v %v", found, err)
	}
	for _, c := range []struct{ name, replace, by, want string }{
		{"privileged", "{allowPrivilegeEscalation: false,", "{allowPrivilegeEscalation: false, privileged: true,",
			"is privileged"},
		{"escalation", "allowPrivilegeEscalation: false, ", "", "allowPrivilegeEscalation"},
		{"writable root", "readOnlyRootFilesystem: true, ", "", "readOnlyRootFilesystem"},
		{"kept capabilities", "capabilities: {drop: [ALL]}", "capabilities: {drop: [NET_RAW]}", "drop: [ALL]"},
		{"added capability", "{drop: [ALL]}", "{drop: [ALL], add: [SYS_ADMIN]}", "adds capability SYS_ADMIN"},
		{"no seccomp", ", seccompProfile: {type: RuntimeDefault}", "", "seccompProfile"},
		{"root", "runAsNonRoot: true, runAsUser: 1, ", "", "runAsNonRoot"},
		{"user 0", "runAsUser: 1", "runAsUser: 0", "runAsUser"},
		{"host processes", "serviceAccountName: x", "serviceAccountName: x\n      hostPID: true", "process or IPC namespace"},
		{"default account", "serviceAccountName: x", "dnsPolicy: Default", "default ServiceAccount"},
		{"no priority", "priorityClassName: system-cluster-critical", "dnsPolicy: Default", "priorityClassName"},
		{"Node's directory", "      containers:", "      volumes: [{name: x, hostPath: {path: /etc}}]\n      containers:",
			"the Node's /etc"},
		{"no liveness", "livenessProbe: {exec: {command: [x]}, periodSeconds: 20}", "args: []", "livenessProbe"},
		{"neither ready nor started", "readinessProbe: {httpGet: {port: 80}}", "args: []", "startupProbe"},
		{"programs often", "periodSeconds: 20", "periodSeconds: 10", "every 10 seconds"},
		{"no requests", "resources: {requests: {cpu: 1m, memory: 1Mi}}", "args: []", "requests no memory"},
		{"CPU limit", "memory: 1Mi}}", "memory: 1Mi}, limits: {cpu: 1}}", "CPU limit"},
		{"latest", "image: x:1", "image: x", "image with a tag"},
		{"commands in Pods", "resources: [secrets], resourceNames: [x]", "resources: [pods/exec]", "may use pods/exec"},
		{"a role for people", "rules:\n  - {", "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\n" +
			"metadata: {name: b}\nroleRef: {name: tombolo-gather-pods}\n---\napiVersion: rbac.authorization.k8s.io/v1\n" +
			"kind: Role\nmetadata: {name: z}\nrules:\n  - {", "b: binds tombolo-gather-pods"},
		{"a public name", "image: x:1", "image: tombolo/x:dev", "want Never for tombolo/"},
		{"never pulled", "imagePullPolicy: IfNotPresent", "imagePullPolicy: Never", "no Never for a registry's"},
		{"selector", "matchLabels: {app: x}", "matchLabels: {app: y}", "the selector"},
		{"Secrets listed", "resourceNames: [x], verbs: [get]", "verbs: [get, list]", "may get, list Secrets"},
		{"wildcard", "resources: [secrets]", `resources: ["*"]`, "wildcard"},
		{"impersonation", "resources: [secrets], resourceNames: [x], verbs: [get]",
			"resources: [users], verbs: [impersonate]", "impersonate"},
		{"escalation of a Role", "resources: [secrets], resourceNames: [x], verbs: [get]",
			"resources: [roles], resourceNames: [x], verbs: [escalate]", "escalate"},
		{"every Secret", "resourceNames: [x], ", "", "may get Secrets that it does not name"},
		{"unknown kind", "kind: Role", "kind: Pod", "no rule reads this kind"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !strings.Contains(good, c.replace) {
				t.Fatalf("the manifest has no %q", c.replace)
			}
			found, err := Documents(strings.NewReader(strings.Replace(good, c.replace, c.by, 1)))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(found, func(x string) bool { return strings.Contains(x, c.want) }) {
				t.Errorf("found %q, want something about %q", found, c.want)
			}
		})
	}
	if _, err := Documents(strings.NewReader(strings.Replace(good, "runAsNonRoot", "runAsNonRut", 1))); err == nil {
		t.Error("a misspelled key is accepted")
	}
}
