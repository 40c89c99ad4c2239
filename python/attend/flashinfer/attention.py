"""FlashInfer's attention wrappers, and merges of their results."""

import math

from .._attend import attention, merge, mla
from .._refusal import refusal

__all__ = [
    "BatchDecodeWithPagedKVCacheWrapper",
    "BatchMLAPagedAttentionWrapper",
    "BatchPrefillWithPagedKVCacheWrapper",
    "BatchPrefillWithRaggedKVCacheWrapper",
    "CUDAGraphBatchDecodeWithPagedKVCacheWrapper",
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


def _beside(array, other):
    """`array` where `other` lies: plans take what is in host memory, too."""
    return array.to(other.device, non_blocking=True) if hasattr(array, "new_ones") and array.device != other.device else array


class _Wrapper:
    """What the wrappers have in common."""

    _int_workspace_buffer = None  # callers pass FlashInfer's on to each other; workspaces are attend's own

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
        if call.pop("single_keys", False):
            if window_left is not None:
                raise refusal("unsupported", f"window_left {window_left}: give it to plan() with a custom mask")
            k, v = _single_keys(k), _single_keys(v)
        scale = call.pop("scale")
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        result = attention(
            q, k, v, scale=scale * (1.0 if q_scale is None else q_scale), k_scale=1.0 if k_scale is None else k_scale,
            v_scale=1.0 if v_scale is None else v_scale, sinks=sinks, out=out, return_lse=return_lse, **call,
        )  # fmt: skip
        return _with_base_2(result, lse) if return_lse else result


def _single_keys(cache):
    """A cache of pages as one of pages of one key: the same memory."""
    strides = cache.stride() if hasattr(cache, "stride") else [step // cache.itemsize for step in cache.strides]
    if cache.shape[1] == 1:
        return cache
    if strides[0] != cache.shape[1] * strides[1]:
        raise refusal(
            "unsupported", f"custom mask over pages with strides {tuple(strides)}: expected kv_layout 'NHD', without gaps"
        )
    return cache.reshape(-1, 1, *cache.shape[2:])


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
        seqlens = _int32(_seqlens(indptr, last_page_len, page_size))
        self._planned = dict(
            cu_seqlen_q=_beside(_iota_like(indptr, len(indptr)), indices), seqlen_kv=_beside(seqlens, indices),
            max_seqlen_q=1, kv_indptr=_beside(indptr, indices), kv_indices=indices, window_left=window_left,
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


class CUDAGraphBatchDecodeWithPagedKVCacheWrapper(BatchDecodeWithPagedKVCacheWrapper):
    """The decode wrapper of a captured graph: plan() writes into the buffers that the graph reads, so that a replay after
    it serves another step. indptr_buffer int32 [batch + 1], indices_buffer int32, last_page_len_buffer int32 [batch]."""

    def __init__(
        self, workspace_buffer=None, indptr_buffer=None, indices_buffer=None, last_page_len_buffer=None, kv_layout="NHD",
        *args, **hints,
    ):  # fmt: skip
        super().__init__(workspace_buffer, kv_layout)
        for name, buffer in (("indptr_buffer", indptr_buffer), ("indices_buffer", indices_buffer)):
            if buffer is None:
                raise refusal("invalid_argument", f"{name} None: expected a tensor that plan() may write")
        self._indptr, self._indices, self._buffers = indptr_buffer, indices_buffer, None

    def plan(self, indptr, indices, *args, **kwargs):
        """As the decode wrapper's; of the same batch each time, and no more pages than indices_buffer has."""
        if len(indptr) != len(self._indptr) or len(indices) > len(self._indices):
            raise refusal(
                "invalid_argument",
                f"indptr of {len(indptr)}, indices of {len(indices)}: expected {len(self._indptr)}, and at most "
                f"{len(self._indices)}, as indptr_buffer and indices_buffer have",
            )
        super().plan(indptr, indices, *args, **kwargs)
        new = self._planned
        if self._buffers is None:
            self._buffers = {name: new[name] for name in ("cu_seqlen_q", "seqlen_kv")}
        self._buffers["seqlen_kv"][...] = new["seqlen_kv"]
        self._indptr[...] = new["kv_indptr"]
        self._indices[: len(indices)] = indices
        self._planned = {**new, **self._buffers, "kv_indptr": self._indptr, "kv_indices": self._indices}

    begin_forward = plan


class BatchPrefillWithPagedKVCacheWrapper(_Wrapper):
    """Prefill and append: ragged queries over pages; layouts are those of the decode wrapper."""

    def plan(
        self, qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, num_qo_heads, num_kv_heads,
        head_dim_qk, page_size, head_dim_vo=None, custom_mask=None, packed_custom_mask=None, causal=False,
        pos_encoding_mode="NONE", use_fp16_qk_reduction=False, sm_scale=None, window_left=-1, logits_soft_cap=None,
        rope_scale=None, rope_theta=None, q_data_type=None, kv_data_type=None, non_blocking=True, **hints,
    ):  # fmt: skip
        """qo_indptr int32 [batch + 1]: where each request's queries begin; the others as the decode wrapper has them.
        custom_mask bool, or packed_custom_mask uint8, as masks.of_requests says, instead of a causal one."""
        _refuse("prefill", pos_encoding_mode=(pos_encoding_mode, "NONE"))
        seqlens, pages = _int32(_seqlens(paged_kv_indptr, paged_kv_last_page_len, page_size)), paged_kv_indices
        self._planned = dict(
            cu_seqlen_q=_beside(qo_indptr, pages), seqlen_kv=_beside(seqlens, pages), max_seqlen_q=_longest(qo_indptr),
            kv_indptr=_beside(paged_kv_indptr, pages), kv_indices=pages, causal=causal, window_left=window_left,
            logit_cap=logits_soft_cap or 0.0, scale=sm_scale,
        )  # fmt: skip
        if custom_mask is None and packed_custom_mask is None:
            return
        from . import masks

        lens_kv = masks.host_ints(seqlens)
        of_requests = masks.of_requests(
            custom_mask, packed_custom_mask, masks.host_ints(qo_indptr[1:] - qo_indptr[:-1]), lens_kv
        )
        slots = lambda: masks.slots_of_pages(masks.host_ints(paged_kv_indptr), masks.host_ints(pages), page_size, lens_kv)
        self._planned = masks.planned(self._planned, of_requests, slots, window_left, pages)

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
        """qo_indptr, kv_indptr int32 [batch + 1]: where each request's queries and keys begin; masks as the paged wrapper
        has them."""
        _refuse("prefill", pos_encoding_mode=(pos_encoding_mode, "NONE"))
        self._planned = dict(
            cu_seqlen_q=qo_indptr, seqlen_kv=_int32(kv_indptr[1:] - kv_indptr[:-1]), max_seqlen_q=_longest(qo_indptr),
            cu_seqlen_kv=kv_indptr, causal=causal, window_left=window_left, logit_cap=logits_soft_cap or 0.0,
            scale=sm_scale,
        )  # fmt: skip
        if custom_mask is None and packed_custom_mask is None:
            return
        from . import masks

        begins = masks.host_ints(kv_indptr)
        of_requests = masks.of_requests(
            custom_mask, packed_custom_mask, masks.host_ints(qo_indptr[1:] - qo_indptr[:-1]), begins[1:] - begins[:-1]
        )
        self._planned = masks.planned(
            self._planned, of_requests, lambda: masks.slots_between(begins), window_left, kv_indptr
        )

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


def _longest(indptr):
    """The most queries of a request. Of a GPU's array this waits for it, as FlashInfer's plan does."""
    return int((indptr[1:] - indptr[:-1]).max()) if len(indptr) > 1 else 0
