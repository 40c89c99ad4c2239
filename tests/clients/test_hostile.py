"""Hostile and unexpected requests: each gets its own answer, and other requests are not affected."""

import json
import random
import select
import signal
import threading
import time

import pytest
from conftest import ANSWER, QUESTION, Server
from test_http import LONG, eventually, fetch, metric, post, read_all

GOOD = {"prompt": QUESTION, "max_tokens": 8}


def answer_to(server, request):
    with server.connect(timeout=60) as connection:
        connection.sendall(request)
        return read_all(connection)


def start_of_answer(connection):
    try:
        return connection.recv(13)
    except ConnectionError:
        return b""


def answers_in(stream):
    """Returns status and body of each answer on one connection."""
    found = []
    while stream:
        head, _, rest = stream.partition(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
        found.append((int(head.split(b" ")[1]), rest[:length]))
        stream = rest[length:]
    return found


def post_request(headers, body=b""):
    return b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + headers + b"\r\n" + body


@pytest.mark.parametrize("request_bytes, status", [
    (post_request(b"Content-Length: 5\r\nContent-Length: 6\r\n", b"abcdef"), 400),
    (post_request(b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\nGET /health HTTP/1.1\r\n\r\n"), 400),
    (post_request(b"Content-Length: -5\r\n", b"abcde"), 400),
    (post_request(b"Transfer-Encoding: chunked\r\n", b"zz\r\n"), 400),
    (post_request(b"Transfer-Encoding: chunked\r\n", b"ffffffffffffffff\r\n"), 413),
    # Framing errors, where only the end of the connection would end the body.
    (post_request(b"Transfer-Encoding: gzip\r\n", b"{}"), 501),
    (b"GET /heal\0th HTTP/1.1\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost : x\r\n\r\n", 400),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    (b"A" * 40000 + b" / HTTP/1.1\r\n\r\n", 431),
    (b"GET http://other/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 200),
    (b"GET http://other HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 200),
])
def test_request_framing_is_strict(server, request_bytes, status):
    assert answer_to(server, request_bytes).startswith(b"HTTP/1.1 %d " % status)
    eventually(lambda: metric(server, "http_requests_active") == 1)  # this request


@pytest.mark.parametrize("body, status, words", [
    ("[" * 100000, 400, "64 levels"),
    ('{"prompt": "a", "prompt": "b"}', 400, "twice"),
    ('{"prompt": "\\ud800"}', 400, "surrogate"),
    ('{"prompt": "a", "max_tokens": 1e400}', 400, "overflow"),
    ('{"prompt": "a", "max_tokens": true}', 400, "max_tokens true"),
    ('{"prompt": "a", "seed": 9223372036854775808}', 400, "seed 9223372036854775808"),
    ('{"prompt": "a", "seed": -9223372036854775808, "max_tokens": 1}', 200, ""),
    ('{"prompt": "a", "stream_options": []}', 400, "stream_options"),
    ('{"prompt": "a", "stream": true, "stream_options": 5}', 400, "stream_options 5: expected an object"),
    ('{"prompt": "a", "logit_bias": {"-1": 1}}', 400, 'logit_bias: \\"-1\\" is not a token id'),
    ('{"prompt": "a", "n": 129}', 400, "n 129"),
    ('{"prompt": "a", "stop": ["", "b"]}', 400, "stop"),
    ('{"prompt": "a", "temperature": 1e-300, "max_tokens": 1}', 200, ""),
    ('{"prompt": "\\u0000", "max_tokens": 1}', 200, ""),
])
def test_bodies_at_the_size_limit(server, body, status, words):
    request = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    answer = answer_to(server, request.encode()).decode()
    assert answer.startswith(f"HTTP/1.1 {status} ") and words in answer


def test_total_size_of_bodies_is_bounded():
    server = Server("--max-body-mb", "1")
    body = b'{"prompt": "a", "max_tokens": 1, "ignored": "' + b"x" * 900_000 + b'"}'
    head = post_request(b"Content-Length: %d\r\n" % len(body))
    clients, room = [server.connect(timeout=300) for _ in range(30)], 18  # bodies that fit into 16 MiB each
    try:
        for client in clients:
            try:
                client.sendall(head + body[:-1])
            except ConnectionError:  # rejected, and closed while sending
                pass
        rejected = []

        def are_enough_rejected():
            rejected[:] = select.select(clients, [], [], 0)[0]
            return len(clients) - len(rejected) <= room

        eventually(are_enough_rejected)
        assert {start_of_answer(client) for client in rejected} - {b""} == {b"HTTP/1.1 503 "}
        assert fetch(server, "/v1/completions", GOOD)[0] == 200  # a small body
        held = [client for client in clients if client not in rejected]
        for client in held:
            client.sendall(body[-1:])
            assert read_all(client).startswith(b"HTTP/1.1 200 ")
        # The memory of finished requests is free again, and so is that of a disconnected client.
        with server.connect() as gone:
            gone.sendall(head + body[:-1])
        assert held and all(answer_to(server, head + body).startswith(b"HTTP/1.1 200 ") for _ in range(20))
    finally:
        for client in clients:
            client.close()
        assert server.stop()[0] == 0


def test_errors_truncate_long_values(server):
    status, _, text = fetch(server, "/v1/completions", GOOD | {"model": "x" * 100000})
    assert status == 404 and len(text) < 1000


# Sends requests while the previous one is answered, in pieces of any size and at any time.
def test_pipelined_requests_are_answered_in_order(server):
    rng = random.Random(5)
    for _ in range(20):
        prompts = [f"copy: {rng.choice(['sun', 'fox', 'river'])} [ a ] b ->" for _ in range(12)]
        stream = b"".join(post("/v1/completions", {"prompt": [prompt], "max_tokens": 1, "echo": True}) for prompt in prompts)
        stream += post("/tokenize", {"prompt": "end"}, "Connection: close\r\n")
        with server.connect(timeout=60) as connection:
            while stream:
                size = rng.randrange(1, 400)
                connection.sendall(stream[:size])
                stream = stream[size:]
                if rng.random() < 0.5:
                    time.sleep(rng.random() * 0.004)
            answers = answers_in(read_all(connection))
        assert [status for status, _ in answers] == [200] * 13, answers
        texts = [json.loads(body)["choices"][0]["text"] for _, body in answers[:-1]]
        assert all(text.startswith(prompt) for text, prompt in zip(texts, prompts, strict=True))


def test_waiting_requests_can_be_aborted():
    server = Server("--max-running-requests", "1")
    try:
        with server.connect(timeout=60) as first, server.connect(timeout=60) as waiting:
            first.sendall(post("/v1/completions", LONG))
            first.recv(100)
            waiting.sendall(post("/v1/completions", GOOD | {"rid": "one-that-waits"}, "Connection: close\r\n"))
            eventually(lambda: metric(server, "num_queue_reqs") == 1)
            assert fetch(server, "/abort_request", {"rid": "one-that-waits"})[0] == 200
            assert b'"finish_reason":"abort"' in read_all(waiting)
        eventually(lambda: metric(server, "num_running_reqs") == 0)
    finally:
        assert server.stop()[0] == 0


def test_a_signal_under_load_finishes_answers_and_rejects_new_requests():
    server = Server("--drain-timeout", "60")
    request = post("/v1/completions", {"prompt": QUESTION, "max_tokens": 400, "ignore_eos": True}, "Connection: close\r\n")
    answers = []

    def client():
        try:
            answers.append(answer_to(server, request))
        except OSError:
            answers.append(b"")

    running = [threading.Thread(target=client) for _ in range(32)]
    for thread in running:
        thread.start()
    eventually(lambda: metric(server, "num_requests_total") == len(running))
    server.process.send_signal(signal.SIGTERM)
    late = [threading.Thread(target=client) for _ in range(8)]
    for thread in late:
        thread.start()
    for thread in running + late:
        thread.join()
    whole = [answer for answer in answers if answer.startswith(b"HTTP/1.1 200 ")]
    # Late requests get an error or no connection, never a partial answer.
    assert len(whole) >= len(running) and all(json.loads(answer.partition(b"\r\n\r\n")[2]) for answer in whole)
    assert all(answer == b"" or answer.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 503 ")) for answer in answers)
    assert server.process.wait(60) == 0


def test_slow_clients_do_not_block_others(server):
    request = post("/v1/completions", GOOD, "Connection: close\r\n")
    with server.connect(timeout=60) as slow:
        for at in range(0, len(request) - 1, 7):
            slow.sendall(request[at : min(at + 7, len(request) - 1)])
            assert at % 70 or ANSWER.encode() in answer_to(server, request)
        slow.sendall(request[-1:])
        assert ANSWER.encode() in read_all(slow)
