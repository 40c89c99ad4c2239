#!/usr/bin/env python3
"""Plots the JSON of `attend bench serving`: distributions of latencies, and running requests and pool usage over time.
Several runs of one trace with different options are drawn over one another.

    plot_serving.py TARGET.png RUN.json [NAME=RUN.json...]
"""

import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def read(argument: str) -> tuple[str, dict]:
    name, _, path = argument.rpartition("=")
    with open(path, encoding="utf-8") as file:
        return name, json.load(file)


def draw_latency(axes, runs: list, key: str, title: str) -> None:
    for name, run in runs:
        latency = run["latencies"][key]
        axes.plot(latency["percentiles"], range(101), label=f"{name} p50 {latency['p50']:.3g}, p99 {latency['p99']:.3g} ms".strip())
    axes.set_xscale("log")
    axes.set_xlabel(f"{title}, ms")
    axes.set_ylabel("cumulative %")
    axes.legend(fontsize=7)
    axes.grid(alpha=0.3)


def draw_samples(axes, runs: list, series: dict[str, str], title: str, whole: str | None = None) -> None:
    for name, run in runs:
        samples = run["samples"]
        for key, label in series.items():
            values = samples[key]
            if whole:
                values = [100 * value / run[whole] for value in values]
            axes.plot(samples["seconds"], values, linewidth=0.9, label=f"{name} {label}".strip())
    axes.set_xlabel("seconds")
    axes.set_ylabel(title)
    axes.legend(fontsize=7)
    axes.grid(alpha=0.3)


def main(target: str, arguments: list[str]) -> int:
    runs = [read(argument) for argument in arguments]
    figure, axes = plt.subplots(2, 2, figsize=(10, 6.4))
    draw_latency(axes[0][0], runs, "ttft", "time to first token")
    draw_latency(axes[0][1], runs, "itl", "inter-token latency")
    draw_samples(axes[1][0], runs, {"running": "running", "waiting": "waiting"}, "requests")
    draw_samples(axes[1][1], runs, {"used_tokens": "in use", "cached_tokens": "cached"}, "% of the KV pool", "pool_tokens")
    _, first = runs[0]
    figure.suptitle(f"{first['model']} on {first['machine']}, {first['date'][:10]}\n{first['trace']}", fontsize=9)
    figure.tight_layout()
    figure.savefig(target, dpi=110)
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
