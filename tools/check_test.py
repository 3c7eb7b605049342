#!/usr/bin/env python3
"""Shows that check.py counts what ctest reports, and never takes a test that did not run for one that passed."""

import json
import pathlib
import tempfile
import unittest

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
    """What the guest runs by program."""

    def test_groups(self):
        def test(name, *command):
            return {"name": name, "command": list(command),
                    "properties": [{"name": "WORKING_DIRECTORY", "value": "/d"}, {"name": "TIMEOUT", "value": 9.0}]}
        groups, names = check.gtest_groups([test("x.A.B", "/x", "--gtest_filter=A.B"), test("smoke", "/y", "lab"),
                                            test("x.A.C", "/x", "--gtest_filter=A.C"), {"name": "not built"}])
        self.assertEqual(groups, [{"program": "/x", "directory": "/d", "timeout_s": 9.0, "cases": ["A.B", "A.C"]}])
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
    """What was skipped for want of a device is counted once: where it was run at last, or as skipped with the guest's
    reason."""

    def setUp(self):
        self.before = check.Totals()
        self.before.passed = 10
        self.before.skipped = ["dev: transport_rdma.Device.Sends (no RDMA device here)", "dev: other.A.B (no such tool)"]
        self.asked = []
        for name in ("in_guest", "RDMA_GUEST"):
            self.addCleanup(setattr, check, name, getattr(check, name))

    def run_stage(self, guest_status, result=None):
        def in_guest(stage, names):
            self.asked.append(names)
            return result
        check.in_guest = in_guest
        with tempfile.TemporaryDirectory() as folder:
            check.RDMA_GUEST = pathlib.Path(folder, "guest")
            check.RDMA_GUEST.write_text(f"#!/bin/sh\necho no kernel\nexit {guest_status}\n")
            check.RDMA_GUEST.chmod(0o755)
            return check.rdma_stage("rdma", self.before)

    def test_run_in_the_guest(self):
        result = check.Totals()
        result.passed = 1
        self.assertEqual(str(self.run_stage(0, result)), "1 passed, 0 failed, 0 skipped")
        self.assertEqual(self.asked, [{"transport_rdma.Device.Sends"}])
        self.assertEqual(self.before.skipped, ["dev: other.A.B (no such tool)"])

    def test_no_guest(self):
        totals = self.run_stage(1)
        self.assertEqual(totals.skipped, ["rdma: transport_rdma.Device.Sends (no kernel)"])
        self.assertEqual(totals.passed, 0)
        self.assertEqual(self.asked, [])

    def test_nothing_needs_a_device(self):
        self.before.skipped = []
        self.assertEqual(str(self.run_stage(0)), "0 passed, 0 failed, 0 skipped")
        self.assertEqual(self.asked, [])


if __name__ == "__main__":
    unittest.main()
