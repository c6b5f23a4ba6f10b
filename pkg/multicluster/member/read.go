package member

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/derive"
)

// pollSecrets reads the Secrets that ClusterSets name: when a ClusterSet changes, and again and again. No other Secret is
// read, and none is listed or watched: the controller's role lets it get a Secret by its name.
func (c *controller) pollSecrets(ctx context.Context) {
	tick := time.NewTicker(secretPoll)
	defer tick.Stop()
	for {
		named := map[derive.Object]bool{}
		for _, cs := range c.tables.clusterSets.All() {
			for _, leader := range cs.Value.Spec.Leaders {
				if leader.Secret != "" {
					named[derive.Object{Namespace: c.tables.namespace, Name: leader.Secret}] = true
				}
			}
		}
		for k := range named {
			if secret, err := c.getSecret(ctx, k); err == nil { // else the API server is away, which the watches report
				c.tables.secrets.Set(k, secretFacts(secret))
			}
		}
		for _, row := range c.tables.secrets.All() {
			if !named[row.Key] {
				c.tables.secrets.Delete(row.Key)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-c.polling:
		}
	}
}

// getSecret reads a Secret, nil where there is none of that name.
func (c *controller) getSecret(ctx context.Context, k derive.Object) (*corev1.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	secret := &corev1.Secret{}
	if err := c.client.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: k.Name}, secret); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("get Secret %s: %w", k, err)
	}
	return secret, nil
}

// discover finds this cluster's Service range where it is not configured, with retries.
func (c *controller) discover(ctx context.Context) {
	e := environment{Known: true, ServiceCIDR: c.config.ServiceCIDR}
	for {
		if e.ServiceCIDR == "" {
			limited, cancel := context.WithTimeout(ctx, leaderTimeout)
			cidr, err := discoverServiceCIDR(limited, c.client, c.client, c.tables.namespace)
			cancel()
			if e.ServiceCIDR, e.ServiceCIDRError = cidr, ""; err != nil {
				e.ServiceCIDRError = err.Error()
			}
		}
		c.tables.environment.Set(here, e)
		c.tables.environment.Loaded()
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
