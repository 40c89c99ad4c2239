"""LLMs, and the attention that they are made of: models on attend's engine, and its kernels on tensors of torch, numpy,
jax, or whatever has DLPack.

LLM, SamplingParams, StructuredOutputsParams   a model that completes prompts and answers conversations
Engine            a model on a thread of its own, for many callers: streams, asyncio
attention, mla    attention over paged or contiguous K/V
store_kv, store_mla, merge
backends          support records of attend's backends
build_info        version, instruction set, and what the GPU kernels were built for
attend.flash_attn_interface, attend.flash_mla, attend.flashinfer, attend.sgl_kernel   the call signatures of
                  FlashAttention-3, FlashMLA, FlashInfer and sgl_kernel
attend.torch_ops  FlashAttention-3's and FlashMLA's calls as operators of torch, for torch.compile

Tensors of one call lie on one device. CPU tensors are served by the CPU kernels, GPU tensors (torch's) on torch's
current stream, without synchronization, so that calls may be captured in torch's CUDA graphs. What an argument may be
is checked before anything runs: attend.Error (a RuntimeError; of a wrong argument attend.InvalidArgument, a ValueError too)
names the argument and what is accepted.
"""

from ._attend import (
    Error,
    InvalidArgument,
    attention,
    backends,
    build_info,
    merge,
    mla,
    num_threads,
    set_num_threads,
    store_kv,
    store_mla,
    version,
)
from ._import_hooks import on_import as _import_hooks
from .engine import Engine, RequestStream
from .llm import LLM
from .outputs import CompletionOutput, Logprob, RequestOutput
from .sampling_params import SamplingParams
from .structured_outputs import StructuredOutputsParams


def _register_operators():
    import torch

    # Of a torch that can put something in the place of a function (2.6).
    if not hasattr(torch.compiler, "substitute_in_graph"):
        return
    # The compiler is imported for others, too: for them it is there whatever becomes of attend's operators.
    try:
        from . import torch_ops  # noqa: F401
    except Exception as error:
        import warnings

        warnings.warn(f"attend.torch_ops: {error}; compiled code that calls attend has graph breaks", stacklevel=2)


_import_hooks("torch._dynamo", _register_operators)

__version__ = version()
__all__ = [
    "CompletionOutput",
    "Engine",
    "Error",
    "InvalidArgument",
    "LLM",
    "Logprob",
    "RequestOutput",
    "RequestStream",
    "SamplingParams",
    "StructuredOutputsParams",
    "attention",
    "backends",
    "build_info",
    "merge",
    "mla",
    "num_threads",
    "set_num_threads",
    "store_kv",
    "store_mla",
]
