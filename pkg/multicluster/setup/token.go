package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/multicluster/binding"
)

// tokenLimit is how long the leader's cluster may take to write a token.
const tokenLimit = 20 * time.Second

// DefaultToken is the documented name of the token that is made with a ClusterSet.
const DefaultToken = "default-member-token"

// CreateToken makes the objects with which a member reaches the Common Area, under one name. These are a ServiceAccount
// that is bound to the member's cluster ID, a RoleBinding to the members' Role, and a Secret with the account's token.
// An existing account is bound again. Without a cluster ID the account is not bound. Then the leader binds it to the
// first cluster that announces itself with it.
//
// CreateToken calls then for the caller's part, with the Secret in the form for the member cluster. If then fails,
// CreateToken removes its objects, and binds the account as before.
func (c Cluster) CreateToken(ctx context.Context, namespace, name, clusterID string,
	then func(*corev1.Secret) error) error {
	if err := c.checkToken(ctx, namespace, name, clusterID); err != nil {
		return err
	}
	m := &made{Cluster: c}
	token, err := m.token(ctx, namespace, name, clusterID)
	if err == nil {
		err = then(token)
	}
	if err != nil {
		return m.undo(ctx, err)
	}
	return nil
}

// CheckClusterID returns the fault of a cluster ID. The ID becomes part of names, and the value of labels.
func CheckClusterID(id string) error {
	invalid := validation.IsValidLabelValue(id)
	if len(invalid) == 0 {
		invalid = validation.IsDNS1123Subdomain(multicluster.AnnounceName(id))
	}
	if len(invalid) > 0 {
		return fmt.Errorf("invalid ClusterID %q: %s", id, invalid[0])
	}
	return nil
}

func (c Cluster) checkToken(ctx context.Context, namespace, name, clusterID string) error {
	if clusterID != "" {
		if err := CheckClusterID(clusterID); err != nil {
			return fmt.Errorf("%w; correct --cluster-id", err)
		}
	}
	if name == multicluster.ControllerName || name == "default" {
		return fmt.Errorf("ServiceAccount %s/%s is not a member's; choose another name for the token", namespace, name)
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: multicluster.MemberRole}}
	if err := c.Client.Get(ctx, client.ObjectKeyFromObject(role), role); apierrors.IsNotFound(err) {
		return fmt.Errorf(
			"there is no Role %s in Namespace %s: is this the leader, and is the Namespace that of its ClusterSet? (mc deploy "+
				"leadercluster)", multicluster.MemberRole, namespace)
	} else if err != nil {
		return explain("read", "Role", role, err)
	}
	var accounts corev1.ServiceAccountList
	if err := c.Client.List(ctx, &accounts, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list ServiceAccounts of Namespace %s: %w", namespace, err)
	}
	for _, a := range accounts.Items {
		if id, bound := binding.Bound(&a); bound && clusterID != "" && a.Name != name &&
			multicluster.IDsConflict(id, clusterID) {
			return fmt.Errorf(
				"ClusterID %q conflicts with %q of ServiceAccount %s: one continues the other after a dash, and names made of "+
					"them would be ambiguous; choose another", clusterID, id, a.Name)
		}
	}
	return nil
}

func (m *made) token(ctx context.Context, namespace, name, clusterID string) (*corev1.Secret, error) {
	object := func() metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: meAsMaker()}
	}
	account := &corev1.ServiceAccount{ObjectMeta: object()}
	maps.Copy(account.Annotations, m.TokenAnnotations)
	if clusterID != "" {
		account.Annotations[multicluster.AnnotationClusterID] = clusterID
	}
	accountExisted, err := m.create(ctx, "ServiceAccount", account)
	if err != nil {
		return nil, err
	}
	rights := &rbacv1.RoleBinding{
		ObjectMeta: object(),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: multicluster.MemberRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	}
	want := rights.DeepCopy()
	existed, err := m.create(ctx, "RoleBinding", rights)
	if err != nil {
		return nil, err
	}
	if existed {
		if rights.RoleRef != want.RoleRef || !slices.Contains(rights.Subjects, want.Subjects[0]) {
			return nil, fmt.Errorf(
				"RoleBinding %s/%s exists and does not bind ServiceAccount %s to Role %s; delete it, or choose another name for "+
					"the token", namespace, name, name, multicluster.MemberRole)
		}
		m.report("RoleBinding %q already exists", name)
	}

	secret := &corev1.Secret{ObjectMeta: object(), Type: corev1.SecretTypeServiceAccountToken}
	secret.Annotations[corev1.ServiceAccountNameKey] = name
	if existed, err = m.create(ctx, "Secret", secret); err != nil {
		return nil, err
	}
	if existed {
		if secret.Type != corev1.SecretTypeServiceAccountToken || secret.Annotations[corev1.ServiceAccountNameKey] != name {
			return nil, fmt.Errorf("Secret %s/%s exists and is not for tokens of "+ //nolint:staticcheck // a kind's name
				"ServiceAccount %s; delete it, or choose another name for the token", namespace, name, name)
		}
		m.report("Secret %q already exists", name)
	}
	token, err := m.memberSecret(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	if accountExisted { // last: a member may use the account
		if err := m.bind(ctx, account, clusterID); err != nil {
			return nil, err
		}
	}
	return token, nil
}

// bind has an account that is there act for a cluster ID.
func (m *made) bind(ctx context.Context, account *corev1.ServiceAccount, clusterID string) error {
	if err := m.Client.Get(ctx, client.ObjectKeyFromObject(account), account); err != nil {
		return explain("read", "ServiceAccount", account, err)
	}
	was, bound := binding.Bound(account)
	switch {
	case bound && clusterID == "":
		m.report("ServiceAccount %q already exists; its token is good for ClusterID %q alone", account.Name, was)
		return nil
	case was == clusterID:
		m.report("ServiceAccount %q already exists", account.Name)
		return nil
	}
	before := account.DeepCopy()
	metav1.SetMetaDataAnnotation(&account.ObjectMeta, multicluster.AnnotationClusterID, clusterID)
	if err := Write(ctx, func(ctx context.Context) error {
		return m.Client.Patch(ctx, account, client.MergeFrom(before))
	}); err != nil {
		return explain("update", "ServiceAccount", account, err)
	}
	m.back = append(m.back, func(ctx context.Context) error {
		to := "bound to no ClusterID"
		if bound {
			to = fmt.Sprintf("bound to ClusterID %q", was)
		}
		err := m.Client.Get(ctx, client.ObjectKeyFromObject(account), account)
		if id, _ := binding.Bound(account); apierrors.IsNotFound(err) || err == nil && id != clusterID {
			return nil // other clients have changed it in the meantime
		}
		if err == nil {
			now := account.DeepCopy()
			if account.Annotations[multicluster.AnnotationClusterID] = was; !bound {
				delete(account.Annotations, multicluster.AnnotationClusterID)
			}
			err = m.Client.Patch(ctx, account, client.MergeFrom(now))
		}
		if err != nil {
			return fmt.Errorf("%w; restore its annotation %s by hand: it was %s",
				explain("update", "ServiceAccount", account, err), multicluster.AnnotationClusterID, to)
		}
		m.report("ServiceAccount %q %s again", account.Name, to)
		return nil
	})
	m.report("ServiceAccount %q already exists; re-bound it to ClusterID %q", account.Name, clusterID)
	return nil
}

// TokenOf returns the Secret for a member from an existing token, in the form for the member cluster.
func (c Cluster) TokenOf(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return c.memberSecret(ctx, namespace, name)
}

// memberSecret waits until Kubernetes has written a token.
func (c Cluster) memberSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, cmp.Or(c.tokenLimit, tokenLimit), true,
		func(ctx context.Context) (bool, error) {
			err := c.Client.Get(ctx, client.ObjectKeyFromObject(secret), secret)
			return err == nil && len(secret.Data[corev1.ServiceAccountTokenKey]) > 0 &&
				len(secret.Data[corev1.ServiceAccountRootCAKey]) > 0, err
		})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no member token %s in Namespace %s; `mc get membertoken -n %s` lists them", name,
			namespace, namespace)
	case wait.Interrupted(err):
		return nil, fmt.Errorf("Secret %s/%s gets no token: "+ //nolint:staticcheck // a kind's name
			"does its ServiceAccount exist, and does kube-controller-manager run?", namespace, name)
	case err != nil:
		return nil, explain("read", "Secret", secret, err)
	}
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Type:       corev1.SecretTypeOpaque,
		Data: map[string][]byte{
			corev1.ServiceAccountRootCAKey: secret.Data[corev1.ServiceAccountRootCAKey],
			corev1.ServiceAccountTokenKey:  secret.Data[corev1.ServiceAccountTokenKey],
		},
	}, nil
}

// DeleteToken removes the objects that CreateToken made. The member can no longer reach the Common Area.
func (c Cluster) DeleteToken(ctx context.Context, namespace, name string) error {
	var failed error
	found := false
	object := metav1.ObjectMeta{Namespace: namespace, Name: name}
	for _, o := range []client.Object{&corev1.Secret{ObjectMeta: object}, &rbacv1.RoleBinding{ObjectMeta: object},
		&corev1.ServiceAccount{ObjectMeta: object}} {
		switch err := c.Client.Get(ctx, client.ObjectKeyFromObject(o), o); {
		case apierrors.IsNotFound(err):
		case err != nil:
			failed = errors.Join(failed, explain("read", kindOf(o), o, err))
		case !ours(o):
			found = true
			c.report("%s %q was not created by antctl, ignoring it", kindOf(o), name)
		default:
			found = true
			failed = errors.Join(failed, c.delete(ctx, o))
		}
	}
	if failed == nil && !found {
		return fmt.Errorf("there is no member token %s in Namespace %s; `mc get membertoken -n %s` lists them", name,
			namespace, namespace)
	}
	return failed
}

// IsToken reports whether a Secret is one that CreateToken made.
func IsToken(s *corev1.Secret) bool { return ours(s) && s.Type == corev1.SecretTypeServiceAccountToken }
