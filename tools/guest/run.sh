#!/bin/sh
# Second stage, in the host's file system: sets up devices, runs the command, and ends. Reports to the host by one line
# each: "booted", "failed REASON", "exit STATUS".
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
cd /run/guest
. ./settings  # devices, mtu, merged
busybox=/run/guest/busybox
while [ ! -c /dev/vport*p3 ]; do $busybox sleep 0.05; done
port() { echo /dev/vport*p"$1"; }
exec 9>"$(port 1)"
echo booted >&9
end() { $busybox sync; echo "$1" >&9; $busybox sleep 0.1; $busybox reboot -f; }
need() { "$@" || end "failed $*"; }

$busybox hostname rdma-guest
ulimit -l unlimited
ulimit -n 65536
need ip link set lo up
if [ "$devices" -gt 0 ]; then
  need modprobe dummy numdummies=0
  need modprobe -a ib_uverbs rdma_cm rdma_ucm rdma_rxe
  number=0
  while [ "$number" -lt "$devices" ]; do
    need ip link add "dummy$number" type dummy
    need ip link set "dummy$number" mtu "$mtu" up
    need ip address add "10.78.$number.1/24" dev "dummy$number"
    need rdma link add "rxe$number" type rxe netdev "dummy$number"
    number=$((number + 1))
  done
fi

# Pipes connect the command with the ports: a port can be opened only once, so /dev/stdout would not work on it.
$busybox mkfifo out err
$busybox cat out >"$(port 2)" &
out=$!
if [ "$merged" = 1 ]; then
  /bin/sh ./command </dev/null >out 2>&1
  status=$?
else
  $busybox cat err >"$(port 3)" &
  err=$!
  /bin/sh ./command </dev/null >out 2>err
  status=$?
fi
# Processes that the command left running may hold its output open without end, so the guest ends after a while.
($busybox sleep 5; kill $out $err) 2>/dev/null &
wait $out $err
end "exit $status"
