"""Outputs of a request."""

from dataclasses import dataclass, field
from typing import Dict, List, Optional, Union


@dataclass
class Logprob:
    """Log probability of a token, and its rank if it is among the requested most likely tokens (1 is the most likely)."""

    logprob: float
    rank: Optional[int] = None
    decoded_token: Optional[str] = None


@dataclass
class CompletionOutput:
    """One completion of a prompt; in a stream, its new part.

    finish_reason  None while it runs, "stop", "length" (max_tokens, or the context is full), "abort", or "error", with a
                   message in `error`
    stop_reason    stop text or token id that ended it
    logprobs       {token id: Logprob} per token, if requested: of the token itself and of the most likely tokens
    """

    index: int = 0
    text: str = ""
    token_ids: List[int] = field(default_factory=list)
    finish_reason: Optional[str] = None
    stop_reason: Union[int, str, None] = None
    logprobs: Optional[List[Dict[int, Logprob]]] = None
    cumulative_logprob: Optional[float] = None
    error: Optional[str] = None

    def finished(self) -> bool:
        return self.finish_reason is not None

    def _add(self, new):
        self.text += new.text
        self.token_ids += new.token_ids
        self.finish_reason, self.stop_reason, self.error = new.finish_reason, new.stop_reason, new.error
        if new.logprobs is not None:
            self.logprobs = (self.logprobs or []) + new.logprobs
            self.cumulative_logprob = (self.cumulative_logprob or 0.0) + new.cumulative_logprob


@dataclass
class RequestOutput:
    """A prompt and its completions. text, token_ids, finish_reason and logprobs are those of the first completion."""

    prompt: Optional[str]
    prompt_token_ids: List[int]
    outputs: List[CompletionOutput]
    num_cached_tokens: int = 0
    prompt_logprobs: Optional[List[Optional[Dict[int, Logprob]]]] = None

    @property
    def finished(self) -> bool:
        return all(output.finished() for output in self.outputs)

    @property
    def text(self) -> str:
        return self.outputs[0].text

    @property
    def token_ids(self) -> List[int]:
        return self.outputs[0].token_ids

    @property
    def finish_reason(self) -> Optional[str]:
        return self.outputs[0].finish_reason

    @property
    def logprobs(self) -> Optional[List[Dict[int, Logprob]]]:
        return self.outputs[0].logprobs


@dataclass
class EmbeddingOutput:
    """The vector of a prompt."""

    embedding: List[float]

    @property
    def hidden_size(self) -> int:
        return len(self.embedding)


@dataclass
class ClassificationOutput:
    """Scores of the labels of a prompt."""

    probs: List[float]

    @property
    def num_classes(self) -> int:
        return len(self.probs)


@dataclass
class ScoringOutput:
    """Score of a pair."""

    score: float


@dataclass
class EmbeddingRequestOutput:
    """A prompt and its vector."""

    prompt_token_ids: List[int]
    outputs: EmbeddingOutput
    finished: bool = True


@dataclass
class ClassificationRequestOutput:
    """A prompt and the scores of its labels."""

    prompt_token_ids: List[int]
    outputs: ClassificationOutput
    finished: bool = True


@dataclass
class ScoringRequestOutput:
    """A pair and its score; with an embedding model, the ids of both texts are joined."""

    prompt_token_ids: List[int]
    outputs: ScoringOutput
    finished: bool = True


def logprobs_by_token(token_ids, kept, token_decoder):
    """Returns [{token id: Logprob}] per token, from [(logprob, [(token id, logprob), ...])]."""
    entries = []
    for token, (logprob, tops) in zip(token_ids, kept):
        others = [(top, top_logprob, token_decoder.decode(top) if token_decoder else None) for top, top_logprob in tops]
        entry = {token: Logprob(logprob, None, token_decoder.push(token) if token_decoder else None)}
        for rank, (top, top_logprob, text) in enumerate(others, 1):
            entry[top] = Logprob(top_logprob, rank, text)
        entries.append(entry)
    return entries
