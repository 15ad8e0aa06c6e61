#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The limits of tests/compile_cost, and the tables that show them, with made-up sizes."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
import limits
import tables

UNIT = "functions -O2"


def of(value):
    return {"first, compiled": {UNIT: value}}


class Limits(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        limits.PATH = self.folder / "limits.json"

    def record(self, value, compiler="g++ 12"):
        """What --record prints."""
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            limits.record(compiler, of(value))
        return printed.getvalue()

    def failures(self, value):
        with contextlib.redirect_stdout(io.StringIO()):
            return limits.compare(limits.read_limits(), of(value))

    def recorded(self):
        return limits.read_limits()["reached"]["first, compiled"][UNIT]

    def test_two_percent_more_pass_and_one_function_beyond_fails(self):
        self.record(1000)
        self.assertEqual(self.failures(1020), [])
        self.assertIn("CHANGELOG", self.failures(1021)[0])

    def test_small_counts_have_no_room(self):
        self.record(4)
        self.assertEqual(len(self.failures(5)), 1)

    def test_what_is_far_below_must_be_recorded(self):
        self.record(1020)
        self.assertEqual(self.failures(1000), [])
        self.assertIn("--record", self.failures(999)[0])

    def test_growth_within_the_limit_does_not_move_it(self):
        self.record(1000)
        self.record(1015)
        self.assertEqual(self.recorded(), 1000)

    def test_a_raised_limit_asks_for_its_reason(self):
        self.record(1000)
        self.assertIn("CHANGELOG", self.record(1100))
        self.assertEqual(self.recorded(), 1100)

    def test_a_lower_limit_asks_for_nothing(self):
        self.record(1000)
        self.assertNotIn("CHANGELOG", self.record(990))
        self.assertEqual(self.recorded(), 990)

    def test_another_compiler_begins_anew(self):
        self.record(1000)
        self.record(2000, "g++ 13")
        self.assertEqual(self.recorded(), 2000)


class Tables(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = pathlib.Path(scratch.name)
        (self.root / "page.md").write_text("before\n<!-- compile cost: made up -->\n<!-- end of compile cost -->\nafter\n")
        for name, value in ("PAGES", {"page.md": ["made up"]}), ("TABLES", {"made up": lambda recorded, _: f"{recorded}\n"}):
            self.addCleanup(setattr, tables, name, getattr(tables, name))
            setattr(tables, name, value)

    def test_a_table_is_stale_until_it_is_written(self):
        self.assertEqual(tables.stale_pages(self.root, 7, {}), ["page.md"])
        tables.write_tables(self.root, 7, {})
        self.assertEqual(tables.stale_pages(self.root, 7, {}), [])
        self.assertEqual(tables.stale_pages(self.root, 8, {}), ["page.md"])

    def test_the_rest_of_the_page_stays(self):
        tables.write_tables(self.root, 7, {})
        lines = (self.root / "page.md").read_text().splitlines()
        self.assertEqual((lines[0], lines[2], lines[-1]), ("before", "7", "after"))

    def test_a_page_without_its_marks_is_an_error(self):
        (self.root / "page.md").write_text("no table\n")
        with self.assertRaises(SystemExit):
            tables.write_tables(self.root, 7, {})


if __name__ == "__main__":
    unittest.main()
