# SPDX-License-Identifier: MIT
"""Judges the records of bench/compare, and makes its tables of them.

A record is what one system took for one line. Its `rounds_us` has a list of times for each launch, one for each turn; in a
round, which is a turn of a launch, all systems are measured one after the other. Records of earlier versions have none.
"""

import collections
import dataclasses
import statistics

TITLES = {'hfcomm': 'hfcomm', 'before': 'before', 'open_mpi': 'Open MPI', 'mpich': 'MPICH', 'gloo': 'Gloo',
          'boost_mpi': 'Boost.MPI', 'torch': 'PyTorch', 'limit': 'limit'}
AHEAD, BEHIND, UNDECIDED, NOT_JUDGED = VERDICTS = ('ahead', 'behind', 'undecided', 'not judged')
MARKS = {AHEAD: '', BEHIND: '', UNDECIDED: '~', NOT_JUDGED: '?'}
# Systems of equal speed would be in the same order in all of six rounds in 1 case out of 32.
LEAST_ROUNDS = 6
# One round in so many may be an outlier, on each side.
ROUNDS_PER_OUTLIER = 10
AGAIN = ' again'  # Ends the name of a way's second column.
WAY = 'way:'  # Begins the name of a system that is hfcomm with one way of transfer only: way:slots:32K.
SHARED = ('shared', 'registered')  # buffers in memory that hfcomm's ranks share
WORST_CELLS = 5


def is_peer(system):
    return system not in ('hfcomm', 'limit') and not system.startswith(WAY)


def rounds_of(record):
    """{(launch, turn): time}."""
    return {(launch, turn): time for launch, times in enumerate(record.get('rounds_us', []))
            for turn, time in enumerate(times)}


def range_of(ratios):
    """(lowest, highest) without outliers: a tenth of the ratios at each end, rounded down."""
    outliers = len(ratios) // ROUNDS_PER_OUTLIER
    kept = sorted(ratios)[outliers:len(ratios) - outliers]
    return kept[0], kept[-1]


def verdict_of(one, others):
    """Whether hfcomm's record `one` is ahead of all peers, behind one of them, or neither, in all rounds but outliers.

    Ratios of the same round are compared with 1, because the speed of a machine changes from round to round. A peer that
    was too slow to be measured again takes part in its rounds only.
    """
    mine = rounds_of(one)
    ratios = [{moment: time / mine[moment] for moment, time in rounds_of(other).items() if moment in mine}
              for other in others]
    best = [min(found[moment] for found in ratios if moment in found) for moment in set().union(*ratios)]
    if len(best) < LEAST_ROUNDS:
        return NOT_JUDGED
    if range_of(best)[0] > 1:
        return AHEAD
    if any(len(found) >= LEAST_ROUNDS and range_of(found.values())[1] < 1 for found in ratios):
        return BEHIND
    return UNDECIDED


@dataclasses.dataclass(frozen=True)
class Cell:
    """One line of hfcomm beside its peers; `ratio` is the best peer's median time / hfcomm's."""
    record: dict
    peer: str
    ratio: float
    verdict: str

    def ratio_text(self):
        return f'{self.ratio:.2f}{MARKS[self.verdict]}'

    def work_text(self):
        """Such as "all_reduce of 64K, float32 in shared buffers"."""
        one = self.record
        words = f'{one["operation"]} of {text_of(one["bytes"])}, {one["type"]}' if one['bytes'] else one['operation']
        if one['buffer'] == 'early':
            return words + ', left early'
        return words + (f' in {one["buffer"]} buffers' if one['buffer'] in SHARED else '')


def cell_of(records, one):
    """The cell of hfcomm's record `one`, or None where no peer was measured."""
    others = peers_of(records, one)
    if not others:
        return None
    best = min(others, key=lambda other: other['median_us'])
    return Cell(one, best['system'], best['median_us'] / one['median_us'], verdict_of(one, others))


def cells_of(records):
    cells = (cell_of(records, one) for one in records if one['system'] == 'hfcomm')
    return [cell for cell in cells if cell]


def count_verdicts(cells):
    """{verdict: number}, of every verdict."""
    return {**dict.fromkeys(VERDICTS, 0), **collections.Counter(cell.verdict for cell in cells)}


def worst_cells(cells, count=WORST_CELLS, verdicts=(AHEAD, BEHIND)):
    """The cells of the lowest ratios, lowest first, among those of the verdicts."""
    return sorted((cell for cell in cells if cell.verdict in verdicts), key=lambda cell: cell.ratio)[:count]


def buffer_of_peers(one):
    """Peers have ordinary memory only, and leave their operations when they can."""
    if one['buffer'] == 'early':
        return 'object' if one['type'].startswith('small_') else 'ordinary'
    return 'ordinary' if one['buffer'] in SHARED else one['buffer']


def is_at(other, one, buffer):
    return other['buffer'] == buffer and all(other[key] == one[key] for key in ('operation', 'ranks', 'bytes', 'type'))


def peers_of(records, one):
    """The peers' records at hfcomm's record `one`. Peers have their own float32."""
    return [other for other in records if is_peer(other['system']) and is_at(other, one, buffer_of_peers(one))]


def ways_of(records, one):
    """The records of hfcomm's single ways of transfer at its record `one`."""
    return [other for other in records if other['system'].startswith(WAY) and is_at(other, one, one['buffer'])]


def limit_of(records, one):
    for other in records:
        if other['system'] == 'limit' and one['operation'] == other['operation'] and one['ranks'] == other['ranks'] and \
                one['bytes'] == other['bytes'] and one['type'] == other['type']:
            return other
    return None


def text_of(size):
    for unit, shift in (('M', 20), ('K', 10)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f'{size >> shift}{unit}'
    return str(size)


def number(value):
    return f'{value:.2f}' if value < 100 else f'{value:.0f}'


def width_of(way):
    """Of a way's column."""
    return max(13, len(way.removeprefix(WAY)))


def table(records, systems):
    peers = [system for system in systems if is_peer(system)]
    ways = [system for system in systems if system.startswith(WAY)]
    lines = []
    head = f'{"operation":<14} {"buffer":<8} {"type":<13} {"ranks":>5} {"bytes":>6} {"hfcomm":>9}'
    head += ''.join(f' {TITLES[system]:>9}' for system in peers) + f' {"ratio":>7} '
    head += ''.join(f' {system.removeprefix(WAY):>{width_of(system)}}' for system in ways) + (f' {"choice":>6}' if ways else '')
    lines.append((head + (f' {"limit":>9} {"of limit":>8}' if 'limit' in systems else '')).rstrip())
    for one in (record for record in records if record['system'] == 'hfcomm'):
        line = (f'{one["operation"]:<14} {one["buffer"]:<8} {one["type"]:<13} {one["ranks"]:>5} '
                f'{text_of(one["bytes"]):>6} {number(one["median_us"]):>9}')
        others = {other['system']: other['median_us'] for other in peers_of(records, one)}
        line += ''.join(f' {number(others[system]) if system in others else "":>9}' for system in peers)
        cell = cell_of(records, one)
        line += f' {cell.ratio:>7.2f}{MARKS[cell.verdict] or " "}' if cell else ' ' * 9
        found = {other['system']: other['median_us'] for other in ways_of(records, one)}
        line += ''.join(f' {number(found[system]) if system in found else "":>{width_of(system)}}' for system in ways)
        line += (f' {choice_of(records, one):>6.2f}' if found else ' ' * 7) if ways else ''
        limit = limit_of(records, one) if one['buffer'] != 'object' else None
        if limit:
            line += f' {number(limit["median_us"]):>9} {limit["median_us"] / one["median_us"]:>8.2f}'
        lines.append(line.rstrip())
    return lines


def summary(records):
    """For each operation and buffer the geometric mean of the ratios, the numbers of verdicts and the lowest ratio; then
    the worst of the decided cells."""
    groups = {}
    for cell in cells_of(records):
        one = cell.record
        groups.setdefault((one['ranks'], one['operation'], one['buffer']), []).append(cell)
    lines = [f'{"operation":<14} {"buffer":<8} {"ranks":>5} {"mean ratio":>10}' +
             ''.join(f' {verdict:>10}' for verdict in VERDICTS) + f' {"lowest":>7}   at']
    for (ranks, operation, buffer), cells in groups.items():
        mean = statistics.geometric_mean(cell.ratio for cell in cells)
        lowest = min(cells, key=lambda cell: cell.ratio)
        lines.append(f'{operation:<14} {buffer:<8} {ranks:>5} {mean:>10.2f}' +
                     ''.join(f' {count:>10}' for count in count_verdicts(cells).values()) +
                     f' {lowest.ratio:>7.2f}{MARKS[lowest.verdict] or " "}  {text_of(lowest.record["bytes"])}')
    return [*lines, *choice_beside_ways(records), *decisions([cell for cells in groups.values() for cell in cells])]


def choice_of(records, one):
    """The time of the quickest single way at hfcomm's record `one` / that of what hfcomm chose; None without ways."""
    return min((other['median_us'] for other in ways_of(records, one)), default=0) / one['median_us'] or None


@dataclasses.dataclass(frozen=True)
class Choices:
    """How the ways that hfcomm chose among so many ranks compare with the quickest one of each line. That is the lowest of
    several measurements, so noise makes it look too quick: two columns of one way (kernel:32K and kernel:32K again) show
    the least by which, because the lowest of more columns is lower still."""
    ranks: int
    count: int  # lines
    mean: float
    lowest: float
    lowest_record: dict
    twins: float | None  # the lower of two equal columns / the first, the mean; None without such columns

    def lowest_text(self):
        return Cell(self.lowest_record, '', 0, '').work_text()


def choices_of(records):
    """The `Choices` of each number of ranks that has records of single ways."""
    mean = statistics.geometric_mean
    for ranks in sorted({one['ranks'] for one in records}):
        found = [(choice, one) for one in records if one['ranks'] == ranks and one['system'] == 'hfcomm' and
                 (choice := choice_of(records, one))]
        if found:
            lowest, where = min(found, key=lambda pair: pair[0])
            twins = [min(first['median_us'], again['median_us']) / first['median_us'] for _, one in found
                     for again in ways_of(records, one) for first in ways_of(records, one)
                     if again['system'] == first['system'] + AGAIN]
            yield Choices(ranks, len(found), mean(choice for choice, _ in found), lowest, where, mean(twins) if twins else None)


def choice_beside_ways(records):
    """The `Choices` as lines of text."""
    lines = []
    mean = statistics.geometric_mean
    for one in choices_of(records):
        line = (f'{one.count} lines among {one.ranks} ranks, time of the quickest way / of the chosen: '
                f'mean {one.mean:.3f}, lowest {one.lowest:.2f} ({one.lowest_text()})')
        cells = [cell for cell in cells_of(records) if cell.record['ranks'] == one.ranks and choice_of(records, cell.record)]
        if cells:
            quickest = mean(cell.ratio / choice_of(records, cell.record) for cell in cells)
            line += f'; mean ratio {mean(cell.ratio for cell in cells):.2f}, with the quickest {quickest:.2f}'
        lines.append(line)
        if one.twins:
            lines.append(f'the lower of two equal columns / the first: mean {one.twins:.3f}')
    return ['', *lines] if lines else []


def decisions(cells):
    """Lines of text: how many cells have which verdict, and the worst of the decided ones. None without cells."""
    if not cells:
        return []
    counts = count_verdicts(cells)
    line = f'of {len(cells)} cells: {counts[AHEAD]} ahead, {counts[BEHIND]} behind, {counts[UNDECIDED]} undecided (~)'
    if counts[NOT_JUDGED]:
        line += f', {counts[NOT_JUDGED]} not judged (?: fewer than {LEAST_ROUNDS} rounds)'
    worst = worst_cells(cells)
    lines = ['', line, *(['worst of the decided cells:'] if worst else [])]
    for cell in worst:
        lines.append(f'{cell.ratio:>7.2f}  {cell.verdict:<6}  {cell.work_text()}, {cell.record["ranks"]} ranks; '
                     f'best peer {TITLES[cell.peer]}')
    return lines


def table_of_ratios(records, systems):
    """Each peer's time / hfcomm's, and the bytes that each system sends for each byte of the operation."""
    peers = [system for system in systems if is_peer(system)]
    head = f'{"operation":<14} {"type":<13} {"bytes":>6}'
    head += ''.join(f' {TITLES[system] + " /":>11}' for system in peers)
    head += ''.join(f' {"sent, " + TITLES[system]:>15}' for system in ['hfcomm', *peers])
    lines = [head.rstrip()]
    for one in (record for record in records if record['system'] == 'hfcomm'):
        others = {other['system']: other for other in peers_of(records, one)}
        line = f'{one["operation"]:<14} {one["type"]:<13} {text_of(one["bytes"]):>6}'
        for system in peers:
            cell = cell_of([one, others[system]], one) if system in others else None
            line += f' {cell.ratio_text() if cell else "":>11}'
        for found in [one, *(others.get(system) for system in peers)]:
            amount = f'{found["sent_bytes"] / found["bytes"]:.2f}' if found and found['bytes'] else ''
            line += f' {amount:>15}'
        lines.append(line.rstrip())
    return lines
