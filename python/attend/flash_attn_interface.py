"""FlashAttention-3's flash_attn_interface with attend's kernels: the same functions, on GPUs from Ampere on and on CPUs.

Every argument is supported, or rejected with an error that names it and what is accepted. Differences from
FlashAttention-3:
  - forward only: flash_attn_func, flash_attn_qkvpacked_func and flash_attn_varlen_func accept torch tensors that
    require grad, but backward raises an error; flash_attn_with_kvcache rejects such tensors while gradients are
    recorded;
  - queries are float32, float16, bfloat16 or fp8 (converted to bfloat16, the dtype of the result); K/V have the same
    dtype, another of these, or fp8 (on a GPU fast for q's dtype and fp8);
  - sinks (or learnable_sink) are float32 [num_heads]; softmax_lse excludes them;
  - descales are numbers, or float32 tensors with one element or [batch, num_kv_heads], which need not be contiguous;
    a descale in a GPU tensor, or one that differs by request or head, is applied to q (rounded once more to its
    dtype) or to the result in separate launches;
  - a query without visible keys has LSE -inf and output 0;
  - pack_gqa and sm_margin are hints without effect: query heads of a group are always packed;
  - num_splits is 0 (balanced over the device), 1 (none), or n: at most n CTAs for each request, K/V head and 128 rows
    (query tokens times heads per K/V head) share the work of a batch, so a long request has more than a short one. The
    same call always returns the same bits, but unless num_splits is 1 they depend on the lengths of the whole batch;
  - with qv each K/V head is a separate launch. k and v that are parts of one tensor, [v, k] in the last dimension, are
    read in place; otherwise the whole cache is copied into such rows in every call;
  - cache_leftpad and seqused_q are applied on the device: on a GPU the host reads neither.
"""

from ._attend import Error as _Error
from ._attend import flash_attention, merge_splits as _merge_splits, scheduler_metadata as _scheduler_metadata
from ._forward_only import recorded as _recorded, without_backward as _without_backward
from ._rejection import rejection as _rejection

__all__ = [
    "flash_attn_combine",
    "flash_attn_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "get_scheduler_metadata",
]


def _rows(page_table, cache_batch_idx):
    """Returns the rows of page_table that belong to the requests."""
    try:
        if hasattr(page_table, "index_select"):
            return page_table.index_select(0, cache_batch_idx)
        return page_table[cache_batch_idx]
    except (IndexError, RuntimeError) as error:
        raise _rejection("invalid_argument", f"cache_batch_idx with page_table: {error}") from None


def _exactly_one(sinks, learnable_sink):
    if sinks is not None:
        raise _rejection("invalid_argument", "sinks and learnable_sink: expected one of them; both are the same")
    return learnable_sink


def _attend(name, **arguments):
    """Implements functions that have a backward pass in FlashAttention."""
    try:
        return flash_attention(**arguments)
    except _Error:
        # Checked only after an error, since most calls record nothing.
        tensors = _recorded(arguments)
        if not tensors or arguments.get("out") is not None:
            raise
    return _without_backward(name, lambda: flash_attention(**arguments), tensors)


def flash_attn_func(
    q, k, v, softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None, v_descale=None,
    window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=0, pack_gqa=None, deterministic=False,
    sm_margin=0, return_attn_probs=False, *, sinks=None, learnable_sink=None,
):  # fmt: skip
    """Attention of requests that all have the same length.

    q  [batch, seqlen_q, num_heads, head_dim]     k  [batch, seqlen_k, num_kv_heads, head_dim]
    v  [batch, seqlen_k, num_kv_heads, head_dim_v]; above 256, one launch for each equal part of up to 256 columns
    qv           [batch, seqlen_q, num_heads, head_dim_v], absorbed MLA: scores are q k + qv v (64 and 512 in DeepSeek)
    causal       query j attends to keys up to j + seqlen_k - seqlen_q (aligned at the end)
    window_size  (left, right), both inclusive, -1 for no bound
    attention_chunk  a query attends only to keys in its chunk of this many positions; 0: none
    softcap      scores become softcap * tanh(score / softcap); 0: none
    sinks, learnable_sink  float32 [num_heads]: logit that is added to the denominator

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
    """flash_attn_func with a packed tensor: qkv [batch, seqlen, 3, num_heads, head_dim], or with num_heads_q
    [batch, seqlen, num_heads_q + 2 * num_kv_heads, head_dim]."""
    if num_heads_q is None:
        if len(qkv.shape) != 5 or qkv.shape[2] != 3:
            raise _rejection(
                "invalid_argument",
                f"qkv of shape {tuple(qkv.shape)}: expected [batch, seqlen, 3, num_heads, head_dim], or num_heads_q",
            )
        q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
    else:
        num_kv_heads, rest = divmod(qkv.shape[2] - num_heads_q, 2) if len(qkv.shape) == 4 else (0, 1)
        if rest or num_kv_heads < 1:
            raise _rejection(
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
    """Merges partial results of attention over parts of the keys.

    out_partial  float32 [num_splits, batch, seqlen, num_heads, head_dim], or without batch
    lse_partial  float32 [num_splits, batch, seqlen, num_heads], or without batch: natural logarithm, -inf without keys
    out          written instead of a new tensor; a new tensor has dtype out_dtype, or float32

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

    q  [total_q, num_heads, head_dim]     cu_seqlens_q  int32 [batch + 1], offsets of each request's queries
    k  [total_k, num_kv_heads, head_dim], v  [total_k, num_kv_heads, head_dim_v]
    cu_seqlens_k  int32 [batch + 1];  seqused_k  int32 [batch], fewer keys than that; or, with
    page_table    int32 [batch, width], k and v [num_pages, page_size, num_kv_heads, ...], cu_seqlens_k None and
                  seqused_k the lengths
    max_seqlen_q  at least the largest number of queries of a request; a lower value is an error on a CPU, where the
                  host reads lengths
    seqused_q     int32 [batch], fewer queries than that: the output of the others is 0
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
                      are powers of two up to 256; or [cache_batch, seqlen_cache, num_kv_heads, head_dim], where
                      request r has row cache_batch_idx[r] (int32 [batch]), or row r; with both arguments
                      cache_batch_idx selects rows of page_table
    cache_leftpad     int32 [batch]: number of keys at the start of each request that are masked
    cache_seqlens     int32 [batch], or a number: keys in the cache before the new ones are appended; None, for a
                      cache without pages: seqlen_cache
    k, v              [batch, seqlen_new, num_kv_heads, head_dim], or with cu_seqlens_k_new int32 [batch + 1]
                      [total_new, num_kv_heads, head_dim]: appended to the cache after cache_seqlens keys and attended
                      to. Keys beyond the capacity are dropped on a GPU, and an error on a CPU
    rotary_cos, rotary_sin  [seqlen_rotary, rotary_dim / 2], float32, float16, bfloat16 or fp8: the first rotary_dim
                      elements of q and of the keys to append are rotated by their positions. Key j of a request has
                      position cache_seqlens + j, or rotary_seqlens (int32 [batch]) + j. Query j has the same position
                      with a causal mask or a window; otherwise all queries have the first of these positions.
                      rotary_interleaved: pairs are (2 i, 2 i + 1), otherwise (i, i + rotary_dim / 2)
    scheduler_metadata  result of get_scheduler_metadata, shared by all layers of a step. A call with other heads, masks
                      or, on a CPU, lengths is an error; on a GPU the host does not read lengths: see there
    out               written instead of a new tensor

    The other arguments are those of flash_attn_func. Returns out, with q's shape and head_dim_v; with
    return_softmax_lse also softmax_lse, float32 [batch, num_heads, seqlen_q] or [num_heads, total_q].
    """
    if page_table is not None and cache_batch_idx is not None:
        page_table, cache_batch_idx = _rows(page_table, cache_batch_idx), None
    if learnable_sink is not None:
        sinks = _exactly_one(sinks, learnable_sink)
    # Positional arguments, since packing this many keywords into a dictionary takes longer than the call.
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

    The plan depends on the current lengths in cache_seqlens, so it is needed for every step. On a CPU a call with other
    lengths is an error. On a GPU the host does not read lengths, so only batch, heads, masks and sizes are compared:
    after cache_seqlens changes, the plan must be made again, or a graph that makes it replayed, before the calls that
    use it; otherwise results are wrong.

    cache_seqlens     int32 [batch_size], before max_seqlen_k_new keys (or those of cu_seqlens_k_new) are appended
    cu_seqlens_q      int32 [batch_size + 1], otherwise each request has max_seqlen_q queries; total_q is their number,
                      if it is known
    qkv_dtype         dtype of the cache; None: bfloat16. Caches of other dtypes are supported too, but slower
    max_seqlen_k, headdim (the head dim of values is headdim_v, if different), page_size and has_softcap are not needed,
    since the plan does not depend on them. If only one of the plan and a call appends keys or has a cache_leftpad, the
    call plans itself, as do calls with qv. A plan without window_size and attention_chunk also serves layers with them.

    On a GPU this is one or two launches on the current stream, which may be captured: replayed with other lengths in
    cache_seqlens, they plan again for the calls that follow. The result must live as long as such a graph. Calls that
    use it share its memory: on a stream other than the plan's they must wait for it (wait_stream), and calls on two
    streams must not overlap.
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
    """Returns numpy's name of a dtype of torch or numpy, or of a type that numpy converts to one."""
    return getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype).rpartition(".")[2]
