"""How the tokens of a completion are chosen, and where it ends: names are vLLM's, and SGLang's where they differ."""

from typing import TYPE_CHECKING, Any

from ._refusal import refusal
from .structured_outputs import SGLANG_FIELDS, to_grammar

# SGLang's names and older ones of vLLM, and what vLLM calls the same.
_ALIASES = {"max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens", "no_stop_trim": "include_stop_str_in_output",
            "guided_decoding": "structured_outputs"}  # fmt: skip
# What None means: what generation_config.json of the model says, otherwise this.
_FROM_MODEL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}


class SamplingParams:
    """How the tokens of a completion are chosen, and where it ends.

    n                 completions of the prompt
    max_tokens        tokens of a completion at most (max_new_tokens is the same); default 128
    min_tokens        before any token that would end it (min_new_tokens)
    temperature       0: the likeliest token
    top_k             sample from the k likeliest; 0 or -1: all
    top_p, min_p      sample from the likeliest that reach this probability together; drop what is below this share of
                      the likeliest's probability
    seed              decides the tokens whatever else runs; completion i takes seed + i
    repetition_penalty, frequency_penalty, presence_penalty, logit_bias   what becomes of logits before all of that;
                      logit_bias is {token id: bias}
    stop, stop_token_ids   a text or several, token ids: what ends a completion, besides the model's end tokens
    include_stop_str_in_output   the text ends with the stop text, not before it (no_stop_trim)
    ignore_eos        go on after the model's end tokens
    skip_special_tokens   leave them out of the text
    logprobs          logarithms of probabilities: of each token, and of so many of the likeliest in its place (0 to 20)
    prompt_logprobs   the same of the prompt's tokens
    structured_outputs   what the text is to be: StructuredOutputsParams, or a dict of its arguments (vLLM, which
                      called it guided_decoding); or one of
    json_schema, regex, ebnf, structural_tag   the same (SGLang)

    temperature, top_k, top_p, min_p and repetition_penalty that are None are those of the model's
    generation_config.json; what it does not say is 1, all, 1, 0 and 1.
    """

    if TYPE_CHECKING:  # the arguments, under their names

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
                raise refusal("invalid_argument", f"{alias} and {name}: they are the same; give one of them")
            given[name] = value
        vars(self).update(given)

    def __repr__(self):
        return f"SamplingParams({', '.join(f'{name}={value!r}' for name, value in vars(self).items() if value is not None)})"

    def __eq__(self, other):
        return isinstance(other, SamplingParams) and vars(self) == vars(other)

    def grammar(self):
        """(kind, text) of what the text is to be; None: anything."""
        return to_grammar(self.structured_outputs, {name: getattr(self, name) for name in SGLANG_FIELDS})

    def given(self, defaults):
        """What was given, as the engine takes it, but for the grammar; `defaults` are generation_config.json's."""
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
                raise refusal(
                    "invalid_argument", f"logit_bias {options['logit_bias']!r}: expected a dict of token ids and biases"
                ) from None
        return options


def to_sampling(sampling):
    """SamplingParams of what a caller gave: SamplingParams, a dict of its arguments, or None."""
    if sampling is None:
        return SamplingParams()
    if isinstance(sampling, SamplingParams):
        return sampling
    if not isinstance(sampling, dict):
        raise refusal("invalid_argument", f"sampling_params {sampling!r}: expected SamplingParams, or a dict of its arguments")
    unknown = [name for name in sampling if name not in vars(SamplingParams()) and name not in _ALIASES]
    if unknown:
        raise refusal("invalid_argument", f"sampling_params: {unknown[0]!r}: no such parameter; see help(attend.SamplingParams)")
    return SamplingParams(**sampling)
