"""Sparse attention of absorbed queries for attend.flash_mla: every query token becomes a request of one token whose pages
are the single rows that it selects. Rows of fp8 caches are dequantized first, for a limited number of queries per launch."""

from ._attend import compact_slots, dequantize_rows, mla
from ._rejection import rejection

# Bytes per token in FlashMLA's fp8 caches, by the number of values per row. Pages of 584-byte tokens store all rows
# first, followed by all scales.
_ROW_BYTES = {576: 656, 512: 584}
_RANK = 512
# Maximum number of dequantized rows per launch: 288 MiB in 16 bits.
_MAX_ROWS = 1 << 18


def attend_to_slots(q, cache, slots, counts, head_dim_v, scale, sinks):
    """Returns (out, lse) of q [num_tokens, num_heads, head_dim] over cache [num_slots, head_dim]. Token t attends to the
    first counts[t] of its slots, int32 [num_tokens, topk]."""
    return mla(
        q[..., :head_dim_v], q[..., head_dim_v:], cache[:, None], iota(slots, q.shape[0] + 1), counts, scale, max_seqlen_q=1,
        page_table=slots, causal=False, sinks=sinks, return_lse=True,
    )  # fmt: skip


def attend_to_bytes(q, lists, scale, sinks, seqlen_q=1, causal=False):
    """Returns (out, lse) of q [num_tokens, num_heads, head_dim] over the rows of all lists. A list is (cache, slots, counts):
    an fp8 cache [num_pages, page_size, bytes per token] and, for each group of seqlen_q tokens, the first counts of its
    slots."""
    num_groups, width = lists[0][1].shape[0], sum(slots.shape[1] for _, slots, _ in lists)
    step = max(1, _MAX_ROWS // max(width, 1))
    parts = [
        _attend_to_dequantized(
            q[begin * seqlen_q : (begin + step) * seqlen_q],
            [(cache, slots[begin : begin + step], counts[begin : begin + step]) for cache, slots, counts in lists],
            scale, sinks, seqlen_q, causal,
        )
        for begin in range(0, max(num_groups, 1), step)
    ]  # fmt: skip
    return parts[0] if len(parts) == 1 else tuple(joined(of_parts) for of_parts in zip(*parts))


def _attend_to_dequantized(q, lists, scale, sinks, seqlen_q, causal):
    num_groups, width = lists[0][1].shape[0], sum(slots.shape[1] for _, slots, _ in lists)
    rows = empty(q, (num_groups, width, q.shape[2]))
    seen = None
    for cache, slots, counts in lists:
        dequantize_rows(cache, slots, counts, seen, rows)
        seen = counts if seen is None else seen + counts
    starts = iota(seen, num_groups + 1)
    return mla(
        q[..., :_RANK], q[..., _RANK:], rows.reshape(-1, 1, q.shape[2]), starts * seqlen_q, seen, scale, max_seqlen_q=seqlen_q,
        cu_seqlen_kv=starts * width, causal=causal, sinks=sinks, return_lse=True,
    )  # fmt: skip


def chosen(indices, num_slots, topk_length=None, rows_each=1):
    """Returns (slots, counts): those of the first topk_length indices per row of int32 [num_rows, topk] that are valid, in
    [0, num_slots)."""
    slots = empty(indices, tuple(indices.shape))
    counts = empty(indices, (indices.shape[0],))
    compact_slots(indices, topk_length, rows_each, num_slots, slots, counts)
    return slots, counts


def view_as_bytes(name, cache, head_dim):
    """Views an fp8 cache with rows of head_dim values as [num_pages, page_size, bytes per token]."""
    row_bytes = _ROW_BYTES[head_dim]
    if len(cache.shape) != 4 or cache.shape[2] != 1 or cache.shape[3] != row_bytes:
        raise rejection(
            "invalid_argument",
            f"{name} of shape {tuple(cache.shape)}: expected [num_pages, page_size, 1, {row_bytes}] of bytes with "
            f"is_fp8_kvcache and a head_dim of {head_dim}",
        )
    return cache[:, :, 0]


def make_rows(k_cache):
    """Views a cache of one K/V head as [num_slots, head_dim]."""
    strides = k_cache.stride() if hasattr(k_cache, "stride") else [step // k_cache.itemsize for step in k_cache.strides]
    if k_cache.shape[1] > 1 and strides[0] != k_cache.shape[1] * strides[1]:
        raise rejection("unsupported", f"k_cache with strides {tuple(strides)}: expected pages without gaps with indices")
    if hasattr(k_cache, "as_strided"):
        return k_cache[:, :, 0].flatten(0, 1)
    return k_cache.reshape(-1, k_cache.shape[3])


def slots_of_pages(block_table, page_size):
    """Returns the slots of all positions of block_table: int32 [batch, width * page_size]."""
    slots = block_table[:, :, None] * page_size + iota(block_table, page_size)
    return slots.reshape(block_table.shape[0], -1)


def largest_scores(q, cache, slots, counts, scale):
    """Returns float32 [num_tokens, num_heads]: the largest score of each token, -inf without keys. Computed in float32 with
    the cache's library, for a limited number of tokens at a time."""
    if 0 in slots.shape:
        return where((counts < counts)[:, None], float32(q[..., 0]), float("-inf"))
    step = max(1, (_MAX_ROWS // 8) // slots.shape[1])
    parts = []
    for begin in range(0, q.shape[0], step):
        part = slice(begin, begin + step)
        rows = float32(cache[slots[part]])
        scores = (float32(q[part]) @ rows.swapaxes(1, 2)) * scale
        seen = iota(slots, slots.shape[1]) < counts[part][:, None]
        parts.append(where(seen[:, None, :], scores, float("-inf")).max(-1))
    parts = [part.values if hasattr(part, "values") else part for part in parts]
    return parts[0] if len(parts) == 1 else joined(parts)


def mask_unseen(lse, counts_of_tokens):
    """Sets the LSE of queries without visible keys to +inf, as FlashMLA does."""
    return where((counts_of_tokens > 0)[..., None], lse, float("inf"))


# Functions that torch and numpy have under different names.


def empty(like, shape):
    if hasattr(like, "new_empty"):
        return like.new_empty(shape)
    import numpy

    return numpy.empty(shape, like.dtype)


def iota(like, size):
    """Returns 0, 1, ..., size - 1 as int32 on the device of `like`."""
    if hasattr(like, "new_empty"):
        import torch

        return torch.arange(size, dtype=torch.int32, device=like.device)
    import numpy

    return numpy.arange(size, dtype=numpy.int32)


def where(condition, x, otherwise):
    if hasattr(x, "masked_fill"):
        return x.masked_fill(~condition, otherwise)
    import numpy

    return numpy.where(condition, x, numpy.float32(otherwise))


def float32(x):
    return x.float() if hasattr(x, "float") else x.astype("float32")


def joined(parts):
    if hasattr(parts[0], "new_empty"):
        import torch

        return torch.cat(list(parts))
    import numpy

    return numpy.concatenate(parts)
