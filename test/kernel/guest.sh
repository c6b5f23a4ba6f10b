#!/bin/sh
# The guest's first process after switch_root: prepare the kernel, run the script, power off.
value() { sed -n "s/.*\b$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
modules=$(value kernel_modules)
PATH=$(value kernel_path)
export PATH HOME=/tmp LC_ALL=C.UTF-8
# Modules are loaded on demand from where they were unpacked.
printf '#!/bin/sh\nexec modprobe -d %s "$@"\n' "$modules" >/run/modprobe
chmod +x /run/modprobe
echo /run/modprobe >/proc/sys/kernel/modprobe
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
ip link set lo up
# Open vSwitch 3.1 counts CPUs only once the monotonic clock is past ten seconds: a vswitchd that
# starts earlier has no handler threads and loses every upcall.
while [ "$(cut -d. -f1 /proc/uptime)" -lt 11 ]; do sleep 0.2; done
sh /run/share/run
: >/run/share/finished
echo o >/proc/sysrq-trigger
sleep 60
