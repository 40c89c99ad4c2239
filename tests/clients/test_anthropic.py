"""Anthropic's own client, unchanged."""

import json
import re

import anthropic
import pytest

import scripted
from conftest import ANSWER, QUESTION, Server
from test_http import fetch

ADD = {"name": "add", "description": "of two numbers",
       "input_schema": {"type": "object", "properties": {name: {"type": "integer", "minimum": 0, "maximum": 99} for name in "ab"},
                        "required": ["a", "b"], "additionalProperties": False}}
# A turn of the assistant in which the model thinks. The budget of the thinking ends it, since the model does not.
THINKS = "{{ bos_token }}{% for message in messages %}{{ message.reasoning_content or '' }}{{ message.content }}{% endfor %}<think>\n"


def connect(server, **options):
    return anthropic.Anthropic(**({"base_url": server.url, "api_key": "none", "max_retries": 0} | options))


@pytest.fixture(scope="module")
def client(server):
    return connect(server)


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    server = scripted.start(tmp_path_factory.mktemp("script"))
    yield connect(server)
    assert server.stop()[0] == 0


@pytest.fixture(scope="module")
def thinker(tmp_path_factory):
    template = tmp_path_factory.mktemp("thinks") / "thinks.jinja"
    template.write_text(THINKS)
    server = Server("--chat-template", str(template), "--reasoning-parser", "qwen3")
    yield connect(server)
    assert server.stop()[0] == 0


def create(client, **fields):
    fields = {"model": "tiny", "max_tokens": 128, "messages": [{"role": "user", "content": QUESTION}]} | fields
    return client.messages.create(**fields)


def stream(client, **fields):
    """Returns the message that the client assembles from the events, and the names of the events."""
    fields = {"model": "tiny", "max_tokens": 128, "messages": [{"role": "user", "content": QUESTION}]} | fields
    with client.messages.stream(**fields) as events:
        names = [event.type for event in events]
        return events.get_final_message(), names


def blocks(message):
    """Returns the content without ids, which are random."""
    content = [block.model_dump(exclude_none=True) for block in message.content]
    return [{key: value for key, value in block.items() if key not in ("id", "parsed_output")} for block in content]


def test_create_answers(client):
    message = create(client)
    assert blocks(message) == [{"type": "text", "text": ANSWER}]
    assert (message.role, message.model, message.stop_reason, message.stop_sequence) == ("assistant", "tiny", "end_turn", None)
    assert message.id.startswith("msg_") and message._request_id == message.id
    assert message.usage.output_tokens == 5


def test_the_stream_has_the_same_content(client):
    message, names = stream(client)
    assert blocks(message) == [{"type": "text", "text": ANSWER}]
    assert (message.stop_reason, message.usage.output_tokens) == ("end_turn", 5)
    raw = [name for name in names if name != "text"]  # "text" is the helper's
    assert raw == ["message_start", "content_block_start", *["content_block_delta"] * 4, "content_block_stop", "message_delta", "message_stop"]
    with client.messages.stream(model="tiny", max_tokens=9, messages=[{"role": "user", "content": QUESTION}]) as events:
        assert "".join(events.text_stream) == ANSWER


def test_a_ping_follows_the_start(server):
    body = {"model": "tiny", "max_tokens": 2, "stream": True, "messages": [{"role": "user", "content": QUESTION}]}
    status, headers, text = fetch(server, "/v1/messages", body)
    assert status == 200 and headers["Content-Type"].startswith("text/event-stream")
    assert text.split("\n\n")[1] == 'event: ping\ndata: {"type":"ping"}'


def test_system_blocks_and_prefill(client):
    system = [{"type": "text", "text": "one", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "two"}]
    assert blocks(create(client, system=system))[0]["text"] == ANSWER
    talk = [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}, {"role": "assistant", "content": " scout coffee"}]
    assert blocks(create(client, messages=talk))[0]["text"] == " writer pea"


def test_stop_reasons(client):
    cut = create(client, max_tokens=2)
    assert (blocks(cut)[0]["text"], cut.stop_reason) == (" scout coffee", "max_tokens")
    for message in (create(client, stop_sequences=["zz", " writer"]), stream(client, stop_sequences=["zz", " writer"])[0]):
        assert (blocks(message)[0]["text"], message.stop_reason, message.stop_sequence) == (" scout coffee", "stop_sequence", " writer")
    full = create(client, max_tokens=20000, extra_body={"ignore_eos": True, "temperature": 0})
    assert full.stop_reason == "model_context_window_exceeded"


def test_usage_counts_the_prompt_once(client):
    talk = [{"role": "user", "content": "usage " + "word " * 200 + QUESTION}]
    counted = client.messages.count_tokens(model="tiny", messages=talk).input_tokens
    first, again = create(client, messages=talk), create(client, messages=talk)
    assert (first.usage.input_tokens, first.usage.cache_read_input_tokens) == (counted, 0)
    assert again.usage.cache_read_input_tokens > 100
    assert again.usage.input_tokens + again.usage.cache_read_input_tokens == counted
    marked = create(client, messages=talk, cache_control={"type": "ephemeral"}).usage
    assert (marked.input_tokens, marked.cache_read_input_tokens) == (0, again.usage.cache_read_input_tokens)
    assert marked.cache_creation_input_tokens == again.usage.input_tokens
    assert stream(client, messages=talk)[0].usage.input_tokens == again.usage.input_tokens


def test_usage_shows_where_the_prompt_leaves_the_cache(client, server):
    def talk(day):
        return [{"role": "user", "content": "miss" + " sun" * 150 + f" {day}" + " fox" * 90}]

    create(client, messages=talk("lemon"))
    miss = create(client, messages=talk("melody")).usage.cache_miss
    assert miss["before"].endswith(" sun sun") and miss["after"].startswith(" melody fox") and miss["position"] > 150
    again = stream(client, messages=talk("melody"))[0].usage
    assert not hasattr(again, "cache_miss") and again.cache_read_input_tokens > 150
    chat = {"messages": talk("pea")}
    details = json.loads(fetch(server, "/v1/chat/completions", chat)[2])["usage"]["prompt_tokens_details"]
    assert details["cache_miss"]["position"] == miss["position"] and details["cache_miss"]["after"].startswith(" pea")
    message = create(client, extra_body={"diagnostics": {"previous_message_id": None}})
    assert message.diagnostics.cache_miss_reason.type == "unavailable"


def test_the_prompt_is_cached_without_an_answer(client):
    talk = [{"role": "user", "content": "warm " + "word " * 200}]
    warmed = create(client, messages=talk, max_tokens=0)
    assert (warmed.content, warmed.usage.output_tokens, warmed.stop_reason) == ([], 0, "max_tokens")
    assert create(client, messages=talk, max_tokens=1).usage.cache_read_input_tokens > 100


@pytest.mark.parametrize("choice", [{"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "add"}])
def test_required_tools_are_called(script, choice):
    for seed in range(3):
        fields = {"tools": [ADD], "tool_choice": choice, "max_tokens": 400, "extra_body": {"seed": seed}}
        message = create(script, **fields)
        (call,) = message.content
        assert (call.name, call.id[:6], message.stop_reason) == ("add", "toolu_", "tool_use")
        assert set(call.input) == {"a", "b"}
        assert blocks(stream(script, **fields)[0]) == blocks(message)


@pytest.mark.parametrize("ask", [create, lambda *args, **fields: stream(*args, **fields)[0]], ids=["complete", "streamed"])
def test_a_loop_of_five_calls(script, ask):
    talk, calls = [{"role": "user", "content": "add"}], []
    while True:
        message = ask(script, messages=talk, tools=[ADD], extra_body={"regex": scripted.REGEX, "temperature": 0})
        talk.append({"role": "assistant", "content": message.content})
        uses = [block for block in message.content if block.type == "tool_use"]
        if not uses:
            break
        assert message.stop_reason == "tool_use" and message.content[0].text.strip() == scripted.WORDS[len(calls)]
        calls += [(use.input["a"], use.input["b"]) for use in uses]
        talk.append({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": use.id, "content": str(use.input["a"] + use.input["b"])} for use in uses]})
    assert calls == scripted.CALLS
    assert (message.content[0].text.strip(), message.stop_reason) == (scripted.FINAL, "end_turn")


def test_the_clients_tool_runner(script):
    calls = []

    @anthropic.beta_tool
    def add(a: int, b: int) -> str:
        """Adds two numbers."""
        calls.append((a, b))
        return str(a + b)

    final = script.beta.messages.tool_runner(
        model="tiny", max_tokens=128, tools=[add], messages=[{"role": "user", "content": "add"}],
        extra_body={"regex": scripted.REGEX, "temperature": 0}).until_done()
    assert calls == scripted.CALLS
    assert final.content[0].text.strip() == scripted.FINAL


def test_thinking_is_limited_signed_and_echoed(thinker):
    # The model would end its answer within the thinking.
    fields = {"thinking": {"type": "enabled", "budget_tokens": 6}, "max_tokens": 40, "extra_body": {"temperature": 0, "ignore_eos": True}}
    message = create(thinker, **fields)
    thought = message.content[0]
    assert thought.type == "thinking" and thought.thinking and thought.signature
    assert 6 <= message.usage.output_tokens_details.thinking_tokens <= 20
    assert message.content[1].type == "text"
    streamed, names = stream(thinker, **fields)
    assert blocks(streamed) == blocks(message) and "signature" in names

    def count(content):
        talk = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": content}, {"role": "user", "content": "more"}]
        return thinker.messages.count_tokens(model="tiny", messages=talk).input_tokens

    answer = {"type": "text", "text": "so"}
    assert count([thought, answer]) > count([answer])
    with pytest.raises(anthropic.BadRequestError, match=r"messages\[1\].content\[0\].signature"):
        count([thought.model_copy(update={"thinking": thought.thinking + "!"}), answer])
    omitted = create(thinker, **fields | {"thinking": fields["thinking"] | {"display": "omitted"}})
    assert omitted.content[0].thinking == ""
    assert count([omitted.content[0], answer]) == count([thought, answer])
    # The template has no switch, so that the thinking is closed at once.
    (text,) = create(thinker, **fields | {"thinking": {"type": "disabled"}}).content
    assert text.type == "text" and text.text


@pytest.mark.parametrize("parser, text", [
    ("glm47", "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>12</arg_value>\n<arg_key>b</arg_key>\n<arg_value>34</arg_value>\n</tool_call>"),
    ("qwen25", '<tool_call>\n{"name": "add", "arguments": {"a": 12, "c": [[1, -2.5], [true]], "b": "x y"}}\n</tool_call>')])
def test_calls_that_are_cut_off_are_equal_in_streams(parser, text):
    server = Server("--tool-call-parser", parser)
    fields = {"tools": [ADD], "extra_body": {"regex": re.escape(text), "temperature": 0}}
    inputs = []
    for max_tokens in range(1, 200):
        whole, streamed = create(connect(server), **fields, max_tokens=max_tokens), stream(connect(server), **fields, max_tokens=max_tokens)[0]
        assert blocks(whole) == blocks(streamed) and whole.stop_reason == streamed.stop_reason
        inputs += [block.input for block in whole.content if block.type == "tool_use"]
        if whole.stop_reason == "tool_use":
            break
    assert {"a": 12} in inputs and set(inputs[-1]) >= {"a", "b"}
    assert server.stop()[0] == 0


def test_json_output(client):
    schema = {"type": "object", "properties": {"word": {"enum": ["scout", "pea"]}}, "required": ["word"], "additionalProperties": False}
    message = create(client, output_config={"format": {"type": "json_schema", "schema": schema}}, max_tokens=100)
    if message.stop_reason == "end_turn":
        assert json.loads(message.content[0].text)["word"] in ("scout", "pea")
    assert message.content[0].text.lstrip().startswith("{")


def test_errors_have_anthropics_schema(client, server):
    with pytest.raises(anthropic.NotFoundError, match="model \"other\"") as error:
        create(client, model="other")
    assert error.value.body["error"]["type"] == "not_found_error" and error.value.body["request_id"]
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    cases = [({"messages": [{"role": "user", "content": [image]}]}, r"messages: images: .* is supported with text only"),
             ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, r"tools\[0\].type: \"web_search_20250305\""),
             ({"messages": [{"role": "user", "content": "word " * 4000}]}, "prompt is too long"),
             ({"stop_sequences": [""]}, "stop"),
             ({"extra_body": {"temperature": -1}}, "temperature")]
    for fields, message in cases:
        with pytest.raises(anthropic.BadRequestError, match=message) as error:
            create(client, **fields)
        assert error.value.body["type"] == "error" and error.value.body["error"]["type"] == "invalid_request_error"
    with pytest.raises(anthropic.BadRequestError, match="max_tokens: missing"):
        client.post("/v1/messages", cast_to=object, body={"model": "tiny", "messages": [{"role": "user", "content": "x"}]})
    for path, body, headers, status, kind in [
            ("/v1/messages/batches", {}, {}, 404, "not_found_error"),
            ("/v1/messages", {"x": "y"}, {"Content-Encoding": "gzip"}, 415, "invalid_request_error")]:
        code, _, text = fetch(server, path, body, headers)
        assert (code, json.loads(text)["error"]["type"]) == (status, kind)
    assert fetch(server, "/v1/messages")[0] == 405
    # The client sends a header by which its errors at paths of both APIs get its format.
    with pytest.raises(anthropic.NotFoundError) as error:
        client.models.retrieve("zz")
    assert error.value.body["type"] == "error" and error.value.body["error"]["details"] == {"error_code": "model_not_found"}
    for path in ("/v1/models/zz", "/v1/complete"):
        assert json.loads(fetch(server, path, headers={"anthropic-version": "2023-06-01"})[2])["error"]["type"] == "not_found_error"
        assert "type" not in json.loads(fetch(server, path)[2])


def test_keys_are_checked():
    server = Server("--api-key", "secret", "--max-body-mb", "1", "--max-queued-requests", "1")
    try:
        with pytest.raises(anthropic.AuthenticationError) as error:
            create(connect(server, api_key="wrong"))
        assert error.value.body["error"]["type"] == "authentication_error"
        assert blocks(create(connect(server, api_key="secret")))[0]["text"] == ANSWER
        assert blocks(create(connect(server, api_key=None, auth_token="secret")))[0]["text"] == ANSWER
        with pytest.raises(anthropic.APIStatusError) as error:
            create(connect(server, api_key="secret"), messages=[{"role": "user", "content": "w" * (2 << 20)}])
        assert (error.value.status_code, error.value.body["error"]["type"]) == (413, "request_too_large")
    finally:
        assert server.stop()[0] == 0


def test_lists_the_models(client):
    (model,) = client.models.list()
    assert (model.id, model.type, model.display_name) == ("tiny", "model", "tiny")
    assert client.models.retrieve("tiny").id == "tiny"


def test_reasoning_cannot_end_an_answer_that_has_to_call(thinker):
    # The model prefers the end of the sequence to every token of the reasoning.
    message = create(thinker, tools=[ADD], tool_choice={"type": "any"}, thinking={"type": "enabled", "budget_tokens": 8},
                     max_tokens=500, extra_body={"logit_bias": {"1": 100}})
    assert [block.type for block in message.content] == ["thinking", "tool_use"]
    assert message.stop_reason == "tool_use"


def test_prompts_are_counted_with_a_thinking_budget(thinker):
    messages = [{"role": "user", "content": QUESTION}]
    thinking = {"type": "enabled", "budget_tokens": 1024}
    assert thinker.messages.count_tokens(model="tiny", messages=messages, thinking=thinking).input_tokens > 0


def test_errors_before_an_answer_have_a_request_id(client):
    with pytest.raises(anthropic.BadRequestError) as error:
        client.messages.count_tokens(model="tiny", messages=[])
    assert error.value.body["request_id"] == error.value.response.headers["request-id"]
