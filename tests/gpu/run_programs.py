#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The second half of tests/gpu/run: runs the programs file by file, so that a crash has a name, and sums up."""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LIMIT = 400  # seconds for one file; what hangs is ended sooner by the tests themselves


def as_text(output):
    return (output or b"").decode(errors="replace")


def run(name, command):
    """One line of Meson's testlog.json; shows what is worth it."""
    print(f"== {name}", flush=True)
    begun = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        output = process.communicate(timeout=LIMIT)
        result = {0: "OK", 77: "SKIP"}.get(process.returncode, "FAIL")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its ranks, too
        try:
            output = process.communicate(timeout=30)
        except subprocess.TimeoutExpired as stuck:  # somebody keeps the pipes open
            output = stuck.stdout, stuck.stderr
        result = "TIMEOUT"
    stdout, stderr = map(as_text, output)
    if result in ("OK", "SKIP"):
        for line in stdout.splitlines():
            if line.startswith(("[doctest] test cases", "[hfcomm] skipped", "skipped:")):
                print(line)
    else:
        print((stdout + stderr)[-20000:])
        print(f"{name}: {result}, exit status {process.returncode}")
    print(f"   {time.monotonic() - begun:.1f} s", flush=True)
    return {"name": name, "command": command, "result": result, "stdout": stdout, "stderr": stderr}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--one", required=True, help="a program: the names of its files")
    parser.add_argument("--ranks", required=True)
    parser.add_argument("--torch", required=True)
    parser.add_argument("--torch-status", type=int, default=77, help="of the attempt to build it")
    parser.add_argument("--trainer", type=pathlib.Path, required=True)
    parser.add_argument("--trainer-status", type=int, default=77, help="of the attempt to build it")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    only = options.only.split()

    def wanted(name):
        return not only or any(part in name for part in only)

    entries = []
    for program in (options.one, options.ranks, *([options.torch] if options.torch_status == 0 else [])):
        path, names = program.split(":")
        for name in filter(wanted, names.split()):
            file = f"--source-file=*/{name}_test.cpp"
            entries.append(run(name, [str(options.folder / path), "--no-colors", file]))
    if wanted("torch_gpu") and options.torch_status == 77:
        print("== torch_gpu\n[hfcomm] skipped: torch_gpu: python3 has no PyTorch with CUDA and the new C++ ABI")
        entries.append({"name": "torch_gpu", "result": "SKIP"})
    elif wanted("torch_gpu") and options.torch_status != 0:
        print("== torch_gpu\nit was not built")
        entries.append({"name": "torch_gpu", "result": "FAIL"})
    if wanted("trainer"):
        if options.trainer.exists():
            ranks = options.folder / options.ranks.split(":")[0]
            command = [sys.executable, str(HERE / "trainer_test.py"), str(options.trainer), str(ranks)]
            entries.append(run("trainer", command))
        elif options.trainer_status == 77:
            print(f"== trainer\n[hfcomm] skipped: trainer: there is no {options.trainer}, nor what it is built with")
            entries.append({"name": "trainer", "result": "SKIP"})
        else:
            print(f"== trainer\nit was not built: exit status {options.trainer_status}")
            entries.append({"name": "trainer", "result": "FAIL"})

    log = options.folder / "testlog.json"
    log.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return subprocess.run([sys.executable, str(ROOT / "tools" / "count-tests"), str(log)]).returncode


if __name__ == "__main__":
    sys.exit(main())
