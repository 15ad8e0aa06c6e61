#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Jobs on several machines, which are network namespaces (tools/machines.py).

    machines_test.py RANK_PROGRAM [CASE...]

Needs root, or a system that lets users make namespaces; exits with 77, which counts as skipped, where neither is there.
"""

import os
import re
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools"))
from machines import HOST, Machines, enter_namespace, rank_variables


class Job:
    """The ranks of one job. `placement` has the machine of each."""

    started = []

    def __init__(self, machines, program, placement, task, environment=None, address=None, per_rank=None):
        self.ranks = []
        job = "test-%d-%f" % (os.getpid(), time.time())
        for rank, machine in enumerate(placement):
            variables = rank_variables(machines, job, placement, rank)
            variables.update({"HFCOMM_ADDRESS": address} if address else {})
            variables.update({**(environment or {}), **((per_rank or {}).get(rank, {}))})
            words = ["%s=%s" % item for item in variables.items() if item[1] is not None]
            self.ranks.append(
                subprocess.Popen(
                    machines.inside(machine, ["env", *words, program, task]),
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


class Cases:
    def __init__(self, program):
        self.program = program

    def job(self, machines, placement, task, **more):
        return Job(machines, self.program, placement, task, **more)

    def flat_digest(self, machines, ranks):
        return digest_of(self.job(machines, [0] * ranks, "operations").finish())

    def operations(self):
        """All operations give the same bits, wherever the ranks are."""
        machines = Machines(3)
        wanted = self.flat_digest(machines, 4)
        for placement in ([0, 0, 1, 1], [0, 0, 0, 1], [0, 1, 1, 2], [0, 1, 0, 1], [1, 0, 2, 0]):
            texts = self.job(machines, placement, "operations").finish()
            require(digest_of(texts) == wanted, "other bits on %s:\n%s" % (placement, "\n".join(texts)))
        machines.close()

    def ipv6(self):
        """A network without IPv4."""
        machines = Machines(2, ipv4=False)
        wanted = self.flat_digest(machines, 2)
        require(digest_of(self.job(machines, [0, 1], "operations").finish()) == wanted, "other bits")
        machines.close()

    def names(self):
        """A host name that leads to loopback on its own machine, and to the network from the others."""
        machines = Machines(2)
        texts = self.job(machines, [0, 0, 1], "start", address=HOST % 0).finish()
        require_in("node 1 of 2", texts[2])
        machines.close()

    def file(self):
        """The root's address in a file that the machines share."""
        machines = Machines(2)
        path = "/tmp/hfcomm-machines-%d" % os.getpid()
        names = ("HFCOMM_JOB", "HFCOMM_RANK", "HFCOMM_WORLD_SIZE", "HFCOMM_LOCAL_SIZE", "HFCOMM_LOCAL_RANK")
        per_rank = {
            rank: {**dict.fromkeys(names), "HFCOMM_ADDRESS": None, "TEST_FILE": path, "TEST_RANK": rank, "TEST_SIZE": 3}
            for rank in range(3)
        }
        texts = self.job(machines, [0, 1, 1], "start", per_rank=per_rank).finish()
        require_in("node 0 of 2", texts[0])
        require_in("node 1 of 2", texts[2])
        require(not os.path.exists(path), "the file is left behind")
        machines.close()

    def many_jobs(self):
        """16 jobs at once find their own ports."""
        machines = Machines(2)
        jobs = [self.job(machines, [0, 1], "start") for _ in range(16)]
        for job in jobs:
            require_in("node 1 of 2", job.finish()[1])
        machines.close()

    def killed(self):
        """A rank of another machine, and the one that connects its machine, are named."""
        machines = Machines(2)
        for victim in (2, 3):
            job = self.job(machines, [0, 0, 1, 1], "until-error")
            pid = job.pid(victim)
            job.wait_for("working")
            start = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            texts = job.finish(but=[victim])
            print("rank %d was killed: %.3f s until all had ended" % (victim, time.monotonic() - start))
            for rank in set(range(4)) - {victim}:
                require_in("rank %d blames %d" % (rank, victim), texts[rank])
        machines.close()

    def killed_sender(self):
        """A receive from a killed rank of another machine ends."""
        machines = Machines(2)
        job = self.job(machines, [0, 0, 1], "message-until-error")
        pid = job.pid(2)
        job.wait_for("working")
        os.kill(pid, signal.SIGKILL)
        texts = job.finish(but=[2])
        for rank in (0, 1):
            require_in("rank %d blames 2" % rank, texts[rank])
        machines.close()

    def killed_machine(self):
        """All ranks of a machine die at once."""
        machines = Machines(3)
        job = self.job(machines, [0, 1, 1, 2], "until-error")
        pids = [job.pid(rank) for rank in (1, 2)]
        job.wait_for("working")
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        texts = job.finish(but=[1, 2])
        blamed = re.search("rank 0 blames ([12])", texts[0])
        require(blamed, texts[0])
        require_in("rank 3 blames %s" % blamed.group(1), texts[3])
        machines.close()

    def silent(self):
        """A machine whose network is silent, and one that is stopped, are named within the limit."""
        for stopped in (False, True):
            machines = Machines(3)
            job = self.job(machines, [0, 1, 2], "until-error", environment={"TEST_SILENCE_MS": 1000})
            pid = job.pid(2)
            job.wait_for("working")
            start = time.monotonic()
            if stopped:
                os.kill(pid, signal.SIGSTOP)
            else:
                machines.silence(2)
            texts = job.finish(but=[2])
            print("%s: %.2f s" % ("stopped" if stopped else "silent", time.monotonic() - start))
            for rank in (0, 1):
                require_in("rank %d blames 2" % rank, texts[rank])
                require_in("has been silent for 1 s", texts[rank])
            machines.close()

    def root_lost(self):
        """The others end, too, when the root's machine is lost."""
        machines = Machines(2)
        job = self.job(machines, [0, 1, 1], "until-error")
        pid = job.pid(0)
        job.wait_for("working")
        os.kill(pid, signal.SIGKILL)
        texts = job.finish(but=[0])
        for rank in (1, 2):
            require_in("rank %d blames 0" % rank, texts[rank])
        machines.close()

    def errors(self):
        """Exceptions, and calls that differ, are told on other machines as on one."""
        machines = Machines(2)
        texts = self.job(machines, [0, 0, 1, 1], "throw").finish()
        for rank in range(3):
            require_in("rank 3 (pid", texts[rank])
            require_in("failed: an exception ended its session", texts[rank])
        texts = self.job(machines, [0, 1], "mismatch").finish()
        for rank in range(2):
            require_in("rank 0 called barrier() at rank.cpp", texts[rank])
            require_in("rank 1 called broadcast(3 x float32, root 0) at rank.cpp", texts[rank])
        machines.close()

    def secrets(self):
        """Without the job's secret, or with another, no machine gets in; both sides are told why."""
        machines = Machines(2)
        texts = self.job(machines, [0, 1], "start", environment={"HFCOMM_SECRET": None}).finish()
        for text in texts:
            require_in("HFCOMM_SECRET_FILE", text)
        other = {1: {"HFCOMM_SECRET": "another secret, as long as it has to be"}}
        texts = self.job(machines, [0, 1], "start", per_rank=other, address=machines.address(0) + ":29555").finish()
        require_in("is HFCOMM_SECRET the same on all machines?", texts[1])
        no_word = {"HFCOMM_SECRET": None, "HFCOMM_LOCAL_SIZE": None, "HFCOMM_LOCAL_RANK": None}
        job = self.job(machines, [0, 1], "start", environment=no_word)
        require_in("which is no address of this machine", job.wait_for("HFCOMM_SECRET_FILE", rank=1))
        job.finish(but=[0])
        nothing = {"HFCOMM_SECRET": None, "HFCOMM_AUTH": "none"}
        require_in("node 1 of 2", self.job(machines, [0, 1], "start", environment=nothing).finish()[1])
        machines.close()

    def two_of_one_rank(self):
        """Two processes on two machines that claim one rank are told so."""
        machines = Machines(3)
        claim = {2: {"HFCOMM_RANK": 1, "HFCOMM_LOCAL_RANK": 0}}
        texts = self.job(machines, [0, 1, 2], "start", per_rank=claim).finish()
        for text in texts:
            require_in("two processes claim rank 1", text)
        machines.close()


def main():
    reason = enter_namespace()
    if reason:
        print("skipped: " + reason)
        sys.exit(77)
    cases = Cases(os.path.abspath(sys.argv[1]))
    names = sys.argv[2:] or [name for name, case in vars(Cases).items() if case.__doc__ and not name.startswith("_")]
    failed = 0
    for name in names:
        start = time.monotonic()
        try:
            getattr(cases, name)()
            print("ok      %s (%.1f s)" % (name, time.monotonic() - start), flush=True)
        except (AssertionError, OSError, subprocess.SubprocessError) as problem:
            failed += 1
            print("FAILED  %s: %s" % (name, problem), flush=True)
        Job.end_all()
        Machines.close_all()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
