"""Calls whose arguments require grad: they give what they give without, and refuse when torch comes back for
gradients, which a result that torch takes for a constant would lose in silence."""

import functools
import sys

from ._refusal import refusal


def recorded(arguments):
    """The tensors among them that torch records a call of."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.is_grad_enabled():
        return []
    return [x for x in arguments.values() if isinstance(x, torch.Tensor) and x.requires_grad]


@functools.cache
def _node():
    import torch

    class ForwardOnly(torch.autograd.Function):
        @staticmethod
        def forward(ctx, name, call, *tensors):
            ctx.name = name
            return call()  # gradients are not recorded in here

        @staticmethod
        def backward(ctx, *gradients):
            raise refusal("unsupported", f"{ctx.name}: backward: attend computes forward only")

    return ForwardOnly


def without_backward(name, call, tensors):
    """What call() returns, as computed of `tensors`."""
    return _node().apply(name, call, *tensors)
