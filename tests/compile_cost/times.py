# SPDX-License-Identifier: MIT
"""times.json: how long the compiler takes, and its memory, as measured on one machine."""

import datetime
import json
import os
import pathlib
import statistics
import sys

from builds import LEVELS, PROGRAMS, TORCH_PROGRAMS, WAYS, processor_name, program

PATH = pathlib.Path(__file__).parent / "times.json"


def read_times():
    return json.loads(PATH.read_text(encoding="utf-8"))


def compile_once(builds, command):
    """Returns user seconds and the peak memory in MB."""
    child = os.fork()
    if child == 0:
        os.chdir(builds.folder)
        os.environ["CCACHE_DISABLE"] = "1"
        try:
            os.execvp(command[0], command + ["-c", "-o", "/dev/null"])
        finally:
            os._exit(127)
    _, status, usage = os.wait4(child, 0)
    if status != 0:
        sys.exit(f"failed: {' '.join(command)}")
    return usage.ru_utime, usage.ru_maxrss / 1000


def measure(builds, commands, yardstick, rounds):
    """Medians of seconds, of their ratio to the yardstick in the same round, and of MB. Each round runs all in turns."""
    figures = {key: [] for key in commands}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
        round_figures = {key: compile_once(builds, command) for key, command in commands.items()}
        for key, (seconds, memory) in round_figures.items():
            figures[key].append((seconds, seconds / round_figures[yardstick(key)][0], memory))
    medians = {key: [statistics.median(column) for column in zip(*values)] for key, values in figures.items()}
    return {key: {"seconds": round(seconds, 2), "ratio": round(ratio, 2), "MB": round(memory)}
            for key, (seconds, ratio, memory) in medians.items()}


def measure_programs(builds, rounds):
    commands = {"cereal": builds.command("cereal.cpp", [])}
    for name in PROGRAMS:
        for level in LEVELS:
            for way in WAYS:
                commands[f"{program(name, way)} {level}"] = builds.of(name, way, level)
    commands["the compiled part"] = builds.of_part()
    return measure(builds, commands, lambda key: "cereal", rounds)


def measure_torch(builds, rounds):
    commands = {f"{name} {level}": builds.of_torch(name, level) for name in TORCH_PROGRAMS for level in LEVELS}
    return measure(builds, commands, lambda key: "torch_alone " + key.split()[-1], rounds)


def is_machine_busy():
    """True where, beside one process (which has recorded sizes until now), others keep half the processors busy."""
    return os.getloadavg()[0] - 1 > os.cpu_count() / 2


def circumstances(builds, rounds):
    """Where, when and how is measured; to be called before, because the measurement is a load, too."""
    return {"compiler": builds.compiler_name(), "processor": processor_name(), "is busy": is_machine_busy(),
            "date": str(datetime.date.today()), "rounds": rounds}


def measure_times(builds, rounds):
    """Times of all programs, with where and when. Those of LibTorch stay as they were without its folders."""
    times = read_times() if PATH.exists() else {}
    about = circumstances(builds, rounds)
    times |= {"programs measured": about, "programs": measure_programs(builds, rounds)}
    if builds.torch_folders:
        times |= {"torch measured": {**about, "LibTorch": builds.torch_version()}, "torch": measure_torch(builds, rounds)}
    return times


def write_times(times):
    PATH.write_text(json.dumps(times, indent=2) + "\n", encoding="utf-8")
