package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// containerdConfig configures the Node's runtime. It differs from the defaults for machines without CAP_SYS_RESOURCE,
// and for images that are not from a registry. By default each container is asked for its processor time once a
// second, which takes a fifth of the lab's processor time. Nothing here reads these numbers.
const containerdConfig = `version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.internal.v1.tracing"]

[grpc]
  address = "/run/containerd/containerd.sock"

[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "docker.io/tombolo/pause:dev"

[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  enable_unprivileged_ports = false
  enable_unprivileged_icmp = false
  stats_collect_period = "1h"
  stats_retention_period = "2h"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = "runc"
      SystemdCgroup = false
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["/opt/cni/bin"]
    conf_dir = "/etc/cni/net.d"
`

// kubeletConfig is the configuration of a kubelet that shares its machine with others. So it does not reserve memory
// and disk, does not evict Pods to free them, and does not measure what Pods use. The short lease makes a dead Node
// NotReady in seconds, and edits of mounted ConfigMaps arrive in seconds.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: CLUSTER/ca.crt}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
evictionHard: {}
localStorageCapacityIsolation: false
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
nodeLeaseDurationSeconds: 12
syncFrequency: 5s # a minute by default: for so long a mounted ConfigMap may stay as it was
resolvConf: ""
clusterDomain: cluster.local
clusterDNS: [NAMES]
address: "ADDRESS"
oomScoreAdj: 0
crashLoopBackOff: {maxContainerRestartPeriod: 1s} # tests kill containers more often than programs crash
rotateCertificates: false
serializeImagePulls: true
volumePluginDir: /var/lib/kubelet/volumeplugins
staticPodPath: ""
shutdownGracePeriod: 0s
readOnlyPort: 0
`

func (n *Node) writeConfigs() error {
	address := "0.0.0.0"
	if n.cluster.Families().Has6() {
		address = "::" // both
	}
	kubelet := strings.NewReplacer("CLUSTER", n.cluster.dir(), "NAMES", quoted(n.cluster.DNS()), "ADDRESS",
		address).Replace(kubeletConfig)
	if err := os.WriteFile(n.file("kubelet.yml"), []byte(kubelet), 0o644); err != nil {
		return err
	}
	return os.WriteFile(n.file("containerd.toml"), []byte(containerdConfig), 0o644)
}

// daemonScript moves its shell to the Node's cgroup in each hierarchy, and then executes the daemon. In a unified
// hierarchy only a leaf may have processes: nodeinit has made one.
const daemonScript = `
for f in /sys/fs/cgroup/*/cgroup.procs /sys/fs/cgroup/init/cgroup.procs /sys/fs/cgroup/*/init/cgroup.procs; do
	[ ! -e "$f" ] || echo $$ >"$f"
done
exec "$@"
`

// daemon starts a program on the Node and leaves it running.
func (n *Node) daemon(name string, args ...string) error {
	args = append([]string{"sh", "-c", daemonScript, "sh", filepath.Join(n.cluster.lab.bin.Kubernetes, name)}, args...)
	cmd, err := n.command(context.Background(), args...)
	if err != nil {
		return err
	}
	return start(n.place(), n.file(name+".log"), cmd)
}

func (n *Node) startContainerd(ctx context.Context) error {
	if err := n.daemon("containerd", "--config", n.file("containerd.toml"), "--log-level", "warn"); err != nil {
		return err
	}
	err := eventually(ctx, bootLimit, func(ctx context.Context) error {
		_, err := n.Exec(ctx, "ctr", "--timeout", "2s", "version")
		return err
	})
	if err != nil {
		return fmt.Errorf("containerd does not answer: %w\n%s", err, tail(n.file("containerd.log")))
	}
	return n.LoadImage(ctx, n.cluster.lab.pausePath())
}

// StartKubelet starts the kubelet again after it was killed, as the Node's init system would.
func (n *Node) StartKubelet() error {
	return n.daemon("kubelet",
		"--config="+n.file("kubelet.yml"),
		"--kubeconfig="+n.cluster.file(n.name+".kubeconfig"),
		"--hostname-override="+n.name,
		"--node-ip="+joined(n.InternalIPs()),
		"--root-dir=/var/lib/kubelet",
		"--housekeeping-interval=1m",
		"--v=1",
	)
}
