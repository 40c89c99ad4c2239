"""Sparse attention and the fp8 cache of attend.flash_mla, compared with softmax over the listed rows in
float64."""

import attend
import ml_dtypes
import numpy as np
import pytest
from attend import flash_mla
from conftest import TOLERANCE, check

RANK, DIM, ROW_BYTES = 512, 576, 656


def attend_rows(q, rows, scale, sinks=None):
    """(out, lse, largest score) of q [heads, dim] over rows [n, dim]."""
    q, rows = q.astype(np.float64), rows.astype(np.float64)
    if len(rows) == 0:
        return np.zeros((len(q), RANK)), np.full(len(q), np.inf), np.full(len(q), -np.inf)
    scores = q @ rows.T * scale
    largest = scores.max(-1)
    weights = np.exp(scores - largest[:, None])
    total = weights.sum(-1)
    below = total if sinks is None else total + np.exp(sinks - largest)
    return weights @ rows[:, :RANK] / below[:, None], np.log(total) + largest, largest


def quantized(rows):
    """Latent rows [num_pages, page_size, 1, dim] in the layouts of FlashMLA's fp8 caches, uint8 of 656 or 584
    bytes per token,
    and their dequantized values."""
    num_pages, page_size, _, dim = rows.shape
    num_scaled, num_scales = (512, 4) if dim == DIM else (448, 7)
    groups = rows[..., :num_scaled].reshape(num_pages, page_size, num_scales, -1)
    scales = np.exp2(np.ceil(np.log2(np.maximum(np.abs(groups).max(-1), 1e-4) / 448))).astype(np.float32)
    codes = (groups / scales[..., None]).astype(ml_dtypes.float8_e4m3fn)
    plain = rows[:, :, 0, num_scaled:].astype(ml_dtypes.bfloat16)
    of_page = lambda x: x.view(np.uint8).reshape(num_pages, page_size, -1)
    values = (codes.astype(np.float32) * scales[..., None]).reshape(num_pages, page_size, 1, num_scaled)
    values = np.concatenate([values, plain[:, :, None].astype(np.float32)], -1)
    if dim == DIM:
        return np.concatenate([of_page(codes), of_page(scales), of_page(plain)], -1)[:, :, None], values
    exponents = np.full((num_pages, page_size, 8), 255, np.uint8)
    exponents[..., :7] = np.log2(scales) + 127
    held = np.concatenate([of_page(codes), of_page(plain)], -1).reshape(num_pages, -1)
    # Layout of FlashMLA's tests: a gap after each page.
    pages = np.concatenate([held, exponents.reshape(num_pages, -1)], -1)
    padded = np.zeros((num_pages, -(-pages.shape[1] // 576) * 576), np.uint8)
    padded[:, : pages.shape[1]] = pages
    return padded[:, : pages.shape[1]].reshape(num_pages, page_size, 1, 584), values


def listed(rng, shape, num_slots):
    """Distinct indices in random order, with -1 and some out of range."""
    indices = np.stack([rng.permutation(num_slots + 4)[: shape[-1]] for _ in range(np.prod(shape[:-1]))]).reshape(shape)
    return np.where(rng.random(shape) < 0.2, -1, indices).astype(np.int32)


def seen(indices, num_slots, length=None):
    indices = indices[:length]
    return indices[(indices >= 0) & (indices < num_slots)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("of_bytes, dim", [(False, DIM), (True, DIM), (True, RANK)])
@pytest.mark.parametrize("seqlen_q, num_heads", [(1, 16), (2, 9)])
def test_decode_attends_to_the_listed_rows(rng, library, dtype, of_bytes, dim, seqlen_q, num_heads):
    rows = rng.standard_normal((5, 64, 1, dim)).astype(np.float32)
    if of_bytes:
        cache, values = quantized(rows)
        cache = library.tensor(cache)
    else:
        cache = library.tensor(rows, dtype)
        values = library.array(cache).astype(np.float32)
    values = values.reshape(-1, dim)
    q = library.tensor(rng.standard_normal((3, seqlen_q, num_heads, dim), dtype=np.float32), dtype)
    indices = listed(rng, (3, seqlen_q, 300), 320)
    indices[1, 0] = -1
    sinks, lengths = rng.standard_normal(num_heads).astype(np.float32), np.array([300, 70, 0], np.int32)
    for options in ({}, dict(topk_length=lengths), dict(attn_sink=sinks)):
        out, lse = flash_mla.flash_mla_with_kvcache(
            q, cache, None, None, RANK, *flash_mla.get_mla_metadata(), softmax_scale=0.05, is_fp8_kvcache=of_bytes,
            indices=library.tensor(indices), **{name: library.tensor(value) for name, value in options.items()},
        )  # fmt: skip
        assert tuple(out.shape) == (3, seqlen_q, num_heads, RANK) and tuple(lse.shape) == (3, num_heads, seqlen_q)
        out, lse, queries = library.array(out), library.array(lse), library.array(q)
        for r, j in np.ndindex(3, seqlen_q):
            length = lengths[r] if "topk_length" in options else None
            want = attend_rows(queries[r, j], values[seen(indices[r, j], 320, length)], 0.05, options.get("attn_sink"))
            check(out[r, j], want[0], dtype)
            check(lse[r, :, j], want[1], dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("dim", [DIM, RANK])
def test_extra_cache_is_attended_to_after_the_first(rng, library, dtype, dim, monkeypatch):
    monkeypatch.setattr(attend.flash_mla._sparse, "_MAX_ROWS", 2 * 130)
    cache, values = quantized(rng.standard_normal((5, 64, 1, dim)).astype(np.float32))
    extra, extra_values = quantized(rng.standard_normal((30, 4, 1, dim)).astype(np.float32))
    q = library.tensor(rng.standard_normal((3, 2, 9, dim), dtype=np.float32), dtype)
    indices, extra_indices = listed(rng, (3, 2, 80), 320), listed(rng, (3, 2, 50), 120)
    indices[1, 0] = extra_indices[1, 0] = extra_indices[2, 1] = -1
    sinks, lengths, extra_lengths = rng.standard_normal(9).astype(np.float32), [80, 7, 0], [0, 50, 13]
    passed = dict(topk_length=np.array(lengths, np.int32), extra_topk_length=np.array(extra_lengths, np.int32))
    for options in ({}, passed, dict(attn_sink=sinks)):
        out, lse = flash_mla.flash_mla_with_kvcache(
            q, library.tensor(cache), None, None, RANK, softmax_scale=0.05, is_fp8_kvcache=True,
            indices=library.tensor(indices), extra_k_cache=library.tensor(extra),
            extra_indices_in_kvcache=library.tensor(extra_indices),
            **{name: library.tensor(value) for name, value in options.items()},
        )  # fmt: skip
        out, lse, queries = library.array(out), library.array(lse), library.array(q)
        for r, j in np.ndindex(3, 2):
            length, extra_length = (lengths[r], extra_lengths[r]) if "topk_length" in options else (None, None)
            rows = values.reshape(-1, dim)[seen(indices[r, j], 320, length)]
            others = extra_values.reshape(-1, dim)[seen(extra_indices[r, j], 120, extra_length)]
            want = attend_rows(queries[r, j], np.concatenate([rows, others]), 0.05, options.get("attn_sink"))
            check(out[r, j], want[0], dtype)
            check(lse[r, :, j], want[1], dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("causal", [False, True])
def test_fp8_cache_with_page_tables(rng, library, dtype, causal):
    seqlens, page_size = [20, 0, 130], 64
    cache, values = quantized(rng.standard_normal((7, page_size, 1, DIM)).astype(np.float32))
    # Layout of FlashMLA's tests: a gap after each page.
    padded = np.zeros((7, page_size + 1, 1, ROW_BYTES), np.uint8)
    padded[:, :page_size] = cache
    cache = library.tensor(padded)[:, :page_size]
    table = rng.permutation(7)[:6].reshape(3, 2).astype(np.int32)
    table = np.concatenate([table, np.array([[6], [0], [int(set(range(7)).difference(table[2]).pop())]], np.int32)], 1)
    q = library.tensor(rng.standard_normal((3, 2, 16, DIM), dtype=np.float32), dtype)
    out, lse = flash_mla.flash_mla_with_kvcache(
        q, cache, library.tensor(table), library.tensor(np.array(seqlens, np.int32)), RANK, softmax_scale=0.05, causal=causal,
        is_fp8_kvcache=True,
    )  # fmt: skip
    out, lse, queries = library.array(out), library.array(lse), library.array(q)
    for r, n in enumerate(seqlens):
        rows = values[table[r]].reshape(-1, DIM)
        for j in range(2):
            want = attend_rows(queries[r, j], rows[: max(0, n - 1 + j) if causal else n], 0.05)
            check(out[r, j], want[0], dtype)
            if n:
                check(lse[r, :, j], want[1], dtype)


def test_many_rows_are_dequantized_in_parts(rng, library, monkeypatch):
    cache, values = quantized(rng.standard_normal((2, 64, 1, DIM)).astype(np.float32))
    q, indices = rng.standard_normal((5, 1, 8, DIM), dtype=np.float32), listed(rng, (5, 1, 100), 128)
    call = lambda: flash_mla.flash_mla_with_kvcache(
        *(library.tensor(x) for x in (q, cache)), None, None, RANK, is_fp8_kvcache=True, indices=library.tensor(indices)
    )
    first = call()
    monkeypatch.setattr(attend.flash_mla._sparse, "_MAX_ROWS", 200)
    for one, other in zip(first, call()):
        np.testing.assert_array_equal(library.array(one), library.array(other))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("num_kv_heads, dim", [(1, DIM), (2, DIM), (1, RANK)])
def test_prefill_attends_to_the_listed_rows(rng, library, dtype, num_kv_heads, dim, monkeypatch):
    monkeypatch.setattr(attend.flash_mla._sparse, "_MAX_ROWS", 8 * 200)
    kv = library.tensor(rng.standard_normal((90, num_kv_heads, dim), dtype=np.float32), dtype)
    q = library.tensor(rng.standard_normal((11, 6, dim), dtype=np.float32), dtype)
    indices = listed(rng, (11, num_kv_heads, 64), 90)
    indices[4] = -1
    sinks, lengths = rng.standard_normal(6).astype(np.float32), rng.integers(0, 65, 11).astype(np.int32)
    for options in ({}, dict(topk_length=lengths), dict(attn_sink=sinks)):
        passed = {name: library.tensor(value) for name, value in options.items()}
        out, largest, lse = flash_mla.flash_mla_sparse_fwd(q, kv, library.tensor(indices), 0.06, **passed)
        assert tuple(out.shape) == (11, 6, RANK) and tuple(lse.shape) == tuple(largest.shape) == (11, 6)
        out, largest, lse, values, queries = (library.array(x) for x in (out, largest, lse, kv, q))
        for j, head in np.ndindex(11, 6):
            of = head * num_kv_heads // 6
            length = lengths[j] if "topk_length" in options else None
            sink = sinks[head : head + 1] if "attn_sink" in options else None
            want = attend_rows(queries[j, head : head + 1], values[seen(indices[j, of], 90, length), of], 0.06, sink)
            # The head with the largest result determines the rounding tolerance.
            np.testing.assert_allclose(out[j, head], want[0][0], rtol=0, atol=2 * TOLERANCE[dtype])
            check(lse[j, head : head + 1], want[1], dtype)
            check(largest[j, head : head + 1], want[2], "float32")
    assert flash_mla.flash_mla_sparse_fwd(q, kv, library.tensor(indices), 0.06, max_logits=False)[1] is None


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(causal=True), "causal True: expected False with indices"),
        (dict(indices=np.zeros((2, 1, 3), np.int32)), r"indices of shape \(2, 1, 3\): expected \[1, 1, topk\]"),
        (dict(indices=np.zeros((1, 1, 3), np.int64)), "indices of int64: expected int32"),
        (dict(topk_length=np.zeros(2, np.int32)), "topk_length of 2 entries: expected 1"),
        (dict(k_cache=np.zeros((2, 4, 2, DIM), np.float32)), r"k_cache of shape .*: expected \[num_pages, page_size, 1, 576\]"),
        (dict(k_cache=np.zeros((2, 8, 1, DIM), np.float32)[:, :4]), "k_cache with strides .*: expected pages without gaps"),
        (dict(is_fp8_kvcache=True), r"k_cache of shape .*: expected \[num_pages, page_size, 1, 656\] of bytes"),
        (
            dict(is_fp8_kvcache=True, q=np.ones((1, 1, 2, RANK), np.float32), k_cache=np.zeros((2, 4, 1, 656), np.uint8)),
            r"k_cache of shape .*: expected \[num_pages, page_size, 1, 584\] of bytes .* head_dim of 512",
        ),
        (dict(extra_k_cache=np.zeros((2, 4, 1, DIM), np.float32)), "extra_k_cache: expected None without indices and is_fp8_kvcache"),
        (dict(extra_topk_length=np.zeros(1, np.int32)), "extra_topk_length: expected None without extra_k_cache"),
        (
            dict(is_fp8_kvcache=True, k_cache=np.zeros((2, 4, 1, 656), np.uint8), extra_k_cache=np.zeros((2, 4, 1, 656), np.uint8)),
            "extra_indices_in_kvcache None: expected a tensor with extra_k_cache",
        ),
        (dict(is_fp8_kvcache=True, k_cache=np.zeros((2, 4, 1, 656), np.int8)), "k_cache of int8: expected uint8 or float8_e4m3fn"),
        (dict(is_fp8_kvcache=True, head_dim_v=64), "is_fp8_kvcache with a head_dim of 576, head_dim_v 64: expected 576 or 512, and 512"),
        (
            dict(is_fp8_kvcache=True, indices=None, k_cache=np.zeros((2, 4, 1, 656), np.uint8)),
            "block_table None: expected a tensor without indices",
        ),
        (
            dict(
                is_fp8_kvcache=True, indices=None, k_cache=np.zeros((2, 4, 1, 656), np.uint8),
                block_table=np.zeros((1, 1), np.int32), cache_seqlens=np.array([5], np.int32),
            ),
            r"counts\[0\] is 5: expected 0 to 4",
        ),
        (dict(q=np.ones((1, 2, DIM), np.float32)), r"q of shape \(1, 2, 576\): expected \[batch, seqlen_q, num_heads, head_dim\]"),
    ],
    ids=str,
)  # fmt: skip
def test_unsupported_arguments_are_rejected_by_name(arguments, message):
    call = dict(
        q=np.ones((1, 1, 2, DIM), np.float32), k_cache=np.ones((2, 4, 1, DIM), np.float32), block_table=None,
        cache_seqlens=None, head_dim_v=RANK, indices=np.zeros((1, 1, 3), np.int32),
    )  # fmt: skip
    with pytest.raises(attend.Error, match=message) as caught:
        flash_mla.flash_mla_with_kvcache(**{**call, **arguments})
    assert caught.value.code in ("invalid_argument", "unsupported")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(indexer_topk=512), "indexer_topk 512: expected 0"),
        (dict(kv=np.ones((4, DIM), np.float32)), r"kv of \(4, 576\)"),
        (dict(indices=np.zeros((3, 1, 4), np.int32)), r"indices of shape \(3, 1, 4\): expected \[2, 1, topk\]"),
    ],
    ids=str,
)
def test_unsupported_prefill_arguments_are_rejected_by_name(arguments, message):
    call = dict(
        q=np.ones((2, 2, DIM), np.float32), kv=np.ones((4, 1, DIM), np.float32), indices=np.zeros((2, 1, 4), np.int32), sm_scale=1
    )
    with pytest.raises(attend.Error, match=message):
        flash_mla.flash_mla_sparse_fwd(**{**call, **arguments})


@pytest.mark.parametrize("seqlen_q, topk", [(0, 8), (3, 0), (0, 0)])
def test_prefill_without_queries_or_lists(library, seqlen_q, topk):
    q, kv = library.tensor(np.ones((seqlen_q, 4, 576), np.float32)), library.tensor(np.ones((5, 1, 576), np.float32))
    out, largest, lse = flash_mla.flash_mla_sparse_fwd(q, kv, library.tensor(np.zeros((seqlen_q, 1, topk), np.int32)), 0.1)
    assert library.array(out).shape == (seqlen_q, 4, 512) and not library.array(out).any()
    assert (library.array(lse) == np.inf).all() and (library.array(largest) == -np.inf).all()
    assert library.array(lse).shape == library.array(largest).shape == (seqlen_q, 4)
