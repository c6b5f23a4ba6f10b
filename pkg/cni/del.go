package cni

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/cni/wire"
	"github.com/tombolo-net/tombolo/pkg/ipam"
)

// del removes a Pod's interface. A missing interface counts as removed.
func (s *Server) del(ctx context.Context, q wire.Request, _ *netConf) ([]byte, *types.Error) {
	for _, v := range []struct{ name, value string }{{"CNI_CONTAINERID", q.ContainerID}, {"CNI_IFNAME", q.IfName}} {
		if v.value == "" {
			return nil, types.NewError(wire.CodeEnvironment, v.name+" is missing", "the container runtime has to set it")
		}
	}
	k := ipam.Key{ContainerID: q.ContainerID, IfName: q.IfName}
	if err := s.removeAll(ctx, k, parseArgs(q.Args).name); err != nil {
		if ctx.Err() != nil {
			return nil, interrupted("remove the Pod's interface", err)
		}
		return nil, types.NewError(wire.CodeConfigureInterface, "remove the Pod's interface: "+err.Error(),
			"the runtime will try again; see `tombolo get status` on this Node")
	}
	return nil, nil
}

// removeAll removes an interface. If that is eth0, it also removes the further interfaces of the Pod.
func (s *Server) removeAll(ctx context.Context, k ipam.Key, podName string) error {
	var errs []error
	if k.IfName == defaultIfName {
		for _, extra := range (extras{s}).keys(k.ContainerID) {
			errs = append(errs, s.remove(ctx, extra, podName))
		}
	}
	return errors.Join(append(errs, s.remove(ctx, k, podName))...)
}

// remove removes the port, the flows and the veth pair at the same time, and then releases the address. So no Pod gets
// an address for which the switch still has another Pod's flows.
func (s *Server) remove(ctx context.Context, k ipam.Key, podName string) error {
	unlock, err := s.lock(ctx, k)
	if err != nil {
		return err
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(ctx, detachTimeout)
	defer cancel()

	links := map[string]bool{}
	if a, ok := s.find(k); ok {
		links[a.PortName] = true
	}
	if r, ok := s.ipam.Get(k); ok {
		if name := recordedPort(r); name != "" {
			links[name] = true
		}
	}
	if podName != "" {
		links[PortName(podName, k.ContainerID, k.IfName)] = true
	}
	if len(links) == 0 { // not recorded: its alias names the container
		own, err := ownLinks()
		if err != nil {
			return err
		}
		for name, l := range own {
			links[name] = l.Key == k
		}
	}
	var running sync.WaitGroup
	var linkErr error
	running.Go(func() {
		for name, its := range links {
			if its {
				linkErr = errors.Join(linkErr, removeLink(name, k))
			}
		}
	})
	err = s.node.Detach(ctx, k.ContainerID, k.IfName)
	running.Wait()
	if err := errors.Join(err, linkErr); err != nil {
		return err
	}
	_, err = s.ipam.Release(k)
	return err
}

// recordedPort returns the port's name from an address record. If an earlier version has not recorded it, recordedPort
// computes it from the record's owner, which is the Pod.
func recordedPort(r ipam.Record) string {
	if r.PortName != "" {
		return r.PortName
	}
	_, name, ok := strings.Cut(r.Owner, "/")
	if !ok || name == "" {
		return ""
	}
	return PortName(name, r.ContainerID, r.IfName)
}

// gc removes the interfaces of the request's network whose containers the runtime no longer lists (specification 1.1).
// Interfaces of other networks stay. If the network of an interface is not recorded, it stays too, until DEL removes
// it. gc continues after an error and returns all errors.
func (s *Server) gc(ctx context.Context, _ wire.Request, c *netConf) ([]byte, *types.Error) {
	valid, failed := c.valid()
	if failed != nil {
		return nil, failed
	}
	own, err := ownLinks()
	if err != nil {
		return nil, types.NewError(wire.CodeConfigureInterface, "remove what is left of gone containers: "+err.Error(),
			"the runtime will try again")
	}
	type left struct{ podName, network, virtual string }
	gone := map[ipam.Key]left{}
	for _, l := range own {
		gone[l.Key] = left{}
	}
	for _, r := range s.ipam.Records() {
		gone[r.Key] = left{network: r.Network, virtual: r.VirtualNetwork}
	}
	for _, a := range s.node.Attachments() {
		k := ipam.Key{ContainerID: a.ContainerID, IfName: a.IfName}
		gone[k] = left{podName: a.PodName, network: cmp.Or(a.Network, gone[k].network),
			virtual: cmp.Or(a.VirtualNetwork, gone[k].virtual)}
	}
	containers := validContainers(valid)
	var errs []error
	for k, l := range gone {
		if valid[k] || networkOf(k.IfName, l.network) != c.Name || l.virtual != "" && containers[k.ContainerID] {
			continue
		}
		if err := s.remove(ctx, k, l.podName); err != nil {
			errs = append(errs, fmt.Errorf("container %s %s: %w", k.ContainerID, k.IfName, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, types.NewError(wire.CodeConfigureInterface, "remove what is left of gone containers: "+err.Error(),
			"the runtime will try again")
	}
	return nil, nil
}

// detachStale removes attachments whose Pod ended while the agent did not run. It retries until all are gone or ctx
// ends.
func (s *Server) detachStale(ctx context.Context) {
	s.mu.Lock()
	stale := s.stale
	s.stale = nil
	s.mu.Unlock()
	for wait := time.Second; len(stale) > 0; wait = min(2*wait, time.Minute) {
		var failed []Attachment
		for _, a := range stale {
			err := s.remove(ctx, ipam.Key{ContainerID: a.ContainerID, IfName: a.IfName}, a.PodName)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				s.log.Warn("deleted Pod not detached yet", "pod", a.PodNamespace+"/"+a.PodName, "port", a.PortName, "error", err)
				failed = append(failed, a)
				continue
			}
			s.log.Info("detached a Pod that was deleted while the agent did not run", "pod", a.PodNamespace+"/"+a.PodName,
				"port", a.PortName)
		}
		stale = failed
		if len(stale) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}
