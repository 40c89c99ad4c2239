"""Fields and endpoints that clients, tools and operators of SGLang and vLLM rely on."""

import json
import subprocess

from conftest import ANSWER, BINARY, MODEL, QUESTION, Server
from test_http import curl, eventually, fetch, metric

NATIVE = {"sampling_params": {"max_new_tokens": 4, "temperature": 0}}
LONG_PROMPT = "word " * 400


def ask(server, path, **fields):
    status, _, body = fetch(server, path, fields)
    assert status == 200, body
    return json.loads(body)


def test_repeated_prompts_are_cached_until_flushed(server):
    def cached(prompt):
        reply = ask(server, "/v1/completions", prompt=prompt, max_tokens=1)
        return reply["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert cached(LONG_PROMPT) == 0
    assert cached(LONG_PROMPT) > 0
    chat = {"messages": [{"role": "user", "content": LONG_PROMPT}], "max_tokens": 1}
    ask(server, "/v1/chat/completions", **chat)
    assert ask(server, "/v1/chat/completions", **chat)["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert ask(server, "/generate", text=LONG_PROMPT, **NATIVE)["meta_info"]["cached_tokens"] > 0
    # A request with another salt shares no cached prefix.
    salted = ask(server, "/v1/completions", prompt=LONG_PROMPT, max_tokens=1, cache_salt="mine")
    assert salted["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert metric(server, "cached_tokens_total") > 0 and metric(server, "prefix_cache_tokens") > 0
    assert fetch(server, "/flush_cache?timeout=5", {})[0] == 200
    assert cached(LONG_PROMPT) == 0


def test_cached_prefixes_survive_a_restart(tmp_path):
    flags = ("--enable-hierarchical-cache", "--hicache-ratio", "1", "--hicache-storage-dir", str(tmp_path))
    texts, files = [], lambda: [path for path in tmp_path.rglob("*") if path.is_file()]
    for is_restart in (False, True):
        server = Server(*flags)
        try:
            reply = ask(server, "/generate", text=LONG_PROMPT, **NATIVE)
            texts.append(reply["text"])
            details = reply["meta_info"].get("cached_tokens_details")
            assert (details is not None) == is_restart
            if is_restart:
                assert details == {"device": 0, "host": 0, "storage": reply["meta_info"]["cached_tokens"]}
                assert metric(server, "disk_cached_tokens_total") == details["storage"] > 0
                assert metric(server, "hicache_host_total_tokens") > metric(server, "hicache_host_used_tokens") > 0
                assert fetch(server, "/flush_cache?timeout=5", {})[0] == 200
                eventually(lambda: not files() and metric(server, "hicache_host_used_tokens") == 0)
        finally:
            server.stop()
    assert texts[0] == texts[1]


def test_native_logprobs_of_prompt_and_answer(server):
    reply = ask(server, "/generate", text=QUESTION, return_logprob=True, logprob_start_len=0, top_logprobs_num=2,
                return_text_in_logprobs=True, **NATIVE)
    meta = reply["meta_info"]
    assert len(meta["input_token_logprobs"]) == meta["prompt_tokens"]
    assert meta["input_token_logprobs"][0][0] is None and meta["input_token_logprobs"][1][0] < 0
    assert "".join(text for _, _, text in meta["input_token_logprobs"]) == "<|begin|>" + QUESTION
    assert [token for _, token, _ in meta["output_token_logprobs"]] == reply["output_ids"]
    for (logprob, token, _), top in zip(meta["output_token_logprobs"], meta["output_top_logprobs"]):
        assert len(top) == 2 and top[0][:2] == [logprob, token]
    # OpenAI's endpoint reports the same values.
    openai = ask(server, "/v1/completions", prompt=QUESTION, max_tokens=4, temperature=0, echo=True, logprobs=0)
    logprobs = [logprob for logprob, _, _ in meta["input_token_logprobs"] + meta["output_token_logprobs"]]
    assert logprobs == openai["choices"][0]["logprobs"]["token_logprobs"]
    answer_only = ask(server, "/generate", text=QUESTION, return_logprob=True, **NATIVE)["meta_info"]
    assert answer_only["input_token_logprobs"] == [] and len(answer_only["output_token_logprobs"]) == 4


def test_native_streams_do_not_resend_all_logprobs_per_token(server):
    body = {"text": QUESTION, "stream": True, "return_logprob": True, "top_logprobs_num": 5,
            "sampling_params": {"max_new_tokens": 400, "temperature": 0, "ignore_eos": True}}
    stream = curl("-N", server.url + "/generate", "-d", json.dumps(body))
    events = [json.loads(event.removeprefix("data: ")) for event in stream.split("\n\n")[:-2]]
    counts = [len(event["meta_info"]["output_token_logprobs"]) for event in events]
    assert counts == sorted(counts) and counts[0] == 1 and counts[-1] == 400
    assert sum(counts) < 20 * counts[-1]
    assert [token for _, token, _ in events[-1]["meta_info"]["output_token_logprobs"]] == events[-1]["output_ids"]


def test_native_streams_of_several_prompts_have_indices(server):
    stream = curl("-N", server.url + "/generate", "-d", json.dumps({"text": [QUESTION, "copy: a [ sun ] b ->"], "stream": True}))
    last = {}
    for line in stream.split("\n\n")[:-2]:
        chunk = json.loads(line.removeprefix("data: "))
        last[chunk["index"]] = chunk["text"]
    assert last == {0: ANSWER, 1: " sun"}


def test_every_field_may_be_null(server):
    document = json.loads(fetch(server, "/openapi.json")[2])
    schemas = document["components"]["schemas"]

    def fields(schema):
        for part in schema.get("allOf", []):
            yield from fields(schemas[part["$ref"].rsplit("/", 1)[1]] if "$ref" in part else part)
        yield from schema.get("properties", {})

    for path, schema, required in [("/v1/chat/completions", "ChatRequest", {"messages": [{"role": "user", "content": QUESTION}]}),
                                ("/v1/completions", "CompletionRequest", {"prompt": QUESTION}),
                                ("/v1/responses", "ResponseRequest", {"input": QUESTION}),
                                ("/generate", "GenerateRequest", {"text": QUESTION}),
                                ("/v1/messages", "MessagesRequest", {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 9})]:
        names = set(fields(schemas[schema]))
        assert len(names) > 10
        ask(server, path, **({name: None for name in names} | required))


def test_continue_final_message(server):
    talk = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": " scout coffee"}]
    reply = ask(server, "/v1/chat/completions", messages=talk, continue_final_message=True)
    assert reply["choices"][0]["message"]["content"] == " writer pea"


def test_clients_can_set_the_request_id(server):
    assert ask(server, "/v1/completions", prompt=QUESTION, rid="mine-2")["id"] == "mine-2"
    assert fetch(server, "/v1/completions", {"prompt": QUESTION, "rid": "a\r\nSet-Cookie: b"})[0] == 400


def test_admin_key_protects_endpoints_that_change_the_server():
    server = Server("--api-key", "user", "--admin-api-key", "admin")
    try:
        for path in ("/flush_cache", "/abort_request"):
            body = {"abort_all": True}
            assert fetch(server, path, body, {"Authorization": "Bearer user"})[0] == 401
            assert fetch(server, path, body, {"Authorization": "Bearer admin"})[0] == 200
    finally:
        server.stop()


def check_metrics(text):
    """Checks the metrics with Prometheus' own linter. It also reports names; the colons of SGLang and vLLM
    are accepted, and so is vLLM's name of a histogram that ends with _total."""
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    assert checked.returncode in (0, 3), checked.stderr
    faults = [line for line in checked.stderr.splitlines() if "metric names should not contain ':'" not in line and "vllm:iteration_tokens_total non-counter" not in line]
    assert faults == [], faults


def test_metrics_parse_as_prometheus_text(server):
    check_metrics(fetch(server, "/metrics")[2])


def test_metrics_with_names_of_vllm():
    server = Server("--metric-names", "both")
    try:
        ask(server, "/v1/completions", prompt=QUESTION)
        text = fetch(server, "/metrics")[2]
        check_metrics(text)
        assert 'vllm:request_success_total{model_name="tiny",engine="0",finished_reason="stop"} 1' in text
        assert "vllm:num_requests_running{" in text and "sglang:num_running_reqs{" in text
    finally:
        server.stop()


def test_unknown_flags_are_rejected():
    run = subprocess.run([BINARY, "serve", "--model-path", str(MODEL), "--metric-names", "v"], capture_output=True, text=True)
    assert run.returncode == 2 and "expected sglang, vllm or both" in run.stderr


def test_ignored_fields_are_logged_once():
    server = Server()
    for _ in range(3):
        ask(server, "/v1/completions", prompt=QUESTION, unheard_of=1, user="u")
    log = server.stop()[1]
    assert log.count("unheard_of") == 1 and '"user"' not in log
