"""FlashInfer's decode: one query per request, or the same number for each, over pages."""

from functools import partialmethod

from .._rejection import rejection
from ._wrapper import Wrapper, as_array_like, check_ignored_arguments, get_seq_lens, iota_like, keys_and_values, to_split_rule
from .prefill import single_prefill_with_kv_cache

__all__ = [
    "BatchDecodeWithPagedKVCacheWrapper",
    "CUDAGraphBatchDecodeWithPagedKVCacheWrapper",
    "fast_decode_plan",
    "single_decode_with_kv_cache",
]


class BatchDecodeWithPagedKVCacheWrapper(Wrapper):
    """Decode: one query per request, over pages.

    kv_layout        "NHD": k and v are [num_pages, page_size, num_kv_heads, head_dim]; "HND": heads before page_size
    use_cuda_graph   plan() writes to the given buffers, or to the first plan's arrays, which a captured graph reads: a
                     replay after it computes another step with the same number of requests
    """

    def __init__(
        self, float_workspace_buffer=None, kv_layout="NHD", use_cuda_graph=False, use_tensor_cores=False,
        paged_kv_indptr_buffer=None, paged_kv_indices_buffer=None, paged_kv_last_page_len_buffer=None, **others,
    ):  # fmt: skip
        buffers = dict(kv_indptr=paged_kv_indptr_buffer, kv_indices=paged_kv_indices_buffer)
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph, buffers, **others)

    def plan(
        self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size, pos_encoding_mode="NONE",
        window_left=-1, logits_soft_cap=None, sm_scale=None, o_data_type=None, q_len_per_req=1, **others,
    ):  # fmt: skip
        """The pages of each request: int32 indptr [batch + 1] into indices, page ids, and last_page_len [batch].
        q_len_per_req: the queries of each request are its last q_len_per_req tokens, with a causal mask."""
        check_ignored_arguments("decode", {"pos_encoding_mode": pos_encoding_mode, **others})
        self._q_len, self._num_reqs = q_len_per_req or 1, len(indptr) - 1
        self._keep(
            dict(
                cu_seqlen_q=as_array_like(iota_like(indptr, len(indptr)) * self._q_len, indices),
                seqlen_kv=as_array_like(get_seq_lens(indptr, last_page_len, page_size), indices), max_seqlen_q=self._q_len,
                kv_indptr=as_array_like(indptr, indices), kv_indices=indices, window_left=window_left,
                logit_cap=logits_soft_cap or 0.0, scale=sm_scale, page_size=page_size,
                split_rule=to_split_rule(others),
            ),
            o_data_type,
        )  # fmt: skip

    begin_forward = plan

    def run(
        self, q, paged_kv_cache, *, q_scale=None, k_scale=None, v_scale=None, out=None, lse=None, return_lse=False,
        window_left=None, sinks=None, q_len_per_req=None, **others,
    ):  # fmt: skip
        """q [batch * q_len_per_req, num_qo_heads, head_dim], paged_kv_cache (k, v) or one tensor [num_pages, 2, ...].
        Returns out, or (out, lse [batch * q_len_per_req, num_qo_heads]) with return_lse. A given `lse` is written in both
        cases."""
        check_ignored_arguments("decode", others)
        if q_len_per_req is not None and self._planned is not None and q_len_per_req != self._q_len:
            raise rejection("invalid_argument", f"q_len_per_req {q_len_per_req}: expected plan()'s {self._q_len}")
        if self._planned is not None and q.shape[0] != self._num_reqs * self._q_len:
            raise rejection(
                "invalid_argument",
                f"q of {q.shape[0]} tokens: expected {self._num_reqs} requests times q_len_per_req {self._q_len}, as in plan()",
            )
        k, v = keys_and_values(paged_kv_cache, self._kv_layout)
        return self._call(
            q, k, v, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, out=out, lse=lse, return_lse=return_lse,
            window_left=window_left, sinks=sinks,
        )  # fmt: skip

    forward = run
    run_return_lse = forward_return_lse = partialmethod(run, return_lse=True)


class CUDAGraphBatchDecodeWithPagedKVCacheWrapper(BatchDecodeWithPagedKVCacheWrapper):
    """The decode wrapper for captured graphs, with required buffers. indptr_buffer int32 [batch + 1], indices_buffer int32,
    last_page_len_buffer int32 [batch]."""

    def __init__(
        self, workspace_buffer=None, indptr_buffer=None, indices_buffer=None, last_page_len_buffer=None, kv_layout="NHD",
        use_tensor_cores=False, **others,
    ):  # fmt: skip
        for name, buffer in (("indptr_buffer", indptr_buffer), ("indices_buffer", indices_buffer)):
            if buffer is None:
                raise rejection("invalid_argument", f"{name} None: expected a tensor that plan() may write")
        super().__init__(
            workspace_buffer, kv_layout, True, paged_kv_indptr_buffer=indptr_buffer, paged_kv_indices_buffer=indices_buffer, **others
        )


def fast_decode_plan(wrapper, *args, global_override_indptr_cpu=None, **kwargs):
    """The wrapper's plan(), which does not wait for the GPU; the host copy of indptr is not needed."""
    BatchDecodeWithPagedKVCacheWrapper.plan(wrapper, *args, **kwargs)


def single_decode_with_kv_cache(
    q, k, v, kv_layout="NHD", pos_encoding_mode="NONE", use_tensor_cores=False, q_scale=None, k_scale=None, v_scale=None,
    window_left=-1, logits_soft_cap=None, sm_scale=None, rope_scale=None, rope_theta=None, return_lse=False,
):  # fmt: skip
    """One request: q [num_qo_heads, head_dim], k and v [kv_len, num_kv_heads, head_dim], or with kv_layout "HND"
    [num_kv_heads, kv_len, head_dim]. Returns out, or (out, lse [num_qo_heads])."""
    scale = (q.shape[-1] ** -0.5 if sm_scale is None else sm_scale) * (1.0 if q_scale is None else q_scale)
    out, lse = single_prefill_with_kv_cache(
        q[None], k, v, causal=True, kv_layout=kv_layout, pos_encoding_mode=pos_encoding_mode, sm_scale=scale,
        window_left=window_left, logits_soft_cap=logits_soft_cap, k_scale=k_scale, v_scale=v_scale, return_lse=True,
    )  # fmt: skip
    return (out[0], lse[0]) if return_lse else out[0]
