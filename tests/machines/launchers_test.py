#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Launchers that start a job on several machines (tools/machines.py): the program calls init() without arguments.

    launchers_test.py RANK_PROGRAM HFRUN [CASE...]

A case whose launcher is not installed is skipped.
"""

import os
import re
import sys

from jobs import Job, Machines, digest_of, require, require_digest, run_cases
from launchers import hfrun, hydra, mpirun, torchrun

PLACEMENTS = ([0, 0, 0, 1], [0, 0, 1, 1])


def require_placement(text, placement):
    """Each rank has found its machine, and its place there."""
    machines = sorted(set(placement))
    for rank, machine in enumerate(placement):
        local = placement[:rank].count(machine), placement.count(machine)
        place = r"node %d of %d, %d of %d there" % (machines.index(machine), len(machines), *local)
        require(re.search(r"rank %d of %d is pid \d+, %s" % (rank, len(placement), place), text), place + ": " + text)


class Cases:
    def __init__(self, program, hfrun_program):
        self.program = program
        self.hfrun_program = hfrun_program

    def _start(self, launch):
        machines = Machines(2)
        wanted = digest_of(Job(machines, self.program, [0] * 4, "training").finish())
        for placement in PLACEMENTS:
            text = launch(machines, placement, [self.program, "training"])
            require_placement(text, placement)
            require_digest([text], wanted, placement)
        machines.close()

    def _late(self, launch):
        """Rank 0 is not the first of its machine."""
        machines = Machines(2)
        wait = '[ "$PMI_RANK$OMPI_COMM_WORLD_RANK" != 0 ] || sleep 0.5; exec "$0" start'
        text = launch(machines, PLACEMENTS[0], ["sh", "-c", wait, self.program])
        require_placement(text, PLACEMENTS[0])
        machines.close()

    def _nested(self, launch):
        """Each of the launcher's ranks starts a job of its own."""
        machines = Machines(2)
        text = launch(machines, [0, 1], [self.hfrun_program, "-n", "2", "--plain", self.program, "start"])
        for rank in range(2):
            found = re.findall(r"rank %d of 2 is pid \d+, node 0 of 1, %d of 2 there" % (rank, rank), text)
            require(len(found) == 2, text)
        machines.close()

    def openmpi(self):
        """Open MPI's mpirun."""
        self._start(mpirun)

    def openmpi_late(self):
        """Open MPI's mpirun, rank 0 last."""
        self._late(mpirun)

    def openmpi_nested(self):
        """hfrun under Open MPI's mpirun."""
        self._nested(mpirun)

    def mpich(self):
        """MPICH's mpiexec."""
        self._start(hydra)

    def mpich_late(self):
        """MPICH's mpiexec, rank 0 last."""
        self._late(hydra)

    def mpich_nested(self):
        """hfrun under MPICH's mpiexec."""
        self._nested(hydra)

    def hfrun(self):
        """hfrun with hosts and another remote shell. It makes a secret."""
        self._start(lambda *arguments: hfrun(self.hfrun_program, *arguments))

    def torchrun(self):
        """torchrun, which starts as many ranks on each machine."""
        machines = Machines(2)
        wanted = digest_of(Job(machines, self.program, [0] * 4, "training").finish())
        text = torchrun(machines, [0, 0, 1, 1], [self.program, "training"])
        require_placement(text, [0, 0, 1, 1])
        require_digest([text], wanted, "torchrun")
        machines.close()


if __name__ == "__main__":
    run_cases(Cases(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])), sys.argv[3:])
