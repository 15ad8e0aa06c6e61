# SPDX-License-Identifier: MIT
"""The programs whose compilation is measured, and the commands that compile them."""

import os
import pathlib
import re
import shutil
import subprocess

WAYS = {"header-only": [], "compiled": ["-DHFCOMM_COMPILED"]}
PROGRAMS = {"rank": "`return hfcomm::rank();`", "first": "the README's first program"}
LEVELS = ("-O0", "-O2")
# As Meson compiles it for installing.
PART = ["-DHFCOMM_COMPILED", "-fPIC", "-fno-semantic-interposition", "-O2"]
TORCH_PROGRAMS = {
    "torch_alone": "LibTorch's `<torch/torch.h>` alone",
    "torch_plain": "a pass of a module, without hfcomm",
    "torch": "the same, averaged, and a tensor reduced",
}


def first_program(root):
    """The README's first C++ block."""
    readme = (root / "README.md").read_text(encoding="utf-8")
    return re.search(r"^```cpp\n(.*?)^```", readme, re.MULTILINE | re.DOTALL).group(1)


def program(name, way):
    """The key of a program's figures."""
    return f"{name}, {way}"


class BuildCommands:
    """Commands of a compiler in a folder that has all sources, so that no figure depends on where the checkout is.

    UCX's headers are left out (HFCOMM_UCX=0), so that no figure depends on whether they are there."""

    def __init__(self, root, folder, compiler, torch_folders=()):
        self.root = pathlib.Path(root).resolve()
        self.folder = pathlib.Path(folder)
        self.compiler = compiler
        self.torch_folders = list(torch_folders)
        for name in ("include", "packaging"):
            (self.folder / name).symlink_to(self.root / name)
        for source in (self.root / "tests" / "compile_cost").glob("*.cpp"):
            shutil.copy(source, self.folder)
        (self.folder / "first.cpp").write_text(first_program(self.root), encoding="utf-8")

    def command(self, source, arguments):
        """The arguments that compile a source; what is made of it is missing."""
        return [*self.compiler, "-std=c++20", "-DHFCOMM_UCX=0", "-I", "include", *arguments, source]

    def of(self, name, way, level=None):
        return self.command(name + ".cpp", WAYS[way] + ([level] if level else []))

    def of_part(self):
        return self.command("packaging/hfcomm.cpp", PART)

    def of_torch(self, name, level):
        includes = [argument for folder in self.torch_folders for argument in ("-isystem", folder)]
        return self.command(name + ".cpp", WAYS["compiled"] + includes + [level])

    def output_of(self, command, **options):
        return subprocess.run(command, check=True, cwd=self.folder, stdout=subprocess.PIPE, **options).stdout

    def compiler_name(self):
        """The compiler, with its version and what it compiles for: sizes can be compared where this is equal."""
        about = self.output_of([*self.compiler, "--version"], text=True)
        name = "g++" if "Free Software Foundation" in about else "clang++"
        version, machine = (self.output_of([*self.compiler, option], text=True).strip()
                            for option in ("-dumpfullversion" if name == "g++" else "-dumpversion", "-dumpmachine"))
        return f"{name} {version} for {machine}"

    def torch_version(self):
        source = "#include <torch/version.h>\nhfcomm_version TORCH_VERSION\n"
        includes = [argument for folder in self.torch_folders for argument in ("-isystem", folder)]
        text = self.output_of([*self.compiler, *includes, "-E", "-P", "-x", "c++", "-"], input=source.encode()).decode()
        return re.search(r'hfcomm_version "(.*?)"', text).group(1)


def processor_name():
    with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
        found = re.search(r"^model name\s*:\s*(.*)$", cpuinfo.read(), re.MULTILINE)
    return found.group(1) if found else os.uname().machine
