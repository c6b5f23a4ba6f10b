#!/bin/busybox sh
# First process of the guest: mount the machine's root file system and go there.
bb=/bin/busybox
$bb mount -t proc proc /proc
$bb mount -t devtmpfs dev /dev
while read -r module; do
	$bb insmod "/modules/$module" || echo "insmod $module failed"
done </modules/order
mount9p() { $bb mount -t 9p -o "trans=virtio,version=9p2000.L,msize=512000,$1" "$2" "$3" || echo "mounting $2 failed"; }
mount9p ro,cache=loose root /newroot
$bb mount -t proc proc /newroot/proc
$bb mount -t sysfs sys /newroot/sys
$bb mount -t devtmpfs dev /newroot/dev
for dir in run tmp var/tmp var/log etc/openvswitch; do
	[ -d /newroot/$dir ] && $bb mount -t tmpfs -o mode=1777 tmp /newroot/$dir
done
$bb mkdir -p /newroot/run/share /newroot/run/repository /newroot/run/openvswitch
mount9p ro,cache=loose repository /newroot/run/repository
mount9p rw,cache=none share /newroot/run/share
exec $bb switch_root /newroot /run/share/guest
