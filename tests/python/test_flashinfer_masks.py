"""Custom masks of attend.flashinfer, compared with softmax over their visible keys in float64."""

import attend
import numpy as np
import pytest
from attend import flashinfer
from conftest import check
from paged_cache import draw, int32
from test_flashinfer import LOG2_E, csr_pages

SEQLENS, CU_Q = [20, 40, 3, 70], np.array([0, 5, 6, 9, 79], np.int32)


def seen(q, k, v, mask):
    """(out, lse) of queries [len_q, heads, dim] that attend to the keys of their rows of the mask."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.astype(np.float64).repeat(group, 1) for x in (k, v))
    scores = np.einsum("qhd,khd->hqk", q.astype(np.float64), k) / np.sqrt(q.shape[-1])
    scores = np.where(mask, scores, -np.inf)
    with np.errstate(divide="ignore"):
        lse = np.log(np.exp(scores).sum(-1))
    p = np.exp(scores - np.where(np.isinf(lse), 0, lse)[..., None])
    return np.einsum("hqk,khd->qhd", p, v), lse.T


def masks_of(rng, kind):
    """A mask per request. "tree" masks only new keys; "any" masks any keys, and every key of one query."""
    masks = []
    for r, len_kv in enumerate(SEQLENS):
        len_q = CU_Q[r + 1] - CU_Q[r]
        mask = rng.random((len_q, len_kv)) < 0.5
        if kind == "tree":
            mask[:, : len_kv - len_q] = True
        elif r == 0:
            mask[2] = False
        masks.append(mask)
    return masks


def packed(masks):
    return np.concatenate([np.packbits(mask.reshape(-1), bitorder="little") for mask in masks])


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("kind", ["tree", "any"])
def test_queries_attend_to_the_keys_of_their_mask(rng, library, kind, pack, page_size):
    masks = masks_of(rng, kind)
    pages, cache, keys = csr_pages(rng, library, SEQLENS, page_size, 2, 32, "NHD")
    q, q_values = draw(rng, library, CU_Q[-1], 4, 32)
    if pack:
        options = dict(packed_custom_mask=library.tensor(packed(masks)))
    else:
        options = dict(custom_mask=library.tensor(np.concatenate([mask.reshape(-1) for mask in masks])))
    paged = flashinfer.BatchPrefillWithPagedKVCacheWrapper(None)
    # A custom mask overrides a causal mask.
    paged.plan(int32(library, CU_Q), *pages, 4, 2, 32, page_size, causal=pack, **options)
    ragged = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(None)
    ragged.plan(int32(library, CU_Q), int32(library, np.cumsum([0] + SEQLENS)), 4, 2, 32, **options)
    k, v = (library.tensor(np.concatenate([key[i] for key in keys])) for i in range(2))
    for out, lse in (paged.run(q, cache, return_lse=True), ragged.run(q, k, v, return_lse=True)):
        for r, mask in enumerate(masks):
            rows = slice(CU_Q[r], CU_Q[r + 1])
            want, want_lse = seen(q_values[rows], *keys[r], mask)
            check(library.array(out)[rows], want)
            check(library.array(lse)[rows], want_lse * LOG2_E)


@pytest.mark.parametrize("kind", ["tree", "any"])
def test_window_applies_in_addition_to_a_mask(rng, library, kind):
    masks = masks_of(rng, kind)
    pages, cache, keys = csr_pages(rng, library, SEQLENS, 16, 2, 32, "NHD")
    q, q_values = draw(rng, library, CU_Q[-1], 4, 32)
    paged = flashinfer.BatchPrefillWithPagedKVCacheWrapper(None)
    mask = library.tensor(np.concatenate([mask.reshape(-1) for mask in masks]))
    paged.plan(int32(library, CU_Q), *pages, 4, 2, 32, 16, custom_mask=mask, window_left=6)
    out = library.array(paged.run(q, cache))
    for r, mask in enumerate(masks):
        rows, (len_q, len_kv) = slice(CU_Q[r], CU_Q[r + 1]), mask.shape
        near = np.arange(len_kv) >= len_kv - len_q + np.arange(len_q)[:, None] - 6
        check(out[rows], seen(q_values[rows], *keys[r], mask & near)[0])


def test_tree_masks_in_both_layouts(rng, library):
    masks = masks_of(rng, "tree")
    pages, cache, keys = csr_pages(rng, library, SEQLENS, 16, 2, 32, "HND")
    q, q_values = draw(rng, library, CU_Q[-1], 4, 32)
    paged = flashinfer.BatchPrefillWithPagedKVCacheWrapper(None, "HND")
    paged.plan(int32(library, CU_Q), *pages, 4, 2, 32, 16, packed_custom_mask=library.tensor(packed(masks)))
    out = library.array(paged.run(q, cache))
    for r, mask in enumerate(masks):
        rows = slice(CU_Q[r], CU_Q[r + 1])
        check(out[rows], seen(q_values[rows], *keys[r], mask)[0])


def test_invalid_masks_are_rejected_by_name(rng):
    plan = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(None).plan
    indptr = np.array([0, 3], np.int32)
    with pytest.raises(attend.Error, match=r"custom_mask of bool \[8\]: expected bool \[9\], of all requests"):
        plan(indptr, indptr, 2, 1, 32, custom_mask=np.ones(8, bool))
    with pytest.raises(attend.Error, match=r"packed_custom_mask of int8 \[2\]: expected uint8 \[2\]"):
        plan(indptr, indptr, 2, 1, 32, packed_custom_mask=np.ones(2, np.int8))
    paged = flashinfer.BatchPrefillWithPagedKVCacheWrapper(None, "HND")
    one = np.array([1], np.int32)
    paged.plan(np.array([0, 1], np.int32), np.array([0, 1], np.int32), one * 0, one * 3, 2, 2, 32, 16,
               custom_mask=np.array([False, True, True]))  # fmt: skip
    q, cache = np.ones((1, 2, 32), np.float32), np.ones((1, 2, 2, 16, 32), np.float32)
    with pytest.raises(attend.Error, match="custom mask over pages with strides .*: expected kv_layout 'NHD'"):
        paged.run(q, cache)
    with pytest.raises(attend.Error, match=r"window_left 3: pass it to plan\(\) with a custom mask"):
        paged.run(q, cache, window_left=3)


def test_graph_wrapper_works_with_changing_plans(rng, library):
    wrapper, q = None, None
    for seqlens in ([20, 7, 33], [1, 48, 5]):
        pages, cache, keys = csr_pages(rng, library, seqlens, 16, 2, 32, "NHD")
        if wrapper is None:
            buffers = [int32(library, np.zeros(n)) for n in (4, 9, 3)]
            wrapper = flashinfer.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(None, *buffers)
        q, q_values = draw(rng, library, 3, 4, 32)
        wrapper.plan(*pages, 4, 2, 32, 16)
        np.testing.assert_array_equal(library.array(buffers[0]), library.array(pages[0]))
        out = library.array(wrapper.run(q, cache))
        for r in range(3):
            check(out[r : r + 1], seen(q_values[r : r + 1], *keys[r], np.ones((1, seqlens[r]), bool))[0])
    zeros = lambda count: int32(library, np.zeros(count))
    with pytest.raises(attend.Error, match=r"cu_seqlen_q of \[3\] with use_cuda_graph: expected \[4\]"):
        wrapper.plan(zeros(3), zeros(2), zeros(2), 4, 2, 32, 16)
    with pytest.raises(attend.Error, match=r"kv_indices of \[10\] with use_cuda_graph: expected at most \[9\]"):
        wrapper.plan(zeros(4), zeros(10), zeros(3), 4, 2, 32, 16)
