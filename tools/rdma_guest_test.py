#!/usr/bin/env python3
"""Checks the work of tools/rdma-guest before and after a boot. With "device": checks that an RDMA device carries data,
as in the guest; exits with 77 if there is no device."""

import importlib.machinery
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import types
import unittest

TOOL = pathlib.Path(__file__).resolve().parent / "rdma-guest"


def load():
    loader = importlib.machinery.SourceFileLoader("rdma_guest", str(TOOL))
    module = types.ModuleType("rdma_guest")
    module.__file__ = str(TOOL)
    exec(loader.get_code("rdma_guest"), module.__dict__)
    return module


sys.dont_write_bytecode = True
guest = load()


def options(**values):
    return types.SimpleNamespace(**{"writable": [], "env": [], "kernel": None, "accel": "tcg"} | values)


class Command(unittest.TestCase):
    def run_script(self, words, **values):
        script = guest.command_script(options(**values), words)
        return subprocess.run(["sh", "-c", script], capture_output=True, text=True)

    def test_words_arrive_as_they_were(self):
        words = ["a b", "'", '"', "$HOME", "*", "", "line\nline", "\\"]
        result = self.run_script([sys.executable, "-c", "import sys; print(sys.argv[1:])", *words])
        self.assertEqual(result.stdout.strip(), repr(words))

    def test_surroundings(self):
        os.environ["GUEST_TEST_KEPT"] = "one 'two'"
        result = self.run_script(["sh", "-c", 'pwd; echo "$GUEST_TEST_KEPT" "$GUEST_TEST_NEW"'],
                                 env=["GUEST_TEST_NEW=a=b"])
        self.assertEqual(result.stdout.splitlines(), [os.getcwd(), "one 'two' a=b"])

    def test_status(self):
        self.assertEqual(self.run_script(["sh", "-c", "exit 7"]).returncode, 7)


class Folders(unittest.TestCase):
    def test_none_inside_another(self):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name).resolve()
            (root / "a" / "b").mkdir(parents=True)
            folders = guest.writable_folders(options(writable=[root / "a" / "b", root / "a", "/"]))
            self.assertIn(root / "a", folders)
            self.assertNotIn(root / "a" / "b", folders)
            self.assertNotIn(pathlib.Path("/"), folders)
            self.assertIn(guest.ROOT, folders)


class Archive(unittest.TestCase):
    def test_busybox_unpacks_it(self):
        if not guest.BUSYBOX.exists():
            self.skipTest("no busybox")
        archive = guest.Initramfs()
        archive.file("one/a", b"abc")
        archive.file("one/b", b"x" * 1001)
        archive.file("c", b"")
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            archive.write(folder / "cpio")
            with open(folder / "cpio", "rb") as data:
                subprocess.run([guest.BUSYBOX, "cpio", "-i"], cwd=folder, stdin=data, check=True, capture_output=True)
            self.assertEqual((folder / "one/a").read_bytes(), b"abc")
            self.assertEqual((folder / "one/b").read_bytes(), b"x" * 1001)
            self.assertEqual((folder / "c").read_bytes(), b"")


class Kernels(unittest.TestCase):
    def test_load_order(self):
        kernel = guest.Kernel.__new__(guest.Kernel)
        kernel.builtin = {"virtio_pci", "virtio_console", "overlay"}
        kernel.dependencies = {"9pnet_virtio": ("net/9pnet_virtio.ko.xz", ["net/9pnet.ko.xz", "virtio.ko.xz"]),
                               "9p": ("fs/9p.ko.xz", ["net/9pnet.ko.xz"])}
        self.assertEqual(kernel.boot_files(),
                         ["virtio.ko.xz", "net/9pnet.ko.xz", "net/9pnet_virtio.ko.xz", "fs/9p.ko.xz"])

    def test_kernel_without_soft_roce(self):
        with tempfile.TemporaryDirectory() as name:
            image = pathlib.Path(name, "vmlinuz-0")
            image.touch()
            with self.assertRaisesRegex(guest.Unusable, "rdma_rxe"):
                guest.find_kernel(image)


class Ends(unittest.TestCase):
    def finish(self, report, console="", in_time=True):
        ended = guest.Guest.__new__(guest.Guest)
        ended.report, ended.booted_s, ended.started = report, 1.0, 0.0
        ended.console_text = lambda: console
        ended.errors = tempfile.TemporaryFile()
        self.addCleanup(ended.errors.close)
        said = []
        guest.say = said.append
        status = guest.finish(ended, in_time, options(console=False, verbose=False, time_limit=5))
        return status, said

    def test_status_is_the_commands(self):
        self.assertEqual(self.finish("booted\nexit 3\n"), (3, []))

    def test_time_limit(self):
        self.assertEqual(self.finish("booted\n", in_time=False)[0], guest.TIME_LIMIT_EXIT)

    def test_failing_guest(self):
        status, said = self.finish("booted\nfailed modprobe rdma_rxe\n")
        self.assertEqual(status, guest.FAILED_EXIT)
        self.assertIn("modprobe rdma_rxe", said[0])

    def test_guest_that_died(self):
        self.assertEqual(self.finish("booted\n")[0], guest.FAILED_EXIT)

    def test_kernel_faults_are_told(self):
        status, said = self.finish("booted\nexit 0\n", "[ 1.0] fine\n[ 2.0] WARNING: CPU: 0\n")
        self.assertEqual(status, 0)
        self.assertIn("WARNING: CPU: 0", said[0])


class Native(unittest.TestCase):
    def test_status_and_missing_program(self):
        self.assertEqual(subprocess.run([TOOL, "--native", "sh", "-c", "exit 5"]).returncode, 5)
        missing = subprocess.run([TOOL, "--native", "no-such-program-here"], capture_output=True, text=True)
        self.assertEqual(missing.returncode, guest.FAILED_EXIT)
        self.assertIn("no-such-program-here", missing.stderr)


def device():
    names = guest.native_devices()
    if not names:
        print("no RDMA device")
        return 77
    transfer = ["ib_send_bw", "-d", names[0], "-s", "4096", "-n", "50"]
    for attempt in range(20):  # The server ends at the first client that fails: each attempt has its own pair.
        server = subprocess.Popen(transfer, stdout=subprocess.DEVNULL)
        try:
            for _ in range(100):
                if server.poll() is not None:
                    break
                try:
                    client = subprocess.run([*transfer, "localhost"], capture_output=True, text=True, timeout=30)
                except subprocess.TimeoutExpired:
                    print(f"attempt {attempt}: the client has not ended in 30 s")
                    break
                print(f"attempt {attempt}: {client.stdout}{client.stderr}")
                if client.returncode == 0:
                    return 0
                time.sleep(0.1)  # The server does not listen yet.
        finally:
            server.kill()
            server.wait()
    return 1


if __name__ == "__main__":
    if sys.argv[1:] == ["device"]:
        sys.exit(device())
    unittest.main()
