#!/usr/bin/env python3
"""Runs GPU benchmarks and prints each figure with its target; a table is printed last.

  scripts/gpu_benchmarks.py BUILD_FOLDER [--only WORD]... [--results FOLDER]

BUILD_FOLDER: a build with CUDA and benchmarks (scripts/gpu_test.sh --bars creates one and calls this). --only: figures
with the word in their topic or name. --results: folder of complete outputs, default BUILD_FOLDER/bars. A benchmark that
fails or prints no figure is a row too; the script fails if there is such a row or a missed target. Targets of peers were
measured on an H200 (docs/kernels/peers.md); on another GPU they are only indications."""

import argparse
import json
import operator
import pathlib
import re
import subprocess
import sys
import time

# Maximum time per command, so that a benchmark that hangs leaves time for the others.
MOST_SECONDS = 100

# Cases of cuda_attention_bench: topic, case, unit, target. Targets are times of FA3 and others divided by 0.9 unless
# noted.
KERNELS = [
    ("e4m3 queries", "prefill 32/8 d128 8192 causal e4m3 queries", "TFLOP/s", 0.9 * 886),
    ("e4m3 queries", "prefill 32/8 d128 4096 causal e4m3 queries", "TFLOP/s", 0.9 * 760),
    ("e4m3 queries", "prefill 32/8 d128 16384 full e4m3 queries", "TFLOP/s", 0.9 * 865),
    ("e4m3 queries", "prefill 32/8 d128 512 causal e4m3 queries", "TFLOP/s", None),
    ("e4m3 queries", "prefill 32/8 d64 8192 causal e4m3 queries", "TFLOP/s", None),
    ("e4m3 K/V", "prefill 32/8 d128 8192 causal e4m3", "TFLOP/s", 500),
    ("e4m3 K/V", "decode b32 kv8192 e4m3", "us", 136),
    ("prefill", "prefill 32/8 d128 512 causal", "TFLOP/s", 0.9 * 376),
    ("prefill", "prefill 32/8 d128 2048 causal", "TFLOP/s", 0.9 * 564),
    ("prefill", "prefill 32/8 d128 8192 causal", "TFLOP/s", 0.9 * 682),
    ("prefill", "prefill 32/8 d128 8192 full", "TFLOP/s", 0.9 * 666),
    ("prefill", "prefill 32/8 d96 8192 causal", "TFLOP/s", None),
    ("prefill", "prefill 32/8 d96 8192 causal in 96 columns", "TFLOP/s", None),
    ("prefill", "chunk 8/1 q512 kv65536", "us", 812 / 2.8),
    ("decode", "decode b1 kv2048", "us", 10.4 / 0.95),
    ("decode", "decode b1 kv8192", "us", 16.1 / 0.95),
    ("decode", "decode b3 kv777", "us", 10.6 / 0.9),
    ("decode", "verify b32 kv8192 q8", "us", 260 / 0.95),
    ("MLA", "mla decode b128 kv4096 h128", "us", 233 / 0.9),
    ("MLA", "mla decode b128 kv4096 h16", "us", 154 / 0.9),
    ("MLA", "mla decode b1 kv65536 h128", "us", 53.5 / 0.9),
]

# Cases of `attend bench model`: topic, flags, {batch: minimum percentage of the bound}.
MODELS = [
    ("experts", "--shape qwen3-30b-a3b", {1: 55, 8: 70, 32: 70, 128: 65}),
    ("experts", "--shape gpt-oss-20b", {1: 50, 32: 50}),
    ("DeepSeek", "--shape deepseek-v2-lite --depth 4096", {32: 60, 128: 60}),
]
# Steps of the 8B shape compared with bf16: format, {batch: minimum speedup}.
FORMATS = [("int4", {1: 2.0, 128: 1.0}), ("fp8", {1: 1.5, 128: 1.0})]

SERVING = "bench serving --shape llama-3.1-8b"
SHARED = "--num-prompts 64 --shared-prefixes 1 --shared-prefix-len 2048 --input-len 64 --output-len 32"


class Benchmarks:
    def __init__(self, arguments):
        self.build = arguments.build.resolve()
        self.words = arguments.only
        self.results = (arguments.results or self.build / "bars").resolve()
        self.results.mkdir(parents=True, exist_ok=True)
        self.rows = []

    def is_selected(self, topic, name):
        return not self.words or any(word in topic or word in name for word in self.words)

    def program(self, name):
        found = [path for path in self.build.rglob(name) if path.is_file() and path.stat().st_mode & 0o111]
        if len(found) != 1:
            sys.exit(f"{name}: expected one program of that name below {self.build}, found {len(found)}")
        return found[0]

    def run(self, name, command):
        """Returns a command's output, which is also written to a file, up to a failure or timeout."""
        start = time.monotonic()
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=MOST_SECONDS)
            output, failed = done.stdout, done.returncode != 0
        except subprocess.TimeoutExpired as error:
            output, failed = (error.stdout or b"").decode(errors="replace"), True
        (self.results / f"{name}.log").write_text(output)
        print(f"{name}: {'failed after ' if failed else ''}{time.monotonic() - start:.0f} s", flush=True)
        if failed:
            print("\n".join(output.splitlines()[-8:]), flush=True)
        return output

    def attend(self, name, flags):
        """Returns the JSON of a bench of the command `attend`, or an empty dict on failure."""
        path = self.results / f"{name}.json"
        path.unlink(missing_ok=True)
        self.run(name, [str(self.program("attend")), *flags.split(), "--json", str(path)])
        return json.loads(path.read_text()) if path.exists() else {}

    def add(self, topic, name, value, unit, bar, at_most=False):
        met = None
        if value is None:
            met = False
        elif bar is not None:
            met = (operator.le if at_most else operator.ge)(value, bar)
        self.rows.append((topic, name, value, unit, bar, at_most, met))

    def time_kernels(self):
        wanted = [row for row in KERNELS if self.is_selected(*row[:2])]
        if not wanted:
            return
        output = self.run("attention", [str(self.program("cuda_attention_bench")), *(f"={row[1]}" for row in wanted)])
        seen = {}
        for line in output.splitlines():
            if found := re.match(r"(.*?) +([\d.]+) us(?: +([\d.]+) TFLOP/s)?", line):
                seen[found[1]] = {"us": float(found[2]), "TFLOP/s": found[3] and float(found[3])}
        for topic, name, unit, bar in wanted:
            self.add(topic, name, seen.get(name, {}).get(unit), unit, bar, at_most=unit == "us")

    def decode(self, name, flags, batches):
        """Returns {batch: its case} of a model's decode steps."""
        figures = self.attend(name, f"bench model {flags} --batch-sizes {','.join(map(str, batches))}")
        cases = {case["case"]: case for case in figures.get("cases", [])}
        return {batch: cases.get(f"decode, batch {batch}", {}) for batch in batches}

    def time_models(self):
        for topic, flags, shares in MODELS:
            name = flags.split()[1]
            if not self.is_selected(topic, name):
                continue
            for batch, case in self.decode(name, flags, list(shares)).items():
                share = case.get("share")
                self.add(topic, f"{name}, decode, batch {batch}", share and 100 * share, "% of limit", shares[batch])
        if not self.is_selected("weights", "llama-3.1-8b"):
            return
        plain = self.decode("llama-3.1-8b", "--shape llama-3.1-8b", [1, 128])
        for weights, times in FORMATS:
            figures = self.decode(f"llama-3.1-8b-{weights}", f"--shape llama-3.1-8b --weight-format {weights}", list(times))
            for batch, case in figures.items():
                of_bf16 = plain[batch].get("tokens/s")
                value = case["tokens/s"] / of_bf16 if of_bf16 and "tokens/s" in case else None
                self.add("weights", f"llama-3.1-8b in {weights}, batch {batch}", value, "x bf16", times[batch])

    def time_serving(self):
        if not self.is_selected("serving", "serving"):
            return
        lengths = "--num-prompts 256 --input-len 100:1024 --output-len 100:1024"
        figures = self.attend("serving-256", f"{SERVING} {lengths}")
        rate = figures.get("input tokens/s", 0) + figures.get("output tokens/s", 0)
        self.add("serving", "256 requests of 100 to 1024 in and out", rate or None, "tokens/s", 22000)
        firsts = []
        for name, flag in (("cached", ""), ("plain", "--disable-radix-cache")):
            figures = self.attend(f"serving-{name}", f"{SERVING} {SHARED} {flag}")
            firsts.append(figures.get("latencies", {}).get("ttft", {}).get("p50"))
        share = firsts[0] / firsts[1] if all(firsts) else None
        self.add("serving", "first token after 2k shared, with / without cache", share, "times", 0.25, at_most=True)

    def print_table(self):
        width = max((len(row[1]) for row in self.rows), default=0)
        print(f"\n{'topic':<13} {'case':<{width}} {'figure':>9} {'target':>10}")
        for topic, name, value, unit, bar, at_most, met in self.rows:
            figure = "none" if value is None else f"{value:.4g}"
            wanted = "-" if bar is None else f"{'<=' if at_most else '>='} {bar:.4g}"
            print(f"{topic:<13} {name:<{width}} {figure:>9} {wanted:>10} {unit}{'  MISSED' if met is False else ''}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--results", type=pathlib.Path)
    bars = Benchmarks(parser.parse_args())
    bars.time_kernels()
    bars.time_models()
    bars.time_serving()
    bars.print_table()
    sys.exit(0 if bars.rows and all(row[-1] is not False for row in bars.rows) else 1)


if __name__ == "__main__":
    main()
