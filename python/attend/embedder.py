"""A model that returns vectors of texts, or scores of pairs of texts."""

from __future__ import annotations

import os
import reprlib
from typing import Any, Sequence, Union

from ._attend import EmbedderHandle, Error, find_model, truncate_and_normalize
from ._prompts import to_list, to_prompt
from ._rejection import rejection
from .outputs import (
    ClassificationOutput,
    ClassificationRequestOutput,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    ScoringOutput,
    ScoringRequestOutput,
)

# Text, token ids, or vLLM's {"prompt": text} and {"prompt_token_ids": ids}.
PoolingPrompt = Union[str, Sequence[int], "dict[str, Any]"]

# Inputs of one call. Ctrl-C ends the work between calls.
_CHUNK = 64


class Embedder:
    """A model that returns vectors, scores or classes.

    model    a Hugging Face model directory, or the name of a model in the Hugging Face cache
    options  options of `attend serve --is-embedding`, with _ instead of -: device, dtype, load_format, attention_backend,
             page_size, context_length (max_model_len), threads; and pooling ("mean", "cls" or "last") and normalize, which
             override the model's files. is_reranker: the model is a language model that answers yes or no.
    """

    def __init__(self, model: str | os.PathLike[str], **options: Any) -> None:
        self.model = find_model(os.fspath(model))
        given = {name: value for name, value in options.items() if value is not None}
        if "max_model_len" in given:
            given.setdefault("context_length", given.pop("max_model_len"))
        self._handle = EmbedderHandle({"model_path": self.model, **given})

    def info(self) -> dict[str, Any]:
        return self._handle.info()

    def encode(self, text: str, truncate_prompt_tokens: int | None = None) -> list[int]:
        """Returns the token ids of a text. truncate_prompt_tokens: maximum number, -1 for the model's; None: a longer text
        is an error."""
        return self._handle.encode(text, self._limit(truncate_prompt_tokens))

    def embed(
        self,
        prompts: PoolingPrompt | Sequence[PoolingPrompt],
        *,
        dimensions: int | None = None,
        truncate_prompt_tokens: int | None = None,
    ) -> list[EmbeddingRequestOutput]:
        """Returns an EmbeddingRequestOutput per prompt: outputs.embedding. dimensions: length to which vectors are
        truncated, and normalized if the model normalizes."""
        info = self.info()
        if info["labels"] is not None:
            raise rejection("unsupported", f"embed: {info['model']} returns scores; expected score or classify")
        if dimensions is not None and not _is_between(dimensions, 1, info["dimensions"]):
            raise rejection("invalid_argument", f"dimensions {dimensions!r}: expected 1 to {info['dimensions']}")

        def shorten(vector):
            return vector if dimensions is None else truncate_and_normalize(vector, dimensions, info["normalize"])

        return [
            EmbeddingRequestOutput(ids, EmbeddingOutput(shorten(vector)))
            for ids, vector in self._vectors(prompts, truncate_prompt_tokens)
        ]

    def classify(
        self, prompts: PoolingPrompt | Sequence[PoolingPrompt], *, truncate_prompt_tokens: int | None = None
    ) -> list[ClassificationRequestOutput]:
        """Returns a ClassificationRequestOutput per prompt: outputs.probs, in the order of info()["labels"]."""
        if self.info()["labels"] is None:
            raise rejection("unsupported", f"classify: {self.info()['model']} returns embeddings; expected embed")
        return [
            ClassificationRequestOutput(ids, ClassificationOutput(self._handle.activate(logits)))
            for ids, logits in self._vectors(prompts, truncate_prompt_tokens)
        ]

    def score(
        self,
        data_1: str | Sequence[str],
        data_2: str | Sequence[str],
        *,
        truncate_prompt_tokens: int | None = None,
        instruction: str = "",
        use_activation: bool = True,
    ) -> list[ScoringRequestOutput]:
        """Returns a ScoringRequestOutput per pair: outputs.score. One text of data_1 makes a pair with each of data_2;
        otherwise both have the same number. An embedding model returns the cosine similarity. use_activation: false for
        logits of a classifier."""
        firsts, seconds = _texts(data_1, "data_1"), _texts(data_2, "data_2")
        if len(firsts) not in (1, len(seconds)):
            raise rejection(
                "invalid_argument", f"data_1 and data_2: {len(firsts)} and {len(seconds)} texts; expected 1 and n, or n and n"
            )
        limit = self._limit(truncate_prompt_tokens)
        outputs = []
        for at in range(0, len(seconds), _CHUNK):
            chunk = firsts if len(firsts) == 1 else firsts[at : at + _CHUNK]
            scores, ids = self._handle.score(chunk, seconds[at : at + _CHUNK], instruction, limit, use_activation)
            outputs += [ScoringRequestOutput(pair, ScoringOutput(score)) for score, pair in zip(scores, ids)]
        return outputs

    def close(self) -> None:
        """Frees the model."""
        self._handle.close()

    def _limit(self, truncate_prompt_tokens):
        longest = self.info()["max_input_tokens"]
        if truncate_prompt_tokens is None:
            return 0
        if truncate_prompt_tokens != -1 and not _is_between(truncate_prompt_tokens, 1, longest):
            raise rejection("invalid_argument", f"truncate_prompt_tokens {truncate_prompt_tokens!r}: expected 1 to {longest}, or -1")
        return longest if truncate_prompt_tokens == -1 else truncate_prompt_tokens

    def _vectors(self, prompts, truncate_prompt_tokens):
        limit = self._limit(truncate_prompt_tokens)
        inputs = []
        for i, prompt in enumerate(to_list(prompts)):
            try:
                ids = self._ids(prompt, limit)
                self._handle.check([ids])
            except Error as error:
                raise rejection(error.code, f"prompts[{i}]: {error}") from None
            inputs.append(ids)
        for at in range(0, len(inputs), _CHUNK):
            chunk = inputs[at : at + _CHUNK]
            yield from zip(chunk, self._handle.embed(chunk))

    def _ids(self, prompt, limit):
        text, ids = to_prompt(prompt)
        return ids[: limit or None] if text is None else self._handle.encode(text, limit)


def _texts(texts, name):
    given = reprlib.repr(texts)
    if hasattr(texts, "tolist"):
        texts = texts.tolist()
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts, (list, tuple)) or not texts or not all(isinstance(text, str) for text in texts):
        raise rejection("invalid_argument", f"{name} {given}: expected a text, or a list of at least one text")
    return list(texts)


def _is_between(number, lowest, highest):
    return type(number) is int and lowest <= number <= highest
