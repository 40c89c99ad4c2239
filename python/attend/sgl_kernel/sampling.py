"""sgl_kernel's sampling over attend's kernels, which draw by an exact cut instead of rejection.

What differs from sgl_kernel: of probabilities that are equal at the edge of a filter, the lowest token ids are kept, and
as few as the filter asks for; the draw takes one random number for each row from the generator (torch's default one of the
device without it), so that the same seed gives the same tokens as attend's engine would draw, not as sgl_kernel does.
deterministic changes nothing: results always are. Samples are int32; the id of a row of NaN alone is -1.
"""

import torch

from .. import _attend
from .._refusal import refusal as _refusal

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
    """softmax(logits / temperature), float32; temperature a number or [num_rows], 1 for None. A temperature of 0 gives the
    largest logit, the lowest id of equals, probability 1."""
    logits = _rows("logits", logits)
    return _probabilities(logits, _rules(logits, temperature=1.0 if temperature is None else temperature))


def sampling_from_probs(probs, indices=None, deterministic=True, generator=None, check_nan=False, **hints):
    """A token of each row of probs, [num_rows, vocab_size], whose rows need not sum to 1. With indices, int [n], sample i
    is of row indices[i]."""
    return _sample(probs, indices, generator, check_nan)


def top_k_sampling_from_probs(probs, top_k, indices=None, deterministic=True, generator=None, check_nan=False, **hints):
    """Of the top_k (a number, or int [num_rows]) likeliest tokens."""
    return _sample(probs, indices, generator, check_nan, top_k=top_k)


def top_p_sampling_from_probs(probs, top_p, indices=None, deterministic=True, generator=None, check_nan=False, **hints):
    """Of the fewest tokens whose probabilities reach top_p (a number, or [num_rows]) together."""
    return _sample(probs, indices, generator, check_nan, top_p=top_p)


def top_k_top_p_sampling_from_probs(
    probs, top_k, top_p, indices=None, filter_apply_order="top_k_first", deterministic=True, generator=None,
    check_nan=False, **hints,
):  # fmt: skip
    """top_k, then top_p of what is left; "joint": tokens that both keep of the row itself."""
    if filter_apply_order == "joint":
        probs, top_p = top_p_renorm_probs(probs, top_p), 1.0
    elif filter_apply_order != "top_k_first":
        raise _refusal(
            "invalid_argument", f"filter_apply_order {filter_apply_order!r}: expected 'top_k_first' or 'joint'"
        )
    return _sample(probs, indices, generator, check_nan, top_k=top_k, top_p=top_p)


def min_p_sampling_from_probs(probs, min_p, indices=None, deterministic=True, generator=None, check_nan=False, **hints):
    """Of tokens with at least min_p (a number, or [num_rows]) times the probability of the likeliest."""
    return _sample(probs, indices, generator, check_nan, min_p=min_p)


def top_k_renorm_probs(probs, top_k):
    """probs of the top_k likeliest tokens, divided by their sum; 0 for others."""
    probs = _rows("probs", probs)
    return _probabilities(probs.log(), _rules(probs, top_k=top_k))


def top_p_renorm_probs(probs, top_p):
    """probs of the fewest tokens that reach top_p together, divided by their sum; 0 for others."""
    probs = _rows("probs", probs)
    return _probabilities(probs.log(), _rules(probs, top_p=top_p))


top_k_renorm_prob, top_p_renorm_prob = top_k_renorm_probs, top_p_renorm_probs


def _rows(name, x):
    if x.dim() != 2:
        raise _refusal("invalid_argument", f"{name} of shape {tuple(x.shape)}: expected [num_rows, vocab_size]")
    return x.float()


def _sample(probs, indices, generator, check_nan, **filters):
    probs = _rows("probs", probs)
    if check_nan and bool(probs.isnan().any()):
        raise _refusal("invalid_argument", "probs: there are NaN among them")
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
    """attend's rules, a row for each of probs: temperature, top_k, top_p and min_p of 32 bits, seed and step of 64."""
    num_rows = probs.shape[0]
    rules = torch.zeros((num_rows, 8), dtype=torch.int32, device=probs.device)
    floats = rules.view(torch.float32)
    for column, name, value in ((0, "temperature", temperature), (2, "top_p", top_p), (3, "min_p", min_p)):
        _set(floats[:, column], name, value)
    _set(rules[:, 1], "top_k", top_k)
    return rules


def _set(column, name, value):
    if isinstance(value, torch.Tensor) and value.numel() not in (1, column.shape[0]):
        raise _refusal(
            "invalid_argument", f"{name} of shape {tuple(value.shape)}: expected a number, or [{column.shape[0]}]"
        )
    if isinstance(value, torch.Tensor):
        column.copy_(value.reshape(-1))
    elif value:
        column.fill_(value)
