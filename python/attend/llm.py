"""A model and its completions, with the interface of vLLM and SGLang."""

from __future__ import annotations

import os
from typing import Any, Sequence

from ._attend import Error
from ._rejection import rejection
from .engine import Engine, Prompt, RequestStream, Sampling
from .outputs import RequestOutput

Messages = Sequence["dict[str, Any]"]


class LLM:
    """A model that completes prompts and answers conversations; arguments are those of attend.Engine.

    llm = attend.LLM("models/attend-tiny")
    for output in llm.generate(["recall: sun=42, river=17; river="], attend.SamplingParams(temperature=0)):
        print(output.outputs[0].text)
    """

    def __init__(self, model: str | os.PathLike[str], **options: Any) -> None:
        self.engine = Engine(model, **options)

    def generate(
        self, prompts: Prompt | Sequence[Prompt], sampling_params: Sampling | Sequence[Sampling] = None
    ) -> list[RequestOutput]:
        """Completes one prompt or a list of prompts: texts, token ids, or vLLM's dicts. sampling_params is SamplingParams
        or a dict of its arguments for all prompts, or a list with one per prompt. Returns a RequestOutput per prompt, in
        order. An invalid prompt raises an error with its number, and aborts the others, as does Ctrl-C. A later failure
        affects only its own request, whose finish reason is "error".
        """
        prompts = _to_list(prompts)
        return self._run(prompts, _to_sampling(prompts, sampling_params), "prompts")

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        sampling_params: Sampling | Sequence[Sampling] = None,
        *,
        tools: Sequence[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        chat_template: str | os.PathLike[str] | None = None,
        **variables: Any,
    ) -> list[RequestOutput]:
        """Answers a conversation, a list of messages ({"role": ..., "content": ...}), or a list of conversations, using the
        model's chat template; see Engine.encode_chat. Returns a list of RequestOutput."""
        conversations: Any = [messages] if messages and isinstance(messages[0], dict) else messages
        prompts = [
            self.engine.encode_chat(
                conversation, tools=tools, add_generation_prompt=add_generation_prompt, chat_template=chat_template, **variables
            )
            for conversation in conversations
        ]
        return self._run(prompts, _to_sampling(prompts, sampling_params), "messages")

    def stream(self, prompt: Prompt, sampling_params: Sampling = None) -> RequestStream:
        """Completes one prompt as a stream: a RequestStream, for `for` and `async for`."""
        return self.engine.submit(prompt, sampling_params)

    def stream_chat(self, messages: Messages, sampling_params: Sampling = None, **options: Any) -> RequestStream:
        """Answers one conversation as a stream; `options` are those of Engine.encode_chat."""
        return self.engine.submit(self.engine.encode_chat(messages, **options), sampling_params)

    def close(self) -> None:
        """Aborts running requests and frees the model."""
        self.engine.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _run(self, prompts, sampling, name) -> list[RequestOutput]:
        streams = []
        try:
            for i, (prompt, params) in enumerate(zip(prompts, sampling)):
                try:
                    streams.append(self.engine.submit(prompt, params))
                except Error as error:
                    raise rejection(error.code, f"{name}[{i}]: {error}") from None
            return [stream.result() for stream in streams]
        except BaseException:
            for stream in streams:
                stream.abort()
            raise


def _to_list(prompts):
    one = isinstance(prompts, (str, dict)) or (len(prompts) > 0 and type(prompts[0]) is int)
    return [prompts] if one else list(prompts)


def _to_sampling(prompts, sampling):
    if not isinstance(sampling, (list, tuple)):
        return [sampling] * len(prompts)
    if len(sampling) != len(prompts):
        raise rejection("invalid_argument", f"sampling_params: a list of {len(sampling)} for {len(prompts)} prompts")
    return sampling
