#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares hfcomm's operations with Open MPI's on this machine.

Starts the two benchmark programs in turns (hfcomm, Open MPI, hfcomm, ...), takes medians over the rounds and prints one
table; ratio = Open MPI's time / hfcomm's time, so more than 1 means that hfcomm is faster. The ratio of bests compares
the fastest launch of each: where it is far from the ratio of the medians, the machine was not the same for both (on a
virtual machine the host may move the cores closer together or further apart), and the bests are fairer. Without Open MPI
it prints hfcomm's times alone.
"""

import argparse
import datetime
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

OPERATIONS = 'barrier,all_reduce,all_reduce_in_place,broadcast,all_gather,gather,reduce'
SIZES = '8,64,1K,4K,64K,1M,16M'
SLOWER = 1 / 1.2


def parse_arguments():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--build-dir', type=pathlib.Path, default=root / 'build', help='where Meson built (build)')
    parser.add_argument('--ranks', default='2,4',
                        help='numbers of ranks, separated by commas; up to the number of cores they are bound to cores')
    parser.add_argument('--rounds', type=int, help='launches of each program (3)')
    parser.add_argument('--sizes', help=f'({SIZES})')
    parser.add_argument('--operations', default=OPERATIONS, help=f'({OPERATIONS})')
    parser.add_argument('--line-ms', type=int, help='how long each program takes for a line (200)')
    parser.add_argument('--quick', action='store_true', help='one round, few sizes: to see that it works, not to quote')
    parser.add_argument('--json', type=pathlib.Path, help='write the results there, too')
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (1 if arguments.quick else 3)
    arguments.sizes = arguments.sizes or ('8,4K,64K,1M' if arguments.quick else SIZES)
    arguments.line_ms = arguments.line_ms or (50 if arguments.quick else 200)
    try:
        arguments.ranks = [int(word) for word in arguments.ranks.split(',')]
    except ValueError:
        parser.error(f'--ranks: "{arguments.ranks}" is not a list of numbers')
    if arguments.rounds < 1 or arguments.line_ms < 1 or min(arguments.ranks) < 1:
        parser.error('--rounds, --line-ms and --ranks must be positive')
    return arguments


def find_programs(build_dir):
    """The two programs and mpirun; None for each of the last two that is missing, with a word about it."""
    ours = build_dir / 'bench' / 'collectives'
    theirs = build_dir / 'bench' / 'compare_open_mpi'
    if not os.access(ours, os.X_OK):
        sys.exit(f'compare_open_mpi: there is no {ours}\n'
                 f'Build it: meson setup {build_dir}; ninja -C {build_dir} bench/collectives')
    mpirun = shutil.which('mpirun.openmpi')
    missing = []
    if mpirun is None:
        missing.append('mpirun.openmpi is not installed (Debian: openmpi-bin)')
    if not os.access(theirs, os.X_OK):
        missing.append(f'there is no {theirs}' + ('' if shutil.which('mpicxx.openmpi') else
                       ' because mpicxx.openmpi is not installed (Debian: libopenmpi-dev)') +
                       '; configure and build again')
        theirs = None
    if missing:
        print("# No comparison, only hfcomm's times: " + '; '.join(missing))
        return ours, None, None
    return ours, theirs, mpirun


def command_for(program, mpirun, ranks, cores, arguments, result):
    bound = ranks <= cores
    command = [str(program), '--sizes', arguments.sizes, '--operations', arguments.operations,
               '--line-ms', str(arguments.line_ms), '--json', str(result)]
    if mpirun is None:
        return command + ['--processes', str(ranks)] + (['--bind-to-core'] if bound else [])
    # Without yielding, Open MPI's ranks would spin on the cores that the others need.
    how = ['--bind-to', 'core'] if bound else ['--oversubscribe', '--mca', 'mpi_yield_when_idle', '1']
    return [mpirun, '-n', str(ranks)] + how + command


def run(command, result):
    environment = dict(os.environ)
    if os.geteuid() == 0:
        environment.update(OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1')
    try:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=1800, check=False)
    except subprocess.TimeoutExpired:
        sys.exit(f'compare_open_mpi: this did not end within half an hour: {" ".join(command)}')
    if done.returncode != 0:
        print(done.stdout, file=sys.stderr)
        sys.exit(f'compare_open_mpi: exit status {done.returncode} of: {" ".join(command)}')
    return json.loads(result.read_text(encoding='utf-8'))


def measure(programs, cores, arguments):
    """{library: {(ranks, operation, bytes): [median of each round]}}, the headers, the commands."""
    ours, theirs, mpirun = programs
    times, headers, commands = {}, {}, {}
    with tempfile.TemporaryDirectory(prefix='hfcomm-bench-') as folder:
        for number in range(arguments.rounds):
            for ranks in arguments.ranks:
                for library, program, starter in (('hfcomm', ours, None), ('open_mpi', theirs, mpirun)):
                    if program is None:
                        continue
                    print(f'\r# round {number + 1} of {arguments.rounds}, {ranks} ranks, {library}      ', end='',
                          file=sys.stderr, flush=True)
                    result = pathlib.Path(folder) / 'result.json'
                    command = command_for(program, starter, ranks, cores, arguments, result)
                    found = run(command, result)
                    headers.setdefault(library, found['header'])
                    shown = command_for(pathlib.Path(program).name, starter and 'mpirun.openmpi', ranks, cores, arguments,
                                        'FILE')
                    commands.setdefault(library, {})[str(ranks)] = ' '.join(shown)
                    for record in found['records']:
                        key = (ranks, record['operation'], record['bytes'])
                        times.setdefault(library, {}).setdefault(key, []).append(record['median_us'])
    print(file=sys.stderr)
    return times, headers, commands


def make_records(times):
    records = []
    for (ranks, operation, size), ours in times['hfcomm'].items():
        record = {'operation': operation, 'processes': ranks, 'type': 'float32' if size else '-', 'bytes': size,
                  'hfcomm_us': statistics.median(ours), 'hfcomm_rounds_us': ours}
        theirs = times.get('open_mpi', {}).get((ranks, operation, size))
        if theirs:
            record.update(open_mpi_us=statistics.median(theirs), open_mpi_rounds_us=theirs,
                          ratio=round(statistics.median(theirs) / statistics.median(ours), 3),
                          ratio_of_bests=round(min(theirs) / min(ours), 3))
        records.append(record)
    return records


def is_slower(record):
    """By either ratio: noise that hides a weakness is worse than noise that pretends one."""
    return min(record['ratio'], record['ratio_of_bests']) < SLOWER


def print_table(records, cores, arguments):
    for ranks in arguments.ranks:
        chosen = [record for record in records if record['processes'] == ranks]
        compared = [record for record in chosen if 'ratio' in record]
        how = 'bound to cores' if ranks <= cores else f'more ranks than cores ({cores}), both yield'
        print(f'\n# {ranks} ranks, {how}; us: medians over {arguments.rounds} launches; best: of the fastest launch')
        head = f'  {"operation":<20} {"bytes":>9} {"hfcomm us":>10} {"best":>10}'
        print(head + (f' {"Open MPI us":>12} {"best":>10} {"ratio":>7} {"of bests":>9}' if compared else ''))
        for record in chosen:
            line = (f'  {record["operation"]:<20} {record["bytes"]:>9} {record["hfcomm_us"]:>10.2f} '
                    f'{min(record["hfcomm_rounds_us"]):>10.2f}')
            if 'ratio' in record:
                line += (f' {record["open_mpi_us"]:>12.2f} {min(record["open_mpi_rounds_us"]):>10.2f} '
                         f'{record["ratio"]:>7.2f} {record["ratio_of_bests"]:>9.2f}')
                line += '  hfcomm is slower' if is_slower(record) else ''
            print(line)
        if compared:
            mean = math.exp(statistics.fmean(math.log(record['ratio']) for record in compared))
            bests = math.exp(statistics.fmean(math.log(record['ratio_of_bests']) for record in compared))
            slower = sum(is_slower(record) for record in compared)
            print(f'# {ranks} ranks: geometric mean of the ratios {mean:.2f}, of bests {bests:.2f}; hfcomm is slower by '
                  f'more than 1.2, by either, in {slower} of {len(compared)} lines')


def main():
    arguments = parse_arguments()
    cores = len(os.sched_getaffinity(0))
    programs = find_programs(arguments.build_dir)
    began = datetime.datetime.now(datetime.timezone.utc)
    load = pathlib.Path('/proc/loadavg').read_text(encoding='ascii').split()[:3]
    times, headers, commands = measure(programs, cores, arguments)
    records = make_records(times)
    ours = headers['hfcomm']
    peer = headers['open_mpi']['library'] if 'open_mpi' in headers else 'nothing'
    print(f'# {ours["library"]} and {peer}; {ours["cpu"]}, {cores} cores, {ours["compiler"]}')
    if not ours['optimized']:
        print('# Built without optimization: these are no figures to quote.')
    print_table(records, cores, arguments)
    if arguments.json:
        header = {'date': began.strftime('%Y-%m-%dT%H:%M:%SZ'), 'cpu': ours['cpu'], 'cores': cores,
                  'compiler': ours['compiler'], 'optimized': ours['optimized'], 'rounds': arguments.rounds,
                  'libraries': {name: header['library'] for name, header in headers.items()}, 'load_before': load,
                  'commands': commands}
        # A record a line: small, and readable in a diff.
        lines = ',\n'.join('  ' + json.dumps(record) for record in records)
        arguments.json.write_text(f'{{"header": {json.dumps(header, indent=1)},\n"records": [\n{lines}\n]}}\n',
                                  encoding='utf-8')


if __name__ == '__main__':
    main()
