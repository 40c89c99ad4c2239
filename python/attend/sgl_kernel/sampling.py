"""sgl_kernel's sampling with attend's kernels, which use an exact cutoff instead of rejection sampling.

Differences from sgl_kernel: among equal probabilities at the limit of a filter, the lowest token ids are kept, and only as
many as needed. Sampling uses one random number per row from the generator (by default torch's for the device), so the same
seed yields the tokens of attend's engine, not those of sgl_kernel. deterministic has no effect: results are always
deterministic. Samples are int32; a row with only NaN yields -1.
"""

import torch

from .. import _attend
from .._rejection import rejection as _rejection

__all__ = [
    "min_p_sampling_from_probs",
    "sampling_from_probs",
    "softmax",
    "top_k_renorm_prob",
    "top_k_renorm_probs",
    "top_k_sampling_from_probs",
    "top_k_top_p_sampling_from_probs",
    "top_p_renorm_prob",
    "top_p_renorm_probs",
    "top_p_sampling_from_probs",
]


def softmax(logits, temperature=None, enable_pdl=None, **hints):
    """softmax(logits / temperature), float32; temperature is a number or [num_rows], 1 if None. With temperature 0 the
    largest logit (lowest id among equal ones) has probability 1."""
    logits = _rows("logits", logits)
    return _probabilities(logits, _rules(logits, temperature=1.0 if temperature is None else temperature))


def sampling_from_probs(probs, indices=None, deterministic=True, generator=None, check_nan=False, **hints):
    """Samples a token per row of probs, [num_rows, vocab_size], whose rows need not sum to 1. With indices, int [n], sample
    i uses row indices[i]."""
    return _sample(probs, indices, generator, check_nan)


def top_k_sampling_from_probs(probs, top_k, indices=None, deterministic=True, generator=None, check_nan=False, **hints):
    """Samples from the top_k (a number, or int [num_rows]) most likely tokens."""
    return _sample(probs, indices, generator, check_nan, top_k=top_k)


def top_p_sampling_from_probs(probs, top_p, indices=None, deterministic=True, generator=None, check_nan=False, **hints):
    """Samples from the fewest tokens with a total probability of at least top_p (a number, or [num_rows])."""
    return _sample(probs, indices, generator, check_nan, top_p=top_p)


def top_k_top_p_sampling_from_probs(
    probs, top_k, top_p, indices=None, filter_apply_order="top_k_first", deterministic=True, generator=None,
    check_nan=False, **hints,
):  # fmt: skip
    """Applies top_k, then top_p to the remaining tokens; "joint" keeps the tokens that both filters keep independently."""
    if filter_apply_order == "joint":
        probs, top_p = top_p_renorm_probs(probs, top_p), 1.0
    elif filter_apply_order != "top_k_first":
        raise _rejection(
            "invalid_argument", f"filter_apply_order {filter_apply_order!r}: expected 'top_k_first' or 'joint'"
        )
    return _sample(probs, indices, generator, check_nan, top_k=top_k, top_p=top_p)


def min_p_sampling_from_probs(probs, min_p, indices=None, deterministic=True, generator=None, check_nan=False, **hints):
    """Samples from tokens with at least min_p (a number, or [num_rows]) times the highest probability."""
    return _sample(probs, indices, generator, check_nan, min_p=min_p)


def top_k_renorm_probs(probs, top_k):
    """Returns probs of the top_k most likely tokens, divided by their sum; 0 for others."""
    probs = _rows("probs", probs)
    return _probabilities(probs.log(), _rules(probs, top_k=top_k))


def top_p_renorm_probs(probs, top_p):
    """Returns probs of the fewest tokens with a total of at least top_p, divided by their sum; 0 for others."""
    probs = _rows("probs", probs)
    return _probabilities(probs.log(), _rules(probs, top_p=top_p))


top_k_renorm_prob, top_p_renorm_prob = top_k_renorm_probs, top_p_renorm_probs


def _rows(name, x):
    if x.dim() != 2:
        raise _rejection("invalid_argument", f"{name} of shape {tuple(x.shape)}: expected [num_rows, vocab_size]")
    return x.float()


def _sample(probs, indices, generator, check_nan, **filters):
    probs = _rows("probs", probs)
    if check_nan and bool(probs.isnan().any()):
        raise _rejection("invalid_argument", "probs: contains NaN")
    if indices is not None:
        probs = probs[indices.long()]
    rules = _rules(probs, **filters)
    rules.view(torch.int64)[:, 2].random_(generator=generator)
    ids = rules.new_empty(probs.shape[0])
    _attend.sample_tokens(probs.log(), rules, ids)
    return ids


def _probabilities(logits, rules):
    out = torch.empty_like(logits)
    _attend.probabilities(logits, rules, out)
    return out


def _rules(probs, *, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    """Returns attend's rules, one row per row of probs: temperature, top_k, top_p and min_p in 32 bits, seed and step in
    64."""
    num_rows = probs.shape[0]
    rules = torch.zeros((num_rows, 8), dtype=torch.int32, device=probs.device)
    floats = rules.view(torch.float32)
    for column, name, value in ((0, "temperature", temperature), (2, "top_p", top_p), (3, "min_p", min_p)):
        _set(floats[:, column], name, value)
    _set(rules[:, 1], "top_k", top_k)
    return rules


def _set(column, name, value):
    if isinstance(value, torch.Tensor) and value.numel() not in (1, column.shape[0]):
        raise _rejection(
            "invalid_argument", f"{name} of shape {tuple(value.shape)}: expected a number, or [{column.shape[0]}]"
        )
    if isinstance(value, torch.Tensor):
        column.copy_(value.reshape(-1))
    elif value:
        column.fill_(value)
