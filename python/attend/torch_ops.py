"""attend's attention as torch operators (torch.ops.attend), so that torch.compile has no graph break at calls of
attend.flash_attn_interface, attend.flash_mla or attend.sgl_kernel.

Importing this module registers them; attend imports it when torch's compiler is imported. Code that is not compiled calls
the kernels directly without overhead: only the tracer replaces calls by operators. Operators define the shapes, dtypes and
strides of their results (fake tensors), and the arguments that they write.

Metadata that share a plan among calls (scheduler_metadata, tile_scheduler_metadata) are removed from compiled code: each
call plans itself, with the same results.
"""

import types
from typing import Any

import torch
from torch import library

from . import _attend, flash_attn_interface, flash_mla

__all__ = []

_library = library.Library("attend", "DEF")

# Arguments in the order of the schema; `!` marks arguments that a variant writes.
_ARGUMENTS = (
    "Tensor q, Tensor{keys} k_cache, Tensor{keys} v_cache, *, Tensor? qv, Tensor? k, Tensor? v, Tensor? rotary_cos, "
    "Tensor? rotary_sin, Tensor? rotary_seqlens, bool rotary_interleaved, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, "
    "Tensor? cu_seqlens_k_new, Tensor? cache_seqlens, SymInt? cache_seqlens_number, SymInt? max_seqlen_q, "
    "Tensor? page_table, Tensor? cache_batch_idx, Tensor? cache_leftpad, Tensor? seqused_q, float? softmax_scale, "
    "bool causal, SymInt[] window_size, SymInt attention_chunk, float softcap, Tensor? sinks, Tensor? q_descale, "
    "Tensor? k_descale, Tensor? v_descale, float? q_descale_number, float? k_descale_number, float? v_descale_number, "
    "SymInt num_splits, bool return_softmax_lse, bool keys_are_cache{out}"
)
_MAY_BE_NUMBERS = ("cache_seqlens", "q_descale", "k_descale", "v_descale")


def _schema(name, appends, into):
    keys = iter(("(a!)", "(b!)")) if appends else iter(("", ""))
    arguments = _ARGUMENTS.replace("{keys}", "{}").replace("{out}", ", Tensor(c!) out" if into else "")
    returned = "Tensor" if into else "(Tensor, Tensor)"
    return f"{name}({arguments.format(next(keys), next(keys))}) -> {returned}"


def _name(appends, into):
    return "flash_attention" + ("_append" if appends else "") + ("_out" if into else "")


def _empty_lse(q):
    return q.new_empty(0, dtype=torch.float32)


def _run(q, k_cache, v_cache, **arguments):
    for name in _MAY_BE_NUMBERS:
        number = arguments.pop(f"{name}_number", None)
        if number is not None:
            arguments[name] = number
    # Operators are below autograd: gradients were handled before, or are not requested.
    with torch.no_grad():
        result: Any = _attend.flash_attention(q=q, k_cache=k_cache, v_cache=v_cache, **arguments)
    out, lse = result if arguments["return_softmax_lse"] else (result, _empty_lse(q))
    return lse if "out" in arguments else (out, lse)


def _dense_lse(q, batch, heads, seqlen_q):
    """Returns an LSE tensor of shape [.., heads, tokens] with memory order [tokens, heads]."""
    if seqlen_q == 1:
        return q.new_empty((batch, heads, 1), dtype=torch.float32)
    return q.new_empty((batch, seqlen_q, heads), dtype=torch.float32).mT


def _fake(q, k_cache, v_cache, **arguments):
    lse = _empty_lse(q)
    if arguments["return_softmax_lse"]:
        if q.dim() == 4:
            lse = _dense_lse(q, q.shape[0], q.shape[2], q.shape[1])
        else:
            lse = q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)
    if "out" in arguments:
        return lse
    is_fp8 = q.dtype in (torch.float8_e4m3fn, torch.float8_e5m2)
    return q.new_empty((*q.shape[:-1], v_cache.shape[-1]), dtype=torch.bfloat16 if is_fp8 else q.dtype), lse


def _define(schema, run, fake):
    _library.define(schema)
    name = schema.split("(")[0]
    _library.impl(name, run, "CompositeExplicitAutograd")
    library.register_fake(f"attend::{name}", fake, lib=_library)


for _appends in (False, True):
    for _into in (False, True):
        _define(_schema(_name(_appends, _into), _appends, _into), _run, _fake)


def _run_mla(q, k_cache, block_table, cache_seqlens, head_dim_v, softmax_scale, causal, attn_sink):
    with torch.no_grad():
        return _attend.flash_mla(q, k_cache, block_table, cache_seqlens, head_dim_v, None, softmax_scale, causal, attn_sink)


def _fake_mla(q, k_cache, block_table, cache_seqlens, head_dim_v, softmax_scale, causal, attn_sink):
    return q.new_empty((*q.shape[:-1], head_dim_v)), _dense_lse(q, q.shape[0], q.shape[2], q.shape[1])


_define(
    "flash_mla(Tensor q, Tensor k_cache, Tensor block_table, Tensor cache_seqlens, SymInt head_dim_v, float? softmax_scale, "
    "bool causal, Tensor? attn_sink) -> (Tensor, Tensor)",
    _run_mla,
    _fake_mla,
)


# Functions that the tracer uses instead of attend's extension module.


def _flash_attention(
    q, qv=None, k_cache=None, v_cache=None, k=None, v=None, rotary_cos=None, rotary_sin=None, rotary_seqlens=None,
    rotary_interleaved=True, cu_seqlens_q=None, cu_seqlens_k_new=None, cache_seqlens=None, max_seqlen_q=None,
    page_table=None, cache_batch_idx=None, cache_leftpad=None, softmax_scale=None, causal=False, window_size=(-1, -1),
    attention_chunk=0, softcap=0.0, sinks=None, q_descale=None, k_descale=None, v_descale=None, num_splits=0,
    scheduler_metadata=None, out=None, return_softmax_lse=False, learnable_sink=None, cu_seqlens_k=None, seqused_q=None,
    keys_are_cache=True,
):  # fmt: skip
    arguments = dict(
        qv=qv, k=k, v=v, rotary_cos=rotary_cos, rotary_sin=rotary_sin, rotary_seqlens=rotary_seqlens,
        rotary_interleaved=bool(rotary_interleaved), cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
        cu_seqlens_k_new=cu_seqlens_k_new, max_seqlen_q=max_seqlen_q, page_table=page_table,
        cache_batch_idx=cache_batch_idx, cache_leftpad=cache_leftpad, seqused_q=seqused_q, softmax_scale=softmax_scale,
        causal=causal, window_size=list(window_size), attention_chunk=attention_chunk, softcap=softcap,
        sinks=learnable_sink if sinks is None else sinks, num_splits=num_splits, return_softmax_lse=return_softmax_lse,
        keys_are_cache=keys_are_cache,
    )  # fmt: skip
    for name, value in (
        ("cache_seqlens", cache_seqlens), ("q_descale", q_descale), ("k_descale", k_descale), ("v_descale", v_descale)
    ):  # fmt: skip
        is_tensor = isinstance(value, torch.Tensor)
        arguments[name] = value if is_tensor else None
        arguments[f"{name}_number"] = None if is_tensor or value is None else value
    if out is not None:
        operator = torch.ops.attend.flash_attention_out if k is None else torch.ops.attend.flash_attention_append_out
        lse = operator(q, k_cache, v_cache, out=out, **arguments)
        return (out, lse) if return_softmax_lse else out
    operator = torch.ops.attend.flash_attention if k is None else torch.ops.attend.flash_attention_append
    made, lse = operator(q, k_cache, v_cache, **arguments)
    return (made, lse) if return_softmax_lse else made


def _named_flash_attention(name, **arguments):
    """Replaces flash_attn_interface._attend; _run() handles tensors that require grad."""
    return _flash_attention(**arguments)


def _flash_mla(
    q, k_cache, block_table, cache_seqlens, head_dim_v, tile_scheduler_metadata, softmax_scale, causal, attn_sink
):
    return torch.ops.attend.flash_mla(
        q, k_cache, block_table, cache_seqlens, head_dim_v, softmax_scale, causal, attn_sink
    )


def _no_plan():
    """Returns the metadata of compiled code, which are empty."""


def _traced_as(function, **replaced):
    """Makes the tracer use `function` with other globals, in which calls of the extension module are operators. The globals
    have no module name, since the tracer would use it to find the original module."""
    scope = {**function.__globals__, **replaced}
    del scope["__name__"]
    traceable = types.FunctionType(function.__code__, scope, function.__name__, function.__defaults__)
    traceable.__kwdefaults__ = function.__kwdefaults__
    torch.compiler.substitute_in_graph(function)(traceable)


for _function in (
    flash_attn_interface.flash_attn_func,
    flash_attn_interface.flash_attn_varlen_func,
    flash_attn_interface.flash_attn_with_kvcache,
):
    _traced_as(_function, flash_attention=_flash_attention, _attend=_named_flash_attention)
_traced_as(flash_mla.flash_mla_with_kvcache, flash_mla=_flash_mla)
_traced_as(flash_mla.get_mla_metadata, MlaPlan=_no_plan)
