#!/usr/bin/env python3
"""Runs attend and llama.cpp in alternation on the same random weights and writes the table; see benchmarks/llamacpp.sh.

Each figure is the best of all turns, for llama.cpp with and without flash attention, since other load only makes a run
slower. Times are wall times. The JSON contains the figure of every turn, and for the best one the CPU time of the run, of
other processes during the run, and of the host of a virtual machine. Peak memory is the resident set, including mapped
weights.
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

PAGE_TOKENS = 64  # attend's page size on a CPU
DTYPES = ("bfloat16", "float16", "q8_0", "q4_0", "q4_k_m")
ATTEND, LLAMA = (Path(os.environ.get(name, "")) for name in ("ATTEND", "LLAMACPP_BIN"))


def machine_seconds():
    """Returns (CPU seconds of programs, CPU seconds stolen by the host of a virtual machine), since boot."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, _, _, irq, softirq, stolen = (count / os.sysconf("SC_CLK_TCK") for count in ticks)
    return user + nice + system + irq + softirq, stolen


class Run:
    """A command's output and resource use. Exits if it fails."""

    def __init__(self, command):
        command = [str(part) for part in command]
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            busy, stolen = machine_seconds()
            start = time.monotonic()
            process = subprocess.Popen(command, stdout=out, stderr=errors, stdin=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            self.seconds = time.monotonic() - start
            self.others, self.stolen = (after - before for after, before in zip(machine_seconds(), (busy, stolen)))
            process.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            errors.seek(0)
            self.out, self.errors = out.read().decode(errors="replace"), errors.read().decode(errors="replace")
        if process.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit code {process.returncode}\n{self.errors[-2000:]}")
        self.cpu_seconds, self.peak_mb = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6
        self.others = max(0.0, self.others - self.cpu_seconds)

    def took(self, program):
        return {f"{program}_seconds": self.seconds, f"{program}_cpu_seconds": self.cpu_seconds,
                f"{program}_cpu_seconds_of_others": self.others, f"{program}_stolen_seconds": self.stolen}


def attend_model(model):
    """Returns the Hugging Face folder, or the GGUF file of quantized weights."""
    return model if (model / "model.safetensors").exists() else model / "model.gguf"


def attend_bench(model, threads, prompt, new, depth):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        run = Run([ATTEND, "bench", "model", "-m", attend_model(model), "--device", "cpu", "-t", threads, "-p", prompt, "-n", new,
                   "-d", depth, "--json", file.name, "--log-level", "warning"])
        return json.loads(Path(file.name).read_text())["cases"][0]["tokens/s"], run


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
        # llama.cpp's programs allocate this much too; here in full pages, one more per request.
        room = count * (-(-(prompt + new) // PAGE_TOKENS) + (count > 1)) * PAGE_TOKENS
        return Run([ATTEND, "generate", "-m", attend_model(model), "--device", "cpu", "-t", threads, "--prompts-file", file.name,
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
    run = Run([ATTEND, "generate", "-m", attend_model(model), "--device", "cpu", "-t", threads, "-p", "hello", "-n", 1, "-c", 512])
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
    """Yields (name, number of layers of the models, attend's function, llama.cpp's function); in tokens/s."""
    new = 16 if quick else 64

    def bench(name, *numbers, layers=None):
        return (name, layers, lambda m, t: attend_bench(m, t, *numbers), lambda m, t, fa: llama_bench(m, t, *numbers, fa))

    yield bench("prompt of 512", 512, 0, 0)
    yield bench("prompt of 2048", 2048, 0, 0)
    yield bench(f"{new} tokens at context 0", 0, new, 0)
    yield bench(f"{new} tokens at 4096", 0, new, 4096)
    if not quick:
        yield bench(f"{new} tokens at 16384 ({deep_layers} layers)", 0, new, 16384, layers=deep_layers)
    yield ("8 sequences", None, lambda m, t: attend_sequences(m, t, 8, 64, new),
           lambda m, t, fa: llama_sequences(m, t, 8, 64, new, fa))
    yield ("start to exit, one token, seconds", None, attend_start, llama_start)
    yield ("peak memory of a prompt of 2048, MB", None, attend_memory, llama_memory)


def is_better(case, figure, than):
    """Compares figures; lower is better for seconds and bytes."""
    return figure < than if case.endswith(("seconds", "MB")) else figure > than


def add_turn(result, program, figure, took):
    """Adds a turn's figure to a row, which keeps the best one with its run's resources, and a list of all."""
    result.setdefault(f"{program}_turns", []).append(figure)
    if program not in result or is_better(result["case"], figure, result[program]):
        result.update({program: figure, **took})


def measure(row, model, threads, turns, result):
    """Runs more turns of a row, which may have some already."""
    _, _, attend, llama = row
    ways = [0, 1]  # of flash attention; after the first turn only the better one
    for _ in range(turns):
        figure, run = attend(model, threads)
        add_turn(result, "attend", figure, run.took("attend"))
        figures = {}
        for flash in ways:
            figures[flash], run = llama(model, threads, flash)
            add_turn(result, "llama.cpp", figures[flash], run.took("llama.cpp"))
        if len(ways) > 1:
            ways = [0 if is_better(result["case"], figures[0], figures[1]) else 1]
    ratio = result["attend"] / result["llama.cpp"]
    result["ratio"] = 1 / ratio if is_better(result["case"], 0, 1) else ratio


def make_model(models, layers, dtype):
    folder = models / f"qwen3-0.6b-{layers}-{dtype}"
    if not (folder / "model.gguf").exists():
        subprocess.run([sys.executable, Path(__file__).with_name("random_model.py"), folder, "--layers", str(layers),
                        "--dtype", dtype], check=True)
    return folder


def processor():
    """Returns "AMD EPYC (family 25, model 1), 2 CPUs", since the name does not identify the generation."""
    fields = dict(re.findall(r"^(model name|cpu family|model)\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE))
    generation = f" (family {fields['cpu family']}, model {fields['model']})" if "cpu family" in fields else ""
    return f"{fields.get('model name', 'unknown')}{generation}, {os.cpu_count()} CPUs"


def markdown(result):
    lines = [f"{result['machine']}; llama.cpp build {result['llama.cpp']}; Qwen3-0.6B's shape; the best of a row's turns.",
             "", "| tokens/s | weights | layers | threads | attend | llama.cpp | ratio | turns |",
             "|---|---|---|---|---|---|---|---|"]
    for row in result["rows"]:
        digits = 2 if row["case"].endswith("seconds") else 1
        lines.append(f"| {row['case']} | {row['dtype']} | {row['layers']} | {row['threads']} "
                     f"| {row['attend']:.{digits}f} | {row['llama.cpp']:.{digits}f} | {row['ratio']:.2f} "
                     f"| {len(row['attend_turns'])} |")
    return "\n".join(lines) + "\n"


def positive(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected an integer above 0")
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
        epilog="Environment: ATTEND, attend's program; LLAMACPP_BIN, folder with llama.cpp's programs, which are built "
        "otherwise; LLAMACPP_VERSION, the version to build. All rows with 28 layers need hours and 7 GB.",
    )
    parser.add_argument("--layers", type=positive, default=28)
    parser.add_argument("--deep-layers", type=positive, default=7, help="number of layers of the row at 16384 tokens")
    parser.add_argument("--dtypes", type=dtypes, default=list(DTYPES[:2]))
    parser.add_argument("--threads", type=positives, default=sorted({1, os.cpu_count()}), help="numbers, separated by commas")
    parser.add_argument("--turns", type=positive, default=3)
    parser.add_argument("--quick", action="store_true", help="fewer tokens, no deep context")
    parser.add_argument("--only", type=pattern, default=re.compile(""),
                        help="rows whose name matches this regular expression")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no row after this time")
    parser.add_argument("--add", action="store_true", help="add rows, and turns of existing rows, to NAME.json")
    parser.add_argument("--out", type=Path, default=Path("build/llamacpp/table"), help="NAME of NAME.json and NAME.md")
    parser.add_argument("--models", type=Path, default=Path("build/llamacpp"), help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)  # only checks the options
    args = parser.parse_args()
    args.rows = [row for row in rows(args.quick, args.deep_layers) if args.only.search(row[0])]
    if not args.rows:
        names = ", ".join(row[0] for row in rows(args.quick, args.deep_layers))
        parser.error(f"--only {args.only.pattern}: no such row among {names}")
    return args


def start_table(args):
    """Returns an empty table for this machine, or the table that --add continues."""
    result = {"machine": processor(), "date": "", "layers": args.layers,
              "llama.cpp": os.environ.get("LLAMACPP_BUILD", "unknown"), "rows": []}
    path = Path(f"{args.out}.json")
    if not args.add or not path.exists():
        return result
    before = json.loads(path.read_text())
    for key in ("machine", "llama.cpp"):
        if before[key] != result[key]:
            sys.exit(f"--add: {path} has {key} {before[key]}; this run has {result[key]}")
    return before


def find_row(result, dtype, case, threads, layers):
    """Returns the table's row with that name, or a new one."""
    wanted = {"dtype": dtype, "case": case, "threads": threads, "layers": layers}
    for row in result["rows"]:
        if wanted.items() <= row.items():
            return row
    result["rows"].append(wanted)
    return wanted


def main():
    args = options()
    if args.check:
        return
    began = time.monotonic()
    result = start_table(args)
    for dtype in args.dtypes:
        for row in args.rows:
            layers = row[1] or args.layers
            for threads in args.threads:
                if time.monotonic() - began > args.seconds:
                    return
                figures = find_row(result, dtype, row[0], threads, layers)
                measure(row, make_model(args.models, layers, dtype), threads, args.turns, figures)
                result["date"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                print(f"{dtype} {threads}T {figures['case']}: {figures['attend']:.2f} {figures['llama.cpp']:.2f} "
                      f"{figures['ratio']:.2f}", flush=True)
                Path(f"{args.out}.json").write_text(json.dumps(result, indent=1) + "\n")
                Path(f"{args.out}.md").write_text(markdown(result))


if __name__ == "__main__":
    main()
