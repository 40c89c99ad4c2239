"""FlashInfer's functions that append new keys and values to a paged cache."""

from .._attend import store_kv
from ._wrapper import get_seq_lens, int32, iota_like, keys_and_values

__all__ = ["append_paged_kv_cache", "append_paged_mla_kv_cache", "get_batch_indices_positions", "get_seq_lens"]


def get_batch_indices_positions(append_indptr, seq_lens, nnz):
    """Returns the request and the position within it for each of nnz new tokens: int32 [nnz] each. append_indptr int32
    [batch + 1]: offsets of each request's new tokens; seq_lens int32 [batch]: tokens including the new ones."""
    token = iota_like(append_indptr, nnz)
    requests = (token[:, None] >= append_indptr[None, 1:]).sum(-1)
    return int32(requests), int32(seq_lens[requests] - append_indptr[requests + 1] + token)


def append_paged_kv_cache(
    append_key, append_value, batch_indices, positions, paged_kv_cache, kv_indices, kv_indptr, kv_last_page_len, kv_layout="NHD"
):
    """Writes append_key, append_value [nnz, num_kv_heads, head_dim] to the pages of their requests, which must have room."""
    k, v = keys_and_values(paged_kv_cache, kv_layout)
    pages, rows = _slot_indices(batch_indices, positions, kv_indices, kv_indptr, k.shape[1])
    store_kv(append_key, append_value, k, v, int32(pages * k.shape[1] + rows))


def append_paged_mla_kv_cache(
    append_ckv, append_kpe, batch_indices, positions, ckv_cache, kpe_cache, kv_indices, kv_indptr, kv_last_page_len
):
    """Writes latent rows: append_ckv [nnz, 512], append_kpe [nnz, 64]."""
    pages, rows = _slot_indices(batch_indices, positions, kv_indices, kv_indptr, ckv_cache.shape[1])
    ckv_cache[pages, rows], kpe_cache[pages, rows] = append_ckv, append_kpe


def _slot_indices(batch_indices, positions, kv_indices, kv_indptr, page_size):
    """Returns the slot of each token: page and row within the page."""
    return kv_indices[kv_indptr[batch_indices] + positions // page_size], positions % page_size
