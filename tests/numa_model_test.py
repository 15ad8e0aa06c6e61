#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""numa_model_test.py SOURCE_ROOT NUMA_BYTES: the model of bench/numa_model.py agrees with the code and with measurements.

Its bytes are those that numa_bytes counts in the library; its times are those of the kept results, on one node.
"""

import collections
import dataclasses
import json
import pathlib
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
PROGRAM = pathlib.Path(sys.argv.pop())
ROOT = pathlib.Path(sys.argv.pop())
sys.path.insert(0, str(ROOT / "bench"))
import numa_model as model

MIB = 1 << 20


class Bytes(unittest.TestCase):
    def test_the_code_reads_and_writes_what_the_model_says(self):
        size = 3 * MIB
        layouts = ((2, 2), (2, 4), (3, 2), (4, 2), (2, 3))
        arguments = [str(size)] + [str(number) for layout in layouts for number in layout]
        output = subprocess.run([PROGRAM, *arguments], check=True, capture_output=True, text=True, timeout=100).stdout
        lines = output.splitlines()
        self.assertEqual(len(lines), 4 * sum(nodes * local for nodes, local in layouts))
        for line in lines:
            with self.subTest(line=line):
                nodes, local, buffers, way, rank, _, *numbers = line.split()
                nodes, local, rank = int(nodes), int(local), int(rank)
                done = model.ALGORITHMS[buffers, way == "chain"](nodes, local, size)
                reads = [done.read[rank][node] for node in range(nodes)]
                reads[done.node(rank)] += done.cached[rank]
                writes = [done.written[rank][node] for node in range(nodes)]
                writes[done.node(rank)] += done.cached_writes[rank]
                counted = [int(number) for number in numbers if number != "written"]
                for count, wanted in zip(counted, reads + writes, strict=True):
                    # Lanes and shares are whole multiples of some elements.
                    self.assertAlmostEqual(count / size, wanted / size, delta=0.02)

    def test_a_chain_sends_each_byte_once_each_way(self):
        for nodes in (2, 3, 4):
            for local in (2, 8, 16):
                for buffers in ("shared", "ordinary"):
                    far = sum(model.ALGORITHMS[buffers, True](nodes, local, MIB).far().values())
                    self.assertAlmostEqual(far / MIB, 2 * (nodes - 1))
                    far = sum(model.ALGORITHMS[buffers, False](nodes, local, MIB).far().values())
                    self.assertAlmostEqual(far / MIB, 2 * local * (nodes - 1))

    def test_slots_that_are_not_placed_cost_more_between_nodes(self):
        for algorithm in (model.shares, model.chain):
            self.assertGreater(max(algorithm(2, 8, MIB, False).far().values()), max(algorithm(2, 8, MIB).far().values()))


class Times(unittest.TestCase):
    def lines(self, name):
        """Returns the medians of all_reduces of float32 in a kept result, by system, buffer, ranks and bytes."""
        kept = json.loads((ROOT / "bench/results" / name).read_text(encoding="utf-8"))
        return {(line["system"], line["buffer"], line["ranks"], line["bytes"]): line["median_us"] for line in kept
                if line["operation"] == "all_reduce" and line["type"] == "float32"}

    def check(self, name, ranks, sizes, tolerance):
        """Predicts times on one node from the speed of threads that do the least possible, which was measured."""
        kept = self.lines(name)
        for size in sizes:
            speed = max(1.0, ranks / 2) * 2 * size / kept["limit", "shared", ranks, size]
            for buffers in ("shared", "ordinary"):
                with self.subTest(name=name, ranks=ranks, size=size, buffers=buffers):
                    predicted = model.one_node(ranks, 2, size, buffers, speed)
                    self.assertAlmostEqual(predicted / kept["hfcomm", buffers, ranks, size], 1, delta=tolerance)

    def test_one_node_with_a_core_for_each_rank(self):
        self.check("cascade-lake-2-cores/2-ranks.json", 2, [1 << bits for bits in (16, 18, 20, 22, 24, 26)], 0.25)

    def test_one_node_whose_cores_are_shared(self):
        self.check("cascade-lake-2-cores/4-ranks.json", 4, [1 << bits for bits in (24, 26)], 0.25)

    def test_worse_machines_take_longer(self):
        machine = model.MACHINES["Cascade Lake"]
        for (buffers, chains), algorithm in model.ALGORITHMS.items():
            # What bounds it differs: few ranks keep no link busy, many keep no core busy.
            slower = collections.Counter()
            for local in (4, 32):
                now, _ = model.time(machine, algorithm(2, local, 64 * MIB))
                for name in ("memory_speed", "link_speed", "core_speed"):
                    worse = dataclasses.replace(machine, **{name: getattr(machine, name) / 40})
                    then, _ = model.time(worse, algorithm(2, local, 64 * MIB))
                    self.assertGreaterEqual(then, now)
                    slower[name] += then > 1.2 * now
            for name in ("memory_speed", "link_speed", "core_speed"):
                self.assertGreater(slower[name], 0, f"{name}, {buffers}, {chains}")

    def test_the_limits_of_the_engine_pay(self):
        for nodes in (2, 4):
            for name, two in model.MACHINES.items():
                machine = model.with_nodes(two, nodes)
                for local in (model.LEAST_RANKS, 12, 16, 24, 32, 64):
                    for buffers in ("shared", "ordinary"):
                        for size, most in ((model.LEAST_BYTES, 1.05), (8 * model.LEAST_BYTES, 0.95)):
                            times = [model.time(machine, model.ALGORITHMS[buffers, chains](nodes, local, size))[0]
                                     for chains in (False, True)]
                            self.assertLess(times[1] / times[0], most, (nodes, name, local, buffers, size))


if __name__ == "__main__":
    unittest.main()
