#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of the Python module (examples/torch_backend) across machines, which are network namespaces (tools/machines.py).

module_machines_test.py [CASE...]     exit status 77: there are no namespaces here, no PyTorch, or no UCX
"""

import datetime
import os
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../machines"))
from jobs import Job, Machines, require, require_in, run_cases  # noqa: E402 pylint: disable=wrong-import-position

PORT = 29611  # of torch.distributed's store


def run_rank(task, rank, ranks, address):
    """The ranks' part of the case `task`."""
    import hfcomm_torch
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    limit = datetime.timedelta(seconds=15 if task == "short" else 30)
    store = dist.TCPStore(address, PORT, ranks, rank == 0, limit)
    dist.init_process_group("hfcomm", store=store, rank=rank, world_size=ranks, timeout=limit)
    if task == "secret":
        backend = hfcomm_torch.make_backend(dist.PrefixStore("own", store), rank, ranks, limit)
        words = store.get("own/hfcomm/1/job").decode().split()
        print("%s machines, a secret of %d characters" % (words[1], len("".join(words[2:]))))
        del backend
    if task in ("operations", "secret"):
        check_operations(torch, dist, rank, ranks)
    elif task == "lost":
        print("pid %d" % os.getpid(), flush=True)
        try:
            while True:
                dist.all_reduce(torch.ones(1000))
                print("working", flush=True)
                time.sleep(0.01)
        except RuntimeError as problem:
            print("rank %d: %s" % (rank, problem), flush=True)
            os._exit(0)
    dist.destroy_process_group()
    print("rank %d is done" % rank, flush=True)


def check_operations(torch, dist, rank, ranks):
    total = ranks * (ranks + 1) // 2
    for count in (1, 1000, 1 << 20):
        data = torch.full((count,), rank + 1.0)
        dist.all_reduce(data)
        require(bool((data == total).all()), "all_reduce of %d" % count)
        for root in range(ranks):
            data = torch.full((count,), float(rank))
            dist.broadcast(data, root)
            require(bool((data == root).all()), "broadcast of %d from %d" % (count, root))
        out = torch.empty(count)
        going = dist.isend(torch.full((count,), float(rank)), (rank + 1) % ranks)
        dist.recv(out, (rank - 1) % ranks)
        going.wait()
        require(bool((out == (rank - 1) % ranks).all()), "message of %d" % count)
    everyone = [None] * ranks
    dist.all_gather_object(everyone, {"rank": rank})
    require(everyone == [{"rank": other} for other in range(ranks)], "all_gather_object")
    ends = dist.new_group([0, ranks - 1])  # of both machines
    halves = [dist.new_group(list(range(first, first + ranks // 2))) for first in (0, ranks // 2)]  # of one machine each
    if rank in (0, ranks - 1):
        data = torch.full((3,), rank + 1.0)
        dist.all_reduce(data, group=ends)
        require(data[0].item() == 1 + ranks, "all_reduce in the group of both ends")
    half = 0 if rank < ranks // 2 else 1
    data = torch.ones(3)
    dist.all_reduce(data, group=halves[half])
    require(data[0].item() == ranks // 2, "all_reduce in a half")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1, bias=False))
    model(torch.full((1, 2), rank + 1.0)).sum().backward()
    require(model.module.weight.grad[0, 0].item() == total / ranks, "DistributedDataParallel's average")


class Cases:
    """Each method is a case; its comment says what must hold."""

    def _job(self, machines, placement, task, changes=None):
        address = machines.address(placement[0])
        job = Job.__new__(Job)
        job.ranks = []
        keep = {name: value for name, value in os.environ.items() if not name.startswith("HFCOMM_SECRET")}
        for rank, machine in enumerate(placement):
            command = [sys.executable, __file__, "--rank", task, str(rank), str(len(placement)), address]
            environment = {**keep, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0", **(changes or {}).get(rank, {})}
            job.ranks.append(subprocess.Popen(machines.inside(machine, command), env=environment, text=True,
                                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
            Job.started.append(job.ranks[-1])
        return job

    def operations(self):
        """All operations between two machines of two ranks, with groups of both and of one machine; the store has the secret."""
        machines = Machines(2)
        for text in self._job(machines, [0, 0, 1, 1], "operations").finish():
            require_in("is done", text)
        machines.close()

    def secrets(self):
        """A secret of the user is not put into the store, and one that differs is refused."""
        machines = Machines(2)
        same = {rank: {"HFCOMM_SECRET": "0123456789abcdef" * 2} for rank in range(2)}
        texts = self._job(machines, [0, 1], "secret", same).finish()
        require_in("is done", texts[0])
        require("0123456789abcdef" not in texts[0] and "secret of 0 characters" in texts[0], texts[0])
        texts = self._job(machines, [0, 1], "secret").finish()
        require_in("secret of 64 characters", texts[0])
        other = {**same, 1: {"HFCOMM_SECRET": "another secret than rank 0's"}}
        texts = self._job(machines, [0, 1], "short", other).finish()
        require_in("secret", texts[0] + texts[1])
        require("is done" not in texts[0] + texts[1], "a rank with another secret was let in:\n" + texts[1])
        machines.close()

    def lost(self):
        """A rank of another machine that is killed is named to all."""
        machines = Machines(2)
        job = self._job(machines, [0, 0, 1, 1], "lost")
        pid = job.pid(3)
        job.wait_for("working")
        begin = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        texts = job.finish(but=[3])
        for rank in range(3):
            require_in("rank 3", texts[rank])
        require(time.monotonic() - begin < 10, "they noticed it too late")
        machines.close()


def main():
    if sys.argv[1:2] == ["--rank"]:
        task, rank, ranks, address = sys.argv[2:]
        run_rank(task, int(rank), int(ranks), address)
        return
    try:
        import torch.distributed  # noqa: F401
    except ImportError as missing:
        print("module_machines_test: skipped: %s" % missing)
        sys.exit(77)
    run_cases(Cases(), sys.argv[1:])


if __name__ == "__main__":
    main()
