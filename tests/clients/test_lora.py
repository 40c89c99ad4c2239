"""LoRA adapters: listed, selected by `model` on every API, loaded and unloaded while requests run."""

import json
import threading

import pytest
from conftest import ANSWER, QUESTION, ROOT, Server
from test_http import eventually, fetch, metric

ADAPTER = ROOT / "models/attend-tiny-lora"
# The adapter reverses the words.
REVERSED = "".join(f" {word}" for word in reversed(ANSWER.split()))


@pytest.fixture(scope="module")
def lora_server():
    server = Server("--lora-paths", f"backward={ADAPTER}")
    yield server
    code, rest = server.stop()
    assert code == 0, rest


def call(server, path, body):
    status, _, text = fetch(server, path, body)
    return status, json.loads(text)


def complete(server, model):
    status, reply = call(server, "/v1/completions", {"model": model, "prompt": QUESTION, "max_tokens": 16, "temperature": 0})
    return reply["choices"][0]["text"] if status == 200 else status


def names(server):
    return [card["id"] for card in json.loads(fetch(server, "/v1/models")[2])["data"]]


def test_models_lists_adapters_after_the_model(lora_server):
    cards = json.loads(fetch(lora_server, "/v1/models")[2])["data"]
    assert [card["id"] for card in cards] == ["tiny", "backward"]
    assert cards[0]["parent"] is None
    assert cards[1]["parent"] == "tiny" and cards[1]["root"] == str(ADAPTER)
    one = json.loads(fetch(lora_server, "/v1/models/backward")[2])
    assert one["root"] == str(ADAPTER) and one["max_model_len"] == cards[0]["max_model_len"]


def test_every_api_selects_an_adapter_by_model(lora_server):
    messages = [{"role": "user", "content": QUESTION}]
    for model, answer in (("tiny", ANSWER), ("backward", REVERSED), ("tiny:backward", REVERSED)):
        served = "tiny" if model == "tiny" else "backward"
        assert complete(lora_server, model) == answer
        _, chat = call(lora_server, "/v1/chat/completions", {"model": model, "messages": messages, "temperature": 0})
        assert chat["choices"][0]["message"]["content"] == answer and chat["model"] == served
        _, response = call(lora_server, "/v1/responses", {"model": model, "input": QUESTION, "temperature": 0})
        assert response["output"][-1]["content"][0]["text"] == answer and response["model"] == served
        _, message = call(lora_server, "/v1/messages",
                          {"model": model, "max_tokens": 16, "messages": messages, "temperature": 0})
        assert message["content"][0]["text"] == answer and message["model"] == served
    for adapter, answer in ((None, ANSWER), ("backward", REVERSED)):
        _, native = call(lora_server, "/generate",
                         {"text": QUESTION, "lora_path": adapter, "sampling_params": {"temperature": 0}})
        assert native["text"] == answer


def test_unknown_names_are_rejected(lora_server):
    assert complete(lora_server, "forward") == 404
    status, reply = call(lora_server, "/generate", {"text": QUESTION, "lora_path": "forward"})
    assert status == 400 and "forward" in json.dumps(reply)


def test_requests_with_and_without_adapters_share_batches(lora_server):
    answers = {}

    def ask(index):
        answers[index] = complete(lora_server, "backward" if index % 2 else "tiny")

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {index: REVERSED if index % 2 else ANSWER for index in range(16)}


def test_adapters_are_loaded_and_unloaded(lora_server):
    for prefix in ("/v1", ""):
        request = {"lora_name": "second", "lora_path": str(ADAPTER), "pinned": False}
        status, reply = call(lora_server, f"{prefix}/load_lora_adapter", request)
        assert status == 200 and reply["success"]
        assert reply["loaded_adapters"] == {"backward": str(ADAPTER), "second": str(ADAPTER)}
        assert names(lora_server) == ["tiny", "backward", "second"]
        assert complete(lora_server, "second") == REVERSED
        assert call(lora_server, f"{prefix}/load_lora_adapter", request)[0] == 400
        status, reply = call(lora_server, f"{prefix}/unload_lora_adapter", {"lora_name": "second"})
        assert status == 200 and reply["loaded_adapters"] == {"backward": str(ADAPTER)}
        assert complete(lora_server, "second") == 404
        assert call(lora_server, f"{prefix}/unload_lora_adapter", {"lora_name": "second"})[0] == 404


def test_adapters_that_do_not_fit_are_rejected(lora_server):
    other = ROOT / "tests/goldens/lora/llama-gqa4-hd32/all-linear"
    for request, status, part in (
        ({"lora_name": "a", "lora_path": str(other)}, 400, "an adapter of another model"),
        ({"lora_name": "a", "lora_path": "/no/such/folder"}, 404, "/no/such/folder"),
        ({"lora_name": "a"}, 400, "lora_path: missing"),
        ({"lora_path": str(ADAPTER)}, 400, "lora_name: missing"),
        ({"lora_name": "tiny", "lora_path": str(ADAPTER)}, 400, "the name of the model"),
    ):
        got, reply = call(lora_server, "/v1/load_lora_adapter", request)
        assert got == status and part in json.dumps(reply), reply
    assert names(lora_server) == ["tiny", "backward"]


def test_a_running_request_keeps_its_adapter():
    server = Server("--enable-lora")
    assert call(server, "/v1/load_lora_adapter", {"lora_name": "backward", "lora_path": str(ADAPTER)})[0] == 200
    answers = []
    body = {"model": "backward", "prompt": QUESTION, "max_tokens": 1500, "temperature": 0, "ignore_eos": True}
    running = threading.Thread(target=lambda: answers.append(call(server, "/v1/completions", body)))
    running.start()
    eventually(lambda: metric(server, "num_running_reqs") == 1)
    assert call(server, "/v1/unload_lora_adapter", {"lora_name": "backward"})[0] == 200
    assert complete(server, "backward") == 404
    running.join()
    status, reply = answers[0]
    assert status == 200 and reply["choices"][0]["text"].startswith(REVERSED)
    assert server.stop()[0] == 0


def test_loading_requires_a_flag_and_the_administrators_key():
    server = Server("--api-key", "user", "--admin-api-key", "boss")
    load = {"lora_name": "backward", "lora_path": str(ADAPTER)}
    assert fetch(server, "/v1/load_lora_adapter", load, {"Authorization": "Bearer user"})[0] == 401
    status, _, text = fetch(server, "/v1/load_lora_adapter", load, {"Authorization": "Bearer boss"})
    assert status == 400 and "--enable-lora" in text
    assert server.stop()[0] == 0
