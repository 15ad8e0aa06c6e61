# SPDX-License-Identifier: MIT
"""Machines for tests, benchmarks and demonstrations: network namespaces on a bridge, each with a host name, /etc/hosts and
shared memory of its own.

All of it lives in a network namespace of the program, so nothing else sees it, and nothing is left of it. Needs
iproute2, and root or a system that lets users make namespaces. Traffic goes to loopback and between these namespaces.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

BRIDGE, HOST, INTERFACE = "br0", "m%d", "eth0"
ENTERED = "HFCOMM_TEST_NAMESPACE"
SECRET = "0123456789abcdef0123456789abcdef"
# UCX, and so MPICH, takes processes of one IPC namespace for those of one machine, whatever its name.
NAMESPACES = ["--net", "--uts", "--mount", "--ipc"]


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


class Machines:
    """Namespaces that are held by processes. These end with this program, however it ends.

    `rate` is the bandwidth that each machine sends with, in the words of tc: "100mbit", "2gbit".
    """

    made = 0  # a namespace, and its end of a cable, ends a moment after its last process

    def __init__(self, count, ipv4=True, rate=None):
        self.count, self.ipv4 = count, ipv4
        Machines.made += 1
        self.cables = ["veth%dn%d" % (Machines.made, number) for number in range(count)]
        self.holders = []
        self.shell = None
        Machines.open.add(self)
        run("ip", "link", "add", BRIDGE, "type", "bridge", "mcast_snooping", "0")
        run("ip", "link", "set", BRIDGE, "up")
        for number in range(count):
            holder = subprocess.Popen(
                ["unshare", *NAMESPACES, "sh", "-c", "echo; read end"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            holder.stdout.read(1)
            self.holders.append(holder)
            cable = self.cables[number]
            run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
            run("ip", "link", "set", cable, "master", BRIDGE, "up")
            hosts = "127.0.0.1 localhost\n127.0.1.1 %s\n" % (HOST % number)
            for other in range(count):
                if other != number:
                    hosts += "%s %s\n" % (self.address(other), HOST % other)
            setup = "hostname %s; ip link set lo up; ip link set eth0 up; ip addr add fd77::%d/64 dev eth0 nodad;" % (
                HOST % number,
                number + 1,
            )
            if ipv4:
                setup += "ip addr add 10.77.0.%d/24 dev eth0;" % (number + 1)
            setup += "mount -t tmpfs tmpfs /dev/shm;"
            setup += "f=$(mktemp); printf '%s' >$f; mount --bind $f /etc/hosts; rm $f" % hosts
            self.command(number, ["sh", "-ec", setup], check=True)
            if rate:
                self.limit(number, rate)

    def address(self, number):
        return "10.77.0.%d" % (number + 1) if self.ipv4 else "fd77::%d" % (number + 1)

    def inside(self, number, command):
        return ["nsenter", "-t", str(self.holders[number].pid), *NAMESPACES, *command]

    def command(self, number, command, check=False):
        errors = None if check else subprocess.DEVNULL
        return subprocess.run(self.inside(number, command), check=check, stderr=errors)

    def limit(self, number, rate):
        """Limits what the machine sends to `rate`; None takes the limit away."""
        self.command(number, ["tc", "qdisc", "del", "dev", "eth0", "root"])
        if rate:
            queue = ["root", "tbf", "rate", rate, "burst", "1mb", "latency", "20ms"]
            self.command(number, ["tc", "qdisc", "add", "dev", "eth0", *queue], check=True)

    def drop(self, number, packets):
        """Drops packets on their way to the machine: those that match an expression of nft; None drops no more."""
        commands = ["delete table netdev test"]
        if packets:
            chain = "{ type filter hook ingress device eth0 priority 0; }"
            commands = ["add table netdev test", "add chain netdev test arrivals " + chain]
            commands += ["add rule netdev test arrivals %s drop" % packets]
        self.command(number, ["nft", ";".join(commands)], check=True)

    def lose(self, number, percent):
        """Loses packets on their way to the machine at random. Those that it sends are repeated soon."""
        self.drop(number, "numgen random mod 100 < %d" % percent)
        self.command(number, ["ip", "route", "change", "10.77.0.0/24", "dev", "eth0", "rto_min", "5ms"], check=True)
        self.command(number, ["sh", "-c", "echo 1 >/proc/sys/net/ipv4/tcp_thin_linear_timeouts"], check=True)

    def break_connections(self, number, but_port):
        """Ends the TCP connections of a machine, but those of one port. Returns whether there were any it could end."""
        filters = ["not", "(", "sport", "=", ":%d" % but_port, "or", "dport", "=", ":%d" % but_port, ")"]
        ended = subprocess.run(self.inside(number, ["ss", "-KHtn", *filters]), stdout=subprocess.PIPE, text=True)
        return bool(ended.stdout.strip())

    def silence(self, number):
        """The machine's carrier stays, but no packet passes."""
        run("bridge", "link", "set", "dev", self.cables[number], "state", "0")

    def sent_bytes(self):
        """Returns how many bytes each machine has sent over its cable."""
        found = subprocess.run(["ip", "-json", "-stats", "link"], check=True, stdout=subprocess.PIPE)
        links = {link["ifname"]: link for link in json.loads(found.stdout)}
        return [links[cable]["stats64"]["rx"]["bytes"] for cable in self.cables]

    def remote_shell(self):
        """Returns the path of a program that is called as ssh is, and runs the command on the machine of that name.

        It works on the machines, too. Options are ignored.
        """
        if not self.shell:
            descriptor, self.shell = tempfile.mkstemp(prefix="hfcomm-remote-shell-")
            lines = ["#!/bin/sh", 'while :; do case $1 in -[lpo]) shift 2 ;; -*) shift ;; *) break ;; esac; done']
            lines += ["case $1 in"]
            lines += ["%s) process=%d ;;" % (HOST % number, holder.pid) for number, holder in enumerate(self.holders)]
            lines += ['*) echo "no machine $1" >&2; exit 255 ;;', "esac", "shift"]
            lines += ['exec nsenter -t "$process" %s sh -c "$*"' % " ".join(NAMESPACES)]
            with os.fdopen(descriptor, "w") as file:
                file.write("\n".join(lines) + "\n")
            os.chmod(self.shell, 0o755)
        return self.shell

    def end_processes(self):
        """Kills what is left on the machines but for their holders."""
        holders = [holder.pid for holder in self.holders]
        networks = [os.readlink("/proc/%d/ns/net" % pid) for pid in holders]
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if int(name) not in holders and os.readlink("/proc/%s/ns/net" % name) in networks:
                    os.kill(int(name), signal.SIGKILL)
            except OSError:  # it has ended, or is another user's
                pass

    def close(self):
        self.end_processes()
        for holder in self.holders:
            holder.kill()
            holder.wait()
        self.holders = []
        subprocess.run(["ip", "link", "del", BRIDGE], check=False, stderr=subprocess.DEVNULL)
        if self.shell:
            os.remove(self.shell)
            self.shell = None
        Machines.open.discard(self)

    open = set()

    @staticmethod
    def close_all():
        for machines in list(Machines.open):
            machines.close()


def rank_command(machines, job, placement, rank, command, changes=None):
    """Returns the command that runs `command` as a rank of hfcomm's on its machine.

    `changes` to its environment may take variables away: those that are None.
    """
    variables = {**rank_variables(machines, job, placement, rank), **(changes or {})}
    words = ["%s=%s" % item for item in variables.items() if item[1] is not None]
    return machines.inside(placement[rank], ["env", *words, *command])


def rank_variables(machines, job, placement, rank):
    """Returns the environment of a rank of hfcomm's. `placement` has the machine of each rank."""
    machine = placement[rank]
    address = machines.address(placement[0])
    return {
        "HFCOMM_JOB": job,
        "HFCOMM_RANK": rank,
        "HFCOMM_WORLD_SIZE": len(placement),
        "HFCOMM_LOCAL_SIZE": placement.count(machine),
        "HFCOMM_LOCAL_RANK": placement[:rank].count(machine),
        "HFCOMM_ADDRESS": "[%s]" % address if ":" in address else address,
        "HFCOMM_SECRET": SECRET,
    }


def bridges_are_allowed():
    namespaces = " ".join(NAMESPACES)
    return (
        subprocess.run(
            ["sh", "-c", "ip link add hfcomm0 type bridge && unshare %s true && ip link del hfcomm0" % namespaces],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        ).returncode
        == 0
    )


def has_entered():
    return os.environ.get(ENTERED) == "1"


def enter_namespace():
    """Starts this program again in a namespace of its own, and there returns None.

    Returns the reason where this system does not allow that.
    """
    missing = [tool for tool in ("ip", "tc", "unshare", "nsenter") if shutil.which(tool) is None]
    if missing:
        return "there is no %s; install iproute2 and util-linux" % " and no ".join(missing)
    if not has_entered():
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        command = ["unshare", *user, "--net", "--mount"]
        if subprocess.run([*command, "true"], check=False).returncode != 0:
            return "this system allows no namespaces; run as root, or allow users to make them"
        os.environ[ENTERED] = "1"
        os.execvp(command[0], [*command, sys.executable, *sys.argv])
    if not bridges_are_allowed():
        return "this system allows no bridge in a namespace"
    run("ip", "link", "set", "lo", "up")
    return None
