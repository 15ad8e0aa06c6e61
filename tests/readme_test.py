#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""readme_test.py SOURCE_ROOT CEREAL_INCLUDE COMPILER...: the README's programs, commands and outputs are true.

A ```cpp block with a `main` begins with a comment that names its file. A ```console block has commands, which begin with
`$ `, and below each one its output. All of them are executed in their order, in an empty folder with the sources'
include/ and packaging/ in it. COMPILER stands in for `g++`, and -O2 is left out, because only time depends on it.

Outputs are compared word by word: the README may wrap a long line. A process id may differ.

CEREAL_INCLUDE is empty where cereal is installed, and its folder where Meson has brought it along.
"""

import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

root = pathlib.Path(sys.argv[1])
compiler = sys.argv[3:] + (["-isystem", sys.argv[2]] if sys.argv[2] else [])
blocks = re.findall(r"^```(\w*)\n(.*?)^```$", (root / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def words(text):
    return re.sub(r"\bpid \d+", "pid N", text).split()


def commands_of(block):
    """Pairs of a command and the output below it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield shlex.split(command), output


def run(folder, command, expected):
    """Returns what is wrong, or nothing."""
    if command[0] == "g++":
        arguments = compiler + [word for word in command[1:] if word != "-O2"]
    elif command[0].startswith("./"):
        arguments = [folder / command[0], *command[1:]]
    else:
        return "only g++ and programs that it has built can be commands"
    try:
        done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode != 0 or words(done.stdout + done.stderr) != words(expected):
        return f"exit status {done.returncode}, output:\n{done.stdout}{done.stderr}"
    return None


passed = 0
failures = []
built = set()
with tempfile.TemporaryDirectory() as scratch:
    folder = pathlib.Path(scratch)
    for name in ("include", "packaging"):
        (folder / name).symlink_to(root / name)
    programs = []
    for language, block in blocks:
        if language == "cpp" and re.search(r"\bmain\(", block):
            name = re.match(r"// (\w+\.cpp)\n", block)
            if name is None:
                failures.append(f"a program does not begin with the name of its file:\n{block}")
                continue
            programs.append(name.group(1))
            (folder / name.group(1)).write_text(block)
        elif language == "console":
            for command, expected in commands_of(block):
                built.update(word for word in command if command[0] == "g++")
                problem = run(folder, command, expected)
                if problem is None:
                    passed += 1
                else:
                    failures.append(f"{shlex.join(command)}: {problem}")
    failures += [f"{name} is never built" for name in programs if name not in built]
    if len(programs) < 3:
        failures.append(f"only {len(programs)} programs were found")

print("\n".join(failures))
print(f"{passed} passed, {len(failures)} failed, 0 skipped")
sys.exit(1 if failures else 0)
