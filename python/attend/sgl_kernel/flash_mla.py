"""sgl_kernel.flash_mla with attend's kernels.

The metadata are tensors, since SGLang copies them between steps. Their contents are not read: each call plans itself, for
up to 512 requests in the attention launch.
"""

from .. import flash_mla as _mla
from .._rejection import rejection as _rejection

__all__ = ["flash_mla_sparse_fwd", "flash_mla_with_kvcache", "get_mla_metadata"]

_METADATA_WORDS = 8


def get_mla_metadata(
    cache_seqlens, num_q_tokens_per_head_k, num_heads_k, num_heads_q=None, is_fp8_kvcache=False, topk=None
):
    """Returns (tile_scheduler_metadata int32 [1, 8], num_splits int32 [batch + 1]), for calls that require them."""
    return cache_seqlens.new_zeros((1, _METADATA_WORDS)), cache_seqlens.new_zeros(cache_seqlens.shape[0] + 1)


def flash_mla_with_kvcache(
    q, k_cache, block_table, cache_seqlens, head_dim_v, tile_scheduler_metadata=None, num_splits=None, softmax_scale=None,
    causal=False, descale_q=None, descale_k=None, is_fp8_kvcache=False, indices=None,
):  # fmt: skip
    """attend.flash_mla.flash_mla_with_kvcache; descale_q and descale_k are rejected."""
    for name, descale in (("descale_q", descale_q), ("descale_k", descale_k)):
        if descale is not None:
            raise _rejection("unsupported", f"{name}: expected None; fp8 caches contain their scales")
    return _mla.flash_mla_with_kvcache(
        q, k_cache, block_table, cache_seqlens, head_dim_v, softmax_scale=softmax_scale, causal=causal,
        is_fp8_kvcache=is_fp8_kvcache, indices=indices,
    )  # fmt: skip


def flash_mla_sparse_fwd(q, kv, indices, sm_scale, d_v=512, attn_sink=None, topk_length=None):
    """attend.flash_mla.flash_mla_sparse_fwd."""
    return _mla.flash_mla_sparse_fwd(q, kv, indices, sm_scale, d_v, attn_sink, topk_length)
