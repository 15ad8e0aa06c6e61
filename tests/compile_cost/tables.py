# SPDX-License-Identifier: MIT
"""The tables of README.md and docs/compiled.md, which are put together from limits.json and times.json.

A table stands between `<!-- compile cost: NAME -->` and `<!-- end of compile cost -->`."""

import re

from builds import LEVELS, PROGRAMS, TORCH_PROGRAMS, WAYS, program

PAGES = {"README.md": ["first program"], "docs/compiled.md": ["programs", "torch"]}
END = "<!-- end of compile cost -->"
PART = "the compiled part"


def row(*cells):
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells) + "\n"


def header(*cells):
    return row(*cells) + "|" + "---|" * len(cells) + "\n"


def thousands(value):
    """A size in thousands, or nothing."""
    return "" if value is None else f"{value / 1000:,.{0 if value >= 100_000 else 1}f}"


def count(value):
    return "" if value is None else f"{value:,}"


def timed_cells(time):
    return f"{time['seconds']:.1f}", f"{time['ratio']:.1f}", f"{time['MB']:,}"


def measured_with(about, sizes_compiler=""):
    """A sentence about where, when and how times were measured."""
    with_torch = f", LibTorch {about['LibTorch']}" if "LibTorch" in about else ""
    busy = " (busy)" if about["is busy"] else ""
    sentence = (f"Times: {short_compiler(about['compiler'])}{with_torch}, {about['processor']}{busy}, {about['date']}, "
                f"medians of {about['rounds']}.")
    return sentence + (f" Sizes: {short_compiler(sizes_compiler)}, of these sources." if sizes_compiler else "")


def short_compiler(name):
    return name.split(" for ")[0]


def first_program_table(recorded, times):
    """The README's table: its first program, both ways, at -O2."""
    text = header("-O2", "seconds", "ratio to cereal's", "MB of memory", "functions", "KB of code")
    keys = {way: f"{program('first', way)} -O2" for way in WAYS}
    for name, time, sizes in [*((way, keys[way], program("first", way)) for way in WAYS), (PART + ", once", PART, PART)]:
        reached = recorded["reached"][sizes]
        text += row(name, *timed_cells(times["programs"][time]), count(reached["functions -O2"]),
                    thousands(reached["code bytes -O2"]))
    return text + "\n" + measured_with(times["programs measured"], recorded["compiler"]) + "\n"


def programs_table(recorded, times):
    text = header("", "", "", "seconds", "ratio to cereal's", "MB of memory", "KB to parse", "functions", "KB of code")
    text += row("cereal alone", "", "", *timed_cells(times["programs"]["cereal"]), "", "", "")
    for name, title in PROGRAMS.items():
        for level in LEVELS:
            for way in WAYS:
                key = program(name, way)
                reached = recorded["reached"][key]
                text += row(title, level, way, *timed_cells(times["programs"][f"{key} {level}"]),
                            thousands(reached["preprocessed bytes"]), count(reached[f"functions {level}"]),
                            thousands(reached.get(f"code bytes {level}")))
    reached = recorded["reached"][PART]
    text += row(PART, "-O2", "", *timed_cells(times["programs"][PART]), "", count(reached["functions -O2"]),
                thousands(reached["code bytes -O2"]))
    return text + "\n" + measured_with(times["programs measured"], recorded["compiler"]) + "\n"


def torch_table(_, times):
    text = header("", *LEVELS)
    for name, title in TORCH_PROGRAMS.items():
        cells = [times["torch"][f"{name} {level}"] for level in LEVELS]
        text += row(title, *(f"{cell['seconds']:.1f} s, {cell['ratio']:.2f}" for cell in cells))
    return text + "\n" + measured_with(times["torch measured"]) + "\n"


TABLES = {"first program": first_program_table, "programs": programs_table, "torch": torch_table}


def with_tables(page, text, recorded, times):
    """The text of a page with its tables as they should be."""
    for name in PAGES[page]:
        begin = f"<!-- compile cost: {name} -->"
        table = f"{begin}\n{TABLES[name](recorded, times)}{END}"
        text, found = re.subn(f"{re.escape(begin)}\n.*?{END}", lambda _: table, text, flags=re.DOTALL)
        if found != 1:
            raise SystemExit(f"{page}: there is no table between {begin} and {END}, or more than one")
    return text


def stale_pages(root, recorded, times):
    return [page for page in PAGES
            if (text := (root / page).read_text(encoding="utf-8")) != with_tables(page, text, recorded, times)]


def write_tables(root, recorded, times):
    for page in PAGES:
        text = with_tables(page, (root / page).read_text(encoding="utf-8"), recorded, times)
        (root / page).write_text(text, encoding="utf-8")
