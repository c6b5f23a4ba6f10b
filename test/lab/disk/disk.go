// Package disk lists a Node's own directories: everything else it shares with the machine.
package disk

// Dirs are the directories that each Node has for itself and that survive its reboot. They
// are mounted over the machine's own, in the Node's mount namespace alone, so the machine
// has to have them too.
var Dirs = []string{
	"/etc/cni/net.d", "/etc/kubernetes", "/etc/tombolo", "/etc/containerd",
	"/opt/cni/bin", "/opt/containerd",
	"/var/lib/kubelet", "/var/lib/containerd", "/var/lib/cni", "/var/lib/tombolo", "/var/lib/openvswitch",
	"/var/log/pods", "/var/log/containers", "/var/log/openvswitch", "/var/log/tombolo", "/usr/libexec/kubernetes",
}
