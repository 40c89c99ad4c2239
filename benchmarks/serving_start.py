#!/usr/bin/env python3
"""Times a server from its start to its "ready" line, compared with reading its weights into memory by the same number of
threads. Both find the file in the page cache.

  benchmarks/serving_start.py --model FOLDER [--threads N] [--turns N] [--attend PROGRAM] [-- FLAGS OF attend serve]

benchmarks/llamacpp/random_model.py writes a model of 1.2 GB."""

import argparse
import concurrent.futures
import mmap
import os
import pathlib
import re
import statistics
import subprocess
import time

FOLDER = pathlib.Path(__file__).resolve().parent
PIECE_BYTES = 8 << 20


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, type=pathlib.Path)
    parser.add_argument("--attend", default=str(FOLDER.parent / "build/release/attend"))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("flags", nargs="*")
    return parser.parse_args()


def read_seconds(files, num_threads):
    """Returns the time of reading all bytes, each file part to its own buffer."""
    start = time.perf_counter()
    for file in files:
        size = file.stat().st_size
        memory = mmap.mmap(-1, size)
        view, source = memoryview(memory), os.open(file, os.O_RDONLY)

        def read(at):
            end = min(at + PIECE_BYTES, size)
            while at < end:
                at += os.preadv(source, [view[at:end]], at)

        with concurrent.futures.ThreadPoolExecutor(num_threads) as threads:
            list(threads.map(read, range(0, size, PIECE_BYTES)))
        os.close(source)
        view.release()
        memory.close()
    return time.perf_counter() - start


def start_seconds(arguments):
    """Returns the time to the line "ready", and the time that the server reports for its weights."""
    start = time.perf_counter()
    server = subprocess.Popen(
        [arguments.attend, "serve", "--model-path", arguments.model, "--device", "cpu", "--port", "0", "--threads",
         str(arguments.threads), *arguments.flags], stderr=subprocess.PIPE, text=True)
    weights = None
    for line in server.stderr:
        if found := re.search(r"weights: 100% .* after ([\d.]+) s", line):
            weights = float(found[1])
        if "ready at" in line:
            break
    else:
        raise SystemExit("the server did not start")
    seconds = time.perf_counter() - start
    server.kill()
    server.communicate()
    return seconds, weights


def main():
    arguments = parse_arguments()
    files = sorted(arguments.model.glob("*.safetensors"))
    size = sum(file.stat().st_size for file in files)
    reads, starts = [], []
    for turn in range(arguments.turns + 1):
        read, start = read_seconds(files, arguments.threads), start_seconds(arguments)
        if turn > 0:  # the first one fills the page cache
            reads.append(read)
            starts.append(start)
    read, ready = statistics.median(reads), statistics.median(seconds for seconds, _ in starts)
    weights = statistics.median(seconds for _, seconds in starts)
    print(f"{size / 1e9:.2f} GB, {arguments.threads} threads, medians of {arguments.turns}: read in {read:.3f} s, "
          f"ready after {ready:.3f} s ({ready / read:.2f} times), weights loaded after {weights:.2f} s")


if __name__ == "__main__":
    main()
