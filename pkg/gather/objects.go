package gather

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// namesUsers reports whether the names of a kind are replaced.
func namesUsers(k kind) bool {
	return k.Group == "" && slices.Contains([]string{"pods", "namespaces", "services"}, k.Resource)
}

// mentionsUsers reports whether objects of a kind contain names of objects that do not exist, or that are in another
// cluster.
func mentionsUsers(k kind) bool {
	return slices.Contains([]string{"events", "serviceexports", "serviceimports", "resourceexports", "resourceimports"},
		k.Resource)
}

// learnNames reads the names to replace. It leaves out a cluster of which not all names can be read.
func (c *cluster) learnNames(ctx context.Context) {
	for _, k := range kinds {
		if c.dead || !namesUsers(k) && !mentionsUsers(k) {
			continue
		}
		list, err := c.list(ctx, k, "")
		if mentionsUsers(k) {
			for _, o := range list {
				c.words.learnMentioned(o)
			}
			if err == nil {
				c.kept[k.file()] = list
			}
			continue // objects reports an error
		}
		if err != nil {
			c.dead = true
			c.fail("", fmt.Errorf("%w; without these names nothing of this cluster can be written with --anonymize", err))
			return
		}
		for _, o := range list {
			c.words.learnObject(o)
		}
		c.kept[k.file()] = list
	}
}

// namespaces returns the Namespaces that Tombolo runs in: kube-system, and the Namespaces of ClusterSets.
func (c *cluster) namespaces(ctx context.Context) []string {
	all := []string{systemName}
	list, err := c.dynamic.Resource(gvr("multicluster.crd.antrea.io", "v1alpha2", "clustersets")).List(ctx,
		metav1.ListOptions{})
	if err != nil {
		return all // the kind's own list reports it
	}
	for _, o := range list.Items {
		if !slices.Contains(all, o.GetNamespace()) {
			all = append(all, o.GetNamespace())
		}
	}
	return all
}

// objects adds the objects of a kind.
func (c *cluster) objects(ctx context.Context, k kind, namespaces []string) {
	if list, ok := c.kept[k.file()]; ok {
		if len(list) > 0 {
			c.putObjects(k.file(), list)
		}
		return
	}
	in := []string{""}
	if k.inOwn {
		in = namespaces
	}
	var all []map[string]any
	for _, namespace := range in {
		list, err := c.list(ctx, k, namespace)
		if apierrors.IsNotFound(err) {
			c.contents(func(m *Manifest) {
				i := slices.IndexFunc(m.Clusters, func(x Contents) bool { return x.Name == c.Name })
				m.Clusters[i].Absent = append(m.Clusters[i].Absent, k.GroupResource().String())
				slices.Sort(m.Clusters[i].Absent)
			})
			return
		}
		all = append(all, list...)
		if err != nil {
			c.fail(k.file(), err)
		}
	}
	if len(all) > 0 {
		c.putObjects(k.file(), all)
	}
}

// list reads the objects of a kind, page by page. Together with an error it returns the objects read until then.
func (c *cluster) list(ctx context.Context, k kind, namespace string) ([]map[string]any, error) {
	var all []map[string]any
	var bad error
	events := k.Resource == "events"
	for o := (metav1.ListOptions{Limit: pageSize}); ; {
		list, err := c.dynamic.Resource(k.GroupVersionResource).Namespace(namespace).List(ctx, o)
		if err != nil {
			return all, err
		}
		for _, item := range list.Items {
			if events && c.Now().Sub(eventTime(item)) > c.Since {
				continue
			}
			object, err := k.filter(&item, own(item))
			if err != nil {
				bad = err
				continue
			}
			all = append(all, object)
		}
		if o.Continue = list.GetContinue(); o.Continue == "" {
			return all, bad
		}
		if events && len(all) >= maxEvents {
			return all, fmt.Errorf("more than %d Events: the others are left out; --since takes a shorter time", maxEvents)
		}
	}
}

// eventTime is when an Event was seen last.
func eventTime(o unstructured.Unstructured) time.Time {
	var latest time.Time
	for _, path := range [][]string{{"lastTimestamp"}, {"eventTime"}, {"series", "lastObservedTime"}} {
		text, _, _ := unstructured.NestedString(o.Object, path...)
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil && at.After(latest) {
			latest = at
		}
	}
	if latest.IsZero() {
		return o.GetCreationTimestamp().Time
	}
	return latest
}

// own reports whether an object is a Pod of Tombolo.
func own(o unstructured.Unstructured) bool {
	labels := o.GetLabels()
	return o.GetKind() == "Pod" && (labels["app"] == "tombolo" && o.GetNamespace() == systemName ||
		labels["component"] == "antrea-mc-controller")
}

// configuration adds the known keys of a ConfigMap.
func (c *cluster) configuration(ctx context.Context, namespace, name string, keys []string) {
	folder := "configuration/" + c.word(namespace) + "_" + name
	o, err := c.dynamic.Resource(gvr("", "v1", "configmaps")).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return
	}
	if err != nil {
		c.fail(folder, err)
		return
	}
	for _, key := range keys {
		if text, found, _ := unstructured.NestedString(o.Object, "data", key); found {
			c.put(folder+"/"+key, []byte(text))
		}
	}
}
