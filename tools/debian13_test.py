#!/usr/bin/env python3
"""Checks how tools/debian13 reads the settings of a machine's apt, and what it does where it can't work. With "Command":
checks that a command leaves no mount behind, in a root that is a static busybox; exits with 77 if that can't be run."""

import contextlib
import importlib.machinery
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import types
import unittest
from unittest import mock

TOOL = pathlib.Path(__file__).resolve().parent / "debian13"
BUSYBOX = pathlib.Path("/bin/busybox")


def load(name):
    path = str(TOOL.with_name(name))
    module = types.ModuleType(name)
    module.__file__ = path
    exec(importlib.machinery.SourceFileLoader(name, path).get_code(name), module.__dict__)
    return module


sys.dont_write_bytecode = True
debian13 = load("debian13")
arm64 = load("debian13-arm64")
CHECK_MACHINE = debian13.check_machine

DEB822 = """# A comment
Types: deb deb-src
# http://old.example/debian
URIs: http://mirror.example/debian/
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
"""


class Mirror(unittest.TestCase):
    def test_deb822(self):
        self.assertEqual(debian13.mirror_of([DEB822], "bookworm"), "http://mirror.example/debian")

    def test_lines(self):
        lines = ("deb-src http://no.example/debian bookworm main\n# deb http://no.example/debian bookworm main\n"
                 "deb [arch=amd64 signed-by=/k] https://yes.example/debian bookworm contrib main\n")
        self.assertEqual(debian13.mirror_of([lines], "bookworm"), "https://yes.example/debian")

    def test_archives_of_others(self):
        others = ["deb https://packages.example/apt tool-bookworm main", "deb https://tool.example/debian bookworm stable",
                  "deb cdrom:[Debian]/ bookworm main", DEB822.replace("Types: deb deb-src", "Enabled: no\nTypes: deb"), ""]
        self.assertEqual(debian13.mirror_of(others, "bookworm"), debian13.DEFAULT_MIRROR)

    def test_machines(self):
        with tempfile.TemporaryDirectory() as name:
            etc = pathlib.Path(name)
            self.assertEqual(debian13.machine_mirror(etc), debian13.DEFAULT_MIRROR)
            (etc / "apt/sources.list.d").mkdir(parents=True)
            (etc / "apt/sources.list.d/debian.sources").write_text(DEB822)
            (etc / "apt/sources.list.d/debian.sources.save").write_text(DEB822.replace("mirror", "saved"))
            for text, mirror in (("ID=debian\nVERSION_CODENAME=bookworm\n", "http://mirror.example/debian"),
                                 ("ID=ubuntu\nVERSION_CODENAME=bookworm\n", debian13.DEFAULT_MIRROR)):
                (etc / "os-release").write_text(text)
                self.assertEqual(debian13.machine_mirror(etc), mirror)

    def test_settings_and_proxies(self):
        dump = ('APT::Architecture "amd64";\nAcquire::http::Proxy "http://proxy.example:3128";\nAcquire::https::Proxy "DIRECT";\n'
                'Acquire::Check-Valid-Until "false";\nAcquire::cdrom::mount "/media/cdrom/";\n')
        with mock.patch.object(debian13, "output_of", lambda *_: dump):
            settings = debian13.apt_settings()
        self.assertEqual(len(settings.splitlines()), 3, settings)
        self.assertEqual(debian13.proxies(settings), {"http_proxy": "http://proxy.example:3128"})


class Impossible(unittest.TestCase):
    """Each reason is one sentence and status 77, and a fault is status 125."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for name, value in (("DEBIAN", pathlib.Path(folder.name, "build", "debian13")), ("check_machine", lambda: None)):
            self.patch(name, value)

    def patch(self, name, value):
        patched = mock.patch.object(debian13, name, value)
        patched.start()
        self.addCleanup(patched.stop)

    def main(self, *words):
        errors = io.StringIO()
        with mock.patch.object(sys, "argv", ["debian13", *words]), contextlib.redirect_stderr(errors):
            status = debian13.main()
        return status, errors.getvalue()

    def test_no_root(self):
        self.patch("check_machine", CHECK_MACHINE)
        with mock.patch.object(os, "geteuid", lambda: 1000):
            status, said = self.main("true")
        self.assertEqual((status, said.count("\n")), (77, 1), said)
        self.assertIn("run as root", said)

    def test_no_namespaces(self):
        self.patch("check_machine", CHECK_MACHINE)
        with mock.patch.object(os, "geteuid", lambda: 0), mock.patch.object(shutil, "which", lambda _: None):
            status, said = self.main("true")
        self.assertEqual((status, said.count("\n")), (77, 1), said)

    def test_no_debootstrap(self):
        with mock.patch.object(shutil, "which", lambda _: None):
            self.assertEqual(self.main("--make"), (77, "debian13: debootstrap is missing: apt-get install debootstrap\n"))

    def bootstrap_says(self, text):
        self.patch("run", lambda *_, **__: (False, text))
        with mock.patch.object(shutil, "which", lambda _: "/usr/sbin/debootstrap"):
            return self.main("--make")

    def test_no_mirror(self):
        status, said = self.bootstrap_says("E: Failed getting release file http://mirror.example/debian/dists/trixie/Release\n")
        self.assertEqual(status, 77)
        self.assertIn("check the network", said.splitlines()[-1])

    def test_fault(self):
        status, said = self.bootstrap_says("E: Tried to extract package, but file already exists. Exit...\n")
        self.assertEqual(status, 125)
        self.assertIn("already exists", said)


class Arm64(unittest.TestCase):
    """The root for 64-bit Arm, with the packages of this one and the same statuses."""

    def test_packages(self):
        packages = arm64.packages()
        self.assertLess({arm64.COMPILER_LIBRARY, "libgtest-dev", "liburing-dev"}, set(packages))
        self.assertEqual([name for name in packages if not name.endswith("-dev")], [])

    def statuses(self, failure):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name, "build", "arm64")
            with (mock.patch.object(arm64, "FOLDER", folder), mock.patch.object(arm64, "make", mock.Mock(side_effect=failure)),
                  mock.patch.object(arm64.debian13, "KEYRING", TOOL), mock.patch.object(shutil, "which", lambda _: "/bin/tool"),
                  contextlib.redirect_stderr(io.StringIO())):
                return arm64.main()

    def test_failures(self):
        self.assertEqual(self.statuses(arm64.debian13.Impossible("no mirror")), 77)
        self.assertEqual(self.statuses(arm64.debian13.Failed("no space")), 125)
        self.assertEqual(self.statuses(None), 0)

    def test_mirror_without_the_processor(self):
        with mock.patch.object(arm64.debian13, "machine_mirror", lambda: "http://mirror"):
            with self.assertRaisesRegex(arm64.debian13.Impossible, "http://mirror has no packages for 64-bit Arm"):
                arm64.run("sh", "-c", "echo E: Unable to locate package base-files; exit 100")
            with self.assertRaises(arm64.debian13.Failed):
                arm64.run("sh", "-c", "echo E: Unable to locate package libx-dev; exit 100")


class Command(unittest.TestCase):
    def setUp(self):
        if not BUSYBOX.exists() or b"/ld-linux" in BUSYBOX.read_bytes()[:4096]:
            self.skipTest(f"no static {BUSYBOX}: apt-get install busybox-static")
        try:
            CHECK_MACHINE()
        except debian13.Impossible as reason:
            self.skipTest(str(reason))
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.source = pathlib.Path(folder.name).resolve()
        self.root = self.source / "build" / "debian13"
        for name in ("bin", "proc", "sys", "dev", "etc"):
            (self.root / name).mkdir(parents=True)
        for name in ("busybox", "sh", "env", "mount", "sleep"):
            shutil.copy(BUSYBOX, self.root / "bin" / name)

    def run_command(self, *words):
        """Runs a command of a complete root."""
        script = ("import sys; sys.dont_write_bytecode = True; sys.path.insert(0, sys.argv[1]); import debian13_test as test, pathlib\n"
                  "tool = test.debian13; tool.ROOT = pathlib.Path(sys.argv[2]); tool.DEBIAN = tool.ROOT / 'build' / 'debian13'\n"
                  "tool.complete = lambda: True; sys.argv = ['debian13', *sys.argv[3:]]; sys.exit(tool.main())")
        environment = os.environ | {"HAWSER_TEST_KEPT": "one two", "SSL_CERT_FILE": "/outside"}
        return subprocess.run([sys.executable, "-c", script, str(TOOL.parent), str(self.source), *words], capture_output=True,
                              text=True, env=environment)

    def test_runs_in_the_source_and_leaves_no_mount(self):
        mounts = pathlib.Path("/proc/self/mountinfo").read_text()
        result = self.run_command("sh", "-c", 'echo "$PWD" "$HAWSER_TEST_KEPT" "$SSL_CERT_FILE" "$@"; : >made; mount; exit 9', "sh",
                                  "a  b", "$c")
        self.assertEqual(result.returncode, 9, result.stderr)
        lines = result.stdout.splitlines()
        self.assertEqual(lines[0], f"{self.source} one two  a  b $c")
        self.assertTrue([line for line in lines if f" on {self.source} " in line], lines)
        self.assertTrue((self.source / "made").exists())
        self.assertEqual(pathlib.Path("/proc/self/mountinfo").read_text(), mounts)

    def test_commands_run_at_the_same_time(self):
        os.mkfifo(self.source / "pipe")
        waiting = threading.Thread(target=lambda: self.run_command("sh", "-c", ": >pipe"))
        waiting.start()  # It ends when the other command reads.
        self.assertEqual(self.run_command("sh", "-c", ": <pipe").returncode, 0)
        waiting.join()

    def test_a_mounted_root_is_not_removed(self):
        with (mock.patch.object(pathlib.Path, "read_text", lambda _: f"1 2 8:1 / {self.root}/proc rw - proc proc rw\n"),
              self.assertRaisesRegex(debian13.Failed, "is mounted")):
            debian13.remove(self.root)
        self.assertTrue(self.root.exists())
        debian13.remove(self.root)
        self.assertFalse(self.root.exists())


def main():
    names = ["Command"] if sys.argv[1:] == ["Command"] else ["Mirror", "Impossible", "Arm64"]
    result = unittest.main(argv=[sys.argv[0], *names], exit=False).result
    for _, reason in result.skipped[:1]:
        print(reason)
        return 77
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
