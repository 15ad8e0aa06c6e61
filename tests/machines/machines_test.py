#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Jobs on several machines, which are network namespaces (tools/machines.py).

    machines_test.py RANK_PROGRAM [CASE...]

Needs root, or a system that lets users make namespaces; exits with 77, which counts as skipped, where neither is there.
"""

import os
import re
import signal
import sys
import time

from jobs import (
    HOST,
    Job,
    Machines,
    Skipped,
    digest_of,
    require,
    require_digest,
    require_in,
    require_tool,
    run_cases,
)


class Cases:
    def __init__(self, program):
        self.program = program

    def job(self, machines, placement, task, **more):
        return Job(machines, self.program, placement, task, **more)

    def _require_same_bits(self, machines, task, placements):
        """Each of the placements gives the digest of as many ranks on one machine."""
        wanted = digest_of(self.job(machines, [0] * len(placements[0]), task).finish())
        for placement in placements:
            require_digest(self.job(machines, placement, task).finish(), wanted, placement)

    def operations(self):
        """All operations give the same bits, wherever the ranks are."""
        machines = Machines(4)
        self._require_same_bits(
            machines, "operations", [[0, 0, 1, 1], [0, 0, 0, 1], [0, 1, 1, 2], [0, 1, 0, 1], [1, 0, 2, 0], [0, 1, 2, 3]]
        )
        self._require_same_bits(machines, "operations", [[0, 0, 1, 2, 2, 2, 2, 3]])
        machines.close()

    def training(self):
        """A model that is trained on several machines has the parameters of one trained on one, to the bit."""
        machines = Machines(3)
        self._require_same_bits(machines, "training", [[0, 0, 1, 1], [0, 1, 1, 2]])
        machines.close()

    def ipv6(self):
        """A network without IPv4."""
        machines = Machines(2, ipv4=False)
        self._require_same_bits(machines, "operations", [[0, 1]])
        machines.close()

    def loss(self):
        """A network that loses packets changes no result, and nobody is declared lost."""
        require_tool("nft")
        for percent, task in ((5, "operations"), (10, "training")):
            machines = Machines(2)
            wanted = digest_of(self.job(machines, [0] * 4, task).finish())
            for number in range(2):
                machines.lose(number, percent)
            require_digest(self.job(machines, [0, 0, 1, 1], task).finish(), wanted, "%d %% loss" % percent)
            machines.close()

    def late_data(self):
        """A rank leaves, and what it sent last arrives after the news of that."""
        require_tool("nft")
        machines = Machines(2)
        job = self.job(machines, [0, 1], "leave")
        job.wait_for("working")
        machines.drop(0, "meta length > 250")  # frames of data; what the side channel sends is shorter
        job.wait_for("leaving", rank=1)
        time.sleep(1)
        machines.drop(0, None)
        require_in("sum 3", job.finish()[0])
        machines.close()

    def rates(self):
        """Neither does a slow network."""
        require_tool("tc")
        machines = Machines(2, rate="100mbit")
        require_in("\n0 wrong sums", self.job(machines, [0, 0, 1, 1], "large").finish()[0])
        self._require_same_bits(machines, "training", [[0, 0, 1, 1]])
        for rate in ("500mbit", "2gbit"):
            for number in range(2):
                machines.limit(number, rate)
            self._require_same_bits(machines, "operations", [[0, 0, 1, 1]])
        machines.close()

    def names(self):
        """A host name that leads to loopback on its own machine, and to the network from the others."""
        machines = Machines(2)
        texts = self.job(machines, [0, 0, 1], "start", address=HOST % 0).finish()
        require_in("node 1 of 2", texts[2])
        machines.close()

    @staticmethod
    def _through_file(path, ranks):
        """Returns the variables of ranks that meet by a file, and none of those that tell a rank without one."""
        names = ("JOB", "RANK", "WORLD_SIZE", "LOCAL_SIZE", "LOCAL_RANK", "ADDRESS")
        none = {"HFCOMM_" + name: None for name in names}
        return {rank: {**none, "TEST_FILE": path, "TEST_RANK": rank, "TEST_SIZE": ranks} for rank in range(ranks)}

    def file(self):
        """The root's address in a file that the machines share."""
        machines = Machines(2)
        path = "/tmp/hfcomm-machines-%d" % os.getpid()
        texts = self.job(machines, [0, 1, 1], "start", per_rank=self._through_file(path, 3)).finish()
        require_in("node 0 of 2", texts[0])
        require_in("node 1 of 2", texts[2])
        require(not os.path.exists(path), "the file is left behind")
        machines.close()

    def stale_file(self):
        """A file with the address of an earlier job's root, which does not answer any more, is replaced."""
        machines = Machines(2)
        path = "/tmp/hfcomm-machines-%d" % os.getpid()
        for place in ("10.77.0.1/20009", "10.77.0.99/20009"):
            with open(path, "w", encoding="ascii") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write("hfcomm1/anearlierjob/%s\n" % place)
            per_rank = self._through_file(path, 2)
            per_rank[0]["TEST_LATE_MS"] = "700"
            texts = self.job(machines, [0, 1], "start", per_rank=per_rank).finish()
            require_in("node 1 of 2", texts[1])
            require(not os.path.exists(path), "the file is left behind")
        machines.close()

    def connect(self):
        """Groups that their members alone make, beside the session, from the launcher's variables and at an address."""
        machines = Machines(2)
        for placement in ([0, 0, 1, 1], [0, 1]):
            require_in("\n0 wrong groups", self.job(machines, placement, "connect").finish()[0])
        machines.close()

    def several_addresses(self):
        """A root with an address that others cannot reach, and one that they can: each gets a turn."""
        machines = Machines(2)
        path = "/tmp/hfcomm-machines-%d" % os.getpid()
        extra = "ip link add aaa type veth peer bbb; ip addr add 10.66.0.1/24 dev aaa; ip link set aaa up;"
        extra += "ip link set bbb up"
        machines.command(0, ["sh", "-ec", extra], check=True)
        per_rank = self._through_file(path, 2)
        per_rank[0]["HFCOMM_INTERFACE"] = "aaa,eth0"
        texts = self.job(machines, [0, 1], "start", per_rank=per_rank).finish()
        require_in("node 1 of 2", texts[1])
        machines.close()

    def many_ranks(self):
        """64 ranks on 4 machines."""
        machines = Machines(4)
        texts = self.job(machines, [rank // 16 for rank in range(64)], "start").finish()
        for rank, text in enumerate(texts):
            require_in("rank %d of 64" % rank, text)
            require_in("node %d of 4, %d of 16 there" % divmod(rank, 16), text)
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

    def broken_data_connection(self):
        """A connection for data that breaks, while both machines live, is told and not waited for."""
        machines = Machines(2)
        job = self.job(machines, [0, 0, 1, 1], "until-error", address="%s:20077" % machines.address(0))
        job.wait_for("working")
        ended = machines.break_connections(1, but_port=20077)
        if not ended:
            machines.close()
            raise Skipped("this kernel does not end connections for ss -K")
        start = time.monotonic()
        for text in job.finish():
            require_in("has no working tcp connection", text)
        require(time.monotonic() - start < 10, "they noticed it too late")
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

    def terminated(self):
        """An exception that nobody catches is told, also of the process that connects its machine."""
        machines = Machines(2)
        for other_first in (True, False):
            # The rank that comes first connects its machine.
            late = {3 if other_first else 2: {"TEST_LATE_MS": 500}}
            start = time.monotonic()
            texts = self.job(machines, [0, 0, 1, 1], "terminate", per_rank=late).finish()
            require(time.monotonic() - start < 15, "they noticed it too late")
            for rank in range(3):
                require_in("rank %d blames 3" % rank, texts[rank])
                require_in("failed: the disk is full", texts[rank])
        machines.close()

    def secrets(self):
        """Without the job's secret, or with another, no machine gets in; both sides are told why."""
        machines = Machines(2)
        texts = self.job(machines, [0, 1], "start", environment={"HFCOMM_SECRET": None}).finish()
        for text in texts:
            require_in("HFCOMM_SECRET_FILE", text)
        other = {1: {"HFCOMM_SECRET": "another secret, as long as it has to be"}}
        quick = {"TEST_START_MS": 4500}
        address = machines.address(0) + ":29555"
        texts = self.job(machines, [0, 1], "start", environment=quick, per_rank=other, address=address).finish()
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


if __name__ == "__main__":
    run_cases(Cases(os.path.abspath(sys.argv[1])), sys.argv[2:])
