#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""trainer_test.py TRAINER RANKS: the CUDA trainer as 1, 2 and 4 processes on one GPU, under a launcher's variables.

RANKS is the program of the tests with several ranks, which says whether NCCL has two of them on one GPU.
"""

import os
import pathlib
import re
import subprocess
import sys
import unittest

TRAINER = pathlib.Path(sys.argv.pop(1)).resolve()
RANKS = pathlib.Path(sys.argv.pop(1)).resolve()
FIRST_CASE = "connect_device: two ranks may share one GPU"
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TEXTS = [pathlib.Path("/usr/share/common-licenses/GPL-3"), ROOT / "LICENSE"]
TEXT = next(text for text in TEXTS if text.exists())
ONE_GPU = {
    "NCCL_NET": "Socket",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_MNNVL_ENABLE": "0",
    "NCCL_RAS_ENABLE": "0",
    "NCCL_CUMEM_ENABLE": "0",
    "NCCL_MAX_CTAS": "2",
}
LAUNCHED = re.compile(r"(RANK|WORLD_SIZE|LOCAL_.*|MASTER_.*|HFCOMM_(?!NCCL_LIBRARY|CUDART_LIBRARY).*|OMPI_.*|SLURM_.*)$")


def clean_environment():
    return {name: value for name, value in os.environ.items() if not LAUNCHED.match(name)}


def why_no_ranks():
    """Of NCCL's own, not of hfcomm's; None where it has them."""
    command = [RANKS, f"--test-case={FIRST_CASE}"]
    case = subprocess.run(command, env=clean_environment(), stdout=subprocess.PIPE, text=True, timeout=300)
    skipped = f"[hfcomm] skipped: {FIRST_CASE}: "
    return next((line.removeprefix(skipped) for line in case.stdout.splitlines() if line.startswith(skipped)), None)


class Trainer(unittest.TestCase):
    def train(self, processes):
        ranks = []
        for rank in range(processes):
            own = {
                "RANK": rank,
                "LOCAL_RANK": rank,
                "WORLD_SIZE": processes,
                "LOCAL_WORLD_SIZE": processes,
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": 20000 + os.getpid() % 20000,
                "NCCL_HOSTID": f"hfcomm-{rank}",  # to NCCL, a machine of its own
            }
            ranks.append(
                subprocess.Popen(
                    [TRAINER, "--text", TEXT, "--steps", "40"],
                    env=clean_environment() | ONE_GPU | {name: str(value) for name, value in own.items()},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    errors="replace",
                )
            )
        try:
            return [(*rank.communicate(timeout=120), rank.returncode) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()

    def test_one_two_and_four_processes(self):
        for processes in (1, 2, 4):
            with self.subTest(processes=processes):
                if processes == 2 and (reason := why_no_ranks()):
                    print(f"[hfcomm] skipped: trainer with several processes: {reason}")
                    return
                outcomes = self.train(processes)
                for rank, (_, errors, status) in enumerate(outcomes):
                    self.assertEqual(status, 0, f"rank {rank}: {errors}")
                self.assertIn("parameters bitwise identical on all ranks: yes", "".join(out for out, _, _ in outcomes))


if __name__ == "__main__":
    unittest.main()
