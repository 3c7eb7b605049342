#!/usr/bin/env python3
"""Checks that gtest_cases.py reports every case, whatever the program does during one."""

import pathlib
import sys
import tempfile
import unittest

import gtest_cases

# Acts as a GoogleTest program: the name of each case says what it does.
PROGRAM = """#!{python}
import os, subprocess, sys, time
cases = sys.argv[1].removeprefix("--gtest_filter=").split(":")
failed = False
for case in cases:
    if "absent" in case:
        continue
    print(f"[ RUN      ] {{case}}", flush=True)
    if "crash" in case:
        os.abort()
    if "hang" in case:
        time.sleep(100)
    if "quit" in case:
        sys.exit(0)
    if "orphan" in case:
        subprocess.Popen(["sleep", "5"])
    if "mention" in case:
        print("[  FAILED  ] Another.case (0 ms)")
    if "skip" in case:
        print("file.cpp:1: Skipped\\nno device\\n")
    word = "[  FAILED  ]" if "fail" in case else "[  SKIPPED ]" if "skip" in case else "[       OK ]"
    where = ", where GetParam() = 1" if "fail" in case else ""
    print(f"no line's end {{word}} {{case}}{{where}} (3 ms)", flush=True)
    failed |= "fail" in case
print("[  FAILED  ] 1 test, listed below:" if failed else "[  PASSED  ]", flush=True)
sys.exit(7 if any("leak" in case for case in cases) else failed)
"""


class Parts(unittest.TestCase):
    def test_have_each_case_once(self):
        groups = [{"program": "a", "cases": ["1", "2", "3"]}, {"program": "b", "cases": ["4"]}]
        self.assertEqual(gtest_cases.in_parts(groups, 2), [{"program": "a", "cases": ["1", "2"]}, {"program": "a", "cases": ["3"]},
                                                           {"program": "b", "cases": ["4"]}])


class RunGroup(unittest.TestCase):
    def run_cases(self, *cases, timeout_s=30):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "program")
            program.write_text(PROGRAM.format(python=sys.executable))
            program.chmod(0o755)
            results = []

            def report(program, case, status, seconds, output):
                results.append((case, status))
                self.outputs[case] = output
            gtest_cases.run_group({"program": str(program), "directory": folder, "timeout_s": timeout_s, "cases": cases},
                                  report)
            return sorted(results)

    def setUp(self):
        self.outputs = {}

    def test_all_that_can_be(self):
        self.assertEqual(self.run_cases("S.a", "S.fail", "S.skip", "P/S.case/0"),
                         [("P/S.case/0", "passed"), ("S.a", "passed"), ("S.fail", "failed"), ("S.skip", "skipped")])
        self.assertIn("no device", self.outputs["S.skip"])
        self.assertNotIn("S.fail", self.outputs["S.skip"])

    def test_a_crash_costs_only_its_case(self):
        self.assertEqual(self.run_cases("S.a", "S.crash", "S.crash_too", "S.z"),
                         [("S.a", "passed"), ("S.crash", "failed"), ("S.crash_too", "failed"), ("S.z", "passed")])
        self.assertIn("ended with status -6", self.outputs["S.crash"])

    def test_so_does_a_hang(self):
        self.assertEqual(self.run_cases("S.a", "S.hang", "S.z", timeout_s=10),
                         [("S.a", "passed"), ("S.hang", "failed"), ("S.z", "passed")])
        self.assertIn("nothing ended for 10 s", self.outputs["S.hang"])

    def test_and_an_early_end(self):
        self.assertEqual(self.run_cases("S.a", "S.quit", "S.z"), [("S.a", "passed"), ("S.quit", "failed"), ("S.z", "passed")])

    def test_a_bad_end_without_a_failed_case(self):
        self.assertEqual(self.run_cases("S.leak"), [("S.leak", "failed"), ("S.leak", "passed")])

    def test_what_others_say_of_others(self):
        self.assertEqual(self.run_cases("S.mention"), [("S.mention", "passed")])

    def test_absent_cases_get_no_line(self):
        self.assertEqual(self.run_cases("S.a", "S.absent"), [("S.a", "passed")])

    def test_left_over_processes_are_not_waited_for(self):
        self.assertEqual(self.run_cases("S.orphan"), [("S.orphan", "passed")])


if __name__ == "__main__":
    unittest.main()
