#!/usr/bin/env python3
"""Plots the JSON of `attend bench` as bars: each case as a percentage of its limit.

    plot_bench.py benchmarks/results/cpu-attention-avx512.json docs/images/cpu-attention-avx512.png
"""

import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLORS = ["#4c72b0", "#dd8452", "#55a868", "#c44e52"]


def label(case: dict) -> str:
    text = f"{100 * case['share']:.0f} %  {case['bound']}"
    if "tiles_share" in case:
        text += f", {100 * case['tiles_share']:.0f} % of the tiles' peak"
    return text


def main(source: str, target: str) -> int:
    with open(source, encoding="utf-8") as file:
        report = json.load(file)
    cases = [case for case in report["cases"] if "share" in case]
    names = list(dict.fromkeys(case["case"] for case in cases))
    threads = sorted({case["threads"] for case in cases})
    height = 0.8 / len(threads)
    figure, axes = plt.subplots(figsize=(9, 0.36 * len(names) + 1.4))
    for i, count in enumerate(threads):
        chosen = [case for case in cases if case["threads"] == count]
        places = [names.index(case["case"]) + (i - (len(threads) - 1) / 2) * height for case in chosen]
        shares = [100 * case["share"] for case in chosen]
        bars = axes.barh(places, shares, height, color=COLORS[i % len(COLORS)],
                         label=f"{count} thread{'s' if count > 1 else ''}")
        axes.bar_label(bars, [label(case) for case in chosen], padding=3, fontsize=6)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    axes.axvline(100, color="black", linewidth=0.8)
    axes.set_xlim(0, max(115, 1.4 * max(100 * case["share"] for case in cases)))
    axes.set_xlabel("% of the limit measured in the same run")
    axes.set_title(f"{report['machine']}, {report['instruction_set']}, {report['date'][:10]}", fontsize=9)
    axes.legend(loc="lower right", fontsize=8)
    figure.tight_layout()
    figure.savefig(target, dpi=110)
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2]))
