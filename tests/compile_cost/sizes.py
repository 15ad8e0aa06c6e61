# SPDX-License-Identifier: MIT
"""Sizes that are the same in every run: bytes after the preprocessor, functions and code bytes in the object."""

import re
import subprocess

from builds import LEVELS, PROGRAMS, WAYS, program

KERNEL = re.compile(r"hfcomm::detail::\w+_blocks::\w+<(?:\(hfcomm::reduce_kind\)\d+, )?([^,>]+)")
# Element types whose reduction kernels an object may hold.
KERNELS = {program("first", "header-only"): {"float", "double"}}


def functions_of(file):
    """The names of the functions in an object or archive."""
    symbols = subprocess.run(["nm", "-C", file], check=True, capture_output=True, text=True).stdout
    return [line[19:] for line in symbols.splitlines() if line[17:18] in "TtWw" and line[:1] != " "]


def code_bytes(file):
    """The text of `size`, of all members of an archive."""
    rows = subprocess.run(["size", file], check=True, capture_output=True, text=True).stdout.splitlines()[1:]
    return sum(int(row.split()[0]) for row in rows)


def kernel_types(functions):
    return {found.group(1) for found in map(KERNEL.search, functions) if found}


def preprocessed_bytes(builds, command):
    return len(builds.output_of(command + ["-E", "-P"]))


def compile_object(builds, command):
    path = builds.folder / "measured.o"
    builds.output_of(command + ["-c", "-o", path.name])
    return path


def sizes_of_program(builds, name, way):
    """The sizes of a program, and the element types of its kernels at -O2."""
    sizes = {"preprocessed bytes": preprocessed_bytes(builds, builds.of(name, way))}
    for level in LEVELS:
        compiled = compile_object(builds, builds.of(name, way, level))
        functions = functions_of(compiled)
        sizes[f"functions {level}"] = len(functions)
    sizes["code bytes -O2"] = code_bytes(compiled)
    return sizes, kernel_types(functions)


def sizes_of_programs(builds):
    """The sizes of all programs, and what is wrong with their kernels."""
    sizes, failures = {}, []
    for name in PROGRAMS:
        for way in WAYS:
            key = program(name, way)
            sizes[key], kernels = sizes_of_program(builds, name, way)
            if kernels != KERNELS.get(key, set()):
                failures.append(f"{key}: kernels of {sorted(kernels)} instead of {sorted(KERNELS.get(key, set()))}")
    return sizes, failures


def sizes_of_part(file):
    """The sizes of the compiled part, as object or archive."""
    return {"the compiled part": {"functions -O2": len(functions_of(file)), "code bytes -O2": code_bytes(file)}}


def sizes_of_torch(builds):
    """What <hfcomm/torch.hpp> adds to LibTorch's own header, and what is wrong with its kernels."""
    size, alone = (preprocessed_bytes(builds, builds.of_torch(name, "-O2")) for name in ("torch", "torch_alone"))
    functions = [name for name in functions_of(compile_object(builds, builds.of_torch("torch", "-O2"))) if "hfcomm::" in name]
    sizes = {f"with LibTorch {builds.torch_version()}": {"preprocessed bytes": size - alone, "functions -O2": len(functions)}}
    return sizes, ["torch: it has kernels"] if kernel_types(functions) else []
