"""FlashInfer's merges of partial results by LSE, and attention over keys that groups of requests share."""

from .._attend import merge
from .._rejection import rejection
from ._wrapper import LOG2_E, check_ignored_arguments
from .decode import BatchDecodeWithPagedKVCacheWrapper
from .prefill import BatchPrefillWithPagedKVCacheWrapper, single_prefill_with_kv_cache

__all__ = [
    "BatchDecodeWithSharedPrefixPagedKVCacheWrapper",
    "BatchPrefillWithSharedPrefixPagedKVCacheWrapper",
    "MultiLevelCascadeAttentionWrapper",
    "merge_state",
    "merge_state_in_place",
    "merge_states",
]


def merge_state(v_a, s_a, v_b, s_b):
    """Merges attention over two parts of the keys. Returns (v, s).

    v_a, v_b  [num_tokens, num_heads, head_dim]     s_a, s_b  float32 [num_tokens, num_heads], LSE with base 2
    """
    v, s = merge(v_a, s_a / LOG2_E, v_b, s_b / LOG2_E)
    return v, s * LOG2_E


def merge_state_in_place(v, s, v_other, s_other, mask=None):
    """Merges v_other, s_other into v, s. mask bool [num_tokens]: tokens whose rows are merged; None: all. Does not wait for
    the GPU."""
    merged_v, merged_s = merge_state(v, s, v_other, s_other)
    v[...] = merged_v if mask is None else _chosen(mask[:, None, None], merged_v, v)
    s[...] = merged_s if mask is None else _chosen(mask[:, None], merged_s, s)


def _chosen(mask, ones, others):
    if hasattr(ones, "where"):
        return ones.where(mask, others)
    import numpy as np

    return np.where(mask, ones, others)


def merge_states(v, s):
    """Merges attention over several parts: v [num_tokens, num_parts, num_heads, head_dim], s [num_tokens, num_parts,
    num_heads]."""
    merged = v[:, 0], s[:, 0]
    for part in range(1, v.shape[1]):
        merged = merge_state(*merged, v[:, part], s[:, part])
    return merged


class MultiLevelCascadeAttentionWrapper:
    """Attention over keys in levels: in each level, groups of requests share pages. A level's arrays are those of a paged
    prefill with the groups as requests. The last level's mask may be causal."""

    def __init__(self, num_levels, float_workspace_buffer=None, kv_layout="NHD", use_cuda_graph=False,
                 qo_indptr_buf_arr=None, paged_kv_indptr_buf_arr=None, paged_kv_indices_buf_arr=None,
                 paged_kv_last_page_len_buf_arr=None):  # fmt: skip
        buffers = [given or [None] * num_levels for given in (qo_indptr_buf_arr, paged_kv_indptr_buf_arr, paged_kv_indices_buf_arr)]
        self._levels = [
            BatchPrefillWithPagedKVCacheWrapper(float_workspace_buffer, kv_layout, use_cuda_graph, *of_level)
            for of_level in zip(*buffers)
        ]

    def reset_workspace_buffer(self, *args, **kwargs):
        """Has no effect, since attend has its own workspaces."""

    def plan(self, qo_indptr_arr, paged_kv_indptr_arr, paged_kv_indices_arr, paged_kv_last_page_len, num_qo_heads,
             num_kv_heads, head_dim, page_size, causal=False, **options):  # fmt: skip
        """Each argument is a list with one array per level; `options` are those of the paged prefill wrapper."""
        arrays = (qo_indptr_arr, paged_kv_indptr_arr, paged_kv_indices_arr, paged_kv_last_page_len)
        if any(len(array) != len(self._levels) for array in arrays):
            raise rejection("invalid_argument", f"arrays of {[len(array) for array in arrays]} levels: expected {len(self._levels)}")
        for level, of_level in zip(self._levels, zip(*arrays)):
            level.plan(*of_level, num_qo_heads, num_kv_heads, head_dim, page_size, causal=causal and level is self._levels[-1], **options)

    begin_forward = plan

    def run(self, q, paged_kv_cache):
        """q [total_q, num_qo_heads, head_dim]."""
        merged = self._levels[0].run(q, paged_kv_cache, return_lse=True)
        for level in self._levels[1:]:
            merged = merge_state(*merged, *level.run(q, paged_kv_cache, return_lse=True))
        return merged[0]

    forward = run


class _SharedPrefixWrapper:
    """Attention over keys that all requests share, followed by each request's own keys in pages."""

    _unique_wrapper: type

    def __init__(self, float_workspace_buffer=None, kv_layout="NHD"):
        self._own, self._kv_layout = self._unique_wrapper(float_workspace_buffer, kv_layout), kv_layout

    def reset_workspace_buffer(self, *args, **kwargs):
        """Has no effect, since attend has its own workspaces."""

    def plan(self, *args, **options):
        """Plans the requests' own keys, with the arguments of the wrapper without a shared prefix."""
        self._own.plan(*args, **options)

    begin_forward = plan

    def end_forward(self):
        """Has no effect."""

    def _run(self, q, k_shared, v_shared, unique_kv_cache, sm_scale, others, **changed):
        check_ignored_arguments("shared prefix", others)
        self._own._change(scale=sm_scale, **changed)
        shared = single_prefill_with_kv_cache(
            q, k_shared, v_shared, kv_layout=self._kv_layout, sm_scale=sm_scale, return_lse=True
        )
        return merge_state(*shared, *self._own.run(q, unique_kv_cache, return_lse=True))[0]


class BatchDecodeWithSharedPrefixPagedKVCacheWrapper(_SharedPrefixWrapper):
    """Decode of requests with common first keys."""

    _unique_wrapper = BatchDecodeWithPagedKVCacheWrapper

    def forward(self, q, k_shared, v_shared, unique_kv_cache, allow_fp16_qk_reduction=False, sm_scale=None, **others):
        """q [batch, num_qo_heads, head_dim]; k_shared, v_shared [shared_len, num_kv_heads, head_dim], or with kv_layout
        "HND" heads first; unique_kv_cache contains the pages of the other keys."""
        return self._run(q, k_shared, v_shared, unique_kv_cache, sm_scale, others)

    run = forward


class BatchPrefillWithSharedPrefixPagedKVCacheWrapper(_SharedPrefixWrapper):
    """Prefill and append of requests with common first keys."""

    _unique_wrapper = BatchPrefillWithPagedKVCacheWrapper

    def forward(
        self, q, k_shared, v_shared, unique_kv_cache, causal=False, allow_fp16_qk_reduction=False, sm_scale=None, **others
    ):  # fmt: skip
        """Like the decode wrapper, with q [total_q, num_qo_heads, head_dim]. causal: applies to the requests' own keys."""
        return self._run(q, k_shared, v_shared, unique_kv_cache, sm_scale, others, causal=causal)

    run = forward
