"""LLM inference and its kernels: models on attend's engine, and kernels on tensors of torch, numpy, jax, or any library
with DLPack.

LLM, SamplingParams, StructuredOutputsParams   a model that completes prompts and answers conversations, or returns
                  vectors and scores
Engine            a model on its own thread, for many callers: streams, asyncio
Embedder          a model that returns vectors, scores or classes
attention, mla    attention over paged or contiguous K/V
store_kv, store_mla, merge
backends          capability records of attend's backends
build_info        version, instruction set, and architectures of the GPU kernels
attend.flash_attn_interface, attend.flash_mla, attend.flashinfer, attend.sgl_kernel   the call signatures of
                  FlashAttention-3, FlashMLA, FlashInfer and sgl_kernel
attend.torch_ops  FlashAttention-3's and FlashMLA's functions as operators of torch, for torch.compile

All tensors of a call are on one device. CPU tensors use the CPU kernels. GPU tensors (torch's) use torch's current
stream without synchronization, so calls may be captured in torch's CUDA graphs. Arguments are validated before anything
runs: attend.Error (a RuntimeError; for an invalid argument attend.InvalidArgument, which is also a ValueError) names the
argument and what is accepted.
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
from .embedder import Embedder
from .engine import Engine, RequestStream
from .llm import LLM
from .outputs import (
    ClassificationOutput,
    ClassificationRequestOutput,
    CompletionOutput,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    Logprob,
    RequestOutput,
    ScoringOutput,
    ScoringRequestOutput,
)
from .sampling_params import SamplingParams
from .structured_outputs import StructuredOutputsParams


def _register_operators():
    import torch

    # Requires torch.compiler.substitute_in_graph (torch 2.6).
    if not hasattr(torch.compiler, "substitute_in_graph"):
        return
    # Other code may import the compiler, so an error of attend's operators must not break the import.
    try:
        from . import torch_ops  # noqa: F401
    except Exception as error:
        import warnings

        warnings.warn(f"attend.torch_ops: {error}; compiled code that calls attend has graph breaks", stacklevel=2)


_import_hooks("torch._dynamo", _register_operators)

__version__ = version()
__all__ = [
    "ClassificationOutput",
    "ClassificationRequestOutput",
    "CompletionOutput",
    "Embedder",
    "EmbeddingOutput",
    "EmbeddingRequestOutput",
    "Engine",
    "Error",
    "InvalidArgument",
    "LLM",
    "Logprob",
    "RequestOutput",
    "RequestStream",
    "SamplingParams",
    "ScoringOutput",
    "ScoringRequestOutput",
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
