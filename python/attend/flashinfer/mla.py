"""FlashInfer's absorbed multi-head latent attention over pages."""

from typing import Any

from .._attend import mla
from .._rejection import rejection
from ._wrapper import LOG2_E, Wrapper, is_kernel_page_size, as_dtype, as_array_like, check_ignored_arguments, iota_like, longest, with_base_2

__all__ = ["BatchMLAPagedAttentionWrapper"]

# Scale of scores in run() without plan(), as in FlashInfer's cutlass backend: q and k have 128 + 64 elements.
_UNPLANNED_SCALE = (128 + 64) ** -0.5


class BatchMLAPagedAttentionWrapper(Wrapper):
    """Absorbed multi-head latent attention over pages. ckv_cache [num_pages, page_size, 512] and kpe_cache [num_pages,
    page_size, 64] are two parts of one tensor of latent rows, latent[..., :512] and latent[..., 512:]; others are joined
    in every call. CUDA graphs work as with the prefill wrapper."""

    def __init__(
        self, float_workspace_buffer=None, use_cuda_graph=False, qo_indptr=None, kv_indptr=None, kv_indices=None,
        kv_len_arr=None, backend="auto",
    ):  # fmt: skip
        buffers = dict(cu_seqlen_q=qo_indptr, kv_indptr=kv_indptr, kv_indices=kv_indices, seqlen_kv=kv_len_arr)
        super().__init__(float_workspace_buffer, "NHD", use_cuda_graph, buffers)

    def plan(
        self, qo_indptr, kv_indptr, kv_indices, kv_len_arr, num_heads, head_dim_ckv, head_dim_kpe, page_size, causal,
        sm_scale, q_data_type=None, kv_data_type=None, use_profiler=False,
    ):  # fmt: skip
        """kv_len_arr int32 [batch]: keys per request. kv_indptr may be longer than qo_indptr; further entries are not read."""
        kv_indptr = kv_indptr[: len(qo_indptr)]
        self._keep(
            dict(
                cu_seqlen_q=as_array_like(qo_indptr, kv_indices), seqlen_kv=as_array_like(kv_len_arr, kv_indices),
                max_seqlen_q=longest(qo_indptr), kv_indptr=as_array_like(kv_indptr, kv_indices), kv_indices=kv_indices,
                causal=causal, scale=sm_scale, page_size=page_size,
            )
        )  # fmt: skip

    def run(
        self, q_nope, q_pe, ckv_cache, kpe_cache, out=None, lse=None, return_lse=False, profiler_buffer=None, kv_len=None,
        page_table=None, return_lse_base_on_e=False, o_scale=None, *, ckv_scale=None, ckv_scale_arr=None, kpe_scale=None,
    ):  # fmt: skip
        """q_nope [total_q, num_heads, 512], q_pe [total_q, num_heads, 64]. Returns out, or (out, lse). A given `lse` is
        written in both cases.

        kv_len, page_table    int32 [batch], [batch, width], for decode steps without plan()
        ckv_scale, kpe_scale  factors of fp8 caches
        ckv_scale_arr         replaces ckv_scale: float32 [num_pages, page_size, 512 / 128], one per 128 elements

        Scales that are not all equal convert the rows to q's dtype in every call.
        """
        check_ignored_arguments("mla", {"o_scale": o_scale})
        if ckv_scale_arr is not None:
            if ckv_scale is not None:
                raise rejection("invalid_argument", "ckv_scale and ckv_scale_arr: expected one of them")
            ckv_cache = as_dtype(as_dtype(ckv_cache, "float32") * _spread(ckv_scale_arr, ckv_cache.shape[-1]), q_nope.dtype)
            kpe_cache, kpe_scale = as_dtype(kpe_cache, q_nope.dtype) * (1.0 if kpe_scale is None else kpe_scale), None
        latent, scale = _latent_rows(ckv_cache, kpe_cache, ckv_scale, kpe_scale, q_nope.dtype)
        wants_lse = return_lse or lse is not None
        if page_table is not None and self._planned is None:
            call = dict(
                cu_seqlen_q=iota_like(kv_len, len(kv_len) + 1), seqlen_kv=kv_len, page_table=page_table, max_seqlen_q=1,
                scale=_UNPLANNED_SCALE,
            )  # fmt: skip
        else:
            call = self._from_plan()
            self._check_page_size(call, latent)
            if not is_kernel_page_size(latent.shape[1]):
                (latent,) = self._by_tokens(call, latent)
        result: Any = mla(q_nope, q_pe, latent, out=out, return_lse=wants_lse, scale_kv=scale, **call)
        if wants_lse and return_lse_base_on_e:
            result = result[0], result[1] / LOG2_E
        return with_base_2(result, lse, return_lse) if wants_lse else result


def _latent_rows(ckv, kpe, ckv_scale, kpe_scale, dtype):
    """Returns the tensor that contains both parts, or a new one if they are separate, and its scale."""
    scales = [1.0 if scale is None else float(scale) for scale in (ckv_scale, kpe_scale)]
    if scales[0] != scales[1]:
        return _joined(as_dtype(ckv, dtype) * scales[0], as_dtype(kpe, dtype) * scales[1]), 1.0
    if hasattr(ckv, "as_strided") and ckv.untyped_storage().data_ptr() == kpe.untyped_storage().data_ptr():
        width = ckv.shape[-1] + kpe.shape[-1]
        if kpe.storage_offset() == ckv.storage_offset() + ckv.shape[-1] and ckv.stride() == kpe.stride():
            return ckv.as_strided((*ckv.shape[:-1], width), ckv.stride()), scales[0]
    return _joined(ckv, kpe), scales[0]


def _spread(scales, width):
    """Expands scales of groups to one scale per element, `width` in total."""
    repeats = width // scales.shape[-1]
    return scales.repeat_interleave(repeats, -1) if hasattr(scales, "repeat_interleave") else scales.repeat(repeats, -1)


def _joined(ckv, kpe):
    if hasattr(ckv, "new_empty"):
        latent = ckv.new_empty((*ckv.shape[:-1], ckv.shape[-1] + kpe.shape[-1]))
        latent[..., : ckv.shape[-1]], latent[..., ckv.shape[-1] :] = ckv, kpe
        return latent
    return ckv.__array_namespace__().concat([ckv, kpe], axis=-1)
