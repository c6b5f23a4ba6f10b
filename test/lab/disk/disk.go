// Package disk lists a Node's own directories: everything else it shares with the machine.
package disk

// Dirs are directories of which each Node has its own ones, which survive its reboot. They are mounted over the
// machine's directories, only in the Node's mount namespace. So the machine has to have these directories too.
var Dirs = []string{
	"/etc/cni/net.d", "/etc/kubernetes", "/etc/tombolo", "/etc/containerd",
	"/opt/cni/bin", "/opt/containerd",
	"/var/lib/kubelet", "/var/lib/containerd", "/var/lib/cni", "/var/lib/tombolo", "/var/lib/openvswitch",
	"/var/log/pods", "/var/log/containers", "/var/log/openvswitch", "/var/log/tombolo", "/usr/libexec/kubernetes",
}
