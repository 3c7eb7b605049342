#!/bin/sh
# Installs the packages that building and testing need on Debian 12; with "peers" also those of the programs with which
# hawser-bench compares, with "world" also those of make world, with "block" also those of make block-bench and
# block-guest, with "guest" also those of tools/rdma-guest, with "arm64" also those of make arm64. With "debian13" it
# installs only what the preset gcc needs on Debian 13: tools/debian13. Does nothing if all are installed.
set -eu

packages="
  build-essential clang-19 libclang-rt-19-dev clang-format-19 lld-19 mold ccache cmake ninja-build pkg-config
  liburing-dev libc-ares-dev libibverbs-dev libucx-dev
  libsnappy-dev zlib1g-dev libssl-dev openssl libp11-kit-dev softhsm2 libnghttp2-dev libzstd-dev nghttp2-client python3-grpcio
  libprotobuf-dev libprotoc-dev protobuf-compiler
  libgtest-dev libgmock-dev
  libasio-dev libuv1-dev
  libfmt-dev libcli11-dev libbenchmark-dev nlohmann-json3-dev libspdlog-dev libgoogle-glog-dev
  python3 iproute2 valgrind curl wrk prometheus etcd-server dnsmasq-base zsh fish groff-base
  memcached redis-server redis-tools python3-redis
  debootstrap
"
if [ "${1:-}" = peers ]; then
  packages="$packages
  libgrpc++-dev protobuf-compiler-grpc libprotobuf-dev
  libcapnp-dev capnproto
  ucx-utils
"
fi
if [ "${1:-}" = world ]; then
  packages="$packages
  nginx haproxy python3-venv
"
  # The nodejs of NodeSource has npm, and conflicts with the one of Debian.
  command -v npm >/dev/null 2>&1 || packages="$packages nodejs npm"
  command -v mvn >/dev/null 2>&1 || packages="$packages maven default-jdk-headless"
fi
if [ "${1:-}" = block ]; then
  packages="$packages
  fio nbdkit qemu-utils nbd-client mdadm e2fsprogs
"
fi
if [ "${1:-}" = guest ]; then
  packages="$packages
  qemu-system-x86 linux-image-amd64 busybox-static kmod
  rdma-core ibverbs-utils ibverbs-providers perftest
"
fi
if [ "${1:-}" = arm64 ]; then
  packages="$packages
  qemu-user-static
"
fi

if [ "${1:-}" = debian13 ]; then
  packages="
  g++ mold ccache cmake ninja-build pkg-config python3 iproute2 curl
  liburing-dev libc-ares-dev libibverbs-dev libucx-dev
  libsnappy-dev zlib1g-dev libssl-dev openssl libp11-kit-dev libnghttp2-dev libzstd-dev
  libprotobuf-dev libprotoc-dev protobuf-compiler
  libgtest-dev libgmock-dev
  libfmt-dev libcli11-dev nlohmann-json3-dev libspdlog-dev libgoogle-glog-dev
  python3-dev python3-nanobind python3-pytest python3-numpy python3-protobuf python3-grpcio
"
fi

if ! command -v dpkg-query >/dev/null 2>&1; then
  echo "This system is not Debian: install the equivalents of" $packages >&2
  command -v clang++-19 >/dev/null && command -v cmake >/dev/null && command -v ninja >/dev/null && exit 0
  exit 1
fi

missing=""
for package in $packages; do
  state=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
  as_root=""
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
  as_root="sudo"
else
  echo "Packages are missing. As root, run" >&2
  echo "  apt-get update && apt-get install --yes --no-install-recommends$missing" >&2
  exit 1
fi

echo "== installing:$missing"
$as_root apt-get update --quiet
# sudo drops the environment, so env sets the variable. apt-get retries because a mirror may drop a connection.
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends \
  -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 $missing
