"""Base of FlashInfer's wrappers: plan() stores the arguments of attend.attention, run() calls it."""

import math
from typing import Any

from .._attend import attention
from .._rejection import rejection

LOG2_E = math.log2(math.e)

# Arguments that do not change results: choice of kernels, synchronization, distribution of work, and redundant values.
_HINTS = frozenset({
    "backend", "block_tables", "data_type", "disable_split_kv", "enable_pdl", "fixed_split_size", "kv_data_type",
    "max_sequence_kv", "max_token_per_sequence", "non_blocking", "profiler_buffer", "q_data_type", "rope_scale",
    "rope_theta", "seq_lens", "seq_lens_q", "skip_softmax_threshold_scale_factor", "use_fp16_qk_reduction",
    "use_fp16_softmax", "use_profiler", "use_tensor_cores", "uses_spcompress",
})  # fmt: skip
# Arguments that change results, with the values that have no effect.
_REJECTED = {
    "jit_args": (None,), "jit_kwargs": (None,), "kv_cache_sf": (None,), "max_item_len_ptr": (None,), "o_indptr": (None,),
    "o_scale": (None, 1), "pos_encoding_mode": (None, "NONE"), "prefix_len_ptr": (None,),
    "scale_k": (None,), "scale_q": (None,), "scale_v": (None,), "token_pos_in_items_len": (None, 0),
    "token_pos_in_items_ptr": (None,), "v_indptr": (None,),
}  # fmt: skip
# Arrays of a plan. A captured graph reads them at the addresses of the capture.
_ARRAYS = ("cu_seqlen_q", "seqlen_kv", "kv_indptr", "kv_indices", "cu_seqlen_kv", "tree_mask", "positions")


def check_ignored_arguments(owner, others):
    """Checks `others`, the arguments that `owner` does not read: hints are ignored, unsupported ones rejected."""
    for name, value in others.items():
        if name in _HINTS:
            continue
        if name not in _REJECTED:
            raise TypeError(f"attend.flashinfer's {owner} got an unexpected keyword argument {name!r}")
        plain = value is None or isinstance(value, (str, int, float))
        if not (plain and value in _REJECTED[name]):
            shown = repr(value) if plain else type(value).__name__
            raise rejection("unsupported", f"{name} {shown}: attend.flashinfer's {owner} accepts {_REJECTED[name][-1]!r}")


def to_split_rule(others):
    """Returns the split rule of attend.attention: with either of these arguments a token's bits do not depend on other
    requests, as in FlashInfer."""
    return "fixed" if others.get("disable_split_kv") or (others.get("fixed_split_size") or 0) > 0 else "balanced"


def by_tokens(cache, kv_layout):
    """Views a cache as [num_pages, page_size, num_heads, head_dim]."""
    return cache if kv_layout == "NHD" else cache.swapaxes(1, 2)


def keys_and_values(cache, kv_layout):
    """Returns (k, v) of a pair, or of one tensor [num_pages, 2, ...]."""
    k, v = cache if isinstance(cache, (tuple, list)) else (cache[:, 0], cache[:, 1])
    return by_tokens(k, kv_layout), by_tokens(v, kv_layout)


def get_seq_lens(kv_indptr, kv_last_page_len, page_size):
    """Returns the number of keys per request, from its pages and the length of the last one."""
    num_pages = kv_indptr[1:] - kv_indptr[:-1]
    return int32(((num_pages - 1) * page_size + as_array_like(kv_last_page_len, kv_indptr)) * (num_pages > 0))


def int32(array):
    return array.int() if hasattr(array, "int") else array.astype("int32")


def int32_like(array, values):
    """Returns a few numbers as int32, with the library and device of `array`."""
    if hasattr(array, "new_tensor"):
        import torch

        return torch.tensor(values, dtype=torch.int32, device=array.device)
    import numpy as np

    return np.array(values, np.int32)


def iota_like(array, size):
    """Returns 0, 1, ..., size - 1 as int32 on the device of `array`."""
    if hasattr(array, "new_ones"):
        return array.new_ones(size).cumsum(0).int() - 1
    return (array[:1] * 0 + 1).repeat(size).cumsum().astype("int32") - 1


def as_array_like(array, other):
    """Returns `array` on the device of `other`, since plans also accept arrays in host memory."""
    if not hasattr(array, "new_ones") or array.device == other.device:
        return array
    # Copies to the host are synchronous, since the host reads them next.
    return array.to(other.device, non_blocking=array.device.type == "cpu")


def differences(indptr):
    """Returns the lengths of requests from their offsets."""
    return int32(indptr[1:] - indptr[:-1])


def longest(indptr):
    """Returns the maximum number of queries per request. Waits for a GPU array, as FlashInfer's plan does."""
    return int(differences(indptr).max()) if len(indptr) > 1 else 0


def as_dtype(array, dtype):
    """Converts `array` to another dtype of torch or numpy, or by name, if one is given."""
    if dtype is None or str(array.dtype).rpartition(".")[2] == str(dtype).rpartition(".")[2]:
        return array
    if not hasattr(array, "new_empty"):
        return array.astype(dtype)
    import torch

    return array.to(getattr(torch, dtype) if isinstance(dtype, str) else dtype)


def with_base_2(result, lse, return_lse):
    """Returns run()'s result from (values, natural LSE): the LSE with base 2, written to `lse` if given."""
    values, natural = result
    if lse is None:
        lse = natural * LOG2_E
    else:
        lse[...] = natural * LOG2_E
    return (values, lse) if return_lse else values


def is_kernel_page_size(page_size):
    return page_size <= 256 and page_size & (page_size - 1) == 0


def _token_rows(cache):
    """Returns (cache, spacing): the same memory as pages of one token, and the distance of the original pages in
    tokens."""
    strides = cache.stride() if hasattr(cache, "stride") else [step // cache.itemsize for step in cache.strides]
    num_pages, page_size = cache.shape[:2]
    spacing, rest = divmod(strides[0], strides[1]) if num_pages > 1 else (page_size, 0)
    if rest:
        raise rejection(
            "unsupported",
            f"page_size {page_size} with strides {tuple(strides)}: expected page strides that are multiples of a token, or a "
            "power of two up to 256",
        )
    shape = (max(0, num_pages - 1) * spacing + page_size * (num_pages > 0), 1, *cache.shape[2:])
    strides = (strides[1], *strides[1:])
    if hasattr(cache, "as_strided"):
        return cache.as_strided(shape, strides), spacing
    import numpy as np

    return np.lib.stride_tricks.as_strided(cache, shape, [step * cache.itemsize for step in strides]), spacing


def _token_slots(kv_indptr, kv_indices, page_size, spacing):
    """Converts the index of pages to an index of their tokens."""
    slots = kv_indices[:, None] * spacing + iota_like(kv_indptr, page_size)
    return dict(kv_indptr=kv_indptr * page_size, kv_indices=slots.reshape(-1))


class _ArraysOfGraph:
    """Arrays with fixed addresses, so that a captured graph reads what the last plan wrote."""

    def __init__(self, buffers):
        self._arrays = {name: buffer for name, buffer in buffers.items() if buffer is not None}
        self._max_seqlen_q = None

    def kept(self, plan):
        """Writes the arrays of `plan` to their addresses and returns the plan."""
        if plan.get("single_keys"):
            raise rejection("unsupported", "custom mask with use_cuda_graph: expected one that masks only new tokens")
        if self._max_seqlen_q is None:
            self._max_seqlen_q = plan["max_seqlen_q"]
        if plan["max_seqlen_q"] > self._max_seqlen_q:
            raise rejection(
                "invalid_argument",
                f"a request of {plan['max_seqlen_q']} queries with use_cuda_graph: the first plan had at most {self._max_seqlen_q}",
            )
        kept = {**plan, "max_seqlen_q": self._max_seqlen_q}
        for name in _ARRAYS:
            if plan.get(name) is not None:
                kept[name] = self._write(name, plan[name])
        return kept

    def _write(self, name, new):
        place = self._arrays.get(name)
        if place is None:
            self._arrays[name] = new.clone() if hasattr(new, "clone") else new.copy()
            return self._arrays[name]
        fits = len(new) <= len(place) if name == "kv_indices" else tuple(new.shape) == tuple(place.shape)
        if not fits:
            raise rejection(
                "invalid_argument",
                f"{name} of {list(new.shape)} with use_cuda_graph: expected {'at most ' if name == 'kv_indices' else ''}"
                f"{list(place.shape)}, the shape of its buffer or of the first plan",
            )
        place[: len(new)] = new
        return place


class Wrapper:
    _int_workspace_buffer = None  # unused by attend; callers pass FlashInfer's between wrappers

    def __init__(self, float_workspace_buffer=None, kv_layout="NHD", use_cuda_graph=False, buffers=None, **others):
        check_ignored_arguments(type(self).__name__, others)
        if kv_layout not in ("NHD", "HND"):
            raise rejection("invalid_argument", f"kv_layout {kv_layout!r}: expected 'NHD' or 'HND'")
        self._kv_layout, self._planned, self._out_dtype, self._slots = kv_layout, None, None, None
        self._graph = _ArraysOfGraph(buffers or {}) if use_cuda_graph else None

    @property
    def is_cuda_graph_enabled(self):
        return self._graph is not None

    def reset_workspace_buffer(self, *args, **kwargs):
        """Has no effect, since attend has its own workspaces."""

    def _keep(self, plan, out_dtype=None):
        self._planned, self._out_dtype = self._graph.kept(plan) if self._graph else plan, out_dtype
        self._slots = None

    def _change(self, **changed):
        """Changes numbers of a plan; its arrays stay."""
        self._planned = {**self._from_plan(), **changed}

    def _check_page_size(self, call, cache):
        planned = call.pop("page_size", None)
        if planned is not None and cache.shape[1] != planned:
            raise rejection(
                "invalid_argument", f"a cache with pages of {cache.shape[1]} tokens: expected {planned}, the page size of plan()"
            )

    def _by_tokens(self, call, *caches):
        """Converts caches with a page size that kernels do not support to pages of one token, and updates `call`."""
        page_size = caches[0].shape[1]
        rows = [_token_rows(cache) for cache in caches]
        spacing = rows[0][1]
        if any(other != spacing for _, other in rows):
            raise rejection("unsupported", f"page_size {page_size} with different strides of k and v: expected equal strides, or a power of two")
        # A captured graph computes the slots in every replay.
        if self._slots is None or self._slots[0] != spacing or self._graph:
            self._slots = spacing, _token_slots(call["kv_indptr"], call["kv_indices"], page_size, spacing)
        call.update(self._slots[1])
        return [cache for cache, _ in rows]

    def _from_plan(self):
        if self._planned is None:
            raise rejection("invalid_argument", "run: call plan() first")
        return dict(self._planned)

    def _call(self, q, k, v, *, q_scale=None, k_scale=None, v_scale=None, out=None, lse=None, return_lse=False,
              window_left=None, sinks=None):  # fmt: skip
        call = self._from_plan()
        self._check_page_size(call, k)
        if window_left is not None:
            call["window_left"] = window_left
        if call.pop("single_keys", False):
            if window_left is not None:
                raise rejection("unsupported", f"window_left {window_left}: pass it to plan() with a custom mask")
            k, v = _single_keys(k), _single_keys(v)
        elif "kv_indptr" in call and not is_kernel_page_size(k.shape[1]):
            k, v = self._by_tokens(call, k, v)
        scale = call.pop("scale")
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        wants_lse = return_lse or lse is not None
        result: Any = attention(
            q, k, v, scale=scale * (1.0 if q_scale is None else q_scale), k_scale=1.0 if k_scale is None else k_scale,
            v_scale=1.0 if v_scale is None else v_scale, sinks=sinks, out=out, return_lse=wants_lse, **call,
        )  # fmt: skip
        if out is None and self._out_dtype is not None:
            result = (as_dtype(result[0], self._out_dtype), result[1]) if wants_lse else as_dtype(result, self._out_dtype)
        return with_base_2(result, lse, return_lse) if wants_lse else result


def _single_keys(cache):
    """Views a cache of pages as pages of one key."""
    strides = cache.stride() if hasattr(cache, "stride") else [step // cache.itemsize for step in cache.strides]
    if cache.shape[1] == 1:
        return cache
    if strides[0] != cache.shape[1] * strides[1]:
        raise rejection(
            "unsupported", f"custom mask over pages with strides {tuple(strides)}: expected kv_layout 'NHD', without gaps"
        )
    return cache.reshape(-1, 1, *cache.shape[2:])
