"""Block devices of this machine's kernel, for bench.py. They need root."""

import contextlib
import os
import pathlib
import subprocess
import time

CONFIG = pathlib.Path("/sys/kernel/config")
NVMET = CONFIG / "nvmet"
# The name is that of this process, so that two runs do not meet.
NAME = f"nqn.2014-08.org.example:hawser-bench-{os.getpid()}"
HOST = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000001"
RAM_DISK = pathlib.Path("/dev/ram0")
SECONDS_MAX = 60


def run(*words):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    if done.returncode != 0:
        raise SystemExit(f"bench.py: {' '.join(map(str, words))}: status {done.returncode}: {done.stdout}")


def wait_for(find, text):
    """Returns the first true value of `find`."""
    end = time.monotonic() + SECONDS_MAX
    while not (found := find()):
        if time.monotonic() > end:
            raise SystemExit(f"bench.py: did not happen within {SECONDS_MAX} s: {text}")
        time.sleep(0.05)
    return found


@contextlib.contextmanager
def nbd_device(socket):
    """A device of the kernel's client of NBD, connected to the export `disk` of the server at the Unix socket."""
    run("modprobe", "nbd")
    device = next((path for path in sorted(pathlib.Path("/dev").glob("nbd[0-9]"))
                   if not pathlib.Path(f"/sys/block/{path.name}/pid").exists()), None)
    if device is None:
        raise SystemExit("bench.py: each of /dev/nbd0 to /dev/nbd9 is connected: nbd-client -d one of them")
    run("nbd-client", "-unix", socket, "-name", "disk", device)
    try:
        yield device
    finally:
        run("nbd-client", "-d", device)


@contextlib.contextmanager
def ram_disk(size):
    """A disk in the memory of the kernel."""
    if RAM_DISK.exists():
        raise SystemExit(f"bench.py: {RAM_DISK} exists, and somebody may use it: rmmod brd")
    run("modprobe", "brd", "rd_nr=1", f"rd_size={size // 1024}")
    try:
        yield RAM_DISK
    finally:
        run("modprobe", "-r", "brd")


@contextlib.contextmanager
def nvme_target(transport, address, disk):
    """The kernel's NVMe target exports the disk. Yields its port."""
    if not CONFIG.is_mount():
        run("mount", "-t", "configfs", "none", CONFIG)
    run("modprobe", "-a", "nvmet", f"nvmet-{transport}", f"nvme-{transport}")
    subsystem = NVMET / "subsystems" / NAME
    space = subsystem / "namespaces" / "1"
    port = NVMET / "ports" / str(os.getpid() % 60000 + 1)
    service = str(20000 + os.getpid() % 20000)
    space.mkdir(parents=True)
    port.mkdir()
    link = port / "subsystems" / NAME
    try:
        (subsystem / "attr_allow_any_host").write_text("1")
        (space / "device_path").write_text(str(disk))
        (space / "enable").write_text("1")
        for name, value in {"trtype": transport, "adrfam": "ipv4", "traddr": address, "trsvcid": service}.items():
            (port / f"addr_{name}").write_text(value)
        link.symlink_to(subsystem)
        yield service
    finally:
        link.unlink(missing_ok=True)
        for folder in (port, space, subsystem):
            folder.rmdir()


@contextlib.contextmanager
def nvme_device(transport, address, size):
    """A device of the kernel's NVMe client, whose target has a disk in memory. `transport`: tcp or rdma."""
    with ram_disk(size) as disk, nvme_target(transport, address, disk) as service:
        before = set(pathlib.Path("/dev").glob("nvme*n1"))
        run("nvme", "connect", "--transport", transport, "--traddr", address, "--trsvcid", service, "--nqn", NAME,
            "--hostnqn", HOST)
        try:
            new = wait_for(lambda: set(pathlib.Path("/dev").glob("nvme*n1")) - before, "a device of NVMe appears")
            yield new.pop()
        finally:
            run("nvme", "disconnect", "--nqn", NAME)
