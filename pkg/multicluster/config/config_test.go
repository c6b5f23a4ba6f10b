package config

import (
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	const head = "apiVersion: multicluster.crd.antrea.io/v1alpha1\nkind: MultiClusterConfig\n"
	for _, tc := range []struct {
		name, text string
		wantErr    string
		check      func(Config) bool
	}{
		{name: "empty is the default", text: "", check: func(c Config) bool {
			return c.Health.HealthProbeBindAddress == ":8080" && c.Metrics.BindAddress == "0" && c.Webhook.Port == 9443 &&
				c.EndpointIPType == "ClusterIP" && c.GatewayIPPrecedence == "private"
		}},
		{name: "the documented file with leaderElection", text: head +
			"health:\n  healthProbeBindAddress: :8080\nmetrics:\n  bindAddress: \"0\"\n" +
			"webhook:\n  port: 9443\nleaderElection:\n  leaderElect: false\nserviceCIDR: \"\"\npodCIDRs:\n  - " +
			"\"\"\ngatewayIPPrecedence: \"private\"\n" +
			"endpointIPType: \"PodIP\"\nenableStretchedNetworkPolicy: true\n",
			check: func(c Config) bool {
				return c.LeaderElection.LeaderElect != nil && !*c.LeaderElection.LeaderElect && len(c.PodCIDRs) == 0 &&
					c.EndpointIPType == "PodIP" && c.EnableStretchedNetworkPolicy
			}},
		{name: "leader election is the default", text: head + "leaderElection:\n  leaseDuration: 30s\n",
			check: func(c Config) bool {
				l := c.LeaderElection
				return l.LeaseDuration.Duration == 30*time.Second && l.RenewDeadline.Duration == 10*time.Second &&
					l.ResourceName == "antrea-mc-controller"
			}},
		{name: "all keys of leaderElection", text: head +
			"leaderElection:\n  leaderElect: true\n  leaseDuration: 15s\n  renewDeadline: 10s\n  retryPeriod: 2s\n" +
			"  resourceLock: leases\n  resourceName: 6536456a.crd.antrea.io\n  resourceNamespace: other\n",
			check: func(c Config) bool {
				return c.LeaderElection.ResourceName == "6536456a.crd.antrea.io" && c.LeaderElection.ResourceNamespace == "other"
			}},
		{name: "a lease that ends before it is renewed", text: head + "leaderElection:\n  leaseDuration: 5s\n",
			wantErr: "leaderElection.leaseDuration: 5s is too short: expected more than renewDeadline, which is 10s"},
		{name: "a lease that is tried too seldom", text: head + "leaderElection:\n  retryPeriod: 9s\n",
			wantErr: "leaderElection.renewDeadline: 10s is too short"},
		{name: "an old kind of lock", text: head + "leaderElection:\n  resourceLock: configmaps\n",
			wantErr: "leaderElection.resourceLock: \"configmaps\" is not supported"},
		{name: "host bits are cut off", text: head + "podCIDRs:\n  - \"10.10.1.1/16\"\n",
			check: func(c Config) bool { return c.PodCIDRs[0] == "10.10.0.0/16" }},
		{name: "a stray dot after a string", text: head + "podCIDRs:\n  - \"10.118.96.0/22\". # range\n",
			wantErr: "line 3: malformed YAML: did not find expected '-' indicator; look for wrong indentation"},
		{name: "wrong indentation", text: head + "webhook:\n  port: 9443\n podCIDRs: []\n", wantErr: "malformed YAML"},
		{name: "unknown key", text: head + "endpointIpTypo: PodIP\n",
			wantErr: `line 3: unknown field "endpointIpTypo"; correct or remove it`},
		{name: "unknown key in a section", text: head + "leaderElection:\n  leasDuration: 3s\n",
			wantErr: `line 4: unknown field "leasDuration"; correct or remove it`},
		{name: "a key twice", text: head + "podCIDRs: []\nserviceCIDR: 10.96.0.0/16\npodCIDRs: []\n",
			wantErr: "line 5: podCIDRs is set twice; remove one"},
		{name: "a text for a list", text: head + "podCIDRs: 10.10.0.0/16\n",
			wantErr: "line 3: podCIDRs has a value of type string, want a list; correct or remove it"},
		{name: "a text for a number", text: head + "webhook:\n  port: https\n",
			wantErr: "line 4: webhook.port has a value of type string, want a number"},
		{name: "a text for true or false", text: head + "publishPodAddresses: \"true\"\n",
			wantErr: "line 3: publishPodAddresses has a value of type string, want true or false"},
		{name: "not keys and values", text: "podCIDRs\n", wantErr: "expected the keys of kind MultiClusterConfig"},
		{name: "not a duration", text: head + "leaderElection:\n  renewDeadline: 10s\n  leaseDuration: 15\n",
			wantErr: "line 5: leaderElection.leaseDuration has a value of type number, want a text"},
		{name: "a duration without unit", text: head + "leaderElection:\n  renewDeadline: 10s\n  leaseDuration: \"15\"\n",
			wantErr: `line 5: "15" is not a duration such as 15s; correct or remove it`},
		{name: "unknown type", text: head + "endpointIPType: NodeIP\n",
			wantErr: `endpointIPType: "NodeIP" is not one of ClusterIP, PodIP`},
		{name: "not a range", text: head + "serviceCIDR: 10.300.0.0/16\n",
			wantErr: `serviceCIDR: "10.300.0.0/16" is not a CIDR`},
		{name: "several ranges of ClusterIPs", text: head + "serviceCIDR: 10.96.1.0/16, fd00:96::1/112\n",
			check: func(c Config) bool { return c.ServiceCIDR == "10.96.0.0/16,fd00:96::/112" }},
		{name: "one of several is no range", text: head + "serviceCIDR: 10.96.0.0/16,fd00\n",
			wantErr: `serviceCIDR: "fd00" is not a CIDR`},
		{name: "addresses", text: head +
			"enableStretchedNetworkPolicy: true\npublishPodAddresses: true\npodCIDRs:\n  - 10.10.0.0/16\n",
			check: func(c Config) bool { return c.PublishPodAddresses }},
		{name: "addresses without labels", text: head + "publishPodAddresses: true\npodCIDRs:\n  - 10.10.0.0/16\n",
			wantErr: "publishPodAddresses: addresses are published with label identities: set " +
				"enableStretchedNetworkPolicy: true"},
		{name: "addresses of no range", text: head +
			"enableStretchedNetworkPolicy: true\npublishPodAddresses: true\npodCIDRs:\n  - \"\"\n",
			wantErr: "publishPodAddresses: addresses of Pods are published within podCIDRs: set podCIDRs"},
		{name: "another kind", text: "kind: ConfigMap\n",
			wantErr: `kind: "ConfigMap" is not supported: expected MultiClusterConfig; correct or remove the line`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := Parse([]byte(tc.text))
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("error %v, want one with %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !tc.check(c) {
				t.Errorf("not as expected: %+v", c)
			}
		})
	}
}
