package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/restmapper"
)

// stored is a key of etcd.
type stored struct {
	Key      []byte `json:"key"`
	Value    []byte `json:"value"`
	Revision string `json:"mod_revision"`
}

// errOtherDefinitions means that a test has changed custom resource definitions. Such a server serves no other test.
var errOtherDefinitions = errors.New("the definitions have changed")

const definitions = "/registry/apiextensions.k8s.io/customresourcedefinitions/"

// admission is the beginning of the keys of admission policies and webhooks.
const admission = "/registry/admissionregistration.k8s.io/"

// own are beginnings of keys that the API server itself writes whenever it wants to.
var own = []string{"/registry/leases/kube-system/apiserver-", "/registry/apiregistration.k8s.io/",
	"/registry/masterleases/", "/registry/peerserverleases/"}

func serversOwn(key string) bool {
	return slices.ContainsFunc(own, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// bootstrap are keys that the API server writes some time after it is ready.
var bootstrap = []string{"/registry/namespaces/default", "/registry/namespaces/kube-system",
	"/registry/namespaces/kube-public", "/registry/namespaces/kube-node-lease",
	"/registry/services/specs/default/kubernetes", "/registry/servicecidrs/kubernetes"}

// read returns what etcd has for the API server, with or without values.
func (s *Server) read(ctx context.Context, values bool) (map[string]stored, error) {
	var answer struct {
		Stored []stored `json:"kvs"`
	}
	text, err := s.askEtcd(ctx, "/v3/kv/range", map[string]any{
		"key": []byte("/registry/"), "range_end": []byte("/registry0"), "keys_only": !values})
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil {
		return nil, fmt.Errorf("read from etcd: %w", err)
	}
	out := map[string]stored{}
	for _, kv := range answer.Stored {
		out[string(kv.Key)] = kv
	}
	return out, nil
}

// remember notes what the server has before its first test.
func (s *Server) remember(ctx context.Context) error {
	complete := func(ctx context.Context) (bool, error) {
		all, err := s.read(ctx, true)
		s.first = all
		return err == nil && !slices.ContainsFunc(bootstrap, func(k string) bool { return all[k].Key == nil }), err
	}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, startLimit, true, complete)
	if err != nil {
		return fmt.Errorf("wait for the objects that each API server has: %w", err)
	}
	return nil
}

// empty brings the server back to its state before the first test, and waits until its caches show that state. It also
// removes objects that goroutines of the previous test still write meanwhile.
func (s *Server) empty(ctx context.Context) error {
	for {
		changes, err := s.putBack(ctx)
		if err != nil || changes == 0 {
			return err
		}
	}
}

// putBack restores objects that differ from the state before the first test, and returns their number.
func (s *Server) putBack(ctx context.Context) (int, error) {
	now, err := s.read(ctx, true)
	if err != nil {
		return 0, err
	}
	type operation struct {
		Put    *stored `json:"requestPut,omitempty"`
		Delete *stored `json:"requestDeleteRange,omitempty"`
	}
	var operations []operation
	pause := settle
	change := func(key string, o operation) {
		operations = append(operations, o)
		if strings.HasPrefix(key, admission) {
			pause = settlePolicies
		}
	}
	gone := map[string]stored{} // by their group and resource: the last of each
	for key, kv := range now {
		first, had := s.first[key]
		switch {
		case had && first.Revision == kv.Revision, serversOwn(key):
		case strings.HasPrefix(key, definitions) && (!had || !bytes.Equal(first.Value, kv.Value)):
			return 0, errOtherDefinitions
		case !had:
			change(key, operation{Delete: &stored{Key: kv.Key}})
			gone[key[:strings.LastIndex(key, "/")]] = kv
		default:
			change(key, operation{Put: &stored{Key: kv.Key, Value: first.Value}})
		}
	}
	for key, kv := range s.first {
		if _, has := now[key]; !has && !serversOwn(key) {
			if strings.HasPrefix(key, definitions) {
				return 0, errOtherDefinitions
			}
			change(key, operation{Put: &stored{Key: kv.Key, Value: kv.Value}})
		}
	}
	for some := range slices.Chunk(operations, putAtOnce) {
		if _, err := s.askEtcd(ctx, "/v3/kv/txn", map[string]any{"success": some}); err != nil {
			return 0, fmt.Errorf("write to etcd: %w", err)
		}
	}
	if len(operations) == 0 {
		return 0, nil
	}
	after, err := s.read(ctx, false)
	if err != nil {
		return 0, err
	}
	for _, o := range operations {
		if o.Put != nil {
			kv := s.first[string(o.Put.Key)]
			kv.Revision = after[string(o.Put.Key)].Revision
			s.first[string(o.Put.Key)] = kv
		}
	}
	for _, kv := range gone {
		if err := s.waitGone(ctx, kv); err != nil {
			return 0, err
		}
	}
	time.Sleep(pause)
	return len(operations), nil
}

// waitGone waits until the API server's cache has no objects that etcd lacks.
func (s *Server) waitGone(ctx context.Context, kv stored) error {
	kind, err := kindOf(kv.Value)
	if err != nil {
		return fmt.Errorf("%s: %w", kv.Key, err)
	}
	if s.mapper == nil {
		client, err := discovery.NewDiscoveryClientForConfig(s.access)
		if err != nil {
			return err
		}
		groups, err := restmapper.GetAPIGroupResources(client)
		if err != nil {
			return err
		}
		s.mapper = restmapper.NewDiscoveryRESTMapper(groups)
	}
	mapping, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return nil // such as a range of ports, which is in no cache
	} else if err != nil {
		return err
	}
	client, err := metadata.NewForConfig(s.access)
	if err != nil {
		return err
	}
	path := strings.Split(string(kv.Key), "/")
	get := client.Resource(mapping.Resource).Get
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		get = client.Resource(mapping.Resource).Namespace(path[len(path)-2]).Get
	}
	err = wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, startLimit, true, func(ctx context.Context) (bool, error) {
		_, err := get(ctx, path[len(path)-1], metav1.GetOptions{ResourceVersion: "0"}) // from the cache
		return apierrors.IsNotFound(err), nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s is gone: %w", kv.Key, err)
	}
	return nil
}

// protobuf is the beginning of stored values that are not JSON (k8s.io/apimachinery/pkg/runtime/serializer/protobuf).
var protobuf = []byte("k8s\x00")

// kindOf returns the kind of a stored object.
func kindOf(value []byte) (schema.GroupVersionKind, error) {
	var object runtime.TypeMeta
	if encoded, is := bytes.CutPrefix(value, protobuf); is {
		var unknown runtime.Unknown
		if err := unknown.Unmarshal(encoded); err != nil {
			return schema.GroupVersionKind{}, err
		}
		object = unknown.TypeMeta
	} else if err := json.Unmarshal(value, &object); err != nil {
		return schema.GroupVersionKind{}, err
	}
	return schema.FromAPIVersionAndKind(object.APIVersion, object.Kind), nil
}
