"""Who may use a server: hosts, origins, keys; clients that end their side; the shared health probe."""

import json
import socket
import subprocess
import time

import pytest

from conftest import ANSWER, BINARY, MODEL, QUESTION, Server
from test_http import LONG, eventually, fetch, metric, post, read_all


def exchange(server, head, body=b"", end=False):
    with server.connect() as connection:
        connection.sendall(head + body)
        if end:
            connection.shutdown(socket.SHUT_WR)
        return read_all(connection)


def test_web_pages_of_other_origins_cannot_post(server):
    evil = {"Origin": "https://evil.example", "Content-Type": "text/plain"}
    for path, body in (("/abort_request", {"abort_all": True}), ("/generate", {"text": QUESTION})):
        status, _, text = fetch(server, path, body, evil)
        assert status == 403 and "--cors-origins" in text
    assert fetch(server, "/v1/models", headers={"Origin": "null"})[0] == 403
    own = {"Origin": server.url}
    assert fetch(server, "/v1/completions", {"prompt": QUESTION, "max_tokens": 1}, own)[0] == 200


def test_local_server_rejects_names_of_others(server):
    status, _, text = fetch(server, "/v1/models", headers={"Host": "evil.example"})
    assert status == 403 and "--allowed-hosts" in text
    assert fetch(server, "/v1/models", headers={"Host": f"localhost:{server.port}"})[0] == 200
    reply = exchange(server, b"GET http://evil.example/v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 403 ")


def test_allowed_hosts_origins_and_keys():
    server = Server("--allowed-hosts", "chat.example,*.lab.example", "--cors-origins", "https://a.example, https://b.example",
                    "--api-key", "secret")
    try:
        key = {"Authorization": "bEARER  secret"}
        for host, status in (("chat.example", 200), ("x.lab.example", 200), ("evil.example", 403)):
            assert fetch(server, "/v1/models", headers=key | {"Host": host})[0] == status
        # Requests with a key are not forged by a page, and preflights protect the others.
        for origin, allowed in (("https://a.example", True), ("https://b.example", True), ("https://c.example", False)):
            status, headers, _ = fetch(server, "/v1/models", headers=key | {"Origin": origin})
            assert status == 200 and (headers["Access-Control-Allow-Origin"] == origin) == allowed
            assert headers["Vary"] == ("Origin" if allowed else None)
            assert fetch(server, "/health", headers={"Origin": origin})[0] == (200 if allowed else 403)
        assert fetch(server, "/v1/models", headers={"Authorization": "Bearer"})[0] == 401
    finally:
        server.stop()


@pytest.mark.parametrize("variable", ["ATTEND_API_KEY", "ATTEND_ADMIN_API_KEY"])
@pytest.mark.parametrize("value", ["", "secret\n"])
def test_empty_and_unusable_keys_are_rejected(variable, value, monkeypatch):
    monkeypatch.setenv(variable, value)
    ended = subprocess.run([BINARY, "serve", "--model-path", str(MODEL), "--port", "0"], capture_output=True, text=True,
                           timeout=60)
    assert ended.returncode == 2 and variable in ended.stderr and "ready" not in ended.stderr


def test_clients_that_end_their_side_get_their_answer(server):
    get = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
    for _ in range(10):
        assert b'"object":"list"' in exchange(server, get, end=True)
    # Also several requests, a long answer, and an answer that takes long.
    assert exchange(server, get * 3, end=True).count(b"HTTP/1.1 200") == 3
    assert ANSWER.encode() in exchange(server, post("/v1/completions", {"prompt": QUESTION}), end=True)
    tokens = b'{"prompt": "%s"}' % (b"word " * 3_000)
    head = b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(tokens)
    assert json.loads(exchange(server, head, tokens, end=True).partition(b"\r\n\r\n")[2])["count"] >= 3_000
    long = {"prompt": QUESTION, "max_tokens": 1900, "ignore_eos": True, "n": 16}
    reply = exchange(server, post("/v1/completions", long), end=True)
    assert reply.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"").startswith(b"HTTP/1.1 200") and reply.endswith(b"}")


def test_disconnect_of_a_client_with_pipelined_requests_aborts(server):
    eventually(lambda: metric(server, "num_running_reqs") == 0)
    before = metric(server, "num_aborted_requests_total")
    with server.connect() as connection:
        connection.sendall(post("/v1/completions", LONG | {"stream": False, "n": 128}))
        connection.setblocking(False)
        try:
            while connection.send(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 100):
                pass
        except BlockingIOError:
            pass
        eventually(lambda: metric(server, "num_running_reqs") > 0)
    eventually(lambda: metric(server, "num_running_reqs") + metric(server, "num_queue_reqs") == 0)
    assert metric(server, "num_aborted_requests_total") > before


@pytest.mark.parametrize("head,status", [
    (b"GET /health HTTP/1.1\r\n\r\n", b"400"),
    (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"400"),
    (b"GET /health HTTP/1.0\r\n\r\n", b"200"),
    (b"POST /tokenize HTTP/1.1\r\nHost: x\r\nExpect: foo\r\nContent-Length: 9\r\n\r\n", b"417"),
    (b"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", b"501"),
    (b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\n", b"415"),
    (b"POST /tokenize HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}", b"400"),
])
def test_heads_as_http_has_them(server, head, status):
    assert exchange(server, head, end=True).startswith(b"HTTP/1.1 " + status)


def test_unknown_paths_name_the_similar_one(server):
    for path, meant in (("//v1/models", "/v1/models"), ("/chat/completions", "/v1/chat/completions"),
                        ("/v1/v1/completions", "/v1/completions"), ("/v1/generate/", "/generate")):
        status, _, text = fetch(server, path)
        assert status == 404 and f"expected {meant}" in json.loads(text)["error"]["message"]


def test_health_checks_share_a_probe_outside_of_the_queue():
    server = Server("--api-key", "k", "--max-queued-requests", "1", "--max-running-requests", "1")
    key = "Authorization: Bearer k\r\n"
    probe = b"GET /health_generate HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    try:
        before = metric(server, "num_requests_total")
        with server.connect() as busy:
            busy.sendall(post("/v1/completions", LONG | {"max_tokens": 1900}, key))
            busy.recv(100)
            probes = [server.connect() for _ in range(40)]
            for connection in probes:
                connection.sendall(probe)
            assert metric(server, "num_queue_reqs") == 0
            # The queue has room for one request.
            with server.connect() as other:
                other.sendall(post("/v1/completions", {"prompt": QUESTION}, key + "Connection: close\r\n"))
                assert all(read_all(connection).startswith(b"HTTP/1.1 200") for connection in probes)
                busy.close()
                assert read_all(other).startswith(b"HTTP/1.1 200")
        assert metric(server, "num_requests_total") == before + 2
        # An idle engine computes one request for all of them.
        time.sleep(0.05)
        assert fetch(server, "/health_generate")[0] == 200
        assert metric(server, "num_requests_total") == before + 3
    finally:
        server.stop()
