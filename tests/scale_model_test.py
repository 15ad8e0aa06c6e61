#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""scale_model_test.py SOURCE_ROOT: the model of bench/scale keeps to what must be true of any machines."""

import dataclasses
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(sys.argv.pop(1)) / "bench"))
import scale_model as model

SIZE = 100 * 10**6
VETH, CLUSTER = model.PRESETS["veth"], model.PRESETS["cluster"]


class Traffic(unittest.TestCase):
    def test_bytes_are_those_of_the_formulas(self):
        for order in ("slices", "chain", "tree"):
            for machines in (2, 3, 4, 8):
                for local in (1, 2, 4):
                    with self.subTest(order=order, machines=machines, local=local):
                        _, payload = model.all_reduce(CLUSTER, machines, local, SIZE, order)
                        wanted = model.traffic(order, machines, local)
                        self.assertAlmostEqual(payload / SIZE / wanted, 1, delta=0.04)

    def test_what_is_sent_arrives(self):
        for shape in (model.Slices(3, 2, SIZE, 4), model.Chain(4, 2, SIZE, 6), model.Tree(3, 2, SIZE, 4),
                      model.Slices(64, 8, SIZE, 4), model.Chain(64, 8, SIZE, turns=8)):
            done = model.Operation(CLUSTER, shape)
            sent = sum(machine.count * machine.payload_out for machine in done.machines)
            self.assertGreater(sent, 0)
            self.assertAlmostEqual(sum(machine.count * machine.payload_in for machine in done.machines) / sent, 1)

    def test_a_slow_link_is_the_limit(self):
        slow = dataclasses.replace(CLUSTER, link_speed=100.0)
        for order in ("slices", "chain", "tree"):
            time, payload = model.all_reduce(slow, 3, 2, SIZE, order)
            self.assertGreaterEqual(time, payload / slow.link_speed)
            self.assertLess(time, 1.2 * payload / slow.link_speed)

    def test_what_the_engine_takes(self):
        shapes = {(2, 1): "slices", (2, 2): "tree", (3, 3): "slices", (4, 8): "tree", (5, 8): "slices", (16, 2): "tree"}
        for (machines, local), algorithm in shapes.items():
            self.assertEqual(model.today(machines, local), algorithm)


class Times(unittest.TestCase):
    def test_more_machines_take_longer(self):
        for parameters, numbers in ((VETH, (2, 3, 4, 8, 16)), (CLUSTER, (2, 4, 16, 32, 128, 1024, 8192))):
            for predict in (model.barrier, model.next_barrier):
                times = [predict(parameters, machines, 4) for machines in numbers]
                self.assertEqual(times, sorted(times))
        times = [model.root_start(CLUSTER, machines, 4) for machines in (2, 3, 10, 1000)]
        self.assertEqual(times, sorted(times))

    def test_cores_are_shared_among_few_machines_only(self):
        with self.assertRaises(ValueError):
            model.barrier(VETH, model.MOST_EXACT + 1, 2)

    def test_worse_parameters_take_longer(self):
        for name, value in (("latency", 50.0), ("send", 50.0), ("receive", 50.0), ("cell", 1.0), ("step", 50.0)):
            worse = dataclasses.replace(CLUSTER, **{name: value})
            self.assertGreater(model.barrier(worse, 4, 2), model.barrier(CLUSTER, 4, 2), name)
        for name, value in (("copy_speed", 100.0), ("link_speed", 100.0), ("send_speed", 100.0), ("receive_speed", 100.0)):
            worse = dataclasses.replace(CLUSTER, **{name: value})
            self.assertGreater(model.all_reduce(worse, 4, 2, SIZE)[0], model.all_reduce(CLUSTER, 4, 2, SIZE)[0], name)

    def test_shared_cores_take_longer(self):
        shared = dataclasses.replace(CLUSTER, cores=2)
        self.assertGreater(model.all_reduce(shared, 4, 2, SIZE)[0], model.all_reduce(CLUSTER, 4, 2, SIZE)[0])

    def test_the_plans_of_all_machines_grow_with_the_square(self):
        times = [model.root_start(CLUSTER, machines, 4) for machines in (5000, 10000, 20000)]
        self.assertAlmostEqual((times[2] - times[1]) / (times[1] - times[0]), 4, delta=0.5)


class Shortcuts(unittest.TestCase):
    def test_few_chunks_tell_of_many(self):
        for kind in (model.Slices, model.Chain, model.Tree):
            whole = model.Operation(CLUSTER, kind(3, 2, SIZE)).time
            chunks = kind(3, 2, SIZE).chunks
            short, _ = model.simulate(CLUSTER, lambda count, kind=kind: kind(3, 2, SIZE, count), chunks)
            self.assertGreater(chunks, 24)
            self.assertAlmostEqual(short / whole, 1, delta=0.02)

    def test_one_machine_stands_for_its_class(self):
        machines = model.MOST_EXACT
        together = model.OneStep(machines, 4)
        together.classes = [machines]
        self.assertAlmostEqual(
            model.Operation(CLUSTER, together).time / model.barrier(CLUSTER, machines, 4), 1, delta=0.05)
        times = [model.all_reduce(CLUSTER, count, 4, SIZE, "chain")[0] for count in (machines, machines + 1)]
        self.assertAlmostEqual(times[1] / times[0], 1, delta=0.2)

    def test_the_first_number_is_found(self):
        for least in (2, 3, 17, 1000):
            self.assertEqual(model.first_where(lambda count, least=least: count >= least), least)
        self.assertIsNone(model.first_where(lambda count: False, 64))


if __name__ == "__main__":
    unittest.main()
