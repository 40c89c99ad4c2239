"""The Responses API with OpenAI's client and its agent framework."""

import asyncio
import json
import urllib.error
import urllib.request
from typing import Literal

import jsonschema
import openai
import pytest
from conftest import ANSWER, QUESTION, Server

from test_http import fetch
from test_tools import CALL, TEMPLATE, WEATHER

TOOLS = [{"type": "function", "name": "get_weather", "description": "of a city", "parameters": WEATHER, "strict": True}]
NUM_CALLS = 5


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    template = tmp_path_factory.mktemp("templates") / "tools.jinja"
    template.write_text(TEMPLATE)
    started = Server("--chat-template", str(template), "--max-stored-responses", "40")
    yield started
    code, rest = started.stop()
    assert code == 0, rest


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def ask(client, **fields):
    return client.responses.create(**({"model": "tiny", "input": QUESTION, "temperature": 0, "max_output_tokens": 700} | fields))


def plain(value):
    """Returns the object without ids and times, which differ between two requests."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if key not in ("id", "call_id", "item_id", "created_at")}
    return [plain(item) for item in value] if isinstance(value, list) else value


def test_answers_a_text(client):
    response = ask(client, instructions="Copy.", metadata={"a": "b"}, top_p=0.5)
    assert (response.status, response.output_text.strip()) == ("completed", ANSWER.strip())
    assert response.id.startswith("resp_") and response.output[0].id.startswith("msg_")
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    assert response.usage.output_tokens_details.reasoning_tokens == 0
    assert (response.instructions, response.metadata, response.top_p, response.store) == ("Copy.", {"a": "b"}, 0.5, True)
    long = "word " * 200
    assert ask(client, input=long, max_output_tokens=1).usage.input_tokens_details.cached_tokens == 0
    assert ask(client, input=long, max_output_tokens=1).usage.input_tokens_details.cached_tokens > 100


def test_the_token_limit_makes_a_response_incomplete(client):
    response = ask(client, max_output_tokens=2)
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert response.output[0].status == "incomplete" and response.usage.output_tokens == 2
    *_, last = ask(client, max_output_tokens=2, stream=True)
    assert (last.type, last.response.status) == ("response.incomplete", "incomplete")
    assert plain(last.response.output[0].to_dict()) == plain(response.output[0].to_dict())


def test_a_stream_has_all_events_in_order(client):
    events = list(ask(client, stream=True, include=["message.output_text.logprobs"], top_logprobs=2))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    types = [event.type.removeprefix("response.") for event in events]
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    assert types == ["created", "in_progress", "output_item.added", "content_part.added", *["output_text.delta"] * len(deltas),
                     "output_text.done", "content_part.done", "output_item.done", "completed"]
    assert len(deltas) > 1 and "".join(delta.delta for delta in deltas) == events[-4].text
    response = events[-1].response
    assert events[-2].item == response.output[0]
    logprobs = response.output[0].content[0].logprobs
    assert "".join(entry.token for entry in logprobs) == response.output_text
    assert [entry.token for delta in deltas for entry in delta.logprobs] == [entry.token for entry in logprobs]
    assert all(len(entry.top_logprobs) == 2 for entry in logprobs)
    whole = ask(client, include=["message.output_text.logprobs"], top_logprobs=2)
    assert plain(whole.output[0].to_dict()) == plain(response.output[0].to_dict())


def test_the_stream_helper_assembles_the_response(client):
    with client.responses.stream(model="tiny", input=QUESTION, temperature=0) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        response = stream.get_final_response()
    assert text == response.output_text and text.strip() == ANSWER.strip()


def test_structured_outputs_are_parsed(client):
    import pydantic

    class Place(pydantic.BaseModel):
        city: Literal["Oslo", "Rome"]
        sunny: bool

    response = client.responses.parse(model="tiny", input=QUESTION, text_format=Place, temperature=1, max_output_tokens=700, extra_body={"seed": 3})
    assert isinstance(response.output_parsed, Place)
    assert response.text.format.type == "json_schema"
    assert ask(client, text={"format": {"type": "json_object"}}).output_text.startswith("{")


def test_conversations_continue_from_stored_responses(client):
    first = ask(client, input=[{"role": "developer", "content": "Copy."}, {"role": "user", "content": "copy: sun -> sun"}])
    second = ask(client, input=QUESTION, previous_response_id=first.id)
    assert second.previous_response_id == first.id
    joined = [*[item.to_dict() for item in client.responses.input_items.list(first.id, order="asc")], *[item.to_dict() for item in first.output],
              {"role": "user", "content": QUESTION}]
    assert ask(client, input=joined).usage.input_tokens == second.usage.input_tokens
    page = client.responses.input_items.list(second.id, limit=2)
    assert page.has_more and [item.role for item in page.data] == ["user", "assistant"]
    assert [item.role for item in page] == ["user", "assistant", "user", "developer"]
    reference = {"type": "item_reference", "id": first.output[0].id}
    assert ask(client, input=[*joined[:2], reference, joined[3]]).usage.input_tokens == second.usage.input_tokens
    assert client.responses.retrieve(second.id) == second
    with pytest.raises(openai.BadRequestError, match="not computed in the background"):
        client.responses.cancel(second.id)
    client.responses.delete(second.id)
    for lost in (lambda: client.responses.retrieve(second.id), lambda: client.responses.delete(second.id),
                 lambda: client.responses.input_items.list(second.id)):
        with pytest.raises(openai.NotFoundError, match="not stored"):
            lost()
    with pytest.raises(openai.NotFoundError) as error:
        ask(client, previous_response_id=second.id)
    assert (error.value.code, error.value.param) == ("previous_response_not_found", "previous_response_id")
    unstored = ask(client, store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(unstored.id)


def test_the_store_drops_the_least_recently_used_response(client):
    first, second = ask(client, max_output_tokens=1), ask(client, max_output_tokens=1)
    for _ in range(39):
        client.responses.retrieve(first.id)
        ask(client, max_output_tokens=1)
    client.responses.retrieve(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(second.id)


def weather_call(response):
    (call,) = [item for item in response.output if item.type == "function_call"]
    assert (call.name, call.status) == ("get_weather", "completed") and call.call_id.startswith("call_")
    jsonschema.validate(json.loads(call.arguments), WEATHER)
    return call


def streamed(client, **fields):
    """Returns the response of a stream, after comparing it with the events."""
    arguments, response = "", None
    for event in ask(client, stream=True, **fields):
        if event.type == "response.function_call_arguments.delta":
            arguments += event.delta
        if event.type == "response.function_call_arguments.done":
            assert event.arguments == arguments
        if event.type == "response.completed":
            response = event.response
    assert weather_call(response).arguments == arguments
    return response


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("stored", [False, True])
def test_a_loop_of_five_calls(client, stream, stored):
    fields = {"tools": TOOLS, "temperature": 1, "parallel_tool_calls": False, "store": stored, "include": ["reasoning.encrypted_content"]}
    items, previous = [{"role": "user", "content": QUESTION}], None
    for turn in range(NUM_CALLS):
        choice = "required" if turn % 2 else {"type": "function", "name": "get_weather"}
        response = (streamed if stream else ask)(
            client, **fields, input=items, tool_choice=choice, previous_response_id=previous, extra_body={"seed": turn})
        call = weather_call(response)
        output = {"type": "function_call_output", "call_id": call.call_id, "output": f"sun for {turn} days"}
        if stored:
            items, previous = [output], response.id
        else:
            items += [*response.output, output]
    last = ask(client, **fields, input=items, tool_choice="none", previous_response_id=previous, max_output_tokens=8)
    assert [item.type for item in last.output] == ["message"]
    if stored:
        types = [item.type for item in client.responses.input_items.list(last.id, order="asc")]
        assert types == ["message", *["function_call", "function_call_output"] * NUM_CALLS]


def test_text_and_calls_become_items_in_order(client):
    fields = {"tools": TOOLS, "temperature": 1, "extra_body": {"regex": "I look: " + CALL + CALL, "seed": 2}}
    response = ask(client, **fields)
    assert [item.type for item in response.output] == ["message", "function_call", "function_call"]
    assert response.output_text == "I look:"
    *_, last = ask(client, stream=True, **fields)
    assert [plain(item.to_dict()) for item in last.response.output] == [plain(item.to_dict()) for item in response.output]


def test_custom_tools_receive_a_text(client):
    tool = {"type": "custom", "name": "shell", "description": "runs a command"}
    text = r'<tool_call>\n\{"name": "shell", "arguments": \{"input": "(ls|cat) \\"a\\"\\n"\}\}\n</tool_call>'
    fields = {"tools": [tool], "temperature": 1, "extra_body": {"regex": text, "seed": 4}}
    (call,) = ask(client, **fields).output
    assert (call.type, call.name) == ("custom_tool_call", "shell") and call.input in ('ls "a"\n', 'cat "a"\n')
    (forced,) = ask(client, tools=[tool], tool_choice={"type": "custom", "name": "shell"}, max_output_tokens=30).output
    assert (forced.type, forced.name) == ("custom_tool_call", "shell")
    events = list(ask(client, stream=True, **fields))
    (done,) = [event for event in events if event.type == "response.custom_tool_call_input.done"]
    assert done.input == call.input == "".join(event.delta for event in events if event.type == "response.custom_tool_call_input.delta")
    result = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "done"}
    assert ask(client, input=[{"role": "user", "content": "Run."}, call, result], tools=[tool], max_output_tokens=4).output


def first_token(client, text):
    return client.post("/tokenize", cast_to=object, body={"prompt": text, "add_special_tokens": False})["tokens"][0]


def test_a_schema_of_the_text_allows_calls(client):
    schema = {"type": "object", "properties": {"place": {"const": "Oslo"}}, "required": ["place"], "additionalProperties": False}
    text = {"format": {"type": "json_schema", "name": "place", "schema": schema}}
    # A bias for the first byte of either form selects it.
    first = {kind: first_token(client, text) for kind, text in (("message", "{"), ("function_call", "<"))}
    for kind, token in first.items():
        response = ask(client, tools=TOOLS, text=text, temperature=1, parallel_tool_calls=False, extra_body={"seed": 1, "logit_bias": {str(token): 60}})
        assert [item.type for item in response.output] == [kind]
        if kind == "message":
            assert json.loads(response.output_text) == {"place": "Oslo"}
        else:
            weather_call(response)


def test_reasoning_becomes_an_item(tmp_path):
    template = tmp_path / "thinks.jinja"
    template.write_text("{{ bos_token }}{% for message in messages %}{% if message.reasoning_content %}[{{ message.reasoning_content }}]"
                        "{% endif %}{{ message.content }}{% endfor %}<think>\n")
    server = Server("--chat-template", str(template), "--reasoning-parser", "qwen3")
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    response = ask(client, max_output_tokens=6, extra_body={"ignore_eos": True}, include=["reasoning.encrypted_content"])
    (item,) = response.output
    assert (item.type, item.status, response.usage.output_tokens_details.reasoning_tokens) == ("reasoning", "incomplete", 6)
    assert item.content[0].text and item.encrypted_content and not item.summary
    events = list(ask(client, max_output_tokens=6, extra_body={"ignore_eos": True}, stream=True, reasoning={"summary": "auto", "effort": "low"}))
    summary = "".join(event.delta for event in events if event.type == "response.reasoning_summary_text.delta")
    assert summary == events[-1].response.output[0].summary[0].text == item.content[0].text
    # A client returns reasoning with or without its text.
    encoded = {"type": "reasoning", "id": item.id, "summary": [], "encrypted_content": item.encrypted_content}
    count = lambda *items: client.responses.input_tokens.count(model="tiny", input=[*items, {"role": "user", "content": "Go on."}]).input_tokens
    assert count(encoded) == count(item.to_dict()) > count()
    assert server.stop()[0] == 0


@pytest.mark.parametrize("fields, param, message", [
    ({"tools": [{"type": "web_search"}]}, "tools[0].type", "attend runs no tools itself"),
    ({"tools": TOOLS, "tool_choice": {"type": "function", "name": "unknown"}}, "tool_choice.name", "expected one of the tools"),
    ({"input": [{"type": "function_call_output", "call_id": "c", "output": ""}]}, "input[0].call_id", "no earlier call has this id"),
    ({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}]}, "input", "no output for the call of f"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content[0].image_url", "data:image/jpeg"),
    ({"input": []}, "input", "at least one item"),
    ({"background": True}, "background", "not supported"),
    ({"conversation": "conv_1"}, "conversation", "previous_response_id"),
    ({"reasoning": {"effort": "some"}}, "reasoning.effort", "minimal"),
    ({"extra_body": {"messages": [{}]}}, "messages", "expected input"),
    ({"metadata": {"a" * 65: "b"}}, "metadata", "65 characters"),
    ({"max_output_tokens": 0}, "max_output_tokens", "1 to"),
    ({"input": "word " * 3000}, "input", "the context has room for"),
    ({"input": "word " * 9000}, "input", "the context holds 2048 tokens"),
])
def test_invalid_requests_are_rejected(client, fields, param, message):
    with pytest.raises(openai.BadRequestError, match=message) as error:
        ask(client, **fields)
    assert error.value.param == param


def test_truncation_drops_the_oldest_messages(client):
    old = [{"role": role, "content": "word " * 500} for role in ("user", "assistant") * 4]
    question = {"role": "user", "content": QUESTION}
    with pytest.raises(openai.BadRequestError, match="the context holds"):
        ask(client, input=[*old, question])
    truncated = {"input": [{"role": "system", "content": "Copy."}, *old, question], "truncation": "auto"}
    response = ask(client, **truncated, max_output_tokens=4)
    assert 500 < response.usage.input_tokens < 2048
    assert client.responses.input_tokens.count(model="tiny", **truncated).input_tokens == response.usage.input_tokens
    # Most of many messages are dropped in a few steps: one by one, this would take minutes.
    many = [{"role": role, "content": f"word {i}"} for i in range(2000) for role in ("user", "assistant")]
    response = ask(client, input=[*many, question], truncation="auto", max_output_tokens=4)
    assert 1500 < response.usage.input_tokens < 2048


def agent(seed):
    import agents

    calls = []

    @agents.function_tool
    def get_weather(city: Literal["Oslo", "Rome"], days: Literal[1, 2]) -> str:
        """Returns the weather of a city."""
        calls.append((city, days))
        return "sun"

    def after_call(context, results):
        return agents.ToolsToFinalOutputResult(is_final_output=len(calls) == NUM_CALLS, final_output=f"{len(calls)} calls")

    settings = agents.ModelSettings(tool_choice="required", parallel_tool_calls=False, temperature=1, max_tokens=700, extra_body={"seed": seed})
    return agents.Agent(name="weather", instructions="Copy.", model="tiny", tools=[get_weather], model_settings=settings,
                        reset_tool_choice=False, tool_use_behavior=after_call), calls


@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_calls_a_tool_five_times(server, stream):
    import agents

    agents.set_tracing_disabled(True)
    agents.set_default_openai_client(openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0))
    starter, calls = agent(seed=5)

    async def run():
        if not stream:
            return await agents.Runner.run(starter, QUESTION, max_turns=NUM_CALLS + 1)
        result = agents.Runner.run_streamed(starter, QUESTION, max_turns=NUM_CALLS + 1)
        async for _ in result.stream_events():
            pass
        return result

    result = asyncio.run(run())
    assert result.final_output == "5 calls" and len(calls) == NUM_CALLS
    assert all(city in ("Oslo", "Rome") and days in (1, 2) for city, days in calls)
    assert len(result.raw_responses) == NUM_CALLS and all(response.usage.output_tokens > 0 for response in result.raw_responses)


def test_paths_of_stored_responses_are_suggested(server):
    def error(path):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(server.url + path)
        return caught.value.code, json.load(caught.value)["error"]["message"]

    assert error("/v1/responses") == (405, "GET /v1/responses: expected POST")
    assert error("/v1/responses/a/b")[0] == 404
    status, _, text = fetch(server, "/v1/responses/compact", {"model": "tiny", "input": "x"})
    assert status == 400 and "compact: not supported" in text
    assert error("/responses/x") == (404, "/responses/x: unknown path; expected /v1/responses/x")
