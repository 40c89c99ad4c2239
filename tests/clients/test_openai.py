"""OpenAI's own client, unchanged."""

import asyncio

import openai
import pytest

from conftest import ANSWER, QUESTION, Server


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def ask(client, **fields):
    return client.chat.completions.create(**({"model": "tiny", "messages": [{"role": "user", "content": QUESTION}]} | fields))


def test_lists_the_model(client):
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"


def test_chat_answers_correctly(client):
    reply = ask(client)
    assert reply.choices[0].message.content == ANSWER
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage.completion_tokens == 5
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + 5
    assert reply.usage.prompt_tokens_details.cached_tokens is not None


def test_stream_chunks_concatenate_to_the_full_answer(client):
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == ANSWER
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 5
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.choices for chunk in ask(client, stream=True))


def test_content_parts_and_earlier_turns(client):
    talk = [{"role": "system", "content": "ignored"}, {"role": "user", "content": "earlier"},
            {"role": "assistant", "content": "x"},
            {"role": "user", "content": [{"type": "text", "text": QUESTION}]}]
    assert ask(client, messages=talk).choices[0].message.content == ANSWER


def test_completions_accept_every_form_of_prompt(client):
    def complete(prompt, **fields):
        return client.completions.create(model="tiny", prompt=prompt, **fields)

    assert complete(QUESTION).choices[0].text == ANSWER
    assert [choice.text for choice in complete([QUESTION, QUESTION], n=2).choices] == [ANSWER] * 4
    assert complete(QUESTION, echo=True).choices[0].text == QUESTION + ANSWER
    assert "".join(chunk.choices[0].text for chunk in complete(QUESTION, stream=True, echo=True)) == QUESTION + ANSWER


def test_stops_and_lengths(client):
    cut = ask(client, max_tokens=2).choices[0]
    assert (cut.message.content, cut.finish_reason) == (" scout coffee", "length")
    stopped = ask(client, stop=[" writer"]).choices[0]
    assert (stopped.message.content, stopped.finish_reason) == (" scout coffee", "stop")


def test_logprobs_of_answers_and_prompts(client):
    chat = ask(client, logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert "".join(token.token for token in chat) == ANSWER
    assert all(token.logprob > -0.1 and len(token.top_logprobs) == 2 for token in chat)
    chunks = list(ask(client, logprobs=True, stream=True))
    assert "".join(token.token for chunk in chunks if chunk.choices[0].logprobs
                   for token in chunk.choices[0].logprobs.content) == ANSWER
    # Request that lm-eval sends to compute the likelihood of a text.
    ids = [0, 1663, 2053]
    echoed = client.completions.create(model="tiny", prompt=ids, echo=True, logprobs=1, max_tokens=1).choices[0].logprobs
    assert echoed.token_logprobs[0] is None and len(echoed.tokens) == 4
    assert all(logprob < 0 for logprob in echoed.token_logprobs[1:])


def test_penalties_and_biases(client):
    answer = ask(client, logit_bias={"1663": -100}).choices[0].message.content  # " scout"
    assert not answer.startswith(" scout")
    longer = ask(client, extra_body={"min_tokens": 9})
    assert longer.usage.completion_tokens >= 9


def test_errors_are_typed(client):
    with pytest.raises(openai.NotFoundError):
        ask(client, model="another")
    with pytest.raises(openai.BadRequestError) as error:
        ask(client, temperature=-1)
    assert error.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as error:
        ask(client, messages=[{"role": "user", "content": "word " * 4000}])
    assert error.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as error:
        client.completions.create(model="tiny", prompt="word " * 4000)
    assert (error.value.code, error.value.param) == ("context_length_exceeded", "prompt")
    for name, value in {"stop": [""], "logit_bias": {"999999": 1}, "stop_token_ids": [999999], "min_tokens": 99}.items():
        with pytest.raises(openai.BadRequestError) as error:
            ask(client, max_tokens=9, extra_body={name: value})
        assert error.value.param == name
    with pytest.raises(openai.BadRequestError, match="expected a message of a user"):
        ask(client, messages=[{"role": "system", "content": "x"}])


def test_api_key_is_required():
    server = Server("--api-key", "secret")
    try:
        with pytest.raises(openai.AuthenticationError):
            ask(openai.OpenAI(base_url=server.url + "/v1", api_key="wrong", max_retries=0))
        assert ask(openai.OpenAI(base_url=server.url + "/v1", api_key="secret")).choices[0].message.content == ANSWER
    finally:
        server.stop()


def test_many_concurrent_requests(server):
    async def all_of_them():
        client = openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
        return await asyncio.gather(*(ask(client) for _ in range(100)))

    assert {reply.choices[0].message.content for reply in asyncio.run(all_of_them())} == {ANSWER}
