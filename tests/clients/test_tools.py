"""Tool calls and reasoning with OpenAI's client."""

import json

import jsonschema
import openai
import pytest

import scripted
from conftest import QUESTION, Server

# Template in the style of Qwen: the server finds the format of tool calls by rendering one.
TEMPLATE = """{{- bos_token }}{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}
{%- for message in messages %}{{ message.content or "" }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>\\n{"name": "' ~ call.function.name ~ '", "arguments": ' ~ call.function.arguments | tojson ~ "}\\n</tool_call>" }}
{%- endfor %}{% endfor %}"""
WEATHER = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 14}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "of a city", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "now"}},
]
CALL = r'<tool_call>\n\{"name": "get_weather", "arguments": \{"days": [1-9], "city": "(Oslo|Rome)"\}\}\n</tool_call>'


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    template = tmp_path_factory.mktemp("templates") / "tools.jinja"
    template.write_text(TEMPLATE)
    server = Server("--chat-template", str(template))
    assert any("tool calls: qwen25 (qwen25 reads the call" in line for line in server.log)
    yield openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    code, rest = server.stop()
    assert code == 0, rest


def ask(client, **fields):
    fields = {"model": "tiny", "messages": [{"role": "user", "content": QUESTION}], "temperature": 1, "max_tokens": 700, "tools": TOOLS} | fields
    return client.chat.completions.create(**fields)


def check(call):
    assert call.type == "function" and call.id.startswith("call_")
    arguments = json.loads(call.function.arguments)
    if call.function.name == "get_weather":
        jsonschema.validate(arguments, WEATHER)
    else:
        assert call.function.name == "now"


def joined(chunks):
    """Returns (content, calls as [name, arguments], finish reason) of a stream, assembled as clients do."""
    content, calls, reason = "", [], None
    for chunk in chunks:
        choice = chunk.choices[0]
        content += choice.delta.content or ""
        for piece in choice.delta.tool_calls or []:
            if piece.index == len(calls):
                assert piece.id and piece.type == "function"
                calls.append([piece.function.name, ""])
            calls[piece.index][1] += piece.function.arguments or ""
        reason = choice.finish_reason or reason
    return content, calls, reason


def test_required_tools_are_called(client):
    for seed in range(4):
        choice = ask(client, tool_choice="required", parallel_tool_calls=False, seed=seed).choices[0]
        assert choice.finish_reason == "tool_calls" and choice.message.content is None
        assert len(choice.message.tool_calls) == 1
        check(choice.message.tool_calls[0])


def test_a_named_tool_is_called(client):
    choice = ask(client, tool_choice={"type": "function", "function": {"name": "get_weather"}}, seed=1).choices[0]
    assert [call.function.name for call in choice.message.tool_calls] == ["get_weather"]
    check(choice.message.tool_calls[0])


@pytest.mark.parametrize("seed", range(3))
def test_streamed_calls_match_the_full_answer(client, seed):
    fields = {"tool_choice": "required", "parallel_tool_calls": False, "seed": seed}
    (whole,) = ask(client, **fields).choices[0].message.tool_calls
    content, calls, reason = joined(ask(client, stream=True, **fields))
    assert (content, reason) == ("", "tool_calls")
    assert calls == [[whole.function.name, whole.function.arguments]]


def test_calls_in_free_text_are_found(client):
    # The bundled model does not call tools by itself. The regex produces the text of a model that does.
    fields = {"tool_choice": "auto", "seed": 2, "extra_body": {"regex": "I look: " + CALL}}
    message = ask(client, **fields).choices[0].message
    assert message.content == "I look:"
    check(message.tool_calls[0])
    content, calls, reason = joined(ask(client, stream=True, **fields))
    assert (content, reason) == ("I look:", "tool_calls")
    assert calls == [["get_weather", message.tool_calls[0].function.arguments]]


@pytest.mark.parametrize("stop, arguments", [("#t", '{"city": "Oslo'), ("weather", None)])
def test_a_stop_string_does_not_complete_a_call(client, stop, arguments):
    call = r'<tool_call>\n\{"name": "get_weather", "arguments": \{"city": "Oslo#tmp", "days": 1\}\}\n</tool_call>'
    fields = {"stop": [stop], "seed": 1, "extra_body": {"regex": call}}
    choice = ask(client, **fields).choices[0]
    content, calls, reason = joined(ask(client, stream=True, **fields))
    assert choice.finish_reason == reason == "stop" and not choice.message.content and not content
    whole = [[call.function.name, call.function.arguments] for call in choice.message.tool_calls or []]
    assert whole == calls == ([["get_weather", arguments]] if arguments else [])


def test_ids_have_the_form_that_the_template_accepts(tmp_path):
    template = tmp_path / "ids.jinja"
    template.write_text("""{{ bos_token }}{% for m in messages %}{{ m.content or "" }}{% if m.tool_calls %}[TOOL_CALLS][
{%- for call in m.tool_calls %}{% if call.id | length != 9 %}{{ raise_exception("ids need nine characters") }}{% endif %}
{{- '{"name": "' ~ call.function.name ~ '", "arguments": ' ~ call.function.arguments | tojson ~ ', "id": "' ~ call.id ~ '"}' }}
{%- endfor %}]{% endif %}{% endfor %}""")
    server = Server("--chat-template", str(template))
    assert any("tool calls: mistral_v3" in line for line in server.log)
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    message = ask(client, tool_choice="required", parallel_tool_calls=False, seed=1).choices[0].message
    results = [{"role": "tool", "tool_call_id": call.id, "content": "noon"} for call in message.tool_calls]
    assert ask(client, messages=[{"role": "user", "content": "When?"}, message, *results], max_tokens=4).choices
    assert server.stop()[0] == 0


def test_tool_results_are_accepted(client):
    call = {"id": "call_1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    talk = [{"role": "user", "content": "When?"}, {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "noon"}]
    choice = ask(client, messages=talk, max_tokens=4, temperature=0, tool_choice="none").choices[0]
    assert choice.message.tool_calls is None and choice.message.content is not None


def whole(chunks):
    """Returns the message of a stream, assembled as agents do, and the finish reason."""
    message, reason = {"role": "assistant", "content": "", "tool_calls": []}, None
    for chunk in chunks:
        delta, reason = chunk.choices[0].delta, chunk.choices[0].finish_reason or reason
        message["content"] += delta.content or ""
        for piece in delta.tool_calls or []:
            if piece.index == len(message["tool_calls"]):
                message["tool_calls"].append({"id": piece.id, "type": "function", "function": {"name": piece.function.name, "arguments": ""}})
            message["tool_calls"][piece.index]["function"]["arguments"] += piece.function.arguments or ""
    return message, reason


@pytest.mark.parametrize("stream", [False, True])
def test_a_loop_of_five_calls(tmp_path, stream):
    server = scripted.start(tmp_path)
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    parameters = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
    fields = {"model": "tiny", "max_tokens": 128, "temperature": 0, "extra_body": {"regex": scripted.REGEX},
              "tools": [{"type": "function", "function": {"name": "add", "parameters": parameters}}]}
    messages, calls = [{"role": "user", "content": "Add."}], []
    while True:
        answer = client.chat.completions.create(messages=messages, stream=stream, **fields)
        message, reason = whole(answer) if stream else (answer.choices[0].message.model_dump(exclude_none=True), answer.choices[0].finish_reason)
        if not message.get("tool_calls"):
            break
        (call,) = message["tool_calls"]
        given = json.loads(call["function"]["arguments"])
        assert reason == "tool_calls" and call["function"]["name"] == "add"
        calls.append((given["a"], given["b"]))
        messages += [message, {"role": "tool", "tool_call_id": call["id"], "content": str(sum(given.values()))}]
    assert calls == scripted.CALLS and message["content"].strip() == scripted.FINAL
    code, rest = server.stop()
    assert code == 0, rest


def test_invalid_tools_are_rejected(client):
    with pytest.raises(openai.BadRequestError, match="expected one of the tools"):
        ask(client, tool_choice={"type": "function", "function": {"name": "unknown"}})
    with pytest.raises(openai.BadRequestError, match="only with tools"):
        ask(client, tools=[], tool_choice="required")
    faulty = {"name": "faulty", "strict": True, "parameters": {"type": "object", "properties": {"a": {"not": {}}}}}
    with pytest.raises(openai.BadRequestError, match='the schema of "faulty"'):
        ask(client, tools=[*TOOLS, {"type": "function", "function": faulty}])


def test_reasoning_is_separate(tmp_path):
    template = tmp_path / "thinks.jinja"
    template.write_text("{{ bos_token }}{{ messages[0].content }}<think>\n")
    server = Server("--chat-template", str(template), "--reasoning-parser", "qwen3")
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    fields = {"tools": openai.NOT_GIVEN, "max_tokens": 6, "temperature": 0, "extra_body": {"ignore_eos": True}}
    message = ask(client, **fields).choices[0].message
    assert message.content == "" and message.reasoning_content
    chunks = list(ask(client, stream=True, **fields))
    streamed = "".join(getattr(chunk.choices[0].delta, "reasoning_content", None) or "" for chunk in chunks)
    assert streamed == message.reasoning_content
    fields["extra_body"]["separate_reasoning"] = False
    assert ask(client, **fields).choices[0].message.content.strip() == message.reasoning_content.strip()
    assert server.stop()[0] == 0


@pytest.mark.parametrize("flags", [(), ("--disable-overlap-schedule",)], ids=["overlap", "no overlap"])
def test_reasoning_is_limited(tmp_path, flags):
    template = tmp_path / "thinks.jinja"
    template.write_text("{{ bos_token }}{{ messages[0].content }}<think>\n{% if enable_thinking is defined and not enable_thinking %}</think>{% endif %}")
    server = Server("--chat-template", str(template), "--reasoning-parser", "qwen3", "--tool-call-parser", "hermes", *flags)
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)

    def answers(**more):
        extra = {"ignore_eos": True, **more.pop("extra_body", {})}
        fields = {"tools": openai.NOT_GIVEN, "max_tokens": 40, "temperature": 0, "extra_body": extra, **more}
        whole = ask(client, **fields)
        parts = [{"content": "", "reasoning_content": ""} for _ in whole.choices]
        for chunk in ask(client, stream=True, **fields):
            for choice in chunk.choices:
                for key in parts[choice.index]:
                    parts[choice.index][key] += getattr(choice.delta, key, None) or ""
        assert [(c.message.content, getattr(c.message, "reasoning_content", None) or "") for c in whole.choices] == [tuple(part.values()) for part in parts]
        return whole

    free = answers().choices[0].message
    assert free.content == "" and free.reasoning_content
    limited = answers(extra_body={"thinking_budget": 6}, logprobs=True)
    message = limited.choices[0].message
    assert free.reasoning_content.startswith(message.reasoning_content) and message.content
    # The closing tag counts as well: it has several tokens in this vocabulary.
    assert 6 <= limited.usage.completion_tokens_details.reasoning_tokens < 24
    tokens = "".join(token.token for token in limited.choices[0].logprobs.content)
    assert tokens.replace("<|end|>", "").endswith(message.content)
    for same in ({"thinking": {"type": "enabled", "budget_tokens": 6}}, {"chat_template_kwargs": {"thinking_budget": 6}}):
        assert answers(extra_body=same).choices[0].message == message
    several = answers(extra_body={"thinking_budget": 3}, n=3, temperature=1, seed=1)
    assert all(choice.message.content for choice in several.choices)
    for off in ({"reasoning_effort": "none"}, {"enable_thinking": False}):
        none = answers(extra_body=off)
        assert none.usage.completion_tokens_details.reasoning_tokens == 0 and none.choices[0].message.content
    called = ask(client, tool_choice="required", max_tokens=300, temperature=1, extra_body={"thinking_budget": 4})
    assert called.choices[0].message.tool_calls and called.choices[0].message.reasoning_content
    with pytest.raises(openai.BadRequestError, match='reasoning_effort "much": expected one of "none", "minimal"'):
        ask(client, reasoning_effort="much")
    with pytest.raises(openai.BadRequestError, match="separate_reasoning"):
        ask(client, extra_body={"thinking_budget": 4, "separate_reasoning": False})
    assert server.stop()[0] == 0
