"""Sampling parameters and stop conditions of a completion. Names are vLLM's, and SGLang's where they differ."""

from typing import TYPE_CHECKING, Any

from ._rejection import rejection
from .structured_outputs import SGLANG_FIELDS, to_grammar

# Names of SGLang and older vLLM versions, and vLLM's current names.
_ALIASES = {"max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens", "no_stop_trim": "include_stop_str_in_output",
            "guided_decoding": "structured_outputs"}  # fmt: skip
# Defaults of parameters that generation_config.json of the model may set.
_FROM_MODEL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}


class SamplingParams:
    """Sampling parameters and stop conditions of a completion.

    n                 number of completions
    max_tokens        maximum number of tokens per completion (alias max_new_tokens); default 128
    min_tokens        minimum number of tokens before the completion may end (alias min_new_tokens)
    temperature       0: greedy
    top_k             sample from the k most likely tokens; 0 or -1: all
    top_p, min_p      sample from the most likely tokens with this total probability; drop tokens below this fraction of
                      the highest probability
    seed              makes the tokens independent of other requests; completion i uses seed + i
    repetition_penalty, frequency_penalty, presence_penalty, logit_bias   applied to the logits before sampling;
                      logit_bias is {token id: bias}
    stop, stop_token_ids   text or list of texts, and token ids that end a completion, in addition to the model's
    include_stop_str_in_output   keep the stop text at the end of the text (alias no_stop_trim)
    ignore_eos        continue after the model's end-of-sequence tokens
    skip_special_tokens   omit special tokens from the text
    logprobs          log probabilities of each token and of this many most likely tokens (0 to 20)
    prompt_logprobs   the same for prompt tokens
    structured_outputs   constraint on the text: StructuredOutputsParams, or a dict of its arguments (formerly
                      guided_decoding in vLLM); or one of
    json_schema, regex, ebnf, structural_tag   the same (SGLang)

    If temperature, top_k, top_p, min_p or repetition_penalty is None, the value of the model's generation_config.json is
    used; without one, 1, all, 1, 0 and 1.
    """

    if TYPE_CHECKING:  # the arguments as attributes

        def __getattr__(self, name: str) -> Any: ...

    def __init__(
        self, *, n=1, max_tokens=None, min_tokens=None, temperature=None, top_k=None, top_p=None, min_p=None, seed=None,
        repetition_penalty=None, frequency_penalty=0.0, presence_penalty=0.0, logit_bias=None, stop=None,
        stop_token_ids=None, include_stop_str_in_output=None, ignore_eos=False, skip_special_tokens=True, logprobs=None,
        prompt_logprobs=None, structured_outputs=None, json_schema=None, regex=None, ebnf=None, structural_tag=None,
        max_new_tokens=None, min_new_tokens=None, no_stop_trim=None, guided_decoding=None,
    ):  # fmt: skip
        given = dict(locals())
        del given["self"]
        for alias, name in _ALIASES.items():
            value = given.pop(alias)
            if value is None:
                continue
            if given[name] is not None:
                raise rejection("invalid_argument", f"{alias} and {name}: both are the same; expected one of them")
            given[name] = value
        vars(self).update(given)

    def __repr__(self):
        return f"SamplingParams({', '.join(f'{name}={value!r}' for name, value in vars(self).items() if value is not None)})"

    def __eq__(self, other):
        return isinstance(other, SamplingParams) and vars(self) == vars(other)

    def grammar(self):
        """Returns (kind, text) of the constraint on the text, or None."""
        return to_grammar(self.structured_outputs, {name: getattr(self, name) for name in SGLANG_FIELDS})

    def given(self, defaults):
        """Returns the given parameters for the engine, except the grammar. `defaults`: those of generation_config.json."""
        options = {
            name: value
            for name, value in vars(self).items()
            if value is not None and name not in SGLANG_FIELDS and name != "structured_outputs"
        }
        for name, otherwise in _FROM_MODEL.items():
            options.setdefault(name, defaults.get(name, otherwise))
        if options["top_k"] == -1:
            options["top_k"] = 0
        if isinstance(options.get("stop"), str):
            options["stop"] = [options["stop"]]
        for name in ("stop", "stop_token_ids"):
            if name in options:
                options[name] = list(options[name])
        if "logit_bias" in options:
            try:
                options["logit_bias"] = [(int(token), float(bias)) for token, bias in options["logit_bias"].items()]
            except (AttributeError, TypeError, ValueError):
                raise rejection(
                    "invalid_argument", f"logit_bias {options['logit_bias']!r}: expected a dict of token ids and biases"
                ) from None
        return options


def to_sampling(sampling):
    """Returns SamplingParams from SamplingParams, a dict of its arguments, or None."""
    if sampling is None:
        return SamplingParams()
    if isinstance(sampling, SamplingParams):
        return sampling
    if not isinstance(sampling, dict):
        raise rejection("invalid_argument", f"sampling_params {sampling!r}: expected SamplingParams, or a dict of its arguments")
    unknown = [name for name in sampling if name not in vars(SamplingParams()) and name not in _ALIASES]
    if unknown:
        raise rejection("invalid_argument", f"sampling_params: {unknown[0]!r}: unknown parameter; see help(attend.SamplingParams)")
    return SamplingParams(**sampling)
