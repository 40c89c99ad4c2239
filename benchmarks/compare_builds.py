#!/usr/bin/env python3
"""Times two builds of attend in alternation, and compares them case by case.

  benchmarks/compare_builds.py BEFORE AFTER [--device cuda|cpu] [--rounds N] [--only WORD]... [--json FILE]
                               [--min-row RATIO] [--min-mean RATIO]

BEFORE and AFTER are build folders. Each round runs every benchmark once per build, the order reversed in every second
round, so that clocks and temperature affect both alike. A row's ratio is the speed of AFTER over that of BEFORE, from
the best round of each. The table comes last: rows below 1.00 first, then the geometric mean. Fails when a row is below
--min-row or the mean is below --min-mean."""

import argparse
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import time

# Name, program, arguments. Programs with JSON output get --json FILE; the others print "CASE  N us" lines.
MODELS = ["llama-3.1-8b", "qwen3-0.6b", "qwen3-30b-a3b"]
GPU = [(f"model {shape}", "attend", ["bench", "model", "--shape", shape, "--batch-sizes", "1,32,128"]) for shape in MODELS]
GPU += [("attention", "cuda_attention_bench", [])]
CPU = [
    ("attention", "attend", ["bench", "attention", "--case", "bf16"]),
    ("model qwen3-0.6b", "attend", ["bench", "model", "--shape", "qwen3-0.6b", "--num-layers", "4", "-r", "3"]),
]
TIMED_LINE = re.compile(r"^(?P<case>\S.*?)\s+(?P<us>\d+(?:\.\d+)?) us\b")


def find_program(build: pathlib.Path, name: str) -> pathlib.Path:
    found = [path for path in build.rglob(name) if path.is_file() and path.stat().st_mode & 0o111]
    if len(found) != 1:
        sys.exit(f"{name}: expected one program of that name below {build}, found {len(found)}")
    return found[0]


def run(build: pathlib.Path, program: str, arguments: list[str]) -> dict[str, float]:
    """Microseconds of each case."""
    path = find_program(build, program)
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        writes_json = program == "attend"
        command = [str(path), *arguments, *(["--json", str(report)] if writes_json else [])]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr[-2000:]}")
        if writes_json:
            return {case["case"] + f" x{case['threads']}": case["us"] for case in json.loads(report.read_text())["cases"]}
    lines = [TIMED_LINE.match(line) for line in done.stdout.splitlines()]
    return {line["case"]: float(line["us"]) for line in lines if line}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", default=[], help="benchmarks whose name contains the word")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--min-row", type=float, default=0.97)
    parser.add_argument("--min-mean", type=float, default=0.99)
    arguments = parser.parse_args()

    benchmarks = GPU if arguments.device == "cuda" else CPU
    benchmarks = [row for row in benchmarks if not arguments.only or any(word in row[0] for word in arguments.only)]
    best: dict[str, dict[str, float]] = {"before": {}, "after": {}}
    for round_idx in range(arguments.rounds):
        for name, program, flags in benchmarks:
            builds = [("before", arguments.before), ("after", arguments.after)]
            for side, build in builds[:: -1 if round_idx % 2 else 1]:
                start = time.monotonic()
                for case, us in run(build.resolve(), program, flags).items():
                    row = f"{name}: {case}"
                    best[side][row] = min(us, best[side].get(row, math.inf))
                print(f"round {round_idx + 1}, {name}, {side}: {time.monotonic() - start:.0f} s", flush=True)

    rows = [(best["before"][row] / best["after"][row], row) for row in best["before"] if best["after"].get(row)]
    missing = sorted(set(best["before"]) ^ set(best["after"]))
    if not rows:
        sys.exit("no case was timed in both builds")
    rows.sort()
    mean = math.exp(sum(math.log(ratio) for ratio, _ in rows) / len(rows))
    if arguments.json:
        arguments.json.write_text(json.dumps({"best_us": best, "ratios": {row: ratio for ratio, row in rows}, "mean": mean}, indent=1))
    for row in missing:
        print(f"in one build only: {row}")
    print(f"{'speed':>6}  {'before':>10}  {'after':>10}  us")
    for ratio, row in rows[:40]:
        print(f"{ratio:6.3f}  {best['before'][row]:10.1f}  {best['after'][row]:10.1f}  {row}")
    slow = [row for ratio, row in rows if ratio < arguments.min_row]
    print(f"{len(rows)} rows; lowest {rows[0][0]:.3f} (at least {arguments.min_row}), geometric mean {mean:.3f} (at least {arguments.min_mean})")
    return 1 if slow or mean < arguments.min_mean else 0


if __name__ == "__main__":
    sys.exit(main())
