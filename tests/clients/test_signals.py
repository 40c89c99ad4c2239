"""Signals and log readers: SIGTERM during load, a second signal, SIGPIPE, and a log that is not read."""

import json
import os
import re
import signal
import subprocess
import time

import pytest

from conftest import ANSWER, BINARY, MODEL, QUESTION, Server
from test_http import LONG, eventually, fetch, post


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_a_server_that_loads(tmp_path, number):
    path = tmp_path / "attend.sock"
    # Random weights of a model with many layers take seconds.
    model = tmp_path / "model"
    model.mkdir()
    config = json.loads((MODEL / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 4000, "layer_types": None}))
    process = subprocess.Popen([BINARY, "serve", "--model-path", str(model), "--load-format", "dummy",
                                "--unix-socket", str(path)], stderr=subprocess.PIPE)
    eventually(lambda: path.exists() or process.poll() is not None)
    begin = time.monotonic()
    process.send_signal(number)
    rest = process.communicate(timeout=60)[1]
    assert process.returncode == -number and time.monotonic() - begin < 5, rest
    assert not path.exists() and b"ready" not in rest


def test_second_signal_ends_a_server_whose_threads_do_not_run():
    server = Server()
    # A stopped process handles its pending signals when it continues; the third one is immediate.
    with server.connect() as stream:
        stream.sendall(post("/v1/completions", LONG | {"n": 60, "max_tokens": 1900}))
        stream.recv(100)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            server.process.send_signal(number)
            time.sleep(0.01)
        assert server.process.wait(timeout=3) in (0, -signal.SIGTERM)


def test_server_continues_after_the_reader_of_its_log_exits():
    server = Server("--log-access", "--log-requests")
    server.process.stderr.close()
    for _ in range(3):
        assert json.loads(fetch(server, "/v1/completions", {"prompt": QUESTION})[2])["choices"][0]["text"] == ANSWER
    server.process.terminate()
    assert server.process.wait(timeout=30) == 0


def test_server_answers_while_its_log_is_not_read():
    server = Server("--log-access")
    number, path = 1500, "/" + "x" * 150  # more than the 64 KiB of a pipe
    for _ in range(number):
        assert fetch(server, path)[0] == 404
    assert os.read(server.process.stderr.fileno(), 1 << 20)
    assert fetch(server, path)[0] == 404
    log = server.stop()[1]
    dropped = re.search(r"^warning: dropped log lines, since they were not read: (\d+)$", log, re.M)
    assert 100 < int(dropped[1]) < number
