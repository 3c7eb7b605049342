#!/bin/busybox sh
# First stage, in the initramfs: the host's file system becomes the root. Writes of the guest stay in its memory, except
# below the folders listed in /guest/writable, which are the host's folders.
/bin/busybox --install -s /bin
fail() { echo "guest: $1" >/dev/console; reboot -f; }

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do insmod "/modules/$module" || fail "cannot load $module"; done </modules/order

mkdir -p /host /memory /newroot
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,access=any host /host || fail "cannot mount the host's files"
mount -t tmpfs tmpfs /memory
mkdir /memory/upper /memory/work
mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work overlay /newroot || fail "cannot mount the root"

mkdir -p /newroot/proc /newroot/sys /newroot/dev /newroot/run
mount -t tmpfs tmpfs /newroot/run
while read -r folder; do
  mkdir -p "/newroot$folder"
  mount --bind "/host$folder" "/newroot$folder" || fail "cannot mount $folder"
done </guest/writable
for folder in proc sys dev; do mount --move "/$folder" "/newroot/$folder"; done
mkdir -p /newroot/dev/pts /newroot/dev/shm
mount -t devpts devpts /newroot/dev/pts
mount -t tmpfs tmpfs /newroot/dev/shm

cp -r /guest /newroot/run/guest
cp /bin/busybox /newroot/run/guest/busybox
exec switch_root /newroot /bin/sh /run/guest/run.sh
