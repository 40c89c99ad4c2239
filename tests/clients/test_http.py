"""HTTP: curl, misbehaving sockets, and shutdown of the server."""

import json
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

from conftest import ANSWER, BINARY, MODEL, QUESTION, ROOT, Server

LONG = {"prompt": QUESTION, "max_tokens": 1900, "ignore_eos": True, "stream": True}


def curl(*arguments):
    return subprocess.run(["curl", "-sS", *arguments], capture_output=True, text=True, check=True).stdout


def fetch(server, path, body=None, headers=None):
    """Returns status, headers and body."""
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(server.url + path, data, headers or {})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, reply.headers, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def post(path, body, extra=""):
    data = json.dumps(body)
    return f"POST {path} HTTP/1.1\r\nHost: x\r\n{extra}Content-Length: {len(data)}\r\n\r\n{data}".encode()


def metric(server, name):
    for line in fetch(server, "/metrics")[2].splitlines():
        if line.startswith(f"sglang:{name}{{"):
            return float(line.rsplit(" ", 1)[1])
    raise KeyError(name)


def eventually(condition):
    # The deadline is long because a busy machine is slow; a hang is found anyway.
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def read_all(connection):
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def test_curl_completes_and_streams(server):
    whole = json.loads(curl(server.url + "/v1/completions", "-d", json.dumps({"prompt": QUESTION})))
    assert whole["choices"][0]["text"] == ANSWER
    lines = curl("-N", server.url + "/v1/chat/completions", "-d", json.dumps(
        {"messages": [{"role": "user", "content": QUESTION}], "stream": True})).split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == ANSWER


def test_native_generate(server):
    _, _, body = fetch(server, "/generate", {"text": QUESTION, "sampling_params": {"max_new_tokens": 2}})
    reply = json.loads(body)
    assert reply["text"] == " scout coffee" and reply["meta_info"]["finish_reason"] == {"type": "length", "length": 2}
    stream = curl("-N", server.url + "/generate", "-d", json.dumps({"text": QUESTION, "stream": True})).split("\n\n")
    texts = [json.loads(line.removeprefix("data: "))["text"] for line in stream[:-2]]
    assert texts[-1] == ANSWER and all(later.startswith(text) for text, later in zip(texts, texts[1:]))


def test_tokenize_and_detokenize(server):
    tokens = json.loads(fetch(server, "/tokenize", {"prompt": QUESTION})[2])
    assert tokens["count"] == len(tokens["tokens"])
    assert json.loads(fetch(server, "/detokenize", {"tokens": tokens["tokens"]})[2])["text"] == QUESTION
    status, _, body = fetch(server, "/detokenize", {"tokens": [1, 1 << 20]})
    assert status == 400 and json.loads(body)["error"]["param"] == "tokens" and "1048576: expected token ids, 0 to" in body


def test_errors_name_the_fields_of_their_endpoint(server):
    cases = {
        "text": {"text": "word " * 4000},
        "input_ids": {"input_ids": [5] * 4000},
        "sampling_params.stop": {"text": QUESTION, "sampling_params": {"stop": [""]}},
        "sampling_params.repetition_penalty": {"text": QUESTION, "sampling_params": {"repetition_penalty": 3}},
    }
    for param, body in cases.items():
        status, _, text = fetch(server, "/generate", body)
        assert status == 400 and json.loads(text)["error"]["param"] == param, text


def test_health_and_discovery_endpoints(server):
    assert fetch(server, "/health")[0] == fetch(server, "/health_generate")[0] == 200
    assert json.loads(fetch(server, "/get_model_info")[2])["is_generation"]
    info = json.loads(fetch(server, "/server_info")[2])
    assert info["quantization"] is None
    assert info["page_size"] > 0 and info["schedule_policy"] == "fcfs" and isinstance(info["disable_overlap_schedule"], bool)
    assert json.loads(fetch(server, "/openapi.json")[2])["openapi"].startswith("3.")
    assert "<html" in fetch(server, "/")[2]
    assert fetch(server, "/nothing")[0] == 404
    assert fetch(server, "/v1/completions")[1]["Allow"] == "POST"
    with server.connect() as connection:
        connection.sendall(b"HEAD /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        head = read_all(connection)
    assert head.startswith(b"HTTP/1.1 200") and head.endswith(b"\r\n\r\n")


def quantization_of(model):
    quantized = Server(model=model)
    try:
        return json.loads(fetch(quantized, "/server_info")[2])["quantization"]
    finally:
        assert quantized.stop()[0] == 0


def test_info_names_the_method_of_quantized_weights(tmp_path):
    assert quantization_of(ROOT / "tests/goldens/llama-awq") == "awq"
    plain = ROOT / "tests/goldens/llama-gqa4-hd32"
    shutil.copy(plain / "model.safetensors", tmp_path)
    config = json.loads((plain / "config.json").read_text()) | {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert quantization_of(tmp_path) is None


def test_request_id_is_returned(server):
    _, headers, body = fetch(server, "/v1/completions", {"prompt": QUESTION}, {"x-request-id": "mine-1"})
    assert headers["x-request-id"] == "mine-1" and json.loads(body)["id"] == "mine-1"


def test_cors_origins(server):
    open_one = Server("--cors-origins", "https://chat.example", "--api-key", "secret")
    preflight = b"OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: x\r\nOrigin: https://chat.example\r\nConnection: close\r\n\r\n"
    heads = []
    for target in (server, open_one):
        with target.connect() as connection:
            connection.sendall(preflight)
            heads.append(read_all(connection).decode().lower())
    assert all(head.startswith("http/1.1 204 ") and "content-length" not in head for head in heads)
    assert "access-control" not in heads[0]
    assert "access-control-allow-origin: https://chat.example\r\n" in heads[1] and "authorization" in heads[1]
    # Without this header a browser hides the reply from the page, including errors.
    assert fetch(open_one, "/v1/models")[1]["Access-Control-Allow-Origin"] == "https://chat.example"
    open_one.stop()


def test_several_requests_on_one_connection(server):
    with server.connect() as connection:
        one = post("/v1/completions", {"prompt": QUESTION})
        connection.sendall(one * 3 + b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert read_all(connection).count(b"HTTP/1.1 200") == 4


def test_http_1_0_clients_get_an_unchunked_stream(server):
    with server.connect() as connection:
        connection.sendall(post("/v1/completions", {"prompt": QUESTION, "stream": True}).replace(b"HTTP/1.1", b"HTTP/1.0"))
        head, _, body = read_all(connection).partition(b"\r\n\r\n")
    assert b"chunked" not in head and body.endswith(b"data: [DONE]\n\n")


def test_disconnect_aborts_the_request(server):
    before = metric(server, "num_aborted_requests_total")
    with server.connect() as connection:
        connection.sendall(post("/v1/completions", LONG))
        connection.recv(4096)
    eventually(lambda: metric(server, "num_aborted_requests_total") == before + 1)
    # The same holds for a client that waits for a reply without a stream.
    with server.connect() as connection:
        connection.sendall(post("/v1/completions", LONG | {"stream": False}))
        eventually(lambda: metric(server, "num_running_reqs") == 1)
    eventually(lambda: metric(server, "num_aborted_requests_total") == before + 2)
    eventually(lambda: metric(server, "num_used_tokens") == 0)


def test_tokens_of_a_step_are_written_together(server):
    before = {name: metric(server, name) for name in ("http_writes_total", "engine_steps_total")}
    stream = curl("-N", server.url + "/v1/completions", "-d", json.dumps(
        LONG | {"max_tokens": 200, "n": 8, "skip_special_tokens": False}))
    writes, steps = (metric(server, name) - before[name] for name in ("http_writes_total", "engine_steps_total"))
    # Two more writes for the metrics, which were requested separately.
    assert writes <= steps + 2 < stream.count("data: ") / 4, (writes, steps)


def test_slow_readers_are_dropped(server):
    before = metric(server, "num_aborted_requests_total")
    with server.connect() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(post("/v1/completions", LONG | {"n": 16, "logprobs": 20, "skip_special_tokens": False}))
        eventually(lambda: metric(server, "num_aborted_requests_total") > before)
    eventually(lambda: metric(server, "num_running_reqs") == metric(server, "num_queue_reqs") == 0)
    assert fetch(server, "/health_generate")[0] == 200


def test_abort_by_id(server):
    with server.connect() as connection:
        connection.sendall(post("/v1/completions", LONG, "X-Request-Id: to-be-ended\r\nConnection: close\r\n"))
        connection.recv(4096)
        assert fetch(server, "/abort_request", {"rid": "to-be"})[0] == 200
        rest = read_all(connection)
    assert b'"finish_reason":"abort"' in rest and b"[DONE]" in rest


def test_malformed_requests_get_an_error(server):
    cases = [
        (b"\x16\x03\x01 hello\r\n\r\n", b"400"), (b"GET / HTTP/9.9\r\n\r\n", b"400"),
        (b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", b"413"),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * 100_000 + b"\r\n\r\n", b"431"),
        (b"POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400"),
        (post("/v1/completions", []), b"400"),
    ]
    for sent, status in cases:
        with server.connect() as connection:
            connection.sendall(sent)
            assert connection.recv(4096).startswith(b"HTTP/1.1 " + status), sent[:60]


def test_full_queue_returns_503_with_retry_after():
    server = Server("--max-running-requests", "1", "--max-queued-requests", "1")
    try:
        with server.connect() as first:
            first.sendall(post("/v1/completions", LONG | {"n": 30}))
            eventually(lambda: metric(server, "num_queue_reqs") > 1)
            status, headers, body = fetch(server, "/v1/completions", {"prompt": QUESTION})
        assert status == 503 and headers["Retry-After"] == "1" and "queue_full" in body
        assert "1 requests wait, the limit of --max-queued-requests" in body
    finally:
        server.stop()


def test_sigterm_finishes_requests_and_rejects_new_ones():
    server = Server()
    with server.connect() as stream, server.connect() as other:
        stream.sendall(post("/v1/completions", LONG))
        got = stream.recv(100)
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: fetch(server, "/health")[0] == 503)
        other.sendall(post("/v1/completions", {"prompt": QUESTION}))
        assert b"shutting_down" in other.recv(4096)
        got += read_all(stream)
    assert got.rstrip().endswith(b"0") and b'"finish_reason":"length"' in got and b"[DONE]" in got
    assert server.process.wait(timeout=30) == 0


def test_second_signal_exits_immediately():
    server = Server()
    with server.connect() as stream:
        stream.sendall(post("/v1/completions", LONG | {"n": 30}))
        stream.recv(100)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        assert server.stop(signal.SIGINT)[0] == 0


def serve_at(path):
    """Starts a server at this socket file and waits until it answers."""
    process = subprocess.Popen([BINARY, "serve", "--model-path", str(MODEL), "--unix-socket", str(path)],
                               stderr=subprocess.PIPE, text=True)
    while "ready at" not in (line := process.stderr.readline()):
        assert line, "the server did not start"
    return process


def completed_at(path):
    return json.loads(curl("--unix-socket", str(path), "http://x/v1/completions", "-d", json.dumps({"prompt": QUESTION})))


def test_socket_file_of_a_killed_server_is_replaced(tmp_path):
    path = tmp_path / "attend.sock"
    for _ in range(2):
        process = serve_at(path)
        assert completed_at(path)["choices"][0]["text"] == ANSWER
        process.kill()
        process.communicate()
        assert path.exists()
    process = serve_at(path)
    process.terminate()
    process.communicate()
    assert process.returncode == 0 and not path.exists()


def test_socket_file_of_a_running_server_is_kept(tmp_path):
    path = tmp_path / "attend.sock"
    living = serve_at(path)
    other = subprocess.run([BINARY, "serve", "--model-path", str(MODEL), "--unix-socket", str(path)],
                           capture_output=True, text=True)
    assert other.returncode != 0 and "cannot listen: Address already in use" in other.stderr
    assert completed_at(path)["choices"][0]["text"] == ANSWER
    # A server does not remove another server's file of the same name when it exits.
    path.unlink()
    newer = serve_at(path)
    living.terminate()
    living.communicate()
    assert completed_at(path)["choices"][0]["text"] == ANSWER
    newer.terminate()
    newer.communicate()
    assert not path.exists()


def test_port_of_a_killed_server_can_be_reused():
    first = Server()
    with first.connect() as stream, first.connect():
        stream.sendall(post("/v1/completions", LONG))
        stream.recv(100)
        first.stop(signal.SIGKILL)
        again = Server("--port", str(first.port))
    try:
        assert again.port == first.port and fetch(again, "/health_generate")[0] == 200
    finally:
        again.stop()
