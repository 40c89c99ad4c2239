"""sgl_kernel's routing of mixtures of experts: the choice of experts by attend's router kernel, their order by torch."""

import torch

from .. import _attend
from .._refusal import refusal as _refusal

__all__ = ["moe_align_block_size", "topk_softmax"]


def topk_softmax(topk_weights, topk_ids, gating_output, renormalize=False, moe_softcapping=0.0, correction_bias=None):
    """Writes each token's topk best experts, the best first and of equal ones the lowest, and their softmax weights.

    topk_weights   float32 [num_tokens, topk], written; renormalize: divided by their sum
    topk_ids       int32 [num_tokens, topk], written
    gating_output  [num_tokens, num_experts], the router's logits; the softmax is taken in float32
    """
    if moe_softcapping:
        raise _refusal("unsupported", f"moe_softcapping {moe_softcapping}: attend.sgl_kernel takes 0")
    if correction_bias is not None:
        raise _refusal("unsupported", "correction_bias: attend.sgl_kernel takes None")
    logits = gating_output.float() if gating_output.dtype in (torch.float16, torch.bfloat16) else gating_output
    _attend.route(logits, topk_ids, topk_weights, bool(renormalize))


def moe_align_block_size(
    topk_ids, num_experts, block_size, sorted_token_ids, experts_ids, num_tokens_post_pad, cumsum_buffer,
    pad_sorted_token_ids=False,
):  # fmt: skip
    """Sorts pairs of token and expert by expert, each expert's padded to whole blocks, for a product of blocks.

    topk_ids             int32 [num_tokens, topk], -1 to num_experts - 2: what sgl_kernel takes is one more than the experts,
                         the first being -1, of tokens that go nowhere
    sorted_token_ids     int32, written: indices into the flat topk_ids, in order within an expert, and behind each expert's
                         the number of pairs until its blocks are whole; with pad_sorted_token_ids to its end. It holds
                         num_pairs + num_experts * (block_size - 1)
    experts_ids          int32, written: the expert of each block, what is behind the last stays
    num_tokens_post_pad  int32 [1], written: pairs and padding
    cumsum_buffer        int32, at least num_experts + 1, written: where each expert's blocks begin

    Nothing waits for the GPU, so the call may be captured in a CUDA graph.
    """
    if block_size < 1:
        raise _refusal("invalid_argument", f"block_size {block_size}: expected at least 1")
    num_pairs, device = topk_ids.numel(), topk_ids.device
    needed = num_pairs + num_experts * (block_size - 1)
    # Of pairs there are at most num_pairs experts with padding.
    needed = min(needed, num_pairs * block_size)
    for name, tensor, size in (
        ("sorted_token_ids", sorted_token_ids, needed),
        ("experts_ids", experts_ids, needed // block_size),
        ("num_tokens_post_pad", num_tokens_post_pad, 1),
        ("cumsum_buffer", cumsum_buffer, num_experts + 1),
    ):
        if tensor.dtype != torch.int32 or tensor.numel() < size or tensor.device != device:
            raise _refusal(
                "invalid_argument",
                f"{name} of {tensor.numel()} {tensor.dtype} on {tensor.device}: expected at least {size} of int32 on {device}",
            )
    experts = topk_ids.reshape(-1).long() + 1
    counts = torch.zeros(num_experts, dtype=torch.long, device=device).scatter_add_(0, experts, torch.ones_like(experts))
    padded = (counts + block_size - 1) // block_size * block_size
    ends = padded.cumsum(0)
    begins = ends - padded
    sorted_experts, pairs = experts.sort(stable=True)
    # A pair's place: its expert's begin, and how many of its expert come before it.
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
