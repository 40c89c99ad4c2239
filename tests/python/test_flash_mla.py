"""attend.flash_mla, compared with the float64 reference: keys are latent rows, values their first part."""

import attend
import numpy as np
import pytest
import reference
from attend import flash_mla
from conftest import check


def draw_pages(rng, library, seqlens, page_size, head_dim, dtype):
    """Cache of pages in random order with NaN in unused slots, the page table, and the rows of each request."""
    counts = [-(-n // page_size) for n in seqlens]
    ids = rng.permutation(sum(counts) + 2)
    cache = np.full((len(ids), page_size, 1, head_dim), np.nan, np.float32)
    table = np.full((len(seqlens), max(counts) + 1), 2**30, np.int32)
    at = 0
    for r, (count, n) in enumerate(zip(counts, seqlens)):
        table[r, :count] = ids[at : at + count]
        at += count
        for p in range(n):
            cache[table[r, p // page_size], p % page_size] = rng.standard_normal((1, head_dim))
    cache = library.tensor(cache, dtype)
    values = library.array(cache).astype(np.float64)
    rows = [reference.gather(values, table[r, :count], n) for r, (count, n) in enumerate(zip(counts, seqlens))]
    return cache, library.tensor(table), rows


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("seqlen_q, num_heads, page_size", [(1, 16, 64), (2, 3, 64), (1, 9, 16)])
def test_decode_agrees_with_the_reference(rng, library, dtype, seqlen_q, num_heads, page_size):
    seqlens = [20, 140, 64]
    cache, table, rows = draw_pages(rng, library, seqlens, page_size, 576, dtype)
    q = library.tensor(rng.standard_normal((3, seqlen_q, num_heads, 576), dtype=np.float32), dtype)
    metadata, num_splits = flash_mla.get_mla_metadata()
    out, lse = flash_mla.flash_mla_with_kvcache(
        q, cache, table, library.tensor(np.array(seqlens, np.int32)), 512, metadata, num_splits, causal=True
    )
    assert tuple(out.shape) == (3, seqlen_q, num_heads, 512) and tuple(lse.shape) == (3, num_heads, seqlen_q)
    for r in range(3):
        want, want_lse = reference.attend(library.array(q)[r], rows[r], rows[r][..., :512], causal=True)
        check(library.array(out)[r], want, dtype)
        check(library.array(lse)[r], want_lse, dtype)


def test_metadata_is_shared_by_the_layers_of_a_step(rng, library):
    cache, table, rows = draw_pages(rng, library, [30, 7], 16, 80, "float32")
    lengths, metadata = library.tensor(np.array([30, 7], np.int32)), flash_mla.get_mla_metadata()
    for seqlen_q in (1, 1, 2):
        q = library.tensor(rng.standard_normal((2, seqlen_q, 4, 80), dtype=np.float32))
        out, _ = flash_mla.flash_mla_with_kvcache(q, cache, table, lengths, 64, *metadata, causal=True)
        for r in range(2):
            check(library.array(out)[r], reference.attend(library.array(q)[r], rows[r], rows[r][..., :64], causal=True)[0])


def test_metadata_is_recomputed_for_another_tensor_of_lengths(rng, library):
    cache, table, rows = draw_pages(rng, library, [30], 16, 80, "float32")
    q, metadata = library.tensor(rng.standard_normal((1, 1, 2, 80), dtype=np.float32)), flash_mla.get_mla_metadata()
    for n in (30, 11):
        lengths = library.tensor(np.array([n], np.int32))
        out, _ = flash_mla.flash_mla_with_kvcache(q, cache, table, lengths, 64, *metadata)
        check(library.array(out)[0], reference.attend(library.array(q)[0], rows[0][:n], rows[0][:n, :, :64])[0])


def test_sink_and_scale_are_applied(rng, library):
    cache, table, rows = draw_pages(rng, library, [30], 16, 80, "float32")
    q = library.tensor(rng.standard_normal((1, 1, 2, 80), dtype=np.float32))
    sinks = np.array([1.0, -2.0], np.float32)
    out, _ = flash_mla.flash_mla_with_kvcache(
        q, cache, table, library.tensor(np.array([30], np.int32)), 64, softmax_scale=0.2, attn_sink=library.tensor(sinks)
    )
    check(library.array(out)[0], reference.attend(library.array(q)[0], rows[0], rows[0][..., :64], 0.2, sinks=sinks)[0])


def test_rows_without_a_rotary_part(rng, library):
    cache, table, rows = draw_pages(rng, library, [30], 16, 80, "float32")
    q = library.tensor(rng.standard_normal((1, 1, 2, 80), dtype=np.float32))
    out, _ = flash_mla.flash_mla_with_kvcache(q, cache, table, library.tensor(np.array([30], np.int32)), 80)
    check(library.array(out)[0], reference.attend(library.array(q)[0], rows[0], rows[0])[0])


@pytest.mark.parametrize("num_kv_heads", [2, 3])
def test_several_kv_heads_agree_with_the_reference(rng, library, num_kv_heads):
    seqlens, values = [30, 7], rng.standard_normal((4, 16, num_kv_heads, 80), dtype=np.float32)
    table, sinks = np.array([[2, 1], [3, 0]], np.int32), rng.standard_normal(6).astype(np.float32)
    q = rng.standard_normal((2, 2, 6, 80), dtype=np.float32)
    out, lse = flash_mla.flash_mla_with_kvcache(
        *(library.tensor(x) for x in (q, values, table, np.array(seqlens, np.int32))), 64, *flash_mla.get_mla_metadata(),
        causal=True, attn_sink=library.tensor(sinks),
    )  # fmt: skip
    for r, n in enumerate(seqlens):
        rows = reference.gather(values, table[r], n)
        want, want_lse = reference.attend(q[r], rows, rows[..., :64], causal=True, sinks=sinks)
        check(library.array(out)[r], want)
        check(library.array(lse)[r], want_lse)


@pytest.mark.parametrize("seqlen_q", [1, 2])
@pytest.mark.parametrize("num_kv_heads", [1, 2])
def test_query_without_keys_has_the_lse_of_flash_mla(library, seqlen_q, num_kv_heads):
    q, cache = np.ones((3, seqlen_q, 4, 80), np.float32), np.ones((2, 16, num_kv_heads, 80), np.float32)
    table, seqlens = np.zeros((3, 1), np.int32), np.array([0, 1, 0], np.int32)
    out, lse = (
        library.array(x)
        for x in flash_mla.flash_mla_with_kvcache(*(library.tensor(x) for x in (q, cache, table, seqlens)), 64, causal=True)
    )
    assert (out[[0, 2]] == 0).all() and np.isposinf(lse[[0, 2]]).all()
    # The same holds for a query before its request's first key.
    assert np.isfinite(lse[1, :, -1]).all() and np.isposinf(lse[1, :, :-1]).all()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(extra_k_cache=1), "extra_k_cache: expected None without indices and is_fp8_kvcache"),
        (dict(extra_indices_in_kvcache=1), "extra_indices_in_kvcache: expected None without extra_k_cache"),
        (dict(topk_length=1), "topk_length: expected None without indices"),
        (dict(num_splits=3), "num_splits: .* None"),
        (dict(tile_scheduler_metadata=1), "^tile_scheduler_metadata: expected the result of attend's get_mla_metadata"),
        (dict(head_dim_v=88), "head_dim_v 88: expected at most the head_dim 80"),
        (dict(k_cache=np.ones((1, 16, 3, 80), np.float32)), "k_cache .*: expected a number of heads that divides the 2 of q"),
        (dict(k_cache=np.ones((1, 16, 80), np.float32)), r"k_cache .* expected \[num_pages, page_size, num_kv_heads, head_dim\]"),
        (dict(k_cache=np.ones((1, 16, 1, 72), np.float32)), "^k_cache .*: expected a head_dim of 80, as q"),
        (dict(k_cache=np.ones((1, 3, 1, 80), np.float32)), "page_size 3: expected a power of two"),
        (dict(block_table=np.zeros((1, 1), np.int64)), "^block_table of int64: expected int32"),
        (dict(block_table=np.zeros((2, 1), np.int32)), r"^block_table .* expected int32 \[1, width\]"),
        (dict(attn_sink=np.zeros(3, np.float32)), r"^attn_sink .*: expected \[2\]"),
        (dict(softmax_scale="x"), "^softmax_scale 'x': expected a finite number"),
        (dict(k_cache=None), "^k_cache None: expected a tensor"),
        (dict(cache_seqlens=np.array([17], np.int32)), "request 0 has 17 keys: the capacity is 16"),
    ],
    ids=str,
)
def test_unsupported_arguments_are_rejected_by_name(arguments, message):
    call = dict(
        q=np.ones((1, 1, 2, 80), np.float32), k_cache=np.ones((1, 16, 1, 80), np.float32),
        block_table=np.zeros((1, 1), np.int32), cache_seqlens=np.array([5], np.int32), head_dim_v=64,
    )  # fmt: skip
    with pytest.raises(attend.Error, match=message) as caught:
        flash_mla.flash_mla_with_kvcache(**{**call, **arguments})
    assert caught.value.code in ("invalid_argument", "unsupported")
