package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tombolo-net/tombolo/cmd/tombolo-controller/flags"
	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/certs"
	"github.com/tombolo-net/tombolo/pkg/observe/follow"
	"github.com/tombolo-net/tombolo/pkg/observe/relay"
	"github.com/tombolo-net/tombolo/pkg/observe/reverse"
	"github.com/tombolo-net/tombolo/pkg/observe/traceflow"
)

// runObserve runs the relay, by which people and programs ask the agents of all Nodes.
func runObserve(ctx context.Context, f flags.Observe) error {
	namespace, kube, err := environment("observe")
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), metav1.AddMetaToScheme(scheme),
		crdv1beta1.AddToScheme(scheme)); err != nil {
		return err
	}
	writer, err := client.New(kube, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	certificate := &certs.Certificate{Client: writer, Namespace: namespace, Names: relay.CertificateNames()}
	mgr, err := ctrl.NewManager(kube, ctrl.Options{
		Scheme: scheme, HealthProbeBindAddress: f.Health, Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r, err := relay.New(relay.Options{Config: kube, Agents: f.Agents, TLS: certificate.TLS, Registry: registry,
		Log: slog.Default()})
	if err != nil {
		return err
	}
	objects, err := client.New(kube, client.Options{Scheme: follow.Scheme()})
	if err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	traceflows := &traceflow.Controller{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Objects: objects,
		Agents: r.Agents(), Log: slog.Default()}
	if err := errors.Join(
		followNodes(ctx, mgr, r),
		mgr.Add(everyReplica(func(ctx context.Context) error { return traceflows.AddWhenServed(ctx, mgr) })),
		mgr.Add(certificate),
		mgr.Add(everyReplica(func(ctx context.Context) error {
			listener, err := (&net.ListenConfig{KeepAliveConfig: reverse.KeepAlive}).Listen(ctx, "tcp", f.Listen)
			if err != nil {
				return fmt.Errorf("listen for agents and readers: %w", err)
			}
			return r.Serve(ctx, listener)
		})),
		mgr.AddReadyzCheck("certificate", certificate.Ready),
	); err != nil {
		return err
	}
	return start(ctx, mgr, "observe", namespace)
}

// everyReplica runs in each replica.
type everyReplica func(context.Context) error

// Start implements the manager's Runnable.
func (f everyReplica) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection implements the manager's LeaderElectionRunnable.
func (everyReplica) NeedLeaderElection() bool { return false }

// followNodes writes the names of the cluster's Nodes to the relay.
func followNodes(ctx context.Context, mgr ctrl.Manager, r *relay.Relay) error {
	nodes := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	informer, err := mgr.GetCache().GetInformer(ctx, nodes)
	if err != nil {
		return fmt.Errorf("watch Nodes: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			if n, ok := o.(metav1.Object); ok {
				r.Nodes().Add(n.GetName())
			}
		},
		DeleteFunc: func(o any) {
			if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if n, ok := o.(metav1.Object); ok {
				r.Nodes().Delete(n.GetName())
			}
		},
	})
	return err
}
