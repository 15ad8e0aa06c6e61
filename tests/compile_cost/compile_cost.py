#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""compile_cost.py [--check] [--rounds N] [--torch FOLDERS] ROOT [COMPILER...]: the cost of including hfcomm.

Prints how long the compiler takes for `return hfcomm::rank();` and for the README's first program, header-only and
compiled, as ratios to a small program that uses cereal alone, and the peak memory. Each round measures all of them in
turns; the table has the medians of N rounds (5). Times are user CPU seconds.

--torch, with the folders of LibTorch's headers separated by colons, is for <hfcomm/torch.hpp>, whose program trains and
reduces a tensor: compiled, and beside LibTorch's header alone.

--check judges only what is the same in every run: the bytes after the preprocessor, and the functions and reduction
kernels in the objects. It exits with 1 where one is above its limit.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile

# Upper limits for g++ 12 and Debian 12's libraries, a few percent above what there is: a header that comes back into
# the public path shows here.
LIMITS = {
    # (program, way): (bytes after the preprocessor, functions in the object at -O2)
    ("rank", "header-only"): (5_000_000, 30),
    ("rank", "compiled"): (3_600_000, 4),
    ("first", "header-only"): (5_000_000, 1500),
    ("first", "compiled"): (3_600_000, 100),
}
# Element types whose reduction kernels an object may hold.
KERNELS = {
    ("rank", "header-only"): set(),
    ("rank", "compiled"): set(),
    ("first", "header-only"): {"float", "double"},
    ("first", "compiled"): set(),
}
# The same for <hfcomm/torch.hpp>, beyond LibTorch's own header: bytes, and hfcomm's functions in the object at -O2.
TORCH_LIMITS = (900_000, 10)
WAYS = {"header-only": [], "compiled": ["-DHFCOMM_COMPILED"]}
KERNEL = re.compile(r"hfcomm::detail::\w+_blocks::\w+<(?:\(hfcomm::reduce_kind\)\d+, )?([^,>]+)")


def first_program(root):
    """The README's first C++ block."""
    with open(os.path.join(root, "README.md"), encoding="utf-8") as readme:
        return re.search(r"^```cpp\n(.*?)^```", readme.read(), re.MULTILINE | re.DOTALL).group(1)


def compile_once(command):
    """Returns user seconds and the peak memory in MB."""
    process = os.posix_spawnp(command[0], command, os.environ)
    _, status, usage = os.wait4(process, 0)
    if status != 0:
        sys.exit(f"failed: {' '.join(command)}")
    return usage.ru_utime, usage.ru_maxrss / 1000


def measure(compile_with, sources, rounds):
    runs = {("cereal", "-c", ""): compile_with + ["-c", sources["cereal"]]}
    for program, level in (("rank", "-O0"), ("rank", "-O2"), ("first", "-O0"), ("first", "-O2")):
        for way, arguments in WAYS.items():
            runs[program, level, way] = compile_with + arguments + [level, "-c", sources[program]]
    figures = {key: [] for key in runs}
    for _ in range(rounds):
        for key, command in runs.items():
            figures[key].append(compile_once(command + ["-o", "/dev/null"]))
    median = {key: [statistics.median(column) for column in zip(*values)] for key, values in figures.items()}
    base = median["cereal", "-c", ""][0]
    print(f"cereal alone: {base:.2f} s")
    print(f"{'':34}{'header-only':>24}{'compiled':>24}")
    names = {"rank": "return hfcomm::rank();", "first": "README's first program"}
    for program, level in (("rank", "-O0"), ("rank", "-O2"), ("first", "-O0"), ("first", "-O2")):
        row = f"{names[program] + ' ' + level:34}"
        for way in WAYS:
            seconds, memory = median[program, level, way]
            row += f"{seconds:8.2f} s {seconds / base:5.2f} {memory:4.0f} MB"
        print(row)


def measure_torch(compile_with, sources, rounds):
    names = {"torch_alone": "LibTorch's header alone", "torch_plain": "a pass without hfcomm",
             "torch": "the pass with <hfcomm/torch.hpp>"}
    runs = [(program, level) for level in ("-O0", "-O2") for program in names]
    figures = {run: [] for run in runs}
    for _ in range(rounds):
        for program, level in runs:
            command = compile_with + [level, "-c", sources[program], "-o", "/dev/null"]
            figures[program, level].append(compile_once(command)[0])
    for program, level in runs:
        seconds = statistics.median(figures[program, level])
        base = statistics.median(figures["torch_alone", level])
        print(f"{names[program] + ' ' + level:38}{seconds:8.2f} s {seconds / base:5.2f}")


def preprocessed_bytes(command, source):
    return len(subprocess.run(command + ["-E", "-P", source], check=True, capture_output=True).stdout)


def functions_of(command, source):
    """The names of the functions in the object at -O2."""
    with tempfile.NamedTemporaryFile(suffix=".o") as compiled:
        subprocess.run(command + ["-O2", "-c", source, "-o", compiled.name], check=True)
        symbols = subprocess.run(["nm", "-C", compiled.name], check=True, capture_output=True, text=True).stdout
    return [line[19:] for line in symbols.splitlines() if line[17:18] in "TtWw" and line[:1] != " "]


def check_torch(compile_with, sources, has_limits):
    most_bytes, most_functions = TORCH_LIMITS
    size, alone = (preprocessed_bytes(compile_with, sources[name]) for name in ("torch", "torch_alone"))
    functions = [name for name in functions_of(compile_with, sources["torch"]) if "hfcomm::" in name]
    kernels = sum(1 for name in functions if KERNEL.search(name))
    print(f"torch  compiled     {size - alone:9} bytes more than LibTorch's (at most {most_bytes}), {len(functions):5} "
          f"functions of hfcomm (at most {most_functions}), {kernels:3} kernels")
    failures = []
    if has_limits and (size - alone > most_bytes or len(functions) > most_functions):
        failures.append("torch: larger than its limit")
    if kernels != 0:
        failures.append("torch: it has kernels")
    return failures


def check(compile_with, sources, torch_with):
    failures = []
    about = subprocess.run(compile_with + ["--version"], check=True, capture_output=True, text=True).stdout
    has_limits = "Free Software Foundation" in about and re.search(r"\b12\.\d+\.\d+", about) is not None
    if not has_limits:
        print("[hfcomm] skipped: limits of sizes: they are g++ 12's")
    for (program, way), (most_bytes, most_functions) in LIMITS.items():
        command = compile_with + WAYS[way]
        size = preprocessed_bytes(command, sources[program])
        functions = functions_of(command, sources[program])
        kernels = [KERNEL.search(name) for name in functions]
        types = {found.group(1) for found in kernels if found}
        allowed = KERNELS[program, way]
        print(f"{program:6} {way:12} {size:9} bytes (at most {most_bytes}), {len(functions):5} functions (at most "
              f"{most_functions}), {sum(map(bool, kernels)):3} kernels of {', '.join(sorted(types)) or 'no type'}")
        if has_limits and (size > most_bytes or len(functions) > most_functions):
            failures.append(f"{program}, {way}: larger than its limit")
        if types != allowed:
            failures.append(f"{program}, {way}: kernels of {sorted(types)} instead of {sorted(allowed)}")
    if torch_with:
        failures += check_torch(torch_with, sources, has_limits)
    for failure in failures:
        print(f"FAILED: {failure}")
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description="the cost of including hfcomm")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--torch", default="", help="the folders of LibTorch's headers")
    parser.add_argument("root")
    parser.add_argument("compiler", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    folder = os.path.join(options.root, "tests", "compile_cost")
    compile_with = (options.compiler or ["g++"]) + ["-std=c++20", "-I", os.path.join(options.root, "include")]
    with tempfile.TemporaryDirectory() as scratch:
        names = ("cereal", "rank", "torch", "torch_alone", "torch_plain")
        sources = {name: os.path.join(folder, name + ".cpp") for name in names}
        torch_with = []
        if options.torch:
            torch_with = compile_with + WAYS["compiled"]
            for folder in options.torch.split(":"):
                torch_with = torch_with + ["-isystem", folder]
        sources["first"] = os.path.join(scratch, "first.cpp")
        with open(sources["first"], "w", encoding="utf-8") as source:
            source.write(first_program(options.root))
        if options.check:
            return check(compile_with, sources, torch_with)
        measure(compile_with, sources, options.rounds)
        if torch_with:
            measure_torch(torch_with, sources, options.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
