# SPDX-License-Identifier: MIT
"""limits.json: the sizes that were reached with one compiler. The limits are 2 % above them."""

import json
import pathlib

PATH = pathlib.Path(__file__).parent / "limits.json"
ALLOWED_PERCENT = 2
ADVICE = ("Make it smaller. Where that is impossible, name the reason in CHANGELOG.md and run "
          "tests/compile_cost/compile_cost.py --record")


def read_limits():
    return json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else {"compiler": "", "reached": {}}


def limit_of(reached):
    return reached * (100 + ALLOWED_PERCENT) // 100


def rows(sizes):
    return [(key, unit, value) for key, figures in sizes.items() for unit, value in figures.items()]


def compare(recorded, sizes):
    """Prints the sizes beside their limits, and returns what is above its limit or far below what is recorded."""
    failures = []
    for key, unit, value in rows(sizes):
        reached = recorded["reached"].get(key, {}).get(unit)
        if reached is None:
            print(f"{key:20} {unit:18} {value:10,} (nothing recorded)")
            continue
        print(f"{key:20} {unit:18} {value:10,} of {limit_of(reached):,}")
        if value > limit_of(reached):
            failures.append(f"{key}: {value:,} {unit}, more than {limit_of(reached):,}. {ADVICE}")
        elif reached > limit_of(value):
            failures.append(f"{key}: {value:,} {unit}, less than the recorded {reached:,}. Keep what was reached: run "
                            "tests/compile_cost/compile_cost.py --record")
    return failures


def record(compiler, sizes):
    """Writes what was reached, and prints what changed. Keeps recorded sizes that were not measured or are not exceeded."""
    recorded = read_limits()
    if recorded["compiler"] != compiler:
        recorded = {"compiler": compiler, "reached": {}}
    raised = False
    for key, unit, value in rows(sizes):
        before = recorded["reached"].setdefault(key, {}).setdefault(unit, value)
        # Within the limit: growth by a percent at a time must not move it.
        if value == before or before < value <= limit_of(before):
            continue
        recorded["reached"][key][unit] = value
        print(f"{key:20} {unit:18} {before:10,} -> {value:,} ({100 * (value / before - 1):+.1f} %)")
        raised = raised or value > before
    PATH.write_text(json.dumps(recorded, indent=2) + "\n", encoding="utf-8")
    if raised:
        print("Limits are raised: name the reason in CHANGELOG.md")
