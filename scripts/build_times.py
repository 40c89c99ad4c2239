#!/usr/bin/env python3
"""Prints the cost of a build: compiled units, seconds, and the slowest units.

  scripts/build_times.py [--preset PRESET]
      reads ninja's log of build/PRESET: wall seconds of each step in its last build (compiler cache hits included).
  scripts/build_times.py [--preset PRESET] --clean [--jobs N] [TARGET...]
      builds the targets in sequence (default: attend_cli; "all" includes the tests) from scratch in a temporary
      folder, without a compiler cache, and measures processor seconds (user and system), which depend little on other
      load of the machine.
"""
import argparse
import collections
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
NUM_SLOWEST = 10


def record(log, command):
    """Runs a compiler's command and appends its processor seconds and its output file to the log."""
    _, status, usage = os.wait4(os.posix_spawnp(command[0], command, os.environ), 0)
    if "-c" in command:
        output = command[command.index("-o") + 1]
        with open(log, "a") as file:
            file.write(f"{usage.ru_utime + usage.ru_stime:.2f}\t{usage.ru_maxrss}\t{output}\n")
    return os.waitstatus_to_exitcode(status)


def ninja_steps(folder):
    """Returns the wall seconds of each output in ninja's log; the last entry of an output counts."""
    lines = (folder / ".ninja_log").read_text().splitlines()[1:]
    steps = {}
    for start, end, _, output, _ in (line.split("\t") for line in lines):
        steps[output] = (int(end) - int(start)) / 1000
    return steps


def floor_of(output):
    """Returns the target of an object file: attend_kernels for src/attend/kernels/CMakeFiles/attend_kernels.dir/..."""
    return output.split("CMakeFiles/")[-1].split(".dir/")[0]


def print_table(seconds, kind):
    units = {output: s for output, s in seconds.items() if output.endswith(".o")}
    print(f"{len(units)} units, {sum(units.values()):.0f} {kind} seconds of compiling")
    floors = collections.defaultdict(list)
    for output, s in units.items():
        floors[floor_of(output)].append(s)
    print(f"\n{kind + ' s':>8}  units  target")
    for floor, costs in sorted(floors.items(), key=lambda item: -sum(item[1])):
        print(f"{sum(costs):8.1f}  {len(costs):5}  {floor}")
    print(f"\n{kind + ' s':>8}  slowest units")
    for output, s in sorted(units.items(), key=lambda item: -item[1])[:NUM_SLOWEST]:
        print(f"{s:8.1f}  {output}")


def build_clean(preset, targets, jobs, cmake_args):
    with tempfile.TemporaryDirectory(prefix="attend-build-") as folder:
        log = pathlib.Path(folder) / "units.tsv"
        environment = {name: value for name, value in os.environ.items() if not name.endswith("_COMPILER_LAUNCHER")}
        environment["CCACHE_DISABLE"] = "1"
        launcher = f"{sys.executable};{pathlib.Path(__file__).resolve()};--record;{log}"
        subprocess.run(["cmake", "--preset", preset, "-B", folder, *cmake_args,
                        *(f"-DCMAKE_{language}_COMPILER_LAUNCHER={launcher}" for language in ("CXX", "CUDA"))],
                       cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
        before, start = os.times(), time.monotonic()
        for target in targets:
            build = ["cmake", "--build", folder, *(["-j", str(jobs)] if jobs else []), "--target", target]
            if subprocess.run(build, env=environment, stdout=sys.stderr).returncode != 0:
                sys.exit(f"build_times: {target} of preset {preset} does not build")
            after, wall = os.times(), time.monotonic() - start
            cpu = after.children_user + after.children_system - before.children_user - before.children_system
            print(f"up to {target}: {cpu / 60:.1f} processor minutes, {wall / 60:.1f} minutes by the clock", flush=True)
        rows = [line.split("\t") for line in log.read_text().splitlines()]
    print(f"largest compiler process: {max(int(peak) for _, peak, _ in rows) / 1024:.0f} MiB")
    print_table({output: float(s) for s, _, output in rows}, "CPU")


def main():
    if sys.argv[1:2] == ["--record"]:
        sys.exit(record(sys.argv[2], sys.argv[3:]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="release")
    parser.add_argument("--clean", action="store_true", help="build from nothing and measure processor seconds")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("-D", dest="cmake_args", action="append", default=[], metavar="NAME=VALUE", help="for cmake")
    parser.add_argument("targets", nargs="*", default=["attend_cli"])
    arguments = parser.parse_args()
    if arguments.clean:
        build_clean(arguments.preset, arguments.targets, arguments.jobs, [f"-D{a}" for a in arguments.cmake_args])
    else:
        print_table(ninja_steps(ROOT / "build" / arguments.preset), "wall")


if __name__ == "__main__":
    main()
