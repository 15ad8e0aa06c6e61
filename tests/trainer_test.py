#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""trainer_test.py TRAINER: runs examples/train_char_lm the ways users do, the wrong ones included."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TRAINER = pathlib.Path(sys.argv.pop(1)).resolve()
TEXT = pathlib.Path(__file__).resolve().parent.parent / "LICENSE"
QUICK = ["--steps", "60", "--batch", "32", "--sample", "20"]


def run(*arguments, environment=None, timeout=120):
    """The finished process; its output as text."""
    clean = {name: value for name, value in os.environ.items() if not re.match(r"(HFCOMM_|RANK$|WORLD_SIZE$|LOCAL_|MASTER_)", name)}
    return subprocess.run(
        [TRAINER, *map(str, arguments)],
        env=clean | (environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        timeout=timeout,
    )


def held_out(output):
    return re.search(r"held-out loss: ([0-9.]+) before, ([0-9.]+) after", output).groups()


class Training(unittest.TestCase):
    def assert_trained(self, result, processes):
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(f"{processes} process", result.stdout)
        self.assertIn("parameters bitwise identical on all ranks: yes", result.stdout)
        before, after = held_out(result.stdout)
        self.assertLess(float(after), float(before))
        self.assertEqual(result.stderr, "")

    def test_processes(self):
        for processes in (1, 2, 3, 4):
            with self.subTest(processes=processes):
                self.assert_trained(run("--processes", processes, "--text", TEXT, *QUICK), processes)

    def test_accumulation_changes_nothing_but_rounding(self):
        whole = run("--processes", 2, "--text", TEXT, *QUICK)
        pieces = run("--processes", 2, "--text", TEXT, *QUICK, "--accumulate", 4)
        self.assert_trained(pieces, 2)
        for one, other in zip(held_out(whole.stdout), held_out(pieces.stdout)):
            self.assertAlmostEqual(float(one), float(other), delta=1e-3)

    def test_speed_up_is_shown(self):
        result = run("--processes", 2, "--text", TEXT, *QUICK, "--compare-single")
        self.assertRegex(result.stdout, r"speed-up of 2 processes over one, measured in turns: [0-9.]+x")

    def test_many_more_processes_than_cores(self):
        self.assert_trained(run("--processes", 64, "--text", TEXT, "--steps", 40, "--batch", 64, "--sample", 0), 64)

    def test_under_a_launcher(self):
        """The same program, unchanged, as `torchrun --no_python` starts it."""
        variables = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid() % 20000)}
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HFCOMM_")}
        ranks = [
            subprocess.Popen(
                [TRAINER, "--text", TEXT, *QUICK],
                env=clean | variables | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        outputs = [rank.communicate(timeout=120) for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0], outputs)
        self.assertEqual(held_out(outputs[0][0]), held_out(run("--processes", 2, "--text", TEXT, *QUICK).stdout))
        self.assertEqual(outputs[1][0], "")

    def test_an_incomplete_set_of_variables(self):
        result = run("--text", TEXT, *QUICK, environment={"RANK": "1", "MASTER_ADDR": "127.0.0.1"})
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("WORLD_SIZE", result.stderr)

    def test_short_text(self):
        with tempfile.NamedTemporaryFile() as short:
            short.write((TEXT.read_bytes())[:64])
            short.flush()
            result = run("--processes", 2, "--text", short.name, "--steps", 30, "--batch", 16, "--sample", 10)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("note: the text has only 64 bytes", result.stdout)

    def assert_refused(self, result, status, *words):
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_no_such_file(self):
        self.assert_refused(run("--processes", 2, "--text", "/no/such/file", *QUICK), 1, "cannot open /no/such/file", "rank 0")
        self.assert_refused(run("--text", "/no/such/file", *QUICK), 1, "cannot open /no/such/file")

    def test_directory(self):
        self.assert_refused(run("--processes", 2, "--text", "/tmp", *QUICK), 1, "it is a directory")

    def test_empty_file(self):
        self.assert_refused(run("--processes", 2, "--text", "/dev/null", *QUICK), 1, "the text is empty")

    def test_bad_options(self):
        self.assert_refused(run("--processes", 0, "--text", TEXT), 2, "--processes wants a number of at least 1")
        self.assert_refused(run("--processes", -1, "--text", TEXT), 2, "--processes")
        self.assert_refused(run("--processes", "two", "--text", TEXT), 2, "--processes")
        self.assert_refused(run("--text", TEXT, "--steps", 0), 2, "--steps")
        self.assert_refused(run(), 2, "--text FILE is missing")
        self.assert_refused(run("--text", TEXT, "--colour", "red"), 2, "unknown option")
        self.assert_refused(run("--text", TEXT, "--batch", 2, "--accumulate", 4), 2, "--accumulate")
        self.assert_refused(run("--processes", 100000, "--text", TEXT), 2, "must be from 1 to")

    def test_kill_during_training(self):
        for victim in (0, 1, 2):
            with self.subTest(victim=victim):
                trainer = subprocess.Popen(
                    [TRAINER, "--processes", "3", "--text", TEXT, "--steps", "1000000", "--batch", "48"],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                children = pathlib.Path(f"/proc/{trainer.pid}/task/{trainer.pid}/children")
                while len(children.read_text().split()) < 3:
                    time.sleep(0.01)
                time.sleep(1.0)
                ranks = [int(pid) for pid in children.read_text().split()]
                os.kill(ranks[victim], signal.SIGKILL)
                began = time.monotonic()
                _, errors = trainer.communicate(timeout=60)
                self.assertLess(time.monotonic() - began, 2.0)
                self.assertEqual(trainer.returncode, 128 + signal.SIGKILL)
                self.assertIn(f"rank {victim} (pid {ranks[victim]}) was killed by signal 9 (SIGKILL)", errors)
                for pid in ranks:
                    self.assertFalse(pathlib.Path(f"/proc/{pid}").exists(), "a rank is left over")


if __name__ == "__main__":
    unittest.main()
