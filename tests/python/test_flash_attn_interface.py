"""attend.flash_attn_interface, compared with the float64 reference."""

import inspect

import attend
import numpy as np
import pytest
import reference
from attend import flash_attn_interface as flash
from conftest import check
from paged_cache import PagedCache, draw, int32

DTYPES = ["float32", "float16", "bfloat16"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
def test_dense_requests_agree_with_the_reference(rng, any_library, dtype, causal):
    q, q_values = draw(rng, any_library, 2, 5, 6, 64, dtype=dtype)
    k, k_values = draw(rng, any_library, 2, 9, 2, 64, dtype=dtype)
    v, v_values = draw(rng, any_library, 2, 9, 2, 64, dtype=dtype)
    out, lse = flash.flash_attn_func(q, k, v, causal=causal, return_attn_probs=True)
    assert type(out) is type(q) and out.dtype == q.dtype and tuple(lse.shape) == (2, 6, 5)
    for r in range(2):
        want, want_lse = reference.attend(q_values[r], k_values[r], v_values[r], causal=causal)
        check(any_library.array(out)[r], want, dtype)
        check(any_library.array(lse)[r], want_lse, dtype)


@pytest.mark.parametrize(
    "heads, head_dim, head_dim_v", [((1, 1), 8, 8), ((3, 1), 80, 80), ((4, 4), 96, 64), ((8, 2), 128, 128),
                                    ((7, 1), 192, 128), ((2, 1), 256, 256)]
)  # fmt: skip
def test_ragged_requests_of_any_heads_agree_with_the_reference(rng, library, heads, head_dim, head_dim_v):
    seqlens_q, seqlens_k = [3, 0, 1, 17], [5, 4, 70, 17]
    cu_q, cu_k = (np.cumsum([0] + x).astype(np.int32) for x in (seqlens_q, seqlens_k))
    q, q_values = draw(rng, library, sum(seqlens_q), heads[0], head_dim)
    k, k_values = draw(rng, library, sum(seqlens_k), heads[1], head_dim)
    v, v_values = draw(rng, library, sum(seqlens_k), heads[1], head_dim_v)
    out, lse = flash.flash_attn_varlen_func(
        q, k, v, library.tensor(cu_q), library.tensor(cu_k), 17, 70, causal=True, return_softmax_lse=True
    )
    assert tuple(lse.shape) == (heads[0], sum(seqlens_q))
    for r in range(4):
        rows, keys = slice(cu_q[r], cu_q[r + 1]), slice(cu_k[r], cu_k[r + 1])
        want, want_lse = reference.attend(q_values[rows], k_values[keys], v_values[keys], causal=True)
        check(library.array(out)[rows], want)
        check(library.array(lse)[:, rows], want_lse)


def test_seqused_k_skips_the_last_keys_of_each_request(rng, library):
    q, q_values = draw(rng, library, 4, 2, 32)
    k, k_values = draw(rng, library, 14, 2, 32)
    v, v_values = draw(rng, library, 14, 2, 32)
    out = flash.flash_attn_varlen_func(
        q, k, v, int32(library, [0, 2, 4]), int32(library, [0, 8, 14]), 2, 8, seqused_k=int32(library, [5, 3]), causal=True
    )
    for r, (first, seqlen) in enumerate([(0, 5), (8, 3)]):
        keys = slice(first, first + seqlen)
        want, _ = reference.attend(q_values[2 * r : 2 * r + 2], k_values[keys], v_values[keys], causal=True)
        check(library.array(out)[2 * r : 2 * r + 2], want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("page_size", [1, 16, 64, 128])
@pytest.mark.parametrize("seqlen_q", [1, 3])
def test_paged_decode_agrees_with_the_reference(rng, library, dtype, page_size, seqlen_q):
    seqlens = [3, page_size, page_size + 1, 200]
    if seqlen_q > page_size:
        seqlens[1] = seqlen_q
    cache = PagedCache(rng, library, seqlens, page_size, 2, 64, 64, dtype)
    q, q_values = draw(rng, library, 4, seqlen_q, 8, 64, dtype=dtype)
    out, lse = flash.flash_attn_with_kvcache(
        q, cache.k, cache.v, cache_seqlens=int32(library, seqlens), page_table=cache.table, causal=True,
        return_softmax_lse=True,
    )  # fmt: skip
    for r, n in enumerate(seqlens):
        want, want_lse = reference.attend(q_values[r], *cache.keys(r, n), causal=True)
        check(library.array(out)[r], want, dtype)
        check(library.array(lse)[r], want_lse, dtype)


@pytest.mark.parametrize(
    "arguments",
    [
        dict(window_size=(7, -1)),
        dict(window_size=(0, 0)),
        dict(window_size=(20, 0), causal=False),
        dict(attention_chunk=16),
        dict(softcap=1.5),
        dict(softmax_scale=0.3),
        dict(window_size=(11, 0), softcap=2.0, num_splits=1),
        dict(num_splits=2),
        dict(num_splits=128, softcap=2.0),
    ],
    ids=str,
)
def test_masks_caps_and_scales_agree_with_the_reference(rng, library, arguments):
    seqlens, cu_q = [40, 5, 90], [0, 4, 5, 25]
    cache = PagedCache(rng, library, seqlens, 16, 2, 64, 64)
    q, q_values = draw(rng, library, 25, 4, 64)
    arguments = {"causal": True, **arguments}
    out = flash.flash_attn_with_kvcache(
        q, cache.k, cache.v, cache_seqlens=int32(library, seqlens), page_table=cache.table,
        cu_seqlens_q=int32(library, cu_q), max_seqlen_q=20, **arguments,
    )  # fmt: skip
    for r, n in enumerate(seqlens):
        want, _ = reference.attend(
            q_values[cu_q[r] : cu_q[r + 1]], *cache.keys(r, n), scale=arguments.get("softmax_scale"),
            causal=arguments["causal"], window=arguments.get("window_size", (-1, -1)),
            chunk=arguments.get("attention_chunk", 0), softcap=arguments.get("softcap", 0.0),
        )  # fmt: skip
        check(library.array(out)[cu_q[r] : cu_q[r + 1]], want)


@pytest.mark.parametrize("name", ["sinks", "learnable_sink"])
def test_a_sink_enters_the_denominator_but_not_the_lse(rng, library, name):
    cache = PagedCache(rng, library, [30, 2], 16, 2, 32, 32)
    q, q_values = draw(rng, library, 2, 2, 4, 32)
    sinks = np.array([0.5, -1.0, 3.0, 0.0], np.float32)
    out, lse = flash.flash_attn_with_kvcache(
        q, cache.k, cache.v, cache_seqlens=int32(library, [30, 2]), page_table=cache.table, causal=True,
        return_softmax_lse=True, **{name: library.tensor(sinks)},
    )  # fmt: skip
    for r, n in enumerate([30, 2]):
        want, want_lse = reference.attend(q_values[r], *cache.keys(r, n), causal=True, sinks=sinks)
        check(library.array(out)[r], want)
        check(library.array(lse)[r], want_lse)


@pytest.mark.parametrize("layout", ["pages", "rows", "chosen rows"])
def test_appended_keys_are_stored_and_attended_to(rng, library, layout):
    seqlens, seqlen_new = [5, 0, 30], 3
    cache = PagedCache(rng, library, seqlens, 16, 2, 32, 40, room=seqlen_new)
    k, k_values = draw(rng, library, 3, seqlen_new, 2, 32)
    v, v_values = draw(rng, library, 3, seqlen_new, 2, 40)
    q, q_values = draw(rng, library, 3, seqlen_new, 4, 32)
    where = dict(page_table=cache.table)
    k_cache, v_cache, row_of = cache.k, cache.v, [0, 1, 2]
    if layout != "pages":
        row_of = [0, 1, 2] if layout == "rows" else [3, 0, 2]
        k_cache, _ = draw(rng, library, max(row_of) + 1, 40, 2, 32)
        v_cache, _ = draw(rng, library, max(row_of) + 1, 40, 2, 40)
        where = dict(cache_batch_idx=int32(library, row_of)) if layout == "chosen rows" else {}
    before = [library.array(x).astype(np.float64) for x in (k_cache, v_cache)]
    lengths = int32(library, seqlens)
    out = flash.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=lengths, causal=True, **where)
    after = [library.array(x).astype(np.float64) for x in (k_cache, v_cache)]
    for r, n in enumerate(seqlens):
        old, new = (
            [reference.gather(x, cache.pages[r], n + seqlen_new) if layout == "pages" else x[row_of[r]] for x in caches]
            for caches in (before, after)
        )
        for cached, previous, appended in zip(new, old, (k_values[r], v_values[r])):
            np.testing.assert_array_equal(cached[:n], previous[:n])
            np.testing.assert_array_equal(cached[n : n + seqlen_new], appended)
            np.testing.assert_array_equal(cached[n + seqlen_new :], previous[n + seqlen_new :])
        want, _ = reference.attend(q_values[r], new[0][: n + seqlen_new], new[1][: n + seqlen_new], causal=True)
        check(library.array(out)[r], want)


def test_ragged_keys_are_appended_to_their_own_requests(rng, library):
    seqlens, cu_new = [4, 17, 1], [0, 2, 2, 7]
    cache = PagedCache(rng, library, seqlens, 4, 1, 16, 16, room=5)
    k, k_values = draw(rng, library, 7, 1, 16)
    v, v_values = draw(rng, library, 7, 1, 16)
    q, q_values = draw(rng, library, 7, 2, 16)
    cu = int32(library, cu_new)
    out = flash.flash_attn_with_kvcache(
        q, cache.k, cache.v, k, v, cache_seqlens=int32(library, seqlens), page_table=cache.table, cu_seqlens_q=cu,
        cu_seqlens_k_new=cu, max_seqlen_q=5, causal=True,
    )  # fmt: skip
    for r, n in enumerate(seqlens):
        rows = slice(cu_new[r], cu_new[r + 1])
        keys = cache.keys(r, n + cu_new[r + 1] - cu_new[r])
        np.testing.assert_array_equal(keys[0][n:], k_values[rows])
        np.testing.assert_array_equal(keys[1][n:], v_values[rows])
        want, _ = reference.attend(q_values[rows], *keys, causal=True)
        check(library.array(out)[rows], want)


def test_strided_rows_of_a_larger_cache(rng, library):
    k, k_values = draw(rng, library, 3, 40, 2, 32)
    v, v_values = draw(rng, library, 3, 40, 2, 32)
    q, q_values = draw(rng, library, 3, 1, 4, 32)
    out = flash.flash_attn_with_kvcache(q, k[:, :16], v[:, :16], cache_seqlens=11)
    for r in range(3):
        want, _ = reference.attend(q_values[r], k_values[r, :11], v_values[r, :11])
        check(library.array(out)[r], want)


def test_one_plan_is_shared_by_the_calls_of_all_layers(rng, library):
    seqlens = [33, 1, 200]
    q, q_values = draw(rng, library, 3, 1, 8, 64)
    lengths = int32(library, seqlens)
    metadata = flash.get_scheduler_metadata(3, 1, 200, 8, 2, 64, lengths, causal=True)
    for _ in range(2):
        cache = PagedCache(rng, library, seqlens, 16, 2, 64, 64)
        arguments = dict(cache_seqlens=lengths, page_table=cache.table, causal=True)
        planned = flash.flash_attn_with_kvcache(q, cache.k, cache.v, scheduler_metadata=metadata, **arguments)
        np.testing.assert_array_equal(
            library.array(planned), library.array(flash.flash_attn_with_kvcache(q, cache.k, cache.v, **arguments))
        )
        for r, n in enumerate(seqlens):
            check(library.array(planned)[r], reference.attend(q_values[r], *cache.keys(r, n), causal=True)[0])


def test_plan_accepts_a_maximum_number_of_splits(rng, library):
    seqlens = [900, 3]
    q, q_values = draw(rng, library, 2, 1, 8, 64)
    cache, lengths = PagedCache(rng, library, seqlens, 16, 2, 64, 64), int32(library, seqlens)
    arguments = dict(cache_seqlens=lengths, page_table=cache.table, causal=True)
    for num_splits in (0, 1, 2, 3, 64):
        metadata = flash.get_scheduler_metadata(2, 1, 900, 8, 2, 64, lengths, causal=True, num_splits=num_splits)
        out = flash.flash_attn_with_kvcache(
            q, cache.k, cache.v, scheduler_metadata=metadata, num_splits=num_splits, **arguments
        )
        np.testing.assert_array_equal(
            library.array(out),
            library.array(flash.flash_attn_with_kvcache(q, cache.k, cache.v, num_splits=num_splits, **arguments)),
        )
        for r, n in enumerate(seqlens):
            check(library.array(out)[r], reference.attend(q_values[r], *cache.keys(r, n), causal=True)[0])


def test_plan_may_include_keys_that_are_appended_later(rng, library):
    lengths = int32(library, [9, 20])
    cache = PagedCache(rng, library, [9, 20], 8, 1, 32, 32, room=1)
    q, q_values = draw(rng, library, 2, 1, 2, 32)
    k, _ = draw(rng, library, 2, 1, 1, 32)
    v, _ = draw(rng, library, 2, 1, 1, 32)
    metadata = flash.get_scheduler_metadata(2, 1, 21, 2, 1, 32, lengths, max_seqlen_k_new=1, causal=True)
    out = flash.flash_attn_with_kvcache(
        q, cache.k, cache.v, k, v, cache_seqlens=lengths, page_table=cache.table, causal=True,
        scheduler_metadata=metadata,
    )  # fmt: skip
    for r, n in enumerate([10, 21]):
        check(library.array(out)[r], reference.attend(q_values[r], *cache.keys(r, n), causal=True)[0])


def test_request_without_keys_has_output_zero_and_lse_minus_infinity(rng, library):
    cache = PagedCache(rng, library, [6, 6], 8, 1, 32, 32)
    q, _ = draw(rng, library, 2, 1, 2, 32)
    out, lse = flash.flash_attn_with_kvcache(
        q, cache.k, cache.v, cache_seqlens=int32(library, [6, 0]), page_table=cache.table, causal=True,
        return_softmax_lse=True,
    )  # fmt: skip
    assert (library.array(out)[1] == 0).all() and np.isneginf(library.array(lse)[1]).all()
    assert np.isfinite(library.array(lse)[0]).all()


def test_no_queries_return_an_empty_result(rng, library):
    q, _ = draw(rng, library, 0, 1, 2, 32)
    k, _ = draw(rng, library, 0, 8, 1, 32)
    assert tuple(flash.flash_attn_func(q, k, k).shape) == (0, 1, 2, 32)


def test_out_is_written_and_returned(rng, library):
    q, q_values = draw(rng, library, 2, 1, 2, 32)
    k, k_values = draw(rng, library, 2, 8, 1, 32)
    out, _ = draw(rng, library, 2, 1, 2, 32)
    assert flash.flash_attn_with_kvcache(q, k, k, out=out) is out
    for r in range(2):
        check(library.array(out)[r], reference.attend(q_values[r], k_values[r], k_values[r])[0])


def test_descales_multiply_stored_values(rng, library):
    cache = PagedCache(rng, library, [20], 16, 1, 32, 32)
    q, q_values = draw(rng, library, 1, 1, 2, 32)
    out = flash.flash_attn_with_kvcache(
        q, cache.k, cache.v, cache_seqlens=int32(library, [20]), page_table=cache.table, causal=True, q_descale=2.0,
        k_descale=np.full((1, 1), 0.5, np.float32), v_descale=4,
    )  # fmt: skip
    k, v = cache.keys(0, 20)
    check(library.array(out)[0], reference.attend(q_values[0] * 2, k / 2, v * 4, causal=True)[0])


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_fp8_caches_are_read(rng, library, dtype):
    cache = PagedCache(rng, library, [20], 16, 1, 32, 32, dtype)
    q, q_values = draw(rng, library, 1, 1, 2, 32)
    out = flash.flash_attn_with_kvcache(
        q, cache.k, cache.v, cache_seqlens=int32(library, [20]), page_table=cache.table, causal=True
    )
    check(library.array(out)[0], reference.attend(q_values[0], *cache.keys(0, 20), causal=True)[0])


def test_appending_to_jax_arrays_is_rejected():
    jnp = pytest.importorskip("jax.numpy")
    x = jnp.ones((1, 4, 1, 32))
    with pytest.raises(attend.Error, match=r"k_cache: .*immutable"):
        flash.flash_attn_with_kvcache(x, x, x, x, x, cache_seqlens=0)


def test_functions_have_the_interface_s_parameters():
    for name, parameters in {
        "flash_attn_func": "q k v softmax_scale causal qv q_descale k_descale v_descale window_size attention_chunk softcap "
        "num_splits pack_gqa deterministic sm_margin return_attn_probs",
        "flash_attn_varlen_func": "q k v cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k seqused_q seqused_k "
        "softmax_scale causal qv q_descale k_descale v_descale window_size attention_chunk softcap num_splits pack_gqa "
        "deterministic sm_margin return_attn_probs",
        "flash_attn_with_kvcache": "q k_cache v_cache k v qv rotary_cos rotary_sin cache_seqlens cache_batch_idx "
        "cache_leftpad page_table cu_seqlens_q cu_seqlens_k_new max_seqlen_q rotary_seqlens q_descale k_descale v_descale "
        "softmax_scale causal window_size attention_chunk softcap rotary_interleaved scheduler_metadata num_splits "
        "pack_gqa sm_margin return_softmax_lse",
    }.items():
        positional = [p.name for p in inspect.signature(getattr(flash, name)).parameters.values() if p.kind != p.KEYWORD_ONLY]
        assert positional == parameters.split()
