"""Calls with arguments that require grad: the forward result is the same, and backward raises an error, since a result
that torch treats as a constant would silently lose its gradient."""

import functools
import sys

from ._rejection import rejection


def recorded(arguments):
    """Returns the tensors for which torch records operations."""
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
            return call()  # gradients are not recorded here

        @staticmethod
        def backward(ctx, *gradients):
            raise rejection("unsupported", f"{ctx.name}: backward: attend computes forward only")

    return ForwardOnly


def without_backward(name, call, tensors):
    """Returns the result of call(), attached to `tensors` in torch's graph."""
    return _node().apply(name, call, *tensors)
