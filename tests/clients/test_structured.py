"""Schemas, regexes and grammars, with OpenAI's client and without. The bundled model was not trained on them:
its output
matches only because other tokens are masked."""

import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from typing import Literal, Optional

import jsonschema
import openai
import pydantic
import pytest

from conftest import ANSWER, BINARY, MODEL, QUESTION, Server

# Hostile schemas: rejected with a reason within the time limit.
HOSTILE = {
    "nested oneOf": {"oneOf": [{"$ref": "#"}, {"$ref": "#"}]},
    "endless $ref": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    "nowhere": {"$ref": "#/$defs/none"},
    "bad pattern": {"type": "string", "pattern": "(["},
    "no type": {"type": "nothing"},
    "not": {"not": {"type": "string"}},
    "empty range": {"type": "integer", "minimum": 5, "maximum": 2},
}
SLOW = {"type": "object", "minProperties": 100, "properties": {f"p{i}": {"type": "string"} for i in range(200)}}
SCHEMAS = [
    {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
     "required": ["name", "age"], "additionalProperties": False},
    {"type": "array", "items": {"enum": ["tea", "coffee", None, 3.5]}, "minItems": 2, "maxItems": 5},
    {"$defs": {"tree": {"type": "object", "properties": {"value": {"type": "boolean"}, "left": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}},
                        "required": ["value", "left"], "additionalProperties": False}}, "$ref": "#/$defs/tree"},
    {"type": "object", "properties": {"day": {"type": "string", "format": "date"}, "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
                                      "size": {"type": "number", "minimum": 0.5, "maximum": 2}}, "required": ["day", "code", "size"]},
]


class Step(pydantic.BaseModel):
    do: Literal["open", "close"]
    times: int = pydantic.Field(ge=1, le=9)


class Plan(pydantic.BaseModel):
    steps: list[Step] = pydantic.Field(min_length=1, max_length=3)
    note: Optional[Literal["soon", "later"]]


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def ask(client, **fields):
    fields = {"model": "tiny", "messages": [{"role": "user", "content": QUESTION}], "temperature": 1, "max_tokens": 600} | fields
    return client.chat.completions.create(**fields)


def of_schema(schema):
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": schema, "strict": True}}


def post(server, path, **fields):
    request = urllib.request.Request(server.url + path, json.dumps(fields).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)


@pytest.mark.parametrize("schema", SCHEMAS, ids=["object", "array", "tree", "formats"])
def test_answers_match_the_json_schema(client, schema):
    num_ended = 0
    for seed in (1, 1000):
        for choice in ask(client, response_format=of_schema(schema), n=16, seed=seed).choices:
            if choice.finish_reason != "stop":
                continue
            num_ended += 1
            jsonschema.validate(json.loads(choice.message.content), schema, format_checker=None)
    assert num_ended >= 16


def test_pydantic_models_are_parsed(client):
    for seed in range(5):
        plan = client.chat.completions.parse(
            model="tiny", messages=[{"role": "user", "content": QUESTION}], response_format=Plan, seed=seed, temperature=1
        ).choices[0].message.parsed
        assert isinstance(plan, Plan) and 1 <= len(plan.steps) <= 3


def test_json_object_answers_are_json_objects(client):
    choices = ask(client, response_format={"type": "json_object"}, n=8, seed=3).choices
    ended = [json.loads(choice.message.content) for choice in choices if choice.finish_reason == "stop"]
    assert ended and all(isinstance(value, dict) for value in ended)


@pytest.mark.parametrize("fields, pattern", [
    ({"regex": "(cat|dog)s? [0-9]{2}"}, r"(cat|dog)s? \d\d"),
    ({"guided_regex": "[a-c]{5}"}, "[a-c]{5}"),
    ({"ebnf": 'root ::= "yes" | "no"'}, "yes|no"),
    ({"guided_choice": ["left", "right"]}, "left|right"),
    ({"structured_outputs": {"choice": ["up", "down"]}}, "up|down"),
    ({"guided_json": {"enum": [1, 2]}}, "1|2"),
], ids=str)
def test_grammar_fields_of_sglang_and_vllm(client, fields, pattern):
    for choice in ask(client, n=4, extra_body=fields).choices:
        assert re.fullmatch(pattern, choice.message.content), choice.message.content
        assert choice.finish_reason == "stop"


def test_completions_and_generate_support_grammars(client, server):
    reply = client.completions.create(model="tiny", prompt=[QUESTION, "sort:"], n=2, temperature=1, extra_body={"guided_choice": ["a", "b"]})
    assert {choice.text for choice in reply.choices} <= {"a", "b"}
    sampling = {"json_schema": json.dumps({"enum": ["x", "y"]}), "temperature": 1, "n": 3, "min_new_tokens": 30}
    replies = post(server, "/generate", text=QUESTION, sampling_params=sampling)
    assert {reply["text"] for reply in replies} <= {'"x"', '"y"'}
    assert {reply["meta_info"]["finish_reason"]["type"] for reply in replies} == {"stop"}


def test_stream_chunks_and_logprobs_match_the_full_answer(client):
    fields = {"extra_body": {"regex": "[0-9]{3} [a-z]{4}"}, "seed": 5, "logprobs": True}
    whole = ask(client, **fields).choices[0]
    chunks = [chunk.choices[0] for chunk in ask(client, stream=True, **fields)]
    assert "".join(chunk.delta.content or "" for chunk in chunks) == whole.message.content
    streamed = [token.token for chunk in chunks if chunk.logprobs for token in chunk.logprobs.content]
    assert streamed == [token.token for token in whole.logprobs.content]


@pytest.mark.parametrize("schema", HOSTILE.values(), ids=HOSTILE)
def test_hostile_schemas_are_rejected_with_a_reason(client, schema):
    with pytest.raises(openai.BadRequestError) as rejected:
        ask(client, response_format=of_schema(schema))
    assert rejected.value.body["param"] == "response_format" and len(rejected.value.body["message"]) > 20


def test_slow_grammar_does_not_block_other_requests():
    server = Server("--grammar-timeout", "1")
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    for _ in range(2):
        with pytest.raises(openai.BadRequestError, match="not compiled within 1000 ms"):
            ask(client, response_format=of_schema(SLOW))
    assert ask(client, temperature=0).choices[0].message.content == ANSWER
    deadline = time.monotonic() + 60
    while True:
        try:
            assert ask(client, extra_body={"regex": "[0-9]{3}"}).choices[0].finish_reason == "stop"
            break
        except openai.BadRequestError:
            assert time.monotonic() < deadline
    code, rest = server.stop()
    assert code == 0, rest


def test_command_accepts_a_schema_or_its_file(tmp_path):
    schema = '{"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": false}'
    (tmp_path / "schema.json").write_text(schema)
    for value in (schema, str(tmp_path / "schema.json")):
        run = subprocess.run([BINARY, "generate", "-m", MODEL, "-p", "sun", "--json-schema", value], capture_output=True, text=True)
        assert json.loads(run.stdout)["a"] in (1, 2), run.stderr


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.delenv("ATTEND_GRAMMAR_LIBRARY_PATH", raising=False)
    server = Server()
    with pytest.raises(urllib.error.HTTPError) as rejected:
        post(server, "/v1/chat/completions", messages=[{"role": "user", "content": QUESTION}], response_format={"type": "json_object"})
    error = json.load(rejected.value)["error"]
    assert rejected.value.code == 400 and error["code"] == "unsupported"
    assert "xgrammar==0.2.8" in error["message"] and "apache-tvm-ffi==0.1.15.post2" in error["message"]
    assert server.stop()[0] == 0


assert "ATTEND_GRAMMAR_LIBRARY_PATH" in os.environ, "scripts/check_server.sh names the folder of the libraries"
