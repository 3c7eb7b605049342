# The short way to everything; CMakePresets.json is the long one. On Debian 12 nothing but git and make is assumed.
MAKEFLAGS += --no-print-directory
CPUS := $(shell nproc)

.PHONY: help conan deb reproducible demo docs test test-rest test-all mutate dev thorough gcc arm64 asan tsan fuzz counters bench compare block-bench block-bench-rdma block-soak block-guest block-ublk world jitter kv-systemd python install-dependencies tidy format clean

help:
	@echo "make test      install what is missing, build, and run every functional test that needs no RDMA device"
	@echo "make test-all  the same, then RDMA in a guest, header by header, GCC 14 in a Debian 13, sanitizers, fuzzers, long simulations and counters"
	@echo "make thorough  one stage of make test-all; also rdma, gcc, asan, tsan, fuzz, and dev, which is make test"
	@echo "make mutate    single faults in changed files: which do no tests notice? \$$(ARGS)"
	@echo "make arm64     the core and its tests for 64-bit Arm, cross-compiled, under QEMU"
	@echo "make rdma      the tests that need an RDMA device, in a guest with Soft-RoCE"
	@echo "make bench     build optimised and run hawser-bench run \$$(ARGS)"
	@echo "make compare   the benchmark beside bare sockets, gRPC and Cap'n Proto; writes build/compare.html"
	@echo "make block-bench  hawser-block under fio, beside nbdkit and qemu-nbd; \$$(ARGS); writes build/block-bench.html"
	@echo "make block-bench-rdma  hawser-block beside the kernel's NVMe over TCP and RDMA, in the guest; \$$(ARGS)"
	@echo "make block-soak   verifies volumes while their processes are killed, for MINUTES (60)"
	@echo "make block-guest  ext4 and md over hawser-block, with the kernel of the guest; servers are killed"
	@echo "make block-ublk   ext4 over hawser-block ublk, whose processes are killed, with the kernel KERNEL of the guest"
	@echo "make kv-systemd  the units of hawser-kv and hawser-block under systemd, in the guest"
	@echo "make bench-rdma  the benchmark over RDMA beside perftest, in the guest; writes build/bench-rdma.html"
	@echo "make counters  pieces of a call timed one by one; instructions and allocations of a whole call"
	@echo "make demo      three servers that call each other; prints the addresses of their pages"
	@echo "make world     clients and proxies of others against Hawser, in the versions that tests/world declares"
	@echo "make jitter    the tests of make dev with random delays in system calls and locks; SEED, ARGS for ctest"
	@echo "make python    the Python package in an environment in build/python, and its tests; \$$(ARGS) for pytest"
	@echo "make deb       Debian packages in build/deb; on Debian 13, with what packaging/debian/control needs"
	@echo "make conan     the Conan package with its test, in build/conan; \$$(ARGS) for conan create, such as '-o \"&:grpc=True\"'"
	@echo "make reproducible  two builds of the library in two folders, compared byte by byte; \$$(ARGS) for cmake"
	@echo "make docs      the documentation as a site in build/docs/site, by mkdocs-material from PyPI"
	@echo "make tidy      check layers, lengths and wording"
	@echo "make format    lay out the sources with clang-format"
	@echo "make clean     remove build/"

# ALSO='rdma thorough gcc' runs these stages too, the latter two beside the guest.
test: $(if $(filter rdma,$(ALSO)),guest-dependencies,install-dependencies)
	@python3 tools/check.py dev $(ALSO)

test-all: guest-dependencies
	@tools/install-dependencies.sh arm64 || echo "going on without the emulator of 64-bit Arm"
	@python3 tools/check.py

# The rest of test-all after make test ALSO="rdma gcc", without the stage thorough, with one summary of both.
# Without the emulator of 64-bit Arm, the stage arm64 says what is missing.
test-rest: install-dependencies
	@tools/install-dependencies.sh arm64 || echo "going on without the emulator of 64-bit Arm"
	@python3 tools/check.py --with-earlier --short asan fuzz tsan arm64 counters

# ARGS as tools/mutate.py --help lists them.
mutate: install-dependencies
	@python3 tools/mutate.py $(ARGS)

dev thorough gcc asan tsan fuzz counters: install-dependencies
	@python3 tools/check.py $@

arm64:
	@tools/install-dependencies.sh arm64
	@python3 tools/check.py $@

rdma: guest-dependencies
	@python3 tools/check.py $@

bench: install-dependencies
	@cmake --preset release --log-level=WARNING
	@cmake --build --preset release --target hawser-bench --parallel $(CPUS) -- --quiet
	@build/release/bench/hawser-bench run $(ARGS)

# About three minutes, in one boot of the guest; ARGS as tools/bench_rdma.py --help lists them.
bench-rdma: install-dependencies
	@tools/install-dependencies.sh guest
	@cmake --preset release --log-level=WARNING
	@cmake --build --preset release --target hawser-bench --parallel $(CPUS) -- --quiet
	@tools/rdma-guest -- python3 -B tools/bench_rdma.py build/release/bench/hawser-bench --json build/bench-rdma.json $(ARGS)
	@build/release/bench/hawser-bench report build/bench-rdma.json -o build/bench-rdma.html

# About two minutes; ARGS as hawser-bench compare --help lists them.
compare:
	@tools/install-dependencies.sh peers
	@cmake --preset release --log-level=WARNING
	@cmake --build --preset release --target hawser-bench hawser-peer-grpc hawser-peer-capnp --parallel $(CPUS) -- --quiet
	@build/release/bench/hawser-bench compare --peers baseline,grpc,capnp --json build/compare.json $(ARGS)
	@build/release/bench/hawser-bench report build/compare.json -o build/compare.html

# About 20 minutes; ARGS as apps/block/bench.py --help lists them, such as '--seconds 1 --rounds 1' for two minutes.
block-bench: install-dependencies
	@tools/install-dependencies.sh block
	@cmake --preset release --log-level=WARNING
	@cmake --build --preset release --target hawser-block --parallel $(CPUS) -- --quiet
	@python3 -B apps/block/bench.py build/release/block/hawser-block --json build/block-bench.json \
	  --html build/block-bench.html $(ARGS)

# About ten minutes without KVM: the kernel's NVMe target and hawser-block, over TCP and RDMA, in one boot of the guest.
# Needs nvme-cli, which no other target uses.
block-bench-rdma: guest-dependencies
	@PATH=$$PATH:/usr/sbin command -v nvme >/dev/null || \
	  { echo "block-bench-rdma: nvme is missing: apt-get install nvme-cli" >&2; exit 1; }
	@tools/install-dependencies.sh block
	@cmake --preset release --log-level=WARNING
	@cmake --build --preset release --target hawser-block --parallel $(CPUS) -- --quiet
	@tools/rdma-guest --guest -- python3 -B apps/block/bench.py build/release/block/hawser-block \
	  --rdma-address 10.78.0.1 --pin none --wait event --size 64 --seconds 2 --rounds 1 --depths 1,4,16,64 \
	  --servers 'hawser, TCP;hawser, RDMA;hawser device, TCP;hawser device, RDMA;NVMe, TCP;NVMe, RDMA' \
	  --json build/block-bench-rdma.json --html build/block-bench-rdma.html $(ARGS)

MINUTES ?= 60
block-soak: install-dependencies
	@tools/install-dependencies.sh block
	@cmake --preset dev --log-level=WARNING
	@cmake --build --preset dev --target hawser-block --parallel $(CPUS) -- --quiet
	@python3 -B apps/block/soak.py build/dev/block/hawser-block --minutes $(MINUTES) $(ARGS)

# About four minutes.
block-guest: guest-dependencies
	@tools/install-dependencies.sh block
	@cmake --preset dev --log-level=WARNING
	@cmake --build --preset dev --target hawser-block --parallel $(CPUS) -- --quiet
	@tools/rdma-guest --guest --devices 0 -- python3 -B apps/block/test/guest_test.py build/dev/block/hawser-block
	@python3 -B apps/block/test/drive_test.py build/dev/block/hawser-block

# One minute, with KERNEL, whose modules are below /lib/modules: the newest of /boot that has the driver ublk_drv.
KERNEL = $(shell for version in $$(ls /boot | sed -n 's/^vmlinuz-//p' | sort -Vr); do \
  grep -qs '/ublk_drv\.ko' /lib/modules/$$version/modules.dep && echo /boot/vmlinuz-$$version && break; done)
block-ublk: guest-dependencies
	@test -n "$(KERNEL)" || { echo "no kernel in /boot has the module ublk_drv: install that of bookworm-backports (linux-image-amd64)," \
	  "or give KERNEL=VMLINUZ, whose modules are below /lib/modules" >&2; exit 1; }
	@tools/install-dependencies.sh block
	@cmake --preset dev --log-level=WARNING
	@cmake --build --preset dev --target hawser-block --parallel $(CPUS) -- --quiet
	@tools/rdma-guest --guest --devices 0 --kernel $(KERNEL) -- \
	  python3 -B apps/block/test/ublk_guest_test.py build/dev/block/hawser-block

# Some minutes without KVM.
kv-systemd: guest-dependencies
	@cmake --preset dev --log-level=WARNING
	@cmake --build --preset dev --target hawser-kv hawser-block --parallel $(CPUS) -- --quiet
	@tools/rdma-guest --guest --devices 0 -- python3 -B apps/kv/test/systemd_guest_test.py build/dev/kv/hawser-kv \
	  build/dev/block/hawser-block

# Three servers with pages, for ten minutes or SECONDS.
demo: install-dependencies
	@cmake --preset dev --log-level=WARNING
	@cmake --build --preset dev --target hawser-cli --parallel $(CPUS) -- --quiet
	@python3 -B tools/demo.py build/dev/cli/hawser $(SECONDS)

# Some minutes. Installs clients by pip, npm, go, mvn and cargo into build/world; ARGS names cases.
world:
	@tools/install-dependencies.sh world
	@cmake --preset dev --log-level=WARNING
	@cmake --build --preset dev --target hawser_test_world_server hawser_test_world_xds hawser-kv --parallel $(CPUS) -- --quiet
	@python3 -B tests/world/make_world.py build/dev/tests/hawser_test_world_server build/world $(ARGS)

# Tests that fail rarely fail often here: docs/tests.md, "Delays".
jitter: install-dependencies
	@cmake --preset dev --log-level=WARNING
	@cmake --build --preset dev --target all hawser_test_jitter --parallel $(CPUS) -- --quiet
	@JITTER_SEED=$(or $(SEED),1) LD_PRELOAD=$(CURDIR)/build/dev/tests/libhawser_test_jitter.so ctest --preset dev $(ARGS)

# The C++ side of the tests is built too. Installs nanobind, scikit-build-core, pytest, mypy, numpy, protobuf and grpcio
# from PyPI.
PYTHON_BUILD := $(CURDIR)/build/python
python: install-dependencies
	@test -x $(PYTHON_BUILD)/venv/bin/python || python3 -m venv $(PYTHON_BUILD)/venv
	@$(PYTHON_BUILD)/venv/bin/pip install --quiet 'nanobind>=2.2' 'scikit-build-core>=0.10' pytest mypy numpy protobuf types-protobuf grpcio
	@$(PYTHON_BUILD)/venv/bin/pip install --quiet --no-build-isolation --no-deps --force-reinstall \
	  --config-settings=build-dir=$(PYTHON_BUILD)/cmake --config-settings=cmake.define.HAWSER_PYTHON_PEER=ON .
	@cd python/tests && HAWSER_PYTHON_PEER=$(PYTHON_BUILD)/cmake/peer \
	  HAWSER_COMMAND=$(wildcard $(CURDIR)/build/dev/cli/hawser) $(PYTHON_BUILD)/venv/bin/pytest -q -ra $(ARGS)

# Conan is installed from PyPI, and its cache is in build/conan. The recipe names missing packages of the system.
CONAN_BUILD := $(CURDIR)/build/conan
conan: COMPILER = $(if $(shell command -v clang++-19),CC=clang-19 CXX=clang++-19)
conan:
	@test -x $(CONAN_BUILD)/venv/bin/python || python3 -m venv $(CONAN_BUILD)/venv
	@$(CONAN_BUILD)/venv/bin/pip install --quiet 'conan>=2'
	@export CONAN_HOME=$(CONAN_BUILD)/home $(COMPILER) && $(CONAN_BUILD)/venv/bin/conan profile detect --exist-ok && \
	  $(CONAN_BUILD)/venv/bin/conan create packaging/conan -s compiler.cppstd=23 $(ARGS)

reproducible:
	@python3 tools/reproducible.py $(if $(shell command -v clang++-19),-DCMAKE_CXX_COMPILER=clang++-19) $(ARGS)

docs:
	@python3 tools/build_docs.py

# The packages are made from the last commit, so that no other file of this folder has an effect.
deb:
	@rm -rf build/deb && mkdir -p build/deb/hawser
	@git archive HEAD | tar -x -C build/deb/hawser
	@cp -a build/deb/hawser/packaging/debian build/deb/hawser/debian
	@cd build/deb/hawser && dpkg-buildpackage -b -us -uc $(ARGS)

tidy: install-dependencies
	@python3 tools/tidy.py

format: install-dependencies
	@git ls-files -z -- '*.h' '*.cpp' | xargs -0 clang-format-19 -i

install-dependencies:
	@tools/install-dependencies.sh

# All packages at once. Where those of the guest are missing, the tests that need it are listed as skipped.
guest-dependencies:
	@tools/install-dependencies.sh guest || { tools/install-dependencies.sh && echo "going on without the guest's packages"; }

clean:
	@rm -rf build
