package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/multicluster/webhook"
)

// needed are the kinds that a controller cannot start without, by version.
func needed(role webhook.Role) map[string][]string {
	kinds := map[string][]string{mcv1alpha2.GroupVersion.String(): {"ClusterSet"}}
	if role == webhook.Leader {
		kinds[mcv1alpha1.GroupVersion.String()] = []string{"MemberClusterAnnounce", "ResourceExport", "ResourceImport"}
	} else {
		kinds[mcv1alpha1.GroupVersion.String()] = []string{"Gateway", "ClusterInfoImport"}
	}
	return kinds
}

// waitServed waits until the API server answers and serves what the controller needs. In a new cluster the controller
// may start before the network works or the CustomResourceDefinitions exist. If it exited, the kubelet would wait
// longer before each restart.
func waitServed(ctx context.Context, kube *rest.Config, role webhook.Role) error {
	client, err := discovery.NewDiscoveryClientForConfig(kube)
	if err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	reported := ""
	for {
		err := served(client, needed(role))
		if err == nil {
			return nil
		}
		if err.Error() != reported {
			reported = err.Error()
			slog.Info("waiting for the API server", "reason", reported)
		}
		timer := time.NewTimer(time.Second)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

func served(client discovery.DiscoveryInterface, kinds map[string][]string) error {
	for version, names := range kinds {
		list, err := client.ServerResourcesForGroupVersion(version)
		if err != nil {
			return fmt.Errorf("%s: %w", version, err)
		}
		have := map[string]bool{}
		for _, r := range list.APIResources {
			have[r.Kind] = true
		}
		for _, kind := range names {
			if !have[kind] {
				return fmt.Errorf("%s has no kind %s: apply the CustomResourceDefinitions of the multi-cluster manifests",
					version, kind)
			}
		}
	}
	return nil
}
