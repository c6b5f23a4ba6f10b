package node

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testSameName runs a Pod on the Node while the API server has another Pod under its name. The policies of the running
// Pod hold, or nothing passes. Then two Pods of the Node connect before either status has an address.
func testSameName(t *testing.T, c *cluster) {
	r := newRig(t, c).withOVS()
	r.ready()
	server, seen := guard(r)
	pods := c.client.CoreV1().Pods("default")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// silent has a Pod send to what is forbidden to a role, and to the port that all may reach.
	silent := func(p *pod, what string) {
		t.Helper()
		ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer stop()
		if sent, err := try(ctx, p, caged, server.ip); err != nil || sent == 0 {
			t.Errorf("%s: %d sent, %v", what, sent, err)
		}
		if err := reach(p, caged, server.ip, 100*time.Millisecond); err == nil {
			t.Errorf("%s: it reaches the server", what)
		}
		seen.check(t, what)
	}
	opens := func(p *pod, role, what string) {
		t.Helper()
		r.eventually(what, func() error { return reach(p, role, server.ip, time.Second) })
	}

	must(r.objectOn("", "gated", caged))
	gated := r.add("gated")
	silent(gated, "a Pod that is not scheduled")
	must(pods.Bind(t.Context(),
		&corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "gated"},
			Target: corev1.ObjectReference{Kind: "Node", Name: nodeName}}, metav1.CreateOptions{}))
	opens(gated, caged, "the Pod is scheduled")

	must(r.object("unnamed", caged))
	r.uids.Delete("unnamed")
	unnamed := r.add("unnamed")
	silent(unnamed, "an ADD without UID")
	must(r.running(unnamed))
	opens(unnamed, caged, "the status has the address of an ADD without UID")

	zombie := r.startAs("same", caged)
	opens(zombie, caged, "the Pod has started")
	must(pods.Delete(t.Context(), "same", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	r.eventually("the Pod that was deleted by force is closed", func() error {
		if reach(zombie, caged, server.ip, 50*time.Millisecond) == nil {
			return errors.New("it reaches the server")
		}
		return nil
	})
	silent(zombie, "a Pod that was deleted by force")
	must(r.objectOn("node-2", "same", friend))
	silent(zombie, "a Pod of its name is on another Node")
	must(pods.Delete(t.Context(), "same", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	must(r.object("same", friend))
	successor := r.sandbox("same-2")
	successor.name = "same"
	must(r.attach(successor))
	opens(successor, friend, "the Pod of its name starts")
	silent(zombie, "a Pod of its name with other rights is on this Node")
	must(r.running(successor))
	silent(zombie, "the status of that Pod has its own address")

	must(r.object(hidden, hidden))
	must(r.object(outcast, outcast))
	must(r.object(seeker, seeker))
	must(r.object("passer", stranger))
	hide, passer := r.add(hidden), r.add("passer")
	found := newWitness(t, hide)
	opens(passer, stranger, "the server is there")
	r.eventually("the hidden server is there", func() error { return reach(passer, stranger, hide.ip, time.Second) })
	for name, to := range map[string]string{outcast: server.ip, seeker: hide.ip} {
		p := r.add(name)
		ctx, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if sent, err := try(ctx, p, name, to); err != nil || sent == 0 {
			t.Errorf("%s: %d sent, %v", name, sent, err)
		}
		stop()
	}
	seen.check(t, "rules that deny by label")
	found.check(t, "rules that deny by label")
}
