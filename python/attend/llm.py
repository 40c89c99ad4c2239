"""A model and its completions, vectors or scores, with the interface of vLLM and SGLang."""

from __future__ import annotations

import os
from typing import Any, Sequence

from ._attend import Error, find_model, generates
from ._prompts import to_list
from ._rejection import rejection
from .embedder import Embedder, PoolingPrompt
from .engine import Engine, Prompt, RequestStream, Sampling
from .outputs import ClassificationRequestOutput, EmbeddingRequestOutput, RequestOutput, ScoringRequestOutput

Messages = Sequence["dict[str, Any]"]


# vLLM's arguments that choose between generation and pooling, with the values that choose pooling.
_POOLING = {
    "runner": {"pooling"},
    "convert": {"embed", "classify", "reward"},
    "task": {"embed", "embedding", "encode", "score", "classify", "reward"},
}
_NEUTRAL = {"runner": {"auto", "generate"}, "convert": {"auto", "none"}, "task": {"auto", "generate"}}


class LLM:
    """A model that completes prompts and answers conversations, or one that returns vectors and scores; arguments are
    those of attend.Engine or attend.Embedder. runner="pooling" selects vectors of a model that could also generate, and
    convert="classify" a language model that answers yes or no (Qwen3-Reranker); vLLM's task is accepted as well.

    llm = attend.LLM("models/attend-tiny")
    for output in llm.generate(["recall: sun=42, river=17; river="], attend.SamplingParams(temperature=0)):
        print(output.outputs[0].text)
    """

    def __init__(self, model: str | os.PathLike[str], **options: Any) -> None:
        convert = options.get("convert")
        if _pools(model, options):
            reranker = {"is_reranker": True} if convert == "classify" and generates(find_model(os.fspath(model))) else {}
            self._embedder: Embedder | None = Embedder(model, **options, **reranker)
            self._engine: Engine | None = None
        else:
            self._embedder, self._engine = None, Engine(model, **options)

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            raise rejection("unsupported", "the model returns vectors or scores, not text; expected embed, score or classify")
        return self._engine

    @property
    def embedder(self) -> Embedder:
        if self._embedder is None:
            raise rejection("unsupported", 'the model generates text; for its vectors, expected LLM(..., runner="pooling")')
        return self._embedder

    def embed(
        self,
        prompts: PoolingPrompt | Sequence[PoolingPrompt],
        *,
        dimensions: int | None = None,
        truncate_prompt_tokens: int | None = None,
    ) -> list[EmbeddingRequestOutput]:
        """Returns the vectors of one prompt or a list of prompts: see Embedder.embed."""
        return self.embedder.embed(prompts, dimensions=dimensions, truncate_prompt_tokens=truncate_prompt_tokens)

    def classify(
        self, prompts: PoolingPrompt | Sequence[PoolingPrompt], *, truncate_prompt_tokens: int | None = None
    ) -> list[ClassificationRequestOutput]:
        """Returns the scores of labels: see Embedder.classify."""
        return self.embedder.classify(prompts, truncate_prompt_tokens=truncate_prompt_tokens)

    def score(
        self,
        data_1: str | Sequence[str],
        data_2: str | Sequence[str],
        *,
        truncate_prompt_tokens: int | None = None,
        instruction: str = "",
        use_activation: bool = True,
    ) -> list[ScoringRequestOutput]:
        """Returns the scores of pairs of texts: see Embedder.score."""
        return self.embedder.score(
            data_1,
            data_2,
            truncate_prompt_tokens=truncate_prompt_tokens,
            instruction=instruction,
            use_activation=use_activation,
        )

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: Sampling | Sequence[Sampling] = None,
        *,
        lora_path: str | None | Sequence[str | None] = None,
    ) -> list[RequestOutput]:
        """Completes one prompt or a list of prompts: texts, token ids, or vLLM's dicts. sampling_params is SamplingParams
        or a dict of its arguments for all prompts, or a list with one per prompt. lora_path is the name of a LoRA adapter, or a
        list with a name or None per prompt. Returns a RequestOutput per prompt, in
        order. An invalid prompt raises an error with its number, and aborts the others, as does Ctrl-C. A later failure
        affects only its own request, whose finish reason is "error".
        """
        prompts = to_list(prompts)
        return self._run(prompts, _to_sampling(prompts, sampling_params), "prompts", lora_path)

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        sampling_params: Sampling | Sequence[Sampling] = None,
        *,
        tools: Sequence[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        chat_template: str | os.PathLike[str] | None = None,
        lora_path: str | None | Sequence[str | None] = None,
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
        return self._run(prompts, _to_sampling(prompts, sampling_params), "messages", lora_path)

    def update_weights_from_disk(
        self,
        model_path: str | os.PathLike[str],
        load_format: str | None = None,
        *,
        flush_cache: bool = True,
        abort_all_requests: bool = False,
    ) -> None:
        """Replaces the weights: see Engine.update_weights_from_disk."""
        self.engine.update_weights_from_disk(
            model_path, load_format, flush_cache=flush_cache, abort_all_requests=abort_all_requests
        )

    def sleep(self, level: int = 1) -> None:
        """Frees the memory of weights and KV cache: see Engine.release_memory_occupation."""
        self.engine.sleep(level)

    def wake_up(self, tags: Sequence[str] | None = None) -> None:
        """Allocates the memory again: see Engine.resume_memory_occupation."""
        self.engine.wake_up(tags)

    def stream(
        self, prompt: Prompt, sampling_params: Sampling = None, *, lora_path: str | None = None
    ) -> RequestStream:
        """Completes one prompt as a stream: a RequestStream, for `for` and `async for`."""
        return self.engine.submit(prompt, sampling_params, lora_path=lora_path)

    def stream_chat(
        self, messages: Messages, sampling_params: Sampling = None, *, lora_path: str | None = None, **options: Any
    ) -> RequestStream:
        """Answers one conversation as a stream; `options` are those of Engine.encode_chat."""
        return self.engine.submit(self.engine.encode_chat(messages, **options), sampling_params, lora_path=lora_path)

    def close(self) -> None:
        """Aborts running requests and frees the model."""
        for model in (self._engine, self._embedder):
            if model is not None:
                model.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _run(self, prompts, sampling, name, lora_path) -> list[RequestOutput]:
        adapters = [lora_path] * len(prompts) if lora_path is None or isinstance(lora_path, str) else list(lora_path)
        if len(adapters) != len(prompts):
            raise rejection("invalid_argument", f"lora_path: a list of {len(adapters)} for {len(prompts)} {name}")
        streams = []
        try:
            for i, (prompt, params, adapter) in enumerate(zip(prompts, sampling, adapters)):
                try:
                    streams.append(self.engine.submit(prompt, params, lora_path=adapter))
                except Error as error:
                    raise rejection(error.code, f"{name}[{i}]: {error}") from None
            return [stream.result() for stream in streams]
        except BaseException:
            for stream in streams:
                stream.abort()
            raise


def _pools(model, options):
    """Removes vLLM's arguments from the options. Returns whether the model returns vectors or scores."""
    given = {name: options.pop(name) for name in _POOLING if options.get(name) is not None}
    for name, value in given.items():
        if value not in _POOLING[name] | _NEUTRAL[name]:
            known = ", ".join(sorted(_NEUTRAL[name] | _POOLING[name]))
            raise rejection("invalid_argument", f"{name} {value!r}: expected one of {known}")
    if any(value in _POOLING[name] for name, value in given.items()):
        return True
    return options.get("is_reranker", False) or not generates(find_model(os.fspath(model)))


def _to_sampling(prompts, sampling):
    if not isinstance(sampling, (list, tuple)):
        return [sampling] * len(prompts)
    if len(sampling) != len(prompts):
        raise rejection("invalid_argument", f"sampling_params: a list of {len(sampling)} for {len(prompts)} prompts")
    return sampling
