"""sgl_kernel.flash_attn with attend's kernels: FlashAttention-3's functions as SGLang calls them.

Differences from attend.flash_attn_interface: sinks may have any float dtype, attention_chunk None means none,
cu_seqlens_k_new without keys to append is ignored, and ver (the version of FlashAttention) has no effect. score_mod and
aux_tensors are rejected.
"""

from .. import flash_attn_interface as _interface
from .._rejection import rejection as _rejection

__all__ = ["flash_attn_varlen_func", "flash_attn_with_kvcache", "is_fa3_supported"]


def is_fa3_supported(device=None):
    """Returns True: attend supports these functions on all its devices."""
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
    _reject_scores(score_mod, aux_tensors)
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
    _reject_scores(score_mod, aux_tensors)
    return _interface.flash_attn_varlen_func(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q, seqused_k, softmax_scale, causal, qv,
        q_descale, k_descale, v_descale, window_size, attention_chunk or 0, softcap, num_splits, pack_gqa,
        sm_margin=sm_margin, page_table=page_table, return_softmax_lse=return_softmax_lse, sinks=_float32(sinks), out=out,
    )  # fmt: skip


def _float32(sinks):
    return None if sinks is None else sinks.float()


def _reject_scores(score_mod, aux_tensors):
    if score_mod is not None or aux_tensors is not None:
        name = "aux_tensors" if score_mod is None else "score_mod"
        raise _rejection("unsupported", f"{name}: expected None; only softcap and sinks change scores")
