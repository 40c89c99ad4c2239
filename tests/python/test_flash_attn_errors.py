"""Arguments that attend.flash_attn_interface rejects on the CPU, with their names; and edge cases that it
accepts."""

import concurrent.futures
import sys
import threading

import attend
import ml_dtypes
import numpy as np
import pytest
from attend import flash_attn_interface as flash
from paged_cache import int32

REFUSED = {
    "num_splits": (-1, r"num_splits -1: expected 0 \(balanced over the device\), 1 \(none\) or the maximum"),
    "softcap": (-1.0, "softcap -1: expected above 0 and finite, or 0 for none"),
    "softmax_scale": ("much", "softmax_scale 'much': expected a finite number, or None"),
    "cache_seqlens": (9, "request 0 has 9 keys: the capacity is 8"),
    "sinks": (np.zeros(5, np.float32), r"sinks float32\[5\] on cpu: expected \[2\]"),
    "page_table": (np.zeros((3, 1), np.int32), r"page_table .* expected int32 \[2, width\]"),
    "cache_batch_idx": (np.array([0, 2], np.int32), "cache_batch_idx 2 of request 1: the cache has 2 rows"),
    "cu_seqlens_k_new": (np.zeros(3, np.int32), "cu_seqlens_k_new: expected None without k and v"),
    "out": (np.zeros((2, 1, 2, 16), np.float32), "out .* expected 32 in dimension 3"),
    "scheduler_metadata": (1, "scheduler_metadata: expected the result of attend's get_scheduler_metadata"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_arguments_are_rejected_by_name(name):
    value, message = REFUSED[name]
    q, k = (np.ones(shape, np.float32) for shape in ((2, 1, 2, 32), (2, 8, 1, 32)))
    with pytest.raises(attend.Error, match=message):
        flash.flash_attn_with_kvcache(q, k, k, **{name: value})


def test_dtypes_and_devices_are_rejected_with_the_argument_s_name():
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
    """Decode step of requests with two pages of 16 keys each."""
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
        ({}, dict(cache_seqlens=np.array([1000, 900], np.int32)), r"cache_seqlens \[5, 6\], request 0 has 1000: call get_s"),
        (dict(lengths=[1000] * 2), dict(cache_seqlens=np.array([30, 32], np.int32)), r"\[1000, 1000\], request 0 has 30"),
        (dict(lengths=[5, 7]), {}, r"made for cache_seqlens \[5, 7\], request 1 has 6"),
        ({}, dict(causal=True), "made for causal=False, .* the call has True"),
        (dict(causal=True, window_size=(4, 0)), dict(causal=True, window_size=(3, 0)), "a window_size of 4 .* has True, 3, 0"),
        (dict(causal=True, attention_chunk=8), dict(causal=True), "attention_chunk 8, the call has True, -1, 0"),
        (dict(max_seqlen_q=2, cu_seqlens_q=np.array([0, 2, 3], np.int32), total_q=3), RAGGED, r"queries \[2, 1\], request 0 has 1"),
        (dict(num_heads_q=2), {}, "2/2 heads.* the call has .*4/2"),
        (dict(num_splits=1), {}, "num_splits must also be equal"),
        (dict(lengths=[5, 6, 7]), {}, "for 3 requests"),
    ],
    ids=str,
)
def test_plan_for_another_batch_is_rejected(planned, called, message):
    with pytest.raises(attend.Error, match="scheduler_metadata.*" + message):
        paged_call(scheduler_metadata=plan(**planned), **called)


def test_plan_keeps_its_lengths():
    lengths = np.array([5, 6], np.int32)
    metadata = plan(cache_seqlens=lengths)
    lengths += 1
    with pytest.raises(attend.Error, match=r"made for cache_seqlens \[5, 6\], request 0 has 6"):
        paged_call(cache_seqlens=lengths, scheduler_metadata=metadata)


def test_plan_without_a_window_works_for_layers_with_one(rng):
    q = rng.standard_normal((2, 1, 4, 32), dtype=np.float32)
    cache = rng.standard_normal((4, 16, 2, 32), dtype=np.float32)
    call = dict(q=q, k_cache=cache, v_cache=cache, causal=True, window_size=(3, 0))
    np.testing.assert_array_equal(paged_call(scheduler_metadata=plan(causal=True), **call), paged_call(**call))


def test_plan_can_be_used_from_several_threads():
    rng = np.random.default_rng(3)
    q, cache = rng.standard_normal((8, 1, 4, 32), dtype=np.float32), rng.standard_normal((16, 16, 2, 32), dtype=np.float32)
    lengths = np.arange(25, 33, dtype=np.int32)
    call = dict(num_reqs=8, q=q, k_cache=cache, v_cache=cache, cache_seqlens=lengths, scheduler_metadata=plan(lengths))
    want = paged_call(**call)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for out in pool.map(lambda _: paged_call(**call), range(200)):
            np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("planned", [False, True], ids=["for itself", "planned before"])
def test_calls_on_the_cpu_release_the_gil(planned):
    begin, ran = threading.Event(), threading.Event()
    other = threading.Thread(target=lambda: begin.wait() and ran.set())
    other.start()
    metadata = plan() if planned else None
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e6)  # from here on the other thread runs only when this one releases the lock
    try:
        begin.set()
        for _ in range(100_000):
            if ran.is_set():
                break
            paged_call(scheduler_metadata=metadata)
        assert ran.is_set()
    finally:
        sys.setswitchinterval(interval)
        other.join()


@pytest.mark.parametrize("sums", [[0, 5, 3], [0, -7, 3], [0, 2**31 - 1, 3], [0, -(2**31), 3], [1, 2, 3]], ids=str)
@pytest.mark.parametrize("name", ["cu_seqlens_q", "cu_seqlens_k_new"])
def test_plan_cumulative_lengths_are_checked_on_the_cpu(name, sums):
    with pytest.raises(attend.Error, match=rf"{name}( decreases from|\[0\] is 1)"):
        plan(max_seqlen_q=3, total_q=3, max_seqlen_k_new=3, **{name: np.array(sums, np.int32)})


def test_plan_maximum_lengths_are_checked_on_the_cpu():
    sums = np.array([0, 1, 5], np.int32)
    with pytest.raises(attend.Error, match="max_seqlen_q 3: request 1 has 4 queries"):
        plan(max_seqlen_q=3, cu_seqlens_q=sums, total_q=5)
    with pytest.raises(attend.Error, match="max_seqlen_k_new 3: request 1 appends 4 keys"):
        plan(cu_seqlens_k_new=sums, max_seqlen_k_new=3)


def test_max_seqlen_q_below_a_request_s_queries_is_rejected_on_the_cpu():
    q, cu = np.ones((5, 2, 32), np.float32), np.array([0, 1, 5], np.int32)
    with pytest.raises(attend.Error, match="max_seqlen_q 2: request 1 has 4 queries: expected at least the largest number"):
        flash.flash_attn_varlen_func(q, q, q, cu, cu, 2)
    assert flash.flash_attn_varlen_func(q, q, q, cu, cu, 4).shape == q.shape


ONES = lambda *shape, dtype=np.float32: np.ones(shape, dtype)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(k_cache=ONES(4, 16, 2, 16)), "k_cache float32.*: expected a head_dim of 32, as q"),
        (dict(k_cache=ONES(4, 16, 3, 32), v_cache=ONES(4, 16, 3, 32)), "k_cache .*: expected a number of heads that divides the 4 of q"),
        (dict(v_cache=ONES(4, 16, 1, 32)), "v_cache .*: expected the shape of k_cache .* except the last"),
        (dict(v_cache=ONES(4, 16, 2, 32, dtype=np.float16)), "v_cache .*: expected float32, as k_cache"),
        (dict(v_cache=ONES(4, 16, 2, 64)[..., ::2]), "v_cache .*: stride 2 in the last dimension"),
        (dict(k_cache=ONES(4, 16, 2, 32, dtype=np.int8)), "k_cache of int8: expected float32, .* or float8_e5m2"),
        (dict(k_cache=ONES(32, 2, 32)), "k_cache .*: expected .num_pages, page_size, num_kv_heads, head_dim"),
        (dict(k_cache=ONES(4, 3, 2, 32), v_cache=ONES(4, 3, 2, 32)), "page_size 3: expected a power of two from 1 to 256"),
        (dict(NEW, k=ONES(2, 1, 1, 32)), "k .*: expected 2 heads and a head_dim of 32, as k_cache"),
        (dict(NEW, v=ONES(2, 1, 2, 16)), "v .*: expected 2 heads and a head_dim of 32, as v_cache"),
        (dict(NEW, v=ONES(2, 2, 2, 32)), "v .*: expected the shape of k .* except the last"),
        (dict(NEW, v=ONES(1, 2, 2, 32)), "v .*: expected .2, seqlen_new"),
        (dict(NEW, k=ONES(2, 1, 2, 32, dtype=np.float64)), "k of float64: expected float32, float16, bfloat16, float8_e4m3fn or float8_e5m2$"),
        (dict(q=ONES(2, 1, 4, 32, dtype=np.float64)), "q of float64: expected float32, float16, bfloat16, float8_e4m3fn or float8_e5m2$"),
        (dict(q=ONES(2, 1, 4, 32, dtype=">f4")), "q of float32 in another byte order"),
        (dict(q=np.ma.masked_array(ONES(2, 1, 4, 32))), "q: .*MaskedArray: expected an unmasked array"),
        (dict(q=np.array(["a"])), "q of str32: expected float32, float16, bfloat16"),
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
def test_mismatched_arguments_are_rejected_by_name(arguments, message):
    with pytest.raises(attend.Error, match="^" + message) as caught:
        paged_call(**arguments)
    assert caught.value.code in ("invalid_argument", "unsupported")


def test_appending_to_a_read_only_cache_is_rejected_by_name():
    cache = np.ones((4, 16, 2, 32), np.float32)
    cache.flags.writeable = False
    with pytest.raises((attend.Error, BufferError), match="(?i)v_cache: read-?only|readonly"):
        paged_call(v_cache=cache, **NEW)


def test_byte_swapped_bfloat16_is_rejected():
    swapped = np.ones((2, 1, 4, 32), np.float32).astype(np.dtype(ml_dtypes.bfloat16).newbyteorder(">"))
    with pytest.raises(attend.Error, match="q of bfloat16 in another byte order"):
        paged_call(q=swapped)


def test_appending_beyond_int32_positions_is_rejected():
    many = np.broadcast_to(np.zeros((2, 1, 2, 32), np.float32), (2, 2**32 + 1, 2, 32))
    with pytest.raises(attend.Error, match=r"k .*: expected fewer than 2\^31 keys"):
        paged_call(k=many, v=many)


def test_lengths_may_be_numpy_scalars():
    lengths = np.full(2, 7, np.int32)
    np.testing.assert_array_equal(paged_call(cache_seqlens=np.int32(7)), paged_call(cache_seqlens=lengths))


def test_head_dim_0_is_rejected():
    with pytest.raises(attend.Error, match="q .*: expected a head_dim above 0"):
        flash.flash_attn_func(ONES(2, 1, 4, 0), ONES(2, 8, 2, 0), ONES(2, 8, 2, 32))


@pytest.mark.parametrize("where", [{}, dict(cache_batch_idx=np.array([0], np.int32))], ids=["rows", "chosen rows"])
def test_empty_cache_returns_zero(where):
    out, lse = flash.flash_attn_with_kvcache(
        ONES(1, 1, 4, 32), ONES(1, 0, 2, 32), ONES(1, 0, 2, 32), return_softmax_lse=True, **where
    )
    assert (out == 0).all() and np.isneginf(lse).all()


def test_empty_tensors_are_accepted(library):
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
        (dict(qv=1), "invalid_argument"),
        (dict(v_cache=ONES(4, 16, 2, 64)[..., ::2]), "unsupported"),
        (dict(sinks=ONES(4), learnable_sink=ONES(4)), "invalid_argument"),
    ],
    ids=["qv", "stride", "two sinks"],
)
def test_errors_carry_a_code(arguments, code):
    with pytest.raises(attend.Error) as caught:
        paged_call(**arguments)
    assert caught.value.code == code
    assert isinstance(caught.value, ValueError) == (code == "invalid_argument")


def test_int64_lengths_are_rejected():
    q, cu = ONES(2, 4, 32), np.array([0, 2], np.int32)
    with pytest.raises(attend.Error, match="^seqused_k of int64: expected int32"):
        flash.flash_attn_varlen_func(q, q, q, cu, cu, 2, seqused_k=np.array([1]))


def test_page_ids_and_lengths_are_checked_on_the_cpu(rng):
    q, k = np.ones((1, 1, 1, 32), np.float32), np.ones((2, 16, 1, 32), np.float32)
    call = lambda table, seqlens: flash.flash_attn_with_kvcache(
        q, k, k, page_table=np.array([table], np.int32), cache_seqlens=np.array([seqlens], np.int32)
    )
    with pytest.raises(attend.Error, match="page id 7 at position 16 of request 0: the cache has 2 pages"):
        call([0, 7], 20)
    with pytest.raises(attend.Error, match="request 0 has 40 keys: the capacity is 32"):
        call([0, 1], 40)
    with pytest.raises(attend.Error, match="request 0 has -1 keys"):
        call([0, 1], -1)


@pytest.mark.parametrize(
    "argument, message",
    [
        (dict(num_heads_kv=0), "num_heads_kv 0: expected a positive divisor of num_heads_q 4"),
        (dict(num_heads_q=3), "num_heads_kv 2: expected a positive divisor of num_heads_q 3"),
        (dict(max_seqlen_q=-1), "batch_size 2, max_seqlen_q -1, max_seqlen_k_new 0: expected at least 0"),
        (dict(headdim=0), "headdim 0, headdim_v 0: expected above 0"),
        (dict(qkv_dtype="int4"), "qkv_dtype 'int4': expected float32, float16, bfloat16, fp8_e4m3 or fp8_e5m2"),
    ],
    ids=str,
)
def test_plan_with_impossible_shapes_is_rejected(argument, message):
    shape = dict(batch_size=2, max_seqlen_q=1, max_seqlen_k=8, num_heads_q=4, num_heads_kv=2, headdim=32)
    with pytest.raises(attend.InvalidArgument, match=message):
        flash.get_scheduler_metadata(**{**shape, "cache_seqlens": np.array([3, 4], np.int32), **argument})
