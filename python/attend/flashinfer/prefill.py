"""FlashInfer's prefill and append: ragged queries over pages, or over contiguous keys."""

from functools import partialmethod

from ._wrapper import (
    Wrapper, as_array_like, check_ignored_arguments, differences, get_seq_lens, int32_like, keys_and_values, longest, to_split_rule
)  # fmt: skip

__all__ = ["BatchPrefillWithPagedKVCacheWrapper", "BatchPrefillWithRaggedKVCacheWrapper", "single_prefill_with_kv_cache"]


class BatchPrefillWithPagedKVCacheWrapper(Wrapper):
    """Prefill and append: ragged queries over pages, with the layouts and graphs of the decode wrapper. With
    use_cuda_graph no plan may have a request with more queries than the largest of the first plan."""

    def __init__(
        self, float_workspace_buffer=None, kv_layout="NHD", use_cuda_graph=False, qo_indptr_buf=None, paged_kv_indptr_buf=None,
        paged_kv_indices_buf=None, paged_kv_last_page_len_buf=None, custom_mask_buf=None, mask_indptr_buf=None, **others,
    ):  # fmt: skip
        buffers = dict(cu_seqlen_q=qo_indptr_buf, kv_indptr=paged_kv_indptr_buf, kv_indices=paged_kv_indices_buf)
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph, buffers, **others)

    def plan(
        self, qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, num_qo_heads, num_kv_heads,
        head_dim_qk, page_size, head_dim_vo=None, custom_mask=None, packed_custom_mask=None, causal=False,
        pos_encoding_mode="NONE", use_fp16_qk_reduction=False, sm_scale=None, window_left=-1, logits_soft_cap=None,
        rope_scale=None, rope_theta=None, q_data_type=None, kv_data_type=None, o_data_type=None, **others,
    ):  # fmt: skip
        """qo_indptr int32 [batch + 1]: offsets of each request's queries; other arguments as in the decode wrapper.
        custom_mask bool, or packed_custom_mask uint8, as in masks.of_requests, instead of a causal mask."""
        check_ignored_arguments("prefill", {"pos_encoding_mode": pos_encoding_mode, **others})
        seqlens, pages = get_seq_lens(paged_kv_indptr, paged_kv_last_page_len, page_size), paged_kv_indices
        plan = dict(
            cu_seqlen_q=as_array_like(qo_indptr, pages), seqlen_kv=as_array_like(seqlens, pages), max_seqlen_q=longest(qo_indptr),
            kv_indptr=as_array_like(paged_kv_indptr, pages), kv_indices=pages, causal=causal, window_left=window_left,
            logit_cap=logits_soft_cap or 0.0, scale=sm_scale, page_size=page_size,
            split_rule=to_split_rule(others),
        )  # fmt: skip
        if custom_mask is not None or packed_custom_mask is not None:
            from . import masks

            lens_kv = masks.host_ints(seqlens)
            of_requests = masks.of_requests(
                custom_mask, packed_custom_mask, masks.host_ints(differences(qo_indptr)), lens_kv
            )
            slots = lambda: masks.slots_of_pages(
                masks.host_ints(paged_kv_indptr), masks.host_ints(pages), page_size, lens_kv
            )
            plan = masks.planned(plan, of_requests, slots, window_left, pages)
        self._keep(plan, o_data_type)

    begin_forward = plan

    def run(
        self, q, paged_kv_cache, *, q_scale=None, k_scale=None, v_scale=None, out=None, lse=None, return_lse=False,
        window_left=None, sinks=None, **others,
    ):  # fmt: skip
        """q [total_q, num_qo_heads, head_dim]. Returns out, or (out, lse [total_q, num_qo_heads]). A given `lse` is
        written in both cases."""
        check_ignored_arguments("prefill", others)
        k, v = keys_and_values(paged_kv_cache, self._kv_layout)
        return self._call(
            q, k, v, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, out=out, lse=lse, return_lse=return_lse,
            window_left=window_left, sinks=sinks,
        )  # fmt: skip

    forward = run
    run_return_lse = forward_return_lse = partialmethod(run, return_lse=True)


class BatchPrefillWithRaggedKVCacheWrapper(Wrapper):
    """Prefill over contiguous keys, requests in sequence: [total_kv, num_kv_heads, head_dim], or with kv_layout "HND"
    [num_kv_heads, total_kv, head_dim]."""

    def __init__(
        self, float_workspace_buffer=None, kv_layout="NHD", use_cuda_graph=False, qo_indptr_buf=None, kv_indptr_buf=None,
        custom_mask_buf=None, mask_indptr_buf=None, **others,
    ):  # fmt: skip
        buffers = dict(cu_seqlen_q=qo_indptr_buf, cu_seqlen_kv=kv_indptr_buf)
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph, buffers, **others)

    def plan(
        self, qo_indptr, kv_indptr, num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo=None, custom_mask=None,
        packed_custom_mask=None, causal=False, pos_encoding_mode="NONE", use_fp16_qk_reduction=False, window_left=-1,
        logits_soft_cap=None, sm_scale=None, rope_scale=None, rope_theta=None, q_data_type=None, kv_data_type=None,
        o_data_type=None, **others,
    ):  # fmt: skip
        """qo_indptr, kv_indptr int32 [batch + 1]: offsets of each request's queries and keys; masks as in the paged
        wrapper."""
        check_ignored_arguments("prefill", {"pos_encoding_mode": pos_encoding_mode, **others})
        plan = dict(
            cu_seqlen_q=qo_indptr, seqlen_kv=differences(kv_indptr), max_seqlen_q=longest(qo_indptr),
            cu_seqlen_kv=kv_indptr, causal=causal, window_left=window_left, logit_cap=logits_soft_cap or 0.0,
            scale=sm_scale, split_rule=to_split_rule(others),
        )  # fmt: skip
        if custom_mask is not None or packed_custom_mask is not None:
            from . import masks

            begins = masks.host_ints(kv_indptr)
            of_requests = masks.of_requests(
                custom_mask, packed_custom_mask, masks.host_ints(differences(qo_indptr)), begins[1:] - begins[:-1]
            )
            plan = masks.planned(plan, of_requests, lambda: masks.slots_between(begins), window_left, kv_indptr)
        self._keep(plan, o_data_type)

    begin_forward = plan

    def run(self, q, k, v, *, q_scale=None, k_scale=None, v_scale=None, out=None, lse=None, return_lse=False, **others):
        """Returns out [total_q, num_qo_heads, head_dim_vo], or (out, lse [total_q, num_qo_heads]). A given `lse` is
        written in both cases."""
        check_ignored_arguments("prefill", others)
        if self._kv_layout == "HND":
            k, v = k.swapaxes(0, 1), v.swapaxes(0, 1)
        return self._call(
            q, k[:, None], v[:, None], q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, out=out, lse=lse,
            return_lse=return_lse,
        )  # fmt: skip

    forward = run
    run_return_lse = forward_return_lse = partialmethod(run, return_lse=True)


def single_prefill_with_kv_cache(
    q, k, v, scale_q=None, scale_k=None, scale_v=None, o_dtype=None, custom_mask=None, packed_custom_mask=None, causal=False,
    kv_layout="NHD", pos_encoding_mode="NONE", use_fp16_qk_reduction=False, sm_scale=None, window_left=-1,
    logits_soft_cap=None, rope_scale=None, rope_theta=None, backend="auto", return_lse=False, k_scale=None, v_scale=None,
    **others,
):  # fmt: skip
    """One request: q [qo_len, num_qo_heads, head_dim], k and v [kv_len, num_kv_heads, head_dim], or with kv_layout "HND"
    heads first; custom_mask bool [qo_len, kv_len]. Returns out, or (out, lse [qo_len, num_qo_heads])."""
    others = {**others, "scale_q": scale_q, "scale_k": scale_k, "scale_v": scale_v}
    wrapper = BatchPrefillWithRaggedKVCacheWrapper(None, kv_layout)
    wrapper.plan(
        int32_like(q, [0, q.shape[0]]), int32_like(q, [0, k.shape[0 if kv_layout == "NHD" else 1]]), q.shape[1], None, None,
        custom_mask=custom_mask, packed_custom_mask=packed_custom_mask, causal=causal, pos_encoding_mode=pos_encoding_mode,
        window_left=window_left, logits_soft_cap=logits_soft_cap, sm_scale=sm_scale, o_data_type=o_dtype, **others,
    )  # fmt: skip
    return wrapper.run(q, k, v, k_scale=k_scale, v_scale=v_scale, return_lse=return_lse)
