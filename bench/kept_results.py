# SPDX-License-Identifier: MIT
"""The runs of bench/compare that are kept in bench/results: a folder for each make of processor and number of cores, and
in it a .txt, which is what a run printed, and a .json, which has its records."""

import dataclasses
import json
import pathlib
import re

FOLDER = pathlib.Path(__file__).resolve().parent / 'results'
# (vendor, family, model): make. Virtual machines hide the name of the processor, but not these numbers.
MAKES = {
    ('GenuineIntel', 6, 63): 'haswell',
    ('GenuineIntel', 6, 79): 'broadwell',
    ('GenuineIntel', 6, 106): 'ice-lake',
    ('GenuineIntel', 6, 143): 'sapphire-rapids',
    ('GenuineIntel', 6, 207): 'emerald-rapids',
    ('GenuineIntel', 6, 173): 'granite-rapids',
    ('AuthenticAMD', 23, 49): 'epyc-rome',
    ('AuthenticAMD', 25, 1): 'epyc-milan',
    ('AuthenticAMD', 25, 17): 'epyc',  # Genoa, Zen 4
    ('AuthenticAMD', 26, 2): 'epyc-turin',
}


def first_values(cpuinfo):
    """{key: value} of the first processor in the text of /proc/cpuinfo."""
    pairs = (line.partition(':') for line in cpuinfo.partition('\n\n')[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def read_cpuinfo():
    return pathlib.Path('/proc/cpuinfo').read_text(encoding='utf-8', errors='replace')


def cpu_name(cpuinfo):
    return first_values(cpuinfo).get('model name', 'unknown processor')


def make_of(cpuinfo):
    """The make in words for a folder: of MAKES, else made of the processor's name."""
    values = first_values(cpuinfo)
    whole = lambda key: int(values.get(key, '0'))
    number = (values.get('vendor_id'), whole('cpu family'), whole('model'))
    if number == ('GenuineIntel', 6, 85):
        return 'skylake' if whole('stepping') < 5 else 'cascade-lake' if whole('stepping') < 10 else 'cooper-lake'
    name = MAKES.get(number) or re.sub(r'\((R|TM)\)|\d+-Core|\b(Intel|AMD|CPU|Processor)\b|@.*', ' ',
                                       values.get('model name', ''), flags=re.IGNORECASE)
    return '-'.join(re.findall(r'[a-z0-9.]+', name.lower())) or 'unknown'


def folder_name(cpuinfo, cores):
    return f'{make_of(cpuinfo)}-{cores}-cores'


def name_of_run(ranks, machines, rate, quick):
    """The name of the files of a run that has all lines."""
    words = ['quick'] if quick else []
    words += [str(machines), 'machines', *([rate] if rate else [])] if machines > 1 else [*map(str, ranks), 'ranks']
    return '-'.join(words)


def write_records(path, records):
    # A record a line: small, and readable in a diff.
    path.write_text('[\n' + ',\n'.join(json.dumps(record) for record in records) + '\n]\n', encoding='utf-8')


def keep(folder, name, text, records):
    """Writes both files, and returns the path of the .txt."""
    folder.mkdir(parents=True, exist_ok=True)
    write_records(folder / f'{name}.json', records)
    path = folder / f'{name}.txt'
    path.write_text(text, encoding='utf-8')
    return path


@dataclasses.dataclass(frozen=True)
class Kept:
    """One run. `machine` is the folder's name, `name` that of the files, `network` what limits the network between machines,
    if there are several."""
    machine: str
    name: str
    date: str
    network: str
    records: list


def kept_runs(folder=FOLDER):
    """All runs of bench/compare, sorted by folder and name."""
    return [read_run(file) for file in sorted(folder.glob('*/*.json')) if not file.name.startswith('torch_')]


def read_run(file):
    text = file.with_suffix('.txt').read_text(encoding='utf-8')
    date = re.search(r'^# .*(\d{4}-\d\d-\d\d)', text)
    network = re.search(r'^# \d+ machines out of network namespaces, (.*)$', text, re.MULTILINE)
    if not date:
        raise ValueError(f'{file.with_suffix(".txt")}: the first line names no date')
    records = json.loads(file.read_text(encoding='utf-8'))
    return Kept(file.parent.name, file.stem, date[1], network[1] if network else '', records)
