"""FlashInfer's wrappers over attend's kernels: plan once a step, run once a layer, on CPUs and on GPUs from Ampere on.

BatchDecodeWithPagedKVCacheWrapper, BatchPrefillWithPagedKVCacheWrapper, BatchPrefillWithRaggedKVCacheWrapper,
BatchMLAPagedAttentionWrapper, merge_state, merge_states

What differs from FlashInfer: the workspace that a wrapper is given, and which of its kernels are asked for (backend,
use_tensor_cores), change nothing; page sizes are powers of two up to 256; position encodings and custom masks are refused
by name: rotate before, and give tree masks to attend.attention. LSE are of base 2 and float32, as FlashInfer's; a query
that sees no key has output 0 and LSE -inf.
"""

import math

from ._attend import attention, merge, mla
from ._refusal import refusal

__all__ = [
    "BatchDecodeWithPagedKVCacheWrapper",
    "BatchMLAPagedAttentionWrapper",
    "BatchPrefillWithPagedKVCacheWrapper",
    "BatchPrefillWithRaggedKVCacheWrapper",
    "merge_state",
    "merge_states",
]

_LOG2_E = math.log2(math.e)


def merge_state(v_a, s_a, v_b, s_b):
    """Merges attention over two parts of the keys: (v, s).

    v_a, v_b  [num_tokens, num_heads, head_dim]     s_a, s_b  float32 [num_tokens, num_heads], LSE of base 2
    """
    v, s = merge(v_a, s_a / _LOG2_E, v_b, s_b / _LOG2_E)
    return v, s * _LOG2_E


def merge_states(v, s):
    """Merges attention over several parts: v [num_tokens, num_parts, num_heads, head_dim], s [num_tokens, num_parts,
    num_heads]."""
    merged = v[:, 0], s[:, 0]
    for part in range(1, v.shape[1]):
        merged = merge_state(*merged, v[:, part], s[:, part])
    return merged


def _refuse(owner, **arguments):
    """Raises for the first argument that is not the one value that is served: (value, served) by name."""
    for name, (value, served) in arguments.items():
        if value is not None and value != served:
            raise refusal("unsupported", f"{name} {value!r}: attend.flashinfer's {owner} takes {served!r}")


def _by_tokens(cache, kv_layout):
    """A cache as [num_pages, page_size, num_heads, head_dim]."""
    return cache if kv_layout == "NHD" else cache.swapaxes(1, 2)


def _keys_and_values(cache, kv_layout):
    """(k, v) of a pair, or of one tensor [num_pages, 2, ...]."""
    k, v = cache if isinstance(cache, (tuple, list)) else (cache[:, 0], cache[:, 1])
    return _by_tokens(k, kv_layout), _by_tokens(v, kv_layout)


def _seqlens(indptr, last_page_len, page_size):
    """Keys of each request, from its pages and what is in the last one."""
    num_pages = indptr[1:] - indptr[:-1]
    return ((num_pages - 1) * page_size + last_page_len) * (num_pages > 0)


def _int32(array):
    return array.int() if hasattr(array, "int") else array.astype("int32")


def _iota_like(array, size):
    """0, 1, ..., size - 1 as int32, where `array` lies."""
    if hasattr(array, "new_ones"):
        return array.new_ones(size).cumsum(0).int() - 1
    return (array[:1] * 0 + 1).repeat(size).cumsum().astype("int32") - 1


class _Wrapper:
    """What the wrappers have in common."""

    def __init__(self, float_workspace_buffer=None, kv_layout="NHD", *args, **hints):
        if kv_layout not in ("NHD", "HND"):
            raise refusal("invalid_argument", f"kv_layout {kv_layout!r}: expected 'NHD' or 'HND'")
        self._kv_layout, self._planned = kv_layout, None

    def reset_workspace_buffer(self, *args, **kwargs):
        """Workspaces are attend's own."""

    def _call(self, q, k, v, *, q_scale=None, k_scale=None, v_scale=None, out=None, lse=None, return_lse=False,
              window_left=None, sinks=None):  # fmt: skip
        if self._planned is None:
            raise refusal("invalid_argument", "run: expected plan() before")
        call = dict(self._planned)
        if window_left is not None:
            call["window_left"] = window_left
        scale = call.pop("scale")
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        result = attention(
            q, k, v, scale=scale * (1.0 if q_scale is None else q_scale), k_scale=1.0 if k_scale is None else k_scale,
            v_scale=1.0 if v_scale is None else v_scale, sinks=sinks, out=out, return_lse=return_lse, **call,
        )  # fmt: skip
        return _with_base_2(result, lse) if return_lse else result


def _with_base_2(result, lse):
    values, natural = result
    if lse is None:
        return values, natural * _LOG2_E
    lse[...] = natural * _LOG2_E
    return values, lse


class BatchDecodeWithPagedKVCacheWrapper(_Wrapper):
    """Decode: one query of each request, over pages.

    kv_layout  "NHD": k and v are [num_pages, page_size, num_kv_heads, head_dim]; "HND": heads before page_size
    """

    def plan(
        self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size, pos_encoding_mode="NONE",
        window_left=-1, logits_soft_cap=None, q_data_type=None, kv_data_type=None, data_type=None, sm_scale=None,
        rope_scale=None, rope_theta=None, non_blocking=True, **hints,
    ):  # fmt: skip
        """The pages of each request: int32 indptr [batch + 1] into indices, page ids, and last_page_len [batch]."""
        _refuse("decode", pos_encoding_mode=(pos_encoding_mode, "NONE"))
        self._planned = dict(
            cu_seqlen_q=_iota_like(indptr, len(indptr)), seqlen_kv=_int32(_seqlens(indptr, last_page_len, page_size)),
            max_seqlen_q=1, kv_indptr=indptr, kv_indices=indices, window_left=window_left,
            logit_cap=logits_soft_cap or 0.0, scale=sm_scale,
        )  # fmt: skip

    begin_forward = plan

    def run(
        self, q, paged_kv_cache, *, q_scale=None, k_scale=None, v_scale=None, out=None, lse=None, return_lse=False,
        window_left=None, sinks=None, enable_pdl=None,
    ):  # fmt: skip
        """q [batch, num_qo_heads, head_dim], paged_kv_cache (k, v) or one tensor [num_pages, 2, ...]. Returns out, or
        (out, lse [batch, num_qo_heads]) with return_lse."""
        k, v = _keys_and_values(paged_kv_cache, self._kv_layout)
        return self._call(
            q, k, v, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, out=out, lse=lse, return_lse=return_lse,
            window_left=window_left, sinks=sinks,
        )  # fmt: skip

    forward = run


class BatchPrefillWithPagedKVCacheWrapper(_Wrapper):
    """Prefill and append: ragged queries over pages; layouts are those of the decode wrapper."""

    def plan(
        self, qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, num_qo_heads, num_kv_heads,
        head_dim_qk, page_size, head_dim_vo=None, custom_mask=None, packed_custom_mask=None, causal=False,
        pos_encoding_mode="NONE", use_fp16_qk_reduction=False, sm_scale=None, window_left=-1, logits_soft_cap=None,
        rope_scale=None, rope_theta=None, q_data_type=None, kv_data_type=None, non_blocking=True, **hints,
    ):  # fmt: skip
        """qo_indptr int32 [batch + 1]: where each request's queries begin; the others as the decode wrapper has them."""
        _refuse(
            "prefill", pos_encoding_mode=(pos_encoding_mode, "NONE"), custom_mask=(_given(custom_mask), None),
            packed_custom_mask=(_given(packed_custom_mask), None),
        )  # fmt: skip
        self._planned = dict(
            cu_seqlen_q=qo_indptr, seqlen_kv=_int32(_seqlens(paged_kv_indptr, paged_kv_last_page_len, page_size)),
            max_seqlen_q=_longest(qo_indptr), kv_indptr=paged_kv_indptr, kv_indices=paged_kv_indices, causal=causal,
            window_left=window_left, logit_cap=logits_soft_cap or 0.0, scale=sm_scale,
        )  # fmt: skip

    begin_forward = plan

    def run(
        self, q, paged_kv_cache, *, q_scale=None, k_scale=None, v_scale=None, out=None, lse=None, return_lse=False,
        window_left=None, sinks=None, enable_pdl=None,
    ):  # fmt: skip
        """q [total_q, num_qo_heads, head_dim]. Returns out, or (out, lse [total_q, num_qo_heads])."""
        k, v = _keys_and_values(paged_kv_cache, self._kv_layout)
        return self._call(
            q, k, v, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, out=out, lse=lse, return_lse=return_lse,
            window_left=window_left, sinks=sinks,
        )  # fmt: skip

    forward = run


class BatchPrefillWithRaggedKVCacheWrapper(_Wrapper):
    """Prefill over keys that lie one request after another: [total_kv, num_kv_heads, head_dim], or with kv_layout "HND"
    [num_kv_heads, total_kv, head_dim]."""

    def plan(
        self, qo_indptr, kv_indptr, num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo=None, custom_mask=None,
        packed_custom_mask=None, causal=False, pos_encoding_mode="NONE", use_fp16_qk_reduction=False, window_left=-1,
        logits_soft_cap=None, sm_scale=None, rope_scale=None, rope_theta=None, q_data_type=None, kv_data_type=None,
        non_blocking=True, **hints,
    ):  # fmt: skip
        """qo_indptr, kv_indptr int32 [batch + 1]: where each request's queries and keys begin."""
        _refuse(
            "prefill", pos_encoding_mode=(pos_encoding_mode, "NONE"), custom_mask=(_given(custom_mask), None),
            packed_custom_mask=(_given(packed_custom_mask), None),
        )  # fmt: skip
        self._planned = dict(
            cu_seqlen_q=qo_indptr, seqlen_kv=_int32(kv_indptr[1:] - kv_indptr[:-1]), max_seqlen_q=_longest(qo_indptr),
            cu_seqlen_kv=kv_indptr, causal=causal, window_left=window_left, logit_cap=logits_soft_cap or 0.0,
            scale=sm_scale,
        )  # fmt: skip

    begin_forward = plan

    def run(self, q, k, v, *, q_scale=None, k_scale=None, v_scale=None, out=None, lse=None, return_lse=False, enable_pdl=None):
        """Returns out [total_q, num_qo_heads, head_dim_vo], or (out, lse [total_q, num_qo_heads])."""
        if self._kv_layout == "HND":
            k, v = k.swapaxes(0, 1), v.swapaxes(0, 1)
        return self._call(
            q, k[:, None], v[:, None], q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, out=out, lse=lse,
            return_lse=return_lse,
        )  # fmt: skip

    forward = run


class BatchMLAPagedAttentionWrapper(_Wrapper):
    """Absorbed multi-head latent attention over pages. ckv_cache [num_pages, page_size, 512] and kpe_cache [num_pages,
    page_size, 64] are two halves of one tensor of latent rows, latent[..., :512] and latent[..., 512:]."""

    def plan(
        self, qo_indptr, kv_indptr, kv_indices, kv_len_arr, num_heads, head_dim_ckv, head_dim_kpe, page_size, causal,
        sm_scale, q_data_type=None, kv_data_type=None, use_profiler=False,
    ):  # fmt: skip
        """kv_len_arr int32 [batch]: keys of each request."""
        self._planned = dict(
            cu_seqlen_q=qo_indptr, seqlen_kv=kv_len_arr, max_seqlen_q=_longest(qo_indptr), kv_indptr=kv_indptr,
            kv_indices=kv_indices, causal=causal, scale=sm_scale,
        )  # fmt: skip

    def run(self, q_nope, q_pe, ckv_cache, kpe_cache, out=None, lse=None, return_lse=False, **hints):
        """q_nope [total_q, num_heads, 512], q_pe [total_q, num_heads, 64]. Returns out, or (out, lse)."""
        if self._planned is None:
            raise refusal("invalid_argument", "run: expected plan() before")
        result = mla(q_nope, q_pe, _latent_rows(ckv_cache, kpe_cache), out=out, return_lse=return_lse, **self._planned)
        return _with_base_2(result, lse) if return_lse else result


def _latent_rows(ckv, kpe):
    """The tensor of which both are parts; a new one when they are not."""
    if hasattr(ckv, "as_strided") and ckv.untyped_storage().data_ptr() == kpe.untyped_storage().data_ptr():
        width = ckv.shape[-1] + kpe.shape[-1]
        if kpe.storage_offset() == ckv.storage_offset() + ckv.shape[-1] and ckv.stride() == kpe.stride():
            return ckv.as_strided((*ckv.shape[:-1], width), ckv.stride())
    if hasattr(ckv, "new_empty"):
        latent = ckv.new_empty((*ckv.shape[:-1], ckv.shape[-1] + kpe.shape[-1]))
        latent[..., : ckv.shape[-1]], latent[..., ckv.shape[-1] :] = ckv, kpe
        return latent
    return ckv.__array_namespace__().concat([ckv, kpe], axis=-1)


def _given(mask):
    return None if mask is None else "a mask"


def _longest(indptr):
    """The most queries of a request. Of a GPU's array this waits for it, as FlashInfer's plan does."""
    return int((indptr[1:] - indptr[:-1]).max()) if len(indptr) > 1 else 0
