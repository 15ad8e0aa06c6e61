#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""train_mnist_test.py TRAINER HFRUN DIGITS: runs examples/train_mnist_torch the ways users do, the wrong ones included.

DIGITS is a folder that examples/train_mnist_torch/fetch-digits has made. Each rank has one thread, so that the bits do
not depend on the machine.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

if len(sys.argv) < 4 or not (pathlib.Path(sys.argv[3]) / "t10k-labels-idx1-ubyte").is_file():
    print("skipped: there are no digits (tools/install-dependencies --torch)")
    sys.exit(77)
TRAINER, HFRUN, DIGITS = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(3))
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not re.match(r"(HFCOMM_|RANK$|WORLD_SIZE$|LOCAL_|MASTER_)", name)
}


def command_of(*arguments, data=DIGITS, launcher=()):
    return [*map(str, launcher), str(TRAINER), "--data", str(data), "--threads", "1", *map(str, arguments)]


def start(command, **environment):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=ENVIRONMENT | environment, text=True, errors="replace", **pipes)


class Result:
    """What a finished process leaves."""

    def __init__(self, process):
        self.output, self.errors = process.communicate(timeout=120)
        self.status = process.returncode

    def find(self, pattern):
        found = re.search(pattern, self.output)
        if found is None:
            raise AssertionError("no %s in:\n%s%s" % (pattern, self.output, self.errors))
        return found.group(1)

    def bits(self):
        return self.find(r"all bits: ([0-9a-f]{16})\n")


def run(*arguments, **more):
    return Result(start(command_of(*arguments, **more)))


class Training(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.checkpoint = self.folder / "checkpoint.pt"

    def trained(self, *arguments, **more):
        result = run(*arguments, **more)
        self.assertEqual((result.status, result.errors), (0, ""), result.output)
        return result

    def assert_refused(self, result, status, *words):
        """The program says why in one line."""
        self.assertEqual(result.status, status, result.output + result.errors)
        self.assertEqual(result.errors.count("\n"), 1, result.errors)
        for word in words:
            self.assertIn(word, result.errors)

    def test_digits_are_recognized(self):
        for processes in (1, 2):
            with self.subTest(processes=processes):
                result = self.trained("--processes", processes)
                self.assertGreaterEqual(float(result.find(r"recognized \d+ of 355 test digits: ([0-9.]+) %")), 97)

    def test_bits_follow_from_the_seed_and_the_number_of_ranks(self):
        once = self.trained("--processes", 2, "--epochs", 1)
        again = self.trained("--epochs", 1, launcher=[HFRUN, "-n", 2, "--plain"])
        self.assertEqual(once.bits(), again.bits())
        self.assertEqual(once.output, again.output)
        self.assertNotEqual(once.bits(), self.trained("--processes", 2, "--epochs", 1, "--seed", 2).bits())

    def test_resuming_changes_no_bit(self):
        for processes in (1, 2):
            with self.subTest(processes=processes):
                quick = ["--processes", processes, "--checkpoint", self.checkpoint]
                whole = self.trained("--processes", processes, "--epochs", 4)
                self.trained(*quick, "--epochs", 2)
                rest = self.trained(*quick, "--epochs", 4, "--resume")
                self.assertEqual(rest.find(r"resuming after epoch (\d+)\n"), "2")
                self.assertEqual(rest.bits(), whole.bits())
                self.assertNotIn("note:", rest.output)

    def test_a_training_that_was_killed_is_resumed(self):
        quick = ["--processes", 2, "--checkpoint", self.checkpoint]
        trainer = start(command_of(*quick, "--epochs", 1000))
        while not trainer.stdout.readline().startswith("epoch 3:"):
            self.assertIsNone(trainer.poll())
        for pid in pathlib.Path("/proc/%d/task/%d/children" % (trainer.pid, trainer.pid)).read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        self.assertEqual(Result(trainer).status, 128 + signal.SIGKILL)
        resumed = self.trained(*quick, "--epochs", 4, "--resume")
        self.assertGreaterEqual(int(resumed.find(r"resuming after epoch (\d+)\n")), 2)
        self.assertEqual(resumed.bits(), self.trained("--processes", 2, "--epochs", resumed.find(r"(?s).*epoch (\d+)")).bits())

    def test_resuming_with_other_ranks_is_noted(self):
        self.trained("--processes", 2, "--epochs", 1, "--checkpoint", self.checkpoint)
        result = self.trained("--epochs", 2, "--checkpoint", self.checkpoint, "--resume")
        self.assertIn("note: other bits follow than without the stop; it was made with ranks: 2, threads of each: 1, device: cpu", result.output)

    def test_checkpoints_that_do_not_fit(self):
        quick = ["--processes", 2, "--epochs", 1, "--checkpoint"]
        self.assert_refused(run(*quick, self.checkpoint, "--resume"), 1, "rank 0", "cannot open", "checkpoint.pt")
        self.assert_refused(run(*quick, TRAINER, "--resume"), 1, "is no checkpoint of this model")
        self.assert_refused(run(*quick, self.folder / "none" / "checkpoint.pt"), 1, "none")
        self.trained(*quick, self.checkpoint)
        other_seed = run(*quick, self.checkpoint, "--resume", "--seed", 2)
        self.assert_refused(other_seed, 1, "was made with", "--seed 1, not with", "--seed 2")

    def test_no_digits(self):
        missing = self.folder / "none"
        self.assert_refused(run("--processes", 2, data=missing), 1, "rank 0 ", "cannot open %s/train-images" % missing)
        self.assert_refused(run(data=missing), 1, "cannot open %s/train-images" % missing)

    def test_no_digits_under_a_launcher(self):
        """Rank 0 alone looks for them; both ranks end with status 1."""
        job = {"HFCOMM_JOB": "no-digits-%d" % os.getpid(), "HFCOMM_WORLD_SIZE": "2"}
        command = command_of(data=self.folder / "none")
        results = [Result(rank) for rank in [start(command, **job, HFCOMM_RANK=str(rank)) for rank in range(2)]]
        self.assert_refused(results[0], 1, "rank 0/2", "cannot open")
        self.assert_refused(results[1], 1, "rank 1/2", "rank 0 (pid")

    def test_broken_digits(self):
        for name in os.listdir(DIGITS):
            (self.folder / name).write_bytes((DIGITS / name).read_bytes())
        labels = self.folder / "train-labels-idx1-ubyte"
        whole = labels.read_bytes()
        for content, words in (
            (whole[:100], "is cut off"),
            (b"P5 8 8 16", "is no IDX file"),
            (whole[:4] + (9).to_bytes(4, "big") + whole[8:], "for each label"),
            (whole[:-1] + b"\x0a", "labels above 9"),
        ):
            with self.subTest(words=words):
                labels.write_bytes(content)
                self.assert_refused(run(data=self.folder), 1, words)

    def test_a_batch_that_cannot_be_divided(self):
        self.assert_refused(run("--processes", 2, "--batch", 33), 1, "a batch of 33", "among 2 ranks")

    def test_bad_options(self):
        self.assertEqual(Result(start([TRAINER, "--help"])).status, 0)
        for bad in (["--resume"], ["--device", "abacus"], ["--epochs", 0], ["--nonsense"]):
            with self.subTest(bad=bad):
                result = run(*bad)
                self.assertEqual(result.status, 2)
                self.assertIn(bad[0], result.errors.splitlines()[0])


if __name__ == "__main__":
    unittest.main()
