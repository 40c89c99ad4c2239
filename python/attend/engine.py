"""A model that runs on its own thread, and its requests."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import threading
import weakref
from typing import Any, Sequence, Union

from ._attend import (
    ChatTemplate,
    EngineHandle,
    await_calls,
    disable_leak_warnings,
    find_model,
    generation_defaults,
    stop_calls,
)
from ._prompts import to_prompt
from ._rejection import rejection
from .outputs import CompletionOutput, RequestOutput, logprobs_by_token
from .sampling_params import SamplingParams, to_sampling
from .structured_outputs import installed_libraries

# Text, token ids, or vLLM's {"prompt": text} and {"prompt_token_ids": ids}.
Prompt = Union[str, Sequence[int], "dict[str, Any]"]
# A dict has the arguments of SamplingParams.
Sampling = Union[SamplingParams, "dict[str, Any]", None]

# vLLM's names, and the names of SGLang and attend's command for the same options.
_ALIASES = {
    "max_model_len": "context_length",
    "max_num_seqs": "max_running_requests",
    "max_num_batched_tokens": "chunked_prefill_size",
    "gpu_memory_utilization": "mem_fraction_static",
    "block_size": "page_size",
    "enforce_eager": "disable_cuda_graph",
    "seed": "random_seed",
    "tensor_parallel_size": "tp_size",
}

_open_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


@atexit.register
def _end_calls():
    # Daemon threads may be in calls, also in one that creates an engine. The interpreter must not end during a call.
    stop_calls()
    _close_engines()
    await_calls(timeout_ms=10_000)
    _close_engines()
    # Daemon threads keep their objects to the end of the process.
    if any(thread.daemon for thread in threading.enumerate()):
        disable_leak_warnings()


def _close_engines():
    # Ends the engines' threads.
    for engine in list(_open_engines):
        engine.close()


def _read_options(options):
    """Returns the engine's options from keywords, with aliases resolved and without None."""
    given = {name: value for name, value in options.items() if value is not None}
    caching = given.pop("enable_prefix_caching", None)
    if caching is not None:
        given.setdefault("disable_radix_cache", not caching)
    for alias, name in _ALIASES.items():
        if alias not in given:
            continue
        if name in given:
            raise rejection("invalid_argument", f"{alias} and {name}: both are the same; expected one of them")
        given[name] = given.pop(alias)
    given.update(_to_speculation(given.pop("speculative_config", None)))
    if "lora_paths" in given:
        given["lora_paths"] = _to_lora_paths(given["lora_paths"])
    if "speculative_draft_model_path" in given:
        given["speculative_draft_model_path"] = find_model(os.fspath(given["speculative_draft_model_path"]))
    return given


def _to_lora_paths(paths):
    """Returns [(name, folder), ...] for a dict, or for a list of "name=folder", as in SGLang."""
    if isinstance(paths, dict):
        return [(str(name), os.fspath(path)) for name, path in paths.items()]
    pairs = [tuple(path.split("=", 1)) if isinstance(path, str) else () for path in paths]
    for path, pair in zip(paths, pairs):
        if len(pair) != 2:
            raise rejection("invalid_argument", f"lora_paths {path!r}: expected a dict, or a list of 'name=folder'")
    return pairs


# Options of each method of vLLM's speculative_config, and the engine's names without their prefix.
_SPECULATIVE_METHODS = {
    "ngram": {
        "prompt_lookup_max": "ngram_max_match_window_size",
        "prompt_lookup_min": "ngram_min_match_window_size",
    },
    "suffix": {
        f"suffix_decoding_{name}": f"suffix_{name}"
        for name in ("max_tree_depth", "max_cached_requests", "max_spec_factor", "min_token_prob")
    },
    **{method: {"model": "draft_model_path"} for method in ("draft_model", "eagle", "eagle3", "mtp")},
}
# Algorithms of methods with another name.
_SPECULATIVE_ALGORITHMS = {"draft_model": "STANDALONE", "mtp": "NEXTN"}


def _to_speculation(config):
    """Converts vLLM's speculative_config to the engine's options."""
    if config is None:
        return {}
    config = dict(config)
    method = config.pop("method", "draft_model" if "model" in config else None)
    names = _SPECULATIVE_METHODS.get(method)
    if names is None:
        expected = " or ".join(repr(name) for name in _SPECULATIVE_METHODS)
        raise rejection("unsupported", f"speculative_config: method {method!r}: expected {expected}")
    options = {"speculative_algorithm": _SPECULATIVE_ALGORITHMS.get(method, method.upper())}
    if "num_speculative_tokens" in config:  # excludes the last generated token
        options["speculative_num_draft_tokens"] = config.pop("num_speculative_tokens") + 1
    for name, option in names.items():
        if name in config:
            options[f"speculative_{option}"] = config.pop(name)
    if config:
        raise rejection(
            "unsupported",
            f"speculative_config: {next(iter(config))!r}: expected method, num_speculative_tokens, "
            + " or ".join(", ".join(names).rsplit(", ", 1)),
        )
    return options


class RequestStream:
    """A running request. Iterating over it (`for` or `async for`) yields new output of its completions as CompletionOutput;
    result() returns the complete output. A request is aborted if the object is deleted before its end.

    output   RequestOutput: all output so far
    """

    output: RequestOutput

    def __init__(self, engine, handle, prompt, sampling):
        self._engine, self._handle = engine, handle
        self._skip_special_tokens = sampling.skip_special_tokens
        self._token_decoders = {}  # by completion
        self._news: list[CompletionOutput] = []
        self.output = RequestOutput(prompt, [], [CompletionOutput(i) for i in range(sampling.n)])

    def result(self) -> RequestOutput:
        """Waits for the end and returns the RequestOutput."""
        self._take(wait=True, finished=True)
        self._news.clear()
        return self.output

    def abort(self) -> None:
        """Aborts the request; unfinished completions get the finish reason "abort"."""
        self._handle.abort()

    def __iter__(self) -> RequestStream:
        return self

    def __next__(self) -> CompletionOutput:
        if not self._news:
            self._take(wait=True)
        if not self._news:
            raise StopIteration
        return self._news.pop(0)

    def __aiter__(self) -> RequestStream:
        return self

    async def __anext__(self) -> CompletionOutput:
        while not self._news:
            self._take(wait=False)
            if self._news:
                break
            if self._handle.ended:
                raise StopAsyncIteration
            await self._readable()
        return self._news.pop(0)

    async def _readable(self):
        loop, fd = asyncio.get_running_loop(), self._handle.fileno()
        ready = loop.create_future()

        def notify():
            if not ready.done():
                ready.set_result(None)

        loop.add_reader(fd, notify)
        try:
            await ready
        finally:
            loop.remove_reader(fd)

    def _take(self, wait, finished=False):
        for event in self._handle.take(wait, finished):
            new = self._new_output(event)
            self.output.outputs[new.index]._add(new)
            self._news.append(new)

    def _new_output(self, event):
        prompt_ids, prompt_logprobs = event.pop("prompt_token_ids"), event.pop("prompt_logprobs")
        self.output.num_cached_tokens = max(self.output.num_cached_tokens, event.pop("num_cached_tokens"))
        if prompt_ids:
            self.output.prompt_token_ids = prompt_ids
        if prompt_logprobs is not None:
            # The first token has no logprob.
            token_decoder = self._engine._token_decoder(self._skip_special_tokens, self.output.prompt_token_ids[:1])
            scored = logprobs_by_token(self.output.prompt_token_ids[1:], prompt_logprobs, token_decoder)
            self.output.prompt_logprobs = [None, *scored]
        logprobs = event.pop("logprobs")
        new = CompletionOutput(**event)
        if logprobs is not None:
            if new.index not in self._token_decoders:
                prompt = self.output.prompt_token_ids
                self._token_decoders[new.index] = self._engine._token_decoder(self._skip_special_tokens, prompt)
            new.logprobs = logprobs_by_token(new.token_ids, logprobs, self._token_decoders[new.index])
            new.cumulative_logprob = sum(logprob for logprob, _ in logprobs)
        return new


class Engine:
    """A model on its own thread, for callers on any thread and in any event loop.

    model    a Hugging Face model directory, a GGUF file, or the name of a model in the Hugging Face cache ("Qwen/Qwen3-0.6B")
    options  options of `attend serve`, with _ instead of -: device ("auto", "cpu", "cuda:1"), dtype, kv_cache_dtype,
             load_format, attention_backend, prefill_attention_backend, decode_attention_backend, page_size, context_length
             (max_model_len), max_running_requests (max_num_seqs), max_total_tokens, chunked_prefill_size,
             mem_fraction_static (gpu_memory_utilization), disable_cuda_graph (enforce_eager), disable_radix_cache (or
             enable_prefix_caching), recompute_longrope, schedule_policy, enable_deterministic_inference, random_seed (seed), threads, ...
             lora_paths: LoRA adapters, a dict of names and folders that PEFT saved.
             grammar_library_path: see docs/structured-outputs.md; None: the packages of this Python, if installed.
             None selects the default; an unknown name is an error.

    Raises attend.Error, which names what is not supported, before weights are loaded if possible.
    """

    def __init__(self, model: str | os.PathLike[str], **options: Any) -> None:
        self.model = find_model(os.fspath(model))
        folder = options.pop("grammar_library_path", None)
        named = folder is not None
        self._handle = EngineHandle(
            {"model_path": self.model, **_read_options(options)},
            os.fspath(folder) if folder is not None else installed_libraries(),
            named,
        )
        _open_engines.add(self)
        self._defaults = generation_defaults(self.model)
        self._templates: dict[str, ChatTemplate] = {}
        self._has_tokenizer = self._handle.has_tokenizer()

    def submit(
        self,
        prompt: Prompt,
        sampling_params: Sampling = None,
        *,
        cache_salt: str = "",
        priority: int = 0,
        lora_path: str | None = None,
    ) -> RequestStream:
        """Queues a prompt: a text, a list of token ids, or vLLM's dict with "prompt" or "prompt_token_ids". lora_path is the
        name of a LoRA adapter; None: the model without one. Returns a RequestStream."""
        sampling = to_sampling(sampling_params)
        text, value = to_prompt(prompt)
        handle = self._handle.submit(value, sampling.given(self._defaults), cache_salt, priority, sampling.grammar(), lora_path or "")
        return RequestStream(self, handle, text, sampling)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return self._handle.encode(text, add_special_tokens)

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return self._handle.decode(list(token_ids), skip_special_tokens)

    def encode_chat(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        tools: Sequence[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        chat_template: str | os.PathLike[str] | None = None,
        **variables: Any,
    ) -> list[int]:
        """Returns the token ids of a conversation, rendered with the model's chat template. messages are dicts with "role"
        and "content". chat_template is a file, or the name of one of several templates; `variables` are specific to the
        template, such as enable_thinking."""
        found = self._template(chat_template)
        variables = {"messages": list(messages), **variables, **({} if tools is None else {"tools": tools})}
        try:
            written = json.dumps(variables)
        except (TypeError, ValueError) as error:
            raise rejection("invalid_argument", f"messages: expected values that JSON supports: {error}") from None
        return self._handle.encode_chat(found, written, add_generation_prompt)

    def info(self) -> dict[str, Any]:
        """Returns the configuration chosen at start: model, device, dtypes, attention backends, page size, limits."""
        return self._handle.info()

    def metrics(self) -> dict[str, Any]:
        """Returns counters and the current load."""
        return self._handle.metrics()

    def load_lora_adapter(self, lora_name: str, lora_path: str | os.PathLike[str]) -> None:
        """Loads a LoRA adapter from the folder that PEFT saved. Requests select it by its name."""
        self._handle.load_adapter(lora_name, os.fspath(lora_path))

    def unload_lora_adapter(self, lora_name: str) -> None:
        """Removes a LoRA adapter; requests that use it continue."""
        self._handle.unload_adapter(lora_name)

    def lora_adapters(self) -> dict[str, str]:
        """Returns the folders of the LoRA adapters by name."""
        return self._handle.adapters()

    def update_weights_from_disk(
        self,
        model_path: str | os.PathLike[str],
        load_format: str | None = None,
        *,
        flush_cache: bool = True,
        abort_all_requests: bool = False,
    ) -> None:
        """Replaces the weights by those of another checkpoint of the same model. Running requests finish first, are aborted,
        or stay paused (pause_generation); new ones wait. An error keeps the old weights. See docs/changing-weights.md."""
        if load_format not in (None, "auto", "safetensors", "gguf"):
            raise rejection("unsupported", f"load_format {load_format!r}: expected 'auto'")
        self._handle.update_weights(find_model(os.fspath(model_path)), flush_cache, abort_all_requests)

    def release_memory_occupation(self, tags: Sequence[str] | None = None) -> None:
        """Frees "weights", "kv_cache", or both (None), after running requests. Prompts raise an error until
        resume_memory_occupation()."""
        self._handle.release_memory(list(tags or ()))

    def resume_memory_occupation(self, tags: Sequence[str] | None = None) -> None:
        """Allocates what release_memory_occupation() has freed; weights are read from their files."""
        self._handle.resume_memory(list(tags or ()))

    def sleep(self, level: int = 1) -> None:
        """vLLM's name for release_memory_occupation(). Levels 1 and 2 free all memory."""
        if level not in (1, 2):
            raise rejection("invalid_argument", f"level {level}: expected 1 or 2")
        self.release_memory_occupation()

    def wake_up(self, tags: Sequence[str] | None = None) -> None:
        """vLLM's name for resume_memory_occupation()."""
        self.resume_memory_occupation(tags)

    @property
    def is_sleeping(self) -> bool:
        return self._handle.is_sleeping()

    def pause_generation(self, mode: str = "abort") -> None:
        """Stops steps until continue_generation(). mode: "abort" aborts all requests; "retract" keeps them, and computes their
        K/V again later; "in_place" keeps them with their K/V. New requests wait."""
        self._handle.pause_generation(mode)

    def continue_generation(self) -> None:
        self._handle.resume()

    def pause(self) -> None:
        """Stops steps until resume(). Requests keep their state."""
        self._handle.pause()

    def resume(self) -> None:
        self._handle.resume()

    def close(self) -> None:
        """Aborts running requests and frees the model. Threads that wait for requests are released."""
        self._handle.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _template(self, name_or_path):
        name_or_path = "" if name_or_path is None else os.fspath(name_or_path)
        if name_or_path not in self._templates:
            found = ChatTemplate.find(self.model, name_or_path)
            if found is None:
                raise rejection("not_found", f"{self.model} has no chat template; pass one with chat_template")
            self._templates[name_or_path] = found
        return self._templates[name_or_path]

    def _token_decoder(self, skip_special_tokens, prompt):
        """Returns the decoder of token texts after a prompt; None without a tokenizer."""
        if not self._has_tokenizer:
            return None
        token_decoder = self._handle.token_decoder(skip_special_tokens)
        token_decoder.set_prompt(prompt)
        return token_decoder
