# SPDX-License-Identifier: MIT
"""A model of hfcomm's operations across machines, and the discrete events that it consists of; for bench/scale.

A job has machines of equally many ranks. An operation is a sequence of turns. In a turn, the ranks of a machine copy and
fold, and publish a step; the machine's agent, a thread that does one thing after another, sends it to the other
machines, whose agents take it. A rank begins a turn when the steps that it waits for have come from all machines. Threads
have a core each, or share some.

Machines that behave alike are one class, of which one machine is simulated: its messages to a class are one message of
the same length, and so are those that it gets. Up to `most_exact` machines are a class each.

Times are microseconds, sizes bytes, speeds bytes per microsecond, which are MB/s.
"""

import dataclasses
import heapq
import math
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST_EXACT = 16


@dataclasses.dataclass(frozen=True)
class Parameters:
    """What the machines and the network can do. Defaults: measured by bench/scale --measure on 2 cores, veth; but those
    that say "assumed".
    """

    cores: int = 2  # that all threads of all machines share; 0: each thread has its own
    switch: float = 1.9  # until a thread gets the core from a rank that waits and gives it away
    vain: float = 0.5  # and if that is at the agent's work, and looks for messages first
    step: float = 0.3  # until the ranks of a machine have seen each other's step
    cell: float = 0.01  # looking at one rank's cell; assumed
    copy_speed: float = 10000.0  # of a rank that copies; folding n inputs into m outputs counts as (n + m) / 2 copies
    latency: float = 4.5  # until a message is there, without the agents' work
    send: float = 6.0  # an agent's work for a message of FRAME_BYTES
    receive: float = 1.4
    send_speed: float = 4400.0  # and what it sends and takes of longer ones
    receive_speed: float = 4400.0
    link_speed: float = math.inf  # of a machine's link, in each direction
    start: float = 0.0  # of the first two machines, beside what follows
    machine_start: float = 3200.0  # work that a machine's leader does, besides the root's
    rank_start: float = 1700.0  # work of each further rank of a machine
    memory_speed: float = 3300.0  # making the memory of groups, all of which a machine gets when the job starts
    endpoint: float = 50.0  # an agent's work to connect to a machine; roughly, because 4 machines tell little
    join: float = 26.0  # the root's work for a machine: connection, proof and messages
    plan_speed: float = 1000.0  # encrypting and sending the plan
    plan_machine: int = 350  # bytes of the plan for a machine, whose link's address has 300, and for each of its ranks
    plan_rank: int = 8
    descriptors: int = 22  # files that an agent's process has open, and for each further machine
    machine_descriptors: int = 2


# A cluster, all assumed but for the start: a core for each thread, 200 Gbit/s, RDMA.
CLUSTER = Parameters(cores=0, switch=0.0, vain=0.0, copy_speed=10000.0, latency=3.0, send=0.5, receive=0.5,
                     send_speed=math.inf, receive_speed=math.inf, link_speed=25000.0, step=0.3)
PRESETS = {'veth': Parameters(), 'cluster': CLUSTER}


def constant(pattern, header='engine/shared_memory/memory/layout.hpp'):
    """Returns a number of hfcomm's headers, so that the model follows them. `pattern` is what stands before it."""
    text = (ROOT / 'include/hfcomm' / header).read_text(encoding='utf-8')
    found = re.search(pattern + r' (?:std::size_t\{(\d+)\} << )?(\d+)', text)
    if found is None:
        raise ValueError(f'{header} has no "{pattern}"')
    base, last = found.groups()
    return int(base) << int(last) if base else int(last)


MAX_RANKS = constant('int max_ranks =')
DEPTH = constant('depth =')
PIECE = constant('machine_piece_bytes =')
SLICE_UNIT = constant('slice_unit =')
LARGEST_ELEMENT = 16  # bytes: hfcomm::largest_element_bytes
ONE_SHOT = 16 << 10  # layout::dimensions: up to here, every rank gets everything in one step
BLOCK_BYTES = 62720  # sizeof(layout::rank_block), which bench/scale --measure compares
FRAME_BYTES = constant(r'sizeof\(frame\) ==', 'engine/hierarchical/frame.hpp')
CELL_BYTES = 8 + 128  # in a frame: cell_batch::entry
CELLS_IN_FRAME = constant('array<std::byte,', 'engine/hierarchical/frame.hpp') // CELL_BYTES


def round_up(value, unit):
    return -(-value // unit) * unit


def slot_bytes(ranks):
    """Of a group across machines (layout::dimensions::for_machines)."""
    return 1 << (21 if ranks <= 8 else 20 if ranks <= 32 else 18 if ranks <= 512 else 16)


def mirror_bytes(ranks):
    """The memory that a group across machines takes on each of them (layout::dimensions::total_bytes)."""
    slot = slot_bytes(ranks)
    result = round_up(slot // ranks + SLICE_UNIT * LARGEST_ELEMENT, 128)
    ranges = round_up(8 + 12 * (2 * ranks + 4), 128)
    return ranks * (BLOCK_BYTES + DEPTH * (slot + result + ranges) + 4 * (slot // 4))


def machine_memory(machines, local):
    """The memory that a job takes on each machine: of all ranks, and of the machines' first ranks."""
    return mirror_bytes(machines * local) + mirror_bytes(machines)


class Events:
    """Functions to be called at their times."""

    def __init__(self):
        self.now = 0.0
        self._queue = []
        self._number = 0

    def at(self, time, function, *arguments):
        self._number += 1
        heapq.heappush(self._queue, (max(time, self.now), self._number, function, arguments))

    def run(self):
        while self._queue:
            self.now, _, function, arguments = heapq.heappop(self._queue)
            function(*arguments)


class Cores:
    """Runs the work of threads: on a core of each thread, or on some that all share, first come, first served."""

    def __init__(self, events, parameters, ranks, agents):
        self._events = events
        self._free = [0.0] * parameters.cores
        self._wait = 0.0
        if ranks > parameters.cores > 0:
            # Ranks that wait give their core away again and again, so one that has work waits for the others there. One
            # of each machine does the agent's work meanwhile, whose thread rests.
            self._wait = (parameters.switch * (ranks - parameters.cores) + parameters.vain * agents) / parameters.cores

    def run(self, duration, then):
        begin = self._events.now
        if self._free:
            begin = max(begin, heapq.heappop(self._free)) + self._wait
            heapq.heappush(self._free, begin + duration)
        self._events.at(begin + duration, then)


class Agent:
    """A thread that does one thing after another."""

    def __init__(self, cores):
        self._cores = cores
        self._queue = []
        self._is_busy = False

    def do(self, duration, then):
        self._queue.append((duration, then))
        if not self._is_busy:
            self._next()

    def _next(self):
        self._is_busy = bool(self._queue)
        if self._is_busy:
            duration, then = self._queue.pop(0)
            self._cores.run(duration, lambda: (then(), self._next()))


@dataclasses.dataclass
class Message:
    """What one machine sends to a class of machines in a turn: so many transfers, and bytes beside their frames."""

    transfers: float
    payload: float = 0.0
    frames: float = None  # of the transfers, those that are frames; by default all

    def __post_init__(self):
        self.frames = self.transfers if self.frames is None else self.frames

    @property
    def bytes(self):
        return self.payload + FRAME_BYTES * self.frames


class Machine:
    """One machine of a class."""

    def __init__(self, count, agent):
        self.count = count
        self.agent = agent
        self.turn = 0
        self.is_working = False
        self.seen = {}  # by step: how many classes have published it, as far as it is known here
        self.link_out_free = self.link_in_free = 0.0
        self.payload_out = self.payload_in = 0.0
        self.finished = None


class Operation:
    """Simulates one operation. `shape` says what is done (see Shape)."""

    def __init__(self, parameters, shape):
        if parameters.cores and max(shape.classes) > 1:
            raise ValueError(f'machines that share cores are simulated one by one, so {MOST_EXACT} at most')
        self.parameters, self.shape = parameters, shape
        self.events = Events()
        machines = sum(shape.classes)
        self.cores = Cores(self.events, parameters, machines * shape.local, machines)
        self.machines = [Machine(count, Agent(self.cores)) for count in shape.classes]
        for machine in self.machines:
            self._begin(machine)
        self.events.run()
        self.time = max(machine.finished for machine in self.machines)

    def _is_there(self, machine, step):
        """Whether all machines have published the step, as far as this one knows."""
        return step < 0 or machine.seen.get(step, 0) == len(self.machines) + (1 if machine.count > 1 else 0)

    def _begin(self, machine):
        """Lets the ranks of a machine take their next turn, if they can."""
        awaited = self.shape.waits_for(machine.turn)
        if machine.is_working or machine.finished is not None or not self._is_there(machine, awaited):
            return
        machine.is_working = True
        cells = self.shape.looks(machine.turn)
        looks = self.parameters.step + self.parameters.cell * cells if cells else 0.0
        place = self.machines.index(machine)
        self._work(looks + self.shape.work(place, machine.turn) / self.parameters.copy_speed,
                   lambda: self._publish(machine, place))

    def _work(self, duration, then):
        """The same work of all ranks of a machine, side by side."""
        left = self.shape.local

        def finish():
            nonlocal left
            left -= 1
            if left == 0:
                then()

        for _ in range(self.shape.local):
            self.cores.run(duration, finish)

    def _publish(self, machine, place):
        turn = machine.turn
        if turn < self.shape.published:
            machine.seen[turn] = machine.seen.get(turn, 0) + 1
            self._send(machine, place, turn)
        later = self.shape.work_after(place, turn) / self.parameters.copy_speed
        if later:
            self._work(later, lambda: self._end(machine))
        else:
            self._end(machine)

    def _end(self, machine):
        machine.is_working = False
        machine.turn += 1
        if machine.turn > self.shape.last:
            machine.finished = self.events.now
        else:
            self._begin(machine)

    def _send(self, machine, place, turn):
        for other, there in enumerate(self.machines):
            if there.count - (1 if other == place else 0) == 0:
                continue
            message = self.shape.message(place, other, turn)
            machine.payload_out += message.payload
            if not message.transfers:  # nobody there waits for it
                self.events.at(self.events.now, self._see, there, turn)
                continue
            duration = message.transfers * self.parameters.send + message.payload / self.parameters.send_speed
            machine.agent.do(duration, lambda there=there, message=message, duration=duration: self._transmit(
                machine, there, turn, message, duration))

    def _transmit(self, machine, there, turn, message, duration):
        """The agent has sent all of the message. Its first bytes have left when the agent began."""
        parameters, now = self.parameters, self.events.now
        machine.link_out_free = max(now, max(now - duration, machine.link_out_free) + message.bytes / parameters.link_speed)
        share = machine.count / there.count if machine is not there else 1.0  # of the senders, for each receiver
        work = share * (message.transfers * parameters.receive + message.payload / parameters.receive_speed)
        there.payload_in += share * message.payload
        there.link_in_free = max(machine.link_out_free, there.link_in_free + share * message.bytes / parameters.link_speed)
        arrived = there.link_in_free + parameters.latency
        # The agent takes what has come while the rest is on its way; but the last machine of a class gets its part last.
        begin = max((now - duration if there.count == 1 else now) + parameters.latency, arrived - work)
        self.events.at(begin, there.agent.do, work, lambda: self.events.at(arrived, self._see, there, turn))

    def _see(self, machine, turn):
        machine.seen[turn] = machine.seen.get(turn, 0) + 1
        self._begin(machine)


class Shape:
    """What the machines do in an operation.

    classes    the number of machines of each class
    last       the last turn
    published  turns before this one publish a step
    """

    def __init__(self, machines, local, classes):
        self.count, self.local, self.ranks = machines, local, machines * local
        self.classes = classes

    def waits_for(self, turn):
        """The step that must be there before the turn."""
        return turn - 1

    def looks(self, turn):
        """The number of cells at which a rank looks before the turn."""
        return self.ranks if self.waits_for(turn) >= 0 else 0

    def work(self, _place, _turn):
        """Bytes that a rank copies before it publishes; and after that."""
        return 0.0

    def work_after(self, _place, _turn):
        return 0.0

    def message(self, place, other, turn):
        """What a machine of the class `place` sends to all machines of the class `other`."""
        machines = self.classes[other] - (1 if place == other else 0)
        transfers, payload, frames = self.parts(place, other, turn)
        cells = -(-self.local // CELLS_IN_FRAME) * machines
        return Message(cells + transfers, payload, cells + frames)

    def parts(self, _place, _other, _turn):
        """Transfers, bytes of payload, and frames among the transfers, of the slots; beside the cells."""
        return 0.0, 0.0, 0.0


def each(machines):
    """Machines that all do the same: one by one where they are few, else as one class."""
    return [1] * machines if machines <= MOST_EXACT else [machines]


class OneStep(Shape):
    """A barrier, or a reduction of what a cell can carry."""

    def __init__(self, machines, local):
        super().__init__(machines, local, each(machines))
        self.last, self.published = 1, 1


class Slices(Shape):
    """Every rank sends its raw slices to their owners, which fold them and send the results to every machine."""

    def __init__(self, machines, local, size, chunks=None, element=4):
        ranks = machines * local
        chunk = min(slot_bytes(ranks), PIECE * ranks, size)
        self.share = round_up(-(-(chunk // element) // ranks), SLICE_UNIT) * element
        owners = -(-chunk // self.share)
        owning = min(machines, -(-owners // local))
        if machines <= MOST_EXACT:
            super().__init__(machines, local, each(machines))
            self.owned = [max(0, min(local, owners - local * machine)) for machine in range(machines)]
        else:
            super().__init__(machines, local, [owning] + ([machines - owning] if owning < machines else []))
            self.owned = [owners / owning, 0]
        self.chunk, self.chunks = chunk, -(-size // chunk)
        if chunks is not None:
            self.chunks = chunks
        self.last, self.published = self.chunks + 1, self.chunks + 1

    def work(self, place, turn):
        staged = self.chunk if turn < self.chunks else 0
        folded = self.share * min(1, self.owned[place]) * (self.ranks + 2) / 2 if 0 < turn <= self.chunks else 0
        collected = self.chunk if turn == self.last else 0
        return staged + folded + collected

    def work_after(self, _place, turn):
        return self.chunk if 2 <= turn < self.last else 0

    def parts(self, place, other, turn):
        machines = self.classes[other] - (1 if place == other else 0)
        transfers = payload = 0.0
        if turn < self.chunks and self.owned[other]:  # raw slices
            transfers += 2 * self.local * machines
            payload += self.local * machines * self.owned[other] * self.share
        if turn >= 1:  # results
            transfers += 2 * self.owned[place] * machines
            payload += self.owned[place] * machines * self.share
        return transfers, payload, transfers / 2


class Chain(Shape):
    """A machine folds onto what the one before it has folded, and the result comes back the same way.

    In classes, every machine is simulated as it is while chunks are everywhere.
    """

    def __init__(self, machines, local, size, chunks=None, turns=None):
        is_exact = machines <= MOST_EXACT
        super().__init__(machines, local, each(machines) if is_exact else [1, machines - 2, 1])
        lane = slot_bytes(self.ranks) // 2 // local
        self.chunk = min(lane * local, size)
        self.chunks = -(-size // self.chunk)
        self.is_exact = is_exact
        self.turns = self.chunks + 2 * machines + 2 + 2 * (machines - 2)
        if chunks is not None:
            self.turns += chunks - self.chunks
            self.chunks = chunks
        self.turns = turns or self.turns
        self.last, self.published = self.turns - 1, self.turns - 2

    def waits_for(self, turn):
        return turn - 2 if turn > 1 else turn - 1

    def _is_active(self, turn, begin):
        return not self.is_exact or 0 <= turn - begin < self.chunks

    def _position(self, place):
        """Where the class is in the chain: first, inner, last."""
        return place == 0, place == len(self.classes) - 1

    def work(self, place, turn):
        machines, (is_first, is_last) = self.count, self._position(place)
        fold = 2 * place + 2
        relays = max(0, machines - 2 - place)
        total = 0.0
        if self._is_active(turn, 2 * place):
            total += self.chunk * (self.local - 1) / self.local
        if self._is_active(turn, fold):
            inputs = self.local + (0 if is_first else 1)
            total += self.chunk / self.local * (inputs + (2 if is_last else 1)) / 2
        if self._is_active(turn, 2 * machines + 2 + 2 * relays):
            total += self.chunk * ((self.local - 1) / self.local if is_last else 1)
            total += 0 if is_first or is_last else self.chunk / self.local
        return total

    def _passes(self, place, other):
        """How many of the machines of `place` have their next machine, and their previous one, in `other`."""
        count = self.classes[place]
        if place == other:
            return count - 1, count - 1
        return (1, 0) if other == place + 1 else (0, 1) if other == place - 1 else (0, 0)

    def parts(self, place, other, turn):
        up, down = (passes / self.classes[place] for passes in self._passes(place, other))
        machines, (_, is_last) = self.count, self._position(place)
        total = 0.0
        if not is_last and self._is_active(turn, 2 * place + 2):
            total += up
        delivery = 2 * machines + 2 + 2 * max(0, machines - 2 - place)
        if is_last and self._is_active(turn, 2 * place + 2) or not is_last and self._is_active(turn, delivery):
            total += down
        transfers = 2 * self.local * total
        return transfers, self.chunk * total, transfers / 2


class NeighbourChain(Chain):
    """The chain with cells for neighbours only: no step of all ranks for each chunk."""

    def message(self, place, other, turn):
        up, down = (passes / self.classes[place] for passes in self._passes(place, other))
        transfers, payload, frames = self.parts(place, other, turn)
        return Message(up + down + transfers, payload, up + down + frames)


class Tree(Shape):
    """Each machine folds its ranks; the owner of a slice folds the machines' sums, and sends the result to all."""

    def __init__(self, machines, local, size, chunks=None):
        super().__init__(machines, local, each(machines))
        self.chunk = min(slot_bytes(self.ranks) // 2, size)
        self.chunks = -(-size // self.chunk) if chunks is None else chunks
        self.last, self.published = self.chunks + 5, self.chunks + 4

    def waits_for(self, turn):
        return turn - 2 if turn > 1 else turn - 1

    def _is_active(self, turn, begin):
        return 0 <= turn - begin < self.chunks

    def work(self, _place, turn):
        total = 0.0
        if self._is_active(turn, 0):
            total += self.chunk * (self.local - 1) / self.local
        if self._is_active(turn, 2):
            total += self.chunk / self.local * (self.local + 1) / 2
        if self._is_active(turn, 4):
            total += self.chunk / self.ranks * (self.count + 2) / 2
        if self._is_active(turn, 6):
            total += self.chunk
        return total

    def parts(self, place, other, turn):
        machines = self.classes[other] - (1 if place == other else 0)
        sums = 1 if self._is_active(turn, 2) else 0
        results = 1 if self._is_active(turn, 4) else 0
        transfers = 2 * machines * self.local * (sums + results)
        return transfers, machines * self.chunk / self.count * (sums + results), transfers / 2


def simulate(parameters, make, chunks):
    """Returns the time, and the payload that the busiest machine sends and gets, of a shape with so many chunks.

    Long operations are simulated with fewer chunks; each further one takes as long as those in the middle.
    """
    few, many = 12, 24
    if chunks <= many:
        done = Operation(parameters, make(chunks))
        return done.time, payload_of(done)
    shorter, longer = (Operation(parameters, make(count)) for count in (few, many))
    left = (chunks - many) / (many - few)
    return (longer.time + left * (longer.time - shorter.time),
            payload_of(longer) + left * (payload_of(longer) - payload_of(shorter)))


def payload_of(done):
    return max(max(machine.payload_out, machine.payload_in) for machine in done.machines)


def barrier(parameters, machines, local):
    return Operation(parameters, OneStep(machines, local)).time


def slices(parameters, machines, local, size):
    return simulate(parameters, lambda chunks: Slices(machines, local, size, chunks), Slices(machines, local, size).chunks)


def chain(parameters, machines, local, size, kind=Chain):
    whole = kind(machines, local, size)
    if whole.is_exact:
        return simulate(parameters, lambda chunks: kind(machines, local, size, chunks), whole.chunks)
    # All machines busy: what a turn takes, for all turns.
    few, many = (Operation(parameters, kind(machines, local, size, turns=turns)) for turns in (12, 24))
    return (many.time - few.time) / 12 * whole.turns, (payload_of(many) - payload_of(few)) / 12 * whole.chunks


def tree(parameters, machines, local, size):
    return simulate(parameters, lambda chunks: Tree(machines, local, size, chunks), Tree(machines, local, size).chunks)


class Dissemination(Shape):
    """An exchange in rounds: in each, an agent hears from one machine what that has heard before, twice as much each time.

    A record of a barrier has one length, whatever it speaks of. `each_rank` are bytes of each rank that all ranks need.
    """

    def __init__(self, machines, local, each_rank=0):
        super().__init__(machines, local, each(machines))
        self.each_rank = each_rank
        self.rounds = math.ceil(math.log2(machines))
        self.last, self.published = self.rounds, self.rounds

    def looks(self, turn):
        return (self.ranks if self.each_rank else self.local) if turn == self.last else 0

    def message(self, place, other, turn):
        if len(self.classes) > 1 and other != (place + (1 << turn)) % self.count:
            return Message(0.0)
        known = min(1 << turn, self.count - (1 << turn)) * self.local
        payload = max(0, known * self.each_rank - FRAME_BYTES)
        return Message(2.0 if payload else 1.0, payload, 1.0)


class Ring(Shape):
    """Parts of the machines' sums go round, each folded in an order that begins with another machine; then the results."""

    def __init__(self, machines, local, size, turns=None):
        super().__init__(machines, local, each(machines))
        self.part = size / machines
        self.turns = 2 * (machines - 1)
        self.last = self.published = turns or self.turns

    def looks(self, turn):
        return 0 if turn == 0 else self.local

    def work(self, _place, _turn):
        """Folds its share of the part, or copies all of a result; on the average of both halves."""
        return (self.part / self.local * (self.local + 2) / 2 + self.part * (2 * self.local - 1) / self.local) / 2

    def message(self, place, other, turn):
        if len(self.classes) > 1 and other != (place + 1) % self.count:
            return Message(0.0)
        return Message(1 + 2 * self.local, self.part, 1 + self.local)


def next_barrier(parameters, machines, local, each_rank=0):
    return Operation(parameters, Dissemination(machines, local, each_rank)).time


def ring(parameters, machines, local, size):
    whole = Ring(machines, local, size)
    if whole.turns <= 24:
        done = Operation(parameters, whole)
        return done.time, payload_of(done)
    few, many = (Operation(parameters, Ring(machines, local, size, turns)) for turns in (12, 24))
    return (many.time - few.time) / 12 * whole.turns, payload_of(many) / 24 * whole.turns


def traffic(order, machines, local):
    """The closed formulas: bytes that the busiest machine sends, or gets, for each byte of a buffer."""
    if order == 'slices':
        return (local + 1) * (machines - 1) / machines
    if order == 'chain':
        return 1.0 if machines == 2 else 2.0
    return 2 * (machines - 1) / machines


def today(machines, local):
    """The algorithm of large reductions of floats (machine_tree::run)."""
    is_tree = local > 1 and local & (local - 1) == 0 and machines * local <= 32
    return 'tree' if is_tree else 'slices'


def all_reduce(parameters, machines, local, size, order='today'):
    """The time of an all_reduce, and the payload that the busiest machine sends or gets."""
    if size <= ONE_SHOT:
        return barrier(parameters, machines, local), 0.0
    functions = {'slices': slices, 'chain': chain, 'tree': tree, 'ring': ring,
                 'next_chain': lambda *arguments: chain(*arguments, NeighbourChain)}
    return functions[today(machines, local) if order == 'today' else order](parameters, machines, local, size)


def plan_bytes(parameters, machines, local):
    return machines * (parameters.plan_machine + parameters.plan_rank * local)


def root_start(parameters, machines, local):
    """The work of the root for the other machines: each has to come, and to get the plan, which has all machines."""
    others = machines - 1
    return others * (parameters.join + plan_bytes(parameters, machines, local) / parameters.plan_speed)


def start(parameters, machines, local):
    """From the time at which the last process begins, until all ranks are there."""
    work = parameters.machine_start + (local - 1) * parameters.rank_start + (machines - 1) * parameters.endpoint
    work += machine_memory(machines, local) / parameters.memory_speed
    side_by_side = 1 if parameters.cores == 0 else machines / parameters.cores
    return parameters.start + root_start(parameters, machines, local) + work * max(1.0, side_by_side)


def descriptors(parameters, machines):
    return parameters.descriptors + parameters.machine_descriptors * (machines - 1)


def first_where(exceeds, most=1 << 20):
    """The least number of machines for which `exceeds`, which stays true above it; None where there is none."""
    low, high = 1, 2
    while not exceeds(high):
        if high >= most:
            return None
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if exceeds(middle) else (middle, high)
    return high
