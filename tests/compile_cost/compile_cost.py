#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""compile_cost.py [--check | --record | --document] [OPTION]... [ROOT] [COMPILER...]: the cost of including hfcomm.

The programs are `return hfcomm::rank();` and the README's first one, header-only and compiled, and the compiled part.
Without an action it prints sizes and times of all. ROOT is the sources' folder (where this script is), COMPILER g++.

  --check     compares what is the same in every run with limits.json: bytes after the preprocessor, functions and code
              bytes in the objects, the element types of reduction kernels. Exits with 1 where one is more than 2 % above
              what was reached, or more than 2 % below, or where a table of README.md or docs/compiled.md is stale. The
              sizes of another compiler than the recorded one are not judged.
  --record    writes what is reached into limits.json and the tables. Whoever raises a limit names the reason in
              CHANGELOG.md.
  --document  records, measures times and memory, and writes times.json and the tables, with machine and date. Each round
              measures all programs in turns; figures are medians, and ratios are to the cereal program of the same round.

  --rounds N       rounds of measuring times (5)
  --part ARCHIVE   with --check: judges this compiled part, which Meson has built for installing, and no programs
  --torch FOLDERS  also a program with <hfcomm/torch.hpp>; the folders of LibTorch's headers, separated by colons
"""

import argparse
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
import limits
import sizes
import tables
import times
from builds import BuildCommands


def measure_sizes(build):
    """The sizes of the programs, and what is wrong with them whatever the compiler."""
    measured, failures = sizes.sizes_of_programs(build)
    if build.torch_folders:
        with_torch, torch_failures = sizes.sizes_of_torch(build)
        measured |= with_torch
        failures += torch_failures
    return measured, failures


def check(build, part):
    recorded = limits.read_limits()
    if part is not None:
        measured, failures = sizes.sizes_of_part(part), []
    else:
        measured, failures = measure_sizes(build)
        failures += [f"{page}: a table is stale. Run tests/compile_cost/compile_cost.py --record"
                     for page in tables.stale_pages(build.root, recorded, times.read_times())]
    if recorded["compiler"] == build.compiler_name():
        failures += limits.compare(recorded, measured)
    else:
        print(f"[hfcomm] skipped: limits of sizes: they are of {recorded['compiler']}, not of {build.compiler_name()}")
    for failure in failures:
        print(f"FAILED: {failure}")
    return 1 if failures else 0


def record(build):
    measured, failures = measure_sizes(build)
    measured |= sizes.sizes_of_part(sizes.compile_object(build, build.of_part()))
    limits.record(build.compiler_name(), measured)
    for failure in failures:
        print(f"FAILED: {failure}")
    return 1 if failures else 0


def document(build, rounds):
    status = record(build)
    times.write_times(times.measure_times(build, rounds))
    return status


def show(build, rounds):
    measured, _ = measure_sizes(build)
    for key, unit, value in limits.rows(measured):
        print(f"{key:20} {unit:18} {value:10,}")
    measured_times = times.measure_times(build, rounds)
    for part in ("programs", "torch") if build.torch_folders else ("programs",):
        for key, time in measured_times[part].items():
            print(f"{key:24} {time['seconds']:8.2f} s {time['ratio']:6.2f} {time['MB']:6} MB")
    return 0


def parse_arguments():
    parser = argparse.ArgumentParser(usage=__doc__.replace("%", "%%"))
    action = parser.add_mutually_exclusive_group()
    for name in ("check", "record", "document"):
        action.add_argument(f"--{name}", dest="action", action="store_const", const=name)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--part")
    parser.add_argument("--torch", default="")
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("compiler", nargs=argparse.REMAINDER)
    return parser.parse_args()


def main():
    options = parse_arguments()
    with tempfile.TemporaryDirectory() as scratch:
        folders = options.torch.split(":") if options.torch else []
        build = BuildCommands(options.root, scratch, options.compiler or ["g++"], folders)
        if options.action == "check":
            return check(build, options.part)
        if options.action is None:
            return show(build, options.rounds)
        status = record(build) if options.action == "record" else document(build, options.rounds)
        tables.write_tables(build.root, limits.read_limits(), times.read_times())
        return status


if __name__ == "__main__":
    sys.exit(main())
