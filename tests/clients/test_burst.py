"""More concurrent requests than the queue holds: some are answered, the others rejected, and the metrics
agree."""

import json
import threading

from conftest import QUESTION, Server
from test_http import eventually, fetch, metric, post, read_all

RUNNING, QUEUED, REQUESTS = 4, 20, 200
LONG_ENOUGH = {"prompt": QUESTION, "max_tokens": 300, "ignore_eos": True}


def answers_to(connections, request):
    """Sends the request on each connection, then reads and returns all replies."""
    for connection in connections:
        connection.sendall(request)
    return [read_all(connection) for connection in connections]


class Watch:
    """Scrapes the metrics in a loop until it is stopped."""

    def __init__(self, server):
        self.server, self.seen, self.done = server, [], threading.Event()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()

    def look(self):
        while not self.done.is_set():
            text = fetch(self.server, "/metrics")[2]
            numbers = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
            value = {name.partition("{")[0]: float(number) for name, number in numbers.items()}
            self.seen.append((value["sglang:num_running_reqs"], value["sglang:num_queue_reqs"]))

    def stop(self):
        self.done.set()
        self.thread.join()
        return self.seen


def test_a_burst_is_answered_or_rejected_within_the_queue_limit():
    server = Server("--max-running-requests", str(RUNNING), "--max-queued-requests", str(QUEUED),
                    "--tokenizer-worker-num", "2")
    try:
        connections = [server.connect(timeout=300) for _ in range(REQUESTS)]
        watch = Watch(server)
        answers = answers_to(connections, post("/v1/completions", LONG_ENOUGH, "Connection: close\r\n"))
        seen = watch.stop()
        for connection in connections:
            connection.close()
        accepted, rejected = 0, 0
        for answer in answers:
            head, _, body = answer.partition(b"\r\n\r\n")
            if head.startswith(b"HTTP/1.1 200 "):
                accepted += 1
                assert json.loads(body)["usage"]["completion_tokens"] == LONG_ENOUGH["max_tokens"]
            else:
                rejected += 1
                assert head.startswith(b"HTTP/1.1 503 ") and b"\r\nRetry-After: 1\r\n" in head, head
                assert json.loads(body)["error"]["code"] == "queue_full"
        assert accepted >= QUEUED and rejected > 0, (accepted, rejected)
        assert all(running <= RUNNING and waiting <= QUEUED for running, waiting in seen), max(seen)
        assert any(waiting > 0 for _, waiting in seen)
        eventually(lambda: metric(server, "num_running_reqs") == metric(server, "num_queue_reqs") == 0)
        eventually(lambda: metric(server, "num_used_tokens") == 0)
        assert metric(server, "num_requests_total") == metric(server, "e2e_request_latency_seconds_count") == accepted
        assert metric(server, "generation_tokens_total") == accepted * LONG_ENOUGH["max_tokens"]
        assert metric(server, "num_aborted_requests_total") == metric(server, "num_failed_requests_total") == 0
    finally:
        assert server.stop()[0] == 0
