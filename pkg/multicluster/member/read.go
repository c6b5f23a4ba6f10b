package member

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/clusters"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/gateways"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/retry"
)

// secretsRole is the Role that allows the controller to read the Secret of its ClusterSet. The manifest creates the
// Role, and the controller writes its rules. An admission policy restricts the rules to Secrets that ClusterSets name.
const secretsRole = "antrea-mc-controller-secrets"

// secretFailures are the reads of Secrets that have failed in their last tries. The API server may not have read the
// new rules of the Role yet.
type secretFailures map[derive.Object]secretFailure

type secretFailure struct {
	since time.Time
	delay time.Duration // before the next try
}

// took records the result of a read. It returns the time until the next read, and whether the failure has lasted so
// long that it is a fault of the ClusterSet.
func (f secretFailures) took(k derive.Object, err error) (wait time.Duration, lasting bool) {
	if err == nil || retry.Lost(err) { // the watches report that the API server is unavailable
		delete(f, k)
		return secretPoll, false
	}
	now, ok := f[k]
	if !ok {
		now.since = time.Now()
	}
	now.delay = retry.Next(now.delay)
	f[k] = now
	lasting = time.Since(now.since) >= secretPoll
	return min(now.delay, secretPoll), lasting
}

// pollSecrets reads the Secrets that the ClusterSet of this cluster names. It reads them when a ClusterSet changes, and
// at intervals. It reads no other Secret, and lists and watches no Secrets. If a Secret cannot be read for secretPoll,
// that is a fault of the ClusterSet. Content that was read earlier stays in use.
func (c *controller) pollSecrets(ctx context.Context) {
	failed := secretFailures{}
	for {
		named := c.namedSecrets()
		allowed := c.allowSecrets(ctx, named)
		wait := secretPoll
		for _, k := range named {
			secret, err := c.getSecret(ctx, k)
			again, lasting := failed.took(k, err)
			wait = min(wait, again)
			if err == nil {
				c.tables.base.Secrets.Set(k, membership.SecretFacts(secret))
			}
			if !lasting {
				continue
			}
			known := membership.Credentials{}
			if row, ok := c.tables.base.Secrets.Get(k); ok {
				known = *row
			}
			if known.Forbidden = apierrors.IsForbidden(err); known.Forbidden {
				err = cmp.Or(allowed, err)
			}
			known.Error = steady(known.Error, err.Error())
			c.tables.base.Secrets.Set(k, &known)
		}
		for _, row := range c.tables.base.Secrets.All() {
			if !slices.Contains(named, row.Key) {
				c.tables.base.Secrets.Delete(row.Key)
				delete(failed, row.Key)
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-c.polling:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// namedSecrets are the Secrets that the ClusterSet names which this cluster is in, by name.
func (c *controller) namedSecrets() (named []derive.Object) {
	set, _ := membership.ChooseClusterSet(derive.Values(c.tables.base.ClusterSets.All()))
	if set == nil {
		return nil
	}
	for _, leader := range set.Spec.Leaders {
		k := derive.Object{Namespace: c.tables.namespace, Name: leader.Secret}
		if leader.Secret != "" && !slices.Contains(named, k) {
			named = append(named, k)
		}
	}
	slices.SortFunc(named, func(a, b derive.Object) int { return strings.Compare(a.Name, b.Name) })
	return named
}

// allowSecrets writes the rules of secretsRole for these Secrets. If there are no Secrets, it removes all rules, but
// only once it has read that this cluster is in no ClusterSet.
func (c *controller) allowSecrets(ctx context.Context, named []derive.Object) error {
	if m, _ := c.tables.base.Membership.Get(membership.Here); len(named) == 0 && !m.Leave {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	var rules []rbacv1.PolicyRule
	if len(named) > 0 {
		rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}}
		for _, k := range named {
			rules[0].ResourceNames = append(rules[0].ResourceNames, k.Name)
		}
	}
	role := &rbacv1.Role{}
	if err := c.client.Get(ctx, client.ObjectKey{Namespace: c.tables.namespace, Name: secretsRole}, role); err != nil {
		return fmt.Errorf("get Role %s/%s: %w", c.tables.namespace, secretsRole, err)
	}
	if equality.Semantic.DeepEqual(role.Rules, rules) {
		return nil
	}
	role.Rules = rules
	if err := c.client.Update(ctx, role); err != nil {
		return fmt.Errorf("update Role %s/%s: %w", c.tables.namespace, secretsRole, err)
	}
	return nil
}

// getSecret reads a Secret. It returns nil if the Secret does not exist.
func (c *controller) getSecret(ctx context.Context, k derive.Object) (*corev1.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	secret := &corev1.Secret{}
	if err := c.client.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: k.Name},
		secret); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("get Secret %s: %w", k, err)
	}
	return secret, nil
}

// discover finds this cluster's Service range if it is not configured, with retries.
func (c *controller) discover(ctx context.Context) {
	e := membership.Environment{Known: true, ServiceCIDRs: c.config.ServiceCIDRs()}
	if ranges, err := inOrder(e.ServiceCIDRs); err == nil {
		e.ServiceCIDR = ranges[0]
	}
	for {
		if e.ServiceCIDR == "" {
			limited, cancel := context.WithTimeout(ctx, leaderTimeout)
			ranges, err := discoverServiceCIDRs(limited, c.client, c.client, c.tables.namespace)
			cancel()
			e.ServiceCIDRError = ""
			if err != nil {
				e.ServiceCIDRError = err.Error()
			} else {
				e.ServiceCIDR, e.OtherCIDRs = ranges[0], ranges[1:]
			}
		}
		c.tables.base.Environment.Set(membership.Here, e)
		c.tables.base.Environment.Loaded()
		if e.ServiceCIDR != "" {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(discoverEvery):
		}
	}
}

// phaseLook is how often Gateways are looked at for phases that are over.
const phaseLook = time.Second

// endPhases ends phases and withdrawals that have lasted as long as they may.
func (c *controller) endPhases(ctx context.Context) {
	clock, tick := gateways.Clock{}, time.NewTicker(phaseLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			own, _ := c.tables.gateways.Announced.Get(membership.Here)
			c.tables.gateways.PhasesOver.Replace(clock.Over(now, derive.Values(c.tables.gateways.Gateways.All()), own))
			c.tables.clusters.Forgotten.Replace(
				clusters.Forgotten(now, derive.Values(c.tables.clusters.ClusterInfoImports.All())))
		}
	}
}
