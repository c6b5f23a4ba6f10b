// Package config reads the multi-cluster controller's configuration file, of kind
// MultiClusterConfig (multicluster.crd.antrea.io/v1alpha1).
package config

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
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

// Config is the controller's configuration.
type Config struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	Health struct {
		// HealthProbeBindAddress serves /healthz and /readyz; "0" is off.
		HealthProbeBindAddress string `json:"healthProbeBindAddress,omitempty"`
	} `json:"health,omitempty"`
	Metrics struct {
		// BindAddress serves /metrics; "0" is off.
		BindAddress string `json:"bindAddress,omitempty"`
	} `json:"metrics,omitempty"`
	Webhook struct {
		Port    int    `json:"port,omitempty"`
		Host    string `json:"host,omitempty"`
		CertDir string `json:"certDir,omitempty"`
	} `json:"webhook,omitempty"`
	// LeaderElection is accepted, as old files have it, and not used: there is one replica.
	LeaderElection map[string]any `json:"leaderElection,omitempty"`

	// ServiceCIDR is the range of this cluster's ClusterIPs; empty means to find it out.
	ServiceCIDR string `json:"serviceCIDR,omitempty"`
	// PodCIDRs are the ranges of this cluster's Pods, for Pod-to-Pod connectivity.
	PodCIDRs            []string `json:"podCIDRs,omitempty"`
	GatewayIPPrecedence string   `json:"gatewayIPPrecedence,omitempty"`
	EndpointIPType      string   `json:"endpointIPType,omitempty"`
	// EnableStretchedNetworkPolicy is accepted and has no effect yet.
	EnableStretchedNetworkPolicy bool `json:"enableStretchedNetworkPolicy,omitempty"`
}

// Default is what an empty file means.
func Default() Config {
	var c Config
	c.Health.HealthProbeBindAddress = ":8080"
	c.Metrics.BindAddress = "0"
	c.Webhook.Port = 9443
	c.GatewayIPPrecedence = PrecedencePrivate
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
		text := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
		text = strings.TrimPrefix(text, "error unmarshaling JSON: while decoding JSON: ")
		return Config{}, fmt.Errorf("%s; mend or remove it (the keys are those of kind MultiClusterConfig)", text)
	}
	if c.Kind != "" && c.Kind != "MultiClusterConfig" {
		return Config{}, fmt.Errorf("kind: %q is not MultiClusterConfig", c.Kind)
	}
	if c.APIVersion != "" && c.APIVersion != "multicluster.crd.antrea.io/v1alpha1" {
		return Config{}, fmt.Errorf("apiVersion: %q is not multicluster.crd.antrea.io/v1alpha1", c.APIVersion)
	}
	return c, c.check()
}

func (c *Config) check() error {
	var errs []error
	if c.ServiceCIDR != "" {
		errs = append(errs, checkCIDR("serviceCIDR", &c.ServiceCIDR))
	}
	kept := c.PodCIDRs[:0]
	for i, p := range c.PodCIDRs {
		if p == "" {
			continue
		}
		errs = append(errs, checkCIDR(fmt.Sprintf("podCIDRs[%d]", i), &p))
		kept = append(kept, p)
	}
	c.PodCIDRs = kept
	switch c.GatewayIPPrecedence {
	case "":
		c.GatewayIPPrecedence = PrecedencePrivate
	case PrecedencePrivate, PrecedenceInternal, PrecedencePublic, PrecedenceExternal:
	default:
		errs = append(errs, fmt.Errorf("gatewayIPPrecedence: %q is not one of private, internal, public, external", c.GatewayIPPrecedence))
	}
	switch c.EndpointIPType {
	case "":
		c.EndpointIPType = EndpointIPTypeClusterIP
	case EndpointIPTypeClusterIP, EndpointIPTypePodIP:
	default:
		errs = append(errs, fmt.Errorf("endpointIPType: %q is not one of ClusterIP, PodIP", c.EndpointIPType))
	}
	if c.Webhook.Port < 0 || c.Webhook.Port > 65535 {
		errs = append(errs, fmt.Errorf("webhook.port: %d is not between 1 and 65535", c.Webhook.Port))
	}
	return errors.Join(errs...)
}

// checkCIDR refuses what is no range, and cuts host bits off what is one: the documented
// "10.10.1.1/16" means 10.10.0.0/16.
func checkCIDR(key string, value *string) error {
	p, err := netip.ParsePrefix(*value)
	if err != nil {
		return fmt.Errorf("%s: %q is not a CIDR such as 10.10.0.0/16", key, *value)
	}
	*value = p.Masked().String()
	return nil
}
