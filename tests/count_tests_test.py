#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The counting of tools/count-tests, on results of every kind."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

COUNT_TESTS = pathlib.Path(__file__).resolve().parent.parent / "tools" / "count-tests"


def summary(passed, failed, left_out=0):
    return f"[doctest] test cases: {passed + failed:2} | {passed:2} passed | {failed} failed | {left_out} skipped\n"


def output(*entries, status=0):
    """The lines for these results, and the exit status."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as log:
        for entry in entries:
            log.write((entry if isinstance(entry, str) else json.dumps(entry)) + "\n")
        log.flush()
        command = [sys.executable, COUNT_TESTS, "--status", str(status), log.name]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout.splitlines(), done.returncode


def run(*entries, status=0):
    """The closing line and the exit status for these results."""
    lines, code = output(*entries, status=status)
    return lines[-1], code


def entry(result, stdout="", stderr=""):
    return {"name": "t", "result": result, "stdout": stdout, "stderr": stderr}


class Counting(unittest.TestCase):
    def test_counts_cases_of_doctest_and_one_for_everything_else(self):
        self.assertEqual(run(entry("OK", summary(12, 0, 5)), entry("OK")), ("13 passed, 0 failed, 0 skipped", 0))

    def test_failed_cases(self):
        self.assertEqual(run(entry("FAIL", summary(3, 2)), entry("FAIL")), ("3 passed, 3 failed, 0 skipped", 1))

    def test_a_crash_or_timeout_without_a_summary(self):
        self.assertEqual(run(entry("OK"), entry("FAIL", "half a li")), ("1 passed, 1 failed, 0 skipped", 1))
        self.assertEqual(run(entry("OK"), entry("TIMEOUT")), ("1 passed, 1 failed, 0 skipped", 1))
        self.assertEqual(run(entry("OK"), entry("INTERRUPT")), ("1 passed, 1 failed, 0 skipped", 1))
        self.assertEqual(run(entry("OK"), entry("ERROR")), ("1 passed, 1 failed, 0 skipped", 1))

    def test_a_crash_after_a_good_summary(self):
        self.assertEqual(run(entry("FAIL", summary(4, 0))), ("4 passed, 1 failed, 0 skipped", 1))

    def test_an_exit_half_way(self):
        left = dict(entry("OK", "half a li"), command=["unit_tests", "--source-file=*/unit/left_test.cpp"])
        self.assertEqual(run(entry("OK"), left), ("1 passed, 1 failed, 0 skipped", 1))

    def test_the_last_summary_counts(self):
        self.assertEqual(run(entry("OK", summary(0, 1) + summary(4, 0))), ("4 passed, 0 failed, 0 skipped", 0))

    def test_failures_that_meson_did_not_notice(self):
        self.assertEqual(run(entry("OK", summary(4, 1))), ("4 passed, 1 failed, 0 skipped", 1))

    def test_skipped_tests_and_cases(self):
        said = "[hfcomm] skipped: two machines: there is one\n"
        self.assertEqual(run(entry("SKIP"), entry("OK")), ("1 passed, 0 failed, 1 skipped", 0))
        self.assertEqual(run(entry("OK", said * 2 + summary(4, 0), said)), ("3 passed, 0 failed, 1 skipped", 0))
        subject = "[hfcomm] skipped: split: {}: there is one rank\n"
        two = subject.format("two groups") + subject.format("an empty group")
        self.assertEqual(run(entry("OK", two + summary(4, 0))), ("2 passed, 0 failed, 2 skipped", 0))
        self.assertEqual(run(entry("OK", summary(1, 0), said)), ("0 passed, 0 failed, 1 skipped", 1))
        self.assertEqual(run(entry("OK", "one part done\n", said)), ("1 passed, 0 failed, 1 skipped", 0))

    def test_a_test_that_has_counted_itself(self):
        counted = summary(4, 0) + summary(2, 0) + "5 passed, 0 failed, 1 skipped\n"
        self.assertEqual(run(entry("OK", counted)), ("5 passed, 0 failed, 1 skipped", 0))
        self.assertEqual(run(entry("FAIL", counted)), ("5 passed, 1 failed, 1 skipped", 1))
        self.assertEqual(run(entry("OK", "9 passed, 0 failed, 0 skipped\n" + summary(1, 0))), ("1 passed, 0 failed, 0 skipped", 0))

    def test_shows_the_end_of_what_failed(self):
        failed = dict(entry("FAIL", "".join(f"line {number}\n" for number in range(50)), "a reason\n"), name="wrong")
        lines, _ = output(entry("OK", "all is well\n"), failed)
        self.assertEqual(lines[0], "failed: wrong (FAIL)")
        self.assertEqual(lines[-3:], ["    line 49", "    a reason", "1 passed, 1 failed, 0 skipped"])
        self.assertEqual(len(lines), 42)

    def test_nothing_ran(self):
        self.assertEqual(run(), ("0 passed, 0 failed, 0 skipped", 1))
        self.assertEqual(run(status=1), ("0 passed, 1 failed, 0 skipped", 1))

    def test_a_run_that_failed_as_a_whole(self):
        self.assertEqual(run(entry("OK"), status=2), ("1 passed, 1 failed, 0 skipped", 1))
        self.assertEqual(run(entry("FAIL"), status=1), ("0 passed, 1 failed, 0 skipped", 1))

    def test_a_log_that_was_cut_off(self):
        self.assertEqual(run(entry("OK"), '{"name": "t", "resu'), ("1 passed, 1 failed, 0 skipped", 1))


if __name__ == "__main__":
    unittest.main()
