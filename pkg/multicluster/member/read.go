package member

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
)

// view reads what a plan depends on. All but Secrets come from caches.
func (c *controller) view(ctx context.Context) (View, error) {
	v := View{Namespace: c.namespace, Now: time.Now(), Config: c.config}
	in := client.InNamespace(c.namespace)
	var errs [11]error
	v.ClusterSets, errs[0] = list(ctx, c.cache, &mcv1alpha2.ClusterSetList{}, func(l *mcv1alpha2.ClusterSetList) []mcv1alpha2.ClusterSet { return l.Items }, in)
	v.Gateways, errs[1] = list(ctx, c.cache, &mcv1alpha1.GatewayList{}, func(l *mcv1alpha1.GatewayList) []mcv1alpha1.Gateway { return l.Items }, in)
	v.ClusterInfoImports, errs[2] = list(ctx, c.cache, &mcv1alpha1.ClusterInfoImportList{}, func(l *mcv1alpha1.ClusterInfoImportList) []mcv1alpha1.ClusterInfoImport { return l.Items }, in)
	v.ServiceExports, errs[3] = list(ctx, c.cache, &mcsv1alpha1.ServiceExportList{}, func(l *mcsv1alpha1.ServiceExportList) []mcsv1alpha1.ServiceExport { return l.Items })
	v.ServiceImports, errs[4] = list(ctx, c.cache, &mcsv1alpha1.ServiceImportList{}, func(l *mcsv1alpha1.ServiceImportList) []mcsv1alpha1.ServiceImport { return l.Items })
	v.Services, errs[5] = list(ctx, c.cache, &corev1.ServiceList{}, func(l *corev1.ServiceList) []corev1.Service { return l.Items })
	v.Endpoints, errs[6] = list(ctx, c.cache, &endpointsList{}, func(l *endpointsList) []Endpoints { return l.Items })
	v.EndpointSlices, errs[7] = list(ctx, c.cache, &discoveryv1.EndpointSliceList{}, func(l *discoveryv1.EndpointSliceList) []discoveryv1.EndpointSlice { return l.Items })
	v.Nodes, errs[8] = list(ctx, c.cache, &corev1.NodeList{}, func(l *corev1.NodeList) []corev1.Node { return l.Items })
	v.Namespaces, errs[9] = list(ctx, c.cache, &corev1.NamespaceList{}, func(l *corev1.NamespaceList) []corev1.Namespace { return l.Items })
	v.ClusterClaims, errs[10] = c.clusterClaims(ctx, v.ClusterSets)
	for _, err := range errs {
		if err != nil {
			return View{}, err
		}
	}
	var err error
	if v.Secrets, err = c.leaderSecrets(ctx, v.ClusterSets); err != nil {
		return View{}, err
	}
	v.ServiceCIDR, v.ServiceCIDRError = c.ownServiceCIDR(ctx)
	c.mu.Lock()
	area := c.area
	c.mu.Unlock()
	if area != nil {
		if v.Leader, err = area.leader(ctx); err != nil {
			return View{}, err
		}
	}
	return v, nil
}

// list reads all objects of a kind from a cache without copying them.
func list[L client.ObjectList, T any](ctx context.Context, c cache.Cache, into L, items func(L) []T, opts ...client.ListOption) ([]*T, error) {
	if err := c.List(ctx, into, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, fmt.Errorf("list %T: %w", into, err)
	}
	all := items(into)
	pointers := make([]*T, len(all))
	for i := range all {
		pointers[i] = &all[i]
	}
	return pointers, nil
}

// leaderSecrets returns the Secrets that ClusterSets name. It reads those that no ClusterSet named before;
// pollSecrets follows their changes. No other Secret is read, and none is listed or watched: the
// controller's role lets it get a Secret by its name.
func (c *controller) leaderSecrets(ctx context.Context, sets []*mcv1alpha2.ClusterSet) ([]*corev1.Secret, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var secrets []*corev1.Secret
	named := map[string]*corev1.Secret{}
	for _, cs := range sets {
		for _, leader := range cs.Spec.Leaders {
			if _, read := named[leader.Secret]; leader.Secret == "" || read {
				continue
			}
			secret, known := c.secrets[leader.Secret]
			if !known {
				var err error
				if secret, err = c.getSecret(ctx, leader.Secret); err != nil {
					return nil, err
				}
			}
			named[leader.Secret] = secret
			if secret != nil {
				secrets = append(secrets, secret)
			}
		}
	}
	c.secrets = named
	return secrets, nil
}

// getSecret reads a Secret, nil where there is none of that name.
func (c *controller) getSecret(ctx context.Context, name string) (*corev1.Secret, error) {
	k := client.ObjectKey{Namespace: c.namespace, Name: name}
	secret := &corev1.Secret{}
	if err := c.client.Get(ctx, k, secret); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("get Secret %s: %w", k, err)
	}
	return secret, nil
}

// pollSecrets reads the Secrets that ClusterSets name again and again, and triggers both rounds when one has
// changed, appeared or gone.
func (c *controller) pollSecrets(ctx context.Context) {
	tick := time.NewTicker(secretPoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c.mu.Lock()
		names := slices.Sorted(maps.Keys(c.secrets))
		c.mu.Unlock()
		for _, name := range names {
			now, err := c.getSecret(ctx, name)
			if err != nil {
				continue // the API server is away, which the rounds report
			}
			c.mu.Lock()
			before, named := c.secrets[name]
			changed := named && ((now == nil) != (before == nil) || now != nil && now.ResourceVersion != before.ResourceVersion)
			if changed {
				c.secrets[name] = now
			}
			c.mu.Unlock()
			if changed {
				c.signal()
			}
		}
	}
}

// clusterClaims reads the ClusterClaims if a ClusterSet needs them. The kind is optional, and
// may be installed later.
func (c *controller) clusterClaims(ctx context.Context, sets []*mcv1alpha2.ClusterSet) ([]*mcv1alpha2.ClusterClaim, error) {
	needed := false
	for _, cs := range sets {
		needed = needed || cs.Spec.ClusterID == ""
	}
	if !needed {
		return nil, nil
	}
	c.mu.Lock()
	try := !c.claims && time.Since(c.claimsTried) > clusterClaimWait
	if try {
		c.claimsTried = time.Now()
	}
	c.mu.Unlock()
	if try {
		kind := mcv1alpha2.GroupVersion.WithKind("ClusterClaim")
		if _, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version); apimeta.IsNoMatchError(err) {
			return nil, nil
		} else if err != nil {
			return nil, fmt.Errorf("look up the kind ClusterClaim: %w", err)
		}
		if err := watch(ctx, c.cache, &mcv1alpha2.ClusterClaim{}, c.signal); err != nil {
			return nil, err
		}
		c.mu.Lock()
		c.claims = true
		c.mu.Unlock()
	}
	c.mu.Lock()
	claims := c.claims
	c.mu.Unlock()
	if !claims {
		return nil, nil
	}
	return list(ctx, c.cache, &mcv1alpha2.ClusterClaimList{}, func(l *mcv1alpha2.ClusterClaimList) []mcv1alpha2.ClusterClaim { return l.Items }, client.InNamespace(c.namespace))
}

// ownServiceCIDR is this cluster's Service range. It is discovered once, with retries.
func (c *controller) ownServiceCIDR(ctx context.Context) (cidr, problem string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.serviceCIDR == "" && time.Since(c.discoverTried) > discoverEvery {
		c.discoverTried, c.serviceCIDRError = time.Now(), ""
		ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
		defer cancel()
		cidr, err := discoverServiceCIDR(ctx, c.client, c.client, c.namespace)
		if err != nil {
			c.serviceCIDRError = err.Error()
			time.AfterFunc(discoverEvery, c.signal)
		}
		c.serviceCIDR = cidr
	}
	return c.serviceCIDR, c.serviceCIDRError
}

// stripForeignEndpoints drops what is not needed of Endpoints that are not imported: only
// their existence matters.
func stripForeignEndpoints(o any) (any, error) {
	if e, ok := o.(*Endpoints); ok {
		e.ManagedFields = nil
		if !imported(metav1.Object(e)) {
			e.Subsets = nil
		}
	}
	return o, nil
}
