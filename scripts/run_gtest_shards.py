#!/usr/bin/env python3
"""Runs test programs in concurrent shards; prints the complete output of failed shards, and a table last.

  scripts/run_gtest_shards.py BUILD_FOLDER [--jobs N] [--under COMMAND] PROGRAM[=FILTER]...

FILTER is gtest's. COMMAND, such as a sanitizer, is prepended to every program; its findings must end the program with
a nonzero status. Fails if a test or program fails, or if a filter selects no test."""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time


class Suite:
    """One program, its filter, and the results of its shards."""

    def __init__(self, build, name_and_filter):
        self.name, _, self.filter = name_and_filter.partition("=")
        found = [path for path in pathlib.Path(build).resolve().rglob(self.name) if path.is_file() and os.access(path, os.X_OK)]
        if len(found) != 1:
            sys.exit(f"{self.name}: expected one program of that name below {build}, found {len(found)}")
        self.program = found[0]
        listed = subprocess.run(
            [self.program, "--gtest_list_tests", f"--gtest_filter={self.filter or '*'}"], stdout=subprocess.PIPE, text=True, errors="replace", check=True
        )
        self.num_tests = sum(line.startswith("  ") for line in listed.stdout.splitlines())
        self.passed = self.skipped = self.failed = 0
        self.seconds = 0.0

    def count(self, results, exit_status):
        """Adds a shard's results (gtest's JSON, None if the program did not write them)."""
        failed = 0
        for test in (test for suite in (results or {}).get("testsuites", []) for test in suite["testsuite"]):
            if "failures" in test:
                failed += 1
            elif test["result"] == "SKIPPED":
                self.skipped += 1
            elif test["result"] == "COMPLETED":
                self.passed += 1
        # A program that exits with an error although its tests pass has failed too.
        self.failed += max(failed, 1 if exit_status else 0)


def run_shard(suite, shard, num_shards, under):
    """Returns (exit status, output, gtest's results, seconds) of one shard."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        results = pathlib.Path(folder) / "results.json"
        command = [*under, str(suite.program), "--gtest_brief=1", f"--gtest_output=json:{results}"]
        if suite.filter:
            command.append(f"--gtest_filter={suite.filter}")
        # Shards share the cores, so each has one thread.
        environment = dict(
            OMP_NUM_THREADS="1", GTEST_TOTAL_SHARDS=str(num_shards), GTEST_SHARD_INDEX=str(shard), RC_PARAMS="max_success=1000"
        )
        ended = subprocess.run(
            command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        read = json.loads(results.read_text()) if results.exists() else None
    return ended.returncode, ended.stdout, read, time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("suites", nargs="+", metavar="PROGRAM[=FILTER]")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--under", default="", metavar="COMMAND")
    arguments = parser.parse_args()

    start = time.monotonic()
    suites = [Suite(arguments.build, name) for name in arguments.suites]
    under = shlex.split(arguments.under)
    empty = [suite.name for suite in suites if suite.num_tests == 0]
    if empty:
        sys.exit(f"no test of {', '.join(empty)} was selected: expected a filter that matches a test")
    # More shards than jobs, since tests differ in length; but no shard without a test, in which a sanitizer would miss
    # CUDA.
    shards = {suite: min(2 * arguments.jobs, suite.num_tests) for suite in suites}
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        running = {
            pool.submit(run_shard, suite, shard, shards[suite], under): (suite, shard)
            for shard in range(2 * arguments.jobs)
            for suite in suites
            if shard < shards[suite]
        }
        for future in concurrent.futures.as_completed(running):
            suite, shard = running[future]
            status, output, results, seconds = future.result()
            suite.seconds += seconds
            suite.count(results, status)
            if status:
                print(f"{suite.name}, shard {shard} of {shards[suite]}, ended with status {status}:\n{output}", flush=True)

    row = "{:<36}{:>8}{:>9}{:>8}{:>11}".format
    print(row("suite", "passed", "skipped", "failed", "process s"))
    for suite in suites:
        print(row(suite.name, suite.passed, suite.skipped, suite.failed, f"{suite.seconds:.0f}"))
    total = [sum(getattr(suite, count) for suite in suites) for count in ("passed", "skipped", "failed")]
    print(row("all", *total, f"{time.monotonic() - start:.0f} in all"))
    sys.exit(1 if total[2] else 0)


if __name__ == "__main__":
    main()
