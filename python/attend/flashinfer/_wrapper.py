"""What FlashInfer's wrappers have in common here: plan() keeps the arguments of attend.attention, run() calls it."""

import math
from typing import Any

from .._attend import attention
from .._refusal import refusal

LOG2_E = math.log2(math.e)

# What FlashInfer may do otherwise with the same results: its kernels, how it waits and divides work, and what it is told
# a second time.
_HINTS = frozenset({
    "backend", "block_tables", "data_type", "disable_split_kv", "enable_pdl", "fixed_split_size", "kv_data_type",
    "max_sequence_kv", "max_token_per_sequence", "non_blocking", "profiler_buffer", "q_data_type", "rope_scale",
    "rope_theta", "seq_lens", "seq_lens_q", "skip_softmax_threshold_scale_factor", "use_fp16_qk_reduction",
    "use_fp16_softmax", "use_profiler", "use_tensor_cores", "uses_spcompress",
})  # fmt: skip
# What changes results, and the values that change nothing.
_REFUSED = {
    "jit_args": (None,), "jit_kwargs": (None,), "kv_cache_sf": (None,), "max_item_len_ptr": (None,), "o_indptr": (None,),
    "o_scale": (None, 1), "pos_encoding_mode": (None, "NONE"), "prefix_len_ptr": (None,),
    "scale_k": (None,), "scale_q": (None,), "scale_v": (None,), "token_pos_in_items_len": (None, 0),
    "token_pos_in_items_ptr": (None,), "v_indptr": (None,),
}  # fmt: skip
# Arrays of a plan. A captured graph reads them where they were when it was captured.
_ARRAYS = ("cu_seqlen_q", "seqlen_kv", "kv_indptr", "kv_indices", "cu_seqlen_kv", "tree_mask", "positions")


def check_ignored_arguments(owner, others):
    """`others`, the arguments that `owner` does not read by name: hints, or refused where they would change results."""
    for name, value in others.items():
        if name in _HINTS:
            continue
        if name not in _REFUSED:
            raise TypeError(f"attend.flashinfer's {owner} got an unexpected keyword argument {name!r}")
        plain = value is None or isinstance(value, (str, int, float))
        if not (plain and value in _REFUSED[name]):
            shown = repr(value) if plain else type(value).__name__
            raise refusal("unsupported", f"{name} {shown}: attend.flashinfer's {owner} takes {_REFUSED[name][-1]!r}")


def to_split_rule(others):
    """How attend.attention is to share keys among workers: with either of these a token's bits do not depend on the
    other requests, as FlashInfer has it."""
    return "fixed" if others.get("disable_split_kv") or (others.get("fixed_split_size") or 0) > 0 else "balanced"


def by_tokens(cache, kv_layout):
    """A cache as [num_pages, page_size, num_heads, head_dim]."""
    return cache if kv_layout == "NHD" else cache.swapaxes(1, 2)


def keys_and_values(cache, kv_layout):
    """(k, v) of a pair, or of one tensor [num_pages, 2, ...]."""
    k, v = cache if isinstance(cache, (tuple, list)) else (cache[:, 0], cache[:, 1])
    return by_tokens(k, kv_layout), by_tokens(v, kv_layout)


def get_seq_lens(kv_indptr, kv_last_page_len, page_size):
    """Keys of each request, from its pages and what is in the last one."""
    num_pages = kv_indptr[1:] - kv_indptr[:-1]
    return int32(((num_pages - 1) * page_size + as_array_like(kv_last_page_len, kv_indptr)) * (num_pages > 0))


def int32(array):
    return array.int() if hasattr(array, "int") else array.astype("int32")


def int32_like(array, values):
    """A few numbers as int32, in the library and the place of `array`."""
    if hasattr(array, "new_tensor"):
        import torch

        return torch.tensor(values, dtype=torch.int32, device=array.device)
    import numpy as np

    return np.array(values, np.int32)


def iota_like(array, size):
    """0, 1, ..., size - 1 as int32, where `array` lies."""
    if hasattr(array, "new_ones"):
        return array.new_ones(size).cumsum(0).int() - 1
    return (array[:1] * 0 + 1).repeat(size).cumsum().astype("int32") - 1


def as_array_like(array, other):
    """`array` where `other` lies: plans take what is in host memory, too."""
    if not hasattr(array, "new_ones") or array.device == other.device:
        return array
    # On its way to the host it is waited for: the host reads it next.
    return array.to(other.device, non_blocking=array.device.type == "cpu")


def differences(indptr):
    """How many entries each request has, of where they begin."""
    return int32(indptr[1:] - indptr[:-1])


def longest(indptr):
    """The most queries of a request. Of a GPU's array this waits for it, as FlashInfer's plan does."""
    return int(differences(indptr).max()) if len(indptr) > 1 else 0


def as_dtype(array, dtype):
    """`array`, in another dtype where one is asked for: torch's or numpy's, or a name."""
    if dtype is None or str(array.dtype).rpartition(".")[2] == str(dtype).rpartition(".")[2]:
        return array
    if not hasattr(array, "new_empty"):
        return array.astype(dtype)
    import torch

    return array.to(getattr(torch, dtype) if isinstance(dtype, str) else dtype)


def with_base_2(result, lse, return_lse):
    """What run() returns of (values, natural LSE): the latter of base 2, in `lse` where that is given."""
    values, natural = result
    if lse is None:
        lse = natural * LOG2_E
    else:
        lse[...] = natural * LOG2_E
    return (values, lse) if return_lse else values


def is_kernel_page_size(page_size):
    return page_size <= 256 and page_size & (page_size - 1) == 0


def _token_rows(cache):
    """(cache, spacing): a cache of pages as one of pages of one token, the same memory, and how many tokens of that lie
    from one page to the next."""
    strides = cache.stride() if hasattr(cache, "stride") else [step // cache.itemsize for step in cache.strides]
    num_pages, page_size = cache.shape[:2]
    spacing, rest = divmod(strides[0], strides[1]) if num_pages > 1 else (page_size, 0)
    if rest:
        raise refusal(
            "unsupported",
            f"page_size {page_size} with strides {tuple(strides)}: expected pages an integer of tokens apart, or a "
            "power of two up to 256",
        )
    shape = (max(0, num_pages - 1) * spacing + page_size * (num_pages > 0), 1, *cache.shape[2:])
    strides = (strides[1], *strides[1:])
    if hasattr(cache, "as_strided"):
        return cache.as_strided(shape, strides), spacing
    import numpy as np

    return np.lib.stride_tricks.as_strided(cache, shape, [step * cache.itemsize for step in strides]), spacing


def _token_slots(kv_indptr, kv_indices, page_size, spacing):
    """The index over pages as one over their tokens."""
    slots = kv_indices[:, None] * spacing + iota_like(kv_indptr, page_size)
    return dict(kv_indptr=kv_indptr * page_size, kv_indices=slots.reshape(-1))


class _ArraysOfGraph:
    """Arrays that keep their place from plan to plan, so that a captured graph reads what the last plan wrote."""

    def __init__(self, buffers):
        self._arrays = {name: buffer for name, buffer in buffers.items() if buffer is not None}
        self._max_seqlen_q = None

    def kept(self, plan):
        """`plan`, its arrays written to their places."""
        if plan.get("single_keys"):
            raise refusal("unsupported", "custom mask with use_cuda_graph: expected one that hides new tokens alone")
        if self._max_seqlen_q is None:
            self._max_seqlen_q = plan["max_seqlen_q"]
        if plan["max_seqlen_q"] > self._max_seqlen_q:
            raise refusal(
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
            raise refusal(
                "invalid_argument",
                f"{name} of {list(new.shape)} with use_cuda_graph: expected {'at most ' if name == 'kv_indices' else ''}"
                f"{list(place.shape)}, as its buffer or the first plan has",
            )
        place[: len(new)] = new
        return place


class Wrapper:
    _int_workspace_buffer = None  # callers pass FlashInfer's on to each other; workspaces are attend's own

    def __init__(self, float_workspace_buffer=None, kv_layout="NHD", use_cuda_graph=False, buffers=None, **others):
        check_ignored_arguments(type(self).__name__, others)
        if kv_layout not in ("NHD", "HND"):
            raise refusal("invalid_argument", f"kv_layout {kv_layout!r}: expected 'NHD' or 'HND'")
        self._kv_layout, self._planned, self._out_dtype, self._slots = kv_layout, None, None, None
        self._graph = _ArraysOfGraph(buffers or {}) if use_cuda_graph else None

    @property
    def is_cuda_graph_enabled(self):
        return self._graph is not None

    def reset_workspace_buffer(self, *args, **kwargs):
        """Workspaces are attend's own."""

    def _keep(self, plan, out_dtype=None):
        self._planned, self._out_dtype = self._graph.kept(plan) if self._graph else plan, out_dtype
        self._slots = None

    def _change(self, **changed):
        """Other numbers of a plan; its arrays stay."""
        self._planned = {**self._from_plan(), **changed}

    def _check_page_size(self, call, cache):
        planned = call.pop("page_size", None)
        if planned is not None and cache.shape[1] != planned:
            raise refusal(
                "invalid_argument", f"a cache with pages of {cache.shape[1]} tokens: expected {planned}, as plan() was given"
            )

    def _by_tokens(self, call, *caches):
        """Caches whose page size no kernel knows, as pages of one token, which `call` is told."""
        page_size = caches[0].shape[1]
        rows = [_token_rows(cache) for cache in caches]
        spacing = rows[0][1]
        if any(other != spacing for _, other in rows):
            raise refusal("unsupported", f"page_size {page_size} with k and v of other strides: expected the same, or a power of two")
        # A graph that is captured makes them anew in every replay.
        if self._slots is None or self._slots[0] != spacing or self._graph:
            self._slots = spacing, _token_slots(call["kv_indptr"], call["kv_indices"], page_size, spacing)
        call.update(self._slots[1])
        return [cache for cache, _ in rows]

    def _from_plan(self):
        if self._planned is None:
            raise refusal("invalid_argument", "run: expected plan() before")
        return dict(self._planned)

    def _call(self, q, k, v, *, q_scale=None, k_scale=None, v_scale=None, out=None, lse=None, return_lse=False,
              window_left=None, sinks=None):  # fmt: skip
        call = self._from_plan()
        self._check_page_size(call, k)
        if window_left is not None:
            call["window_left"] = window_left
        if call.pop("single_keys", False):
            if window_left is not None:
                raise refusal("unsupported", f"window_left {window_left}: give it to plan() with a custom mask")
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
    """A cache of pages as one of pages of one key: the same memory."""
    strides = cache.stride() if hasattr(cache, "stride") else [step // cache.itemsize for step in cache.strides]
    if cache.shape[1] == 1:
        return cache
    if strides[0] != cache.shape[1] * strides[1]:
        raise refusal(
            "unsupported", f"custom mask over pages with strides {tuple(strides)}: expected kv_layout 'NHD', without gaps"
        )
    return cache.reshape(-1, 1, *cache.shape[2:])
