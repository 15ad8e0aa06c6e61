# SPDX-License-Identifier: MIT
"""torch.distributed's ranks for bench/compare: all_gather_object, gather_object and broadcast_object_list over Gloo.

torch_objects.py RANK SIZE. Speaks the protocol of bench/worker.hpp. The ranks meet by torch's own barrier: beside what
these operations take, it does not matter.
"""

import os
import pathlib
import random
import sys
import time

import torch
import torch.distributed as dist

NAMES = ('loss', 'accuracy', 'learning_rate', 'gradient_norm', 'seconds', 'tokens', 'step', 'epoch')


def small_map(seed):
    numbers = random.Random(seed)
    return {name: float(numbers.randrange(1 << 16)) for name in NAMES}


def small_vectors(seed):
    numbers = random.Random(seed)
    return [[float(numbers.randrange(256)) for _ in range(1 + index % 16)] for index in range(2000)]


KINDS = {'small_map': small_map, 'small_vectors': small_vectors}


def size_of(kind):
    if kind == 'small_map':
        return sum(len(name) + 8 for name in NAMES)
    return sum(4 * (1 + index % 16) for index in range(2000))


def run(operation, mine, rank, size):
    if operation == 'all_gather':
        out = [None] * size
        dist.all_gather_object(out, mine)
        return out
    if operation == 'gather':
        out = [None] * size if rank == 0 else None
        dist.gather_object(mine, out, dst=0)
        return out
    box = [mine]
    dist.broadcast_object_list(box, src=0)
    return box


def measure(operation, kind, milliseconds, warmup, least, rank, size, first):
    make = KINDS[kind]
    wrong = 0
    times = []
    spent = 0.0
    index = 0
    while True:
        seed = first + index
        mine = make(seed * size + rank)
        dist.barrier()
        start = time.perf_counter()
        out = run(operation, mine, rank, size)
        elapsed = time.perf_counter() - start
        if index % 10 == 0 and out is not None:
            expected = [make(seed * size + source) for source in range(size if operation != 'broadcast' else 1)]
            wrong += out != expected
        slowest = torch.tensor([elapsed, spent])
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        if index >= warmup:
            times.append(float(slowest[0]) * 1e6)
            spent += elapsed * 1e3
        index += 1
        if len(times) >= least and float(slowest[1]) >= milliseconds:
            break
    times.sort()
    failures = torch.tensor([wrong])
    dist.all_reduce(failures)
    parts = 1 if operation == 'broadcast' else size
    return (f'{times[len(times) // 2]:.6g} {times[len(times) * 99 // 100]:.6g} {len(times)} {int(failures[0])} '
            f'{size_of(kind) * parts}')


def main():
    rank, size = int(sys.argv[1]), int(sys.argv[2])
    job = pathlib.Path(os.environ['BENCH_JOB'])
    torch.set_num_threads(1)
    os.environ.setdefault('GLOO_SOCKET_IFNAME', 'lo')
    dist.init_process_group('gloo', init_method=f'file://{job}/torch', rank=rank, world_size=size)
    names = [f'{operation}/object/{kind}' for operation in ('all_gather', 'gather', 'broadcast') for kind in KINDS]
    commands = open(job / 'commands', encoding='ascii') if rank == 0 else None
    results = open(job / 'results', 'w', encoding='ascii') if rank == 0 else None
    first = 0
    while True:
        box = [commands.readline().strip() or 'quit' if rank == 0 else None]
        dist.broadcast_object_list(box, src=0)
        words = box[0].split()
        answer = ''
        if words[0] == 'quit':
            break
        if words[0] == 'list':
            answer = f'PyTorch {torch.__version__}: ' + ' '.join(names)
        elif words[0] == 'drop':
            answer = 'dropped'
        else:
            operation, _, kind = words[1].split('/')
            answer = measure(operation, kind, int(words[3]), int(words[4]), int(words[5]), rank, size, first)
            first += 1_000_000
        if rank == 0:
            print(answer, file=results, flush=True)
    dist.destroy_process_group()


if __name__ == '__main__':
    main()
