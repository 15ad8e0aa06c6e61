#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""page_test.py SOURCE_ROOT PAGE[:PAGE]... CEREAL_INCLUDE LIBRARY COMPILER...: programs, commands and outputs are true.

A ```cpp block with a `main` begins with a comment that names its file. A ```console block has commands, which begin with
`$ `, and below each one its output. All of them are executed in their order, in an empty folder with the sources'
include/ and packaging/ in it, one for each page. COMPILER stands in for `g++`, and -O2 is left out, because only time
depends on it. A command that compiles the compiled part is executed for the first page that has it; its object is the
other pages', too. Where LIBRARY is not empty, it only checks the part, and this library stands in for the object.

Outputs are compared word by word: the page may wrap a long line. A process id may differ. A program that needs a folder
of /usr/include which is not there is skipped.

CEREAL_INCLUDE is empty where cereal is installed, and its folder where Meson has brought it along.
"""

import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

root = pathlib.Path(sys.argv[1])
pages = sys.argv[2].split(":")
library = sys.argv[4]
compiler = sys.argv[5:] + (["-isystem", sys.argv[3]] if sys.argv[3] else [])
# The commands that have compiled the part, and the folders in which they have.
compiled = {}


def words(text):
    return re.sub(r"\bpid \d+", "pid N", text).split()


def commands_of(block):
    """Pairs of a command and the output below it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield shlex.split(command), output


def steps_of(command):
    """A command of g++ in the steps that g++ takes itself: ccache keeps the object of one that only compiles."""
    sources = [word for word in command if word.endswith(".cpp")]
    if "-c" in command or "-o" not in command or len(sources) != 1:
        return [command]
    output = command.index("-o")
    compiling = [word for word in command[:output] + command[output + 2:]
                 if not word.endswith((".o", ".a")) and not word.startswith("-l")]
    made = sources[0] + ".o"
    return [compiling + ["-c", "-o", made], [made if word == sources[0] else word for word in command]]


def run(folder, command, expected):
    """Returns what is wrong, or nothing."""
    if library:
        command = [{"-c": "-fsyntax-only", "hfcomm.o": library}.get(word, word) for word in command]
    if tuple(command) in compiled:
        if not library:
            shutil.copy(compiled[tuple(command)] / "hfcomm.o", folder)
        return None
    if command[0] == "g++":
        steps = [compiler + step for step in steps_of([word for word in command[1:] if word != "-O2"])]
    elif command[0].startswith("./"):
        steps = [[folder / command[0], *command[1:]]]
    else:
        return "only g++ and programs that it has built can be commands"
    output, status = "", 0
    for step in steps:
        try:
            done = subprocess.run(step, cwd=folder, capture_output=True, text=True, timeout=300)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        output, status = output + done.stdout + done.stderr, done.returncode
        if status != 0:
            break
    if status != 0 or words(output) != words(expected):
        return f"exit status {status}, output:\n{output}"
    if "packaging/hfcomm.cpp" in command:
        compiled[tuple(command)] = folder
    return None


def missing_folder(command):
    """The folder of the system's headers that a command needs and that is not there, if any."""
    return next((word for word in command if word.startswith("/usr/include") and not pathlib.Path(word).exists()), None)


def check(page, folder):
    """Returns the number of commands that passed and that were skipped, and what is wrong."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", (root / page).read_text(), re.MULTILINE | re.DOTALL)
    passed, skipped, failures, programs, built = 0, 0, [], [], set()
    for name in ("include", "packaging"):
        (folder / name).symlink_to(root / name)
    for language, block in blocks:
        if language == "cpp" and re.search(r"\bmain\(", block):
            name = re.match(r"// (\w+\.cpp)\n", block)
            if name is None:
                failures.append(f"a program does not begin with the name of its file:\n{block}")
                continue
            programs.append(name.group(1))
            (folder / name.group(1)).write_text(block)
        elif language == "console":
            commands = list(commands_of(block))
            missing = [folder_name for command, _ in commands if (folder_name := missing_folder(command))]
            if missing:
                print(f"skipped: {page}: {shlex.join(commands[0][0])}: there is no {missing[0]}")
                skipped += len(commands)
                built.update(commands[0][0])
                continue
            for command, expected in commands:
                built.update(word for word in command if command[0] == "g++")
                problem = run(folder, command, expected)
                if problem is None:
                    passed += 1
                else:
                    failures.append(f"{shlex.join(command)}: {problem}")
    failures += [f"{name} is never built" for name in programs if name not in built]
    if not programs:
        failures.append("no program was found")
    return passed, skipped, [f"{page}: {failure}" for failure in failures]


def main():
    passed, skipped, failures = 0, 0, []
    with tempfile.TemporaryDirectory() as scratch:
        for number, page in enumerate(pages):
            folder = pathlib.Path(scratch, str(number))
            folder.mkdir()
            results = check(page, folder)
            passed, skipped, failures = passed + results[0], skipped + results[1], failures + results[2]
    print("\n".join(failures))
    print(f"{passed} passed, {len(failures)} failed, {skipped} skipped")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
