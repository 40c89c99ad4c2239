#!/usr/bin/env python3
"""Draws the plots of docs/performance.md from benchmarks/results (matplotlib).

    plot_performance.py            writes docs/images/{decode,prefill,models,llamacpp,peers}.png
"""

import json
import pathlib
import re

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS, IMAGES = ROOT / "benchmarks/results", ROOT / "docs/images"
OURS, PEER, LIMIT = "#4c72b0", "#dd8452", "#555555"


def read(name: str) -> dict:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def title(report: dict) -> str:
    return f"{report['machine']}, {report['date'][:10]}"


def save(figure, name: str) -> None:
    figure.tight_layout()
    figure.savefig(IMAGES / f"{name}.png", dpi=100)
    plt.close(figure)


def draw_decode() -> None:
    """Decode and verify steps of MHA as a percentage of the fastest read, with an existing plan."""
    report = read("gpu-attention")
    cases = [case for case in report["cases"] if re.match(r"(ragged )?decode|verify", case["case"])]
    names = [case["case"].replace("kv", "kv ").replace("page", "page size") for case in cases]
    figure, axes = plt.subplots(figsize=(8, 0.24 * len(cases) + 1.2))
    bars = axes.barh(range(len(cases)), [100 * case["share"] for case in cases], color=OURS)
    axes.bar_label(bars, [f"{case['us']:.0f} us" for case in cases], padding=3, fontsize=7)
    axes.set_yticks(range(len(cases)), names, fontsize=7)
    axes.invert_yaxis()
    axes.axvline(100, color=LIMIT, linewidth=0.8)
    axes.set_xlim(0, 112)
    axes.set_xlabel("% of the fastest read of the same run")
    axes.set_title(f"Decode attention, 64/8 heads of 128, bf16, page 64 unless named. {title(report)}", fontsize=8)
    save(figure, "decode")


def draw_prefill() -> None:
    """Prefill by length and head dim, compared with FlashAttention-2 and a GEMM of the same run."""
    report = read("gpu-prefill")
    gemm = next(figure["GFLOP/s"] for figure in report["figures"] if figure["name"].startswith("GEMM")) / 1e3
    figure, all_axes = plt.subplots(1, 3, figsize=(10, 3.2), sharey=True)
    for axes, heads in zip(all_axes, ("32/8 d64", "32/8 d128", "8/2 d256")):
        for mask, style in (("causal", "-"), ("full", "--")):
            cases = {}
            for case in report["cases"]:
                found = re.fullmatch(rf"prefill {heads} (\d+) {mask}", case["case"])
                if found and "FlashAttention-2 us" in case:
                    cases[int(found[1])] = case
            lengths = sorted(cases)
            ours = [cases[length]["GFLOP/s"] / 1e3 for length in lengths]
            # The same number of operations divided by the peer's time.
            peer = [cases[length]["GFLOP/s"] / 1e3 * cases[length]["us"] / cases[length]["FlashAttention-2 us"]
                    for length in lengths]
            axes.plot(lengths, ours, style, marker="o", markersize=3, color=OURS, label=f"attend, {mask}")
            axes.plot(lengths, peer, style, marker="s", markersize=3, color=PEER, label=f"FlashAttention-2, {mask}")
        axes.axhline(gemm, color=LIMIT, linewidth=0.8)
        axes.set_xscale("log", base=2)
        axes.set_xticks(lengths, [f"{length // 1024}k" if length >= 1024 else str(length) for length in lengths],
                        fontsize=7)
        axes.set_title(f"{heads[:-len(heads.split()[1])]}heads of {heads.split()[1][1:]}", fontsize=8)
        axes.set_ylim(0, 1.05 * gemm)
    all_axes[0].set_ylabel("TFLOP/s")
    all_axes[0].text(lengths[0], gemm * 0.965, "GEMM of the run", fontsize=7, va="top")
    all_axes[0].legend(fontsize=6.5, loc="lower right")
    figure.suptitle(f"Prefill of 16k tokens in prompts of one length, bf16, page 64. {title(report)}", fontsize=8)
    save(figure, "prefill")


def draw_models() -> None:
    """Decode of complete models, compared with the limit of reading all bytes."""
    figure, all_axes = plt.subplots(1, 2, figsize=(9, 3))
    for axes, (name, shape) in zip(all_axes, (("llama-3.1-8b", "Llama-3.1-8B"), ("qwen3-0.6b", "Qwen3-0.6B"))):
        report = read(f"gpu-model-{name}")
        cases = {int(case["case"].split()[-1]): case for case in report["cases"]
                 if case["case"].startswith("decode, batch")}
        batches = sorted(cases)
        axes.plot(batches, [cases[batch]["tokens/s"] for batch in batches], marker="o", markersize=3, color=OURS,
                  label="attend")
        axes.plot(batches, [cases[batch]["limit"] for batch in batches], "--", color=LIMIT, label="limit of reading")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xticks(batches, batches, fontsize=7)
        axes.set_yticks([256, 1024, 4096, 16384, 65536], ["256", "1k", "4k", "16k", "64k"], fontsize=7)
        axes.set_xlabel("batch", fontsize=8)
        axes.set_title(f"{shape}. {title(report)}", fontsize=8)
        axes.grid(alpha=0.3)
    all_axes[0].set_ylabel("tokens/s")
    all_axes[0].legend(fontsize=7)
    save(figure, "models")


def draw_llamacpp() -> None:
    """Speed relative to llama.cpp, by row of benchmarks/llamacpp.sh."""
    report = read("cpu-llamacpp")
    name_of = {row["case"]: re.sub(r" \(\d+ layers\)|, (seconds|MB)$", "", row["case"]) for row in report["rows"]}
    names = list(dict.fromkeys(name_of.values()))
    kinds = sorted({(row["dtype"], row["threads"]) for row in report["rows"]})
    figure, axes = plt.subplots(figsize=(8, 0.55 * len(names) + 1.2))
    colors = {"bfloat16": OURS, "float16": PEER}
    height = 0.8 / len(kinds)
    for i, (dtype, threads) in enumerate(kinds):
        rows = [row for row in report["rows"] if (row["dtype"], row["threads"]) == (dtype, threads)]
        places = [names.index(name_of[row["case"]]) + (i - (len(kinds) - 1) / 2) * height for row in rows]
        bars = axes.barh(places, [row["ratio"] for row in rows], 0.9 * height, color=colors[dtype],
                         alpha=1 if threads > 1 else 0.55, label=f"{dtype}, {threads} thread{'s' * (threads > 1)}")
        layers = [row.get("layers", report["layers"]) for row in rows]
        axes.bar_label(bars, [f"{row['ratio']:.2f}" + f" ({n} layers)" * (n != report["layers"])
                              for row, n in zip(rows, layers)], padding=2, fontsize=6)
    axes.axvline(1, color=LIMIT, linewidth=0.8)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("ratio to llama.cpp: of speed, or inverse ratio of time and memory", fontsize=8)
    axes.legend(fontsize=6.5)
    axes.set_title(f"Qwen3-0.6B's shape, llama.cpp build {report['llama.cpp']}. {title(report)}", fontsize=8)
    save(figure, "llamacpp")


PEERS = {"fa3": ("FlashAttention-3", "o"), "flashmla": ("FlashMLA", "D"), "fi.xqa": ("XQA", "^"),
         "cudnn": ("cuDNN", "s"), "fa2": ("FlashAttention-2", "x")}


def draw_peers() -> None:
    """attend and its peers as percentages of the limit: bytes at the read rate, or operations at the GEMM's rate."""
    rows = [json.loads(line) for line in (RESULTS / "gpu-peers.jsonl").read_text(encoding="utf-8").splitlines()]
    roofs, rows = rows[0], sorted(rows[1:], key=lambda row: row["case"].split(" ")[0])

    def share(row: dict, who: str) -> float:
        fp8_products = row["case"].startswith("prefill fp8") or "qfp8" in row["case"]
        products = row["TFLOP/s"][who] / roofs["gemm TFLOP/s"] / (2 if fp8_products else 1)
        return 100 * max(row["GB/s"][who] / roofs["read GB/s"], products)

    figure, axes = plt.subplots(figsize=(9, 0.19 * len(rows) + 1.2))
    bars = axes.barh(range(len(rows)), [share(row, "attend") for row in rows], color=OURS, label="attend")
    for bar, row in zip(bars, rows):
        axes.text(0.5, bar.get_y() + bar.get_height() / 2, f"{row['us']['attend']:.0f} us", fontsize=5.5, va="center",
                  color="white")
    for name, (label, marker) in PEERS.items():
        # FlashAttention-3 with its own choice of splits and with the best of several.
        at = [(max(share(row, who) for who in (name, f"{name}.best") if who in row["us"]), y)
              for y, row in enumerate(rows) if name in row["us"]]
        axes.plot([x for x, _ in at], [y for _, y in at], marker, markersize=4, label=label, alpha=0.8)
    axes.set_yticks(range(len(rows)), [row["case"] for row in rows], fontsize=6)
    axes.invert_yaxis()
    axes.margins(y=0.01)
    axes.axvline(100, color=LIMIT, linewidth=0.8)
    axes.set_xlabel("% of the limit: a read of the run, or a bf16 GEMM's rate (twice that for fp8 queries)", fontsize=7)
    axes.legend(fontsize=6.5, loc="lower right")
    axes.set_title(f"attend and its peers. {roofs['gpu']}, {roofs['date']}", fontsize=8)
    save(figure, "peers")


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    draw_decode()
    draw_prefill()
    draw_models()
    draw_llamacpp()
    draw_peers()
