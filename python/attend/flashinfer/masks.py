"""Converts FlashInfer's custom masks, one bool per query and key, to masks of attend's kernels.

A mask that only masks keys of the new tokens (such as trees of drafts) becomes a tree mask. Any other becomes a batch in
which every query is a request whose pages are the single keys that it attends to. Masks are read on the host; for a GPU
tensor this waits, as FlashInfer's plan does.
"""

import numpy as np

from .._rejection import rejection

_WORD = 64


def of_requests(custom_mask, packed_custom_mask, lens_q, lens_kv):
    """Returns [bool [len_q, len_kv]] per request. custom_mask: bool, the flattened masks of all requests in sequence;
    packed_custom_mask: uint8, eight bits per byte from the lowest, each request starting at a byte."""
    sizes = [int(q) * int(kv) for q, kv in zip(lens_q, lens_kv)]
    if packed_custom_mask is not None:
        name, flat = "packed_custom_mask", _host(packed_custom_mask).reshape(-1)
        counts = [-(-size // 8) for size in sizes]
        wanted, dtype = sum(counts), "uint8"
    else:
        name, flat, counts = "custom_mask", _host(custom_mask).reshape(-1), sizes
        wanted, dtype = sum(sizes), "bool"
    if flat.dtype != dtype or flat.size != wanted:
        raise rejection(
            "invalid_argument", f"{name} of {flat.dtype} [{flat.size}]: expected {dtype} [{wanted}], of all requests"
        )
    parts = np.split(flat, np.cumsum(counts)[:-1]) if counts else []
    if packed_custom_mask is not None:
        parts = [np.unpackbits(part, count=size, bitorder="little") for part, size in zip(parts, sizes)]
    return [part.astype(bool).reshape(int(q), int(kv)) for part, q, kv in zip(parts, lens_q, lens_kv)]


def planned(plan, of_requests, slots_of_requests, window_left, like):
    """Returns the arguments of attend.attention for a plan without a mask, `plan`, with the masks of the requests.
    slots_of_requests() returns the slots of each request's keys; results are on the device of `like`."""
    of_requests = [_within_window(mask, window_left) for mask in of_requests]
    plan = {**plan, "window_left": -1}
    if _are_trees(of_requests):
        positions = _tree_positions(of_requests)
        return {**plan, "causal": True, "tree_mask": _like(like, _tree_words(of_requests)), "positions": _like(like, positions)}
    indptr, slots = _seen_slots(of_requests, slots_of_requests())
    plan.pop("cu_seqlen_kv", None)
    return {
        **plan, "causal": False, "single_keys": True, "max_seqlen_q": 1,
        "cu_seqlen_q": _like(like, np.arange(len(indptr), dtype=np.int32)), "seqlen_kv": _like(like, indptr[1:] - indptr[:-1]),
        "kv_indptr": _like(like, indptr), "kv_indices": _like(like, slots),
    }  # fmt: skip


def slots_of_pages(indptr, pages, page_size, lens):
    """Returns the slots of each request's keys, in pages[indptr[r] : indptr[r + 1]]."""
    of_request = lambda r: (pages[indptr[r] : indptr[r + 1], None] * page_size + np.arange(page_size)).reshape(-1)
    return [of_request(r)[:n] for r, n in enumerate(lens)]


def slots_between(begins):
    """Returns the slots of contiguous keys, requests in sequence."""
    return [np.arange(begin, end) for begin, end in zip(begins[:-1], begins[1:])]


def _within_window(mask, window_left):
    """Removes keys outside the window from `mask`."""
    if window_left < 0:
        return mask
    len_q, len_kv = mask.shape
    position = len_kv - len_q + np.arange(len_q)[:, None]
    return mask & (np.arange(len_kv)[None, :] >= position - window_left)


def _are_trees(masks):
    """Returns true if all queries attend to all keys before the new tokens, whose number is that of the queries."""
    return all(mask.shape[1] >= mask.shape[0] and mask[:, : mask.shape[1] - mask.shape[0]].all() for mask in masks)


def _tree_words(masks):
    """Returns uint64 [num_tokens, words]: bit b of word w of a token is set if it attends to new token 64 * w + b."""
    num_words = max(1, -(-max((mask.shape[0] for mask in masks), default=1) // _WORD))
    words = []
    for mask in masks:
        len_q, len_kv = mask.shape
        bits = np.zeros((len_q, num_words * _WORD), bool)
        bits[:, :len_q] = mask[:, len_kv - len_q :]
        words.append(np.packbits(bits, axis=1, bitorder="little").view("<u8"))
    return np.concatenate(words) if words else np.zeros((0, num_words), np.uint64)


def _tree_positions(masks):
    """Returns int32 [num_tokens]: consecutive positions of the tokens."""
    positions = [np.arange(mask.shape[1] - mask.shape[0], mask.shape[1]) for mask in masks]
    return np.concatenate(positions or [np.zeros(0)]).astype(np.int32)


def _seen_slots(masks, slots_of_requests):
    """Returns (indptr int32 [num_tokens + 1], slots int32): the slots of the keys that each query attends to, from the
    slots of each request's keys."""
    seen = [slots[row] for mask, slots in zip(masks, slots_of_requests) for row in mask]
    indptr = np.cumsum([0] + [len(one) for one in seen]).astype(np.int32)
    return indptr, np.concatenate(seen or [np.zeros(0)]).astype(np.int32)


def _host(array):
    return array.cpu().numpy() if hasattr(array, "cpu") else np.asarray(array)


def host_ints(array):
    return _host(array).astype(np.int64)


def _like(array, values):
    """Converts `values` of numpy to the library and device of `array`."""
    if not hasattr(array, "new_empty"):
        return values
    import torch

    return torch.from_numpy(values).to(array.device)
