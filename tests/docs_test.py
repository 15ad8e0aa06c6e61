#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""docs_test.py SOURCE_ROOT: what the documentation says of the sources is true, and its tables are whole.

- Every row of the tables of docs/from-python.md and docs/misuse.md names tests that exist.
- docs/api.md has every public name with its header, and no other.
- Every piece of C++ in docs/torch.md and README.md is part of a test, so that it compiles and runs. (tests/page_test.py runs
  programs.)
- Links within the documentation lead to files and headings that exist.
- README.md has at most 200 lines.
- No page has rows outside a table, which an empty line inside it leads to, or rows with too few or too many cells.
"""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
problems = []


def lines_of(page):
    """Pairs of a line's number and a line, without blocks of code."""
    in_code = False
    for number, line in enumerate((root / page).read_text().splitlines(), 1):
        if line.startswith("```"):
            in_code = not in_code
        elif not in_code:
            yield number, line


def cells_of(row):
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", re.sub(r"`[^`]*`", lambda code: code[0].replace("|", "\\|"), row))[1:-1]]


def is_rule(row):
    return re.fullmatch(r"(\|\s*:?-+:?\s*)+\|", row) is not None


def check_tables(page):
    """A table is a header, a rule and rows, without a gap."""
    previous, width = "", 0
    for number, line in [*lines_of(page), (0, "")]:
        if not line.startswith("|"):
            if previous.startswith("|") and width == 0:
                problems.append(f"{page}:{number - 1}: a row stands outside a table")
            width = 0
        elif is_rule(line) and previous.startswith("|"):
            width = len(cells_of(previous))
        elif previous.startswith("|") and width == 0:
            problems.append(f"{page}:{number - 1}: a row stands outside a table")
        if line.startswith("|") and width not in (0, len(cells_of(line))):
            problems.append(f"{page}:{number}: {len(cells_of(line))} cells in a table of {width}")
        previous = line


def check_named_tests():
    titles = {}
    for file in (root / "tests").glob("*/*_test.cpp"):
        found = re.findall(r'TEST_CASE(?:_TEMPLATE)?\(\s*"((?:[^"\\]|\\.)*)"', file.read_text())
        titles.setdefault(file.name, []).extend(found)
    rows = 0
    for page in ["docs/from-python.md", "docs/misuse.md"]:
        for number, line in lines_of(page):
            if not line.startswith("|") or is_rule(line) or re.match(r"\| (there|mistake) ", line):
                continue
            rows += 1
            named = re.findall(r'`(\w+_test\.cpp)` "([^"]+)"', line)
            not_compiled = re.findall(r"`(compile_fail/\w+\.cpp)`", line)
            for name in not_compiled:
                if not (root / "tests" / name).exists():
                    problems.append(f"{page}:{number}: there is no {name}")
            if not named and not not_compiled:
                problems.append(f"{page}:{number}: the row names no test")
            for file, title in named:
                if not any(known.startswith(title) for known in titles.get(file, [])):
                    problems.append(f'{page}:{number}: there is no case "{title}..." in {file}')
    return rows


# What clang-format puts into the first column of a namespace.
DECLARATIONS = [
    re.compile(r"(?:class|struct|enum class|union) (?:\[\[\S+\]\] )?(\w+)\b(?! *<)(?!;)"),
    re.compile(r"(?:concept|using) (\w+) ="),
    re.compile(r"inline constexpr [\w:<>]+ (\w+)(?: =|\{|;)"),
    re.compile(r"(?!template|static_assert|requires|friend|class|struct|/)(?:\S[^(]*?[\s&*>])(\w+)\("),
]


def public_names(header):
    """The names that a header declares for users, qualified where they are in an inner namespace."""
    namespaces = []
    for line in (root / "include/hfcomm" / header).read_text().splitlines():
        if opened := re.match(r"namespace (\S+) \{", line):
            namespaces.append(opened[1])
        elif line.startswith("}  // namespace"):
            namespaces.pop()
        elif namespaces in (["hfcomm"], ["hfcomm::testing"], ["hfcomm::torch"]):
            found = next(filter(None, (pattern.match(line) for pattern in DECLARATIONS)), None)
            if found and found[1] != "operator":
                yield "".join(f"{space}::" for space in namespaces[0].split("::")[1:]) + found[1]


def public_headers():
    """What the entrances include, for others to include."""
    yield "testing.hpp"
    yield "collectives/collect_results_in_files.hpp"
    for entrance in ["comm.hpp", "ddp.hpp", "nccl.hpp", "torch.hpp"]:
        for header in re.findall(r"^#include <hfcomm/(.*)>", (root / "include/hfcomm" / entrance).read_text(), re.MULTILINE):
            if "/" in header and "detail/" not in header:
                yield header


def check_names():
    page = "docs/api.md"
    listed = set()
    for number, line in lines_of(page):
        if not line.startswith("|") or is_rule(line) or line.startswith("| name "):
            continue
        names, header = cells_of(line)[0], cells_of(line)[1].strip("`")
        file = root / "include/hfcomm" / header
        text = file.read_text() if file.is_file() else ""
        for name in re.findall(r"`([^`]+)`", names):
            listed.add((name, header))
            if not re.search(rf"\b{name.split('::')[-1]}\b", text):
                problems.append(f"{page}:{number}: there is no {name} in {header}")
    for header in public_headers():
        for name in dict.fromkeys(public_names(header)):
            if (name, header) not in listed:
                problems.append(f"{page}: there is no row for `{name}` of `{header}`")
    return len(listed)


def check_pieces():
    """Layout may differ: the page's columns are narrow."""
    test = "tests/torch/torch_page_test.cpp"
    tested = "".join((root / test).read_text().split())
    count = 0
    for page in ["docs/torch.md", "README.md"]:
        blocks = re.findall(r"^```cpp\n(.*?)^```$", (root / page).read_text(), re.MULTILINE | re.DOTALL)
        for piece in [block for block in blocks if not re.search(r"\bmain\(", block)]:
            count += 1
            if "".join(piece.split()) not in tested:
                problems.append(f"{page}: {test} does not have this piece:\n{piece}")
    return count


def anchors_of(page):
    """What GitHub makes of the headings."""
    headings = [line.lstrip("#").strip().lower() for _, line in lines_of(page) if re.match(r"#+ ", line)]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


def check_links(page):
    for number, line in lines_of(page):
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
            if re.match(r"\w+:", target):
                continue
            name, _, anchor = target.partition("#")
            file = (root / page).parent / name if name else root / page
            if not file.exists():
                problems.append(f"{page}:{number}: there is no {target}")
            elif anchor and anchor not in anchors_of(file.relative_to(root)):
                problems.append(f"{page}:{number}: there is no heading for {target}")


def check_length(page, most):
    lines = (root / page).read_text().count("\n")
    if lines > most:
        problems.append(f"{page}: {lines} lines, at most {most}: what not every stranger needs belongs into docs/")


for path in [*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("bench/results/*.md")]:
    check_tables(path.relative_to(root))
    check_links(path.relative_to(root))
check_length("README.md", 200)
rows = check_named_tests()
names = check_names()
pieces = check_pieces()
print("\n".join(problems) or f"{rows} rows with tests that exist; {names} names in their headers; {pieces} tested pieces")
sys.exit(1 if problems or rows < 40 or names < 100 or pieces < 10 else 0)
