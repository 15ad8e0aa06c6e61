#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A process of bench/torch_distributed: a rank of torch.distributed that has a group of hfcomm and one of Gloo.

distributed.py RANK RANKS STORE LINES ROUNDS TURN_MS     LINES: see LINES below, separated by commas; or "all"

Both groups do the same work in turns, in the same processes, so what else the machine does hits both alike. Rank 0 prints
a line of JSON for each line measured: {"line": name, "hfcomm": [us of each turn], "gloo": [us of each turn]}.
"""

import datetime
import json
import sys
import time

import hfcomm_torch  # noqa: F401  registers the backend
import torch
import torch.distributed as dist
from torch import nn

SIZES = {'8': 8, '64': 64, '512': 512, '4K': 4 << 10, '32K': 32 << 10, '256K': 256 << 10, '2M': 2 << 20, '16M': 16 << 20,
         '64M': 64 << 20}
FEW_SIZES = ['64', '4K', '256K', '2M', '16M']
MESSAGES = ['8', '4K', '32K', '256K', '2M', '16M']
LINES = [f'all_reduce {size}' for size in SIZES] + ['all_reduce bfloat16 256K']
LINES += [f'{operation} {size}' for operation in ('broadcast', 'all_gather', 'all_gather_into_tensor') for size in FEW_SIZES]
LINES += [f'reduce_scatter_tensor {size}' for size in ('256K', '16M')]
LINES += ['100 async all_reduces 256', 'barrier', 'all_gather_object map', 'all_gather_object lists',
          'broadcast_object_list map', 'broadcast_object_list lists', 'DDP step MLP 64', 'DDP step MLP 512']
LINES += [f'ping_pong {size}' for size in MESSAGES]


def check(is_right, line):
    if not is_right:
        raise SystemExit(f'{line}: wrong result')


def small_map(rank):
    return {'loss': 0.5 + rank, 'accuracy': 0.25, 'step': 17, 'tokens': 4096}


def lists(rank):
    return [[float(rank)] * (1 + index % 16) for index in range(2000)]


def all_reduce(group, size, rank, ranks, kind=torch.float32):
    data = torch.full((size // torch.empty(0, dtype=kind).element_size(),), rank + 1, dtype=kind)
    dist.all_reduce(data, group=group)
    check(bool((data == ranks * (ranks + 1) // 2).all()), 'all_reduce')
    data.zero_()
    return lambda: dist.all_reduce(data, group=group)


def broadcast(group, size, rank, _ranks):
    data = torch.full((size // 4,), rank + 1.0)
    dist.broadcast(data, 0, group=group)
    check(bool((data == 1).all()), 'broadcast')
    return lambda: dist.broadcast(data, 0, group=group)


def all_gather(group, size, rank, ranks):
    mine = torch.full((size // 4,), rank + 1.0)
    out = [torch.zeros(size // 4) for _ in range(ranks)]
    dist.all_gather(out, mine, group=group)
    check(all(bool((one == index + 1).all()) for index, one in enumerate(out)), 'all_gather')
    return lambda: dist.all_gather(out, mine, group=group)


def all_gather_into_tensor(group, size, rank, ranks):
    mine = torch.full((size // 4,), rank + 1.0)
    out = torch.zeros(ranks * (size // 4))
    dist.all_gather_into_tensor(out, mine, group=group)
    check(bool((out.view(ranks, -1) == torch.arange(1.0, ranks + 1).view(ranks, 1)).all()), 'all_gather_into_tensor')
    return lambda: dist.all_gather_into_tensor(out, mine, group=group)


def reduce_scatter_tensor(group, size, rank, ranks):
    mine = torch.full((size // 4,), rank + 1.0)
    out = torch.zeros(size // 4 // ranks)
    dist.reduce_scatter_tensor(out, mine, group=group)
    check(bool((out == ranks * (ranks + 1) // 2).all()), 'reduce_scatter_tensor')
    return lambda: dist.reduce_scatter_tensor(out, mine, group=group)


def async_all_reduces(group):
    data = [torch.zeros(64) for _ in range(100)]

    def run():
        for work in [dist.all_reduce(one, group=group, async_op=True) for one in data]:
            work.wait()
    return run


def ping_pong(group, size, rank):
    data = torch.full((size // 4,), float(rank))

    def run():
        if rank == 0:
            dist.send(data, 1, group=group)
            dist.recv(data, 1, group=group)
        elif rank == 1:
            dist.recv(data, 0, group=group)
            dist.send(data, 0, group=group)
    run()
    check(bool((data == 0).all()) or rank > 1, 'ping_pong')
    return run


def all_gather_object(group, rank, ranks, make):
    mine = make(rank)
    out = [None] * ranks
    dist.all_gather_object(out, mine, group=group)
    check(out == [make(other) for other in range(ranks)], 'all_gather_object')
    return lambda: dist.all_gather_object(out, mine, group=group)


def broadcast_object_list(group, rank, make):
    def run():
        box = [make(0) if rank == 0 else None]
        dist.broadcast_object_list(box, 0, group=group)
        return box
    check(run() == [make(0)], 'broadcast_object_list')
    mine = make(0)

    def measured():
        dist.broadcast_object_list([mine], 0, group=group)
    return measured


def ddp_step(group, width):
    torch.manual_seed(0)
    net = nn.Sequential(*[layer for _ in range(3) for layer in (nn.Linear(width, width), nn.ReLU())])
    ddp = nn.parallel.DistributedDataParallel(net, process_group=group)
    optimizer = torch.optim.SGD(net.parameters(), 1e-4)
    x = torch.randn(16, width)

    def run():
        optimizer.zero_grad(set_to_none=True)
        ddp(x).pow(2).mean().backward()
        optimizer.step()
    return run


def prepare(line, group, rank, ranks):
    """Returns a function that does the line's operation once."""
    words = line.split()
    if line.startswith('100 async'):
        return async_all_reduces(group)
    if line == 'barrier':
        return lambda: dist.barrier(group=group)
    if line.startswith('DDP'):
        return ddp_step(group, int(words[-1]))
    if words[0].endswith(('object', 'list')):
        make = small_map if words[1] == 'map' else lists
        return all_gather_object(group, rank, ranks, make) if words[0] == 'all_gather_object' else \
            broadcast_object_list(group, rank, make)
    size = SIZES[words[-1]]
    if words[0] == 'ping_pong':
        return ping_pong(group, size, rank)
    if 'bfloat16' in words:
        return all_reduce(group, size, rank, ranks, torch.bfloat16)
    return globals()[words[0]](group, size, rank, ranks)


def turn(run, group, iterations):
    """Returns the median time of an iteration, in us, of the slowest rank."""
    dist.barrier(group=group)
    times = []
    for _ in range(iterations):
        begin = time.perf_counter()
        run()
        times.append(1e6 * (time.perf_counter() - begin))
    slowest = torch.tensor([sorted(times)[len(times) // 2]])
    dist.all_reduce(slowest, dist.ReduceOp.MAX, group=group)
    return slowest.item()


def iterations_of(runs, groups, turn_ms):
    """Returns how many iterations take about that long, the same number on all ranks and for both groups."""
    longest = max(turn(runs[name], groups[name], 5) for name in runs)
    count = torch.tensor([max(5, min(2000, int(1e3 * turn_ms / longest)))])
    dist.broadcast(count, 0, group=groups['gloo'])
    return int(count.item())


def main():
    rank, ranks, store, lines, rounds, turn_ms = sys.argv[1:]
    rank, ranks, rounds = int(rank), int(ranks), int(rounds)
    torch.set_num_threads(1)
    dist.init_process_group('gloo', init_method='file://' + store, rank=rank, world_size=ranks,
                            timeout=datetime.timedelta(seconds=120))
    groups = {'hfcomm': dist.new_group(backend='hfcomm'), 'gloo': dist.new_group(backend='gloo')}
    chosen = LINES if lines == 'all' else [line for line in LINES if any(line.startswith(one) for one in lines.split(','))]
    for line in chosen:
        runs = {}
        for name, group in groups.items():
            try:
                runs[name] = prepare(line, group, rank, ranks)
            except RuntimeError as problem:  # Gloo does not have every operation
                if name == 'hfcomm':
                    raise
                if rank == 0:
                    print(f'# {line}: not on {name}: {str(problem).splitlines()[0][:80]}', flush=True)
        count = iterations_of(runs, groups, float(turn_ms))
        times = {name: [] for name in runs}
        for number in range(rounds):
            for name in list(runs)[:: 1 if number % 2 == 0 else -1]:
                times[name].append(turn(runs[name], groups[name], count))
        if rank == 0:
            print(json.dumps({'line': line, 'iterations': count, **times}), flush=True)
    dist.barrier(group=groups['gloo'])
    dist.destroy_process_group()


if __name__ == '__main__':
    main()
