# SPDX-License-Identifier: MIT
"""Jobs on several machines (tools/machines.py), and the cases that tests of them consist of."""

import os
import re
import shutil
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools"))
from machines import HOST, SECRET, Machines, enter_namespace, rank_command


class Job:
    """The ranks of one job. `placement` has the machine of each."""

    started = []

    def __init__(self, machines, program, placement, task, environment=None, address=None, per_rank=None):
        self.ranks = []
        job = "test-%d-%f" % (os.getpid(), time.time())
        shared = {**({"HFCOMM_ADDRESS": address} if address else {}), **(environment or {})}
        for rank in range(len(placement)):
            changes = {**shared, **(per_rank or {}).get(rank, {})}
            self.ranks.append(
                subprocess.Popen(
                    rank_command(machines, job, placement, rank, [program, task], changes),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
            Job.started.append(self.ranks[-1])

    @staticmethod
    def end_all():
        """Ends what a failed case has left."""
        for process in Job.started:
            if process.poll() is None:
                process.kill()
        Job.started = []

    def wait_for(self, text, rank=0):
        """Returns what the rank prints up to a line with `text`."""
        seen = ""
        for line in self.ranks[rank].stdout:
            seen += line
            if text in line:
                return seen
        raise AssertionError("rank %d ended without '%s':\n%s" % (rank, text, seen))

    def pid(self, rank):
        return int(re.search(r"pid (\d+)", self.wait_for("pid", rank)).group(1))

    def finish(self, but=(), limit=60):
        """Returns what the ranks print; those in `but` are not waited for."""
        texts = []
        for rank, process in enumerate(self.ranks):
            if rank in but:
                process.kill()
            try:
                texts.append(process.communicate(timeout=limit)[0])
            except subprocess.TimeoutExpired:
                for other in self.ranks:
                    other.kill()
                raise AssertionError("rank %d does not end" % rank) from None
        return texts


def require(condition, text):
    if not condition:
        raise AssertionError(text)


def require_in(part, text):
    require(part in text, "'%s' is not in:\n%s" % (part, text))


def digest_of(texts):
    found = re.search("digest ([0-9a-f]+)", texts[0])
    require(found, "rank 0 has printed no digest:\n" + "\n".join(texts))
    return found.group(1)


def require_digest(texts, wanted, what):
    require(digest_of(texts) == wanted, "other bits on %s:\n%s" % (what, "\n".join(texts)))


class Skipped(Exception):
    """A case cannot run here; the text says what is missing."""


def require_tool(*names):
    """Returns the first of these programs that is installed."""
    for name in names:
        path = shutil.which(name)
        if path:
            return path
    raise Skipped("there is no %s" % names[0])


def run_cases(cases, names):
    """Runs the methods of `cases` that have a comment and no "_" before their name, or those named, and exits.

    The last line sums them up.
    """
    reason = enter_namespace()
    if reason:
        print("skipped: " + reason)
        sys.exit(77)
    passed, failed, skipped = 0, 0, 0
    for name in names or [name for name, case in vars(type(cases)).items() if case.__doc__ and name[0] != "_"]:
        start = time.monotonic()
        try:
            getattr(cases, name)()
            passed += 1
            print("ok      %s (%.1f s)" % (name, time.monotonic() - start), flush=True)
        except Skipped as problem:
            skipped += 1
            print("[hfcomm] skipped: %s: %s" % (name, problem), flush=True)
        except (AssertionError, OSError, subprocess.SubprocessError) as problem:
            failed += 1
            print("FAILED  %s: %s" % (name, problem), flush=True)
        Job.end_all()
        Machines.close_all()
    print("%d passed, %d failed, %d skipped" % (passed, failed, skipped))
    sys.exit(1 if failed else 0 if passed else 77)
