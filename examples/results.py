#!/usr/bin/env python3
"""Reads results.json of `millpond compare`: python3 results.py millpond-report/results.json [plot.png]

Prints the answers and the median of every measure for every candidate; with pandas if it is there, without
it otherwise. With a second name it draws every round of the main measures, which takes matplotlib. The
fields are described in docs/results.schema.json.
"""

import json
import signal
import statistics
import sys


def rows(record):
    """Every number of every good run: (candidate, round, measure, value)."""
    for candidate in record["candidates"]:
        for run in candidate["rounds"]:
            if run["status"] == "done":
                for measure, value in run["measures"].items():
                    yield candidate["name"], run["round"], measure, value


def medians(found):
    """Measure -> candidate -> median over rounds, by pandas or by hand."""
    try:
        import pandas
    except ImportError:
        values = {}
        for candidate, _, measure, value in found:
            values.setdefault(measure, {}).setdefault(candidate, []).append(value)
        return {
            measure: {name: statistics.median(them) for name, them in by_name.items()}
            for measure, by_name in sorted(values.items())
        }
    frame = pandas.DataFrame(found, columns=["candidate", "round", "measure", "value"])
    table = frame.pivot_table(index="measure", columns="candidate", values="value", aggfunc="median")
    return {measure: row.dropna().to_dict() for measure, row in table.iterrows()}


def shown(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def print_table(table, names):
    width = max(map(len, table), default=0)
    print(" " * width, *(f"{name[:24]:>24}" for name in names))
    for measure, by_name in table.items():
        cells = (f"{shown(by_name[name]) if name in by_name else '-':>24}" for name in names)
        print(f"{measure:<{width}}", *cells)


def plot(found, names, file):
    import matplotlib

    matplotlib.use("Agg")  # writes files, needs no display
    from matplotlib import pyplot

    wanted = ("throughput_per_s", "response_p50_ns", "memory_after_work_bytes", "cpu_per_request_ns")
    measures = [it for it in dict.fromkeys(row[2] for row in found) if it.endswith(wanted)]
    measures = [it for it in measures if ".user_cpu" not in it and ".system_cpu" not in it]
    figure, panels = pyplot.subplots(1, len(measures), figsize=(3.2 * len(measures), 4), squeeze=False)
    for panel, measure in zip(panels[0], measures):
        for place, name in enumerate(names):
            values = [value for candidate, _, it, value in found if (candidate, it) == (name, measure)]
            panel.plot([place] * len(values), values, "o", alpha=0.5)
            if values:
                panel.hlines(statistics.median(values), place - 0.3, place + 0.3)
        panel.set_title(measure, fontsize=9)
        panel.set_ylim(bottom=0)
        panel.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=8)
    figure.tight_layout()
    figure.savefig(file, dpi=120)
    print(f"drew {file}: a dot for each round, a line for the median")


def main(words):
    if len(words) not in (1, 2):
        sys.exit(__doc__)
    with open(words[0], encoding="utf-8") as file:
        record = json.load(file)
    found = list(rows(record))
    names = [candidate["name"] for candidate in record["candidates"]]
    for verdict in record["verdicts"].values():
        print(verdict["sentence"])
    print_table(medians(found), names)
    if len(words) == 2:
        try:
            plot(found, names, words[1])
        except ImportError as error:
            sys.exit(f"results.py: no plot without matplotlib ({error}): see examples/README.md")


signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader such as head may have seen enough
main(sys.argv[1:])
