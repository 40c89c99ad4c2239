"""attend.flash_attn_interface against the float64 reference."""

import inspect

import attend
import ml_dtypes
import numpy as np
import pytest
import reference
from attend import flash_attn_interface as flash
from conftest import check

DTYPES = ["float32", "float16", "bfloat16"]


def draw(rng, library, *shape, dtype="float32"):
    """A tensor of the library, and what it holds after rounding as float64."""
    tensor = library.tensor(rng.standard_normal(shape, dtype=np.float32), dtype)
    return tensor, library.array(tensor).astype(np.float64)


def int32(library, values):
    return library.tensor(np.array(values, np.int32))


class PagedCache:
    """Keys and values of ragged requests in pages of random order; unused slots hold NaN, unused table entries are
    ids that no cache has."""

    def __init__(self, rng, library, seqlens, page_size, num_kv_heads, head_dim, head_dim_v, dtype="float32", room=0):
        counts = [-(-(n + room) // page_size) for n in seqlens]
        num_pages, self.width = sum(counts) + 3, max(counts) + 1
        ids = rng.permutation(num_pages)
        self.pages, at = [], 0
        for count in counts:
            self.pages.append(ids[at : at + count])
            at += count
        table = np.full((len(seqlens), self.width), 2**30, np.int32)
        k = np.full((num_pages, page_size, num_kv_heads, head_dim), np.nan, np.float32)
        v = np.full((num_pages, page_size, num_kv_heads, head_dim_v), np.nan, np.float32)
        for r, (pages, n) in enumerate(zip(self.pages, seqlens)):
            table[r, : len(pages)] = pages
            for p in range(n):
                k[pages[p // page_size], p % page_size] = rng.standard_normal((num_kv_heads, head_dim))
                v[pages[p // page_size], p % page_size] = rng.standard_normal((num_kv_heads, head_dim_v))
        self.k, self.v = library.tensor(k, dtype), library.tensor(v, dtype)
        self.table, self.library = library.tensor(table), library

    def keys(self, r, seqlen):
        k, v = (self.library.array(x).astype(np.float64) for x in (self.k, self.v))
        return reference.gather(k, self.pages[r], seqlen), reference.gather(v, self.pages[r], seqlen)


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


def test_seqused_k_leaves_out_the_last_keys_of_each_request(rng, library):
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
def test_appended_keys_are_stored_and_seen(rng, library, layout):
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


def test_rows_of_a_larger_cache_may_lie_apart(rng, library):
    k, k_values = draw(rng, library, 3, 40, 2, 32)
    v, v_values = draw(rng, library, 3, 40, 2, 32)
    q, q_values = draw(rng, library, 3, 1, 4, 32)
    out = flash.flash_attn_with_kvcache(q, k[:, :16], v[:, :16], cache_seqlens=11)
    for r in range(3):
        want, _ = reference.attend(q_values[r], k_values[r, :11], v_values[r, :11])
        check(library.array(out)[r], want)


def test_one_plan_serves_the_calls_of_all_layers(rng, library):
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


def test_a_plan_may_count_keys_that_are_appended_later(rng, library):
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


def test_a_request_without_keys_has_output_zero_and_lse_minus_infinity(rng, library):
    cache = PagedCache(rng, library, [6, 6], 8, 1, 32, 32)
    q, _ = draw(rng, library, 2, 1, 2, 32)
    out, lse = flash.flash_attn_with_kvcache(
        q, cache.k, cache.v, cache_seqlens=int32(library, [6, 0]), page_table=cache.table, causal=True,
        return_softmax_lse=True,
    )  # fmt: skip
    assert (library.array(out)[1] == 0).all() and np.isneginf(library.array(lse)[1]).all()
    assert np.isfinite(library.array(lse)[0]).all()


def test_no_queries_give_an_empty_result(rng, library):
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


def test_descales_multiply_what_is_stored(rng, library):
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


def test_jax_arrays_are_not_appended_to():
    jnp = pytest.importorskip("jax.numpy")
    x = jnp.ones((1, 4, 1, 32))
    with pytest.raises(attend.Error, match=r"k_cache: .*immutable"):
        flash.flash_attn_with_kvcache(x, x, x, x, x, cache_seqlens=0)


REFUSED = {
    "qv": (1, "qv: .* None; for absorbed MLA"),
    "rotary_cos": (1, "rotary_cos: .* rotate q and k before"),
    "rotary_sin": (1, "rotary_sin: .* rotate q and k before"),
    "rotary_seqlens": (1, "rotary_seqlens: .* rotate q and k before"),
    "cache_leftpad": (1, "cache_leftpad: .* begin each request's keys at position 0"),
    "pack_gqa": (False, "pack_gqa False: expected None or True"),
    "sm_margin": (8, "sm_margin 8: expected 0"),
    "num_splits": (4, r"num_splits 4: expected 0 \(balanced over the device\) or 1"),
    "softcap": (-1.0, "softcap -1: expected above 0 and finite, or 0 for none"),
    "softmax_scale": ("much", "softmax_scale 'much': expected a finite number, or None"),
    "k_descale": (np.array([1.0, 2.0], np.float32), "k_descale holds 1 and 2: expected equal elements"),
    "cache_seqlens": (9, "request 0 has 9 keys: there is room for 8"),
    "sinks": (np.zeros(5, np.float32), r"sinks float32\[5\] on cpu: expected \[2\]"),
    "page_table": (np.zeros((3, 1), np.int32), r"page_table .* expected int32 \[2, width\]"),
    "cache_batch_idx": (np.array([0, 2], np.int32), "cache_batch_idx 2 of request 1: the cache has 2 rows"),
    "cu_seqlens_k_new": (np.zeros(3, np.int32), "cu_seqlens_k_new: expected None without k and v"),
    "out": (np.zeros((2, 1, 2, 16), np.float32), "out .* expected 32 in dimension 3"),
    "scheduler_metadata": (1, "scheduler_metadata: expected what attend's get_scheduler_metadata returned"),
    "window_size": ((3, 2), r"window_size \(3, 2\).* right of 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_honoured_is_refused_by_name(name):
    value, message = REFUSED[name]
    q, k = (np.ones(shape, np.float32) for shape in ((2, 1, 2, 32), (2, 8, 1, 32)))
    with pytest.raises(attend.Error, match=message):
        flash.flash_attn_with_kvcache(q, k, k, **{name: value})


def test_dtypes_and_devices_are_refused_under_the_argument_s_name():
    q, k = (np.ones(shape, np.float32) for shape in ((2, 1, 2, 32), (2, 8, 1, 32)))
    with pytest.raises(attend.Error, match="v of float64: expected float32, float16, bfloat16, float8_e4m3fn or float8_e5m2"):
        flash.flash_attn_func(q, k, k.astype(np.float64))
    with pytest.raises(attend.Error, match="k: list: expected a tensor"):
        flash.flash_attn_func(q, [1.0], k)
    with pytest.raises(attend.Error, match="cache_seqlens of int64: expected int32"):
        flash.flash_attn_with_kvcache(q, k, k, cache_seqlens=np.array([4, 4]))
    with pytest.raises(attend.Error, match="k float32.*: expected a head_dim of 32, as q float32"):
        flash.flash_attn_func(q, k[..., :16], k)


def paged_call(num_reqs=2, **arguments):
    """A decode step of requests that have two pages of 16 keys each."""
    cache = np.ones((2 * num_reqs, 16, 2, 32), np.float32)
    return flash.flash_attn_with_kvcache(
        **{
            "q": np.ones((num_reqs, 1, 4, 32), np.float32),
            "k_cache": cache,
            "v_cache": cache.copy(),
            "page_table": np.arange(2 * num_reqs, dtype=np.int32).reshape(num_reqs, 2),
            "cache_seqlens": np.array([5, 6], np.int32),
            **arguments,
        }
    )


def plan(lengths=(5, 6), **arguments):
    shape = dict(batch_size=len(lengths), max_seqlen_q=1, max_seqlen_k=32, num_heads_q=4, num_heads_kv=2, headdim=32)
    return flash.get_scheduler_metadata(**{**shape, "cache_seqlens": np.array(lengths, np.int32), **arguments})


NEW = dict(k=np.ones((2, 1, 2, 32), np.float32), v=np.ones((2, 1, 2, 32), np.float32))
RAGGED = dict(q=np.ones((3, 4, 32), np.float32), cu_seqlens_q=np.array([0, 1, 3], np.int32), max_seqlen_q=2)


@pytest.mark.parametrize(
    "planned, called, message",
    [
        ({}, dict(cache_seqlens=np.array([1000, 900], np.int32)), r"cache_seqlens \[5, 6\], request 0 has 1000: expected get_s"),
        (dict(lengths=[1000] * 2), dict(cache_seqlens=np.array([30, 32], np.int32)), r"\[1000, 1000\], request 0 has 30"),
        (dict(lengths=[5, 7]), {}, r"made for cache_seqlens \[5, 7\], request 1 has 6"),
        (dict(max_seqlen_k_new=1), {}, r"made for keys to append \[1, 1\], request 0 has 0"),
        ({}, NEW, r"made for keys to append \[0, 0\], request 0 has 1"),
        ({}, dict(causal=True), "made for causal=False, .* the call has True"),
        (dict(causal=True, window_size=(4, 0)), dict(causal=True, window_size=(3, 0)), "a window_size of 4 .* has True, 3, 0"),
        (dict(causal=True, attention_chunk=8), dict(causal=True), "attention_chunk 8, the call has True, -1, 0"),
        (dict(max_seqlen_q=2, cu_seqlens_q=np.array([0, 2, 3], np.int32), total_q=3), RAGGED, r"queries \[2, 1\], request 0 has 1"),
        (dict(num_heads_q=2), {}, "2/2 heads.* the call has .*4/2"),
        (dict(num_splits=1), {}, "num_splits is to be the same too"),
        (dict(lengths=[5, 6, 7]), {}, "for 3 requests"),
    ],
    ids=str,
)
def test_a_plan_for_another_batch_is_refused(planned, called, message):
    with pytest.raises(attend.Error, match="scheduler_metadata.*" + message):
        paged_call(scheduler_metadata=plan(**planned), **called)


def test_a_plan_keeps_the_lengths_that_it_was_made_for():
    lengths = np.array([5, 6], np.int32)
    metadata = plan(cache_seqlens=lengths)
    lengths += 1
    with pytest.raises(attend.Error, match=r"made for cache_seqlens \[5, 6\], request 0 has 6"):
        paged_call(cache_seqlens=lengths, scheduler_metadata=metadata)


def test_a_plan_without_a_window_serves_layers_that_have_one(rng):
    q = rng.standard_normal((2, 1, 4, 32), dtype=np.float32)
    cache = rng.standard_normal((4, 16, 2, 32), dtype=np.float32)
    call = dict(q=q, k_cache=cache, v_cache=cache, causal=True, window_size=(3, 0))
    np.testing.assert_array_equal(paged_call(scheduler_metadata=plan(causal=True), **call), paged_call(**call))


@pytest.mark.parametrize("sums", [[0, 5, 3], [0, -7, 3], [0, 2**31 - 1, 3], [0, -(2**31), 3], [1, 2, 3]], ids=str)
@pytest.mark.parametrize("name", ["cu_seqlens_q", "cu_seqlens_k_new"])
def test_a_plan_s_sums_are_checked_on_the_cpu(name, sums):
    with pytest.raises(attend.Error, match=rf"{name}( falls from|\[0\] is 1)"):
        plan(max_seqlen_q=3, total_q=3, max_seqlen_k_new=3, **{name: np.array(sums, np.int32)})


def test_a_plan_s_largest_lengths_are_checked_on_the_cpu():
    sums = np.array([0, 1, 5], np.int32)
    with pytest.raises(attend.Error, match="max_seqlen_q 3: request 1 has 4 queries"):
        plan(max_seqlen_q=3, cu_seqlens_q=sums, total_q=5)
    with pytest.raises(attend.Error, match="max_seqlen_k_new 3: request 1 appends 4 keys"):
        plan(cu_seqlens_k_new=sums, max_seqlen_k_new=3)


def test_max_seqlen_q_below_a_request_s_queries_is_refused_on_the_cpu():
    q, cu = np.ones((5, 2, 32), np.float32), np.array([0, 1, 5], np.int32)
    with pytest.raises(attend.Error, match="max_seqlen_q 2: request 1 has 4 queries: expected the largest number"):
        flash.flash_attn_varlen_func(q, q, q, cu, cu, 2)
    assert flash.flash_attn_varlen_func(q, q, q, cu, cu, 4).shape == q.shape


ONES = lambda *shape, dtype=np.float32: np.ones(shape, dtype)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(k_cache=ONES(4, 16, 2, 16)), "k_cache float32.*: expected a head_dim of 32, as q"),
        (dict(k_cache=ONES(4, 16, 3, 32), v_cache=ONES(4, 16, 3, 32)), "k_cache .*: expected a number of heads that divides the 4 of q"),
        (dict(v_cache=ONES(4, 16, 1, 32)), "v_cache .*: expected the shape of k_cache .* but for the last"),
        (dict(v_cache=ONES(4, 16, 2, 32, dtype=np.float16)), "v_cache .*: expected float32, as k_cache"),
        (dict(v_cache=ONES(4, 16, 2, 64)[..., ::2]), "v_cache .*: stride 2 in the last dimension"),
        (dict(k_cache=ONES(4, 16, 2, 32, dtype=np.int8)), "k_cache of int8: expected float32, .* or float8_e5m2"),
        (dict(k_cache=ONES(32, 2, 32)), "k_cache .*: expected .num_pages, page_size, num_kv_heads, head_dim"),
        (dict(k_cache=ONES(4, 3, 2, 32), v_cache=ONES(4, 3, 2, 32)), "page_size 3: expected a power of two from 1 to 256"),
        (dict(NEW, k=ONES(2, 1, 1, 32)), "k .*: expected 2 heads and a head_dim of 32, as k_cache"),
        (dict(NEW, v=ONES(2, 1, 2, 16)), "v .*: expected 2 heads and a head_dim of 32, as v_cache"),
        (dict(NEW, v=ONES(2, 2, 2, 32)), "v .*: expected the shape of k .* but for the last"),
        (dict(NEW, v=ONES(1, 2, 2, 32)), "v .*: expected .2, seqlen_new"),
        (dict(NEW, k=ONES(2, 1, 2, 32, dtype=np.float64)), "k of float64: expected float32, float16 or bfloat16$"),
        (dict(q=ONES(2, 1, 4, 32, dtype=np.float64)), "q of float64: expected float32, float16 or bfloat16$"),
        (dict(q=ONES(2, 1, 4, 32, dtype=">f4")), "q of float32 in another byte order"),
        (dict(q=np.ma.masked_array(ONES(2, 1, 4, 32))), "q: .*MaskedArray: expected an array without a mask"),
        (dict(q=np.array(["a"])), "q of str32: expected float32, float16 or bfloat16"),
        (dict(out=ONES(1, 2, 4, 32)), "out .*: expected 2 in dimension 0"),
        (dict(sinks=ONES(0)), r"sinks .*: expected \[4\]"),
        (dict(page_table=np.zeros((2, 2), np.int64)), "page_table of int64: expected int32"),
        (dict(cache_seqlens=True), "cache_seqlens: bool: expected a tensor"),
        (dict(cache_seqlens=2**40), "cache_seqlens 1099511627776: expected an int"),
        (dict(RAGGED, max_seqlen_q="x"), "max_seqlen_q 'x': expected an int"),
        (dict(attention_chunk=-1, causal=True), "attention_chunk -1: expected at least 1"),
        (dict(softcap=float("inf")), "softcap inf: expected above 0 and finite"),
        (dict(softmax_scale=float("nan")), "softmax_scale nan: expected a finite number"),
        (dict(q_descale=float("nan")), "q_descale nan: expected a finite number above 0"),
        (dict(k_descale=10**400), "k_descale 10*: expected a finite number above 0"),
        (dict(v_descale=0), "v_descale 0: expected a finite number above 0"),
        (dict(window_size=None), r"window_size None: expected two ints of 32 bits, \(left, right\)"),
        (dict(window_size=(2**40, 0)), r"window_size \(1099511627776, 0\): expected two ints of 32 bits"),
        (dict(window_size=(3,)), r"window_size \(3,\): expected two ints"),
    ],
    ids=lambda x: "" if isinstance(x, dict) else x[:30],
)
def test_arguments_that_do_not_fit_are_refused_under_their_own_names(arguments, message):
    with pytest.raises(attend.Error, match="^" + message) as caught:
        paged_call(**arguments)
    assert caught.value.code in ("invalid_argument", "unsupported")


def test_a_read_only_cache_to_append_to_is_refused_by_its_name():
    cache = np.ones((4, 16, 2, 32), np.float32)
    cache.flags.writeable = False
    with pytest.raises((attend.Error, BufferError), match="(?i)v_cache: read-?only|readonly"):
        paged_call(v_cache=cache, **NEW)


def test_byte_swapped_bfloat16_is_refused():
    swapped = np.ones((2, 1, 4, 32), np.float32).astype(np.dtype(ml_dtypes.bfloat16).newbyteorder(">"))
    with pytest.raises(attend.Error, match="q of bfloat16 in another byte order"):
        paged_call(q=swapped)


def test_more_keys_than_an_int32_counts_are_not_appended():
    many = np.broadcast_to(np.zeros((2, 1, 2, 32), np.float32), (2, 2**32 + 1, 2, 32))
    with pytest.raises(attend.Error, match=r"k .*: expected fewer than 2\^31 keys"):
        paged_call(k=many, v=many)


def test_a_length_may_be_a_number_of_numpy():
    lengths = np.full(2, 7, np.int32)
    np.testing.assert_array_equal(paged_call(cache_seqlens=np.int32(7)), paged_call(cache_seqlens=lengths))


def test_a_head_dim_of_0_is_refused():
    with pytest.raises(attend.Error, match="q .*: expected a head_dim above 0"):
        flash.flash_attn_func(ONES(2, 1, 4, 0), ONES(2, 8, 2, 0), ONES(2, 8, 2, 32))


@pytest.mark.parametrize("where", [{}, dict(cache_batch_idx=np.array([0], np.int32))], ids=["rows", "chosen rows"])
def test_a_cache_of_no_tokens_gives_output_zero(where):
    out, lse = flash.flash_attn_with_kvcache(
        ONES(1, 1, 4, 32), ONES(1, 0, 2, 32), ONES(1, 0, 2, 32), return_softmax_lse=True, **where
    )
    assert (out == 0).all() and np.isneginf(lse).all()


def test_tensors_without_elements_are_taken(library):
    q, none = library.tensor(ONES(1, 4, 32)), library.tensor(ONES(0, 2, 32))
    out, lse = flash.flash_attn_varlen_func(
        q, none, none, int32(library, [0, 1]), int32(library, [0, 0]), 1, return_softmax_lse=True
    )
    assert (library.array(out) == 0).all() and np.isneginf(library.array(lse)).all()


def test_appending_no_keys_changes_nothing(rng):
    q, cache = (rng.standard_normal(shape, dtype=np.float32) for shape in ((2, 1, 4, 32), (4, 16, 2, 32)))
    call = dict(q=q, k_cache=cache, v_cache=cache)
    none = ONES(2, 0, 2, 32)
    np.testing.assert_array_equal(paged_call(k=none, v=none, **call), paged_call(**call))


@pytest.mark.parametrize(
    "arguments, code",
    [
        (dict(qv=1), "unsupported"),
        (dict(sm_margin=2), "unsupported"),
        (dict(pack_gqa=False), "unsupported"),
        (dict(sinks=ONES(4), learnable_sink=ONES(4)), "invalid_argument"),
    ],
    ids=["qv", "sm_margin", "pack_gqa", "two sinks"],
)
def test_refusals_carry_a_code(arguments, code):
    with pytest.raises(attend.Error) as caught:
        paged_call(**arguments)
    assert caught.value.code == code


def test_seqused_q_is_refused_as_unsupported():
    q, cu = ONES(2, 4, 32), np.array([0, 2], np.int32)
    with pytest.raises(attend.Error, match="seqused_q: ") as caught:
        flash.flash_attn_varlen_func(q, q, q, cu, cu, 2, seqused_q=cu[1:])
    assert caught.value.code == "unsupported"
    with pytest.raises(attend.Error, match="^seqused_k of int64: expected int32"):
        flash.flash_attn_varlen_func(q, q, q, cu, cu, 2, seqused_k=np.array([1]))


def test_page_ids_and_lengths_are_checked_on_the_cpu(rng):
    q, k = np.ones((1, 1, 1, 32), np.float32), np.ones((2, 16, 1, 32), np.float32)
    call = lambda table, seqlens: flash.flash_attn_with_kvcache(
        q, k, k, page_table=np.array([table], np.int32), cache_seqlens=np.array([seqlens], np.int32)
    )
    with pytest.raises(attend.Error, match="page id 7 at position 16 of request 0: the cache has 2 pages"):
        call([0, 7], 20)
    with pytest.raises(attend.Error, match="request 0 has 40 keys: there is room for 32"):
        call([0, 1], 40)
    with pytest.raises(attend.Error, match="request 0 has -1 keys"):
        call([0, 1], -1)


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
