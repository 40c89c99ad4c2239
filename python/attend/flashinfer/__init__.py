"""FlashInfer's wrappers with attend's kernels: plan once per step, run once per layer, on CPUs and on GPUs from Ampere on.
Its layers and sampling are those of attend.sgl_kernel.

decode      BatchDecodeWithPagedKVCacheWrapper, CUDAGraphBatchDecodeWithPagedKVCacheWrapper, fast_decode_plan,
            single_decode_with_kv_cache
prefill     BatchPrefillWithPagedKVCacheWrapper, BatchPrefillWithRaggedKVCacheWrapper, single_prefill_with_kv_cache
mla         BatchMLAPagedAttentionWrapper
cascade     merge_state, merge_state_in_place, merge_states, MultiLevelCascadeAttentionWrapper,
            BatchDecodeWithSharedPrefixPagedKVCacheWrapper, BatchPrefillWithSharedPrefixPagedKVCacheWrapper
page        append_paged_kv_cache, append_paged_mla_kv_cache, get_batch_indices_positions, get_seq_lens
sampling    softmax, sampling_from_probs, top_p_sampling_from_probs, ... (tensors of torch)
            rmsnorm, fused_add_rmsnorm, gemma_rmsnorm, gemma_fused_add_rmsnorm, silu_and_mul, gelu_and_mul,
            gelu_tanh_and_mul, apply_rope_with_cos_sin_cache_inplace (tensors of torch)

Differences from FlashInfer: the workspace of a wrapper and the choice of its kernels (backend, use_tensor_cores) have no
effect; head dims are multiples of 8 up to 256, or 512/512 (row by row on GPUs); caches with other page sizes than powers
of two up to 256 are read token by token; arguments that would change results and are not supported (position encodings,
custom attention variants, several items in a prompt) are rejected. LSE are float32 with base 2, as FlashInfer's; a query
without visible keys has output 0 and LSE -inf.
"""

from .cascade import (
    BatchDecodeWithSharedPrefixPagedKVCacheWrapper,
    BatchPrefillWithSharedPrefixPagedKVCacheWrapper,
    MultiLevelCascadeAttentionWrapper,
    merge_state,
    merge_state_in_place,
    merge_states,
)
from .decode import (
    BatchDecodeWithPagedKVCacheWrapper,
    CUDAGraphBatchDecodeWithPagedKVCacheWrapper,
    fast_decode_plan,
    single_decode_with_kv_cache,
)
from .mla import BatchMLAPagedAttentionWrapper
from .page import append_paged_kv_cache, append_paged_mla_kv_cache, get_batch_indices_positions, get_seq_lens
from .prefill import (
    BatchPrefillWithPagedKVCacheWrapper,
    BatchPrefillWithRaggedKVCacheWrapper,
    single_prefill_with_kv_cache,
)

# Functions that need torch are available only with torch; the wrappers also support numpy arrays.
_TORCH_OPERATORS = (
    "apply_rope_with_cos_sin_cache_inplace",
    "fused_add_rmsnorm",
    "gelu_and_mul",
    "gelu_tanh_and_mul",
    "gemma_fused_add_rmsnorm",
    "gemma_rmsnorm",
    "rmsnorm",
    "silu_and_mul",
)

__all__ = [
    "BatchDecodeWithPagedKVCacheWrapper",
    "BatchDecodeWithSharedPrefixPagedKVCacheWrapper",
    "BatchMLAPagedAttentionWrapper",
    "BatchPrefillWithPagedKVCacheWrapper",
    "BatchPrefillWithRaggedKVCacheWrapper",
    "BatchPrefillWithSharedPrefixPagedKVCacheWrapper",
    "CUDAGraphBatchDecodeWithPagedKVCacheWrapper",
    "MultiLevelCascadeAttentionWrapper",
    "append_paged_kv_cache",
    "append_paged_mla_kv_cache",
    "fast_decode_plan",
    "get_batch_indices_positions",
    "get_seq_lens",
    "merge_state",
    "merge_state_in_place",
    "merge_states",
    "sampling",
    "single_decode_with_kv_cache",
    "single_prefill_with_kv_cache",
    *_TORCH_OPERATORS,
]


def __getattr__(name):
    if name != "sampling" and name not in _TORCH_OPERATORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .. import sgl_kernel

    return getattr(sgl_kernel, name)
