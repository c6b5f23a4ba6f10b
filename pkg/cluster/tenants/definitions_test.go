package tenants

import (
	"context"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	plumbingv1 "github.com/tombolo-net/tombolo/pkg/apis/plumbing/v1"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// testDefinitions creates NetworkAttachmentDefinitions in Namespace a. The controller creates the objects of some.
func testDefinitions(t *testing.T, c client.Client) {
	t.Helper()
	create := func(name, annotation, config string) *plumbingv1.NetworkAttachmentDefinition {
		t.Helper()
		n := &plumbingv1.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name,
			Labels: map[string]string{"vn": name}, Annotations: map[string]string{tenant.AnnotationDefinition: annotation}},
			Spec: plumbingv1.NetworkAttachmentDefinitionSpec{Config: config}}
		if err := c.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	expect := func(name, want string) *contrailv4.VirtualNetwork {
		t.Helper()
		n, have := &contrailv4.VirtualNetwork{}, ""
		err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true,
			func(ctx context.Context) (bool, error) {
				err := c.Get(ctx, client.ObjectKey{Namespace: "a", Name: name}, n)
				have = n.Status.IPFamilies + " " + n.Status.State + ": " + n.Status.Observation
				return strings.HasPrefix(have, want), client.IgnoreNotFound(err)
			})
		if err != nil {
			t.Fatalf("VirtualNetwork %s has %s, want %s: %v", name, have, want, err)
		}
		return n
	}
	const config = `{"cniVersion": "0.3.1", "type": "contrail-k8s-cni"}`
	create("bridge", `{"ipamV4Subnet": "10.71.0.0/24"}`, `{"type": "bridge"}`)
	create("wrong", `{"ipamV4Subnet": "10.72.0.0"}`, config)
	nad := create("nad1", `{"ipamV4Subnet": "10.70.0.0/24", "ipamV6Subnet": "fd70::/64"}`, config)
	n := expect("nad1", "v6,v4 Success: ")
	if o := n.OwnerReferences; n.Labels["vn"] != "nad1" || len(o) != 1 || o[0].UID != nad.UID ||
		o[0].Kind != "NetworkAttachmentDefinition" {
		t.Errorf("the VirtualNetwork has %+v", n.ObjectMeta)
	}
	subnet := &contrailv4.Subnet{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "nad1-v6"}, subnet); err != nil ||
		subnet.Spec.CIDR != "fd70::/64" || len(subnet.OwnerReferences) != 1 {
		t.Errorf("the Subnet is %+v: %v", subnet, err)
	}

	// Objects that go are created again, and others stay as they are.
	if err := c.Delete(t.Context(), subnet); err != nil {
		t.Fatal(err)
	}
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			again := &contrailv4.Subnet{}
			err := c.Get(ctx, client.ObjectKeyFromObject(subnet), again)
			return err == nil && again.UID != subnet.UID, client.IgnoreNotFound(err)
		})
	if err != nil {
		t.Fatalf("the Subnet is not created again: %v", err)
	}
	nad.Annotations[tenant.AnnotationDefinition] = `{"ipamV4Subnet": "10.73.0.0/24", "ipamV6Subnet": "fd70::/64"}`
	if err := c.Update(t.Context(), nad); err != nil {
		t.Fatal(err)
	}
	expect("nad1", "v6,v4 Warning: spec.v4SubnetReference: NetworkAttachmentDefinition a/nad1 has the range "+
		"10.73.0.0/24, which the network has not: Subnets stay as they are: create another NetworkAttachmentDefinition")
	for _, name := range []string{"bridge", "wrong"} {
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: name}, n); !apierrors.IsNotFound(err) {
			t.Errorf("VirtualNetwork %s: %v", name, err)
		}
	}
}
