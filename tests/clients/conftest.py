"""Fixtures: a server on the bundled model, started as a user would. scripts/check_server.sh runs these tests."""

import os
import pathlib
import re
import signal
import socket
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models/attend-tiny"
BINARY = os.environ.get("ATTEND_BINARY", str(ROOT / "build/release/attend"))

QUESTION = "copy: laugh [ scout coffee writer pea ] roll milk ->"
ANSWER = " scout coffee writer pea"


class Server:
    def __init__(self, *flags, model=MODEL):
        self.process = subprocess.Popen(
            [BINARY, "serve", "--model-path", str(model), "--served-model-name", "tiny",
             *([] if "--port" in flags else ["--port", "0"]), *flags],
            stderr=subprocess.PIPE, text=True,
        )
        self.log = []
        for line in self.process.stderr:
            self.log.append(line)
            if ready := re.search(r"ready at (https?://([\d.]+):(\d+))", line):
                self.url, self.host, self.port = ready[1], ready[2], int(ready[3])
                return
        raise RuntimeError("the server did not start:\n" + "".join(self.log))

    def connect(self, timeout=30):
        return socket.create_connection((self.host, self.port), timeout=timeout)

    def stop(self, with_signal=signal.SIGTERM):
        self.process.send_signal(with_signal)
        rest = self.process.communicate(timeout=60)[1]
        return self.process.returncode, rest


@pytest.fixture(scope="module")
def server():
    started = Server()
    yield started
    code, rest = started.stop()
    assert code == 0, rest
