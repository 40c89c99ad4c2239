#!/usr/bin/env python3
"""Loads a running server with streamed completions of random tokens, from several processes.

  benchmarks/serving_load.py PORT [--streams N] [--requests N] [--input-len N] [--output-len N] [--processes N]

Prints answers, generated tokens per second and the time to the first piece. Every answer has all of its tokens
(ignore_eos). The difference to attend bench serving with the same requests and lengths is the cost of HTTP."""

import argparse
import asyncio
import json
import multiprocessing
import random
import time
import urllib.request


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("--streams", type=int, default=64, help="concurrent streams")
    parser.add_argument("--requests", type=int, help="default: the number of streams")
    parser.add_argument("--input-len", type=int, default=512)
    parser.add_argument("--output-len", type=int, default=128)
    parser.add_argument("--processes", type=int, default=8)
    arguments = parser.parse_args()
    arguments.requests = arguments.requests or arguments.streams
    arguments.processes = min(arguments.processes, arguments.streams)
    return arguments


def served_model(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models") as reply:
        return json.load(reply)["data"][0]["id"]


async def complete(arguments, model, random_tokens):
    """Sends one request. Returns the seconds to the first piece, and whether the stream ended correctly."""
    reader, writer = await asyncio.open_connection("127.0.0.1", arguments.port)
    body = json.dumps(
        {
            "model": model,
            "prompt": [random_tokens.randrange(3, 2000) for _ in range(arguments.input_len)],
            "max_tokens": arguments.output_len,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
        }
    ).encode()
    start = time.perf_counter()
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    first, tail = None, b""
    while piece := await reader.read(1 << 16):
        if first is None and b"data: " in piece:
            first = time.perf_counter() - start
        tail = (tail + piece)[-200:]
    writer.close()
    if first is None:
        raise RuntimeError(f"the server replied {tail.decode(errors='replace')}")
    return first, b"data: [DONE]" in tail


async def load(arguments, model, process, starts_at):
    share = lambda count: count // arguments.processes + (process < count % arguments.processes)
    # Different tokens in each run, since a second run would find the first one's prompts in the prefix cache.
    random_tokens, open_streams = random.Random(), asyncio.Semaphore(share(arguments.streams))

    async def one():
        async with open_streams:
            return await complete(arguments, model, random_tokens)

    await asyncio.sleep(max(0.0, starts_at - time.time()))
    return await asyncio.gather(*[one() for _ in range(share(arguments.requests))])


def run_process(arguments, model, process, starts_at, results):
    try:
        answers = asyncio.run(load(arguments, model, process, starts_at))
        results.put((time.time(), answers))
    except (OSError, RuntimeError) as error:
        results.put((str(error), None))


def main():
    arguments = parse_arguments()
    model, results = served_model(arguments.port), multiprocessing.Queue()
    starts_at = time.time() + 1.0  # when all processes have started
    processes = [
        multiprocessing.Process(target=run_process, args=(arguments, model, i, starts_at, results))
        for i in range(arguments.processes)
    ]
    for process in processes:
        process.start()
    ended = [results.get() for _ in processes]
    for process in processes:
        process.join()
    for error in [when for when, answers in ended if answers is None]:
        raise SystemExit(f"serving_load: {error}")
    seconds = max(when for when, _ in ended) - starts_at
    answers = [answer for _, of_process in ended for answer in of_process]
    ttfts = sorted(first for first, _ in answers)
    whole = sum(done for _, done in answers)
    print(
        f"{arguments.streams} streams: {whole} of {len(answers)} answers whole in {seconds:.2f} s, "
        f"{len(answers) * arguments.output_len / seconds:.0f} tokens/s, first piece after "
        f"{1e3 * ttfts[len(ttfts) // 2]:.1f} ms (p50), {1e3 * ttfts[int(0.99 * (len(ttfts) - 1))]:.1f} ms (p99)"
    )


if __name__ == "__main__":
    main()
