#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A process of bench/torch_ddp, as ddp.cpp is: PyTorch's DistributedDataParallel on Gloo, or on hfcomm.

ddp.py MODEL WAY RANKS STEPS     WAY: gloo, gloo_views, gloo_no_sync
"""

import contextlib
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn

WARMUP = 3


def make_model(name):
    if name == 'mlp':
        layers = []
        for _ in range(6):
            layers += [nn.Linear(2048, 2048), nn.ReLU()]
        return nn.Sequential(*layers), torch.randn(16, 2048)
    if name == 'cnn':
        layers, channels = [], 3
        for following in (32, 64, 64, 128):
            layers += [nn.Conv2d(channels, following, 3, padding=1), nn.BatchNorm2d(following), nn.ReLU(), nn.MaxPool2d(2)]
            channels = following
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 4, 10)), torch.randn(32, 3, 32, 32)
    return nn.TransformerEncoderLayer(256, 4, 1024, dropout=0), torch.randn(64, 8, 256)


def train(rank, model, way, ranks, steps, store):
    torch.set_num_threads(1)
    dist.init_process_group('gloo', init_method='file://' + store, rank=rank, world_size=ranks)
    net, x = make_model(model)
    ddp = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=way == 'gloo_views')
    optimizer = torch.optim.SGD(net.parameters(), 1e-4)
    times = []
    for step in range(WARMUP + steps):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with ddp.no_sync() if way == 'gloo_no_sync' else contextlib.nullcontext():
            ddp(x).pow(2).mean().backward()
        optimizer.step()
        if step >= WARMUP:
            times.append(1e3 * (time.perf_counter() - begin))
    if rank == 0:
        print(statistics.median(times), 0)
    dist.destroy_process_group()


def main():
    model, way, ranks, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, 'store')
        torch.multiprocessing.spawn(train, args=(model, way, ranks, steps, store), nprocs=ranks)


if __name__ == '__main__':
    main()
