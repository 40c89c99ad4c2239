"""sgl_kernel.flash_attn over attend's kernels: FlashAttention-3's calls as SGLang makes them.

What differs from attend.flash_attn_interface, which see: sinks may be of any float dtype, an attention_chunk of None is
none, cu_seqlens_k_new without keys to append is ignored, and ver (which FlashAttention is asked for) changes nothing.
score_mod and aux_tensors are refused by name.
"""

from .. import flash_attn_interface as _interface
from .._refusal import refusal as _refusal

__all__ = ["flash_attn_varlen_func", "flash_attn_with_kvcache", "is_fa3_supported"]


def is_fa3_supported(device=None):
    """attend serves these calls on every device that it knows."""
    return True


def flash_attn_with_kvcache(
    q, k_cache, v_cache, k=None, v=None, qv=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None,
    cache_batch_idx=None, cache_leftpad=None, page_table=None, cu_seqlens_q=None, cu_seqlens_k_new=None,
    max_seqlen_q=None, rotary_seqlens=None, q_descale=None, k_descale=None, v_descale=None, softmax_scale=None,
    causal=False, window_size=(-1, -1), attention_chunk=None, softcap=0.0, rotary_interleaved=True,
    scheduler_metadata=None, num_splits=0, pack_gqa=None, sm_margin=0, return_softmax_lse=False, sinks=None,
    score_mod=None, aux_tensors=None, ver=3, out=None,
):  # fmt: skip
    """attend.flash_attn_interface.flash_attn_with_kvcache."""
    _refuse_scores(score_mod, aux_tensors)
    return _interface.flash_attn_with_kvcache(
        q, k_cache, v_cache, k, v, qv, rotary_cos, rotary_sin, cache_seqlens, cache_batch_idx, cache_leftpad, page_table,
        cu_seqlens_q, None if k is None else cu_seqlens_k_new, max_seqlen_q, rotary_seqlens, q_descale, k_descale,
        v_descale, softmax_scale, causal, window_size, attention_chunk or 0, softcap, rotary_interleaved,
        scheduler_metadata, num_splits, pack_gqa, sm_margin, return_softmax_lse, sinks=_float32(sinks), out=out,
    )  # fmt: skip


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q=None, max_seqlen_k=None, seqused_q=None, seqused_k=None,
    page_table=None, softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None, v_descale=None,
    window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=1, pack_gqa=None, sm_margin=0,
    return_softmax_lse=False, sinks=None, score_mod=None, aux_tensors=None, ver=3, out=None,
):  # fmt: skip
    """attend.flash_attn_interface.flash_attn_varlen_func."""
    _refuse_scores(score_mod, aux_tensors)
    return _interface.flash_attn_varlen_func(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q, seqused_k, softmax_scale, causal, qv,
        q_descale, k_descale, v_descale, window_size, attention_chunk or 0, softcap, num_splits, pack_gqa,
        sm_margin=sm_margin, page_table=page_table, return_softmax_lse=return_softmax_lse, sinks=_float32(sinks), out=out,
    )  # fmt: skip


def _float32(sinks):
    return None if sinks is None else sinks.float()


def _refuse_scores(score_mod, aux_tensors):
    if score_mod is not None or aux_tensors is not None:
        name = "aux_tensors" if score_mod is None else "score_mod"
        raise _refusal("unsupported", f"{name}: attend.sgl_kernel takes None; scores are changed by softcap and sinks alone")
