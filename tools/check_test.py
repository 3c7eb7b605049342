#!/usr/bin/env python3
"""Checks that check.py counts the results of ctest, and never counts a test that did not run as passed."""

import contextlib
import io
import json
import pathlib
import re
import tempfile
import unittest
from unittest import mock

import check

SKIPPED_BY_GTEST = """[ RUN      ] A.B
file.cpp:4: Skipped
no RDMA
device here
[  SKIPPED ] A.B (0 ms)
"""


class ReadJunit(unittest.TestCase):
    def read(self, status, inner="", output=""):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "ctest.xml")
            path.write_text(f'<testsuite><testcase name="A.B" status="{status}">{inner}'
                            f"<system-out>{output}</system-out></testcase></testsuite>")
            return check.read_junit("dev", path)

    def test_passed(self):
        self.assertEqual(str(self.read("run")), "1 passed, 0 failed, 0 skipped")

    def test_failed(self):
        self.assertEqual(self.read("fail", '<failure message=""/>').failed, ["dev: A.B"])

    def test_skipped_with_its_reason(self):
        totals = self.read("notrun", '<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>', SKIPPED_BY_GTEST)
        self.assertEqual(totals.skipped, ["dev: A.B (no RDMA device here)"])
        totals = self.read("notrun", '<skipped message="SKIP_RETURN_CODE=77"/>', "one\nno such tool\n")
        self.assertEqual(totals.skipped, ["dev: A.B (no such tool)"])

    def test_disabled(self):
        self.assertEqual(self.read("disabled").skipped, ["dev: A.B (disabled)"])

    def test_failing_while_skipping(self):
        for trouble in ("[  FAILED  ] A.B", "ERROR: AddressSanitizer: heap-use-after-free"):
            totals = self.read("notrun", '<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>',
                               SKIPPED_BY_GTEST + trouble)
            self.assertEqual(totals.failed, ["dev: A.B"])

    def test_program_that_was_not_built(self):
        totals = self.read("notrun", '<skipped message="Unable to find executable"/>')
        self.assertEqual(totals.failed, ["dev: A.B"])

    def test_unknown_state(self):
        self.assertEqual(self.read("odd").failed, ["dev: A.B"])


class GtestCases(unittest.TestCase):
    """The cases that the guest runs, by program."""

    def test_groups(self):
        def test(name, *command):
            return {"name": name, "command": list(command),
                    "properties": [{"name": "WORKING_DIRECTORY", "value": "/d"}, {"name": "TIMEOUT", "value": 9.0}]}
        groups, names = check.gtest_groups([test("x.A.B", "/x", "--gtest_filter=A.B"), test("smoke", "/y", "lab"),
                                            test("x.A.C", "/x", "--gtest_filter=A.C"), {"name": "not built"}])
        emulated, _ = check.gtest_groups([test("x.A.B", "emulator", "-L", "/root", "/x", "--gtest_filter=A.B")])
        self.assertEqual((emulated[0]["program"], emulated[0]["within"]), ("/x", ["emulator", "-L", "/root"]))
        self.assertEqual(groups, [{"program": "/x", "within": [], "directory": "/d", "timeout_s": 9.0, "cases": ["A.B", "A.C"]}])
        self.assertEqual(names, {("/x", "A.B"): "x.A.B", ("/x", "A.C"): "x.A.C"})

    def test_results(self):
        def line(case, status, output=""):
            return json.dumps({"program": "/x", "case": case, "status": status, "seconds": 1, "output": output}) + "\n"
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "results")
            path.write_text(line("A.B", "passed") + line("A.C", "failed") + line("A.D", "skipped", SKIPPED_BY_GTEST)
                            + line("A.E", "skipped", SKIPPED_BY_GTEST + "ERROR: AddressSanitizer: x")
                            + line("(no case)", "failed"))
            totals, seen = check.read_cases("rdma", path, {("/x", "A." + letter): "x.A." + letter for letter in "BCDE"})
        self.assertEqual(totals.passed, 1)
        self.assertEqual(totals.failed, ["rdma: x.A.C", "rdma: x.A.E", "rdma: /x"])
        self.assertEqual(totals.skipped, ["rdma: x.A.D (no RDMA device here)"])
        self.assertEqual(seen, {"x.A.B", "x.A.C", "x.A.D", "x.A.E", "/x"})


class RdmaStage(unittest.TestCase):
    """A test that was skipped because there is no device is counted once: in the guest if it ran there, or as skipped
    with the guest's reason."""

    def setUp(self):
        self.before = check.Totals()
        self.before.passed = 10
        self.before.skipped = ["dev: transport_rdma.Device.Sends (no RDMA device here)", "dev: other.A.B (no such tool)"]
        self.asked = []
        for name in ("in_guest", "RDMA_GUEST"):
            self.addCleanup(setattr, check, name, getattr(check, name))

    def run_stage(self, guest_status, result=None, short=False):
        def in_guest(stage, names):
            self.asked.append(names)
            return result
        check.in_guest = in_guest
        with tempfile.TemporaryDirectory() as folder:
            check.RDMA_GUEST = pathlib.Path(folder, "guest")
            check.RDMA_GUEST.write_text(f"#!/bin/sh\necho no kernel\nexit {guest_status}\n")
            check.RDMA_GUEST.chmod(0o755)
            return check.rdma_stage("rdma", self.before, short)

    def test_run_in_the_guest(self):
        result = check.Totals()
        result.passed = 1
        self.assertEqual(str(self.run_stage(0, result)), "1 passed, 0 failed, 0 skipped")
        self.assertEqual(self.asked, [{"transport_rdma.Device.Sends"}])
        self.assertEqual(self.before.skipped, ["dev: other.A.B (no such tool)"])

    def test_short_leaves_long_ones_out(self):
        self.before.skipped.append("dev: rdma.Device.AThousandConnects (no RDMA device here)")
        result = check.Totals()
        result.passed = 1
        self.assertEqual(str(self.run_stage(0, result, short=True)), "1 passed, 0 failed, 1 skipped")
        self.assertEqual(self.asked, [{"transport_rdma.Device.Sends"}])

    def test_no_guest(self):
        totals = self.run_stage(1)
        self.assertEqual(totals.skipped, ["rdma: transport_rdma.Device.Sends (no kernel)"])
        self.assertEqual(totals.passed, 0)
        self.assertEqual(self.asked, [])

    def test_nothing_needs_a_device(self):
        self.before.skipped = []
        self.assertEqual(str(self.run_stage(0)), "0 passed, 0 failed, 0 skipped")
        self.assertEqual(self.asked, [])


class GccStage(unittest.TestCase):
    """The stage runs in the root of tools/debian13, and is skipped or has failed if there is none."""

    def run_stage(self, status, said="debian13: making it\ndebian13: debootstrap is missing", short=True):
        self.commands, self.output = [], io.StringIO()

        def test_stage(stage, *arguments, within):
            self.commands.append((stage, within))
            return totals_of(5)

        def run(*command):
            self.commands.append(command)
            return True
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            tool = folder / "debian13"
            tool.write_text(f"#!/bin/sh\nprintf '%s\\n' '{said}' >&2\n[ \"$1\" != --make ] || exit {status}\n")
            tool.chmod(0o755)
            (folder / "build" / "debian13").mkdir(parents=True)
            (folder / "build" / "debian13" / "made").write_text("1")
            self.tool = str(tool)
            with (mock.patch.object(check, "DEBIAN13", tool), mock.patch.object(check, "test_stage", test_stage),
                  mock.patch.object(check, "ROOT", folder), mock.patch.object(check, "run", run),
                  contextlib.redirect_stdout(self.output)):
                return check.gcc_stage("gcc", short)

    def test_in_the_root(self):
        totals = self.run_stage(0)
        self.assertEqual((totals.passed, totals.failed, len(totals.skipped)), (5, [], 1))
        self.assertEqual(self.commands, [("gcc", (self.tool,))])

    def test_the_library_too(self):
        totals = self.run_stage(0, short=False)
        self.assertEqual((totals.passed, totals.failed, totals.skipped), (6, [], []))
        self.assertEqual(self.commands[1][:5], (self.tool, "cmake", "--build", "--preset", "library"))

    def test_no_root_is_possible(self):
        totals = self.run_stage(77, short=False)
        self.assertEqual((totals.passed, totals.failed), (0, []))
        self.assertEqual(totals.skipped, ["gcc: everything (debootstrap is missing)"])
        self.assertEqual(self.commands, [])

    def test_making_the_root_fails(self):
        for status in (1, 125):
            totals = self.run_stage(status)
            self.assertEqual((totals.passed, totals.failed, totals.skipped), (0, ["gcc: tools/debian13"], []))
            self.assertIn("debootstrap is missing", self.output.getvalue())

    def test_builds_of_another_root_go(self):
        with tempfile.TemporaryDirectory() as name, mock.patch.object(check, "ROOT", pathlib.Path(name)):
            made, object_file = (pathlib.Path(name, "build", *path) for path in (("debian13", "made"), ("gcc", "x.o")))
            for folder in (made.parent, object_file.parent):
                folder.mkdir(parents=True)
            made.write_text("1")
            object_file.touch()
            check.remove_builds_of_other_roots("gcc")
            self.assertFalse(object_file.exists(), "of a compiler outside")
            object_file.touch()
            check.remove_builds_of_other_roots("gcc")
            self.assertTrue(object_file.exists())
            made.write_text("2")
            check.remove_builds_of_other_roots("gcc")
            self.assertFalse(object_file.exists())


def totals_of(passed=0, failed=(), skipped=()):
    totals = check.Totals()
    totals.passed, totals.failed, totals.skipped = passed, list(failed), list(skipped)
    return totals


class Summary(unittest.TestCase):
    def print(self, results):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            passed = check.print_summary(results)
        return passed, output.getvalue()

    def test_each_reason_once(self):
        found = check.skipped_by_reason(["dev: a.S.C/one (no device)", "dev: a.S.C/two (no device)", "dev: b.S.C (no (such) tool)",
                                         "gcc: a.P/S.C/one (no device)"])
        self.assertEqual(found, [(3, "no device", {"dev: a.S.C": 2, "gcc: a.P/S.C": 1}), (1, "no (such) tool", {"dev: b.S.C": 1})])

    def test_stages_with_their_seconds(self):
        totals = totals_of(3, (), ("dev: a.S.C (no device)",))
        totals.seconds = {"build": 5.2, "tests": 7}
        passed, text = self.print({"dev": (totals, 13), "rdma": (totals_of(2), 0)})
        self.assertTrue(passed)
        self.assertRegex(text, r"dev +3 +0 +1 +5 +7 +13\n")
        self.assertIn("     1  no device\n          dev: a.S.C\n", text)
        self.assertTrue(text.endswith("5 passed, 0 failed, 1 skipped, 13 s\n"), text)

    def test_failures(self):
        passed, text = self.print({"dev": (totals_of(3, ["dev: a.S.C"]), 1)})
        self.assertFalse(passed)
        self.assertIn("failed:\n  dev: a.S.C\n", text)

    def test_kept_for_a_later_call(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(check, "RESULTS", pathlib.Path(folder, "r.json")):
            self.assertEqual(check.load_results(), {})
            check.save_results({"dev": (totals_of(3, ["dev: a.S.C"]), 1.5)})
            (totals, seconds), = check.load_results().values()
        self.assertEqual((totals.passed, totals.failed, seconds), (3, ["dev: a.S.C"], 1.5))


class Stages(unittest.TestCase):
    def run_stages(self, *stages):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return {stage: totals for stage, totals, _ in check.run_stages(stages)}

    def test_a_stage_that_breaks_does_not_hide_the_next(self):
        with (mock.patch.object(check, "gcc_stage", mock.Mock(side_effect=OSError("no such program"))),
              mock.patch.object(check, "cases_stage", lambda stage, built: totals_of(1))):
            found = self.run_stages("gcc", "asan")
        self.assertEqual(found["gcc"].failed, ["gcc: check.py itself"])
        self.assertEqual(found["asan"].passed, 1)

    def test_long_emulated_tests_are_omitted_only_if_asked(self):
        asked = []
        with (mock.patch.object(check.shutil, "which", lambda _: "/bin/emulator"),
              mock.patch.object(check, "is_root_made", lambda *_: True),
              mock.patch.object(check, "cases_stage", lambda stage, long: asked.append(long) or totals_of(1))):
            check.arm64_stage("arm64")
            check.arm64_stage("arm64", short=True)
        self.assertEqual(asked, [None, check.LONG_ARM64_TESTS])
        for name, is_long in (("conformance.A.B/tcp", True), ("transport_shm.Shm/S.C/shm_two_loops_event", True),
                              ("transport_shm.Shm/S.C/shm_reads_one_loop", True), ("transport_shm.Shm/S.C/shm_one_loop", False),
                              ("transport_tcp.Tcp/S.C/tcp_two_loops", False), ("base.A.B", False)):
            self.assertEqual(bool(re.search(check.LONG_ARM64_TESTS, name)), is_long, name)

    def test_the_next_build_runs_beside_the_tests_of_a_stage(self):
        events = []

        class Build:
            def __init__(self, stage):
                events.append(f"begin {stage}")

            def wait(self):
                events.append("wait")

        def cases_stage(stage, built):
            built()
            events.append(stage)
            return totals_of(1)

        def counters_stage(stage):
            events.append(stage)
            return totals_of(1)
        with (mock.patch.object(check, "BackgroundBuild", Build), mock.patch.object(check, "cases_stage", cases_stage),
              mock.patch.object(check, "labelled_stage", lambda *_: lambda stage: events.append(stage) or totals_of(1)),
              mock.patch.object(check, "counters_stage", counters_stage)):
            self.run_stages("asan", "fuzz", "tsan", "counters")
        self.assertEqual(events, ["begin tsan", "asan", "fuzz", "wait", "begin counters", "tsan", "wait", "counters"])

    def test_dev_rdma_thorough_and_gcc_run_together(self):
        for stages in (["dev", "rdma"], ["dev", "rdma", "thorough"], ["dev", "rdma", "thorough", "gcc"]):
            with mock.patch.object(check, "stages_beside_guest", lambda names, short: [totals_of(len(name)) for name in names]):
                found = self.run_stages(*stages)
            self.assertEqual([(stage, totals.passed) for stage, totals in found.items()], [(name, len(name)) for name in stages])

    def test_a_test_that_the_guest_runs_counts_once(self):
        def ctest_totals(stage, preset, name, *arguments, **options):
            if name == "ctest-rdma-here":
                return totals_of(1, (), ("dev: x.Rdma.Sends (no device)",))
            return totals_of(10)

        def rdma_stage(stage, before, short):
            before.skipped.clear()
            return totals_of(1)
        with (mock.patch.object(check, "build_preset", lambda *_: True), mock.patch.object(check, "rdma_stage", rdma_stage),
              mock.patch.object(check, "ctest_totals", ctest_totals)):
            with mock.patch.object(check, "gcc_stage", mock.Mock(side_effect=OSError("no such program"))):
                with contextlib.redirect_stderr(io.StringIO()):
                    totals = check.stages_beside_guest(["dev", "rdma", "thorough", "gcc"])
        self.assertEqual([str(one) for one in totals], ["11 passed, 0 failed, 0 skipped", "1 passed, 0 failed, 0 skipped",
                                                        "10 passed, 0 failed, 0 skipped", "0 passed, 1 failed, 0 skipped"])

    def test_sanitized_cases_share_processes(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "x_test")
            # It runs two cases, and reports a leak at its end.
            program.write_text("#!/bin/sh\ncase $1 in *S.a*) ;; *) exit 0 ;; esac\necho '[ RUN      ] S.a'\necho '[       OK ] S.a'\n"
                               "echo '[ RUN      ] S.b'\necho '[       OK ] S.b'\necho $LEAKS_OF\nexit 23\n")
            program.chmod(0o755)
            tests = [{"name": f"x.{case}", "command": [str(program), f"--gtest_filter={case}"],
                      "properties": [{"name": "WORKING_DIRECTORY", "value": folder}]} for case in ("S.a", "S.b", "S.c")]
            tests.append({"name": "other", "command": ["true"], "properties": []})
            tests.append({"name": "long", "command": ["true"], "properties": [{"name": "LABELS", "value": ["thorough"]}]})
            others = []

            def ctest_totals(stage, preset, name, *arguments):
                others.append(arguments)
                return totals_of(1)
            pathlib.Path(folder, "build", "asan").mkdir(parents=True)
            tools = pathlib.Path(check.ROOT, "tools")
            pathlib.Path(folder, "tools").symlink_to(tools)
            with (mock.patch.object(check, "ROOT", pathlib.Path(folder)), mock.patch.object(check, "build_preset", lambda *_: True),
                  mock.patch.object(check, "all_tests", lambda _: tests), mock.patch.object(check, "ctest_totals", ctest_totals),
                  mock.patch.object(check, "preset_environment", lambda _: {"LEAKS_OF": "17 bytes"})):
                totals = check.cases_stage("asan")
                found = pathlib.Path(folder, "build", "asan", "results.jsonl").read_text()
        # The case that ran last has the leak. The one that did not run has failed as well.
        self.assertEqual((totals.passed, sorted(totals.failed)), (3, ["asan: x.S.b", "asan: x.S.c (did not run)"]))
        self.assertIn("17 bytes", found)
        self.assertEqual(others, [("--tests-regex", "^(other)$")])

    def test_the_environment_of_a_preset(self):
        self.assertIn(f"suppressions={check.ROOT}/tests/sanitizers/tsan.supp", check.preset_environment("tsan")["TSAN_OPTIONS"])
        self.assertEqual(check.preset_environment("dev"), {})


if __name__ == "__main__":
    unittest.main()
