"""Requests whose input would take unbounded time or memory: each fails with a reason, and others continue."""

import json
import os
import signal
import threading

import pytest
from conftest import QUESTION, Server
from test_http import eventually, fetch, metric

GRAMMARS = pytest.mark.skipif("ATTEND_GRAMMAR_LIBRARY_PATH" not in os.environ, reason="no libraries of grammars")
# Compiled at once; the mask of a token takes seconds to minutes.
SLOW_MASKS = {
    "regex": "(([a-z ]{0,9}){0,99}){0,99}",
    "ebnf": 'root ::= e\ne ::= e e e e e | [a-z ] | ""',
}


def post(server, path, body):
    status, _, answer = fetch(server, path, body)
    return status, answer


def send(server, path, body):
    connection = server.connect()
    data = json.dumps(body).encode()
    connection.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data)
    return connection


@GRAMMARS
@pytest.mark.parametrize("field", SLOW_MASKS)
def test_slow_masks_delay_no_other_request(server, field):
    hostile = {"prompt": "sun", "max_tokens": 2000, "temperature": 1, "seed": 1, "ignore_eos": True, field: SLOW_MASKS[field]}
    answers = []
    thread = threading.Thread(target=lambda: answers.append(post(server, "/v1/completions", hostile)))
    thread.start()
    eventually(lambda: metric(server, "num_running_reqs") >= 1 or answers)
    # Others are answered completely while the request runs, or after it failed.
    status, body = post(server, "/v1/completions", {"prompt": QUESTION, "max_tokens": 200, "ignore_eos": True})
    assert status == 200 and json.loads(body)["usage"]["completion_tokens"] == 200
    thread.join()
    status, body = answers[0]
    assert status == 400 and "the mask of a token was not computed within" in body, body
    assert json.loads(body)["error"]["param"] == field


@GRAMMARS
def test_sigterm_ends_a_server_with_slow_masks():
    server = Server("--drain-timeout", "1")
    connection = send(server, "/v1/completions", {"prompt": "sun", "max_tokens": 300, "stream": True, "regex": SLOW_MASKS["regex"]})
    eventually(lambda: metric(server, "num_running_reqs") >= 1)
    code, rest = server.stop(signal.SIGTERM)
    assert code == 0, rest
    connection.close()


@GRAMMARS
def test_rejected_grammars_free_their_memory():
    server = Server("--grammar-timeout", "0.5")

    def megabytes():
        with open(f"/proc/{server.process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) // 1024

    before = megabytes()
    for count in (50000, 49999, 49998):
        rules = "root ::= r0\n" + "\n".join(f"r{i} ::= r{i + 1}" for i in range(count)) + f'\nr{count} ::= "a"'
        status, body = post(server, "/v1/completions", {"prompt": "sun", "max_tokens": 1, "ebnf": rules})
        assert status == 400 and "expected a simpler one" in body, body
    assert megabytes() < before + 100
    assert server.stop()[0] == 0


@pytest.mark.parametrize("path, field, more", [
    ("/v1/completions", "prompt", {}),
    ("/generate", "text", {}),
    ("/tokenize", "prompt", {}),
    ("/v1/chat/completions", "messages", {}),
])
def test_texts_that_cannot_fit_the_context_are_not_encoded(server, path, field, more):
    text = "a" * 2_000_000
    value = [{"role": "user", "content": text}] if field == "messages" else text
    status, body = post(server, path, {field: value, **more})
    assert status == 400 and "bytes: the context holds" in body, body
    assert json.loads(body)["error"]["param"] == field


def test_bodies_of_disconnected_clients_delay_no_one(server):
    for _ in range(8):
        send(server, "/tokenize", {"prompt": "a" * 5_000_000}).close()
    assert post(server, "/v1/completions", {"prompt": "sun", "max_tokens": 1})[0] == 200
    eventually(lambda: metric(server, "http_requests_active") == 1)  # this request


@pytest.mark.parametrize("stream", [False, True])
def test_large_replies_are_complete(server, stream):
    """Such replies are built on a worker thread."""
    body = {"prompt": [[5, 6, 7, 8] * 40] * 3, "max_tokens": 100, "n": 4, "logprobs": 5, "echo": True, "ignore_eos": True,
            "temperature": 0, "stream": stream}
    status, answer = post(server, "/v1/completions", body)
    assert status == 200
    if not stream:
        choices = json.loads(answer)["choices"]
        assert [choice["index"] for choice in choices] == list(range(12))
        assert all(len(choice["logprobs"]["tokens"]) == 260 for choice in choices)
        return
    counts = [0] * 12
    events = [line[6:] for line in answer.splitlines() if line.startswith("data: ")]
    assert events.pop() == "[DONE]"
    for event in map(json.loads, events):
        for choice in event["choices"]:
            counts[choice["index"]] += len((choice["logprobs"] or {"tokens": []})["tokens"])
    assert counts == [260] * 12


def test_disconnects_during_large_replies(server):
    body = {"prompt": [[5, 6, 7, 8] * 100] * 8, "max_tokens": 1, "n": 8, "logprobs": 5, "echo": True, "stream": True}
    for _ in range(10):
        connection = send(server, "/v1/completions", body)
        connection.recv(1)
        connection.close()
    eventually(lambda: metric(server, "http_requests_active") == 1)
    assert fetch(server, "/health")[0] == 200
