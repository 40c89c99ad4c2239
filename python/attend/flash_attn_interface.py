"""FlashAttention-3's flash_attn_interface over attend's kernels: the same calls, on GPUs from Ampere on and on CPUs.

Every argument is honored or refused by name with what would be accepted. What differs from FlashAttention-3:
  - forward only: flash_attn_func, flash_attn_qkvpacked_func and flash_attn_varlen_func take tensors of torch that
    require grad, and backward through their result is refused; flash_attn_with_kvcache refuses such tensors while
    gradients are recorded;
  - queries are float32, float16, bfloat16 or fp8 (taken as bfloat16, of which the result is); K/V of the same dtype,
    another of them, or fp8 (on a GPU fast for q's own dtype and fp8);
  - sinks (also under the name learnable_sink) are float32 [num_heads]; softmax_lse leaves them out;
  - descales are numbers, or float32 tensors of one element or [batch, num_kv_heads], which need not be contiguous;
    one that lies in a tensor on a GPU, or differs by request or head, is applied to q (rounded once more to its
    dtype) or to the result in launches of its own;
  - the LSE of a query that sees no key is -inf, its output 0;
  - pack_gqa and sm_margin are hints, and change nothing: query heads of a group are always packed;
  - num_splits is 0 (balanced over the device), 1 (none), or n: the work of a batch is shared by no more than n CTAs
    for each request, K/V head and 128 rows (query tokens times heads of a K/V head), of which a long request has more
    than a short one. The same call always gives the same bits, but unless it is 1 they depend on the lengths of the
    whole batch;
  - with qv each K/V head is a launch of its own. k and v that are two parts of one tensor, [v, k] in the last
    dimension, are read where they lie; otherwise the whole cache is copied into such rows in every call;
  - cache_leftpad and seqused_q are brought into what a request has: on a GPU the host reads none of them.
"""

from ._attend import Error as _Error
from ._attend import flash_attention, merge_splits as _merge_splits, scheduler_metadata as _scheduler_metadata
from ._forward_only import recorded as _recorded, without_backward as _without_backward
from ._refusal import refusal as _refusal

__all__ = [
    "flash_attn_combine",
    "flash_attn_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "get_scheduler_metadata",
]


def _rows(page_table, cache_batch_idx):
    """The rows of page_table that requests have."""
    try:
        if hasattr(page_table, "index_select"):
            return page_table.index_select(0, cache_batch_idx)
        return page_table[cache_batch_idx]
    except (IndexError, RuntimeError) as error:
        raise _refusal("invalid_argument", f"cache_batch_idx with page_table: {error}") from None


def _exactly_one(sinks, learnable_sink):
    if sinks is not None:
        raise _refusal("invalid_argument", "sinks and learnable_sink: expected one of them, they are the same")
    return learnable_sink


def _attend(name, **arguments):
    """For functions that have a backward in FlashAttention."""
    try:
        return flash_attention(**arguments)
    except _Error:
        # Asked now, not before: most calls record nothing.
        tensors = _recorded(arguments)
        if not tensors or arguments.get("out") is not None:
            raise
    return _without_backward(name, lambda: flash_attention(**arguments), tensors)


def flash_attn_func(
    q, k, v, softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None, v_descale=None,
    window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=0, pack_gqa=None, deterministic=False,
    sm_margin=0, return_attn_probs=False, *, sinks=None, learnable_sink=None,
):  # fmt: skip
    """Attention of requests that are all of one length.

    q  [batch, seqlen_q, num_heads, head_dim]     k  [batch, seqlen_k, num_kv_heads, head_dim]
    v  [batch, seqlen_k, num_kv_heads, head_dim_v]; above 256, in a launch for each equal part of up to 256 columns
    qv           [batch, seqlen_q, num_heads, head_dim_v], absorbed MLA: scores are q k + qv v (64 and 512 in DeepSeek)
    causal       query j sees the keys up to j + seqlen_k - seqlen_q (aligned at the end)
    window_size  (left, right), both inclusive, -1 for no bound
    attention_chunk  a query sees its chunk of so many positions alone; 0: none
    softcap      scores become softcap * tanh(score / softcap); 0: none
    sinks, learnable_sink  float32 [num_heads]: a logit that enters the denominator

    Returns out [batch, seqlen_q, num_heads, head_dim_v]; with return_attn_probs also softmax_lse, float32
    [batch, num_heads, seqlen_q].
    """
    return _attend(
        "flash_attn_func",
        q=q, qv=qv, k_cache=k, v_cache=v, softmax_scale=softmax_scale, causal=causal, window_size=window_size,
        attention_chunk=attention_chunk, softcap=softcap, sinks=sinks, learnable_sink=learnable_sink,
        q_descale=q_descale, k_descale=k_descale, v_descale=v_descale, num_splits=num_splits,
        return_softmax_lse=return_attn_probs, keys_are_cache=False,
    )  # fmt: skip


def flash_attn_qkvpacked_func(
    qkv, softmax_scale=None, causal=False, q_descale=None, k_descale=None, v_descale=None, window_size=(-1, -1),
    attention_chunk=0, softcap=0.0, deterministic=False, num_heads_q=None, sm_margin=0, return_attn_probs=False,
):  # fmt: skip
    """flash_attn_func of one tensor: qkv [batch, seqlen, 3, num_heads, head_dim], or with num_heads_q
    [batch, seqlen, num_heads_q + 2 * num_kv_heads, head_dim]."""
    if num_heads_q is None:
        if len(qkv.shape) != 5 or qkv.shape[2] != 3:
            raise _refusal(
                "invalid_argument",
                f"qkv of shape {tuple(qkv.shape)}: expected [batch, seqlen, 3, num_heads, head_dim], or num_heads_q",
            )
        q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
    else:
        num_kv_heads, rest = divmod(qkv.shape[2] - num_heads_q, 2) if len(qkv.shape) == 4 else (0, 1)
        if rest or num_kv_heads < 1:
            raise _refusal(
                "invalid_argument",
                f"qkv of shape {tuple(qkv.shape)}, num_heads_q {num_heads_q}: expected "
                "[batch, seqlen, num_heads_q + 2 * num_kv_heads, head_dim]",
            )
        first_v = num_heads_q + num_kv_heads
        q, k, v = qkv[:, :, :num_heads_q], qkv[:, :, num_heads_q:first_v], qkv[:, :, first_v:]
    return flash_attn_func(
        q, k, v, softmax_scale, causal, None, q_descale, k_descale, v_descale, window_size, attention_chunk, softcap,
        return_attn_probs=return_attn_probs,
    )  # fmt: skip


def flash_attn_combine(out_partial, lse_partial, out=None, out_dtype=None):
    """Merges attention over several parts of the keys.

    out_partial  float32 [num_splits, batch, seqlen, num_heads, head_dim], or without batch
    lse_partial  float32 [num_splits, batch, seqlen, num_heads], or without batch: natural logarithm, -inf without keys
    out          written instead of a new tensor, whose dtype is out_dtype, or float32

    Returns (out [batch, seqlen, num_heads, head_dim], lse float32 [batch, seqlen, num_heads]).
    """
    return _merge_splits(out_partial, lse_partial, out, out_dtype)


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k=None, seqused_q=None, seqused_k=None,
    softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None, v_descale=None, window_size=(-1, -1),
    attention_chunk=0, softcap=0.0, num_splits=0, pack_gqa=None, deterministic=False, sm_margin=0,
    return_attn_probs=False, *, page_table=None, out=None, return_softmax_lse=False, sinks=None, learnable_sink=None,
):  # fmt: skip
    """Attention of ragged requests.

    q  [total_q, num_heads, head_dim]     cu_seqlens_q  int32 [batch + 1], where each request's queries begin
    k  [total_k, num_kv_heads, head_dim], v  [total_k, num_kv_heads, head_dim_v]
    cu_seqlens_k  int32 [batch + 1];  seqused_k  int32 [batch], fewer keys than that; or, with
    page_table    int32 [batch, width], k and v [num_pages, page_size, num_kv_heads, ...], cu_seqlens_k None and
                  seqused_k the lengths
    max_seqlen_q  the largest number of queries of a request, or more; less is refused on a CPU, where lengths are read
    seqused_q     int32 [batch], fewer queries than that: the others' output is 0
    max_seqlen_k  not needed
    out           written instead of a new tensor: [total_q, num_heads, head_dim_v]

    The other arguments are those of flash_attn_func. Returns out; with return_softmax_lse (or return_attn_probs) also
    softmax_lse, float32 [num_heads, total_q].
    """
    return _attend(
        "flash_attn_varlen_func",
        q=q, qv=qv, k_cache=k, v_cache=v, seqused_q=seqused_q, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
        cache_seqlens=seqused_k, max_seqlen_q=max_seqlen_q, page_table=page_table, softmax_scale=softmax_scale, causal=causal,
        window_size=window_size, attention_chunk=attention_chunk, softcap=softcap, sinks=sinks,
        learnable_sink=learnable_sink, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale,
        num_splits=num_splits, out=out, return_softmax_lse=return_softmax_lse or return_attn_probs,
        keys_are_cache=False,
    )  # fmt: skip


def flash_attn_with_kvcache(
    q, k_cache, v_cache, k=None, v=None, qv=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None,
    cache_batch_idx=None, cache_leftpad=None, page_table=None, cu_seqlens_q=None, cu_seqlens_k_new=None,
    max_seqlen_q=None, rotary_seqlens=None, q_descale=None, k_descale=None, v_descale=None, softmax_scale=None,
    causal=False, window_size=(-1, -1), attention_chunk=0, softcap=0.0, rotary_interleaved=True,
    scheduler_metadata=None, num_splits=0, pack_gqa=None, sm_margin=0, return_softmax_lse=False, *, sinks=None,
    learnable_sink=None, out=None,
):  # fmt: skip
    """Attention over a K/V cache, to which new keys may be appended in the same call.

    q  [batch, seqlen_q, num_heads, head_dim]; or, with cu_seqlens_q int32 [batch + 1] and max_seqlen_q,
       [total_q, num_heads, head_dim]
    k_cache, v_cache  [num_pages, page_size, num_kv_heads, head_dim] with page_table int32 [batch, width]; page sizes
                      are powers of two up to 256; or [cache_batch, seqlen_cache, num_kv_heads, head_dim], of which
                      request r has row cache_batch_idx[r] (int32 [batch]), or row r; with both arguments they are
                      rows of page_table
    cache_leftpad     int32 [batch]: so many keys at the beginning of each request are not seen
    cache_seqlens     int32 [batch], or a number: keys in the cache, before the new ones are appended; None, for a
                      cache without pages: seqlen_cache
    k, v              [batch, seqlen_new, num_kv_heads, head_dim], or with cu_seqlens_k_new int32 [batch + 1]
                      [total_new, num_kv_heads, head_dim]: stored in the cache behind cache_seqlens, and seen. On a
                      GPU what there is no room for is left out, on a CPU refused
    rotary_cos, rotary_sin  [seqlen_rotary, rotary_dim / 2], float32, float16, bfloat16 or fp8: q and the keys to append are
                      rotated by their positions, the others of their elements not. Key j of a request stands at
                      cache_seqlens + j, or rotary_seqlens (int32 [batch]) + j; query j too with a causal mask or a
                      window, otherwise all queries stand at the first of these. rotary_interleaved: pairs are
                      (2 i, 2 i + 1), otherwise (i, i + rotary_dim / 2)
    scheduler_metadata  of get_scheduler_metadata, made once for all layers of a step. A call with other heads, masks
                      or, on a CPU, lengths is refused; on a GPU lengths are not read by the host: see there
    out               written instead of a new tensor

    The other arguments are those of flash_attn_func. Returns out, of q's shape with head_dim_v; with
    return_softmax_lse also softmax_lse, float32 [batch, num_heads, seqlen_q] or [num_heads, total_q].
    """
    if page_table is not None and cache_batch_idx is not None:
        page_table, cache_batch_idx = _rows(page_table, cache_batch_idx), None
    if learnable_sink is not None:
        sinks = _exactly_one(sinks, learnable_sink)
    # By their places: keywords so many are packed into a dictionary first, which takes longer than the call.
    return flash_attention(
        q, qv, k_cache, v_cache, k, v, rotary_cos, rotary_sin, rotary_seqlens, bool(rotary_interleaved), cu_seqlens_q,
        cu_seqlens_k_new, cache_seqlens, max_seqlen_q, page_table, cache_batch_idx, cache_leftpad, softmax_scale, causal,
        window_size, attention_chunk, softcap, sinks, q_descale, k_descale, v_descale, num_splits, scheduler_metadata, out,
        return_softmax_lse,
    )  # fmt: skip


def get_scheduler_metadata(
    batch_size, max_seqlen_q, max_seqlen_k, num_heads_q, num_heads_kv, headdim, cache_seqlens, qkv_dtype=None,
    headdim_v=None, cu_seqlens_q=None, cu_seqlens_k_new=None, cache_leftpad=None, page_size=None, max_seqlen_k_new=0,
    causal=False, window_size=(-1, -1), attention_chunk=0, has_softcap=False, num_splits=0, pack_gqa=None, sm_margin=0,
    *, total_q=None,
):  # fmt: skip
    """Plans a batch once, for the flash_attn_with_kvcache calls of all layers with these lengths, heads and masks.

    The plan is of the lengths that cache_seqlens holds now: make it anew for every step. On a CPU a call with other
    lengths is refused. On a GPU the host reads no lengths, so only batch, heads, masks and sizes are compared: whenever
    cache_seqlens changes the plan is to be made, or a graph that makes it replayed, before the calls that take it;
    results are wrong otherwise.

    cache_seqlens     int32 [batch_size], before max_seqlen_k_new keys (or those of cu_seqlens_k_new) are appended
    cu_seqlens_q      int32 [batch_size + 1], otherwise each request has max_seqlen_q queries; total_q is their number,
                      if it is known
    qkv_dtype         of the cache; None: bfloat16. A cache of another dtype is served too, if not as fast
    max_seqlen_k, headdim (the values' is headdim_v, if it is another), page_size and has_softcap are not
    needed, since they do not change the plan. A call that appends keys or has a cache_leftpad where the plan has none,
    or none where it has, plans for itself, and so does one with qv. A plan without window_size and attention_chunk serves layers with either.

    On a GPU this is one or two launches on the current stream, which may be captured: replayed with other lengths in
    cache_seqlens it plans anew, for the calls that follow. The result is to live as long as such a graph. Calls that
    take it share its memory: on another stream than the plan was made on they come after it (wait_stream), and calls on
    two streams one after the other.
    """
    return _scheduler_metadata(
        batch_size=batch_size, max_seqlen_q=max_seqlen_q, num_heads_q=num_heads_q, num_heads_kv=num_heads_kv,
        headdim=headdim, headdim_v=headdim if headdim_v is None else headdim_v, cache_seqlens=cache_seqlens,
        cache_leftpad=cache_leftpad, cu_seqlens_q=cu_seqlens_q,
        total_q=batch_size * max_seqlen_q if total_q is None else total_q,
        total_q_is_bound=cu_seqlens_q is not None and total_q is None, cu_seqlens_k_new=cu_seqlens_k_new,
        max_seqlen_k_new=max_seqlen_k_new, causal=causal, window_size=window_size, attention_chunk=attention_chunk,
        num_splits=num_splits, kv_dtype="bfloat16" if qkv_dtype is None else _dtype_name(qkv_dtype),
    )  # fmt: skip


def _dtype_name(dtype):
    """numpy's name of a dtype of torch or numpy, or of a type that numpy takes for one."""
    return getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype).rpartition(".")[2]
