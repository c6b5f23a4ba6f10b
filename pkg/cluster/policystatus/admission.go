package policystatus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/certs"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// CertificateNames returns the names of the objects in which the controller keeps its webhooks' certificate.
func CertificateNames() certs.Names {
	return certs.Names{
		Service: webhookService, Secret: "tombolo-policy-webhook-tls", ValidatingOnly: true,
		Configurations: map[string]string{"app": "tombolo", "served-by": "tombolo-policy-controller"},
		Manifest:       "deploy/agent/tombolo.yml",
	}
}

// register serves the webhooks. If an object with a fault gets past them, the fault becomes a condition. So API servers
// ignore webhooks that do not answer (failurePolicy: Ignore), and policies do not depend on this controller.
func (c *controller) register(mgr ctrl.Manager) {
	for path, f := range map[string]admission.HandlerFunc{
		"/validate-policy": c.admitPolicy, "/validate-tier": c.admitTier, "/validate-group": c.admitGroup,
	} {
		mgr.GetWebhookServer().Register(path, &admission.Webhook{Handler: f})
	}
}

// admitPolicy refuses policies of a Tier that there is not.
func (c *controller) admitPolicy(ctx context.Context, req admission.Request) admission.Response {
	var o struct {
		Spec struct {
			Tier string `json:"tier"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(req.Object.Raw, &o); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	name := policy.TierName(o.Spec.Tier)
	if _, ok := crdv1beta1.DefaultTiers[name]; ok {
		return admission.Allowed("")
	}
	// Live: it may have been made a moment ago, or be gone.
	err := c.to.Get(ctx, client.ObjectKey{Name: name}, &crdv1beta1.Tier{})
	switch {
	case apierrors.IsNotFound(err):
		return denied("%s: spec.tier: there is no Tier %s: create it before, or write one of %s", called(req), name,
			c.tierNames())
	case err != nil:
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("get Tier %s: %w", name, err))
	}
	return admission.Allowed("")
}

// tierNames are the Tiers that policies can name, those first that decide first.
func (c *controller) tierNames() string {
	var names []string
	for name := range crdv1beta1.DefaultTiers {
		names = append(names, name)
	}
	slices.SortFunc(names,
		func(a, b string) int { return cmp.Compare(crdv1beta1.DefaultTiers[a], crdv1beta1.DefaultTiers[b]) })
	for _, row := range c.tables.spans.Tiers.All() {
		if !slices.Contains(names, row.Key.Name) {
			names = append(names, row.Key.Name)
		}
	}
	return strings.Join(names, ", ")
}

// admitTier bounds the number of Tiers, and refuses to delete a Tier that has policies.
func (c *controller) admitTier(ctx context.Context, req admission.Request) admission.Response {
	if req.Operation == admissionv1.Create {
		var tiers metav1.PartialObjectMetadataList
		tiers.SetGroupVersionKind(crdv1beta1.GroupVersion.WithKind("TierList"))
		if err := c.to.List(ctx, &tiers); err != nil {
			return admission.Errored(http.StatusInternalServerError, fmt.Errorf("list Tiers: %w", err))
		}
		if n := len(tiers.Items); n >= crdv1beta1.MaxTiers {
			return denied("%s: there are %d Tiers, and there can be %d: delete one that has no policies", called(req), n,
				crdv1beta1.MaxTiers)
		}
		return admission.Allowed("")
	}
	if ok, _ := c.tables.engine.Loaded(); !ok {
		return admission.Errored(http.StatusServiceUnavailable, errors.New("policies are not known yet"))
	}
	var in []policy.Key
	if !c.tables.engine.Do(ctx, func() { in = c.tables.byTier.Keys(derive.Name(req.Name)) }) {
		return admission.Errored(http.StatusServiceUnavailable, ctx.Err())
	}
	if len(in) > 0 {
		return denied("%s: %d of the policies are in it, such as %s: give them another Tier, or delete them, before",
			called(req), len(in), in[0])
	}
	return admission.Allowed("")
}

// admitGroup refuses groups that contain themselves through other groups. A missing group is allowed, since it may come
// later.
func (c *controller) admitGroup(_ context.Context, req admission.Request) admission.Response {
	var o struct {
		Spec struct {
			ChildGroups []string `json:"childGroups"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(req.Object.Raw, &o); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	source := c.tables.spans.Groups
	if req.Namespace == "" {
		source = c.tables.spans.ClusterGroups
	}
	seen := map[string]bool{}
	var way func(children []string) []string // to this group
	way = func(children []string) []string {
		for _, child := range children {
			if child == req.Name {
				return []string{child}
			}
			if seen[child] {
				continue
			}
			seen[child] = true
			f, _ := source.Get(derive.Object{Namespace: req.Namespace, Name: child})
			if rest := way(f.Children); rest != nil {
				return append([]string{child}, rest...)
			}
		}
		return nil
	}
	if path := way(o.Spec.ChildGroups); path != nil {
		return denied("%s: spec.childGroups: the group would contain itself, by %s: remove one of them from another",
			called(req), strings.Join(path, ", "))
	}
	return admission.Allowed("")
}

// called is the object of a request, for people.
func called(req admission.Request) string {
	if req.Namespace == "" {
		return req.Kind.Kind + " " + req.Name
	}
	return req.Kind.Kind + " " + req.Namespace + "/" + req.Name
}

func denied(format string, args ...any) admission.Response {
	return admission.Denied(fmt.Sprintf(format, args...))
}
