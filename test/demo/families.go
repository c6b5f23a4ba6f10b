package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/tombolo-net/tombolo/test/scenario"
)

// both is a Service of both versions of IP, exported.
const both = `
apiVersion: v1
kind: Service
metadata: {name: nginx-both, namespace: default}
spec: {ipFamilyPolicy: PreferDualStack, selector: {app: nginx}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: nginx-both, namespace: default}
`

// families exports a dual-stack Service in west, and lets the client in east send requests to each address of its
// import. It returns the addresses.
func (d *demo) families(ctx context.Context) ([]netip.Addr, error) {
	section("A Service of west, asked in east over IPv4 and IPv6")
	fmt.Print(strings.TrimSpace(both) + "\n\n")
	if err := d.world.Apply(ctx, "west", both); err != nil {
		return nil, err
	}
	var ips []netip.Addr
	if err := scenario.Eventually(ctx, time.Minute, func(ctx context.Context) error {
		out, err := d.world.Kubectl(ctx, "east", "get", "serviceimport", "nginx-both", "-n", "default", "-o",
			"jsonpath={.spec.ips[*]}")
		if err != nil {
			return err
		}
		ips = nil
		for _, text := range strings.Fields(out) {
			ip, err := netip.ParseAddr(text)
			if err != nil {
				return fmt.Errorf("ServiceImport nginx-both in east: %w", err)
			}
			ips = append(ips, ip)
		}
		if len(ips) != 2 || ips[0].Is4() == ips[1].Is4() {
			return fmt.Errorf("ServiceImport nginx-both in east has the addresses %v, want one of IPv4 and one of IPv6", ips)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	for _, ip := range ips {
		var out string
		if err := scenario.Eventually(ctx, time.Minute, func(ctx context.Context) (err error) {
			out, err = d.world.Exec(ctx, "east", "client", "/echo", "get", urlOf(ip), "--count", "4", "--timeout", "2s")
			return err
		}); err != nil {
			return nil, fmt.Errorf("requests to %s: %w\n%s", urlOf(ip), err, out)
		}
		fmt.Printf("-- default/client in east: 4 requests to %s\n%s", urlOf(ip), out)
	}
	return ips, nil
}

func urlOf(ip netip.Addr) string { return "http://" + netip.AddrPortFrom(ip, 80).String() + "/" }
