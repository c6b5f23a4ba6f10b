package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// reporter writes this Node's NodePolicyReport, with the state of the policies that the switch has confirmed. It writes
// when the state changes, and sends only the changed parts.
type reporter struct {
	node  string
	api   reportAPI
	look  func(context.Context) (reported, error)
	nodes func() int
	owner func() types.UID // owner of the report: this Node's object; "" while it is unknown
	log   *slog.Logger
	wake  chan struct{}
}

// reported is the content of a NodePolicyReport. Ways is nil until a way has been observed. OnlyWays is set while
// everything else is unknown.
type reported struct {
	Policies, Failures, Problems, Features, Ways map[string]string
	OnlyWays                                     bool
}

// reportAPI is the API server as the reporter sees it. Errors are errors of apierrors.
type reportAPI interface {
	get(ctx context.Context, node string) (*tombolov1alpha1.NodePolicyReport, error)
	create(context.Context, *tombolov1alpha1.NodePolicyReport) error
	patch(ctx context.Context, node string, merge []byte) error
	nodeUID(ctx context.Context, node string) (types.UID, error)
}

// All Nodes together write at most reportsPerSecond reports. After a change each Node waits a random part of the time
// that all reports take at this rate. docs/policy-status.md has the costs.
const (
	reportsPerSecond = 100
	reportLeast      = 500 * time.Millisecond
	// reportAgain is the interval at which an unchanged report is compared again, since another client may have deleted
	// it. While the switch refuses something, the comparison comes sooner.
	reportAgain   = 10 * time.Minute
	reportRefused = 15 * time.Second
	reportRetry   = 2 * time.Second
	reportWays    = 5 * time.Second // a Gateway waits no longer for its switch before it reports its ways
	reportMost    = time.Minute
	// Of failures and problems there is a bound, and of the text of each.
	maxReportedTexts, maxReportedText = 100, 300
)

func newReporter(node string, api reportAPI, look func(context.Context) (reported, error), nodes func() int,
	owner func() types.UID, log *slog.Logger) *reporter {
	r := &reporter{node, api, look, nodes, owner, log, make(chan struct{}, 1)}
	r.changed()
	return r
}

// changed records that the report may have changed.
func (r *reporter) changed() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// interval is how often a Node may write in a cluster of so many.
func (r *reporter) interval() time.Duration {
	return max(reportLeast, time.Duration(r.nodes())*time.Second/reportsPerSecond)
}

// run reports until ctx ends.
func (r *reporter) run(ctx context.Context) {
	var known *reported // the content in the API server; nil if it has to be read
	var owner types.UID
	var last, compared time.Time
	again, retry, failed := reportAgain, reportRetry, ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-time.After(again):
		}
		if time.Since(compared) >= reportAgain {
			known, compared = nil, time.Now()
		}
		wait := max(time.Until(last.Add(r.interval())), 0) + rand.N(r.interval())
		if sleep(ctx, wait) != nil {
			return
		}
		select {
		case <-r.wake: // this look sees it
		default:
		}
		if uid := r.owner(); uid != owner && uid != "" { // the report goes with the Node that was deleted
			known, owner = nil, uid
		}
		now, err := r.look(ctx)
		wrote := false
		if err == nil {
			known, wrote, err = r.write(ctx, known, now)
		}
		if wrote {
			last = time.Now()
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if err.Error() != failed {
				failed = err.Error()
				r.log.Info("policies are not reported yet; trying again", "error", err)
			}
			again, retry = retry, min(2*retry, reportMost)
		case known == nil:
			again, retry, failed = retry, min(2*retry, reportMost), ""
		case now.OnlyWays:
			again, retry, failed = reportLeast, reportRetry, ""
		case len(now.Failures) > 0:
			again, retry, failed = reportRefused, reportRetry, ""
		default:
			again, retry, failed = reportAgain, reportRetry, ""
		}
	}
}

// write updates the report to the present state. It returns the content that the API server has afterwards, or nil if
// the report's Node was deleted, since the report will be deleted too.
func (r *reporter) write(ctx context.Context, known *reported, now reported) (_ *reported, wrote bool, _ error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	if known == nil {
		have, err := r.api.get(ctx, r.node)
		switch {
		case apierrors.IsNotFound(err):
			return r.create(ctx, now)
		case err != nil:
			return nil, false, fmt.Errorf("read NodePolicyReport %s: %w", r.node, err)
		}
		known = &reported{Policies: have.Policies, Failures: have.Failures, Problems: have.Problems, Features: have.Features,
			Ways: have.Ways}
		if uid := r.owner(); uid != "" && len(have.OwnerReferences) > 0 &&
			!slices.ContainsFunc(have.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == uid }) {
			_, wrote, err := r.update(ctx, known, now)
			return nil, wrote, err
		}
	}
	return r.update(ctx, known, now)
}

// update sends the difference between the desired content and the known content in the API server.
func (r *reporter) update(ctx context.Context, known *reported, now reported) (_ *reported, wrote bool, _ error) {
	if now.Ways == nil {
		now.Ways = known.Ways
	}
	if now.OnlyWays {
		ways := now.Ways
		now = *known
		now.Ways = ways
	}
	patch := map[string]map[string]*string{}
	for name, two := range map[string][2]map[string]string{
		"policies": {known.Policies, now.Policies}, "failures": {known.Failures, now.Failures},
		"problems": {known.Problems, now.Problems},
		"features": {known.Features, now.Features}, "ways": {known.Ways, now.Ways},
	} {
		if change := mapChange(two[0], two[1]); len(change) > 0 {
			patch[name] = change
		}
	}
	if len(patch) == 0 {
		return known, false, nil
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return known, false, err
	}
	if err := r.api.patch(ctx, r.node, text); err != nil {
		return nil, true, fmt.Errorf("write NodePolicyReport %s: %w", r.node, err)
	}
	return &now, true, nil
}

// mapChange is a merge patch that makes one map the other.
func mapChange(have, want map[string]string) map[string]*string {
	out := map[string]*string{}
	for k := range have {
		if _, ok := want[k]; !ok {
			out[k] = nil
		}
	}
	for k, v := range want {
		if was, ok := have[k]; !ok || was != v {
			out[k] = &v
		}
	}
	return out
}

// create makes the report, which goes when the Node's object does.
func (r *reporter) create(ctx context.Context, now reported) (*reported, bool, error) {
	uid, err := r.api.nodeUID(ctx, r.node)
	if err != nil {
		return nil, false, fmt.Errorf("read Node %s: %w", r.node, err)
	}
	err = r.api.create(ctx, &tombolov1alpha1.NodePolicyReport{
		ObjectMeta: metav1.ObjectMeta{Name: r.node,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: r.node, UID: uid}}},
		Policies: now.Policies, Failures: now.Failures, Problems: now.Problems, Features: now.Features, Ways: now.Ways,
	})
	if err != nil {
		return nil, true, fmt.Errorf("create NodePolicyReport %s: %w", r.node, err)
	}
	return &now, true, nil
}

// reportLook reads the parts of the report.
type reportLook struct {
	tables   *tables
	flows    *flowsync.Syncer
	progress *progress
	ways     *wayReport
	families *family.Families // as they were last known
}

// served returns the versions of IP that the Node serves. A Node that is registered again has no podCIDR for a moment.
// If it reported then that it has no IPv6, the cluster would withdraw its IPv6 addresses from other clusters.
func (a reportLook) served() family.Families {
	this, _ := a.tables.this.now.Get(self)
	if len(this.Node.PodCIDRs) > 0 {
		*a.families, _ = a.tables.this.familiesRow.Get(self)
	}
	return *a.families
}

// policies returns the policies that apply to Pods of this Node and whose flows the switch has confirmed.
func (a reportLook) policies(ctx context.Context) (reported, error) {
	if err := a.progress.await(ctx, func() (bool, error) { return a.progress.ready(), nil }); err != nil {
		return reported{}, err
	}
	now := reported{
		Policies: map[string]string{}, Failures: map[string]string{}, Problems: map[string]string{},
		Ways: a.ways.now(),
	}
	versions := map[policy.Key]policy.Version{}
	// Between two passes, all flows in the tables are declared.
	if !a.tables.engine.Do(ctx, func() {
		now.Features = features(a.tables.config, a.served())
		for _, row := range a.tables.policies.LocalVersions.All() {
			versions[row.Key] = row.Value
		}
		texts := a.problems(versions)
		for _, k := range slices.SortedFunc(maps.Keys(texts), policy.Key.Compare) {
			put(now.Problems, k.Short(), strings.Join(texts[k], "; "))
		}
	}) {
		return reported{}, ctx.Err()
	}
	var failures map[policy.Key]error
	synced, cancel := ctx, func() {}
	if len(now.Ways) > 0 { // policies wait for the switch, ways do not
		synced, cancel = context.WithTimeout(ctx, reportWays)
	}
	defer cancel()
	if err := a.flows.Synced(synced); ctx.Err() != nil {
		return reported{}, ctx.Err()
	} else if synced.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		return reported{Ways: now.Ways, OnlyWays: true}, nil
	} else if err != nil {
		refused := a.flows.Refused()
		if !a.tables.engine.Do(ctx, func() {
			var all error
			if failures, all = a.tables.flows.Policies.Refused(refused); all == nil {
				return
			}
			for k := range versions {
				failures[k] = all
			}
		}) {
			return reported{}, ctx.Err()
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(versions), policy.Key.Compare) {
		if err := failures[k]; err != nil {
			put(now.Failures, k.Short(), string(versions[k])+" "+err.Error())
		} else {
			now.Policies[k.Short()] = string(versions[k])
		}
	}
	return now, nil
}

// features returns the abilities of this agent that not every agent has.
func features(c config.Config, served family.Families) map[string]string {
	out := map[string]string{}
	if served.Has6() {
		out[mcv1alpha1.FeatureIPv6] = ""
	}
	if c.MulticlusterGateway() && c.Multicluster.EnablePodToPodConnectivity &&
		c.Multicluster.PreserveClientIP != peering.PreserveNever {
		out[mcv1alpha1.FeaturePreserveClientIP] = ""
	}
	if c.MulticlusterGateway() {
		out[mcv1alpha1.FeatureSingleWays], out[mcv1alpha1.FeatureWayEcho] = "", ""
	}
	if c.EncryptsPeers() {
		out[mcv1alpha1.FeatureEncryptsPeers] = ""
	}
	if tunnel := tunnelFeature(c); tunnel != "" && c.MulticlusterGateway() {
		out[tunnel] = ""
	}
	return out
}

// tunnelFeature returns the feature that names this Node's tunnels.
func tunnelFeature(c config.Config) string {
	return mcv1alpha1.FeatureTunnel(c.TunnelType, c.TunnelPort)
}

// put adds a text to the reported ones, within their bounds.
func put(to map[string]string, key, text string) {
	if len(to) < maxReportedTexts {
		to[key] = strings.ToValidUTF8(text[:min(len(text), maxReportedText)], "")
	}
}

// problems returns this Node's problems with policies. It omits problems that all Nodes have.
func (a reportLook) problems(versions map[policy.Key]policy.Version) map[policy.Key][]string {
	of := map[problem.Object]policy.Key{}
	for k := range versions {
		of[problem.Object{Kind: k.Kind.String(), Namespace: k.Namespace, Name: k.Name}] = k
	}
	out := map[policy.Key][]string{}
	for _, p := range a.tables.engine.Problems() {
		k, ok := of[p.Object]
		if ok && p.Reason != policy.ReasonUnknownGroup && !slices.Contains(a.tables.policies.Facts(k).Problems, p) {
			out[k] = append(out[k], p.Field+": "+p.Message)
		}
	}
	return out
}

// reportClient is reportAPI over HTTP.
type reportClient struct{ reports, nodes rest.Interface }

func newReportClient(config *rest.Config) (*reportClient, error) {
	scheme := runtime.NewScheme()
	if err := tombolov1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	of := func(version schema.GroupVersion, path string) (rest.Interface, error) {
		c := rest.CopyConfig(config)
		c.GroupVersion, c.APIPath, c.NegotiatedSerializer = &version, path,
			serializer.NewCodecFactory(scheme).WithoutConversion()
		return rest.RESTClientFor(c)
	}
	reports, err := of(tombolov1alpha1.GroupVersion, "/apis")
	if err != nil {
		return nil, fmt.Errorf("set up the client of reports: %w", err)
	}
	nodes, err := of(corev1.SchemeGroupVersion, "/api")
	if err != nil {
		return nil, fmt.Errorf("set up the client of Nodes: %w", err)
	}
	return &reportClient{reports, nodes}, nil
}

const reportsResource = "nodepolicyreports"

func (c *reportClient) get(ctx context.Context, node string) (*tombolov1alpha1.NodePolicyReport, error) {
	out := &tombolov1alpha1.NodePolicyReport{}
	return out, c.reports.Get().Resource(reportsResource).Name(node).Do(ctx).Into(out)
}

func (c *reportClient) create(ctx context.Context, r *tombolov1alpha1.NodePolicyReport) error {
	return c.reports.Post().Resource(reportsResource).Body(r).Do(ctx).Error()
}

func (c *reportClient) patch(ctx context.Context, node string, merge []byte) error {
	return c.reports.Patch(types.MergePatchType).Resource(reportsResource).Name(node).Body(merge).Do(ctx).Error()
}

func (c *reportClient) nodeUID(ctx context.Context, node string) (types.UID, error) {
	n := &corev1.Node{}
	err := c.nodes.Get().Resource("nodes").Name(node).Do(ctx).Into(n)
	return n.UID, err
}
