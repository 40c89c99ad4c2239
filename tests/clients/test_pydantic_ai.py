"""Agents of pydantic-ai: a loop of five tool calls with its models for Anthropic's and OpenAI's APIs."""

import asyncio

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

import scripted


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    started = scripted.start(tmp_path_factory.mktemp("script"))
    yield started
    assert started.stop()[0] == 0


def models(server):
    return {"anthropic": AnthropicModel("tiny", provider=AnthropicProvider(base_url=server.url, api_key="none")),
            "openai": OpenAIChatModel("tiny", provider=OpenAIProvider(base_url=server.url + "/v1", api_key="none"))}


@pytest.mark.parametrize("api", ["anthropic", "openai"])
@pytest.mark.parametrize("streams", [False, True], ids=["complete", "streamed"])
def test_an_agent_makes_five_calls(server, api, streams):
    calls = []
    settings = {"max_tokens": 128, "temperature": 0, "extra_body": {"regex": scripted.REGEX}}
    agent = Agent(models(server)[api], model_settings=settings)

    @agent.tool_plain
    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        calls.append((a, b))
        return a + b

    async def run():
        if not streams:
            return (await agent.run("add")).output
        async with agent.iter("add") as steps:
            async for node in steps:
                if Agent.is_model_request_node(node):
                    async with node.stream(steps.ctx) as events:
                        assert [event async for event in events]
        return steps.result.output

    output = asyncio.run(run())
    assert calls == scripted.CALLS
    assert output.strip() == scripted.FINAL
