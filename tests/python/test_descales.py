"""Descales: scalars, and tensors of one value per request and KV head."""

import attend
import numpy as np
import pytest
import reference
from attend import flash_attn_interface as flash
from conftest import check
from paged_cache import PagedCache, draw, int32

BATCH, HEADS, KV_HEADS = 3, 6, 2


def draw_descales(rng):
    """Values around 1 that are not powers of two."""
    return rng.uniform(0.6, 1.7, (BATCH, KV_HEADS)).astype(np.float32)


def descaled(keys, descale):
    """[n, kv_heads, dim], each head multiplied by its value."""
    return keys * descale[None, :, None].astype(np.float64)


@pytest.mark.parametrize(
    "dtype, cache_dtype", [("float32", "float32"), ("bfloat16", "bfloat16"), ("bfloat16", "float8_e4m3fn"),
                           ("float16", "float8_e5m2")]
)  # fmt: skip
@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
def test_descales_per_request_and_head(rng, library, dtype, cache_dtype, ragged):
    seqlens = [20, 1, 77]
    cache = PagedCache(rng, library, seqlens, 16, KV_HEADS, 64, 64, cache_dtype)
    q, q_values = draw(rng, library, BATCH, 1, HEADS, 64, dtype=dtype)
    q_descale, k_descale, v_descale = (draw_descales(rng) for _ in range(3))
    shape = dict(cu_seqlens_q=int32(library, range(BATCH + 1)), max_seqlen_q=1) if ragged else {}
    out, lse = flash.flash_attn_with_kvcache(
        q.reshape(BATCH, HEADS, 64) if ragged else q, cache.k, cache.v, cache_seqlens=int32(library, seqlens),
        page_table=cache.table, causal=True, q_descale=library.tensor(q_descale), k_descale=library.tensor(k_descale),
        v_descale=library.tensor(v_descale), return_softmax_lse=True, **shape,
    )  # fmt: skip
    np.testing.assert_array_equal(library.array(q).astype(np.float64), q_values)
    out = library.array(out).reshape(BATCH, 1, HEADS, 64)
    lse = library.array(lse).T[:, :, None] if ragged else library.array(lse)
    for r, n in enumerate(seqlens):
        k, v = cache.keys(r, n)
        k = descaled(k, q_descale[r] * k_descale[r].astype(np.float64))
        want, want_lse = reference.attend(q_values[r], k, descaled(v, v_descale[r]), causal=True)
        check(out[r], want, dtype)
        check(lse[r], want_lse, dtype)


@pytest.mark.parametrize("name", ["q_descale", "k_descale", "v_descale"])
@pytest.mark.parametrize("shape", [(1,), (1, 1), (BATCH, KV_HEADS)], ids=str)
def test_equal_descales_match_a_scalar(rng, library, name, shape):
    seqlens = [20, 1, 77]
    cache = PagedCache(rng, library, seqlens, 16, KV_HEADS, 32, 32)
    q, _ = draw(rng, library, BATCH, 1, HEADS, 32)
    call = lambda descale: library.array(
        flash.flash_attn_with_kvcache(
            q, cache.k, cache.v, cache_seqlens=int32(library, seqlens), page_table=cache.table, causal=True, **{name: descale}
        )
    )
    np.testing.assert_allclose(call(library.tensor(np.full(shape, 1.25, np.float32))), call(1.25), rtol=2e-6, atol=2e-6)


def test_one_value_can_be_expanded_to_all_requests_and_heads(rng, library):
    if library.name == "numpy":
        expanded = np.broadcast_to(np.float32([[0.8]]), (BATCH, KV_HEADS))
    else:
        expanded = library.tensor(np.float32([[0.8]])).expand(BATCH, KV_HEADS)
    q, _ = draw(rng, library, BATCH, 4, HEADS, 32)
    k, _ = draw(rng, library, BATCH, 9, KV_HEADS, 32)
    call = lambda descale: library.array(flash.flash_attn_func(q, k, k, causal=True, v_descale=descale))
    np.testing.assert_allclose(call(expanded), call(0.8), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", ["q_descale", "k_descale", "v_descale"])
@pytest.mark.parametrize("shape", [(2,), (KV_HEADS, BATCH), (BATCH, 1), (1, KV_HEADS), (BATCH, KV_HEADS, 1)], ids=str)
def test_descales_of_another_shape_are_rejected_even_if_equal(library, name, shape):
    q, k = (library.tensor(np.ones(s, np.float32)) for s in ((BATCH, 1, HEADS, 32), (BATCH, 4, KV_HEADS, 32)))
    message = rf"^{name} float32\[.*: expected a number, one element, or float32 \[{BATCH}, {KV_HEADS}\]"
    for descale in (np.full(shape, 1.25), np.linspace(1, 2, int(np.prod(shape))).reshape(shape)):
        with pytest.raises(attend.Error, match=message):
            flash.flash_attn_func(q, k, k, **{name: library.tensor(descale.astype(np.float32))})
        with pytest.raises(attend.Error, match=message):
            flash.flash_attn_func(q, k, k, **{name: descale.astype(np.float32)})


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(k_descale=np.float32([1, 2])), r"k_descale float32\[2\] .*: expected a number, one element, or float32 \[1, 2\]"),
        (dict(v_descale=np.float32([[1, 2], [1, 3]])), r"v_descale .*: expected a number, one element, or float32 \[1, 2\]"),
        (dict(q_descale=np.float64([1.0, 2.0])), "q_descale of float64: expected float32$"),
        (dict(k_descale=np.float32([[1, 2]]), k=np.ones((1, 1, 2, 16), np.float32), v=np.ones((1, 1, 2, 16), np.float32)),
         "k_descale in a tensor: expected a number, since k and v are appended"),
        (dict(k_descale=np.zeros((1, 2), np.float32)), "k_descale 0: expected above 0"),
    ],
    ids=lambda x: "" if isinstance(x, dict) else x[:40],
)  # fmt: skip
def test_mismatched_descales_are_rejected_by_name(arguments, message):
    cache = np.ones((1, 8, 2, 16), np.float32)
    with pytest.raises(attend.Error, match="^" + message):
        flash.flash_attn_with_kvcache(np.ones((1, 1, 4, 16), np.float32), cache, cache.copy(), cache_seqlens=5, **arguments)
