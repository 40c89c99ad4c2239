"""sgl_kernel's routing of mixture-of-experts layers: experts are selected by attend's router kernel and sorted by torch."""

import torch

from .. import _attend
from .._rejection import rejection as _rejection

__all__ = ["moe_align_block_size", "topk_softmax"]


def topk_softmax(topk_weights, topk_ids, gating_output, renormalize=False, moe_softcapping=0.0, correction_bias=None):
    """Writes each token's topk best experts, best first (lowest index among equal ones), and their softmax weights.

    topk_weights   float32 [num_tokens, topk], written; renormalize: divided by their sum
    topk_ids       int32 [num_tokens, topk], written
    gating_output  [num_tokens, num_experts], the router's logits; the softmax is taken in float32
    """
    if moe_softcapping:
        raise _rejection("unsupported", f"moe_softcapping {moe_softcapping}: expected 0")
    if correction_bias is not None:
        raise _rejection("unsupported", "correction_bias: expected None")
    logits = gating_output.float() if gating_output.dtype in (torch.float16, torch.bfloat16) else gating_output
    _attend.route(logits, topk_ids, topk_weights, bool(renormalize))


def moe_align_block_size(
    topk_ids, num_experts, block_size, sorted_token_ids, experts_ids, num_tokens_post_pad, cumsum_buffer,
    pad_sorted_token_ids=False,
):  # fmt: skip
    """Sorts pairs of token and expert by expert, padded per expert to full blocks, for a blocked GEMM.

    topk_ids             int32 [num_tokens, topk], -1 to num_experts - 2: sgl_kernel's num_experts is one more than the
                         number of experts, since the first is -1, for tokens without an expert
    sorted_token_ids     int32, written: indices into the flat topk_ids, in order within an expert; the padding of each
                         expert (with pad_sorted_token_ids also the rest of the tensor) is the number of pairs. It has at
                         least num_pairs + num_experts * (block_size - 1) elements
    experts_ids          int32, written: expert of each block; elements after the last block are not written
    num_tokens_post_pad  int32 [1], written: number of pairs including padding
    cumsum_buffer        int32, at least num_experts + 1, written: start of each expert's blocks

    The call does not wait for the GPU, so it may be captured in a CUDA graph.
    """
    if block_size < 1:
        raise _rejection("invalid_argument", f"block_size {block_size}: expected at least 1")
    num_pairs, device = topk_ids.numel(), topk_ids.device
    needed = num_pairs + num_experts * (block_size - 1)
    # At most num_pairs experts have padding.
    needed = min(needed, num_pairs * block_size)
    for name, tensor, size in (
        ("sorted_token_ids", sorted_token_ids, needed),
        ("experts_ids", experts_ids, needed // block_size),
        ("num_tokens_post_pad", num_tokens_post_pad, 1),
        ("cumsum_buffer", cumsum_buffer, num_experts + 1),
    ):
        if tensor.dtype != torch.int32 or tensor.numel() < size or tensor.device != device:
            raise _rejection(
                "invalid_argument",
                f"{name} of {tensor.numel()} {tensor.dtype} on {tensor.device}: expected at least {size} of int32 on {device}",
            )
    experts = topk_ids.reshape(-1).long() + 1
    counts = torch.zeros(num_experts, dtype=torch.long, device=device).scatter_add_(0, experts, torch.ones_like(experts))
    padded = (counts + block_size - 1) // block_size * block_size
    ends = padded.cumsum(0)
    begins = ends - padded
    sorted_experts, pairs = experts.sort(stable=True)
    # Position of a pair: the start of its expert, plus the number of earlier pairs with this expert.
    ranks = torch.arange(num_pairs, device=device) - (counts.cumsum(0) - counts)[sorted_experts]
    places = torch.arange(sorted_token_ids.numel(), device=device)
    is_padding = places >= 0 if pad_sorted_token_ids else places < ends[-1]
    sorted_token_ids.copy_(torch.where(is_padding, num_pairs, sorted_token_ids))
    sorted_token_ids.scatter_(0, begins[sorted_experts] + ranks, pairs.int())
    first_places = torch.arange(experts_ids.numel(), device=device) * block_size
    of_blocks = torch.searchsorted(ends, first_places, right=True) - 1
    experts_ids.copy_(torch.where(first_places < ends[-1], of_blocks, experts_ids))
    num_tokens_post_pad.copy_(ends[-1:])
    cumsum_buffer[: num_experts + 1].copy_(torch.cat([begins[:1], ends]))
