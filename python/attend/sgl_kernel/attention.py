"""sgl_kernel's MLA decode and merges with attend's kernels."""

import functools

import torch

from .. import _attend
from .._rejection import rejection as _rejection

__all__ = ["cutlass_mla_decode", "cutlass_mla_get_workspace_size", "merge_state", "merge_state_v2"]

_LN_2 = 0.6931471805599453


def cutlass_mla_decode(q_nope, q_pe, kv_c_and_k_pe_cache, seq_lens, page_table, workspace, sm_scale, num_kv_splits=1):
    """Absorbed MLA with one query per request.

    q_nope  [batch, num_heads, 512]     q_pe  [batch, num_heads, 64]
    kv_c_and_k_pe_cache  [num_pages, page_size, 576], pages of 1 to 256 tokens (a power of two)
    seq_lens  int32 [batch]     page_table  int32 [batch, width]
    workspace, num_kv_splits  not needed: attend has its own workspaces, and splits depend on the lengths

    Returns [batch, num_heads, 512].
    """
    return _attend.mla(
        q_nope, q_pe, kv_c_and_k_pe_cache, _row_sums(q_nope), seq_lens, scale=sm_scale, max_seqlen_q=1,
        page_table=page_table,
    )  # fmt: skip


def cutlass_mla_get_workspace_size(max_seq_len, num_batches, sm_count=0, num_kv_splits=1):
    """Returns 0, since attend has its own workspaces."""
    return 0


def merge_state(v_a, s_a, v_b, s_b, v_merged=None, s_merged=None):
    """Merges attention over two parts of the keys. Returns (v, s), with LSE of base 2.

    v_a, v_b  [num_tokens, num_heads, head_dim]     s_a, s_b  [num_tokens, num_heads]
    v_merged, s_merged  written instead of new tensors
    """
    v, s = merge_state_v2(v_a, s_a.float() * _LN_2, v_b, s_b.float() * _LN_2, v_merged)
    s = s / _LN_2
    return v, s if s_merged is None else s_merged.copy_(s)


def merge_state_v2(v_a, s_a, v_b, s_b, v_merged=None, s_merged=None):
    """Like merge_state, with natural logarithms."""
    return _attend.merge(v_a, s_a.float(), v_b, s_b.float(), v_merged, s_merged)


def _row_sums(q):
    """Returns 0, 1, ..., batch on q's device."""
    if q.dim() != 3:
        raise _rejection("invalid_argument", f"q_nope of shape {tuple(q.shape)}: expected [batch, num_heads, 512]")
    size = q.shape[0] + 1
    # Tensors created during capture are only valid in the replay, so they are not cached.
    if q.is_cuda and torch.cuda.is_current_stream_capturing():
        return torch.arange(size, dtype=torch.int32, device=q.device)
    stream = torch.cuda.current_stream(q.device).cuda_stream if q.is_cuda else 0
    return _counting(q.device, stream, 1 << (size - 1).bit_length())[:size]


# Cached per stream, since another stream might read it before it is written.
@functools.lru_cache(maxsize=None)
def _counting(device, stream, size):
    return torch.arange(size, dtype=torch.int32, device=device)
