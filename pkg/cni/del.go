package cni

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/cni/wire"
	"github.com/tombolo-net/tombolo/pkg/ipam"
)

// del takes a Pod's interface away. What is not there is taken away already.
func (s *Server) del(ctx context.Context, q wire.Request, _ *netConf) ([]byte, *types.Error) {
	for _, v := range []struct{ name, value string }{{"CNI_CONTAINERID", q.ContainerID}, {"CNI_IFNAME", q.IfName}} {
		if v.value == "" {
			return nil, types.NewError(wire.CodeEnvironment, v.name+" is missing", "the container runtime has to set it")
		}
	}
	if err := s.remove(ctx, ipam.Key{ContainerID: q.ContainerID, IfName: q.IfName}, parseArgs(q.Args).name); err != nil {
		if ctx.Err() != nil {
			return nil, interrupted("remove the Pod's interface", err)
		}
		return nil, types.NewError(wire.CodeConfigureInterface, "remove the Pod's interface: "+err.Error(), "the runtime will try again; see `tombolo get status` on this Node")
	}
	return nil, nil
}

// remove takes away port and flows, then the veth pair, then the address: nobody gets an
// address for which the switch still has somebody else's flows.
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
	if err := s.node.Detach(ctx, k.ContainerID, k.IfName); err != nil {
		return err
	}
	var errs []error
	for name := range links {
		errs = append(errs, removeLink(name))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	_, err = s.ipam.Release(k)
	return err
}

// recordedPort computes the port's name from an address record, whose owner is the Pod.
func recordedPort(r ipam.Record) string {
	_, name, ok := strings.Cut(r.Owner, "/")
	if !ok || name == "" {
		return ""
	}
	return PortName(name, r.ContainerID, r.IfName)
}

// gc takes away everything of containers that the runtime no longer knows (specification
// 1.1). It goes on after an error and returns all.
func (s *Server) gc(ctx context.Context, _ wire.Request, c *netConf) ([]byte, *types.Error) {
	valid := map[ipam.Key]bool{}
	for _, v := range c.Valid {
		valid[ipam.Key{ContainerID: v.ContainerID, IfName: v.IfName}] = true
	}
	gone := map[ipam.Key]string{}
	for _, k := range s.ipam.Keys() {
		gone[k] = ""
	}
	for _, a := range s.node.Attachments() {
		gone[ipam.Key{ContainerID: a.ContainerID, IfName: a.IfName}] = a.PodName
	}
	var errs []error
	for k, podName := range gone {
		if valid[k] {
			continue
		}
		if err := s.remove(ctx, k, podName); err != nil {
			errs = append(errs, fmt.Errorf("container %s %s: %w", k.ContainerID, k.IfName, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, types.NewError(wire.CodeConfigureInterface, "remove what is left of gone containers: "+err.Error(), "the runtime will try again")
	}
	return nil, nil
}

// Recover puts the records in order after a start. attached is what OVSDB says. Call it
// once, before Run, when no request can be under way: the address record is completed from
// the attachments; addresses and veth pairs that an interrupted ADD left are freed.
// Attachments whose Pod's namespace is gone are detached by Run, since that needs a Node
// that works. It does all it can and returns what it could not.
func (s *Server) Recover(ctx context.Context, attached []Attachment) error {
	var (
		records []ipam.Record
		keep    = map[ipam.Key]bool{}
		ports   = map[string]bool{}
		stale   []Attachment
	)
	for _, a := range attached {
		k := ipam.Key{ContainerID: a.ContainerID, IfName: a.IfName}
		keep[k], ports[a.PortName] = true, true
		records = append(records, ipam.Record{Key: k, IPs: a.IPs, Owner: a.PodNamespace + "/" + a.PodName})
		if netnsGone(a) {
			stale = append(stale, a)
		}
	}
	s.mu.Lock()
	s.stale = stale
	s.mu.Unlock()

	err := s.ipam.Rebuild(records)
	freed, gcErr := s.ipam.GC(func(k ipam.Key) bool { return keep[k] })
	own, listErr := ownLinks()
	err = errors.Join(err, gcErr, listErr)

	orphans := map[string]bool{}
	for _, r := range freed {
		if name := recordedPort(r); name != "" {
			orphans[name] = true
		}
		s.log.Info("freed the address of a Pod that was never attached", "pod", r.Owner, "container", r.ContainerID, "addresses", r.IPs)
	}
	for name := range own {
		orphans[name] = true
	}
	for name := range orphans {
		if ports[name] {
			continue
		}
		if ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		err = errors.Join(err, removeLink(name))
	}
	return err
}

// detachStale takes away attachments whose Pod went while the agent was not there. It
// tries again until all are gone or ctx ends.
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
				s.log.Warn("Pod that is gone not detached yet", "pod", a.PodNamespace+"/"+a.PodName, "port", a.PortName, "error", err)
				failed = append(failed, a)
				continue
			}
			s.log.Info("detached a Pod that went while the agent was away", "pod", a.PodNamespace+"/"+a.PodName, "port", a.PortName)
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
