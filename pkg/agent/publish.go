package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// publisher writes a fact about this Node, such as its key, to the object that others read.
type publisher[T comparable] struct {
	what  string // that it writes, for the log
	want  func() (T, bool)
	get   func() (at problem.Object, have T, ok bool)
	patch func(ctx context.Context, at problem.Object, want T) error // a zero value removes it
	text  func(T) []any                                              // the value, for the log
	log   *slog.Logger
	wake  chan struct{}
}

const (
	publishRetry = 5 * time.Second
	// publishLimit ends a request without an answer. When links are made again, a connection may break without a reset,
	// and the client notices that only after most of a minute. Until then other clusters would lack this Node's key.
	publishLimit = 10 * time.Second
)

// ask has the value compared.
func (p *publisher[T]) ask() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run writes the value whenever another one is there.
func (p *publisher[T]) run(ctx context.Context) {
	for {
		again := time.NewTimer(publishRetry)
		if !p.write(ctx) {
			again.Stop()
		}
		select {
		case <-ctx.Done():
		case <-p.wake:
		case <-again.C:
		}
		again.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// write reports whether it has to be tried again.
func (p *publisher[T]) write(ctx context.Context) bool {
	at, have, ok := p.get()
	want, known := p.want()
	if !ok || !known || have == want {
		return false
	}
	limited, cancel := context.WithTimeout(ctx, publishLimit)
	defer cancel()
	err := p.patch(limited, at, want)
	switch {
	case ctx.Err() != nil:
		return false
	// Either the object is gone, and an event will follow, or an API server that is starting does not serve its kind yet.
	case apierrors.IsNotFound(err):
		return true
	case err != nil:
		p.log.Error("announce "+p.what+"; trying again", "object", at, "error", err)
		return true
	}
	p.log.Info("announced "+p.what, append([]any{"object", at}, p.text(want)...)...)
	return false
}

// wireguardParts has the parts of the agent for WireGuard: the devices, the changes of their keys, and the
// announcements of the keys.
type wireguardParts struct {
	encryptions []*encryption // between Nodes, and between clusters
	rotations   []*rotation   // of the keys that there are
	// publishers announce the keys.
	publishers []*publisher[mcv1alpha1.WireGuardInfo]
}

// announce starts a comparison of this Node's WireGuard keys with the keys that it has announced to other clusters and
// Nodes.
func (w *wireguardParts) announce() {
	for _, p := range w.publishers {
		p.ask()
	}
}

// newPublishers prepares encryption, the announcement of its keys, and their change.
func (a *Agent) newPublishers() error {
	a.wireguard.encryptions = newEncryptions(a.options)
	for _, e := range a.wireguard.encryptions {
		if e.second == nil {
			continue // announced with the first link
		}
		p := &publisher[mcv1alpha1.WireGuardInfo]{
			what: "the WireGuard key", want: e.published, text: keyText, log: a.log, wake: make(chan struct{}, 1),
		}
		if e.link == betweenNodes {
			api, err := newNodeClient(a.options.REST)
			if err != nil {
				return err
			}
			p.patch = patchNode(api)
			p.get = func() (problem.Object, mcv1alpha1.WireGuardInfo, bool) {
				n, ok := a.tables.nodes.Get(derive.Object{Name: a.options.NodeName})
				return problem.Object{Kind: "Node", Name: a.options.NodeName}, n.announced(), ok
			}
		} else {
			api, err := newGatewayClient(a.options.REST)
			if err != nil {
				return err
			}
			p.patch = patchGateway(api)
			p.get = func() (problem.Object, mcv1alpha1.WireGuardInfo, bool) {
				for _, row := range a.tables.objects.gateways.All() {
					if row.Key.Name == a.options.NodeName {
						return gatewayKey(row.Value)
					}
				}
				return problem.Object{}, mcv1alpha1.WireGuardInfo{}, false
			}
		}
		if e.keys != nil {
			r := newRotation(e, a.tables, a.options.NodeName, a.log)
			r.ready, r.announce = a.progress.ready, a.wireguard.announce
			p.want = r.published
			if e.link == betweenClusters {
				p.want = func() (mcv1alpha1.WireGuardInfo, bool) {
					info, ok := r.published()
					inside, known := insideIP(a.tables)
					info.InsideIP = inside
					return info, ok && known
				}
			}
			a.wireguard.rotations = append(a.wireguard.rotations, r)
		}
		a.wireguard.publishers = append(a.wireguard.publishers, p)
	}
	return nil
}

// keyText returns an announcement of keys for the log.
func keyText(i mcv1alpha1.WireGuardInfo) []any {
	return []any{"publicKey", i.PublicKey, "nextPublicKey", i.NextPublicKey}
}

// insideIP returns the inside address at which this Node, a Gateway, receives packets of other clusters. It is "" if
// the Node has no such address. The second result is false while the agent does not know that yet. Then it must not
// withdraw an announced address.
func insideIP(t *tables) (string, bool) {
	p, known := t.peers.peering.Get(self)
	if at := p.Part.Gateway; p.Part.Role == peering.Gateway && at.InsideIP.IsValid() {
		return at.InsideIP.String(), known
	}
	return "", known
}

// announced returns the announcement of a Node.
func (n nodeFacts) announced() mcv1alpha1.WireGuardInfo {
	info := mcv1alpha1.WireGuardInfo{PublicKey: n.WireGuardKey, NextPublicKey: n.NextKey}
	if port, err := strconv.ParseUint(n.NextPort, 10, 16); err == nil {
		info.NextPort = int32(port)
	} else if n.NextPort != "" {
		info.NextPort = -1 // something else
	}
	return info
}

// gatewayKey returns the announcement of a Gateway.
func gatewayKey(g *mcv1alpha1.Gateway) (at problem.Object, have mcv1alpha1.WireGuardInfo, ok bool) {
	if g.WireGuard != nil {
		have = *g.WireGuard
	}
	return problem.Object{Kind: "Gateway", Namespace: g.Namespace, Name: g.Name}, have, true
}

func patchGateway(api rest.Interface) func(context.Context, problem.Object, mcv1alpha1.WireGuardInfo) error {
	return func(ctx context.Context, at problem.Object, want mcv1alpha1.WireGuardInfo) error {
		info := map[string]any{"wireGuard": nil}
		if want.PublicKey != "" {
			fields := map[string]any{"publicKey": want.PublicKey, "nextPublicKey": nil, "nextPort": nil, "insideIP": nil}
			if want.InsideIP != "" {
				fields["insideIP"] = want.InsideIP
			}
			if want.NextPublicKey != "" {
				fields["nextPublicKey"] = want.NextPublicKey
			}
			if want.NextPort != 0 {
				fields["nextPort"] = want.NextPort
			}
			info["wireGuard"] = fields
		}
		merge, err := json.Marshal(info)
		if err != nil {
			return err
		}
		return api.Patch(types.MergePatchType).Namespace(at.Namespace).Resource("gateways").Name(at.Name).Body(merge).Do(
			ctx).Error()
	}
}

func patchNode(api rest.Interface) func(context.Context, problem.Object, mcv1alpha1.WireGuardInfo) error {
	return func(ctx context.Context, at problem.Object, want mcv1alpha1.WireGuardInfo) error {
		annotations := map[string]any{nodeKey: nil, nextNodeKey: nil, nextNodePort: nil}
		if want.PublicKey != "" {
			annotations[nodeKey] = want.PublicKey
		}
		if want.NextPublicKey != "" {
			annotations[nextNodeKey] = want.NextPublicKey
		}
		if want.NextPort != 0 {
			annotations[nextNodePort] = strconv.Itoa(int(want.NextPort))
		}
		merge, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
		if err != nil {
			return err
		}
		return api.Patch(types.MergePatchType).Resource("nodes").Name(at.Name).Body(merge).Do(ctx).Error()
	}
}

func newGatewayClient(config *rest.Config) (rest.Interface, error) {
	return clientOf(config, mcv1alpha1.GroupVersion, "/apis", mcv1alpha1.AddToScheme)
}

func newNodeClient(config *rest.Config) (rest.Interface, error) {
	return clientOf(config, corev1.SchemeGroupVersion, "/api", corev1.AddToScheme)
}

// clientOf writes objects of one version.
func clientOf(config *rest.Config, version schema.GroupVersion, path string,
	add func(*runtime.Scheme) error) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := add(scheme); err != nil {
		return nil, err
	}
	c := rest.CopyConfig(config)
	c.GroupVersion, c.APIPath, c.NegotiatedSerializer = &version, path,
		serializer.NewCodecFactory(scheme).WithoutConversion()
	api, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("set up the client of %s: %w", version, err)
	}
	return api, nil
}
