#!/usr/bin/env python3
"""Runs attend and llama.cpp in turns on the same random weights and writes the table; see benchmarks/llamacpp.sh.

Each figure is the best of the turns, of llama.cpp with and without flash attention: what a busy machine disturbs is
never faster. Wall time; the JSON has the CPU seconds of the run beside it. Peak memory is the resident set, mapped
weights included.
"""
import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PAGE_TOKENS = 64  # attend's on a CPU
DTYPES = ("bfloat16", "float16")
ATTEND, LLAMA = (Path(os.environ.get(name, "")) for name in ("ATTEND", "LLAMACPP_BIN"))


class Run:
    """A command's output and what it took. Throws when it fails."""

    def __init__(self, command):
        command = [str(part) for part in command]
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            start = time.monotonic()
            process = subprocess.Popen(command, stdout=out, stderr=errors, stdin=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            self.seconds = time.monotonic() - start
            process.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            errors.seek(0)
            self.out, self.errors = out.read().decode(errors="replace"), errors.read().decode(errors="replace")
        if process.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit code {process.returncode}\n{self.errors[-2000:]}")
        self.cpu_seconds, self.peak_mb = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6


def attend_bench(model, threads, case, prompt, new, depth=0):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        run = Run([ATTEND, "bench", "model", "-m", model, "--device", "cpu", "-t", threads, "-p", prompt, "-n", new,
                   "--depth", depth, "--json", file.name, "--log-level", "warning"])
        cases = json.loads(Path(file.name).read_text())["cases"]
    found = next(entry for entry in cases if entry["case"].startswith(case))
    return found["tokens/s"], run


def llama_bench(model, threads, prompt, new, depth, flash):
    run = Run([LLAMA / "llama-bench", "-m", model / "model.gguf", "-t", threads, "-p", prompt, "-n", new, "-d", depth,
               "-r", 1, "-fa", flash, "-ngl", 0, "-o", "json"])
    return json.loads(run.out)[0]["avg_ts"], run


def attend_generate(model, threads, count, prompt, new):
    ids = random.Random(1)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for _ in range(count):
            file.write(json.dumps({"input_ids": [ids.randrange(150000) for _ in range(prompt)]}) + "\n")
        file.flush()
        # The room that llama.cpp's programs make too, what is asked for; here in whole pages, one more a request.
        room = count * (-(-(prompt + new) // PAGE_TOKENS) + (count > 1)) * PAGE_TOKENS
        return Run([ATTEND, "generate", "-m", model, "--device", "cpu", "-t", threads, "--prompts-file", file.name,
                    "-n", new, "--ignore-eos", "-c", prompt + new, "--max-total-tokens", room])


def attend_sequences(model, threads, count, prompt, new):
    run = attend_generate(model, threads, count, prompt, new)
    rate = re.search(r"decode steps: \d+ tokens at ([\d.]+) tokens/s", run.errors)
    return float(rate.group(1)), run


def llama_sequences(model, threads, count, prompt, new, flash):
    run = Run([LLAMA / "llama-batched-bench", "-m", model / "model.gguf", "-t", threads, "-npp", prompt, "-ntg", new,
               "-npl", count, "-c", count * (prompt + new) + 64, "-fa", flash, "-ngl", 0, "--output-format", "jsonl"])
    return json.loads(next(line for line in run.out.splitlines() if line.startswith("{")))["speed_tg"], run


def attend_start(model, threads):
    run = Run([ATTEND, "generate", "-m", model, "--device", "cpu", "-t", threads, "-p", "hello", "-n", 1, "-c", 512])
    return run.seconds, run


def llama_start(model, threads, flash):
    run = Run([LLAMA / "llama-completion", "-m", model / "model.gguf", "-t", threads, "-p", "hello", "-n", 1, "-c", 512,
               "-no-cnv", "-fa", flash, "-ngl", 0])
    return run.seconds, run


def attend_memory(model, threads):
    run = attend_generate(model, threads, 1, 2048, 1)
    return run.peak_mb, run


def llama_memory(model, threads, flash):
    _, run = llama_bench(model, threads, 2048, 0, 0, flash)
    return run.peak_mb, run


def rows(quick, deep_layers):
    """(name, what the models' layers are cut to, attend's, llama.cpp's); tokens/s"""
    new = 16 if quick else 64

    def bench(name, case, prompt, generated, depth=0, layers=None):
        llama_new = generated if case == "tg" else 0
        llama_prompt = 0 if case == "tg" else prompt
        return (name, layers, lambda m, t: attend_bench(m, t, case, prompt, generated, depth),
                lambda m, t, fa: llama_bench(m, t, llama_prompt, llama_new, depth, fa))

    yield bench("prompt of 512", "pp", 512, 1)
    yield bench("prompt of 2048", "pp", 2048, 1)
    yield bench(f"{new} tokens at context 0", "tg", 512, new)
    yield bench(f"{new} tokens at 4096", "tg", 512, new, 4096)
    if not quick:
        yield bench(f"{new} tokens at 16384 ({deep_layers} layers)", "tg", 512, new, 16384, deep_layers)
    yield ("8 sequences", None, lambda m, t: attend_sequences(m, t, 8, 64, new),
           lambda m, t, fa: llama_sequences(m, t, 8, 64, new, fa))
    yield ("start to exit, one token, seconds", None, attend_start, llama_start)
    yield ("peak memory of a prompt of 2048, MB", None, attend_memory, llama_memory)


def measure(row, model, threads, turns):
    """The best of both; seconds and bytes are better when they are fewer."""
    name, _, attend, llama = row
    fewer = name.endswith(("seconds", "MB"))
    better = min if fewer else max
    ours, theirs = [], {0: [], 1: []}
    ways = [0, 1]  # of flash attention; after the first turn the better one alone
    for _ in range(turns):
        ours.append(attend(model, threads))
        for flash in ways:
            theirs[flash].append(llama(model, threads, flash))
        ways = [better(ways, key=lambda flash: better(figure[0] for figure in theirs[flash]))]
    best_ours, best_theirs = (better(figures, key=lambda figure: figure[0])
                              for figures in (ours, theirs[0] + theirs[1]))
    ratio = best_ours[0] / best_theirs[0]
    return {"case": name, "threads": threads, "attend": best_ours[0], "llama.cpp": best_theirs[0],
            "ratio": 1 / ratio if fewer else ratio,
            "attend_cpu_seconds": best_ours[1].cpu_seconds, "llama.cpp_cpu_seconds": best_theirs[1].cpu_seconds}


def make_model(models, layers, dtype):
    folder = models / f"qwen3-0.6b-{layers}-{dtype}"
    if not (folder / "model.gguf").exists():
        subprocess.run([sys.executable, Path(__file__).with_name("random_model.py"), folder, "--layers", str(layers),
                        "--dtype", dtype], check=True)
    return folder


def processor():
    names = [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    return f"{names[0] if names else 'unknown'}, {os.cpu_count()} CPUs"


def markdown(result):
    lines = [f"{result['machine']}; llama.cpp build {result['llama.cpp']}; Qwen3-0.6B's shape with {result['layers']} "
             f"layers; best of {result['turns']}; load {result['load'][0]:.1f} to {result['load'][1]:.1f}.", "",
             "| tokens/s | weights | threads | attend | llama.cpp | times as good |", "|---|---|---|---|---|---|"]
    for row in result["rows"]:
        digits = 2 if row["case"].endswith("seconds") else 1
        lines.append(f"| {row['case']} | {row['dtype']} | {row['threads']} | {row['attend']:.{digits}f} "
                     f"| {row['llama.cpp']:.{digits}f} | {row['ratio']:.2f} |")
    return "\n".join(lines) + "\n"


def positive(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number above 0")
    return int(text)


def positives(text):
    return [positive(part) for part in text.split(",")]


def dtypes(text):
    for part in text.split(","):
        if part not in DTYPES:
            raise argparse.ArgumentTypeError(f"{part!r}: expected some of {','.join(DTYPES)}")
    return text.split(",")


def pattern(text):
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a regular expression ({error})") from error


def options():
    parser = argparse.ArgumentParser(
        prog="benchmarks/llamacpp.sh",
        description=__doc__.splitlines()[0],
        epilog="Environment: ATTEND, attend's program; LLAMACPP_BIN, a folder with llama.cpp's programs, which are built "
        "otherwise; LLAMACPP_VERSION, of the source that is built. All rows of 28 layers take hours and 7 GB.",
    )
    parser.add_argument("--layers", type=positive, default=28)
    parser.add_argument("--deep-layers", type=positive, default=7, help="of the row at 16384 tokens")
    parser.add_argument("--dtypes", type=dtypes, default=list(DTYPES))
    parser.add_argument("--threads", type=positives, default=sorted({1, os.cpu_count()}), help="numbers, by commas")
    parser.add_argument("--turns", type=positive, default=3)
    parser.add_argument("--quick", action="store_true", help="fewer tokens, no deep context")
    parser.add_argument("--only", type=pattern, default=re.compile(""),
                        help="rows in whose name this regular expression is found")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no row after so many")
    parser.add_argument("--out", type=Path, default=Path("build/llamacpp/table"), help="NAME of NAME.json and NAME.md")
    parser.add_argument("--models", type=Path, default=Path("build/llamacpp"), help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)  # of the options alone
    args = parser.parse_args()
    args.rows = [row for row in rows(args.quick, args.deep_layers) if args.only.search(row[0])]
    if not args.rows:
        names = ", ".join(row[0] for row in rows(args.quick, args.deep_layers))
        parser.error(f"--only {args.only.pattern}: no such row among {names}")
    return args


def main():
    args = options()
    if args.check:
        return
    began = time.monotonic()
    result = {"machine": processor(), "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
              "layers": args.layers, "turns": args.turns, "llama.cpp": os.environ.get("LLAMACPP_BUILD", "unknown"),
              "load": [os.getloadavg()[0]] * 2, "rows": []}
    for dtype in args.dtypes:
        for row in args.rows:
            for threads in args.threads:
                if time.monotonic() - began > args.seconds:
                    return
                model = make_model(args.models, row[1] or args.layers, dtype)
                figures = {"dtype": dtype, **measure(row, model, threads, args.turns)}
                load = os.getloadavg()[0]
                result["load"] = [min(result["load"][0], load), max(result["load"][1], load)]
                result["rows"].append(figures)
                print(f"{dtype} {threads}T {figures['case']}: {figures['attend']:.2f} {figures['llama.cpp']:.2f} "
                      f"{figures['ratio']:.2f}", flush=True)
                Path(f"{args.out}.json").write_text(json.dumps(result, indent=1) + "\n")
                Path(f"{args.out}.md").write_text(markdown(result))


if __name__ == "__main__":
    main()
