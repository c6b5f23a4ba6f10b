package setup

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
)

// Init makes the leader's ClusterSet, and then calls then for the caller's part. If then fails, Init removes the
// ClusterSet.
func (c Cluster) Init(ctx context.Context, namespace, clusterSet, clusterID string, then func() error) error {
	if err := CheckClusterID(clusterID); err != nil {
		return fmt.Errorf("%w; correct --clusterid", err)
	}
	m := &made{Cluster: c}
	err := m.clusterSet(ctx, &mcv1alpha2.ClusterSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: clusterSet},
		Spec: mcv1alpha2.ClusterSetSpec{ClusterID: clusterID,
			Leaders: []mcv1alpha2.LeaderClusterInfo{{ClusterID: clusterID}}, Namespace: namespace},
	})
	if err == nil {
		err = then()
	}
	if err != nil {
		return m.undo(ctx, err)
	}
	c.report("Successfully initialized ClusterSet %s", clusterSet)
	return nil
}

// clusterSet makes a ClusterSet. It returns an error if one of its name exists, which may belong to another user.
func (m *made) clusterSet(ctx context.Context, set *mcv1alpha2.ClusterSet) error {
	existed, err := m.create(ctx, "ClusterSet", set)
	if existed && err == nil {
		return fmt.Errorf(
			"ClusterSet %q exists in Namespace %s already; delete it first (mc leave in a member, mc destroy in the leader)",
			set.Name, set.Namespace)
	}
	return err
}

// The header of a join configuration.
const (
	joinConfigVersion = "multicluster.antrea.io/v1alpha1"
	joinConfigKind    = "ClusterSetJoinConfig"
)

// JoinConfig describes the ClusterSet that a member joins, and the way to it.
type JoinConfig struct {
	APIVersion      string `json:"apiVersion"`
	Kind            string `json:"kind"`
	ClusterSetID    string `json:"clusterSetID"`
	ClusterID       string `json:"clusterID,omitempty"`
	Namespace       string `json:"namespace,omitempty"` // of the member's controller
	LeaderClusterID string `json:"leaderClusterID"`
	LeaderNamespace string `json:"leaderNamespace"`
	LeaderAPIServer string `json:"leaderAPIServer"`
	TokenSecretName string `json:"tokenSecretName,omitempty"` // of a Secret that is there
	TokenSecretFile string `json:"tokenSecretFile,omitempty"` // a manifest with one
	// Secret is the manifest that followed in the same file.
	Secret *corev1.Secret `json:"-"`
	// SkipLeaderCheck joins without a request to the leader, which possibly only the member cluster can reach.
	SkipLeaderCheck bool `json:"-"`
}

// ReadJoinConfig reads a join configuration, and the Secret that may follow it after "---". An unknown key is an error,
// since it would be an option without effect.
func ReadJoinConfig(r io.Reader) (*JoinConfig, error) {
	var out *JoinConfig
	err := documents(r, func(text []byte) error {
		var head metav1.TypeMeta
		if err := yaml.Unmarshal(text, &head); err != nil {
			return err
		}
		switch {
		case head.APIVersion == joinConfigVersion && head.Kind == joinConfigKind && out == nil:
			out = &JoinConfig{}
			if err := knownKeys(text); err != nil {
				return err
			}
			return yaml.UnmarshalStrict(text, out)
		case head.APIVersion == "v1" && head.Kind == "Secret" && out != nil && out.Secret == nil:
			secret, err := secretOf(text)
			out.Secret = secret
			return err
		}
		return fmt.Errorf("unknown apiVersion or kind in config: %q, %q: want a %s of %s, and after it at most one Secret",
			head.APIVersion, head.Kind, joinConfigKind, joinConfigVersion)
	})
	if err == nil && out == nil {
		err = fmt.Errorf("it is empty: want a %s of %s", joinConfigKind, joinConfigVersion)
	}
	return out, err
}

// knownKeys refuses keys that a join configuration does not have.
func knownKeys(text []byte) error {
	var has map[string]any
	if err := yaml.Unmarshal(text, &has); err != nil {
		return err
	}
	var known, unknown []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[JoinConfig]()) {
		if key, _, _ := strings.Cut(f.Tag.Get("json"), ","); key != "-" {
			known = append(known, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(has)) {
		if !slices.Contains(known, key) {
			unknown = append(unknown, strconv.Quote(key))
		}
	}
	if len(unknown) > 0 {
		return fmt.Errorf("unknown key %s: correct or remove it; a %s has the keys %s", strings.Join(unknown, ", "),
			joinConfigKind, strings.Join(known, ", "))
	}
	return nil
}

// ReadTokenSecret reads the manifest of a token's Secret.
func ReadTokenSecret(r io.Reader) (secret *corev1.Secret, err error) {
	err = documents(r, func(text []byte) error {
		if secret != nil {
			return errors.New("it has more than one object: want one Secret")
		}
		secret, err = secretOf(text)
		return err
	})
	if err == nil && secret == nil {
		err = errors.New("it is empty: want a Secret with the keys ca.crt and token")
	}
	return secret, err
}

func secretOf(text []byte) (*corev1.Secret, error) {
	var head metav1.TypeMeta
	if err := yaml.Unmarshal(text, &head); err != nil {
		return nil, err
	}
	if head.APIVersion != "v1" || head.Kind != "Secret" {
		return nil, fmt.Errorf("it has a %s of %s: want a Secret of v1", head.Kind, head.APIVersion)
	}
	secret := &corev1.Secret{}
	if err := yaml.UnmarshalStrict(text, secret); err != nil {
		return nil, err
	}
	for key, value := range secret.StringData {
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		secret.Data[key] = []byte(value)
	}
	return secret, hasToken(secret)
}

// documents calls f with each document of a YAML file that is not empty.
func documents(r io.Reader, f func([]byte) error) error {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(r))
	for {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		var content any
		if err == nil {
			err = yaml.Unmarshal(text, &content)
		}
		if err == nil && content != nil { // else nothing but comments
			err = f(text)
		}
		if err != nil {
			return err
		}
	}
}

// Missing returns an error for each required parameter of joining that is missing.
func (j *JoinConfig) Missing() error {
	var missing []error
	for _, p := range []struct{ value, name, key, flag string }{
		{j.ClusterSetID, "ClusterSet", "clusterSetID", "clusterset"},
		{j.ClusterID, "ClusterID of member cluster", "clusterID", "clusterid"},
		{j.LeaderClusterID, "ClusterID of leader cluster", "leaderClusterID", "leader-clusterid"},
		{j.LeaderNamespace, "Namespace of leader cluster", "leaderNamespace", "leader-namespace"},
		{j.LeaderAPIServer, "API server of leader cluster", "leaderAPIServer", "leader-apiserver"},
		{j.Namespace, "Namespace of member cluster", "namespace", "namespace"},
	} {
		if p.value == "" {
			missing = append(missing, fmt.Errorf("%s must be provided: %s in the join configuration, or --%s", p.name, p.key,
				p.flag))
		}
	}
	if j.TokenSecretName == "" && j.TokenSecretFile == "" && j.Secret == nil {
		missing = append(missing,
			errors.New("a token must be provided: the name of a Secret (tokenSecretName in the join configuration, or "+
				"--token-secret-name), its manifest in a file (tokenSecretFile, or --token-secret-file), or its manifest after "+
				"the join configuration"))
	}
	return errors.Join(missing...)
}

// joinLimit is how long a member may take to be Ready.
const joinLimit = time.Minute

// Join checks with the leader that it would accept this member. Then it makes the member's ClusterSet, and the Secret
// with its token if that does not exist. It waits until the leader has accepted the member. If the leader does not
// accept it, the error has the controller's message about the ClusterSet.
func (c Cluster) Join(ctx context.Context, j *JoinConfig) error {
	if err := j.Missing(); err != nil {
		return err
	}
	if err := CheckClusterID(j.ClusterID); err != nil {
		return fmt.Errorf("%w; correct clusterID in the join configuration, or --clusterid", err)
	}
	if !j.SkipLeaderCheck {
		if err := c.checkLeader(ctx, j); err != nil {
			return err
		}
	}
	m := &made{Cluster: c}
	if err := m.join(ctx, j); err != nil {
		return m.undo(ctx, err)
	}
	c.report("Member cluster joined successfully")
	return nil
}

func (m *made) join(ctx context.Context, j *JoinConfig) error {
	name := j.TokenSecretName
	if name == "" {
		secret := j.Secret.DeepCopy()
		secret.ObjectMeta = metav1.ObjectMeta{Namespace: j.Namespace, Name: j.Secret.Name, Annotations: meAsMaker()}
		secret.Type, secret.StringData = corev1.SecretTypeOpaque, nil
		name = secret.Name
		if existed, err := m.create(ctx, "Secret", secret); err != nil {
			return err
		} else if existed {
			return fmt.Errorf("Secret %s/%s exists already; "+ //nolint:staticcheck // a kind's name
				"name it with --token-secret-name if it is the member's, else delete it", j.Namespace, name)
		}
	}
	set := &mcv1alpha2.ClusterSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: j.ClusterSetID},
		Spec: mcv1alpha2.ClusterSetSpec{
			ClusterID: j.ClusterID, Namespace: j.LeaderNamespace,
			Leaders: []mcv1alpha2.LeaderClusterInfo{{ClusterID: j.LeaderClusterID, Server: j.LeaderAPIServer, Secret: name}},
		},
	}
	if err := m.clusterSet(ctx, set); err != nil {
		return err
	}
	m.report("Waiting for ClusterSet ready")
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, joinLimit, true,
		func(ctx context.Context) (bool, error) {
			err := m.Client.Get(ctx, client.ObjectKeyFromObject(set), set)
			if apierrors.IsNotFound(err) {
				return false, errors.New("it has been deleted meanwhile")
			}
			return err == nil && Readiness(set) == "", nil
		})
	switch {
	case wait.Interrupted(err):
		return fmt.Errorf("ClusterSet %q is not ready: %s", set.Name, Readiness(set))
	case err != nil:
		return fmt.Errorf("wait for ClusterSet %q: %w", set.Name, err)
	}
	return nil
}

// Readiness returns why a ClusterSet is not ready, or "".
func Readiness(set *mcv1alpha2.ClusterSet) string {
	var why []string
	for _, c := range set.Status.Conditions {
		if c.Type != mcv1alpha2.ClusterSetReady {
			continue
		}
		if c.Status == corev1.ConditionTrue {
			return ""
		}
		why = append(why, strings.TrimSpace(c.Reason+" "+c.Message))
	}
	for _, cluster := range set.Status.ClusterStatuses {
		for _, c := range cluster.Conditions {
			if c.Status != corev1.ConditionTrue && c.Message != "" {
				why = append(why, fmt.Sprintf("cluster %s: %s %s", cluster.ClusterID, c.Reason, c.Message))
			}
		}
	}
	if len(why) == 0 {
		return "no controller has looked at it: does the member's run? (mc deploy membercluster)"
	}
	return strings.Join(why, "; ")
}

// LeaderJoinConfig returns the facts that members need about the ClusterSet in a Namespace of the leader.
func (c Cluster) LeaderJoinConfig(ctx context.Context, namespace, server string) (*JoinConfig, error) {
	var sets mcv1alpha2.ClusterSetList
	if err := c.Client.List(ctx, &sets, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list ClusterSets of Namespace %s: %w%s", namespace, err, remedy(err))
	}
	switch {
	case len(sets.Items) == 0:
		return nil, fmt.Errorf("no ClusterSet found in Namespace %s: `mc get clusterset -A` lists them, `mc init` makes one",
			namespace)
	case len(sets.Items) > 1:
		var names []string
		for _, set := range sets.Items {
			names = append(names, set.Name)
		}
		return nil, fmt.Errorf(
			"more than one ClusterSet found in Namespace %s: %s; a leader serves one a Namespace: delete the others", namespace,
			strings.Join(names, ", "))
	case len(sets.Items[0].Spec.Leaders) == 0:
		return nil, fmt.Errorf("invalid ClusterSet %s: no leader cluster; name it in spec.leaders of ClusterSet %s/%s",
			sets.Items[0].Name, namespace, sets.Items[0].Name)
	}
	set := sets.Items[0]
	return &JoinConfig{
		APIVersion: joinConfigVersion, Kind: joinConfigKind,
		ClusterSetID: set.Name, LeaderClusterID: set.Spec.Leaders[0].ClusterID, LeaderNamespace: namespace,
		LeaderAPIServer: server,
	}, nil
}

// Write writes the configuration for members: the facts of the leader, the fields for the member to fill in, and the
// token's Secret if there is one.
func (j *JoinConfig) Write(w io.Writer) error {
	text, err := yaml.Marshal(j)
	if err != nil {
		return err
	}
	out := append(text, []byte(`# The member's own. What is not set here is asked of the command that joins.
#clusterID: ""
#namespace: ""
# The token: a Secret that the member has, or a file with the manifest of one.
#tokenSecretName: ""
#tokenSecretFile: ""
`)...)
	if j.Secret != nil {
		secret, err := WriteSecret(j.Secret)
		if err != nil {
			return err
		}
		out = append(append(out, []byte("---\n")...), secret...)
	}
	_, err = w.Write(out)
	return err
}

// WriteSecret is the manifest of a member's Secret.
func WriteSecret(s *corev1.Secret) ([]byte, error) {
	text, err := yaml.Marshal(s)
	return append([]byte("# A token for one member of the ClusterSet: a client that has it acts as that member.\n"),
		bytes.ReplaceAll(text, []byte("  creationTimestamp: null\n"), nil)...), err
}
