#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""docs_test.py SOURCE_ROOT: every row of the tables of docs/from-python.md and docs/misuse.md names tests that exist."""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
titles = {}
for file in (root / "tests").glob("*/*_test.cpp"):
    found = re.findall(r'TEST_CASE(?:_TEMPLATE)?\(\s*"((?:[^"\\]|\\.)*)"', file.read_text())
    titles.setdefault(file.name, []).extend(found)

problems = []
rows = 0
for page in ["docs/from-python.md", "docs/misuse.md"]:
    for number, line in enumerate((root / page).read_text().splitlines(), 1):
        if not line.startswith("|") or line.startswith("|---") or re.match(r"\| (there|mistake) ", line):
            continue
        rows += 1
        named = re.findall(r'`(\w+_test\.cpp)` "([^"]+)"', line)
        not_compiled = re.findall(r"`(compile_fail/\w+\.cpp)`", line)
        problems += [f"{page}:{number}: there is no {name}" for name in not_compiled if not (root / "tests" / name).exists()]
        if not named and not not_compiled:
            problems.append(f"{page}:{number}: the row names no test")
        for file, title in named:
            if not any(known.startswith(title) for known in titles.get(file, [])):
                problems.append(f'{page}:{number}: there is no case "{title}..." in {file}')

print("\n".join(problems) or f"{rows} rows, all with tests that exist")
sys.exit(1 if problems or rows < 40 else 0)
