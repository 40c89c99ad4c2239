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
    # Lines of JSON have no level before them.
    lines = [json.loads(line) for line in server.stop()[1].splitlines() if line.startswith("{")]
    requests = [line for line in lines if "completion_tokens" in line]
    assert [line["status"] for line in requests] == [200, 400, 499]
    good = requests[0]
    assert good["id"] == "mine-3" and good["traceparent"] == headers["traceparent"]
    assert good["path"] == "/v1/completions" and good["finish_reasons"] == ["stop"]
    assert good["completion_tokens"] == 5 and good["prompt_tokens"] > 5
    assert 0 < good["seconds_to_first_token"] <= good["seconds"]
    access = [line for line in lines if "access" in line]
    assert access[0] == {"time": access[0]["time"], "client": access[0]["client"], "access": "POST /v1/completions",
                         "status": 200, "bytes": access[0]["bytes"], "seconds": access[0]["seconds"], "id": "mine-3"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", access[0]["time"])
    assert re.fullmatch(r"127\.0\.0\.1:\d+", access[0]["client"])
    # A request without an id is logged with that of its reply.
    assert access[1]["id"].startswith("cmpl-")
    assert [line["status"] for line in access if line["access"].startswith("POST")] == [200, 400, 499]


def test_metrics_that_dashboards_of_vllm_and_sglang_read():
    server = Server("--metric-names", "both")
    try:
        for _ in range(2):
            fetch(server, "/v1/completions", {"prompt": QUESTION, "max_tokens": 7, "ignore_eos": True})
        text = fetch(server, "/metrics")[2]
        value = lambda name: float(re.search(rf"^{name}\{{[^}}]*\}} (\S+)$", text, re.M)[1])
        assert value("sglang:gen_throughput") == 0  # no request runs
        assert value("vllm:request_generation_tokens_sum") == 14
        assert value("vllm:request_prompt_tokens_sum") == value("vllm:prompt_tokens_total") > 14
        for name in ("request_prompt_tokens", "request_generation_tokens", "request_prefill_time_seconds",
                     "request_decode_time_seconds"):
            assert value(f"vllm:{name}_count") == 2
        assert 0 < value("vllm:request_decode_time_seconds_sum") < value("vllm:e2e_request_latency_seconds_sum")
        assert value("vllm:iteration_tokens_total_count") == value("sglang:engine_steps_total")
        info = re.search(r'^vllm:cache_config_info\{.*block_size="(\d+)",num_gpu_blocks="(\d+)"\} 1$', text, re.M)
        assert int(info[1]) * int(info[2]) == value("sglang:max_total_num_tokens")
        with server.connect() as connection:
            connection.sendall(post("/v1/completions", LONG | {"n": 16}))
            eventually(lambda: metric(server, "gen_throughput") > 0)
    finally:
        server.stop()


def test_startup_log_lines():
    server = Server()
    log = "".join(server.log)
    server.stop()
    assert re.search(r"weights: 100% of [\d.]+ MB after [\d.]+ s", log) and "ready at http" in log


def test_model_without_a_tokenizer_is_reported_at_start():
    server = Server(model=ROOT / "tests/goldens/llama-gqa4-hd32")
    log = "".join(server.log)
    server.stop()
    assert "warning: " in log and "no tokenizer.json: requests with texts are rejected" in log


def test_server_has_several_names():
    server = Server("--served-model-name", "first", "second")
    try:
        names = [model["id"] for model in json.loads(fetch(server, "/v1/models")[2])["data"]]
        assert names[-2:] == ["first", "second"]
    finally:
        server.stop()


def test_api_keys_are_read_from_the_environment(monkeypatch):
    monkeypatch.setenv("ATTEND_API_KEY", "secret")
    server = Server()
    try:
        assert fetch(server, "/v1/models")[0] == 401
        assert fetch(server, "/v1/models", headers={"Authorization": "Bearer secret"})[0] == 200
    finally:
        server.stop()
