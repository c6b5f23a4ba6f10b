package config

import (
	"crypto/x509"
	"fmt"
	"net/netip"
	"reflect"
	"time"

	"github.com/tombolo-net/tombolo/pkg/observe/ipfix"
)

// check applies the rules between keys, and the limits of this version.
func (d *decoder) check(c *Config) {
	d.multicluster(c)
	d.unsupported(c)
	d.ranges(c)
	d.hostNetwork(c)
	d.distribution(c)
	d.flowExporter(c)
	d.withoutEffect("", reflect.ValueOf(*c), reflect.ValueOf(defaultConfig()))
}

// defaultConfig is Default without the checks that use it.
func defaultConfig() Config {
	var c Config
	(&decoder{}).defaults(reflect.ValueOf(&c).Elem())
	return c
}

// flowExporter turns off flow records that cannot be sent, with a Warning. Traffic does not depend on them.
func (d *decoder) flowExporter(c *Config) {
	f := &c.FlowExporter
	if !f.Enable {
		return
	}
	if !c.Enabled("FlowExporter") {
		d.warn(d.lines["flowExporter.enable"], "flowExporter.enable",
			"has no effect because the feature gate FlowExporter is off; set featureGates.FlowExporter to true")
		f.Enable = false
		return
	}
	if _, err := ipfix.ParseCollector(f.FlowCollectorAddr); err != nil {
		d.warn(d.lines["flowExporter.flowCollectorAddr"], "flowExporter.flowCollectorAddr",
			err.Error()+"; no flow records are sent")
		f.Enable = false
		return
	}
	if f.FlowCollectorCA != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(f.FlowCollectorCA)) {
		d.warn(d.lines["flowExporter.flowCollectorCA"], "flowExporter.flowCollectorCA",
			"has no certificate in PEM; no flow records are sent; give the certificate of the collector's CA")
		f.Enable = false
		return
	}
	defaults := defaultConfig().FlowExporter
	for _, t := range []struct {
		key     string
		value   *time.Duration
		instead time.Duration
	}{
		{"activeFlowExportTimeout", &f.ActiveFlowExportTimeout, defaults.ActiveFlowExportTimeout},
		{"idleFlowExportTimeout", &f.IdleFlowExportTimeout, defaults.IdleFlowExportTimeout},
	} {
		if *t.value < MinFlowExportTimeout {
			d.warn(d.lines["flowExporter."+t.key], "flowExporter."+t.key, fmt.Sprintf(
				"has %s, want %s or more: %s is used; correct it, or remove it", *t.value, MinFlowExportTimeout, t.instead))
			*t.value = t.instead
		}
	}
	if c.Observe.Connections == "off" {
		d.warn(d.lines["observe.connections"], "observe.connections",
			"is off, so the flow exporter sends records of drops alone; set it to auto")
	}
}

// multicluster drops the section when its gate is off, and checks it otherwise.
func (d *decoder) multicluster(c *Config) {
	defaults := defaultConfig().Multicluster
	if !c.Enabled("Multicluster") {
		if c.Multicluster != defaults {
			d.warn(d.lines["multicluster"], "multicluster",
				"is ignored because the feature gate Multicluster is off; set featureGates.Multicluster to true to use it")
			c.Multicluster = defaults
		}
		return
	}
	m := c.Multicluster
	if b := m.BFD.Interval; b < MinBFDInterval || b > MaxBFDInterval {
		d.warn(d.lines["multicluster.bfd.interval"], "multicluster.bfd.interval",
			fmt.Sprintf("has %s, want %s to %s: %s is used; correct it, or remove it", b, MinBFDInterval, MaxBFDInterval,
				defaults.BFD.Interval))
		c.Multicluster.BFD.Interval = defaults.BFD.Interval
	}
	if b := m.BFD.Multiplier; b < MinBFDMultiplier || b > MaxBFDMultiplier {
		d.warn(d.lines["multicluster.bfd.multiplier"], "multicluster.bfd.multiplier",
			fmt.Sprintf("has %d, want %d to %d: %d is used; correct it, or remove it", b, MinBFDMultiplier, MaxBFDMultiplier,
				defaults.BFD.Multiplier))
		c.Multicluster.BFD.Multiplier = defaults.BFD.Multiplier
	}
	if m.EnableStretchedNetworkPolicy && !m.EnableGateway {
		d.failAt("multicluster.enableStretchedNetworkPolicy",
			"Multi-cluster Gateway must be enabled to enable StretchedNetworkPolicy; set multicluster.enableGateway to true")
	}
	if m.EnablePodToPodConnectivity && !m.EnableGateway {
		d.warn(d.lines["multicluster.enablePodToPodConnectivity"], "multicluster.enablePodToPodConnectivity",
			"has no effect without multicluster.enableGateway")
	}
	if line := d.lines["multicluster.preserveClientIP"]; line != 0 && m.PreserveClientIP != "never" &&
		!m.EnablePodToPodConnectivity {
		d.warn(line, "multicluster.preserveClientIP",
			"has no effect without multicluster.enablePodToPodConnectivity: Services of other clusters see the Gateway's "+
				"address")
	}
	if m.TrafficEncryptionMode == "wireGuard" {
		if c.EncryptsNodes() && c.WireGuard.Port == m.WireGuard.Port {
			d.failAt("multicluster.wireGuard.port",
				fmt.Sprintf("has %d, which is the port between the Nodes of this cluster too; give it or wireGuard.port another "+
					"value", m.WireGuard.Port))
		}
		if !m.EnableGateway {
			d.warn(d.lines["multicluster.trafficEncryptionMode"], "multicluster.trafficEncryptionMode",
				"has no effect without multicluster.enableGateway")
		}
		if m.AllowUnencryptedPeers {
			d.warn(d.lines["multicluster.allowUnencryptedPeers"], "multicluster.allowUnencryptedPeers",
				"has no effect with multicluster.trafficEncryptionMode wireGuard: no cluster is reached in plain text")
		}
	}
}

func (d *decoder) failAt(key, message string) { d.fail(d.lines[key], key, message) }

// unsupported refuses settings with which this version would carry traffic in another way than the file asks for.
func (d *decoder) unsupported(c *Config) {
	if c.TrafficEncryptionMode == "ipsec" {
		d.failAt("trafficEncryptionMode",
			"ipsec is not in this version: traffic would go unencrypted; set it to wireGuard, or to none if the network is "+
				"trusted")
	}
	if c.TrafficEncapMode == "networkPolicyOnly" {
		d.failAt("trafficEncapMode", c.TrafficEncapMode+" is not in this version; set it to encap, noEncap or hybrid")
	}
	if c.EncryptsNodes() && c.TrafficEncapMode != Encap {
		d.failAt("trafficEncryptionMode",
			fmt.Sprintf("wireGuard encrypts tunnels, and with trafficEncapMode %s packets leave without a tunnel and in plain "+
				"text; set trafficEncapMode to encap, or trafficEncryptionMode to none", c.TrafficEncapMode))
	}
	if c.Enabled("TenantNetworks") && c.TrafficEncapMode != Encap {
		d.failAt("featureGates.TenantNetworks",
			fmt.Sprintf("needs tunnels between all Nodes, and with trafficEncapMode %s the network between them carries "+
				"packets of Pods without the number of a tenant's network; set trafficEncapMode to encap, or the gate to "+
				"false", c.TrafficEncapMode))
	}
	if c.TunnelType == "stt" {
		d.failAt("tunnelType", "stt is not in Open vSwitch any more; set it to geneve, vxlan or gre")
	}
	if c.EnableBridgingMode {
		d.failAt("enableBridgingMode",
			"bridging mode is not in this version; set it to false, or set transportInterface where the userspace datapath "+
				"needs the Node's interface")
	}
	if len(c.TransportInterfaceCIDRs) > 0 {
		d.failAt("transportInterfaceCIDRs",
			"choosing the interface by its addresses is not in this version; name it in transportInterface")
	}
	if !c.AntreaProxy.Enable {
		d.failAt("antreaProxy.enable", "Services are always served by the agent; set it to true, or remove it")
	}
	if len(c.AntreaProxy.SkipServices) > 0 {
		d.failAt("antreaProxy.skipServices", "leaving Services out is not in this version; remove it")
	}
	if c.AntreaProxy.ServiceProxyName != "" {
		d.failAt("antreaProxy.serviceProxyName", "serving only Services with this label is not in this version; remove it")
	}
	if c.TunnelPort > 0 && c.TunnelType == "gre" {
		d.failAt("tunnelPort", fmt.Sprintf("has %d, but gre has no ports; remove it or set tunnelType to geneve or vxlan",
			c.TunnelPort))
	}
	if c.OVSBridge == c.HostGateway {
		d.failAt("hostGateway", fmt.Sprintf("has %q, the name of the bridge; give the gateway port another name",
			c.HostGateway))
	}
}

// hostNetwork warns if the file sets hostNetworkMode to iptables. iptables is also the documented default. So the agent
// warns only if the file has the key.
func (d *decoder) hostNetwork(c *Config) {
	const why = "has no effect: the host's rules are always made with nftables"
	if line, ok := d.lines["hostNetworkMode"]; ok && c.HostNetworkMode == "iptables" {
		d.warn(line, "hostNetworkMode", why+"; set it to nftables, or remove it")
	}
	const gate = "featureGates.NFTablesHostNetworkMode"
	if on, ok := c.FeatureGates["NFTablesHostNetworkMode"]; ok && !on {
		d.warn(d.lines[gate], gate, why+"; remove it")
	}
}

// distribution warns if the file turns off a feature that is always on, as in Kubernetes 1.36.
func (d *decoder) distribution(c *Config) {
	const gate = "featureGates.PreferSameTrafficDistribution"
	if on, ok := c.FeatureGates["PreferSameTrafficDistribution"]; ok && !on {
		d.warn(d.lines[gate], gate,
			"has no effect: hints for Nodes are used wherever EndpointSlices have them; remove it, and trafficDistribution "+
				"PreferSameNode of Services that should not have them")
	}
}

// ranges checks addresses that have the right form but cannot be meant.
func (d *decoder) ranges(c *Config) {
	if p, err := netip.ParsePrefix(c.ServiceCIDR); err == nil && !p.Addr().Is4() {
		d.failAt("serviceCIDR", fmt.Sprintf("has %q, want an IPv4 range: write a range of IPv6 in serviceCIDRv6",
			c.ServiceCIDR))
	}
	if p, err := netip.ParsePrefix(c.ServiceCIDRv6); err == nil && p.Addr().Unmap().Is4() {
		d.failAt("serviceCIDRv6", fmt.Sprintf("has %q, want an IPv6 range: write a range of IPv4 in serviceCIDR",
			c.ServiceCIDRv6))
	}
	if c.DefaultMTU > 0 && c.DefaultMTU < 576 {
		d.failAt("defaultMTU",
			fmt.Sprintf("has %d, want 0 (discover) or at least 576, which every IPv4 host must take (RFC 791)", c.DefaultMTU))
	}
}

// withoutEffect warns of keys that this version does nothing with.
func (d *decoder) withoutEffect(path string, have, defaults reflect.Value) {
	for f := range fields(have.Type()) {
		key := join(path, f.Tag.Get("key"))
		h, def := have.FieldByIndex(f.Index), defaults.FieldByIndex(f.Index)
		if f.Type.Kind() == reflect.Struct {
			d.withoutEffect(key, h, def)
			continue
		}
		same := reflect.DeepEqual(h.Interface(), def.Interface()) || h.Kind() == reflect.Slice && h.Len() == 0 &&
			def.Len() == 0
		if f.Tag.Get("effect") == "none" && !same {
			d.warn(d.lines[key], key, "has no effect: "+f.Tag.Get("why"))
		}
	}
}
