// Package config reads the multi-cluster controller's configuration file, of kind
// MultiClusterConfig (multicluster.crd.antrea.io/v1alpha1).
package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
)

// Values of EndpointIPType: what other clusters reach an exported Service by.
const (
	EndpointIPTypeClusterIP = "ClusterIP"
	EndpointIPTypePodIP     = "PodIP"
)

// Values of GatewayIPPrecedence: which of the Node's addresses a Gateway is reached by.
const (
	PrecedencePrivate  = "private"
	PrecedenceInternal = "internal" // as private
	PrecedencePublic   = "public"
	PrecedenceExternal = "external" // as public
)

// Config is the controller's configuration. The comments of its fields are the meanings of the keys, in the reference
// and in the schema of the chart's values.
type Config struct {
	// APIVersion has one value, multicluster.crd.antrea.io/v1alpha1. It may be left out.
	APIVersion string `json:"apiVersion"`
	// Kind has one value, MultiClusterConfig. It may be left out.
	Kind string `json:"kind"`

	Health struct {
		// HealthProbeBindAddress is the address of /healthz and /readyz. With "0" there is no listener.
		HealthProbeBindAddress string `json:"healthProbeBindAddress,omitempty"`
	} `json:"health,omitempty"`
	Metrics struct {
		// BindAddress is the address of /metrics, such as ":8081". With "0" there is no listener. Except at a loopback
		// address it has TLS, and readers need a token.
		BindAddress string `json:"bindAddress,omitempty"`
	} `json:"metrics,omitempty"`
	Webhook struct {
		// Port is the port of the webhooks.
		Port int `json:"port,omitempty"`
		// Host is the address of the webhooks. Without it they listen on all addresses.
		Host string `json:"host,omitempty"`
		// CertDir is a directory with tls.crt and tls.key for the webhooks. Without it the controller makes its certificate
		// and writes it into the webhooks' configuration.
		CertDir string `json:"certDir,omitempty"`
	} `json:"webhook,omitempty"`
	LeaderElection LeaderElection `json:"leaderElection,omitempty"`

	// ServiceCIDR are the ranges of this cluster's ClusterIPs, separated by commas. Without it the controller reads the
	// cluster's ServiceCIDR objects.
	ServiceCIDR string `json:"serviceCIDR,omitempty"`
	// PodCIDRs are the ranges of this cluster's Pods, for Pod-to-Pod connectivity.
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// GatewayIPPrecedence is the Node's address at which other clusters reach a Gateway: its internal address (private,
	// internal), or its external one (public, external).
	GatewayIPPrecedence string `json:"gatewayIPPrecedence,omitempty"`
	// ActiveGateways is the number of annotated Nodes, from 1 to 16, that are Gateways at a time. The others wait for one
	// of them to fail.
	ActiveGateways int `json:"activeGateways,omitempty"`
	// EndpointIPType is the address at which other clusters reach an exported Service: its ClusterIP, or the addresses of
	// its Pods (PodIP).
	EndpointIPType string `json:"endpointIPType,omitempty"`
	// EnableStretchedNetworkPolicy lets the member export the sets of labels of its Pods, and import the sets of the
	// ClusterSet with their numbers (LabelIdentities). Policies with scope ClusterSet need it.
	EnableStretchedNetworkPolicy bool `json:"enableStretchedNetworkPolicy,omitempty"`
	// Central makes the leader's cluster the central one: Kubemanagers there give isolated Namespaces of members copies in
	// it. It needs the rights of tombolo-central.yml.
	Central bool `json:"central,omitempty"`
	// PublishPodAddresses lets the member publish the addresses of its Pods with their labels, so that policies of other
	// clusters can select them as egress peers. Addresses outside of podCIDRs are not published.
	PublishPodAddresses bool `json:"publishPodAddresses,omitempty"`
}

// ProcessOf is the part of a configuration that takes effect when the process starts.
func ProcessOf(c Config) Config {
	return Config{Health: c.Health, Metrics: c.Metrics, Webhook: c.Webhook, LeaderElection: c.LeaderElection,
		Central: c.Central}
}

// MemberOf is the part that the member controller decides by: all the rest.
func MemberOf(c Config) Config {
	var none Config
	c.APIVersion, c.Kind = none.APIVersion, none.Kind
	c.Health, c.Metrics, c.Webhook, c.LeaderElection = none.Health, none.Metrics, none.Webhook, none.LeaderElection
	c.Central = false
	return c
}

// LeaderElection configures the Lease with which the replicas of a controller elect the writer. All replicas serve the
// webhooks.
type LeaderElection struct {
	// LeaderElect has no effect: one replica is always elected. The manifests run two replicas, and Antrea's files have
	// "false", with which there would be two writers.
	LeaderElect *bool `json:"leaderElect,omitempty"`
	// LeaseDuration is the time after which another replica takes over if the elected one has not renewed the Lease.
	LeaseDuration metav1.Duration `json:"leaseDuration,omitempty"`
	// RenewDeadline is the time after which the elected replica gives up if it could not renew the Lease. It has to be
	// more than twice retryPeriod.
	RenewDeadline metav1.Duration `json:"renewDeadline,omitempty"`
	// RetryPeriod is the time between two tries.
	RetryPeriod metav1.Duration `json:"retryPeriod,omitempty"`
	// ResourceLock has one value, leases.
	ResourceLock string `json:"resourceLock,omitempty"`
	// ResourceName is the name of the Lease. The controller's Role must allow it.
	ResourceName string `json:"resourceName,omitempty"`
	// ResourceNamespace is the Namespace of the Lease. Without it, it is the controller's own.
	ResourceNamespace string `json:"resourceNamespace,omitempty"`
}

// Default is what an empty file means.
func Default() Config {
	var c Config
	c.Health.HealthProbeBindAddress = ":8080"
	c.Metrics.BindAddress = "0"
	c.Webhook.Port = 9443
	c.LeaderElection.setDefaults()
	c.GatewayIPPrecedence = PrecedencePrivate
	c.ActiveGateways = claims.MaxGateways
	c.EndpointIPType = EndpointIPTypeClusterIP
	return c
}

// Load reads a file. Its errors name the key and the remedy.
func Load(path string) (Config, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read the configuration: %w", err)
	}
	c, err := Parse(b)
	if err != nil {
		return Config{}, fmt.Errorf("configuration %s: %w", path, err)
	}
	return c, nil
}

// Parse reads the text of a configuration file. An unknown key is an error.
func Parse(b []byte) (Config, error) {
	c := Default()
	if err := yaml.UnmarshalStrict(b, &c); err != nil {
		return Config{}, malformed(b, err)
	}
	const kind, version = "MultiClusterConfig", "multicluster.crd.antrea.io/v1alpha1"
	if c.Kind != "" && c.Kind != kind {
		return Config{}, fmt.Errorf("kind: %q is not supported: expected %s; correct or remove the line", c.Kind, kind)
	}
	if c.APIVersion != "" && c.APIVersion != version {
		return Config{}, fmt.Errorf("apiVersion: %q is not supported: expected %s; correct or remove the line", c.APIVersion,
			version)
	}
	return c, c.check()
}

// setDefaults fills in what is empty.
func (l *LeaderElection) setDefaults() {
	for _, d := range []struct {
		value    *metav1.Duration
		fallback time.Duration
	}{{&l.LeaseDuration, 15 * time.Second}, {&l.RenewDeadline, 10 * time.Second}, {&l.RetryPeriod, 2 * time.Second}} {
		if d.value.Duration == 0 {
			d.value.Duration = d.fallback
		}
	}
	l.ResourceLock = cmp.Or(l.ResourceLock, "leases")
	l.ResourceName = cmp.Or(l.ResourceName, "antrea-mc-controller")
}

// check holds the times to what client-go's leader election asks for.
func (l *LeaderElection) check() error {
	l.setDefaults()
	switch lease, renew, retry := l.LeaseDuration.Duration, l.RenewDeadline.Duration, l.RetryPeriod.Duration; {
	case l.ResourceLock != "leases":
		return fmt.Errorf("leaderElection.resourceLock: %q is not supported: expected leases", l.ResourceLock)
	case retry < 0 || renew <= 2*retry:
		return fmt.Errorf("leaderElection.renewDeadline: %s is too short: expected more than twice retryPeriod, which is %s",
			renew, retry)
	case lease <= renew:
		return fmt.Errorf("leaderElection.leaseDuration: %s is too short: expected more than renewDeadline, which is %s",
			lease, renew)
	}
	return nil
}

func (c *Config) check() error {
	errs := []error{c.LeaderElection.check()}
	ranges := c.ServiceCIDRs()
	for i := range ranges {
		errs = append(errs, checkCIDR("serviceCIDR", &ranges[i]))
	}
	c.ServiceCIDR = strings.Join(ranges, ",")
	kept := c.PodCIDRs[:0]
	for i, p := range c.PodCIDRs {
		if p == "" {
			continue
		}
		errs = append(errs, checkCIDR(fmt.Sprintf("podCIDRs[%d]", i), &p))
		kept = append(kept, p)
	}
	c.PodCIDRs = kept
	if c.ActiveGateways < 1 || c.ActiveGateways > claims.MaxGateways {
		errs = append(errs, fmt.Errorf("activeGateways: %d is not from 1 to %d", c.ActiveGateways, claims.MaxGateways))
	}
	switch c.GatewayIPPrecedence {
	case "":
		c.GatewayIPPrecedence = PrecedencePrivate
	case PrecedencePrivate, PrecedenceInternal, PrecedencePublic, PrecedenceExternal:
	default:
		errs = append(errs, fmt.Errorf("gatewayIPPrecedence: %q is not one of private, internal, public, external",
			c.GatewayIPPrecedence))
	}
	switch c.EndpointIPType {
	case "":
		c.EndpointIPType = EndpointIPTypeClusterIP
	case EndpointIPTypeClusterIP, EndpointIPTypePodIP:
	default:
		errs = append(errs, fmt.Errorf("endpointIPType: %q is not one of ClusterIP, PodIP", c.EndpointIPType))
	}
	if c.PublishPodAddresses && !c.EnableStretchedNetworkPolicy {
		errs = append(errs,
			errors.New("publishPodAddresses: addresses are published with label identities: set enableStretchedNetworkPolicy: "+
				"true as well, or remove it"))
	}
	if c.PublishPodAddresses && len(c.PodCIDRs) == 0 {
		errs = append(errs,
			errors.New("publishPodAddresses: addresses of Pods are published within podCIDRs: set podCIDRs to this cluster's "+
				"Pod ranges, or remove it"))
	}
	if c.Webhook.Port < 0 || c.Webhook.Port > 65535 {
		errs = append(errs, fmt.Errorf("webhook.port: %d is not between 1 and 65535", c.Webhook.Port))
	}
	return errors.Join(errs...)
}

// ServiceCIDRs are the ranges of ServiceCIDR.
func (c *Config) ServiceCIDRs() []string {
	return strings.FieldsFunc(c.ServiceCIDR, func(r rune) bool { return r == ',' || r == ' ' })
}

// checkCIDR returns an error for a text that is not a range. It cuts host bits off: the documented "10.10.1.1/16" means
// 10.10.0.0/16.
func checkCIDR(key string, value *string) error {
	p, err := netip.ParsePrefix(*value)
	if err != nil {
		return fmt.Errorf("%s: %q is not a CIDR such as 10.10.0.0/16", key, *value)
	}
	*value = p.Masked().String()
	return nil
}
