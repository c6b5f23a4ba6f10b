package up

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-net/tombolo/deploy"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/multicluster/setup"
)

// registryLimit is how long a registry may take to answer.
const registryLimit = 10 * time.Second

// check reads all clusters, and returns everything that prevents the set-up.
func (r *run) check(ctx context.Context) error {
	faults := []error{checkNames(r)}
	faults = append(faults, each(r.sites, func(s *site) error { return s.read(ctx) }), checkTwice(r))
	if errors.Join(faults...) == nil {
		faults = append(faults, r.checkLeaderServer(), checkLeaders(r), checkRanges(r), r.checkRegistry(ctx),
			each(r.sites, func(s *site) error { return s.render(ctx) }))
	}
	return errors.Join(faults...)
}

// checkNames finds cluster IDs that cannot be in one ClusterSet.
func checkNames(r *run) error {
	var faults []error
	for i, s := range r.sites {
		if err := setup.CheckClusterID(s.ID); err != nil {
			faults = append(faults, fmt.Errorf("%w; give another one as ID=CONTEXT", err))
		}
		for _, other := range r.sites[:i] {
			switch {
			case other.ID == s.ID:
				faults = append(faults, fmt.Errorf("two clusters have the ID %s: give each its own as ID=CONTEXT", s.ID))
			case multicluster.IDsConflict(other.ID, s.ID):
				faults = append(faults, fmt.Errorf("the cluster IDs %s and %s conflict, since one continues the other after a "+
					"dash: give another one as ID=CONTEXT", other.ID, s.ID))
			}
		}
	}
	return errors.Join(faults...)
}

// checkTwice finds a cluster that is named twice: by the UID of its Namespace kube-system, or by its URL if the UID was
// not read.
func checkTwice(r *run) error {
	var faults []error
	for i, s := range r.sites {
		for _, other := range r.sites[:i] {
			same := other.facts.uid == s.facts.uid
			if other.facts.uid == "" || s.facts.uid == "" {
				same = other.Config.Host == s.Config.Host
			}
			if same {
				faults = append(faults, fmt.Errorf("%s and %s are one cluster, at %s: name each cluster once", other.ID, s.ID,
					strings.Join(slices.Compact([]string{other.Config.Host, s.Config.Host}), " and ")))
			}
		}
	}
	return errors.Join(faults...)
}

// leaderServer returns the URL by which members reach the leader.
func (r *run) leaderServer() string {
	if r.LeaderServer != "" {
		return r.LeaderServer
	}
	return r.sites[0].Config.Host
}

// checkLeaderServer refuses a URL that other clusters cannot reach.
func (r *run) checkLeaderServer() error {
	server := r.leaderServer()
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("the leader's API server %q is no https URL: give --leader-apiserver https://ADDRESS:6443", server)
	}
	address, err := netip.ParseAddr(u.Hostname())
	if u.Hostname() == "localhost" || err == nil && (address.IsLoopback() || address.IsUnspecified()) {
		hint := ""
		if found := r.sites[0].facts.servers; len(found) > 0 {
			hint = "; it announces itself as " + strings.Join(found, ", ")
		}
		return fmt.Errorf("other clusters do not reach the leader's API server at %s, which is this machine's own address: "+
			"give --leader-apiserver with the URL by which their Pods reach it%s", server, hint)
	}
	return nil
}

// checkLeaders refuses clusters that are members of another leader's ClusterSet. The URL may also be the one by which
// this program reaches the leader.
func checkLeaders(r *run) error {
	leader := r.sites[0]
	var faults []error
	for _, s := range r.sites {
		set := s.facts.memberSet
		if set == nil {
			continue
		}
		var has mcv1alpha2.LeaderClusterInfo
		if len(set.Spec.Leaders) > 0 {
			has = set.Spec.Leaders[0]
		}
		switch {
		case has.ClusterID != leader.ID:
			faults = append(faults, fmt.Errorf("cluster %s: spec.leaders of its ClusterSet %s/%s names the leader %q, not %s: "+
				"name that leader first, or `tombolo mc leave` first", s.ID, set.Namespace, set.Name, has.ClusterID, leader.ID))
		case has.Server != r.leaderServer() && has.Server != leader.Config.Host:
			faults = append(faults, fmt.Errorf("cluster %s: spec.leaders of its ClusterSet %s/%s has the server %q, not %s: "+
				"give --leader-apiserver %s if that is this leader, else `tombolo mc leave` first", s.ID, set.Namespace, set.Name,
				has.Server, r.leaderServer(), has.Server))
		}
	}
	return errors.Join(faults...)
}

// checkRanges finds Service ranges of two clusters that overlap, and also Pod ranges if Pods have to reach each other.
func checkRanges(r *run) error {
	var faults []error
	for i, a := range r.sites {
		for _, b := range r.sites[:i] {
			if x, y, meet := claims.Meeting(a.facts.serviceRange, b.facts.serviceRange); meet {
				faults = append(faults, fmt.Errorf("the Service ranges %s of %s and %s of %s meet: a ClusterSet needs clusters "+
					"with different ones (--service-cluster-ip-range of kube-apiserver)", y, b.ID, x, a.ID))
			}
			if !a.podToPod() || !b.podToPod() {
				continue
			}
			if x, y, meet := claims.Meeting(a.podRanges(), b.podRanges()); meet {
				faults = append(faults, fmt.Errorf("the Pod ranges %s of %s and %s of %s meet: Pods cannot reach each other, so "+
					"leave multicluster.enablePodToPodConnectivity out of --values", y, b.ID, x, a.ID))
			}
		}
	}
	return errors.Join(faults...)
}

// podRanges returns the ranges of the cluster's Nodes.
func (s *site) podRanges() (all []netip.Prefix) {
	for _, n := range s.facts.nodes {
		for _, text := range append([]string{n.Spec.PodCIDR}, n.Spec.PodCIDRs...) {
			if p, err := netip.ParsePrefix(text); err == nil {
				all = append(all, p.Masked())
			}
		}
	}
	return all
}

// podToPod reports whether the values let Pods reach Pods of other clusters.
func (s *site) podToPod() bool {
	options, _ := s.AgentValues["multicluster"].(map[string]any)
	is, _ := options["enablePodToPodConnectivity"].(bool)
	return is
}

// checkRegistry checks that the address is a registry. It pulls no image, since that may need the credentials of Nodes.
func (r *run) checkRegistry(ctx context.Context) error {
	if r.Registry == "" || r.SkipRegistryCheck {
		return nil
	}
	const remedy = "correct --image-registry, or give --skip-registry-check if only Nodes reach it"
	host, _, _ := strings.Cut(r.Registry, "/")
	ctx, cancel := context.WithTimeout(ctx, registryLimit)
	defer cancel()
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+"/v2/", nil)
	if err != nil {
		return fmt.Errorf("registry %s: %w; %s", r.Registry, err, remedy)
	}
	answer, err := r.client.Do(ask)
	if err != nil {
		var network *net.OpError
		if errors.As(err, &network) {
			err = network
		}
		return fmt.Errorf("registry %s does not answer: %w; %s", r.Registry, err, remedy)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusUnauthorized {
		return fmt.Errorf("%s answers %q to /v2/, so it is no registry: %s", host, answer.Status, remedy)
	}
	return nil
}

// namespaces returns the Namespaces of the parts that the cluster has.
func (s *site) namespaces() []string {
	if s.leader {
		return []string{deploy.MemberNamespace, deploy.LeaderNamespace}
	}
	return []string{deploy.MemberNamespace}
}
