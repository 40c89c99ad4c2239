"""LLM attention over paged K/V: the kernels of attend, on tensors of torch, numpy, jax, or whatever has DLPack.

attention, mla    attention over paged or contiguous K/V
store_kv, store_mla, merge
backends          support records of attend's backends
build_info        version, instruction set, and what the GPU kernels were built for
attend.flash_attn_interface, attend.flash_mla   the call signatures of FlashAttention-3 and FlashMLA

Tensors of one call lie on one device. CPU tensors are served by the CPU kernels, GPU tensors (torch's) on torch's
current stream, without synchronisation, so that calls may be captured in torch's CUDA graphs. What an argument may be
is checked before anything runs: attend.Error (a RuntimeError) names the argument and what is accepted.
"""

from ._attend import (
    Error,
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

__version__ = version()
__all__ = [
    "Error",
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
