"""attend.flashinfer, compared with the float64 reference."""

import attend
import numpy as np
import pytest
import reference
from attend import flashinfer
from conftest import check
from paged_cache import draw, int32

LOG2_E = np.log2(np.e)


def csr_pages(rng, library, seqlens, page_size, num_kv_heads, head_dim, layout):
    """Returns (indptr, indices, last_page_len), (k, v) in the layout, and each request's keys and values."""
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


def test_decode_with_scales_sinks_and_a_single_cache_tensor(rng, library):
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


@pytest.mark.parametrize("gives_parts", [False, True])
def test_mla_agrees_with_the_reference(rng, library, gives_parts):
    pages, (latent, _), keys = csr_pages(rng, library, [20, 7], 16, 1, 576, "NHD")
    q_nope, nope_values = draw(rng, library, 3, 4, 512)
    q_pe, pe_values = draw(rng, library, 3, 4, 64)
    ckv, kpe = latent[:, :, 0, :512], latent[:, :, 0, 512:]
    if not gives_parts:
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


def test_states_are_merged_in_place_where_the_mask_is_true(rng, library):
    (v, v_values), (other, other_values) = draw(rng, library, 4, 2, 16), draw(rng, library, 4, 2, 16)
    s_values, s_other = rng.standard_normal((2, 4, 2)).astype(np.float32)
    for mask in (np.array([True, False, True, False]), None):
        merged, s = library.tensor(library.array(v).copy()), library.tensor(s_values.copy())
        flashinfer.merge_state_in_place(merged, s, other, library.tensor(s_other), None if mask is None else library.tensor(mask))
        weights = np.exp2(np.stack([s_values, s_other]).astype(np.float64))
        want = (weights[0, ..., None] * v_values + weights[1, ..., None] * other_values) / weights.sum(0)[..., None]
        rows = np.ones(4, bool) if mask is None else mask
        check(library.array(merged), np.where(rows[:, None, None], want, v_values))
        check(library.array(s), np.where(rows[:, None], np.log2(weights.sum(0)), s_values))


@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_single_requests_agree_with_the_reference(rng, library, layout):
    lay = lambda x: library.tensor(np.ascontiguousarray(x if layout == "NHD" else x.swapaxes(0, 1)))
    q, q_values = draw(rng, library, 5, 4, 32)
    keys, values = rng.standard_normal((2, 300, 2, 32), dtype=np.float32)
    k, v = lay(keys), lay(values)
    out, lse = flashinfer.single_prefill_with_kv_cache(q, k, v, causal=True, kv_layout=layout, window_left=40, return_lse=True)
    want, want_lse = reference.attend(q_values, keys, values, causal=True, window=(40, 0))
    check(library.array(out), want)
    check(library.array(lse), want_lse.T * LOG2_E)
    mask = rng.random((5, 300)) < 0.5
    out = flashinfer.single_prefill_with_kv_cache(q, k, v, kv_layout=layout, custom_mask=library.tensor(mask))
    for row in range(5):
        check(library.array(out)[row], reference.attend(q_values[row : row + 1], keys[mask[row]], values[mask[row]])[0][0])
    out, lse = flashinfer.single_decode_with_kv_cache(q[0], k, v, layout, q_scale=0.5, k_scale=2.0, v_scale=3.0, return_lse=True)
    want, want_lse = reference.attend(q_values[:1], keys, values * 3)
    check(library.array(out), want[0])
    check(library.array(lse), want_lse[:, 0] * LOG2_E)


def test_passed_lse_is_written_even_if_it_is_not_returned(rng, library):
    pages, cache, _ = csr_pages(rng, library, [20, 7], 16, 2, 32, "NHD")
    q, _ = draw(rng, library, 2, 4, 32)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None)
    wrapper.plan(*pages, 4, 2, 32, 16)
    out, want = wrapper.run(q, cache, return_lse=True)
    lse, into = library.tensor(np.zeros((2, 4), np.float32)), library.tensor(np.zeros((2, 4, 32), np.float32))
    assert wrapper.run(q, cache, out=into, lse=lse) is into
    np.testing.assert_array_equal(library.array(lse), library.array(want))
    np.testing.assert_array_equal(library.array(into), library.array(out))
    np.testing.assert_array_equal(library.array(wrapper.run_return_lse(q, cache)[1]), library.array(want))


def test_decode_with_several_queries_per_request(rng, library):
    seqlens = [20, 3, 33]
    pages, cache, keys = csr_pages(rng, library, seqlens, 16, 2, 32, "NHD")
    q, q_values = draw(rng, library, 9, 4, 32)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None)
    flashinfer.fast_decode_plan(wrapper, *pages, 4, 2, 32, 16, q_len_per_req=3, global_override_indptr_cpu=None)
    out = library.array(wrapper.run(q, cache, q_len_per_req=3))
    for r in range(3):
        check(out[3 * r : 3 * r + 3], reference.attend(q_values[3 * r : 3 * r + 3], *keys[r], causal=True)[0])


def test_results_have_the_requested_dtype(rng, library):
    pages, cache, _ = csr_pages(rng, library, [20, 7], 16, 2, 32, "NHD")
    q, _ = draw(rng, library, 2, 4, 32)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None)
    wrapper.plan(*pages, 4, 2, 32, 16, o_data_type="float16")
    assert "float16" in str(wrapper.run(q, cache).dtype) and "float16" in str(wrapper.run(q, cache, return_lse=True)[0].dtype)


def arrays_of(wrapper):
    return {name: x for name, x in wrapper._planned.items() if hasattr(x, "shape")}


@pytest.mark.parametrize("kind", ["decode", "paged", "ragged", "mla"])
def test_plans_with_use_cuda_graph_reuse_the_buffers_of_the_first(rng, library, kind):
    """test_cuda.py captures graphs; this test compares the arrays that a graph would read."""
    indices = int32(library, np.zeros(20))
    if kind == "decode":
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None, use_cuda_graph=True, paged_kv_indices_buffer=indices)
    elif kind == "paged":
        wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(None, use_cuda_graph=True, paged_kv_indices_buf=indices)
    elif kind == "ragged":
        wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(None, use_cuda_graph=True)
    else:
        wrapper = flashinfer.BatchMLAPagedAttentionWrapper(None, use_cuda_graph=True, kv_indices=indices)
    assert wrapper.is_cuda_graph_enabled
    before = None
    for seqlens, cu_q in (([20, 7], [0, 3, 5]), ([4, 60], [0, 2, 5])):
        q, q_values = draw(rng, library, 2 if kind == "decode" else 5, 4, 576 if kind == "mla" else 32)
        heads, dim = (1, 576) if kind == "mla" else (2, 32)
        pages, cache, keys = csr_pages(rng, library, seqlens, 16, heads, dim, "NHD")
        queries = [slice(i, i + 1) for i in range(2)] if kind == "decode" else [slice(*cu_q[i : i + 2]) for i in range(2)]
        if kind == "decode":
            wrapper.plan(*pages, 4, 2, 32, 16)
            out = wrapper.run(q, cache)
        elif kind == "paged":
            wrapper.plan(int32(library, cu_q), *pages, 4, 2, 32, 16, causal=True)
            out = wrapper.run(q, cache)
        elif kind == "ragged":
            wrapper.plan(int32(library, cu_q), int32(library, np.cumsum([0] + seqlens)), 4, 2, 32, causal=True)
            out = wrapper.run(q, *(library.tensor(np.concatenate([key[i] for key in keys])) for i in range(2)))
        else:
            wrapper.plan(int32(library, cu_q), *pages[:2], int32(library, seqlens), 4, 512, 64, 16, True, 576**-0.5)
            latent = cache[0][:, :, 0]
            out = wrapper.run(q[..., :512], q[..., 512:], latent[..., :512], latent[..., 512:])
        for r, rows in enumerate(queries):
            values = keys[r][0][..., :512] if kind == "mla" else keys[r][1]
            check(library.array(out)[rows], reference.attend(q_values[rows], keys[r][0], values, causal=True)[0])
        now = arrays_of(wrapper)
        assert before is None or all(now[name] is before[name] for name in now)
        before = now
    if kind != "ragged":
        assert before["kv_indices"] is indices
    if kind == "decode":
        with pytest.raises(attend.Error, match="with use_cuda_graph: expected .*the shape of its buffer or of the first plan"):
            wrapper.plan(*csr_pages(rng, library, [1, 2, 3], 16, 2, 32, "NHD")[0], 4, 2, 32, 16)
    if kind == "ragged":
        with pytest.raises(attend.Error, match="a request of 4 queries with use_cuda_graph: the first plan had at most 3"):
            wrapper.plan(int32(library, [0, 4, 5]), int32(library, [0, 10, 20]), 4, 2, 32)


@pytest.mark.parametrize("scales", [(0.5, 0.5), (0.5, 0.25), ("groups", 0.25)])
def test_fp8_latent_rows_are_multiplied_by_their_scales(rng, library, scales):
    pages, (latent, _), _ = csr_pages(rng, library, [20, 7], 16, 1, 576, "NHD")
    rows = library.tensor(library.array(latent)[:, :, 0], "float8_e4m3fn")
    parts = library.array(rows).astype(np.float32)
    groups = rng.random((*parts.shape[:-1], 4), dtype=np.float32)
    of_ckv = dict(ckv_scale_arr=library.tensor(groups)) if scales[0] == "groups" else dict(ckv_scale=scales[0])
    factors = (groups.repeat(128, -1) if scales[0] == "groups" else scales[0], scales[1])
    widened = [np.ascontiguousarray(part * factor) for part, factor in zip((parts[..., :512], parts[..., 512:]), factors)]
    q_nope, _ = draw(rng, library, 2, 4, 512)
    q_pe, _ = draw(rng, library, 2, 4, 64)
    wrapper = flashinfer.BatchMLAPagedAttentionWrapper(None)
    wrapper.plan(int32(library, [0, 1, 2]), *pages[:2], int32(library, [20, 7]), 4, 512, 64, 16, False, 0.05)
    want, want_lse = wrapper.run(q_nope, q_pe, *(library.tensor(part) for part in widened), return_lse=True)
    out, lse = wrapper.run(
        q_nope, q_pe, rows[..., :512], rows[..., 512:], **of_ckv, kpe_scale=scales[1], return_lse=True,
        return_lse_base_on_e=True,
    )  # fmt: skip
    check(library.array(out), library.array(want))
    check(library.array(lse), library.array(want_lse) / LOG2_E)


def test_latent_decode_with_a_page_table_needs_no_plan(rng, library):
    pages, (latent, _), keys = csr_pages(rng, library, [20, 7], 16, 1, 576, "NHD")
    q_nope, nope_values = draw(rng, library, 2, 4, 512)
    q_pe, pe_values = draw(rng, library, 2, 4, 64)
    indices = library.array(pages[1])
    table = int32(library, [[indices[0], indices[1]], [indices[2], 0]])
    out = flashinfer.BatchMLAPagedAttentionWrapper(None, backend="cutlass").run(
        q_nope, q_pe, latent[:, :, 0, :512], latent[:, :, 0, 512:], kv_len=int32(library, [20, 7]), page_table=table
    )
    q_values = np.concatenate([nope_values, pe_values], -1)
    for r in range(2):
        want, _ = reference.attend(q_values[r : r + 1], keys[r][0], keys[r][0][..., :512], scale=192**-0.5)
        check(library.array(out)[r], want[0])


@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_appended_keys_are_attended_to(rng, library, layout):
    seqlens, new = [20, 40, 3], [3, 1, 2]
    pages, cache, keys = csr_pages(rng, library, seqlens, 16, 2, 32, layout)
    append_indptr = int32(library, np.cumsum([0] + new))
    lens = flashinfer.get_seq_lens(pages[0], pages[2], 16)
    np.testing.assert_array_equal(library.array(lens), seqlens)
    requests, positions = flashinfer.get_batch_indices_positions(append_indptr, lens, 6)
    np.testing.assert_array_equal(library.array(requests), [0, 0, 0, 1, 2, 2])
    np.testing.assert_array_equal(library.array(positions), [17, 18, 19, 39, 1, 2])
    (k_new, k_values), (v_new, v_values) = draw(rng, library, 6, 2, 32), draw(rng, library, 6, 2, 32)
    flashinfer.append_paged_kv_cache(k_new, v_new, requests, positions, cache, pages[1], *pages[:1], pages[2], layout)
    q, q_values = draw(rng, library, 3, 4, 32)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None, layout)
    wrapper.plan(*pages, 4, 2, 32, 16)
    out, begin = library.array(wrapper.run(q, cache)), 0
    for r, count in enumerate(new):
        rows = [np.concatenate([old[:-count], x[begin : begin + count]]) for old, x in zip(keys[r], (k_values, v_values))]
        check(out[r], reference.attend(q_values[r : r + 1], *rows)[0][0])
        begin += count
    latent = library.tensor(np.zeros((8, 16, 1, 576), np.float32))[:, :, 0]
    row, row_values = draw(rng, library, 6, 1, 576)
    flashinfer.append_paged_mla_kv_cache(
        row[:, 0, :512], row[:, 0, 512:], requests, positions, latent[..., :512], latent[..., 512:], pages[1], pages[0], pages[2]
    )
    indices = library.array(pages[1])
    np.testing.assert_array_equal(library.array(latent)[indices[1], 1:4], row_values[:3, 0])
    assert np.abs(library.array(latent)).sum() == pytest.approx(np.abs(row_values).sum(), rel=1e-5)


def test_cascade_levels_match_attention_over_all_keys(rng, library):
    """Two groups of two requests share 32 and 16 keys; each request has its own keys after them."""
    own, shared, group = [5, 17, 1, 33], [32, 16], [0, 0, 1, 1]
    pages, cache, keys = csr_pages(rng, library, shared + own, 16, 2, 32, "NHD")
    indptr, indices, last = (library.array(x) for x in pages)
    levels = [slice(0, 2), slice(2, 6)]
    parts = [(indptr[s.start : s.stop + 1] - indptr[s.start], indices[indptr[s.start] : indptr[s.stop]], last[s]) for s in levels]
    cu_q = [[0, 3, 7], [0, 2, 3, 5, 7]]  # queries of a group are the queries of its requests
    q, q_values = draw(rng, library, 7, 4, 32)
    wrapper = flashinfer.MultiLevelCascadeAttentionWrapper(2)
    arrays = [[int32(library, part[i]) for part in parts] for i in range(3)]
    wrapper.plan([int32(library, x) for x in cu_q], *arrays, 4, 2, 32, 16, causal=True)
    out = library.array(wrapper.run(q, cache))
    for r in range(4):
        rows = slice(cu_q[1][r], cu_q[1][r + 1])
        together = [np.concatenate([keys[group[r]][i], keys[2 + r][i]]) for i in range(2)]
        check(out[rows], reference.attend(q_values[rows], *together, causal=True)[0])


def test_unsupported_options_are_rejected_by_name():
    indptr = np.array([0, 1], np.int32)
    decode = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None)
    with pytest.raises(attend.Error, match="pos_encoding_mode 'ROPE_LLAMA': attend.flashinfer's decode accepts 'NONE'"):
        decode.plan(indptr, indptr[:1], indptr[1:], 2, 1, 32, 16, pos_encoding_mode="ROPE_LLAMA")
    q, cache = np.ones((1, 2, 32), np.float32), np.ones((1, 2, 16, 1, 32), np.float32)
    with pytest.raises(attend.Error, match=r"run: call plan\(\) first"):
        decode.run(q, cache)
    with pytest.raises(attend.Error, match="kv_layout 'NDH': expected 'NHD' or 'HND'"):
        flashinfer.BatchDecodeWithPagedKVCacheWrapper(None, "NDH")
    with pytest.raises(attend.Error, match="jit_args list: attend.flashinfer's Batch.* accepts None"):
        flashinfer.BatchPrefillWithPagedKVCacheWrapper(None, jit_args=["a variant"])
    decode.plan(indptr, indptr[:1], indptr[1:], 2, 1, 32, 16, disable_split_kv=True)
    with pytest.raises(attend.Error, match=r"q_len_per_req 2: expected plan\(\)'s 1"):
        decode.run(q, cache, q_len_per_req=2)
    with pytest.raises(attend.Error, match="kv_cache_sf ndarray: attend.flashinfer's decode accepts None"):
        decode.run(q, cache, kv_cache_sf=q)
    with pytest.raises(attend.Error, match="token_pos_in_items_len 3: attend.flashinfer's prefill accepts 0"):
        flashinfer.BatchPrefillWithRaggedKVCacheWrapper(None).plan(indptr, indptr, 2, 1, 32, token_pos_in_items_len=3)
    with pytest.raises(attend.Error, match="ckv_scale and ckv_scale_arr: expected one of them"):
        flashinfer.BatchMLAPagedAttentionWrapper(None).run(q, q, q, q, ckv_scale=0.5, ckv_scale_arr=q)
    with pytest.raises(attend.Error, match="o_scale 2.0: attend.flashinfer's mla accepts 1"):
        flashinfer.BatchMLAPagedAttentionWrapper(None).run(q, q, q, q, o_scale=2.0)
    with pytest.raises(TypeError, match="decode got an unexpected keyword argument 'qscale'"):
        decode.run(q, cache, qscale=2.0)


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("page_size", [5, 24, 512])
@pytest.mark.parametrize("as_one", [False, True])
def test_pages_may_have_any_number_of_tokens(rng, library, layout, page_size, as_one):
    seqlens, cu_q = [20, 0, 33, 600], np.array([0, 2, 2, 5, 6], np.int32)
    pages, cache, keys = csr_pages(rng, library, seqlens, page_size, 2, 32, layout)
    if as_one:
        cache = library.tensor(np.stack([library.array(x) for x in cache], 1))
    q, q_values = draw(rng, library, 6, 4, 32)
    prefill = flashinfer.BatchPrefillWithPagedKVCacheWrapper(None, layout)
    prefill.plan(int32(library, cu_q), *pages, 4, 2, 32, page_size, causal=True)
    out = library.array(prefill.run(q, cache))
    np.testing.assert_array_equal(library.array(prefill.run(q, cache)), out)
    decode = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None, layout)
    decode.plan(*pages, 4, 2, 32, page_size)
    of_decode = library.array(decode.run(library.tensor(library.array(q)[:4]), cache))
    for r in range(4):
        rows = slice(cu_q[r], cu_q[r + 1])
        check(out[rows], reference.attend(q_values[rows], *keys[r], causal=True)[0])
        check(of_decode[r], reference.attend(q_values[r : r + 1], *keys[r])[0][0])


def test_mla_reads_pages_of_any_number_of_tokens(rng, library):
    pages, (latent, _), keys = csr_pages(rng, library, [20, 7], 5, 1, 576, "NHD")
    q_nope, nope_values = draw(rng, library, 2, 4, 512)
    q_pe, pe_values = draw(rng, library, 2, 4, 64)
    wrapper = flashinfer.BatchMLAPagedAttentionWrapper(None)
    wrapper.plan(int32(library, [0, 1, 2]), *pages[:2], int32(library, [20, 7]), 4, 512, 64, 5, True, 0.05)
    out = library.array(wrapper.run(q_nope, q_pe, latent[:, :, 0, :512], latent[:, :, 0, 512:]))
    for r in range(2):
        q_values = np.concatenate([nope_values[r : r + 1], pe_values[r : r + 1]], -1)
        check(out[r : r + 1], reference.attend(q_values, keys[r][0], keys[r][0][..., :512], scale=0.05)[0])


def test_page_strides_that_are_not_whole_tokens_are_rejected():
    cache = np.lib.stride_tricks.as_strided(np.zeros(3 * 321 + 1, np.float32), (3, 5, 2, 32), (321 * 4, 256, 128, 4))
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None)
    wrapper.plan(*(np.array(x, np.int32) for x in ([0, 3], [0, 1, 2], [5])), 2, 2, 32, 5)
    with pytest.raises(attend.Error, match="page_size 5 with strides .*multiples of a token"):
        wrapper.run(np.zeros((1, 2, 32), np.float32), (cache, cache))


def test_decode_rejects_a_number_of_queries_that_was_not_planned(rng, library):
    pages, cache, _ = csr_pages(rng, library, [20, 7], 16, 2, 32, "NHD")
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None, use_tensor_cores=True)
    wrapper.plan(*pages, 4, 2, 32, 16, q_len_per_req=2)
    with pytest.raises(ValueError, match="q of 6 tokens: expected 2 requests times q_len_per_req 2"):
        wrapper.run(draw(rng, library, 6, 4, 32)[0], cache)


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("causal", [False, True])
def test_shared_prefix_before_the_pages_of_requests(rng, library, layout, causal):
    seqlens, cu_q = [20, 7, 33], np.array([0, 3, 4, 9], np.int32)
    pages, cache, keys = csr_pages(rng, library, seqlens, 16, 2, 32, layout)
    shared = rng.standard_normal((2, 50, 2, 32), dtype=np.float32)
    k_shared, v_shared = (library.tensor(np.ascontiguousarray(x if layout == "NHD" else x.swapaxes(0, 1))) for x in shared)
    q, q_values = draw(rng, library, 9, 4, 32)
    all_keys = [tuple(np.concatenate([shared[i], keys[r][i]]) for i in range(2)) for r in range(3)]
    prefill = flashinfer.BatchPrefillWithSharedPrefixPagedKVCacheWrapper(None, layout)
    prefill.begin_forward(int32(library, cu_q), *pages, 4, 2, 32, 16)
    out = library.array(prefill.forward(q, k_shared, v_shared, cache, causal=causal, sm_scale=0.3))
    for r in range(3):
        rows = slice(cu_q[r], cu_q[r + 1])
        check(out[rows], reference.attend(q_values[rows], *all_keys[r], causal=causal, scale=0.3)[0])
    decode = flashinfer.BatchDecodeWithSharedPrefixPagedKVCacheWrapper(None, layout)
    decode.begin_forward(*pages, 4, 2, 32, 16)
    out = library.array(decode.forward(library.tensor(library.array(q)[:3]), k_shared, v_shared, cache))
    for r in range(3):
        check(out[r], reference.attend(q_values[r : r + 1], *all_keys[r])[0][0])


def test_pages_of_another_size_than_planned_are_rejected(rng, library):
    pages, cache, _ = csr_pages(rng, library, [20, 7], 16, 2, 32, "NHD")
    q, _ = draw(rng, library, 2, 4, 32)
    for kind in (flashinfer.BatchDecodeWithPagedKVCacheWrapper, flashinfer.BatchPrefillWithPagedKVCacheWrapper):
        wrapper = kind(None)
        wrapper.plan(*([int32(library, [0, 1, 2])] if "Prefill" in kind.__name__ else []), *pages, 4, 2, 32, 8)
        with pytest.raises(attend.InvalidArgument, match="pages of 16 tokens: expected 8, the page size of plan"):
            wrapper.run(q, cache)


@pytest.mark.parametrize("option", [dict(fixed_split_size=2048), dict(disable_split_kv=True)], ids=str)
@pytest.mark.parametrize("seqlen_q", [1, 5])
def test_bits_do_not_depend_on_other_requests_with_fixed_splits(rng, library, option, seqlen_q):
    seqlens = [5000, 20, 700, 3000, 9]
    (indptr, indices, last), cache, _ = csr_pages(rng, library, seqlens, 16, 2, 64, "NHD")
    q, _ = draw(rng, library, 5 * seqlen_q, 4, 64)
    cu = int32(library, np.arange(6) * seqlen_q)
    outs = []
    for n in (5, 2):
        decode = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None)
        decode.plan(indptr[: n + 1], indices, last[:n], 4, 2, 64, 16, q_len_per_req=seqlen_q, **option)
        prefill = flashinfer.BatchPrefillWithPagedKVCacheWrapper(None)
        prefill.plan(cu[: n + 1], indptr[: n + 1], indices, last[:n], 4, 2, 64, 16, causal=True, **option)
        outs.append([library.array(wrapper.run(q[: n * seqlen_q], cache)) for wrapper in (decode, prefill)])
    for all_requests, first_two in zip(*outs):
        np.testing.assert_array_equal(all_requests[: 2 * seqlen_q], first_two)
