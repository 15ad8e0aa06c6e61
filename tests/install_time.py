#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""install_time.py SOURCE_ROOT SCRATCH CEREAL_INCLUDE COMPILER...: installing takes no longer than README.md claims.

Follows README's two lines from nothing: with them the headers come below SCRATCH/headers, and without `-Dcompiled=false`
all comes below SCRATCH/prefix. Both build below SCRATCH. The headers must come without compiling anything.

Judges user and system seconds, because the clock depends on what else the machine does; two cores have two of them in a
second. README's claims are for a machine on which the yardstick of tests/compile_cost takes as long as docs/compiled.md
says. Where it takes longer, the claims grow with it.

LibTorch, CUDA's and UCX's headers are left out, so that the compiled part is the same on every machine. Its size is
compared with the recorded one. A compiled part that comes from ccache has been measured when it was compiled.
"""

import json
import os
import pathlib
import re
import resource
import shlex
import subprocess
import sys

# The claims are for two cores.
CORES = 2
SAME_EVERYWHERE = ["-Dtorch=disabled", "-Dnccl=disabled", "-Ducx=disabled"]


def lines_and_claims(readme):
    """README's lines for installing, as words, and the seconds that it claims for the headers and for all."""
    found = re.search(r"^```sh\n(meson setup [^\n]*-Dcompiled=false\n)(meson install [^\n]*\n)```\n(.*?)^#", readme,
                      re.MULTILINE | re.DOTALL)
    claims = re.findall(r"\btakes\s(\d+)\ss\b", found.group(3)) if found else []
    if len(claims) != 2:
        sys.exit("README.md must have the lines for installing headers, with -Dcompiled=false, and below them claim twice "
                 "'takes N s': for the headers, and without -Dcompiled=false")
    return [shlex.split(found.group(1)), shlex.split(found.group(2))], [int(claim) for claim in claims]


def seconds_of(command, **options):
    """User and system seconds of a command and all that it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, **options)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def install(root, lines, folder, prefix, leave_out=()):
    """Follows README's lines with other folders. Returns the seconds that it took."""
    setup = [word for word in lines[0] if word not in leave_out]
    place = setup.index("build-install")
    setup[place:place + 1] = [str(folder), str(root), f"--prefix={prefix}", *SAME_EVERYWHERE]
    copy = [str(folder) if word == "build-install" else word for word in lines[1]]
    return seconds_of(setup) + seconds_of(copy)


def slowness(root, scratch, compiler):
    """How many times as long the yardstick takes here as in docs/compiled.md; at least 1."""
    folder = root / "tests" / "compile_cost"
    documented = json.loads((folder / "times.json").read_text())["programs"]["cereal"]["seconds"]
    command = compiler + ["-std=c++20", "-c", str(folder / "cereal.cpp"), "-o", str(scratch / "cereal.o")]
    return max(1, seconds_of(command, env={**os.environ, "CCACHE_DISABLE": "1"}) / documented)


def main():
    root, scratch = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    compiler = sys.argv[4:] + (["-isystem", sys.argv[3]] if sys.argv[3] else [])
    lines, (headers_claim, all_claim) = lines_and_claims((root / "README.md").read_text())
    before = slowness(root, scratch, compiler)
    headers = install(root, lines, scratch / "build_headers", scratch / "headers")
    everything = install(root, lines, scratch / "build", scratch / "prefix", leave_out=["-Dcompiled=false"])
    factor = max(before, slowness(root, scratch, compiler))
    print(f"The yardstick takes {factor:.2f} times as long as in docs/compiled.md. User and system seconds: headers "
          f"{headers:.1f} of {headers_claim * factor:.1f}, all {everything:.1f} of {CORES * all_claim * factor:.1f}")
    failures = []
    if headers > headers_claim * factor or everything > CORES * all_claim * factor:
        failures.append("installing takes longer than README.md claims")
    if [*(scratch / "build_headers").rglob("*.o")] or (scratch / "headers" / "bin").exists():
        failures.append("installing headers compiled something")
    missing = [name for name in ("hfrun", "hfcomm-env") if not (scratch / "prefix" / "bin" / name).exists()]
    failures += [f"{name} is not installed" for name in missing]
    print("\n".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
