#!/usr/bin/env python3
"""Checks that mutate.py injects the faults that it names, detects what tests do, and restores the files."""

import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

import mutate


def faults(text, **options):
    return [(fault.kind, fault.after.strip()) for fault in mutate.faults_of("src/a/a.cpp", text, **options)]


class Faults(unittest.TestCase):
    def test_bounds(self):
        self.assertEqual(faults("  while (at < end) {"), [("bound off by one", "while (at <= end) {")])
        self.assertEqual(faults("  x = size - 1;"), [("bound off by one", "x = size;")])

    def test_conditions(self):
        self.assertEqual(faults("  if (a && b) f(x);"), [("swapped condition", "if (a || b) f(x);")])
        self.assertEqual(faults("  if (ready(x)) return;"), [("swapped condition", "if (!(ready(x))) return;"),
                                                             ("missing return", ";")])
        self.assertEqual(faults('  if (is("a b")) {'), [("swapped condition", 'if (!(is("a b"))) {')])
        self.assertEqual(faults("  if (!open) {"), [("swapped condition", "if (open) {")])

    def test_release_and_wake_up(self):
        self.assertEqual(faults("  pool_.release(block);"), [("missing release", ";")])
        self.assertEqual(faults("  ring_.reset();"), [("missing release", ";")])
        self.assertEqual(faults("  changed_.notify_one();"), [("lost wake-up", ";")])
        self.assertEqual(faults("  if (asleep) wake(1);")[-1], ("lost wake-up", ";"))

    def test_memory_order(self):
        self.assertEqual(faults("  tail_.store(at, std::memory_order_release);"),
                         [("weaker memory order", "tail_.store(at, std::memory_order_relaxed);")])

    def test_generation(self):
        self.assertEqual(faults("  return slot.generation == generation;"),
                         [("stale generation", "return slot.generation != generation;")])
        self.assertIn(("stale generation", ";"), faults("  ++slot.generation;"))

    def test_no_faults_in_what_is_no_code(self):
        for text in ("// a < b", "#if A && B", '  puts("a < b");', "/* a\n  if (a) return;\n*/", "template <class A>",
                     "  static_assert(a < b);", "std::vector<int> a;", "  int a = 1;"):
            self.assertEqual(faults(text), [], text)

    def test_rest_of_a_statement_is_not_removed(self):
        self.assertEqual(faults("  a(b,\n    release(c));"), [])
        self.assertEqual(faults("  a(b,\n    release(c), d);"), [])

    def test_lines_that_changed(self):
        self.assertEqual(len(faults("  a.reset();\n  b.reset();", lines={2})), 1)
        diff = "--- a/x\n+++ b/src/x.cpp\n@@ -1,0 +3,2 @@\n+a\n+b\n@@ -9 +12 @@\n+c\n@@ -20,2 +22,0 @@\n-d\n"
        self.assertEqual(mutate.changed_lines(diff), {"src/x.cpp": {3, 4, 12}})

    def test_only_the_library(self):
        self.assertTrue(mutate.is_source("src/a/b/c.cpp"))
        self.assertTrue(mutate.is_source("include/hawser/c.h"))
        for path in ("src/a/c_test.cpp", "src/a/c_testing.h", "src/a/conformance/c.cpp", "tests/c.cpp", "docs/c.md"):
            self.assertFalse(mutate.is_source(path), path)

    def test_order(self):
        found = [mutate.Fault(path, line, kind, "", "") for path in "ab" for kind in "xy" for line in range(10)]
        order = mutate.in_turn(found, 7)
        self.assertEqual(sorted(map(repr, order)), sorted(map(repr, found)))
        self.assertEqual(len({(fault.path, fault.kind) for fault in order[:4]}), 4)
        self.assertEqual(order, mutate.in_turn(found, 7))
        self.assertNotEqual(order, mutate.in_turn(found, 8))


class Programs(unittest.TestCase):
    programs = {"exec_test": {"src/exec"}, "transport_test": {"src/transport"}, "tcp_test": {"src/transport/tcp"}}

    def test_nearest_folder(self):
        self.assertEqual(mutate.program_for("src/transport/tcp/a.cpp", self.programs), "tcp_test")
        self.assertEqual(mutate.program_for("src/transport/rdma/connection/a.cpp", self.programs), "transport_test")
        self.assertIsNone(mutate.program_for("src/rpc/session/a.cpp", self.programs))

    def test_precompiled_header_is_no_program(self):
        with tempfile.TemporaryDirectory() as folder:
            tree = mutate.Tree(types.SimpleNamespace(preset="dev", jobs=1))
            tree.folder = tree.build_folder = pathlib.Path(folder)
            command = ("c++ -include-pch tests/CMakeFiles/hawser_pch_test.dir/a.pch -o tests/CMakeFiles/{}.dir/a.o "
                       "-c src/a/a.cpp")
            entries = [{"file": f"{folder}/src/a/a.cpp", "command": command.format(target)} for target in ("a_test", "hawser_a")]
            (tree.build_folder / "compile_commands.json").write_text(json.dumps(entries))
            self.assertEqual(tree.programs(), {"a_test": {"src/a"}})

    def test_batch_of_sources(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            batch = root / "build/CMakeFiles/a_test.dir/Unity/unity_0_cxx.cxx"
            batch.parent.mkdir(parents=True)
            batch.write_text(f'#include "{root}/src/a/test/x_test.cpp"\n#include "{root}/tests/b/y.cpp"\n')
            self.assertEqual(mutate.folders_of({"file": str(batch)}, root), {"src/a", "tests/b"})
            self.assertEqual(mutate.folders_of({"file": f"{root}/src/c/z_test.cpp"}, root), {"src/c"})


class Judging(unittest.TestCase):
    """A "library" that is a file of shell commands, with a program that runs it as its test."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "src").mkdir()
        self.file = self.root / "src/a.cpp"
        self.file.write_text("true\n")
        program = self.root / "a_test"
        program.write_text(f"#!/bin/sh\n. {self.file}\n")
        program.chmod(0o755)
        broken = mock.patch.object(mutate, "SLACK_S", 0.5)
        broken.start()
        self.addCleanup(broken.stop)
        tree = types.SimpleNamespace(folder=self.root, programs=lambda: {"a_test": {"src"}}, program_path=lambda name: program,
                                     build=lambda _: "error" if "no code" in self.file.read_text() else None)
        self.judge = mutate.Judge(tree, types.SimpleNamespace(timeout_factor=1, tests=[]))

    def verdicts(self, *lines, seconds=60):
        with contextlib.redirect_stdout(io.StringIO()):
            found = mutate.judge_all([mutate.Fault("src/a.cpp", 1, "kind", "true", line) for line in lines], self.judge,
                                     mutate.time.monotonic() + seconds)
        self.assertEqual(self.file.read_text(), "true\n")
        return {verdict: [fault.after for fault in found[verdict]] for verdict in found if found[verdict]}

    def test_verdicts(self):
        self.assertEqual(self.verdicts("true #", "exit 1", "kill -SEGV $$", "no code", "sleep 60"),
                         {"survived": ["true #"], "noticed": ["exit 1", "kill -SEGV $$", "sleep 60"], "invalid": ["no code"]})

    def test_time_is_up(self):
        self.assertEqual(self.verdicts("exit 1", seconds=-1), {"left out": ["exit 1"]})

    def test_tests_that_fail_without_a_fault(self):
        self.file.write_text("exit 3\n")
        self.assertIn("fails without a fault", self.judge.prepare("a_test"))

    def test_summary(self):
        fault = mutate.Fault("src/a.cpp", 3, "lost wake-up", "  wake();", "  ;")
        text = mutate.summary({"survived": [fault], "noticed": [fault, fault], "invalid": [], "no tests": [], "left out": [fault]})
        self.assertIn("src/a.cpp:3: lost wake-up\n    - wake();\n    + ;", text)
        self.assertIn("2 of 3 faults noticed, 1 not", text)
        self.assertIn("1 left out", text)


class Copy(unittest.TestCase):
    def test_the_files_of_the_user_stay_as_they_are(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(mutate, "ROOT", pathlib.Path(folder)):
            root = pathlib.Path(folder)

            def run(*command):
                subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *command], cwd=root, check=True,
                               capture_output=True)
            run("init", "-q")
            run("config", "user.name", "a")
            run("config", "user.email", "a@b")
            (root / "src").mkdir()
            (root / ".gitignore").write_text("/build*/\n")
            (root / "src/a.cpp").write_text("one\n")
            run("add", "-A")
            run("commit", "-qm", "one")
            (root / "src/a.cpp").write_text("two\n")
            tree = mutate.Tree(types.SimpleNamespace(preset="dev", jobs=1))
            for text in ("two\n", "three\n"):
                (root / "src/a.cpp").write_text(text)
                tree.check_out(mutate.git("stash", "create", tree=root))
                self.assertEqual((tree.folder / "src/a.cpp").read_text(), text)
                (tree.folder / "src/a.cpp").write_text("fault\n")
                self.assertEqual((root / "src/a.cpp").read_text(), text)
            self.assertEqual(mutate.git("stash", "list", tree=root), "")


if __name__ == "__main__":
    unittest.main()
