"""Fields of requests: each has its effect, or is rejected by its name."""

import ast
import importlib.util
import json
import pathlib

import openai.types.chat.completion_create_params
import openai.types.completion_create_params
import pytest
from conftest import ANSWER, QUESTION, Server
from test_http import curl, fetch

GENERATE = {"text": QUESTION, "sampling_params": {"max_new_tokens": 4, "temperature": 0}}
# Fields of SGLang's classes that its server fills in itself.
INTERNAL = {"stop_strs", "stop_regex_strs", "stop_str_max_len", "stop_regex_max_len", "is_normalized"}


def ask(server, path, **fields):
    status, _, body = fetch(server, path, fields)
    assert status == 200, body
    return json.loads(body)


def error_of(server, path, **fields):
    status, _, body = fetch(server, path, fields)
    assert status == 400, body
    return json.loads(body)["error"]


def sglang_fields(file, name):
    package = importlib.util.find_spec("sglang")
    if package is None:
        pytest.skip("sglang is not installed")
    source = (pathlib.Path(package.origin).parent / "srt" / file).read_text()
    classes = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    names = []
    for base in classes[name].bases:
        if isinstance(base, ast.Name) and base.id in classes:
            names += sglang_fields(file, base.id)
    names += [line.target.id for line in classes[name].body if isinstance(line, ast.AnnAssign)]
    return [field for field in names if not field.startswith("_") and field not in INTERNAL]


def openai_fields(params):
    return list(params.CompletionCreateParamsBase.__annotations__) + ["stream"]


@pytest.mark.parametrize("path, body, inside, names", [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": QUESTION}]}, None,
     lambda: openai_fields(openai.types.chat.completion_create_params)
     + sglang_fields("entrypoints/openai/protocol.py", "ChatCompletionRequest")),
    ("/v1/completions", {"prompt": QUESTION}, None,
     lambda: openai_fields(openai.types.completion_create_params)
     + sglang_fields("entrypoints/openai/protocol.py", "CompletionRequest")),
    ("/generate", {"text": QUESTION}, None, lambda: sglang_fields("managers/io_struct.py", "GenerateReqInput")),
    ("/generate", {"text": QUESTION}, "sampling_params",
     lambda: sglang_fields("sampling/sampling_params.py", "SamplingParams")),
])
def test_fields_of_other_servers_are_known(path, body, inside, names):
    """A field that is unknown here changes nothing, which its sender does not notice."""
    server = Server("--context-length", "64")
    fields = sorted(set(names()))
    assert len(fields) > 20
    for field in [*fields, "unheard_of"]:
        for value in (7, False, "some"):
            more = {inside: {field: value}} if inside else {field: value}
            status, _, text = fetch(server, path, body | more)
            if status != 200:
                assert json.loads(text)["error"]["param"], (field, value, text)
    code, log = server.stop()
    ignored = [line.split('"')[1] for line in log.splitlines() if "ignoring a request field" in line]
    assert code == 0 and ignored == [f"{inside}.unheard_of" if inside else "unheard_of"]


def test_max_tokens_zero_returns_the_prompt(server):
    reply = ask(server, "/v1/completions", prompt=QUESTION, max_tokens=0, echo=True, logprobs=1)
    choice = reply["choices"][0]
    assert choice["text"] == QUESTION and choice["finish_reason"] == "length"
    assert reply["usage"]["completion_tokens"] == 0
    more = ask(server, "/v1/completions", prompt=QUESTION, max_tokens=1, echo=True, logprobs=1)["choices"][0]
    for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        assert choice["logprobs"][key] == more["logprobs"][key][:-1]
    stream = curl("-N", server.url + "/v1/completions", "-d", json.dumps(
        {"prompt": QUESTION, "max_tokens": 0, "echo": True, "stream": True})).split("\n\n")
    chunks = [json.loads(line.removeprefix("data: "))["choices"][0] for line in stream[:-2]]
    assert "".join(chunk["text"] for chunk in chunks) == QUESTION and chunks[-1]["finish_reason"] == "length"
    chat = ask(server, "/v1/chat/completions", messages=[{"role": "user", "content": QUESTION}], max_tokens=0)
    assert chat["choices"][0]["message"]["content"] == ""
    native = ask(server, "/generate", text=QUESTION, return_logprob=True, logprob_start_len=0,
                 sampling_params={"max_new_tokens": 0})
    assert native["output_ids"] == [] and len(native["meta_info"]["input_token_logprobs"]) == native["meta_info"]["prompt_tokens"]


def test_max_tokens_minus_one_is_unlimited(server):
    body = {"prompt": QUESTION, "temperature": 0}
    whole = ask(server, "/v1/completions", **body, max_tokens=-1)["choices"][0]
    assert whole["text"] == ANSWER and whole["finish_reason"] == "stop"
    assert ask(server, "/v1/completions", **body, n_predict=-1)["choices"][0] == whole


def test_special_tokens_can_be_omitted(server):
    ids = ask(server, "/tokenize", prompt=QUESTION)["tokens"]
    plain = ask(server, "/tokenize", prompt=QUESTION, add_special_tokens=False)["tokens"]
    assert ids[1:] == plain
    for path, text in (("/v1/completions", "prompt"), ("/generate", "text")):
        def num_prompt(**more):
            reply = ask(server, path, **{text: QUESTION}, **more)
            return reply["usage"]["prompt_tokens"] if "usage" in reply else reply["meta_info"]["prompt_tokens"]
        assert (num_prompt(), num_prompt(add_special_tokens=False)) == (len(ids), len(plain))
    reply = ask(server, "/v1/completions", prompt=QUESTION, add_special_tokens=False, echo=True, max_tokens=0, logprobs=0)
    assert reply["choices"][0]["text"] == QUESTION and len(reply["choices"][0]["logprobs"]["tokens"]) == len(plain)


def test_prompts_can_be_truncated(server):
    long = "word " * 5000 + QUESTION
    ids = ask(server, "/tokenize", prompt=QUESTION)["tokens"]
    body = {"max_tokens": 0, "echo": True, "logprobs": 0}
    kept = ask(server, "/v1/completions", prompt=long, truncate_prompt_tokens=len(ids), **body)
    assert kept["usage"]["prompt_tokens"] == len(ids) and kept["choices"][0]["text"].endswith(QUESTION[8:])
    same = ask(server, "/v1/completions", prompt=ids, truncate_prompt_tokens=3, **body)
    assert same["usage"]["prompt_tokens"] == 3
    info = ask(server, "/tokenize", prompt="a")
    whole = ask(server, "/generate", text=long, truncate_prompt_tokens=-1, sampling_params={"max_new_tokens": 1})
    assert whole["meta_info"]["prompt_tokens"] == info["max_model_len"] - 1
    chat = ask(server, "/v1/chat/completions", messages=[{"role": "user", "content": "word " * 3000}], max_tokens=1,
               truncate_prompt_tokens=50)
    assert chat["usage"]["prompt_tokens"] == 50


def test_native_replies_can_omit_the_text(server):
    whole = ask(server, "/generate", **GENERATE)
    ids = ask(server, "/generate", **GENERATE, detokenize=False)
    assert ids["text"] == "" and ids["output_ids"] == whole["output_ids"]
    assert error_of(server, "/v1/completions", prompt="a", detokenize=False)["param"] == "detokenize"


def test_incremental_streams_contain_each_token_once():
    server = Server("--incremental-streaming-output")
    body = {"text": QUESTION, "return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 2,
            "sampling_params": {"max_new_tokens": 200, "temperature": 0, "ignore_eos": True, "n": 2}}
    try:
        whole = ask(server, "/generate", **body)
        stream = curl("-N", server.url + "/generate", "-d", json.dumps(body | {"stream": True}))
        events = [json.loads(event.removeprefix("data: ")) for event in stream.split("\n\n")[:-2]]
        assert len(events) > 200
        for index, complete in enumerate(whole):
            own = [event for event in events if event["index"] == index]
            assert "".join(event["text"] for event in own) == complete["text"]
            assert sum((event["output_ids"] for event in own), []) == complete["output_ids"]
            for key in ("input_token_logprobs", "input_top_logprobs", "output_token_logprobs", "output_top_logprobs"):
                assert sum((event["meta_info"][key] for event in own), []) == complete["meta_info"][key]
            assert own[-1]["meta_info"]["completion_tokens"] == 200
    finally:
        assert server.stop()[0] == 0


def test_tokenize_has_the_fields_of_vllm_and_llama_server(server):
    reply = ask(server, "/tokenize", prompt="copy: a", return_token_strs=True)
    assert len(reply["token_strs"]) == reply["count"] and ask(server, "/tokenize", prompt="a")["token_strs"] is None
    llama = ask(server, "/tokenize", content="copy: a")
    assert llama["tokens"] == reply["tokens"][1:]
    assert ask(server, "/tokenize", content="copy: a", add_special=True)["tokens"] == reply["tokens"]
    assert ask(server, "/detokenize", tokens=llama["tokens"])["content"] == "copy: a"
    assert error_of(server, "/tokenize", content="a", with_pieces=True)["param"] == "with_pieces"
    assert error_of(server, "/tokenize", content="a", prompt="b")["param"] == "content"


def test_fields_of_llama_server_are_aliases(server):
    body = {"prompt": QUESTION, "temperature": 0}
    assert ask(server, "/v1/completions", **body, n_predict=2)["choices"][0]["text"] == " scout coffee"
    texts = [ask(server, "/v1/completions", **body, n_predict=60, ignore_eos=True, **more)["choices"][0]["text"]
             for more in ({}, {"repeat_penalty": 2}, {"repetition_penalty": 2})]
    assert texts[0] != texts[1] == texts[2]
    assert error_of(server, "/v1/completions", **body, repeat_penalty=2, repeat_last_n=64)["param"] == "repeat_last_n"
    error = error_of(server, "/v1/completions", **body, grammar="root ::= (")
    assert error["param"] == "grammar"
    assert "send tools" in error_of(server, "/v1/chat/completions", messages=[{"role": "user", "content": "a"}],
                                    functions=[{"name": "f"}])["message"]


def test_any_model_name_can_be_accepted():
    server = Server("--skip-model-name-validation")
    try:
        assert ask(server, "/v1/completions", prompt=QUESTION, model="gpt-4o")["model"] == "tiny"
    finally:
        server.stop()
