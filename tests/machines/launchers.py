# SPDX-License-Identifier: MIT
"""Launchers that start the ranks of a job on several machines (tools/machines.py). Each runs on machine 0, and reaches
the others through a program that stands for ssh."""

import os
import subprocess
import sys
import tempfile

from jobs import HOST, SECRET, Skipped, require, require_tool


def run(machines, command, environment, limit=60):
    """Runs a command on machine 0 and returns its output and its status; None where it has not ended in time."""
    words = ["%s=%s" % item for item in {"HFCOMM_SECRET": SECRET, **environment}.items()]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            machines.inside(0, ["env", *words, *command]),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            status = process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            status = None
            machines.end_processes()
            process.wait()
        output.seek(0)
        return output.read(), status


def run_well(machines, command, environment):
    """Runs a command that has to succeed, and returns its output."""
    text, status = run(machines, command, environment)
    require(status == 0, "%s ended with status %s:\n%s" % (command[0], status, text))
    return text


def hosts(placement, separator=","):
    """Returns "m0:3,m1:1" for the ranks' machines, which have to be in order."""
    require(placement == sorted(placement), "no launcher places ranks so")
    return separator.join("%s:%d" % (HOST % number, placement.count(number)) for number in sorted(set(placement)))


def mpirun(machines, placement, command, environment=()):
    """Open MPI."""
    launcher = require_tool("mpirun.openmpi", "mpirun")
    version = subprocess.run([launcher, "--version"], capture_output=True, text=True, check=False).stdout
    if "Open MPI" not in version and "OpenRTE" not in version:
        raise Skipped("mpirun is not Open MPI's; install openmpi-bin")
    options = ["--allow-run-as-root", "--mca", "plm_rsh_agent", machines.remote_shell()]
    for setting in ("oob_tcp_if_include eth0", "btl_tcp_if_include eth0", "mpi_yield_when_idle 1"):
        options += ["--mca", *setting.split()]
    for name in ("HFCOMM_SECRET", *environment):
        options += ["-x", name]
    options += ["-host", hosts(placement), "-np", str(len(placement))]
    return run_well(machines, [launcher, *options, *command], dict(environment))


def hydra(machines, placement, command, environment=()):
    """MPICH."""
    launcher = require_tool("mpiexec.hydra")
    options = ["-launcher", "ssh", "-launcher-exec", machines.remote_shell(), "-iface", "eth0"]
    options += ["-hosts", hosts(placement), "-n", str(len(placement))]
    text, status = run(machines, [launcher, *options, *command], dict(environment))
    # MPICH 4.0 sometimes does not return from MPI_Finalize, in programs without hfcomm, too.
    is_stuck_in_mpi = status is None and text.count("the session has ended") == len(placement)
    require(status == 0 or is_stuck_in_mpi, "mpiexec ended with status %s:\n%s" % (status, text))
    return text


def hfrun(program, machines, placement, command):
    options = ["--rsh", machines.remote_shell(), "--hosts", hosts(placement), "-n", str(len(placement)), "--plain"]
    return run_well(machines, [program, *options, "--", *command], {"HFCOMM_SECRET": ""})


def python_with_torch():
    """Returns the first Python that has PyTorch. A system's packages belong to the system's Python."""
    for python in (sys.executable, "/usr/bin/python3"):
        found = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
        if os.path.exists(python) and subprocess.run([python, "-c", found], check=False).returncode == 0:
            return python
    raise Skipped("there is no PyTorch; install python3-torch")


def torchrun(machines, placement, command):
    """PyTorch's launcher: an agent on each machine, each of which starts as many ranks."""
    python = python_with_torch()
    numbers = sorted(set(placement))
    with tempfile.TemporaryDirectory() as folder:
        agents = []
        for number in numbers:
            # Output through files (-r, -t): with Python 3.11, PyTorch 1.13 fails without.
            options = ["--nnodes", len(numbers), "--nproc_per_node", placement.count(number), "--node_rank", number]
            options += ["--master_addr", machines.address(0), "--master_port", "29600", "--no_python"]
            options += ["-r", "1", "-t", "1", "--log_dir", os.path.join(folder, str(number))]
            words = ["env", "HFCOMM_SECRET=" + SECRET, python, "-m", "torch.distributed.run", *map(str, options)]
            agents.append(
                subprocess.Popen(
                    machines.inside(number, words + command),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        texts = [agent.communicate(timeout=100)[0] for agent in agents]
    require(all(agent.returncode == 0 for agent in agents), "\n".join(texts))
    return "".join(texts)
