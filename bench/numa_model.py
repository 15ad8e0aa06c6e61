#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A model of all_reduce among ranks on the NUMA nodes of one machine. Run alone, it prints what the chain of nodes gains.

It counts the bytes that each rank reads and writes on each node, which numa_bytes.cpp counts in the real code, too. A
reduction takes as long as the busiest of these: a core's accesses, a node's memory, a link between two nodes. Each
turn costs a step of all ranks beside that.

All nodes have equally many ranks, and ranks have a core each. Times are microseconds, sizes bytes, speeds bytes per
microsecond, which are MB/s.
"""

import collections
import dataclasses

from scale_model import LARGEST_ELEMENT, SLICE_UNIT, constant, round_up

PIECE = constant('size_t piece_bytes =')
LEAST_LANE = constant('least_lane =', 'engine/shared_memory/operations/node_route.hpp')
CHUNKS_PER_FILL = constant('chunks_per_fill =', 'engine/shared_memory/operations/node_route.hpp')
LEAST_RANKS = constant('size_t ranks =', 'engine/shared_memory/operations/node_chain.hpp')
LEAST_BYTES = constant('size_t bytes =', 'engine/shared_memory/operations/node_chain.hpp')


@dataclasses.dataclass(frozen=True)
class Machine:
    """What a machine can do. `source` has the measurements, but of what is assumed."""

    source: str
    memory_speed: float  # of a node, for its own cores that read and write as much
    link_speed: float  # between two nodes, in each direction
    near_latency: float  # nanoseconds until a core gets a line of its node's memory, and of another node's
    far_latency: float
    core_speed: float = 12000.0  # of a core on its own node's memory; assumed
    cell: float = 0.05  # looking at another rank's cell in a step, which the other has just written; assumed
    step: float = 0.3  # of a step beside that; assumed

    @property
    def far_speed(self):
        """Of a core on another node's memory: as many lines are under way, but each takes longer."""
        return self.core_speed * self.near_latency / self.far_latency


MLC = 'https://github.com/gjbex/Code-optimization/blob/286e1295f2a93f555a3baa2eb6047d85fc1f0cb1/info/'
MACHINES = {  # two sockets; Intel's Memory Latency Checker: half of "1:1 Reads-Writes", the matrices' means
    'Cascade Lake': Machine(MLC + 'cascadelake_mlc.txt', 100000.0, 34300.0, 81.2, 141.0),
    'Ice Lake': Machine(MLC + 'icelake_mlc.txt', 146000.0, 55700.0, 89.1, 142.8),
}


def slot_bytes(ranks):
    """Of a group on one machine (layout::dimensions::for_ranks)."""
    return 1 << (18 if ranks <= 8 else 17 if ranks <= 32 else 16)


class Traffic:
    """The bytes of one reduction: `read[rank][node]` and `written[rank][node]`, and the turns that it takes. `cached` are
    those that a rank has just written itself, and reads again; `cached_writes` are replaced at once.

    `busy` are the turns in which a rank has work; the others fill and empty the pipeline. Slots live in caches, so only
    `memory[node]` is what a node's memory has to move.
    """

    def __init__(self, nodes, local):
        self.nodes, self.local, self.ranks = nodes, local, nodes * local
        self.read = [collections.Counter() for _ in range(self.ranks)]
        self.written = [collections.Counter() for _ in range(self.ranks)]
        self.cached = [0.0] * self.ranks
        self.cached_writes = [0.0] * self.ranks
        self.memory = collections.Counter()
        self.turns = self.busy = 1

    def node(self, rank):
        return rank // self.local

    def far(self):
        """The bytes that pass from one node to another, by these two."""
        links = collections.Counter()
        for rank in range(self.ranks):
            here = self.node(rank)
            for node in range(self.nodes):
                if node != here:
                    links[node, here] += self.read[rank][node]
                    links[here, node] += self.written[rank][node]
        return links


def shares_in_place(nodes, local, size):
    """Each rank reduces its share of all buffers, which lie on their owners' nodes, into all of them."""
    done = Traffic(nodes, local)
    for rank in range(done.ranks):
        for node in range(nodes):
            done.read[rank][node] = done.written[rank][node] = local * size / done.ranks
    for node in range(nodes):
        done.memory[node] = 2 * local * size
    done.turns = done.busy = 2
    return done


def shares(nodes, local, size, is_placed=True):
    """The same chunk by chunk through slots. Without placement, all slots are on the first node."""
    done = Traffic(nodes, local)
    ranks = done.ranks
    home = [done.node(rank) if is_placed else 0 for rank in range(ranks)]
    part = size / ranks
    for rank in range(ranks):
        here = done.node(rank)
        done.read[rank][here] += (ranks - 1) * part + part  # staged, and its own share
        done.written[rank][home[rank]] += (ranks - 1) * part + part  # slot and result
        done.written[rank][here] += size  # output
        for other in range(ranks):
            if other != rank:
                done.read[rank][home[other]] += 2 * part  # the share, and the result
    for node in range(nodes):
        done.memory[node] = 2 * local * size
    chunk = min(slot_bytes(ranks), PIECE * ranks)
    done.busy = -(-size // chunk)
    done.turns = done.busy + 1
    return done


def count_turns(done, size, is_in_place):
    """Sets the turns of a chain (node_route)."""
    fill = 2 * done.nodes + (0 if is_in_place else 4)
    room = slot_bytes(done.ranks) // ((0 if is_in_place else done.local) + 1)
    lane = min(room, PIECE, max(LEAST_LANE, size // (done.local * CHUNKS_PER_FILL * fill)))
    done.busy = -(-size // (lane * done.local))
    done.turns = done.busy + fill


def chain_in_place(nodes, local, size):
    """Node after node folds its ranks' buffers, and adds the sums of the node before; each node fetches results once."""
    done = Traffic(nodes, local)
    lane = size / local  # what a rank carries
    for rank in range(done.ranks):
        here = done.node(rank)
        done.read[rank][here] += local * lane
        if here > 0:
            done.read[rank][here - 1] += lane  # sums
            done.cached_writes[rank] += lane  # its own ones, to which they are added
            done.cached[rank] += lane
        if here < nodes - 1:
            done.written[rank][here] += lane
            done.read[rank][nodes - 1] += lane  # results
            done.cached[rank] += (local - 1) * lane  # from its own output into the others'
        done.written[rank][here] += local * lane
    for node in range(nodes):
        done.memory[node] = 2 * local * size
    count_turns(done, size, True)
    return done


def chain(nodes, local, size, is_placed=True):
    """The same through slots. Without placement, all slots are on the first node."""
    done = Traffic(nodes, local)
    lane = size / local
    for rank in range(done.ranks):
        here = done.node(rank)
        home = lambda node: node if is_placed else 0
        is_last = here == nodes - 1
        done.read[rank][here] += (local - 1) * lane + lane  # staged, and folded from its own buffer
        done.written[rank][home(here)] += (local - 1) * lane + lane  # staged, and its sums
        done.read[rank][home(here)] += (local - 1) * lane  # others' elements of its lane
        done.read[rank][home(here)] += (local - 1) * lane  # others' results
        done.written[rank][here] += size
        if here > 0:
            done.read[rank][home(here - 1)] += lane
            done.cached_writes[rank] += lane  # its own sums, to which they are added
            done.cached[rank] += lane
        if not is_last:
            done.read[rank][home(nodes - 1)] += lane
            done.cached[rank] += lane  # its results, passed on
            done.written[rank][home(here)] += lane
    for node in range(nodes):
        done.memory[node] = 2 * local * size
    count_turns(done, size, False)
    return done


ALGORITHMS = {
    ('shared', False): shares_in_place,
    ('shared', True): chain_in_place,
    ('ordinary', False): shares,
    ('ordinary', True): chain,
}


def time(machine, traffic):
    """The time of a reduction, and what bounds it."""
    cores = max(sum((done[node] / (machine.core_speed if node == traffic.node(rank) else machine.far_speed)
                     for done in (traffic.read[rank], traffic.written[rank]) for node in range(traffic.nodes)))
                for rank in range(traffic.ranks))
    memory = max(traffic.memory.values()) / machine.memory_speed
    links = max(traffic.far().values(), default=0.0) / machine.link_speed
    bulk, bound = max((cores, 'cores'), (memory, 'memory'), (links, 'links'))
    step = machine.step + machine.cell * (traffic.ranks - 1)
    return bulk * traffic.turns / max(traffic.busy, 1) + traffic.turns * step, bound


def one_node(ranks, cores, size, buffers, core_speed):
    """The time where `ranks` share the cores of a machine with one node, whose speed was measured."""
    traffic = ALGORITHMS[buffers, False](1, ranks, size)
    moved = sum(traffic.read[0].values()) + sum(traffic.written[0].values())
    return moved / core_speed * max(1.0, ranks / cores)


def with_nodes(two, nodes):
    """Returns such a machine with as many sockets, whose links are divided among the others; assumed."""
    return dataclasses.replace(two, link_speed=two.link_speed / (nodes - 1))


def print_table(nodes, size):
    print(f'all_reduce of {size >> 20} MiB on {nodes} nodes: ms, and what bounds it')
    print(f'{"machine":13} {"ranks":>5}  {"buffers":8}  {"shares":>15}  {"shares, unplaced":>16}  {"chain":>15}  gain')
    for name, two in MACHINES.items():
        machine = with_nodes(two, nodes)
        for local in (4, 8, 16, 32, 64):
            for buffers in ('shared', 'ordinary'):
                now = time(machine, ALGORITHMS[buffers, False](nodes, local, size))
                unplaced = time(machine, shares(nodes, local, size, False)) if buffers == 'ordinary' else None
                then = time(machine, ALGORITHMS[buffers, True](nodes, local, size))
                cells = [f'{cell[0] / 1000:8.2f} {cell[1]}' if cell else '' for cell in (now, unplaced, then)]
                print(f'{name:13} {nodes}x{local:<3}  {buffers:8}  {cells[0]:>15}  {cells[1]:>16}  {cells[2]:>15}  '
                      f'{now[0] / then[0]:.2f}')
    print()


if __name__ == '__main__':
    for count in (2, 4):
        for length in (1 << 20, 64 << 20):
            print_table(count, length)
    print('Sources:', *(machine.source for machine in MACHINES.values()))
