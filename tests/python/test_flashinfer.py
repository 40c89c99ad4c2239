"""attend.flashinfer against the float64 reference."""

import attend
import numpy as np
import pytest
import reference
from attend import flashinfer
from conftest import check
from paged_cache import draw, int32

LOG2_E = np.log2(np.e)


def csr_pages(rng, library, seqlens, page_size, num_kv_heads, head_dim, layout):
    """(indptr, indices, last_page_len), (k, v) in the layout, and each request's keys and values."""
    counts = [-(-n // page_size) for n in seqlens]
    indptr, ids = np.cumsum([0] + counts), rng.permutation(sum(counts) + 2)
    last = [n - (count - 1) * page_size if count else 0 for n, count in zip(seqlens, counts)]
    k, v = rng.standard_normal((2, len(ids), page_size, num_kv_heads, head_dim), dtype=np.float32)
    keys = [
        tuple(reference.gather(x, ids[indptr[r] : indptr[r + 1]], n) for x in (k, v)) for r, n in enumerate(seqlens)
    ]
    lay = lambda x: library.tensor(np.ascontiguousarray(x if layout == "NHD" else x.swapaxes(1, 2)))
    return [int32(library, x) for x in (indptr, ids[: sum(counts)], last)], (lay(k), lay(v)), keys


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("options", [{}, dict(window_left=5), dict(logits_soft_cap=3.0, sm_scale=0.3)], ids=str)
def test_decode_agrees_with_the_reference(rng, library, layout, page_size, options):
    seqlens = [20, 0, 33, 16]
    pages, cache, keys = csr_pages(rng, library, seqlens, page_size, 2, 32, layout)
    q, q_values = draw(rng, library, 4, 6, 32)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None, layout)
    wrapper.plan(*pages, 6, 2, 32, page_size, **options)
    out, lse = wrapper.run(q, cache, return_lse=True)
    np.testing.assert_array_equal(library.array(wrapper.run(q, cache)), library.array(out))
    how = dict(
        window=(options.get("window_left", -1), 0), softcap=options.get("logits_soft_cap", 0.0), scale=options.get("sm_scale")
    )
    for r in range(4):
        want, want_lse = reference.attend(q_values[r : r + 1], *keys[r], **how)
        check(library.array(out)[r], want[0])
        check(library.array(lse)[r], want_lse[:, 0] * LOG2_E)


def test_decode_takes_scales_sinks_and_a_cache_of_one_tensor(rng, library):
    pages, (k, v), keys = csr_pages(rng, library, [20, 7], 16, 2, 32, "NHD")
    both = library.tensor(np.stack([library.array(k), library.array(v)], 1))
    q, q_values = draw(rng, library, 2, 4, 32)
    sinks = np.array([0.5, -1.0, 2.0, 0.0], np.float32)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None)
    wrapper.plan(*pages, 4, 2, 32, 16)
    out = wrapper.run(q, both, q_scale=0.5, k_scale=2.0, v_scale=3.0, sinks=library.tensor(sinks))
    for r in range(2):
        want, _ = reference.attend(q_values[r : r + 1] * 0.5, keys[r][0] * 2, keys[r][1] * 3, sinks=sinks)
        check(library.array(out)[r], want[0])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_prefill_over_pages_and_over_ragged_keys_agrees_with_the_reference(rng, library, layout, causal):
    seqlens, cu_q = [20, 40, 3], np.array([0, 5, 6, 9], np.int32)
    pages, cache, keys = csr_pages(rng, library, seqlens, 16, 2, 32, layout)
    q, q_values = draw(rng, library, 9, 4, 32)
    paged = flashinfer.BatchPrefillWithPagedKVCacheWrapper(None, layout)
    paged.plan(int32(library, cu_q), *pages, 4, 2, 32, 16, causal=causal)
    ragged = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(None, layout)
    ragged.plan(int32(library, cu_q), int32(library, np.cumsum([0] + seqlens)), 4, 2, 32, causal=causal)
    lay = lambda x: library.tensor(np.ascontiguousarray(x if layout == "NHD" else x.swapaxes(0, 1)))
    k, v = (lay(np.concatenate([key[i] for key in keys])) for i in range(2))
    for out, lse in (paged.run(q, cache, return_lse=True), ragged.run(q, k, v, return_lse=True)):
        for r in range(3):
            rows = slice(cu_q[r], cu_q[r + 1])
            want, want_lse = reference.attend(q_values[rows], *keys[r], causal=causal)
            check(library.array(out)[rows], want)
            check(library.array(lse)[rows], want_lse.T * LOG2_E)


@pytest.mark.parametrize("parts_of_one", [False, True])
def test_mla_agrees_with_the_reference(rng, library, parts_of_one):
    pages, (latent, _), keys = csr_pages(rng, library, [20, 7], 16, 1, 576, "NHD")
    q_nope, nope_values = draw(rng, library, 3, 4, 512)
    q_pe, pe_values = draw(rng, library, 3, 4, 64)
    ckv, kpe = latent[:, :, 0, :512], latent[:, :, 0, 512:]
    if not parts_of_one:
        ckv, kpe = library.tensor(library.array(ckv).copy()), library.tensor(library.array(kpe).copy())
    wrapper = flashinfer.BatchMLAPagedAttentionWrapper(None)
    wrapper.plan(int32(library, [0, 1, 3]), *pages[:2], int32(library, [20, 7]), 4, 512, 64, 16, True, 0.05)
    out, lse = wrapper.run(q_nope, q_pe, ckv, kpe, return_lse=True)
    q_values = np.concatenate([nope_values, pe_values], -1)
    for r, rows in enumerate([slice(0, 1), slice(1, 3)]):
        rows_of_keys = keys[r][0]
        want, want_lse = reference.attend(q_values[rows], rows_of_keys, rows_of_keys[..., :512], scale=0.05, causal=True)
        check(library.array(out)[rows], want)
        check(library.array(lse)[rows], want_lse.T * LOG2_E)


def test_states_are_merged_by_their_lse_of_base_2(rng, library):
    v, v_values = draw(rng, library, 5, 3, 2, 16)
    s_values = rng.standard_normal((5, 3, 2)).astype(np.float32)
    s_values[0, 1], s_values[1, :, 0] = -np.inf, -np.inf
    with np.errstate(divide="ignore", invalid="ignore"):
        want_s = np.log2(np.exp2(s_values.astype(np.float64)).sum(1))
        want = (np.nan_to_num(np.exp2(s_values - want_s[:, None]))[..., None] * v_values).sum(1)
    merged, s = flashinfer.merge_states(v, library.tensor(s_values))
    check(library.array(merged), want)
    check(library.array(s), want_s)


def test_what_is_not_served_is_refused_by_name():
    indptr = np.array([0, 1], np.int32)
    decode = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None)
    with pytest.raises(attend.Error, match="pos_encoding_mode 'ROPE_LLAMA': attend.flashinfer's decode takes 'NONE'"):
        decode.plan(indptr, indptr[:1], indptr[1:], 2, 1, 32, 16, pos_encoding_mode="ROPE_LLAMA")
    with pytest.raises(attend.Error, match=r"run: expected plan\(\) before"):
        decode.run(np.ones((1, 2, 32), np.float32), np.ones((1, 2, 16, 1, 32), np.float32))
    with pytest.raises(attend.Error, match="kv_layout 'NDH': expected 'NHD' or 'HND'"):
        flashinfer.BatchDecodeWithPagedKVCacheWrapper(None, "NDH")
