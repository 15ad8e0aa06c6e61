# SPDX-License-Identifier: MIT
"""Tables and summaries of the records of bench/compare."""

import math
import statistics

TITLES = {'hfcomm': 'hfcomm', 'before': 'before', 'open_mpi': 'Open MPI', 'mpich': 'MPICH', 'gloo': 'Gloo',
          'boost_mpi': 'Boost.MPI', 'torch': 'PyTorch', 'limit': 'limit'}


def peers_of(records, one):
    """The peers' records at hfcomm's record `one`. Peers have ordinary memory only, and their own float32."""
    return [other for other in records
            if other['system'] not in ('hfcomm', 'limit') and other['operation'] == one['operation'] and
            other['ranks'] == one['ranks'] and other['bytes'] == one['bytes'] and
            other['type'] == one['type'] and
            (other['buffer'] == one['buffer'] or (one['buffer'] == 'shared' and other['buffer'] == 'ordinary'))]


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


def table(records, systems):
    peers = [system for system in systems if system not in ('hfcomm', 'limit')]
    lines = []
    head = f'{"operation":<14} {"buffer":<8} {"type":<13} {"ranks":>5} {"bytes":>6} {"hfcomm":>9}'
    head += ''.join(f' {TITLES[system]:>9}' for system in peers) + f' {"ratio":>7}'
    lines.append(head + (f' {"limit":>9} {"of limit":>8}' if 'limit' in systems else ''))
    for one in (record for record in records if record['system'] == 'hfcomm'):
        line = (f'{one["operation"]:<14} {one["buffer"]:<8} {one["type"]:<13} {one["ranks"]:>5} '
                f'{text_of(one["bytes"]):>6} {number(one["median_us"]):>9}')
        others = {other['system']: other['median_us'] for other in peers_of(records, one)}
        line += ''.join(f' {number(others[system]) if system in others else "":>9}' for system in peers)
        ratio = min(others.values()) / one['median_us'] if others else None
        line += f' {ratio:>7.2f}' if ratio else ' ' * 8
        limit = limit_of(records, one) if one['buffer'] != 'object' else None
        if limit:
            line += f' {number(limit["median_us"]):>9} {limit["median_us"] / one["median_us"]:>8.2f}'
        lines.append(line.rstrip())
    return lines


def summary(records):
    """The geometric mean of the ratios for each operation and buffer, and its worst line."""
    groups = {}
    for one in (record for record in records if record['system'] == 'hfcomm'):
        others = peers_of(records, one)
        if others:
            ratio = min(other['median_us'] for other in others) / one['median_us']
            groups.setdefault((one['ranks'], one['operation'], one['buffer']), []).append((ratio, one['bytes']))
    lines = [f'{"operation":<14} {"buffer":<8} {"ranks":>5} {"mean ratio":>10} {"worst":>7}  at']
    for (ranks, operation, buffer), ratios in groups.items():
        mean = math.exp(statistics.fmean(math.log(ratio) for ratio, _ in ratios))
        worst, size = min(ratios)
        lines.append(f'{operation:<14} {buffer:<8} {ranks:>5} {mean:>10.2f} {worst:>7.2f}  {text_of(size)}')
    return lines


def table_of_ratios(records, systems):
    """Each peer's time / hfcomm's, and the bytes that each system sends for each byte of the operation."""
    peers = [system for system in systems if system not in ('hfcomm', 'limit')]
    head = f'{"operation":<14} {"type":<13} {"bytes":>6}'
    head += ''.join(f' {TITLES[system] + " /":>11}' for system in peers)
    head += ''.join(f' {"sent, " + TITLES[system]:>15}' for system in ['hfcomm', *peers])
    lines = [head.rstrip()]
    for one in (record for record in records if record['system'] == 'hfcomm'):
        others = {other['system']: other for other in peers_of(records, one)}
        line = f'{one["operation"]:<14} {one["type"]:<13} {text_of(one["bytes"]):>6}'
        for system in peers:
            ratio = f'{others[system]["median_us"] / one["median_us"]:.2f}' if system in others else ''
            line += f' {ratio:>11}'
        for found in [one, *(others.get(system) for system in peers)]:
            amount = f'{found["sent_bytes"] / found["bytes"]:.2f}' if found and found['bytes'] else ''
            line += f' {amount:>15}'
        lines.append(line.rstrip())
    return lines
