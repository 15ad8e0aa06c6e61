#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs PyTorch's own tests of torch.distributed on hfcomm: every case that asks for the backend "gloo" gets hfcomm's.

distributed_suite.py [--gloo] [--compare] [--ranks N] [--module FOLDERS] [--log FILE] [--limit SECONDS] [CASE...]

--gloo     runs them on the real gloo instead
--compare  runs them on both, and lists the cases whose results differ
--module   the folders of _hfcomm_torch and hfcomm_torch.py, if Python does not find them, separated by colons

Prints a line for each case, and the numbers of those that passed, failed and were skipped. Exit status: 1 if a case
failed that is not expected to (with --compare: that gloo passes), 77 where PyTorch or its test dependencies are missing.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest


# Cases that only gloo's own class can pass.
EXPECTED_TO_FAIL = {
    "test_ddp_logging_data_cpu": "asks for gloo's number of threads, by a C++ cast to ProcessGroupGloo",
}


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gloo", action="store_true")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--module", default="")
    parser.add_argument("--log", default="")
    parser.add_argument("--limit", type=int, default=120, help="seconds for one case")
    parser.add_argument("cases", nargs="*")
    return parser.parse_args(arguments)


def replace_gloo():
    """Makes the class ProcessGroupGloo, as Python code finds it, a function that makes hfcomm's groups."""
    import torch.distributed.distributed_c10d as c10d
    from hfcomm_torch import make_backend

    def make(store, rank, size, timeout, **_of_gloo):
        return make_backend(store, rank, size, timeout, name="gloo")  # the profiler's names begin with it

    real = c10d.ProcessGroupGloo
    make_wrapper = c10d._create_process_group_wrapper

    def make_wrapper_with_gloo(*args, **kwargs):
        """What TORCH_DISTRIBUTED_DEBUG=DETAIL puts around a group needs a second one that is gloo's."""
        c10d.ProcessGroupGloo = real
        try:
            return make_wrapper(*args, **kwargs)
        finally:
            c10d.ProcessGroupGloo = make

    c10d.ProcessGroupGloo = make
    c10d._create_process_group_wrapper = make_wrapper_with_gloo
    if hasattr(c10d.ProcessGroup, "BackendType"):
        # DistributedDataParallel casts what has gloo's type to gloo's C++ class.
        c10d.ProcessGroup.BackendType.GLOO = c10d.ProcessGroup.BackendType.CUSTOM


def make_test_class():
    """Returns PyTorch's test case class; its ranks are forked from this process, which has torch loaded."""
    from torch.testing._internal.distributed import distributed_test
    import torch

    if sys.version_info >= (3, 11) and torch.__version__.startswith("1."):
        from torch.nn.parallel import _replicated_tensor_ddp_utils

        # Python 3.11 cannot import what the tests of PyTorch 1.13 switch on for DDP.
        _replicated_tensor_ddp_utils._set_ddp_with_replicated_tensor = lambda value: None

    class TestOnBackend(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)
            torch.backends.cudnn.flags(enabled=True, allow_tf32=False).__enter__()

        def id(self):
            return "TestOnBackend." + self._testMethodName

    return TestOnBackend


class case_too_long(Exception):
    pass


def run_case(test_class, name, limit):
    """Runs one case; returns its result, the reason, and the seconds that it took."""

    def stop(_signal, _frame):
        raise case_too_long(f"not done after {limit} s")

    result = unittest.TestResult()
    begin = time.time()
    case = test_class(name)
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(limit)
    try:
        case.run(result)
    except case_too_long as problem:
        result.failures.append((case, str(problem)))
    finally:
        signal.alarm(0)
        for process in getattr(case, "processes", []):
            if process.is_alive():
                process.kill()
    seconds = round(time.time() - begin, 2)
    if result.skipped:
        return "skipped", result.skipped[0][1], seconds
    problems = result.errors + result.failures
    return ("failed", problems[0][1], seconds) if problems else ("passed", "", seconds)


def run_all(options):
    """Runs the cases in this process; returns their results by name."""
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(options.ranks), OMP_NUM_THREADS="1")
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    with tempfile.TemporaryDirectory() as folder:
        # Read when PyTorch's module is imported.
        os.environ.update(TEMP_DIR=folder, INIT_METHOD=f"file://{folder}/init")
        if not options.gloo:
            replace_gloo()
        test_class = make_test_class()
        results = {}
        for name in options.cases or unittest.TestLoader().getTestCaseNames(test_class):
            outcome, reason, seconds = run_case(test_class, name, options.limit)
            results[name] = {"result": outcome, "reason": reason, "seconds": seconds}
            print(f"{outcome:8} {seconds:7.2f} s  {name}", flush=True)
    return results


def report(title, results):
    counts = {kind: sum(one["result"] == kind for one in results.values()) for kind in ("passed", "failed", "skipped")}
    print(f"{title}: {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    for name, one in results.items():
        if one["result"] == "failed":
            expected = f" (expected: {EXPECTED_TO_FAIL[name]})" if name in EXPECTED_TO_FAIL else ""
            print(f"  failed: {name}{expected}: {one['reason'].strip().splitlines()[-1][:300]}")


def run_in_process_of_its_own(arguments, backend):
    with tempfile.NamedTemporaryFile("r") as log:
        subprocess.run([sys.executable, __file__, *arguments, *backend, "--log", log.name], check=False)
        return json.load(log)


def compare(arguments):
    rest = [one for one in arguments if one not in ("--compare", "--gloo")]
    gloo = run_in_process_of_its_own(rest, ["--gloo"])
    ours = run_in_process_of_its_own(rest, [])
    report("gloo", gloo)
    report("hfcomm", ours)
    worse = [name for name in gloo if gloo[name]["result"] == "passed" and ours[name]["result"] != "passed"]
    better = [name for name in gloo if gloo[name]["result"] == "failed" and ours[name]["result"] == "passed"]
    print("only gloo passes:", ", ".join(worse) or "none")
    print("only hfcomm passes:", ", ".join(better) or "none")
    return 1 if set(worse) - set(EXPECTED_TO_FAIL) else 0


def main(arguments):
    options = parse(arguments)
    if options.module:
        sys.path[:0] = options.module.split(os.pathsep)
    sys.argv = sys.argv[:1]  # PyTorch's test modules read the arguments, too
    try:
        import torch.testing._internal.common_utils  # noqa: F401
    except ImportError as problem:
        print(f"distributed_suite: skipped: {problem}", file=sys.stderr)
        return 77
    if options.compare:
        return compare(arguments)
    results = run_all(options)
    if options.log:
        with open(options.log, "w", encoding="utf-8") as log:
            json.dump(results, log)
    report("gloo" if options.gloo else "hfcomm", results)
    return 1 if any(one["result"] == "failed" and name not in EXPECTED_TO_FAIL for name, one in results.items()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
