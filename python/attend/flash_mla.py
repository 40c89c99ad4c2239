"""FlashMLA's functions with attend's MLA kernels: absorbed multi-head latent attention over a paged cache, dense and sparse.

Differences from FlashMLA: GPUs from Ampere on and CPUs; any page size that is a power of two up to 256; float32, float16
and bfloat16; any head_dim_v up to 512 with a rotary part up to 64, or none. Sparse attention also supports caches of these
dtypes. A cache of several K/V heads needs one launch per head. Rows of fp8 caches (656 and 584 bytes per token) are
dequantized to separate memory before attention, those of an extra cache after the others.
"""

from . import _sparse_mla as _sparse
from ._attend import MlaPlan, flash_mla
from ._rejection import rejection as _rejection

__all__ = ["flash_mla_sparse_fwd", "flash_mla_with_kvcache", "get_mla_metadata"]


def get_mla_metadata(*args, **kwargs):
    """Returns (metadata, None), to be passed to flash_mla_with_kvcache. Arguments of older interfaces are ignored.

    Call it for every step: on a GPU the first call with the metadata plans for the current lengths, and calls of further
    layers reuse that plan. Calls with other shapes or masks, another tensor of lengths or another captured graph plan
    again, but lengths written into the same tensor are not detected, since the host does not read them. On a CPU every
    call plans itself, as do calls with indices or an fp8 cache.
    """
    return MlaPlan(), None


def flash_mla_with_kvcache(
    q, k_cache, block_table, cache_seqlens, head_dim_v, tile_scheduler_metadata=None, num_splits=None,
    softmax_scale=None, causal=False, is_fp8_kvcache=False, indices=None, attn_sink=None, extra_k_cache=None,
    extra_indices_in_kvcache=None, topk_length=None, extra_topk_length=None,
):  # fmt: skip
    """Attention of absorbed queries over latent rows.

    q              [batch, seqlen_q, num_heads, head_dim], 576 in DeepSeek: latent part, then rotary part
    k_cache        [num_pages, page_size, num_kv_heads, head_dim]: the latent row of a token is its key, and the first
                   head_dim_v elements are its value; with is_fp8_kvcache uint8 or float8_e4m3fn:
                   head_dim 576: [num_pages, page_size, 1, 656], rows with 512 values in e4m3, a float32 scale for each 128
                   of them, and 64 values in bfloat16;
                   head_dim 512: [num_pages, page_size, 1, 584], pages with page_size rows of 448 values in e4m3 and 64 in
                   bfloat16, followed by 8 bytes per row: an e8m0 scale for each 64 values, and one unused byte. Pages
                   start at multiples of 16 bytes
    block_table    int32 [batch, width], page ids; not needed with indices
    cache_seqlens  int32 [batch], keys per request, including those of the new tokens; not needed with indices
    tile_scheduler_metadata  result of get_mla_metadata, shared by all layers of a step; None: this call plans itself
    softmax_scale  factor of the scores; None: 1 / sqrt(head_dim)
    causal         query j attends to keys up to j + cache_seqlens - seqlen_q; False with indices
    indices        int32 [batch, seqlen_q, topk]: each query attends to these rows, page * page_size + offset; -1 and
                   indices outside of the cache are ignored. topk_length int32 [batch]: only the first topk_length of them
    extra_k_cache, extra_indices_in_kvcache, extra_topk_length  a second cache, with any page size, whose rows are attended
                   to in addition; with indices and is_fp8_kvcache
    attn_sink      float32 [num_heads]: logit that is added to the denominator; the LSE excludes it

    Returns (out [batch, seqlen_q, num_heads, head_dim_v], softmax_lse float32 [batch, num_heads, seqlen_q]).
    """
    if num_splits is not None:
        raise _rejection("unsupported", "num_splits: expected None; splits depend on the lengths")
    _require_lists(indices, topk_length, extra_k_cache, extra_indices_in_kvcache, extra_topk_length, is_fp8_kvcache)
    if indices is None and not is_fp8_kvcache:
        return flash_mla(
            q, k_cache, block_table, cache_seqlens, head_dim_v, tile_scheduler_metadata, softmax_scale, causal, attn_sink
        )
    _require_queries(q, head_dim_v, is_fp8_kvcache)
    if indices is not None and causal:
        raise _rejection("invalid_argument", "causal True: expected False with indices, which select the keys")
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    tokens = q.reshape(-1, *q.shape[2:])
    if indices is None:
        out, lse, counts = _dense_over_bytes(tokens, k_cache, block_table, cache_seqlens, scale, causal, attn_sink, q.shape[1])
    elif is_fp8_kvcache:
        caches = [("k_cache", k_cache, "indices", indices, topk_length)]
        if extra_k_cache is not None:
            caches.append(
                ("extra_k_cache", extra_k_cache, "extra_indices_in_kvcache", extra_indices_in_kvcache, extra_topk_length)
            )
        out, lse, counts = _sparse_over_bytes(tokens, caches, scale, attn_sink, q.shape)
    else:
        out, lse, counts = _sparse_over_rows(tokens, k_cache, indices, topk_length, head_dim_v, scale, attn_sink, q.shape)
    lse = _sparse.mask_unseen(lse, counts)
    return out.reshape(*q.shape[:3], head_dim_v), lse.reshape(*q.shape[:3]).swapaxes(1, 2)


def flash_mla_sparse_fwd(q, kv, indices, sm_scale, d_v=512, attn_sink=None, topk_length=None, indexer_topk=0, *, max_logits=True):
    """Attention of absorbed queries over rows that each of them selects.

    q            [seqlen_q, num_heads, head_dim], 576 or 512 in DeepSeek
    kv           [seqlen_kv, num_kv_heads, head_dim], float32, float16 or bfloat16: latent rows; the first d_v elements are
                 the values
    indices      int32 [seqlen_q, num_kv_heads, topk], rows of kv; -1 and indices outside of kv are ignored
    topk_length  int32 [seqlen_q]: a query attends only to the first topk_length of its indices
    attn_sink    float32 [num_heads]: logit that is added to the denominator; max_logits and LSE exclude it
    max_logits   only in attend: False omits the largest scores, which need an additional multiplication with q's library

    Returns (out [seqlen_q, num_heads, d_v], max_logits and lse, float32 [seqlen_q, num_heads]; natural logarithm). A query
    without visible keys has LSE +inf and largest score -inf.
    """
    if indexer_topk:
        raise _rejection("unsupported", f"indexer_topk {indexer_topk}: expected 0")
    if len(q.shape) != 3 or len(kv.shape) != 3 or len(indices.shape) != 3 or kv.shape[2] != q.shape[2]:
        raise _rejection(
            "invalid_argument",
            f"q of shape {tuple(q.shape)}, kv of {tuple(kv.shape)}, indices of {tuple(indices.shape)}: expected "
            "[seqlen_q, num_heads, head_dim], [seqlen_kv, num_kv_heads, head_dim] and [seqlen_q, num_kv_heads, topk]",
        )
    num_kv_heads = kv.shape[1]
    if indices.shape[:2] != (q.shape[0], num_kv_heads) or num_kv_heads == 0 or q.shape[1] % num_kv_heads:
        raise _rejection(
            "invalid_argument",
            f"indices of shape {tuple(indices.shape)}: expected [{q.shape[0]}, {num_kv_heads}, topk], and a number of heads "
            f"that divides the {q.shape[1]} of q",
        )
    group = q.shape[1] // num_kv_heads
    heads = lambda x, head: None if x is None else x[..., head * group : (head + 1) * group]
    parts = []
    for head in range(num_kv_heads):
        queries, rows = q[:, head * group : (head + 1) * group], kv[:, head]
        slots, counts = _sparse.chosen(indices[:, head], kv.shape[0], topk_length)
        out, lse = _sparse.attend_to_slots(queries, rows, slots, counts, d_v, sm_scale, heads(attn_sink, head))
        largest = _sparse.largest_scores(queries, rows, slots, counts, sm_scale) if max_logits else None
        parts.append((out, largest, _sparse.mask_unseen(lse, counts)))
    if num_kv_heads == 1:
        return parts[0]
    across = lambda of_heads: None if of_heads[0] is None else _sparse.joined([x.swapaxes(0, 1) for x in of_heads]).swapaxes(0, 1)
    return tuple(across(of_heads) for of_heads in zip(*parts))


def _require_lists(indices, topk_length, extra_k_cache, extra_indices, extra_topk_length, is_fp8_kvcache):
    if indices is None and topk_length is not None:
        raise _rejection("invalid_argument", "topk_length: expected None without indices")
    if extra_k_cache is None:
        for name, value in (("extra_indices_in_kvcache", extra_indices), ("extra_topk_length", extra_topk_length)):
            if value is not None:
                raise _rejection("invalid_argument", f"{name}: expected None without extra_k_cache")
    elif indices is None or not is_fp8_kvcache:
        raise _rejection("unsupported", "extra_k_cache: expected None without indices and is_fp8_kvcache")
    elif extra_indices is None:
        raise _rejection("invalid_argument", "extra_indices_in_kvcache None: expected a tensor with extra_k_cache")


def _require_queries(q, head_dim_v, is_fp8_kvcache):
    if len(q.shape) != 4:
        raise _rejection(
            "invalid_argument", f"q of shape {tuple(q.shape)}: expected [batch, seqlen_q, num_heads, head_dim]"
        )
    if is_fp8_kvcache and (q.shape[3] not in (512, 576) or head_dim_v != 512):
        raise _rejection(
            "unsupported",
            f"is_fp8_kvcache with a head_dim of {q.shape[3]}, head_dim_v {head_dim_v}: expected 576 or 512, and 512",
        )


def _dense_over_bytes(tokens, k_cache, block_table, cache_seqlens, scale, causal, attn_sink, seqlen_q):
    cache = _sparse.view_as_bytes("k_cache", k_cache, tokens.shape[2])
    for name, value in (("block_table", block_table), ("cache_seqlens", cache_seqlens)):
        if value is None:
            raise _rejection("invalid_argument", f"{name} None: expected a tensor without indices")
    slots = _sparse.slots_of_pages(block_table, cache.shape[1])
    out, lse = _sparse.attend_to_bytes(tokens, [(cache, slots, cache_seqlens)], scale, attn_sink, seqlen_q, causal)
    return out, lse, cache_seqlens.repeat_interleave(seqlen_q) if hasattr(tokens, "new_empty") else cache_seqlens.repeat(seqlen_q)


def _sparse_over_bytes(tokens, caches, scale, attn_sink, shape):
    lists = []
    for cache_name, cache, name, indices, topk_length in caches:
        cache = _sparse.view_as_bytes(cache_name, cache, shape[3])
        lists.append((cache, *_listed(name, indices, cache.shape[0] * cache.shape[1], topk_length, shape)))
    out, lse = _sparse.attend_to_bytes(tokens, lists, scale, attn_sink)
    return out, lse, sum(counts for _, _, counts in lists)


def _sparse_over_rows(tokens, k_cache, indices, topk_length, head_dim_v, scale, attn_sink, shape):
    if len(k_cache.shape) != 4 or k_cache.shape[2] != 1 or k_cache.shape[3] != shape[3]:
        raise _rejection(
            "invalid_argument",
            f"k_cache of shape {tuple(k_cache.shape)}: expected [num_pages, page_size, 1, {shape[3]}] with indices",
        )
    slots, counts = _listed("indices", indices, k_cache.shape[0] * k_cache.shape[1], topk_length, shape)
    rows = _sparse.make_rows(k_cache)
    return (*_sparse.attend_to_slots(tokens, rows, slots, counts, head_dim_v, scale, attn_sink), counts)


def _listed(name, indices, num_slots, topk_length, shape):
    if len(indices.shape) != 3 or tuple(indices.shape[:2]) != tuple(shape[:2]):
        raise _rejection(
            "invalid_argument", f"{name} of shape {tuple(indices.shape)}: expected [{shape[0]}, {shape[1]}, topk]"
        )
    return _sparse.chosen(indices.reshape(-1, indices.shape[2]), num_slots, topk_length, shape[1])
