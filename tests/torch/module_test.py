#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of the Python module (examples/torch_backend): every operation that torch.distributed has for tensors in host memory.

module_test.py [--ranks N,N] [--module FOLDERS] [CASE...]

Each case runs in N processes that have one group; afterwards the group must still be usable. Prints a line for each.
Exit status: 1 if a case failed, 77 where PyTorch is missing.
"""

import argparse
import datetime
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback

LIMIT = 120  # seconds for all cases of one number of ranks
TYPES = ["uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
LATER_TYPES = ["uint16", "uint32", "uint64"]


def require(condition, text):
    if not condition:
        raise AssertionError(text)


def require_equal(got, wanted, what):
    require(torch.equal(got, wanted), f"{what}: {got} instead of {wanted}")


def require_error(part, call):
    try:
        call()
    except Exception as problem:  # pylint: disable=broad-except
        require(part in str(problem), f"an error without '{part}': {problem}")
        return
    raise AssertionError(f"no error with '{part}'")


class Cases:
    """Methods whose names begin with no underscore are the cases."""

    def __init__(self, rank, ranks):
        self.rank, self.ranks = rank, ranks
        self.total = ranks * (ranks + 1) // 2

    def _mine(self, count=5, dtype=None):
        return torch.full((count,), self.rank + 1, dtype=dtype or torch.float32)

    def all_reduce(self):
        """Sums of every type, and every reduction."""
        for name in TYPES + [one for one in LATER_TYPES if hasattr(torch, one)]:
            data = self._mine(7, getattr(torch, name))
            dist.all_reduce(data)
            wanted = torch.full((7,), self.total, dtype=data.dtype)
            require(data.tolist() == wanted.tolist(), f"all_reduce of {name}: {data}")
        reductions = {"MAX": self.ranks, "MIN": 1, "PRODUCT": 6 if self.ranks == 3 else 2, "AVG": (self.ranks + 1) / 2}
        for name, wanted in reductions.items():
            data = self._mine()
            dist.all_reduce(data, getattr(dist.ReduceOp, name))
            require_equal(data, torch.full((5,), float(wanted)), name)
        for name, wanted in {"BAND": 0, "BOR": 3, "BXOR": 3 if self.ranks == 2 else 0}.items():
            data = self._mine(dtype=torch.int32)
            dist.all_reduce(data, getattr(dist.ReduceOp, name))
            require_equal(data, torch.full((5,), wanted, dtype=torch.int32), name)
        data = torch.tensor([self.rank == 0, False])
        dist.all_reduce(data, dist.ReduceOp.MAX)
        require_equal(data, torch.tensor([True, False]), "bools")

    def all_reduce_forms(self):
        """Empty, large and not contiguous tensors, sparse ones, lists, and works in any order."""
        dist.all_reduce(torch.empty(0))
        large = self._mine(3 << 20)
        dist.all_reduce(large)
        require(bool((large == self.total).all()), "all_reduce of 12 MiB")
        base = torch.zeros(4, 6)
        columns = base[:, ::2]
        columns += self.rank + 1
        dist.all_reduce(columns)
        require_equal(base[:, 1::2], torch.zeros(4, 3), "the columns between")
        require_equal(columns, torch.full((4, 3), float(self.total)), "columns")
        sparse = torch.sparse_coo_tensor([[self.rank]], [1.0], (self.ranks,))
        dist.all_reduce(sparse)
        require_equal(sparse.to_dense(), torch.ones(self.ranks), "sparse")
        pair = [self._mine(3), self._mine(4)]
        dist.all_reduce_coalesced(pair)
        require_equal(torch.cat(pair), torch.full((7,), float(self.total)), "all_reduce_coalesced")
        many = [torch.full((9,), float(self.rank + index)) for index in range(50)]
        works = [dist.all_reduce(one, async_op=True) for one in many]
        for index in reversed(range(50)):
            works[index].wait()
            require(works[index].is_completed(), "a work that was waited for is not completed")
            wanted = float(self.total - self.ranks + self.ranks * index)
            require_equal(many[index], torch.full((9,), wanted), f"work {index}")

    def rooted(self):
        """broadcast, reduce, gather and scatter from each root."""
        for root in range(self.ranks):
            data = self._mine()
            dist.broadcast(data, root)
            require_equal(data, torch.full((5,), root + 1.0), "broadcast")
            data = self._mine()
            dist.reduce(data, root)
            require(self.rank != root or bool((data == self.total).all()), f"reduce: {data}")
            parts = [torch.empty(5) for _ in range(self.ranks)] if self.rank == root else None
            dist.gather(self._mine(), parts, root)
            require(not parts or [one[4].item() for one in parts] == list(range(1, self.ranks + 1)), f"gather: {parts}")
            parts = [torch.full((2,), float(10 * one)) for one in range(self.ranks)] if self.rank == root else None
            out = torch.empty(2)
            dist.scatter(out, parts, root)
            require_equal(out, torch.full((2,), 10.0 * self.rank), "scatter")

    def gathering(self):
        """all_gather, reduce_scatter and all_to_all: lists, whole tensors and coalesced ones."""
        everyone = torch.arange(1.0, self.ranks + 1)
        parts = [torch.empty(4) for _ in range(self.ranks)]
        dist.all_gather(parts, self._mine(4))
        require_equal(torch.stack(parts)[:, 0], everyone, "all_gather")
        out = torch.empty(self.ranks, 4)
        gather_whole = getattr(dist, "all_gather_into_tensor", None) or dist._all_gather_base
        gather_whole(out, self._mine(4))
        require_equal(out[:, 3].contiguous(), everyone, "all_gather_into_tensor")
        lists = [[torch.empty(2), torch.empty(3)] for _ in range(self.ranks)]
        dist.all_gather_coalesced(lists, [self._mine(2), self._mine(3) + 10])
        require_equal(torch.stack([one[1][2] for one in lists]), everyone + 10, "all_gather_coalesced")
        mine = torch.arange(float(2 * self.ranks)).view(self.ranks, 2) * (self.rank + 1)
        wanted = torch.tensor([2.0 * self.rank, 2.0 * self.rank + 1]) * self.total
        out = torch.empty(2)
        dist.reduce_scatter(out, list(mine))
        require_equal(out, wanted, "reduce_scatter")
        scatter_whole = getattr(dist, "reduce_scatter_tensor", None) or dist._reduce_scatter_base
        scatter_whole(out.zero_(), mine)
        require_equal(out, wanted, "reduce_scatter_tensor")
        if hasattr(dist, "_coalescing_manager") and not torch.__version__.startswith("1."):
            self._coalesced(everyone, mine, wanted)

    def _coalesced(self, everyone, mine, wanted):
        outs = [torch.empty(self.ranks, 2), torch.empty(3, self.ranks).t()]
        flat = [torch.empty(2 * self.ranks), torch.empty(3 * self.ranks)]
        with dist._coalescing_manager(group=dist.group.WORLD):
            dist.all_gather_into_tensor(flat[0], self._mine(2))
            dist.all_gather_into_tensor(flat[1], self._mine(3))
        require_equal(flat[1].view(self.ranks, 3)[:, 1].contiguous(), everyone, "coalesced all_gather_into_tensor")
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        if hasattr(backend, "allgather_into_tensor_coalesced"):
            backend.allgather_into_tensor_coalesced(outs, [self._mine(2), self._mine(3)]).wait()
            require_equal(outs[1][:, 2].contiguous(), everyone, "coalesced all_gather into columns")
        results = [torch.empty(2), torch.empty(4)]
        with dist._coalescing_manager(group=dist.group.WORLD):
            dist.reduce_scatter_tensor(results[0], mine)
            dist.reduce_scatter_tensor(results[1], torch.cat([mine, mine], 1))
        require_equal(results[0], wanted, "coalesced reduce_scatter_tensor")
        require_equal(results[1], torch.cat([wanted, wanted]), "coalesced reduce_scatter_tensor of two columns")

    def exchange(self):
        """all_to_all of equal and of uneven parts."""
        out = torch.empty(self.ranks)
        dist.all_to_all_single(out, torch.arange(float(self.ranks)) + 10 * self.rank)
        require_equal(out, torch.arange(float(self.ranks)) * 10 + self.rank, "all_to_all_single")
        give = [other + 1 for other in range(self.ranks)]
        take = [self.rank + 1] * self.ranks
        out = torch.empty(sum(take), dtype=torch.int64)
        dist.all_to_all_single(out, torch.full((sum(give),), self.rank), take, give)
        require_equal(out, torch.arange(self.ranks).repeat_interleave(self.rank + 1), "uneven all_to_all_single")
        outs = [torch.empty(self.rank + 1) for _ in range(self.ranks)]
        dist.all_to_all(outs, [torch.full((other + 1,), float(self.rank)) for other in range(self.ranks)])
        require_equal(torch.stack(outs)[:, 0], torch.arange(float(self.ranks)), "all_to_all")

    def messages(self):
        """send, recv, from anyone, in batches, and large ones."""
        after, before = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks
        for count in (0, 1, 1000, 1 << 20):
            out = torch.empty(count)
            works = [dist.isend(self._mine(count), after, tag=count), dist.irecv(out, before, tag=count)]
            for work in works:
                work.wait()
            require(count == 0 or bool((out == before + 1).all()), f"message of {count}")
        if self.rank == 0:
            seen = set()
            for _ in range(self.ranks - 1):
                out = torch.empty(3)
                source = dist.recv(out)
                require(out[0].item() == source + 1, "recv from anyone names another sender")
                seen.add(source)
            require(seen == set(range(1, self.ranks)), f"recv from anyone: {seen}")
        else:
            time.sleep(0.2 if self.rank == 1 else 0)  # so the next message of the last rank comes first
            dist.send(self._mine(3), 0)
        out = torch.empty(4)
        operations = [dist.P2POp(dist.isend, self._mine(4), after, tag=1), dist.P2POp(dist.irecv, out, before, tag=1)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        require_equal(out, torch.full((4,), before + 1.0), "batch_isend_irecv")

    def objects(self):
        """All operations on objects."""
        def thing(rank):
            return {"rank": rank, "text": "x" * (1000 * rank)}
        everyone = [thing(rank) for rank in range(self.ranks)]
        out = [None] * self.ranks
        dist.all_gather_object(out, thing(self.rank))
        require(out == everyone, "all_gather_object")
        out = [None] * self.ranks if self.rank == 1 else None
        dist.gather_object(thing(self.rank), out, 1)
        require(out is None or out == everyone, "gather_object")
        box = everyone[:2] if self.rank == 1 else [None, None]
        dist.broadcast_object_list(box, 1)
        require(box == everyone[:2], "broadcast_object_list")
        box = [None]
        dist.scatter_object_list(box, everyone if self.rank == 0 else [None] * self.ranks, 0)
        require(box == [thing(self.rank)], "scatter_object_list")

    def barriers(self):
        """No rank leaves a barrier before the last has come, and a monitored barrier names who is missing."""
        has_monitored = not torch.__version__.startswith("1.")  # for Gloo only there
        for barrier in (dist.barrier, dist.monitored_barrier) if has_monitored else (dist.barrier,):
            if self.rank == self.ranks - 1:
                time.sleep(0.2)
            begin = torch.tensor([time.time()], dtype=torch.float64)
            barrier()
            end = time.time()
            dist.all_reduce(begin, dist.ReduceOp.MAX)
            require(end >= begin.item() - 0.001, f"{barrier.__name__} was left too early")
        if has_monitored and self.rank != self.ranks - 1:
            limit = datetime.timedelta(seconds=0.3)
            part = f"Rank {self.ranks - 1}" if self.rank == 0 else "Please check rank 0 logs"
            require_error(part, lambda: dist.monitored_barrier(timeout=limit, wait_all_ranks=True))

    def groups(self):
        """Groups of some ranks, made by all or by their members only, and several at once."""
        pairs = [dist.new_group([0, other]) for other in range(1, self.ranks)]
        for other in range(1, self.ranks):
            if self.rank in (0, other):
                data = self._mine()
                dist.all_reduce(data, group=pairs[other - 1])
                require_equal(data, torch.full((5,), other + 2.0), f"the group of ranks 0 and {other}")
        if not torch.__version__.startswith("1."):
            members = [0, 1] if self.rank < 2 else [self.rank]  # torch.distributed counts the groups on every rank
            own = dist.new_group(members, use_local_synchronization=True)
            data = self._mine()
            dist.all_reduce(data, group=own)
            require_equal(data, torch.full((5,), 3.0 if self.rank < 2 else self.rank + 1.0), "a group made by its members")
        if hasattr(dist, "split_group") and torch.__version__ >= "2.15":
            own = dist.split_group(split_ranks=[[1, 0], list(range(2, self.ranks))] if self.ranks > 2 else [[1, 0]])
            data = torch.tensor([float(self.rank)])
            dist.broadcast(data, group=own, group_src=0)
            require(data.item() == (1 if self.rank < 2 else 2), f"split_group: {data}")
        for group in [one for one in pairs if one is not dist.GroupMember.NON_GROUP_MEMBER]:
            dist.destroy_process_group(group)

    def errors(self):
        """Mistakes are errors on all ranks, and the group goes on."""
        def different():
            if self.rank == 0:
                dist.all_reduce(torch.zeros(3))
            else:
                dist.broadcast(torch.zeros(3), 0)
        require_error("broadcast", different)
        require_error("disagree", lambda: dist.all_reduce(torch.zeros(3 + self.rank)))
        require_error("average", lambda: dist.all_reduce(torch.zeros(3, dtype=torch.int32), dist.ReduceOp.AVG))
        require_error("split", lambda: dist.all_to_all_single(torch.empty(self.ranks + 1), torch.empty(self.ranks + 1)))
        if hasattr(torch, "float8_e4m3fn"):
            data = torch.ones(2).to(torch.float8_e4m3fn)
            dist.all_reduce(data)
            require_equal(data.float(), torch.full((2,), float(self.ranks)), "float8")

    def deadline(self):
        """A rank that does not come is named, and the others get on without that group."""
        group = dist.new_group(timeout=datetime.timedelta(seconds=0.5))
        if self.rank != 0:
            require_error("Timed out", lambda: dist.all_reduce(torch.zeros(1), group=group))
            require_error("rank 0", lambda: dist.all_reduce(torch.zeros(1), group=group))

    def works(self):
        """Futures with callbacks into Python, threads with messages, and works that nobody keeps."""
        called = []
        for index in range(20):
            work = dist.all_reduce(self._mine(), async_op=True)
            work.get_future().then(lambda done, index=index: called.append((index, done.value()[0][0].item())))
        dist.barrier()
        end = time.time() + 20
        while len(called) < 20 and time.time() < end:
            time.sleep(0.01)
        require(sorted(called) == [(index, float(self.total)) for index in range(20)], f"callbacks: {called}")
        failures = []

        def talk(tag):
            try:
                for turn in range(20):
                    out = torch.empty(2)
                    going = dist.isend(torch.tensor([float(tag), float(turn)]), (self.rank + 1) % self.ranks, tag=tag)
                    dist.recv(out, (self.rank - 1) % self.ranks, tag=tag)
                    going.wait()
                    require(out.tolist() == [tag, turn], f"thread {tag} got {out}")
            except Exception:  # pylint: disable=broad-except
                failures.append(traceback.format_exc())
        threads = [threading.Thread(target=talk, args=(tag,)) for tag in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        require(not failures, "\n".join(failures))

    def training(self):
        """DistributedDataParallel: the same weights everywhere, those of one process with all data; no_sync; join."""
        data = torch.randn(8 * self.ranks, 6, generator=torch.Generator().manual_seed(1))
        weights = []
        for parallel in (True, False):
            torch.manual_seed(self.rank if parallel else 0)
            net = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
            model = torch.nn.parallel.DistributedDataParallel(net) if parallel else net
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for _ in range(5):
                x = data[8 * self.rank : 8 * self.rank + 8] if parallel else data
                optimizer.zero_grad()
                ((model(x) - x.sum(1, keepdim=True)) ** 2).mean().backward()
                optimizer.step()
            weights.append(torch.cat([one.detach().flatten() for one in net.parameters()]))
        require(torch.allclose(*weights, atol=1e-5), "DistributedDataParallel does not train as one process does")
        everyone = [None] * self.ranks
        dist.all_gather_object(everyone, weights[0].tolist())
        require(all(one == everyone[0] for one in everyone), "the models differ between ranks")
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
        with model.no_sync():
            model(torch.full((1, 2), self.rank + 1.0)).sum().backward()
        require(model.module.weight.grad[0, 0].item() == self.rank + 1, "no_sync has averaged")
        with model.join():
            for _ in range(self.rank + 1):
                model(torch.ones(1, 2)).sum().backward()

    def layers(self):
        """PyTorch's layers on top: functional collectives, DTensor's mesh, fully sharded training."""
        if torch.__version__ < "2.4" or torch.__version__.startswith("1."):
            return
        import torch.distributed._functional_collectives as functional
        total = functional.all_reduce(self._mine(), "sum", dist.group.WORLD)
        require_equal(total + 0, torch.full((5,), float(self.total)), "functional all_reduce")
        gathered = functional.all_gather_tensor(self._mine(1), 0, dist.group.WORLD)
        require_equal(gathered + 0, torch.arange(1.0, self.ranks + 1), "functional all_gather_tensor")
        scattered = functional.reduce_scatter_tensor(torch.ones(self.ranks, 2), "sum", 0, dist.group.WORLD)
        require_equal(scattered + 0, torch.full((1, 2), float(self.ranks)), "functional reduce_scatter_tensor")
        from torch.distributed.device_mesh import init_device_mesh
        mesh = init_device_mesh("cpu", (self.ranks,))
        require(mesh.size() == self.ranks, "the mesh")
        if torch.__version__ >= "2.6":
            from torch.distributed.fsdp import fully_shard
            net = torch.nn.Linear(2 * self.ranks, 2 * self.ranks)
            fully_shard(net)
            net(torch.ones(1, 2 * self.ranks)).sum().backward()
            require(net.weight.grad is not None, "fully_shard left no gradient")


def run_rank(arguments):
    rank, ranks = arguments.rank, arguments.ranks[0]
    torch.set_num_threads(1)
    dist.init_process_group("hfcomm", init_method="file://" + arguments.store, rank=rank, world_size=ranks,
                            timeout=datetime.timedelta(seconds=30))
    cases = Cases(rank, ranks)
    failed = 0
    for name in arguments.cases or [one for one in vars(Cases) if one[0] != "_"]:
        begin = time.monotonic()
        try:
            getattr(cases, name)()
            problem = ""
        except Exception:  # pylint: disable=broad-except
            problem = traceback.format_exc()
        problems = [None] * ranks
        dist.all_gather_object(problems, problem)
        if rank == 0:
            print(f"{'failed' if any(problems) else 'ok':7} {name}, {ranks} ranks ({time.monotonic() - begin:.1f} s)")
            for number, text in enumerate(problems):
                if text:
                    print(f"rank {number}: {text}")
            sys.stdout.flush()
        failed += any(problems)
    dist.destroy_process_group()
    return 1 if failed else 0


def run_ranks(arguments, ranks):
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--ranks", str(ranks), "--store", folder + "/store", "--module", arguments.module]
        processes = [subprocess.Popen([*command, "--rank", str(rank), *arguments.cases]) for rank in range(ranks)]
        end = time.monotonic() + LIMIT
        try:
            codes = [process.wait(max(1, end - time.monotonic())) for process in processes]
        except subprocess.TimeoutExpired:
            print(f"failed: {ranks} ranks did not end within {LIMIT} s")
            codes = [1]
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
    return any(codes)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=lambda text: [int(one) for one in text.split(",")], default=[2, 3])
    parser.add_argument("--module", default="", help="the folders of _hfcomm_torch and hfcomm_torch.py")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    parser.add_argument("cases", nargs="*")
    return parser.parse_args()


def main():
    arguments = parse()
    if arguments.rank is None:
        return max(run_ranks(arguments, ranks) for ranks in arguments.ranks)
    return run_rank(arguments)


if __name__ == "__main__":
    chosen = parse()
    sys.path[:0] = [one for one in chosen.module.split(os.pathsep) if one]
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        import torch
        import torch.distributed as dist
    except ImportError as missing:
        print(f"module_test: skipped: {missing}", file=sys.stderr)
        sys.exit(77)
    import hfcomm_torch  # noqa: F401  registers the backend
    sys.exit(main())
