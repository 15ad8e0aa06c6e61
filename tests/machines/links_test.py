#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The operations over the other links, on several machines (tools/machines.py).

    links_test.py [ucx=RANK_PROGRAM] [gloo=RANK_PROGRAM] [openmpi=RANK_PROGRAM] [mpich=RANK_PROGRAM] [CASE...]

The programs are those of rank.cpp that have the link. A case whose program is not there, because the library was not
there to build it, is skipped.
"""

import os
import sys

from jobs import Job, Machines, Skipped, digest_of, require_digest, run_cases
from launchers import hydra, mpirun

PLACEMENTS = ([0, 0, 1, 1], [0, 0, 0, 1])


class Cases:
    def __init__(self, programs):
        self.programs = programs

    def program(self, name, package):
        if name not in self.programs:
            raise Skipped("the tests were built without it; install %s" % package)
        return os.path.abspath(self.programs[name])

    def over(self, name, package, placements=PLACEMENTS):
        program = self.program(name, package)
        machines = Machines(2)
        wanted = digest_of(Job(machines, program, [0] * len(placements[0]), "operations").finish())
        for placement in placements:
            job = Job(machines, program, placement, "operations", environment={"HFCOMM_LINK": name})
            require_digest(job.finish(), wanted, placement)
        machines.close()

    def ucx(self):
        """All operations over UCX."""
        self.over("ucx", "libucx-dev")

    def ucx_direct(self):
        """All operations over UCX, with one rank on each machine."""
        self.over("ucx", "libucx-dev", placements=([0, 1],))

    def gloo(self):
        """All operations over Gloo."""
        self.over("gloo", "libgloo-dev")

    def over_mpi(self, program, launch):
        machines = Machines(2)
        wanted = digest_of(Job(machines, program, [0] * 4, "operations").finish())
        for placement in PLACEMENTS:
            text = launch(machines, placement, [program, "operations"], {"HFCOMM_LINK": "mpi"})
            require_digest([text], wanted, placement)
        # MPI's launchers take a rank for failed that ends without MPI_Finalize.
        for task in ("rank-0-stays", "last-rank-stays"):
            launch(machines, PLACEMENTS[1], [program, task], {"HFCOMM_LINK": "mpi"})
        machines.close()

    def openmpi(self):
        """All operations over Open MPI."""
        self.over_mpi(self.program("openmpi", "libopenmpi-dev"), mpirun)

    def mpich(self):
        """All operations over MPICH."""
        self.over_mpi(self.program("mpich", "libmpich-dev"), hydra)


if __name__ == "__main__":
    words = sys.argv[1:]
    programs = dict(word.split("=", 1) for word in words if "=" in word)
    run_cases(Cases(programs), [word for word in words if "=" not in word])
