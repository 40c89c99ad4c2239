#!/usr/bin/env python3
"""Loads servers on two cores from clients on others, and prints the cost per token: attend over HTTP compared with attend
offline at the same batch size, and with llama-server.

  benchmarks/serving_cpu.py --model FOLDER [--llama-server PROGRAM --gguf FILE] [--streams 64,1024] [--turns N]
                            [--server-cpus 0,1 | --engine-cpu 0] [--client-cpus 2-7] [--attend PROGRAM] [--out FILE]

Each round keeps a number of streams open until --rounds times as many requests of random tokens are answered; a row is the
median of the turns, in which the sides alternate. CPU time is that of the process, without its start. Without spare cores
the clients share the server's; then only CPU time is meaningful. With --engine-cpu attend's engine is one thread that has
this core exclusively, offline and with HTTP; the server's other threads run on the clients' cores. Two cores then suffice
to measure the cost of HTTP to the engine. benchmarks/llamacpp/random_model.py --shape tiny writes a model for both."""

import argparse
import json
import os
import pathlib
import re
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

FOLDER = pathlib.Path(__file__).resolve().parent


def cpu_set(text):
    cpus = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--attend", default=str(FOLDER.parent / "build/release/attend"))
    parser.add_argument("--llama-server")
    parser.add_argument("--gguf")
    parser.add_argument("--streams", default="64,1024")
    parser.add_argument("--rounds", type=int, default=2, help="sequential requests per stream")
    parser.add_argument("--input-len", type=int, default=64)
    parser.add_argument("--output-len", type=int, default=128)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--max-running", type=int, default=256, help="limit of running requests of both servers")
    parser.add_argument("--server-cpus", type=cpu_set, default={0, 1})
    parser.add_argument("--engine-cpu", type=int)
    parser.add_argument("--client-cpus", type=cpu_set)
    parser.add_argument("--load-seconds", type=float, default=600, help="timeout of a load")
    parser.add_argument("--seconds", type=float, default=1e9, help="no turn starts after this time")
    parser.add_argument("--out", help="output file for rows as JSON lines")
    arguments = parser.parse_args()
    if arguments.engine_cpu is not None:
        arguments.server_cpus = {arguments.engine_cpu}
    arguments.client_cpus = arguments.client_cpus or (os.sched_getaffinity(0) - arguments.server_cpus) or arguments.server_cpus
    return arguments


def pinned(cpus):
    return lambda: os.sched_setaffinity(0, cpus)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A server pinned to its cores; the constructor waits until it is ready."""

    def __init__(self, command, arguments, port):
        self.log = tempfile.NamedTemporaryFile("w+")
        self.port = port
        self.engine = None  # the engine's thread, if it is measured separately
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, preexec_fn=pinned(arguments.server_cpus))
        deadline = time.monotonic() + 60
        while not self.healthy():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{command[0]} did not start:\n" + pathlib.Path(self.log.name).read_text()[-2000:])
            time.sleep(0.05)

    def healthy(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2) as reply:
                return reply.status == 200
        except OSError:
            return False

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def move_engine_apart(self, arguments):
        """Moves all threads except the engine's, which keeps the server's core, to the clients' cores."""
        for thread in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            if (thread / "comm").read_text().strip() == "attend-engine":
                self.engine = thread
            else:
                os.sched_setaffinity(int(thread.name), arguments.client_cpus)

    def engine_seconds(self):
        """Returns the CPU time of the engine's thread."""
        return int((self.engine / "schedstat").read_text().split()[0]) / 1e9 if self.engine else 0.0

    def peak_mb(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def attend_server(arguments):
    port = free_port()
    server = Server([arguments.attend, "serve", "--model-path", arguments.model, "--device", "cpu", "--port", str(port),
                   "--threads", str(len(arguments.server_cpus)), "--max-running-requests", str(arguments.max_running),
                   "--context-length", "512", "--max-total-tokens", str(512 * arguments.max_running)], arguments, port)
    if arguments.engine_cpu is not None:
        server.move_engine_apart(arguments)
    return server


def llama_server(arguments):
    # Each connection of the load has a thread.
    port = free_port()
    most = max(int(streams) for streams in arguments.streams.split(","))
    return Server([arguments.llama_server, "-m", arguments.gguf, "--port", str(port), "-ngl", "0", "--no-webui",
                   "-t", str(len(arguments.server_cpus)), "-tb", str(len(arguments.server_cpus)), "-np", str(arguments.max_running),
                   "-c", str(512 * arguments.max_running), "--threads-http", str(most + 16), "-b", "2048", "-ub", "2048"],
                  arguments, port)


def over_http(server, arguments, streams):
    before, engine_before = server.cpu_seconds(), server.engine_seconds()
    try:
        output, errors = run_load(server, arguments, streams)
    except subprocess.TimeoutExpired:
        return {"failed": f"no end after {arguments.load_seconds:.0f} s"}
    cpu, of_engine = server.cpu_seconds() - before, server.engine_seconds() - engine_before
    numbers = re.search(r"(\d+) of (\d+) answers whole in .*?, (\d+) tokens/s, first piece after ([\d.]+) ms .p50., ([\d.]+)", output)
    if not numbers:
        return {"failed": (errors or output).strip()[-300:]}
    whole, wanted, rate, p50, p99 = map(float, numbers.groups())
    per_token = 1e6 / (wanted * arguments.output_len)
    return {"whole": int(whole), "of": int(wanted), "tokens/s": rate, "us of CPU a token": cpu * per_token,
            **({"of the engine's thread": of_engine * per_token} if server.engine else {}),
            "first token p50 ms": p50, "first token p99 ms": p99, "peak MB": server.peak_mb()}


def run_load(server, arguments, streams):
    load = subprocess.Popen(
        [sys.executable, FOLDER / "serving_load.py", str(server.port), "--streams", str(streams), "--requests",
         str(streams * arguments.rounds), "--input-len", str(arguments.input_len), "--output-len", str(arguments.output_len),
         "--processes", str(min(8, len(arguments.client_cpus)))],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=pinned(arguments.client_cpus))
    try:
        return load.communicate(timeout=arguments.load_seconds)
    except subprocess.TimeoutExpired:
        os.killpg(load.pid, signal.SIGKILL)  # including its clients
        load.wait()
        raise


def offline_run(arguments, streams, requests):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [arguments.attend, "bench", "serving", "--model-path", arguments.model, "--device", "cpu", "--threads",
             str(len(arguments.server_cpus)), "--num-prompts", str(requests), "--max-concurrency", str(streams), "--input-len",
             str(arguments.input_len), "--output-len", str(arguments.output_len), "--max-running-requests", str(arguments.max_running),
             "--context-length", "512", "--max-total-tokens", str(512 * arguments.max_running), "--json", file.name],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=pinned(arguments.server_cpus))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return json.loads(pathlib.Path(file.name).read_text()), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def offline(arguments, streams):
    # The start is included in both.
    _, few = offline_run(arguments, streams, streams)
    report, many = offline_run(arguments, streams, streams * (arguments.rounds + 1))
    return {"tokens/s": report["output tokens/s"], "us of CPU a token": 1e6 * (many - few) / (streams * arguments.rounds * arguments.output_len)}


def main():
    arguments = parse_arguments()
    begin = time.monotonic()
    print(f"server on {sorted(arguments.server_cpus)}, clients on {sorted(arguments.client_cpus)}", flush=True)
    sides = {"attend over HTTP": attend_server(arguments)}
    if arguments.llama_server:
        sides["llama-server"] = llama_server(arguments)
    results = {}
    for streams in map(int, arguments.streams.split(",")):
        for side in sides.values():
            over_http(side, argparse.Namespace(**{**vars(arguments), "rounds": 1}), min(streams, 64))  # warm
        for _ in range(arguments.turns):
            if time.monotonic() - begin > arguments.seconds:
                break
            if streams <= arguments.max_running:
                row = offline(arguments, streams)
                results.setdefault((streams, "attend offline"), []).append(row)
                print(streams, "attend offline", json.dumps(row), flush=True)
            for name, server in sides.items():
                row = over_http(server, arguments, streams)
                results.setdefault((streams, name), []).append(row)
                print(streams, name, json.dumps(row), flush=True)
    for server in sides.values():
        server.stop()
    out = open(arguments.out, "w") if arguments.out else None
    for (streams, name), rows in results.items():
        failed = [row["failed"] for row in rows if "failed" in row]
        rows = [row for row in rows if "failed" not in row]
        median = {key: round(statistics.median(row[key] for row in rows), 2) for key in (rows[0] if rows else {})}
        line = {"streams": streams, "side": name, "turns": len(rows), **median, **({"failed": failed} if failed else {})}
        print(json.dumps(line))
        if out:
            print(json.dumps(line), file=out)


if __name__ == "__main__":
    main()
