#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""compare_test.py SOURCE_ROOT: how bench/compare judges what it measured, and what it keeps of it."""

import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.dont_write_bytecode = True
ROOT = pathlib.Path(sys.argv.pop(1))
sys.path.insert(0, str(ROOT / "bench"))
import judging
import kept_results



def import_program(path):
    """Imports a program, whose name has no suffix."""
    loader = importlib.machinery.SourceFileLoader(path.name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(path.name, loader))
    loader.exec_module(module)
    return module


compare = import_program(ROOT / "bench" / "compare")
ONCE = [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]


def record(system, launches, **others):
    """A record of a broadcast of 1 KiB whose median is that of the rounds."""
    times = sorted(time for turns in launches for time in turns)
    return {"operation": "broadcast", "ranks": 2, "bytes": 1024, "buffer": "ordinary", "type": "float32", "system": system,
            "median_us": times[len(times) // 2], "best_us": times[0], "rounds_us": launches, **others}


def verdict(mine, *peers):
    return judging.verdict_of(record("hfcomm", mine), [record("open_mpi", peer) for peer in peers])


def cell(ratio, verdict, **others):
    return judging.Cell(record("hfcomm", ONCE, **others), "mpich", ratio, verdict)


class Verdicts(unittest.TestCase):
    def test_faster_in_every_round_is_ahead(self):
        self.assertEqual(verdict(ONCE, [[1.1, 2, 3], [1.1, 1.2, 1.01]]), judging.AHEAD)

    def test_slower_in_every_round_is_behind(self):
        self.assertEqual(verdict(ONCE, [[0.9, 0.5, 0.99], [0.9, 0.8, 0.7]]), judging.BEHIND)

    def test_rounds_on_both_sides_are_undecided(self):
        self.assertEqual(verdict(ONCE, [[2, 2, 2], [2, 2, 0.99]]), judging.UNDECIDED)
        self.assertEqual(verdict(ONCE, [[0.5, 0.5, 0.5], [0.5, 0.5, 1.01]]), judging.UNDECIDED)

    def test_equal_times_are_undecided(self):
        self.assertEqual(verdict(ONCE, ONCE), judging.UNDECIDED)

    def test_ratios_are_of_one_round(self):
        # All times of the two overlap, because the second launch ran on a slower machine.
        self.assertEqual(verdict([[1, 1, 1], [10, 10, 10]], [[1.1, 1.1, 1.1], [11, 11, 11]]), judging.AHEAD)
        self.assertEqual(verdict([[1, 1, 1], [10, 10, 10]], [[0.9, 0.9, 0.9], [9, 9, 9]]), judging.BEHIND)

    def test_ahead_is_ahead_of_every_peer(self):
        slow, fast = [[2.0] * 3] * 2, [[0.5] * 3] * 2
        self.assertEqual(verdict(ONCE, slow, [[2, 2, 2], [0.9, 2, 2]]), judging.UNDECIDED)
        self.assertEqual(verdict(ONCE, slow, fast), judging.BEHIND)

    def test_behind_is_behind_one_peer(self):
        # In each round another peer is faster, but none is always.
        self.assertEqual(verdict(ONCE, [[0.9, 2, 0.9], [2, 0.9, 2]], [[2, 0.9, 2], [0.9, 2, 0.9]]), judging.UNDECIDED)

    def test_few_rounds_are_not_judged(self):
        self.assertEqual(verdict([[1, 1], [1, 1, 1]], [[9, 9], [9, 9, 9]]), judging.NOT_JUDGED)
        self.assertEqual(verdict([[1, 1, 1], [1, 1, 1]], [[9, 9, 9], [9, 9, 9]]), judging.AHEAD)

    def test_records_without_rounds_are_not_judged(self):
        old = [record("hfcomm", ONCE), record("mpich", [[9.0] * 3] * 2)]
        for one in old:
            del one["rounds_us"]
        self.assertEqual(judging.verdict_of(old[0], old[1:]), judging.NOT_JUDGED)

    def test_a_tenth_at_each_end_are_outliers(self):
        nine, ten, twenty = [2.0] * 9, [2.0] * 10, [2.0] * 20
        one_slow = lambda rounds: [[0.1, *rounds[1:]]]
        self.assertEqual(verdict([[1.0] * 9], one_slow(nine)), judging.UNDECIDED)
        self.assertEqual(verdict([[1.0] * 10], one_slow(ten)), judging.AHEAD)
        self.assertEqual(verdict([[1.0] * 20], [[0.1, 0.1, *twenty[2:]]]), judging.AHEAD)
        self.assertEqual(verdict([[1.0] * 20], [[0.1, 0.1, 0.1, *twenty[3:]]]), judging.UNDECIDED)
        self.assertEqual(verdict([[1.0] * 10], [[9.0, *[0.5] * 9]]), judging.BEHIND)

    def test_a_peer_that_was_not_measured_again_does_not_count_again(self):
        slow = [[9, 9, 9], []]
        self.assertEqual(verdict(ONCE, slow, [[2, 2, 2], [2, 2, 2]]), judging.AHEAD)
        self.assertEqual(verdict(ONCE, slow, [[2, 2, 2], [2, 0.9, 2]]), judging.UNDECIDED)
        # The launch of a round counts: these are the rounds of the second one.
        self.assertEqual(verdict([[1, 1, 1], [5, 5, 5]], [[2, 2, 2], [6, 6, 6]], [[], [4, 4, 4]]), judging.UNDECIDED)


class Tables(unittest.TestCase):
    def setUp(self):
        # Ratios 2 (ahead), 0.5 (behind), 1.5 (undecided) and 3 (not judged).
        self.records = []
        for size, mine, peer in ((8, ONCE, [[2.0] * 3] * 2), (64, ONCE, [[0.5] * 3] * 2),
                                 (512, ONCE, [[0.9, 1.5, 1.5], [1.5, 1.5, 1.5]]), (1024, [[1.0]], [[3.0]])):
            self.records += [record("hfcomm", mine, bytes=size), record("mpich", peer, bytes=size)]

    def test_the_best_peer_is_the_one_of_the_lowest_median(self):
        one = record("hfcomm", ONCE)
        found = judging.cell_of([one, record("gloo", [[5.0] * 3] * 2), record("mpich", [[4.0] * 3] * 2)], one)
        self.assertEqual((found.peer, found.ratio, found.verdict), ("mpich", 4, judging.AHEAD))

    def test_a_line_without_peers_is_no_cell(self):
        self.assertEqual(judging.cells_of([record("hfcomm", ONCE), record("limit", ONCE)]), [])

    def test_shared_buffers_are_compared_with_ordinary_ones(self):
        for buffer in ("shared", "registered"):
            records = [record("hfcomm", ONCE, buffer=buffer), record("mpich", [[2.0] * 3] * 2)]
            self.assertEqual([found.verdict for found in judging.cells_of(records)], [judging.AHEAD])

    def test_operations_that_are_left_early_are_compared_with_ordinary_ones_and_objects_with_objects(self):
        for kind, buffer in (("float32", "ordinary"), ("small_map", "object")):
            early = {**record("hfcomm", ONCE, buffer="early"), "type": kind}
            records = [early] + [{**record("mpich", [[time] * 3] * 2, buffer=other), "type": kind}
                                 for other, time in (("ordinary", 2.0), ("object", 3.0))]
            found = judging.cell_of(records, early)
            self.assertEqual(found.ratio, 2 if buffer == "ordinary" else 3)
            self.assertIn(", left early", found.work_text())

    def test_undecided_and_unjudged_ratios_are_marked(self):
        lines = judging.table(self.records, ["hfcomm", "mpich"])
        self.assertEqual([line.split()[-1] for line in lines], ["ratio", "2.00", "0.50", "1.50~", "3.00?"])
        self.assertEqual({line.rindex(".") for line in lines[1:]}, {lines[1].rindex(".")})

    def test_each_verdict_is_counted(self):
        self.assertEqual(judging.count_verdicts(judging.cells_of(self.records)),
                         {judging.AHEAD: 1, judging.BEHIND: 1, judging.UNDECIDED: 1, judging.NOT_JUDGED: 1})

    def test_worst_cells_are_decided_and_lowest_first(self):
        cells = [cell(0.8, judging.UNDECIDED), cell(1.2, judging.AHEAD), cell(0.1, judging.NOT_JUDGED),
                 cell(0.9, judging.BEHIND), cell(1.1, judging.AHEAD)]
        self.assertEqual([one.ratio for one in judging.worst_cells(cells)], [0.9, 1.1, 1.2])
        self.assertEqual([one.ratio for one in judging.worst_cells(cells, 2)], [0.9, 1.1])

    def test_the_summary_counts_and_names_the_worst(self):
        lines = judging.summary(self.records)
        self.assertEqual(lines[1].split()[4:8], ["1", "1", "1", "1"])
        self.assertIn("of 4 cells: 1 ahead, 1 behind, 1 undecided (~), 1 not judged (?: fewer than 6 rounds)", lines)
        worst = [line.split(maxsplit=2) for line in lines[lines.index("worst of the decided cells:") + 1:]]
        self.assertEqual(worst, [["0.50", "behind", "broadcast of 64, float32, 2 ranks; best peer MPICH"],
                                 ["2.00", "ahead", "broadcast of 8, float32, 2 ranks; best peer MPICH"]])

    def test_ratios_across_machines_are_judged_by_peer(self):
        records = [record("hfcomm", ONCE, sent_bytes=1024), record("gloo", [[2.0] * 3] * 2, sent_bytes=1024),
                   record("mpich", [[0.5, 2, 2], [2, 2, 2]], sent_bytes=2048)]
        line = judging.table_of_ratios(records, ["hfcomm", "gloo", "mpich"])[1]
        self.assertEqual(line.split()[3:], ["2.00", "2.00~", "1.00", "1.00", "2.00"])


class Ways(unittest.TestCase):
    def setUp(self):
        # hfcomm has chosen the second of three ways at 8 bytes, and better than all of them at 64.
        self.records = []
        for size, mine, others in ((8, 2.0, (1.0, 2.0, 9.0)), (64, 2.0, (8.0, 4.0, 4.0))):
            times = {"hfcomm": mine, "mpich": 3.0, "way:slots:32K": others[0], "way:kernel": others[1], "way:streamed:128K": others[2]}
            self.records += [record(system, [[time] * 3] * 2, bytes=size) for system, time in times.items()]

    def test_they_are_no_peers(self):
        self.assertEqual([found.ratio for found in judging.cells_of(self.records)], [1.5, 1.5])

    def test_the_table_has_their_times(self):
        lines = judging.table(self.records, ["hfcomm", "mpich", "way:slots:32K", "way:kernel"])
        self.assertEqual(lines[0].split()[-4:], ["ratio", "slots:32K", "kernel", "choice"])
        self.assertEqual([line.split()[-4:] for line in lines[1:]],
                         [["1.50", "1.00", "2.00", "0.50"], ["1.50", "8.00", "4.00", "2.00"]])

    def test_the_summary_has_the_means_of_the_choice_and_of_the_quickest(self):
        line = "2 lines among 2 ranks, time of the quickest way / of the chosen: mean 1.000, lowest 0.50 (broadcast of 8, float32)"
        self.assertIn(line + "; mean ratio 1.50, with the quickest 1.50", judging.summary(self.records))  # (3 / 1) and (3 / 4)
        self.assertFalse(judging.choice_beside_ways([one for one in self.records if not one["system"].startswith("way:")]))

    def test_they_are_compared_without_peers(self):
        records = [one for one in self.records if one["system"] != "mpich"]
        self.assertIn("2 lines among 2 ranks, time of the quickest way / of the chosen: mean 1.000, lowest 0.50 "
                      "(broadcast of 8, float32)", judging.summary(records))

    def test_a_way_that_is_named_twice_shows_the_noise(self):
        self.assertEqual([system for system, *_ in compare.ways_of(["kernel:32K", "slots:32K", "kernel:32K"])],
                         ["way:kernel:32K", "way:slots:32K", "way:kernel:32K again"])
        again = [record("way:slots:32K again", [[time] * 3] * 2, bytes=size) for size, time in ((8, 0.25), (64, 9.0))]
        self.assertIn("the lower of two equal columns / the first: mean 0.500", judging.summary(self.records + again))

    def test_a_table_names_one_way_for_everything(self):
        with tempfile.TemporaryDirectory() as name:
            tables = compare.write_tables(pathlib.Path(name), [compare.way_of("slots:128K"), compare.way_of("kernel:32K")], [2, 4])
            self.assertEqual(list(tables), ["way:slots:128K", "way:kernel:32K"])
            rows = [line.split() for line in tables["way:slots:128K"].read_text().splitlines()]
            self.assertEqual({tuple(row[4:]) for row in rows}, {("slots", "131072", "1.0")})
            self.assertEqual({int(row[1]) for row in rows}, {1 << shift for shift in range(10, 25)})
            self.assertEqual({(row[2], row[3]) for row in rows}, {(ranks, cores) for ranks in "24" for cores in ("own", "shared")})
            self.assertEqual(tables["way:kernel:32K"].read_text().split()[4:6], ["kernel", "32768"])


class Quick(unittest.TestCase):
    def test_it_has_few_sizes_and_the_rounds_to_judge(self):
        quick, whole = self.arguments("--quick"), self.arguments()
        self.assertGreaterEqual(quick.launches * quick.rounds, judging.LEAST_ROUNDS)
        self.assertGreater(quick.launches, whole.launches)
        self.assertLess(len(compare.lines_of(quick)), len(compare.lines_of(whole)) / 2)
        for size in compare.QUICK_SIZES:
            self.assertEqual(compare.effort_of(quick, size, 0)[0], quick.rounds)

    def test_what_is_much_slower_at_half_of_the_lines_is_left_out(self):
        lines = [{"hfcomm": [[1.0]], "mpich": [[slow]], "gloo": [[much]], "limit": [[0.01]]}
                 for slow, much in ((1.0, 9.0), (1.0, 6.0), (90.0, 1.0))]
        self.assertEqual(compare.much_slower(dict(enumerate(lines))), ["gloo"])

    def test_hfcomm_is_never_left_out(self):
        self.assertEqual(compare.much_slower({1: {"hfcomm": [[9.0]], "mpich": [[1.0]]}}), [])

    def arguments(self, *words):
        with unittest.mock.patch.object(sys, "argv", ["compare", *words]):
            return compare.parse_arguments()


XEON = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: {}\n" \
    "model name\t: Intel(R) Xeon(R) Processor @ 2.50GHz\nstepping\t: {}\n\nprocessor\t: 1\nmodel\t\t: 1\n"


class Kept(unittest.TestCase):
    def test_the_folder_names_the_make(self):
        self.assertEqual(kept_results.folder_name(XEON.format(85, 7), 2), "cascade-lake-2-cores")
        self.assertEqual(kept_results.folder_name(XEON.format(85, 4), 8), "skylake-8-cores")
        self.assertEqual(kept_results.folder_name(XEON.format(143, 8), 8), "sapphire-rapids-8-cores")
        self.assertEqual(kept_results.folder_name(XEON.format(9999, 1), 8), "xeon-8-cores")
        amd = "vendor_id : AuthenticAMD\ncpu family : 25\nmodel : {}\nmodel name : {}\n"
        self.assertEqual(kept_results.folder_name(amd.format(17, "AMD EPYC"), 2), "epyc-2-cores")
        ryzen = amd.format(97, "AMD Ryzen 9 7950X 16-Core Processor")
        self.assertEqual(kept_results.folder_name(ryzen, 16), "ryzen-9-7950x-16-cores")
        self.assertEqual(kept_results.folder_name("processor : 0\n", 4), "unknown-4-cores")

    def test_runs_of_all_lines_have_names(self):
        self.assertEqual(kept_results.name_of_run([2, 4], 1, None, False), "2-4-ranks")
        self.assertEqual(kept_results.name_of_run([4], 2, "2gbit", True), "quick-2-machines-2gbit")

    def test_what_is_kept_is_read_again(self):
        with tempfile.TemporaryDirectory() as name:
            records = [record("hfcomm", ONCE, machines=2), record("mpich", [[0.5] * 3] * 2, machines=2)]
            text = "# AMD EPYC, 2 cores, 2026-11-25; load before 1.00\n# 2 machines out of network namespaces, 2gbit\n"
            kept_results.keep(pathlib.Path(name) / "epyc-2-cores", "2-machines", text, records)
            self.assertEqual(kept_results.kept_runs(pathlib.Path(name)),
                             [kept_results.Kept("epyc-2-cores", "2-machines", "2026-11-25", "2gbit", records)])
            printed = self.result_tables("--results", name)
        link = "[epyc-2-cores/2-machines](epyc-2-cores/2-machines.txt)"
        self.assertIn(f"| {link} | 2026-11-25 | 1 | 0 | 1 | 0 | 0 |\n", printed)
        self.assertIn(f"| {link} | 2 | broadcast of 1K, float32, 2gbit | 1.00 | 0.50 | MPICH | 0.50 | behind |\n", printed)

    def test_each_make_has_its_worst_cells(self):
        with tempfile.TemporaryDirectory() as name:
            for make, ratios in (("epyc-2-cores", (0.2, 0.3)), ("xeon-8-cores", (0.8, 0.9))):
                records = []
                for size, ratio in enumerate(ratios, 8):
                    records += [record("hfcomm", ONCE, bytes=size), record("mpich", [[ratio] * 3] * 2, bytes=size)]
                kept_results.keep(pathlib.Path(name) / make, "2-ranks", "# 2026-11-25\n", records)
            printed = self.result_tables("--results", name, "--count", "1")
        rows = [[word.strip() for word in line.split("|")] for line in printed.splitlines()]
        self.assertEqual([row[7] for row in rows if row[-2:] == ["behind", ""] and row[3].startswith("broadcast")], ["0.20", "0.80"])

    def test_whole_runs_of_a_make_have_a_table_of_chosen_lines(self):
        with tempfile.TemporaryDirectory() as name:
            for run, ranks, peer in (("2-ranks", 2, 2.0), ("4-ranks", 4, 3.0), ("quick-2-ranks", 2, 9.0)):
                records = [record("hfcomm", ONCE, ranks=ranks, bytes=size) for size in (1 << 20, 4096)]
                records += [record("mpich", [[peer] * 3] * 2, ranks=ranks, bytes=size) for size in (1 << 20, 4096)]
                kept_results.keep(pathlib.Path(name) / "epyc-2-cores", run, "# 2026-11-25\n", records)
            printed = self.result_tables("--results", name)
        row = "| broadcast | 1M | 1.00 | 2.00 | 2.00 | 1.00 | 3.00 | 3.00 |"
        self.assertIn(f"|---|\n{row}\n<!-- end -->", printed)

    def test_tables_are_written_into_their_places(self):
        with tempfile.TemporaryDirectory() as name:
            page = pathlib.Path(name) / "README.md"
            page.write_text("before\n<!-- runs -->\nold\n<!-- end -->\n<!-- worst cells -->\n<!-- end -->\nafter\n")
            self.result_tables("--results", name, "--document")
            written = page.read_text()
            self.assertNotIn("old", written)
            self.assertTrue(written.startswith("before\n<!-- runs -->\n| run |") and written.endswith("|\n<!-- end -->\nafter\n"))
            self.result_tables("--results", name, "--document")
            self.assertEqual(page.read_text(), written)
            page.write_text("no place")
            with self.assertRaises(subprocess.CalledProcessError):
                self.result_tables("--results", name, "--document")

    def test_runs_with_ways_have_a_row_in_a_page_of_their_own(self):
        with tempfile.TemporaryDirectory() as name:
            page = pathlib.Path(name) / "ways.md"
            (pathlib.Path(name) / "README.md").write_text("<!-- runs -->\n<!-- end -->\n<!-- worst cells -->\n<!-- end -->\n")
            page.write_text("<!-- ways -->\n<!-- end -->\n")
            records = [record(system, [[time] * 3] * 2) for system, time in
                       (("hfcomm", 1.0), ("way:slots:32K", 2.0), ("way:slots:32K again", 1.0), ("way:kernel:32K", 0.5))]
            kept_results.keep(pathlib.Path(name) / "epyc-2-cores", "2-ranks-ways", "# 2026-11-25\n", records)
            self.result_tables("--results", name, "--document", "--ways-page", str(page))
            self.assertIn("2-ranks-ways.txt) | 2026-11-25 | 2 | 1 | 0.500 | 0.50 (broadcast of 1K, float32) | 0.500 |\n",
                          page.read_text())

    def test_the_page_of_results_has_the_tables_of_the_kept_runs(self):
        printed = self.result_tables()
        self.assertGreater(len(printed.splitlines()), 6)
        pages = [(ROOT / page).read_text() for page in ("bench/results/README.md", "docs/shared-memory.md")]
        for table in printed.split("\n\n"):
            self.assertTrue(table.strip() in pages["<!-- ways -->" in table], f"bench/result_tables --document has not written these lines:\n{table}")

    def result_tables(self, *arguments):
        return subprocess.run([sys.executable, ROOT / "bench" / "result_tables", *arguments], check=True, text=True,
                              stdout=subprocess.PIPE).stdout


if __name__ == "__main__":
    unittest.main()
