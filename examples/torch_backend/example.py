# SPDX-License-Identifier: MIT
"""Trains a small model with DistributedDataParallel over hfcomm: python3 example.py [RANKS]; or under torchrun."""

import os
import sys
import tempfile

import hfcomm_torch  # noqa: F401  registers the backend
import torch
import torch.distributed as dist
import torch.multiprocessing


def train(rank, ranks, init_method):
    dist.init_process_group("hfcomm", init_method=init_method, rank=rank, world_size=ranks)
    torch.manual_seed(rank)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for _ in range(200):
        x = torch.randn(16, 8)
        loss = ((net(x) - x.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    everyone = [None] * ranks
    dist.all_gather_object(everyone, {"rank": rank, "weight": net.module.weight[0, 0].item()})
    if rank == 0:
        print(f"{ranks} ranks, loss {total.item() / ranks:.4f}")
    if total.item() / ranks > 0.01 or len({one["weight"] for one in everyone}) != 1:
        raise SystemExit("the model has not learned, or differs between ranks")
    dist.destroy_process_group()


def main():
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
        return
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train, (ranks, f"file://{folder}/store"), ranks)


if __name__ == "__main__":
    main()
