#!/usr/bin/env python3
"""Shows that check.py counts what ctest reports, and never takes a test that did not run for one that passed."""

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


if __name__ == "__main__":
    unittest.main()
