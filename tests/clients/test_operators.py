"""Logs, metrics, the Grafana dashboard and profiles."""

import json
import re

from conftest import QUESTION, ROOT, Server
from test_http import LONG, eventually, fetch, metric, post


def test_grafana_queries_use_existing_metrics(server):
    board = json.loads((ROOT / "docs/operating/grafana.json").read_text())
    queried = {name for panel in board["panels"] for target in panel["targets"]
             for name in re.findall(r"(sglang:\w+)\{", target["expr"])}
    there = set(re.findall(r"^(sglang:\w+)\{", fetch(server, "/metrics")[2], re.M))
    assert len(queried) > 20 and queried <= there, queried - there


def test_profile_is_a_trace_of_steps(server):
    assert fetch(server, "/stop_profile", {})[0] == 400
    assert fetch(server, "/start_profile", {"output_dir": "/tmp"})[0] == 400
    assert fetch(server, "/start_profile", {"num_steps": 4, "activities": ["CPU"], "output_dir": None})[0] == 200
    assert fetch(server, "/start_profile", {})[0] == 400
    fetch(server, "/v1/completions", {"prompt": QUESTION, "max_tokens": 8, "ignore_eos": True})
    status, headers, body = fetch(server, "/stop_profile", {})
    assert status == 200 and headers["Content-Type"] == "application/json"
    spans = [event for event in json.loads(body)["traceEvents"] if event["ph"] == "X"]
    steps = [span for span in spans if span["name"] == "step"]
    assert [step["args"]["mode"] for step in steps] == ["extend"] + ["decode"] * 3
    for part in ("schedule", "inputs", "forward", "sampling", "output"):
        inside = [span for span in spans if span["name"] == part]
        assert len(inside) == 4
        for span, step in zip(inside, steps):
            assert step["ts"] <= span["ts"] and span["ts"] + span["dur"] <= step["ts"] + step["dur"]


def test_json_logs_have_request_ids():
    server = Server("--log-requests", "--log-access")
    headers = {"x-request-id": "mine-3", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    fetch(server, "/v1/completions", {"prompt": QUESTION}, headers)
    fetch(server, "/v1/completions", {"prompt": QUESTION, "top_p": 7})
    with server.connect() as connection:
        connection.sendall(post("/v1/completions", LONG))
        connection.recv(4096)
    eventually(lambda: metric(server, "num_aborted_requests_total") == 1)
    lines = [json.loads(line[line.index("{"):]) for line in server.stop()[1].splitlines() if line.endswith("}")]
    requests = [line for line in lines if "completion_tokens" in line]
    assert [line["status"] for line in requests] == [200, 400, 499]
    good = requests[0]
    assert good["id"] == "mine-3" and good["traceparent"] == headers["traceparent"]
    assert good["path"] == "/v1/completions" and good["finish_reasons"] == ["stop"]
    assert good["completion_tokens"] == 5 and good["prompt_tokens"] > 5
    assert 0 < good["seconds_to_first_token"] <= good["seconds"]
    access = [line for line in lines if "access" in line]
    assert access[0] == {"access": "POST /v1/completions", "status": 200, "bytes": access[0]["bytes"],
                         "seconds": access[0]["seconds"], "id": "mine-3"}
    assert [line["status"] for line in access if line["access"].startswith("POST")] == [200, 400, 499]


def test_startup_log_lines():
    server = Server()
    log = "".join(server.log)
    server.stop()
    assert re.search(r"weights: 100% of [\d.]+ MB after [\d.]+ s", log) and "ready at http" in log


def test_api_keys_are_read_from_the_environment(monkeypatch):
    monkeypatch.setenv("ATTEND_API_KEY", "secret")
    server = Server()
    try:
        assert fetch(server, "/v1/models")[0] == 401
        assert fetch(server, "/v1/models", headers={"Authorization": "Bearer secret"})[0] == 200
    finally:
        server.stop()
