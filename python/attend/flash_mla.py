"""FlashMLA's decode call over attend's MLA kernels: absorbed multi-head latent attention over a paged cache.

What differs from FlashMLA: GPUs from Ampere on and CPUs, any page size that is a power of two up to 256, float32,
float16 and bfloat16, any head_dim_v up to 512 with a rotary part up to 64; the LSE of a request without keys is +inf on
CPUs, as FlashMLA has it, and -inf on GPUs; a cache of several K/V heads is one launch for each of them; sparse attention and the fp8 cache of 656 bytes a token are refused.
"""

from ._attend import MlaPlan, flash_mla
from ._refusal import refusal as _refusal

__all__ = ["get_mla_metadata", "flash_mla_with_kvcache"]


def get_mla_metadata(*args, **kwargs):
    """(metadata, None), to be passed on to flash_mla_with_kvcache. Arguments of older interfaces are not needed.

    Take a new one for every step: on a GPU the first call with it plans for the lengths of then, the calls of further
    layers use that plan. Other shapes or masks, another tensor of lengths and another captured graph are planned for
    anew, but lengths written into the same tensor are not read by the host. On a CPU every call plans for itself.
    """
    return MlaPlan(), None


def flash_mla_with_kvcache(
    q, k_cache, block_table, cache_seqlens, head_dim_v, tile_scheduler_metadata=None, num_splits=None,
    softmax_scale=None, causal=False, is_fp8_kvcache=False, indices=None, attn_sink=None, extra_k_cache=None,
    extra_indices_in_kvcache=None, topk_length=None, extra_topk_length=None,
):  # fmt: skip
    """Attention of absorbed queries over latent rows.

    q              [batch, seqlen_q, num_heads, head_dim], 576 of DeepSeek: latent part, then rotary part
    k_cache        [num_pages, page_size, num_kv_heads, head_dim]: a latent row of each token is its key, the first head_dim_v
                   elements its value
    block_table    int32 [batch, width], page ids
    cache_seqlens  int32 [batch], the keys of each request, those of the new tokens included
    tile_scheduler_metadata  of get_mla_metadata, made once for all layers of a step; None: this call plans for itself
    softmax_scale  of the scores; None: 1 / sqrt(head_dim)
    causal         query j sees the keys up to j + cache_seqlens - seqlen_q
    attn_sink      float32 [num_heads]: a logit that enters the denominator; the LSE leaves it out

    Returns (out [batch, seqlen_q, num_heads, head_dim_v], softmax_lse float32 [batch, num_heads, seqlen_q]).
    """
    if is_fp8_kvcache:
        accepted = "caches of float32, float16 and bfloat16"
        raise _refusal("unsupported", f"is_fp8_kvcache True: attend.flash_mla takes {accepted}")
    if not (indices is extra_k_cache is extra_indices_in_kvcache is topk_length is extra_topk_length is None):
        sparse = dict(
            indices=indices,
            extra_k_cache=extra_k_cache,
            extra_indices_in_kvcache=extra_indices_in_kvcache,
            topk_length=topk_length,
            extra_topk_length=extra_topk_length,
        )
        for name in (name for name, value in sparse.items() if value is not None):
            raise _refusal("unsupported", f"{name}: attend.flash_mla takes None; attention is not sparse")
    if num_splits is not None:
        raise _refusal("unsupported", "num_splits: attend.flash_mla takes None; splits follow the lengths")
    return flash_mla(
        q, k_cache, block_table, cache_seqlens, head_dim_v, tile_scheduler_metadata, softmax_scale, causal, attn_sink
    )
