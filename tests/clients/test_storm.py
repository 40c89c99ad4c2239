"""1,024 concurrent clients that connect, send garbage, send too much or too slowly, abort, and disconnect at
any point."""

import json
import os
import random
import threading
import time

from conftest import ANSWER, QUESTION, Server
from test_http import LONG, eventually, fetch, metric, post, read_all

SECONDS = float(os.environ.get("ATTEND_STORM_SECONDS", "10"))
NUM_CLIENTS = int(os.environ.get("ATTEND_STORM_CLIENTS", "1024"))


def answered(server, request, slowly=False):
    """Returns true if a valid request gets the correct answer."""
    with server.connect(timeout=300) as connection:
        if slowly:
            for at in range(0, len(request), 40):
                connection.sendall(request[at : at + 40])
                time.sleep(0.005)
        else:
            connection.sendall(request)
        return ANSWER.encode() in read_all(connection)


def leave_early(server, rng, sent):
    with server.connect(timeout=300) as connection:
        connection.sendall(sent)
        connection.settimeout(rng.random())
        if rng.random() < 0.5:
            connection.recv(rng.randrange(1, 2000))


def misbehave(server, rng, outcomes):
    """Performs one action of a client; appends requests that must be answered to `outcomes`."""
    question = post("/v1/completions", {"prompt": QUESTION, "max_tokens": 8}, "Connection: close\r\n")
    kind = rng.choice(["garbage", "half", "too much", "stream", "slow", "bad", "wait", "good", "abort", "flush"])
    try:
        if kind == "garbage":
            leave_early(server, rng, rng.randbytes(rng.randrange(1, 5000)))
        elif kind == "half":
            leave_early(server, rng, question[: rng.randrange(len(question))] + b"\0" * rng.randrange(2))
        elif kind == "too much":
            with server.connect(timeout=300) as connection:
                connection.sendall(b"POST / HTTP/1.1\r\nContent-Length: 999999999999\r\n\r\n")
                outcomes.append((kind, connection.recv(4096).startswith(b"HTTP/1.1 413")))
        elif kind in ("stream", "wait"):
            leave_early(server, rng, post("/v1/chat/completions" if rng.random() < 0.3 else "/v1/completions", LONG | {
                "stream": kind == "stream", "n": rng.choice([1, 1, 3]), "messages": [{"role": "user", "content": QUESTION}]}))
        elif kind == "bad":
            with server.connect(timeout=300) as connection:
                connection.sendall(post("/v1/chat/completions", {"messages": rng.choice([None, 5, [{}], "x"])}))
                outcomes.append((kind, connection.recv(4096).startswith(b"HTTP/1.1 400")))
        elif kind == "abort":
            name = f"storm-{rng.randrange(10**9)}-"
            with server.connect(timeout=300) as connection:
                connection.sendall(post("/v1/completions", LONG | {"rid": name}, "Connection: close\r\n"))
                connection.recv(1)
                fetch(server, "/abort_request", {"rid": name})
                outcomes.append((kind, b"[DONE]" in read_all(connection)))
        elif kind == "flush":
            outcomes.append((kind, fetch(server, "/flush_cache", {})[0] == 200))
        else:
            outcomes.append((kind, answered(server, question, slowly=kind == "slow")))
    except OSError as error:
        # A client that sends invalid requests may get a connection reset.
        if kind not in ("garbage", "half", "stream", "wait"):
            outcomes.append((kind, f"{type(error).__name__}: {error}"))


def resident(server):
    with open(f"/proc/{server.process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def num_files(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def test_connection_storm_leaks_nothing():
    server = Server("--max-running-requests", "64")
    outcomes, sizes = [], []
    files = num_files(server)
    deadline = time.monotonic() + SECONDS

    def client(seed):
        rng = random.Random(seed)
        while time.monotonic() < deadline:
            misbehave(server, rng, outcomes)

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(NUM_CLIENTS)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(1)
        sizes.append(resident(server))
    wrong = [outcome for outcome in outcomes if outcome[1] is not True]
    assert len(outcomes) > 20 * SECONDS and not wrong, (len(outcomes), wrong[:5])
    eventually(lambda: metric(server, "num_running_reqs") == metric(server, "num_queue_reqs") == 0)
    eventually(lambda: metric(server, "num_used_tokens") == 0)
    eventually(lambda: metric(server, "http_requests_active") == 1)  # this request
    eventually(lambda: num_files(server) <= files + 1)
    assert fetch(server, "/health_generate")[0] == 200
    # The second half reuses memory of the first; nothing grows with the number of clients.
    half = len(sizes) // 2
    assert max(sizes[half:]) < max(sizes[: half + 1]) * 1.2 + 20, sizes
    print(f"storm: {len(outcomes)} answers in {SECONDS:.0f} s, {metric(server, 'http_connections_total'):.0f} connections, "
          f"{metric(server, 'num_aborted_requests_total'):.0f} aborted, at most {max(sizes):.0f} MiB")
    assert server.stop()[0] == 0
