#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""hfrun_test.py HFRUN HFCOMM_ENV RANKS: hfrun and hfcomm-env as their users call them.

RANKS is the program of tests/launchers/ranks.cpp. The remote shell of these tests runs its command on this machine.
"""

import json
import os
import pathlib
import pty
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

hfrun, hfcomm_env, ranks = sys.argv[1:]
folder = tempfile.TemporaryDirectory()
shell = pathlib.Path(folder.name) / "shell"
log = pathlib.Path(folder.name) / "log"
unique = 100000 + os.getpid()  # seconds that no other process sleeps
# HOST COMMAND: a host of the name "down" is not there, and one of the name "mute" never answers.
shell.write_text(f"""#!/bin/sh
echo "$@" >> {log}
[ "$1" = down ] && {{ echo "no route to host" >&2; exit 255; }}
[ "$1" = mute ] && {{ trap "" INT TERM HUP; exec sleep {unique}; }}
shift
exec sh -c "$*"
""")
shell.chmod(0o755)
clean = {name: value for name, value in os.environ.items() if not name.startswith(("HFCOMM_", "OMP_"))}
problems = []


def run(*arguments, environment=None, stdin="", limit=60, prepare=None):
    begin = time.monotonic()
    done = subprocess.run(arguments, input=stdin, capture_output=True, text=True, timeout=limit, env=environment or clean, preexec_fn=prepare)
    done.seconds = time.monotonic() - begin
    return done


def check(name, holds, done):
    if not holds:
        problems.append(f"{name}: status {done.returncode} after {done.seconds:.1f} s\n--- output\n{done.stdout}--- errors\n{done.stderr}")


def is_running(text):
    """Whether a process of this test runs; `text` is in no other's command."""
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text.encode() in entry.read_bytes():
                return True
        except OSError:
            pass
    return False


remote = ["--rsh", str(shell), "--hosts", "one:2,two:2"]
show = 'echo "$HFCOMM_RANK/$HFCOMM_WORLD_SIZE $HFCOMM_LOCAL_RANK/$HFCOMM_LOCAL_SIZE $OMP_NUM_THREADS ${HFCOMM_ADDRESS-none} ${#HFCOMM_SECRET} $HFCOMM_REQUIRE_INIT $PWD"'

done = run(hfrun, "-n", "3", "sh", "-c", show)
expected = [f"[rank {r}] {r}/3 {r}/3 1 none 64 1 {os.getcwd()}" for r in range(3)]
check("variables here", done.returncode == 0 and sorted(done.stdout.splitlines()) == expected, done)

done = run(hfrun, *remote, "sh", "-c", show)
expected = [f"[rank {r}] {r}/4 {r % 2}/2 1 one 64 1 {os.getcwd()}" for r in range(4)]
check("variables on hosts", done.returncode == 0 and sorted(done.stdout.splitlines()) == expected, done)

for options in [["-n2"], remote]:
    done = run(hfrun, "-x", "MODE", "-x", "SEED=7", *options, "sh", "-c", 'echo "$MODE $SEED"', environment=clean | {"MODE": "fast"})
    check("-x gives the ranks variables", done.returncode == 0 and {line.split("] ")[1] for line in done.stdout.splitlines()} == {"fast 7"}, done)

done = run(hfrun, *remote, "sh", "-c", 'echo "$HFCOMM_SECRET $HFCOMM_JOB"')
lines = {line.split("] ")[1] for line in done.stdout.splitlines()}
secret = next(iter(lines)).split()[0] if lines else ""
check("one secret", done.returncode == 0 and len(lines) == 1 and re.fullmatch("[0-9a-f]{64}", secret), done)
check("the secret is on no command line", secret and secret not in log.read_text(), done)
again = run(hfrun, *remote, "sh", "-c", 'echo "$HFCOMM_SECRET $HFCOMM_JOB"')
check("each job has its own", not lines & {line.split("] ")[1] for line in again.stdout.splitlines()}, again)

for options in [["-n", "2"], remote]:
    exported = clean | {"HFCOMM_SECRET": "exported", "HFCOMM_SECRET_FILE": "/not/there", "HFCOMM_ADDRESS": "10.77.0.1:7000", "HFCOMM_INTERFACE": "lo"}
    done = run(hfrun, *options, hfcomm_env, environment=exported)
    check(f"hfrun's secret counts before exported ones {options}", done.returncode == 0 and "secret      HFCOMM_SECRET\n" in done.stdout, done)
    done = run(hfrun, *options, hfcomm_env, environment=exported | {"HFCOMM_AUTH": "none"})
    check(f"HFCOMM_AUTH=none counts before hfrun's secret {options}", done.returncode == 0 and "secret      none, as HFCOMM_AUTH" in done.stdout, done)

done = run(hfrun, "-n", "4", ranks)
check("a job here", done.returncode == 0 and done.stdout == "[rank 0] ranks 4 sum 6 local 4\n", done)
done = run(hfrun, "--rsh", str(shell), "--hosts", "one", "-n", "4", ranks)
check("a job on one host", done.returncode == 0 and done.stdout == "[rank 0] ranks 4 sum 6 local 4\n", done)

fails = f'if [ $HFCOMM_RANK = 1 ]; then FAIL; fi; sleep {unique}'
for where, options in {"here": ["-n", "4"], "on hosts": remote}.items():
    host = r"one" if where == "on hosts" else r"\S+"
    for how, command, status, text in [
        ("a status", "exit 3", 3, "exited with status 3"),
        ("a signal", "kill -SEGV $$", 139, r"was killed by signal 11 \(SIGSEGV\)"),
    ]:
        done = run(hfrun, *options, "sh", "-c", fails.replace("FAIL", command))
        check(f"{how} {where}", done.returncode == status and re.fullmatch(rf"\[hfrun\] rank 1 on {host} \(pid \d+\) {text}\n", done.stderr), done)
        check(f"{how} {where}: the others are stopped after 2 s", 2 <= done.seconds < 8 and not is_running(f"sleep\0{unique}"), done)

done = run(hfrun, *remote, "--plain", "sh", "-c", "[ $HFCOMM_RANK = 1 ] || exit 0; printf 'no end' >&2; exit 3")
check("a report behind a line without an end", done.returncode == 3 and re.fullmatch(r"no end\n\[hfrun\] rank 1 on one \(pid \d+\) exited with status 3\n", done.stderr), done)

# Looking for the end of a line that grows without bounds would take minutes.
done = run(hfrun, "-n", "1", "--rsh", str(shell), "--hosts", "one", "--plain", "sh", "-c", f"head -c {1 << 26} /dev/zero")
printed, done.stdout = done.stdout, f"{len(done.stdout)} bytes"
check("a line of 64 MiB", done.returncode == 0 and printed == "\0" * (1 << 26) + "\n", done)

done = run(hfrun, "-n", "2", "/not/there")
check("no such program", done.returncode == 127 and "cannot execute /not/there: No such file or directory" in done.stderr, done)
done = run(hfrun, "-n", "2", "--rsh", str(shell), "--hosts", "one,down", "sleep", str(unique))
check("a host that is not there", done.returncode == 255 and "no route to host\n[hfrun] the remote shell ended with status 255, and with it rank 1 on down\n" in done.stderr, done)
check("a host that is not there: the others are stopped", not is_running(f"sleep\0{unique}"), done)
done = run(hfrun, "-n", "2", "--rsh", "/not/there", "--hosts", "one", "true")
check("no remote shell", done.returncode == 127 and "cannot execute /not/there" in done.stderr, done)
for hosts, text in [
    ("localhost:2,two:2", "name this machine as the other hosts reach it, or set HFCOMM_ADDRESS"),
    ("one:1,two:1,one:1", "host one is named again"),
]:
    done = run(hfrun, "--rsh", str(shell), "--hosts", hosts, "true")
    check(f"--hosts {hosts}", done.returncode == 2 and text in done.stderr, done)
address = clean | {"HFCOMM_ADDRESS": "10.77.0.1"}
done = run(hfrun, "--rsh", str(shell), "--hosts", "localhost:1,two:1", "sh", "-c", "echo $HFCOMM_ADDRESS", environment=address)
check("localhost with an address", done.returncode == 0 and sorted(done.stdout.splitlines()) == ["[rank 0] 10.77.0.1", "[rank 1] 10.77.0.1"], done)
done = run(hfrun)
check("usage", done.returncode == 2 and "usage: hfrun -n N" in done.stderr, done)

done = run(hfrun, "-n", "2", "--plain", "cat", stdin="for rank 0\n")
check("standard input", done.returncode == 0 and done.stdout == "for rank 0\n", done)
logs = pathlib.Path(folder.name) / "logs"
for options in [["-n", "4"], remote]:
    done = run(hfrun, *options, "sh", "-c", "echo rank $HFCOMM_RANK", environment=clean | {"HFCOMM_OUTPUT_DIRECTORY": str(logs)})
    written = [(logs / f"rank-{r}.log").read_text() for r in range(4)]
    check("files", done.returncode == 0 and done.stdout == "" and written == [f"rank {r}\n" for r in range(4)], done)
    for r in range(4):
        (logs / f"rank-{r}.log").unlink()

for number in [signal.SIGTERM, signal.SIGINT]:
    for options in [["-n", "2"], ["-n", "2", "--rsh", str(shell), "--hosts", "one,two"]]:
        traps = f'trap "echo got it; exit 0" {number.name[3:]}; echo ready; while :; do sleep 0.05; done'
        job = subprocess.Popen([hfrun, *options, "sh", "-c", traps], stdout=subprocess.PIPE, text=True, env=clean)
        ready = [job.stdout.readline() for _ in range(2)]
        job.send_signal(number)
        rest = job.communicate(timeout=30)[0]
        if job.returncode != 0 or sorted(rest.splitlines()) != ["[rank 0] got it", "[rank 1] got it"]:
            problems.append(f"{number.name} {options}: status {job.returncode}, {ready} {rest!r}")



def ignoring(*numbers):
    """Returns what a child does before its program starts, so that the program ignores these signals."""
    return lambda: [signal.signal(number, signal.SIG_IGN) for number in numbers]


# As nohup and a script's "hfrun ... &" start it.
for number in [signal.SIGHUP, signal.SIGINT, signal.SIGTERM]:
    for options in [["-n", "2"], ["-n", "2", "--rsh", str(shell), "--hosts", "one,two"]]:
        command = f"kill -{number.name[3:]} $$; echo ready; sleep 0.5; echo done"
        job = subprocess.Popen([hfrun, *options, "sh", "-c", command], stdout=subprocess.PIPE, text=True, env=clean, preexec_fn=ignoring(number))
        ready = [job.stdout.readline() for _ in range(2)]
        job.send_signal(number)
        rest = job.communicate(timeout=30)[0]
        if job.returncode != 0 or sorted(rest.splitlines()) != ["[rank 0] done", "[rank 1] done"]:
            problems.append(f"{number.name} is ignored {options}: status {job.returncode}, {ready} {rest!r}")



def end_by_signals(name, options, command, signals, expected, seconds, errors, ready=0):
    """Starts a job, waits for lines of its output, and sends SIGTERM after each of the pauses."""
    job = subprocess.Popen([hfrun, "--rsh", str(shell), *options, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean)
    for _ in range(ready):
        job.stdout.readline()
    for pause in signals:
        time.sleep(pause)
        job.send_signal(signal.SIGTERM)
    begin = time.monotonic()
    try:
        job.stdout, job.stderr = job.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        job.kill()
        job.stdout, job.stderr = job.communicate()
    job.seconds = time.monotonic() - begin
    check(name, job.returncode == expected and seconds[0] <= job.seconds < seconds[1] and re.search(errors, job.stderr), job)
    check(f"{name}: nothing is left", not is_running(f"sleep\0{unique}"), job)
    return job.stdout


sleep = ["sleep", str(unique)]
ended = r"\[hfrun\] signal 15 \(SIGTERM\) ended the remote shell before it had started rank"
end_by_signals("a host that never answers", ["--hosts", "mute:2"], sleep, [0.5], 143, (1.9, 6), ended + "s 0 to 1 on mute\n")
end_by_signals("a host that never answers: a second signal", ["--hosts", "mute:2"], sleep, [0.5, 0.5], 143, (0, 1.4), ended)
end_by_signals("hosts of which one never answers", ["--hosts", "one:1,mute:1"], sleep, [0.5], 143, (0, 6), "SIGTERM")
large = ["x" * 100000] * 3  # more than a pipe takes
end_by_signals("a large job for a host that never answers", ["--hosts", "mute:1"], ["true", *large], [0.5], 143, (1.9, 6), ended)
done = run(hfrun, "--rsh", str(shell), "--hosts", "one:1,two:1", "sh", "-c", 'echo $# ${#1} ${#3}', "sh", *large)
check("a large job", done.returncode == 0 and sorted(done.stdout.splitlines()) == [f"[rank {r}] 3 100000 100000" for r in range(2)], done)
saving = 'trap "sleep 3; echo saved; exit 0" TERM; echo ready; while :; do sleep 0.05; done'
printed = end_by_signals("ranks get time after a signal", ["--hosts", "one:1,two:1"], ["sh", "-c", saving], [0], 0, (2.9, 10), "^$", ready=2)
if sorted(printed.splitlines()) != ["[rank 0] saved", "[rank 1] saved"]:
    problems.append(f"ranks get time after a signal: {printed!r}")
stubborn = 'trap "" TERM; echo ready; while :; do sleep 0.05; done'
end_by_signals("a second signal stops ranks that ignore it", ["--hosts", "one:1,two:1"], ["sh", "-c", stubborn], [0, 0.5], 143, (0, 5), "second signal and stopped rank 0 on one", ready=2)

for options in [["-n", "2"], remote]:
    done = run(hfrun, *options, "sh", "-c", "[ $HFCOMM_RANK != 1 ]", prepare=ignoring(signal.SIGCHLD), limit=20)
    check(f"SIGCHLD is ignored {options}", done.returncode == 1 and "rank 1 on" in done.stderr, done)

# The other ranks say in one line, not each, what they have got of the culprit's end.
for options in [["-n", "5"], ["--plain", "-n", "5"], ["--hosts", "localhost:5"]]:
    done = run(hfrun, *options, ranks, "fails")
    told = re.findall(r"\[hfcomm\] rank \d/5: barrier #2 at ranks.cpp:\d+: rank 4 \(pid \d+ on \S+\) failed: no such file: data.bin", done.stderr)
    check(f"one line for the others {options}", done.returncode == 134 and len(told) == 1 and done.stderr.count("data.bin") == 2, done)
    check(f"one line for the culprit {options}", len(re.findall(r"(?m)^\[hfrun\] rank 4 on \S+ \(pid \d+\) was killed by signal 6 \(SIGABRT\)$", done.stderr)) == 1, done)
logs.mkdir(exist_ok=True)
done = run(hfrun, "-n", "3", ranks, "fails", environment=clean | {"HFCOMM_OUTPUT_DIRECTORY": str(logs)})
check("each rank's own file says why it ended", all("data.bin" in (logs / f"rank-{r}.log").read_text() for r in range(3)), done)

# A shell whose program outlives it where nobody ends that.
keeps_program = f"sleep {unique} & echo ready; wait"
killed_job = {
    "hfrun": r"\[hfrun\] hfrun \(pid \d+\) was killed, and with it ranks 0 to 3 on \S+\n",
    "the parent of the ranks": r"\[hfrun\] the process that started the ranks was killed by signal 9 \(SIGKILL\), and with it ranks 0 to 3 on \S+\n",
}
for options, victim in [(["-n", "4"], "hfrun"), (["-n", "4"], "the parent of the ranks"), (["--hosts", "localhost:4"], "hfrun"), (remote, "hfrun")]:
    job = subprocess.Popen([hfrun, *options, "sh", "-c", keeps_program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean)
    for _ in range(4):
        job.stdout.readline()
    while not is_running(f"sleep\0{unique}"):  # the shells are ready before it is
        time.sleep(0.01)
    children = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    os.kill(job.pid if victim == "hfrun" else int(children[0]), signal.SIGKILL)
    errors = job.communicate(timeout=30)[1]
    if job.returncode != (-9 if victim == "hfrun" else 137) or (options[0] == "-n" and not re.fullmatch(killed_job[victim], errors)):
        problems.append(f"{victim} is killed {options}: status {job.returncode}, {errors!r}")
    deadline = time.monotonic() + 20
    while is_running(f"sleep\0{unique}") and time.monotonic() < deadline:
        time.sleep(0.02)
    if is_running(f"sleep\0{unique}"):
        problems.append(f"{victim} is killed {options}: what ranks have started outlives it")

# This host needs no remote shell.
no_shell = pathlib.Path(folder.name) / "no_shell"
no_shell.mkdir()
(no_shell / "ssh").write_text("#!/bin/sh\necho ssh was called >&2\nexit 255\n")
(no_shell / "ssh").chmod(0o755)
without_ssh = clean | {"PATH": f"{no_shell}:{clean['PATH']}"}
for name in ["localhost", "127.0.0.1", "[::1]", socket.gethostname()]:
    done = run(hfrun, "--hosts", f"{name}:4", ranks, environment=without_ssh)
    check(f"--hosts {name}:4 without ssh", done.returncode == 0 and done.stdout == "[rank 0] ranks 4 sum 6 local 4\n", done)
for name in ["nobody@localhost", "another.host.invalid"]:
    done = run(hfrun, "--hosts", f"{name}:4", ranks, environment=without_ssh)
    check(f"--hosts {name}:4 with ssh", done.returncode == 255 and "ssh was called" in done.stderr, done)

# A terminal's Ctrl-C reaches each rank once.
counts = 'trap "echo got it" INT; echo ready; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; done'
for options in [["-n", "2"], ["--hosts", "localhost:2"]]:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(hfrun, [hfrun, *options, "sh", "-c", counts], clean)
    printed = b""
    try:
        while data := os.read(terminal, 4096):
            if printed.count(b"ready") < 2 <= (printed + data).count(b"ready"):
                os.write(terminal, b"\x03")
            printed += data
    except OSError:  # the end of a terminal
        pass
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != 0 or printed.count(b"got it") != 2:
        problems.append(f"Ctrl-C {options}: status {status}, {printed!r}")

done = run(hfcomm_env)
check("hfcomm-env alone", done.returncode == 0 and "none: a job of one process" in done.stdout, done)
with tempfile.TemporaryDirectory() as tables:
    table = os.path.join(tables, "table")
    done = run(hfcomm_env, "--tuning", "2", table, limit=120)
    check("hfcomm-env --tuning FILE", done.returncode == 0 and done.stdout == "", done)
    with open(table, encoding="utf-8") as file:
        text = file.read()
    check("hfcomm-env: a way for each size", all(f"all_reduce {bytes} 2 " in text for bytes in (2048, 1 << 20, 1 << 24)), done)
    done = run(hfcomm_env, "--tuning", "2", environment=clean | {"HFCOMM_TUNING": table}, limit=120)
    check("hfcomm-env: a table is taken, not measured again", done.returncode == 0 and done.stdout == text, done)
    done = run(hfcomm_env, "--tuning", "2", environment=clean | {"HFCOMM_TUNING": "off"}, limit=120)
    check("hfcomm-env: nothing is measured", done.returncode == 0 and len(done.stdout.splitlines()) == 2, done)
    done = run(hfcomm_env, "--tuning", "2", environment=clean | {"HFCOMM_TUNING": table + ".no"}, limit=120)
    check("hfcomm-env: no such table", done.returncode != 0 and "table.no" in done.stderr, done)
done = run(hfcomm_env, "--tuning", "2", "/no/such/folder/table")
check("hfcomm-env: no such folder", done.returncode == 1 and "/no/such/folder/table cannot be written" in done.stderr, done)
for words in (["1"], ["2", "file", "more"], ["2000"], ["--json"]):
    done = run(hfcomm_env, "--tuning", *words)
    check(f"hfcomm-env --tuning {words}", done.returncode == 2, done)
several = clean | {"HFCOMM_RANK": "2", "HFCOMM_WORLD_SIZE": "4", "HFCOMM_LOCAL_RANK": "0", "HFCOMM_LOCAL_SIZE": "2", "HFCOMM_JOB": "j"}
done = run(hfcomm_env, "--json", environment=several)
found = json.loads(done.stdout)
check("hfcomm-env: problems", done.returncode == 1 and len(found["problems"]) == 2 and "HFCOMM_ADDRESS" in found["problems"][0] + found["problems"][1], done)
whole = several | {"HFCOMM_ADDRESS": "10.77.0.1:7000", "HFCOMM_SECRET": "a-very-secret-text", "HFCOMM_INTERFACE": "lo"}
done = run(hfcomm_env, "--json", environment=whole)
found = json.loads(done.stdout)
check("hfcomm-env: json", done.returncode == 0 and (found["launcher"], found["rank"], found["root_host"], found["root_ports"]) == ("HFCOMM_*", 2, "10.77.0.1", [7000]), done)
check("hfcomm-env: interface", {one["address"] for one in found["addresses"] if one["used"]} >= {"127.0.0.1"}, done)
done = run(hfcomm_env, environment=whole)
check("hfcomm-env: text", done.returncode == 0 and "root        10.77.0.1, port 7000\n" in done.stdout and "secret      HFCOMM_SECRET\n" in done.stdout, done)
check("hfcomm-env: never the secret", "very-secret" not in done.stdout + done.stderr, done)
secret_file = pathlib.Path(folder.name) / "secret"
secret_file.write_text("a-very-secret-text\n")
for mode, status, text in [(0o600, 0, "secret      HFCOMM_SECRET_FILE\n"), (0o644, 1, "may be used by other users: chmod 600")]:
    secret_file.chmod(mode)
    done = run(hfcomm_env, environment=whole | {"HFCOMM_SECRET_FILE": str(secret_file)})
    check(f"hfcomm-env: a file of mode {mode:o}", done.returncode == status and text in done.stdout, done)
    check(f"hfcomm-env: never the secret of a file of mode {mode:o}", "very-secret" not in done.stdout + done.stderr, done)
done = run(hfcomm_env, environment=whole | {"HFCOMM_AUTH": "none"})
check("hfcomm-env: nothing is proven", done.returncode == 0 and re.search("secret      none, as HFCOMM_AUTH=none says: nothing is proven .* although a secret is set\n", done.stdout), done)
check("hfcomm-env: never the secret that does not count", "very-secret" not in done.stdout + done.stderr, done)
done = run(hfcomm_env, environment=whole | {"HFCOMM_LIBSODIUM_LIBRARY": "/not/there", "HFCOMM_LIBCRYPTO_LIBRARY": "/not/there"})
check("hfcomm-env: no library for the proof", done.returncode == 1 and "problem     the proof of the job's secret needs libsodium" in done.stdout, done)
done = run(hfcomm_env, environment=whole | {"HFCOMM_SECRET": "very-secret"})
check("hfcomm-env: a short secret", done.returncode == 1 and "HFCOMM_SECRET has 11 bytes" in done.stdout and "very-secret" not in done.stdout + done.stderr, done)
for name, value, text in [
    ("HFCOMM_RANK", "9", 'HFCOMM_RANK="9" must be less than'),
    ("HFCOMM_INTERFACE", "nope0", 'HFCOMM_INTERFACE="nope0" is no interface'),
    ("HFCOMM_SECRET_FILE", "/not/there", "cannot be opened"),
    ("HFCOMM_SECRET_FILE", folder.name, "is no regular file"),
    ("HFCOMM_AUTH", "nothing", "HFCOMM_AUTH=nothing: the values are none and secret"),
    ("HFCOMM_ADDRESS", "no..host", 'does not know the host "no..host" of rank 0 ('),
]:
    done = run(hfcomm_env, environment=whole | {name: value})
    check(f"hfcomm-env: {name}={value}", done.returncode == 1 and text in done.stdout, done)
check("hfcomm-env: usage", run(hfcomm_env, "--nonsense").returncode == 2, done)

print("\n".join(problems) or "all as expected")
sys.exit(1 if problems else 0)
