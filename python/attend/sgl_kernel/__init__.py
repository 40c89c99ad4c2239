"""Functions of sgl_kernel that the attention layers of SGLang and mini-sglang call, with attend's kernels, on GPUs from
Ampere on and on CPUs. Tensors are torch's.

flash_attn    flash_attn_with_kvcache, flash_attn_varlen_func, is_fa3_supported
flash_mla     get_mla_metadata, flash_mla_with_kvcache, flash_mla_sparse_fwd
attention     cutlass_mla_decode, cutlass_mla_get_workspace_size, merge_state, merge_state_v2
elementwise   rmsnorm, fused_add_rmsnorm, gemma_rmsnorm, gemma_fused_add_rmsnorm, silu_and_mul, gelu_and_mul,
              gelu_tanh_and_mul, apply_rope_with_cos_sin_cache_inplace
moe           topk_softmax, moe_align_block_size
sampling      softmax, sampling_from_probs, top_k_sampling_from_probs, top_p_sampling_from_probs,
              top_k_top_p_sampling_from_probs, min_p_sampling_from_probs, top_k_renorm_prob, top_p_renorm_prob

Programs that import sgl_kernel and flashinfer use these modules if they are started with

    python -m attend.sgl_kernel -m PACKAGE ARGUMENTS...      or      python -m attend.sgl_kernel PROGRAM.py ARGUMENTS...
"""

from . import attention, elementwise, flash_attn, flash_mla, moe, sampling
from .attention import cutlass_mla_decode, cutlass_mla_get_workspace_size, merge_state, merge_state_v2
from .elementwise import (
    apply_rope_with_cos_sin_cache_inplace,
    fused_add_rmsnorm,
    gelu_and_mul,
    gelu_tanh_and_mul,
    gemma_fused_add_rmsnorm,
    gemma_rmsnorm,
    rmsnorm,
    silu_and_mul,
)
from .moe import moe_align_block_size, topk_softmax
from .sampling import (
    min_p_sampling_from_probs,
    top_k_renorm_prob,
    top_k_renorm_probs,
    top_k_top_p_sampling_from_probs,
    top_p_renorm_prob,
    top_p_renorm_probs,
    top_p_sampling_from_probs,
)

__all__ = [
    "apply_rope_with_cos_sin_cache_inplace",
    "cutlass_mla_decode",
    "cutlass_mla_get_workspace_size",
    "fused_add_rmsnorm",
    "gelu_and_mul",
    "gelu_tanh_and_mul",
    "gemma_fused_add_rmsnorm",
    "gemma_rmsnorm",
    "merge_state",
    "merge_state_v2",
    "min_p_sampling_from_probs",
    "moe_align_block_size",
    "rmsnorm",
    "silu_and_mul",
    "top_k_renorm_prob",
    "top_k_renorm_probs",
    "top_k_top_p_sampling_from_probs",
    "top_p_renorm_prob",
    "top_p_renorm_probs",
    "top_p_sampling_from_probs",
    "topk_softmax",
]
