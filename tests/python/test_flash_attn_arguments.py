"""Less common arguments of attend.flash_attn_interface, compared with the float64 reference. Results with
masks use
FlashAttention-3's tolerance: at most twice the error of the same math in the dtype."""

import attend
import ml_dtypes
import numpy as np
import pytest
import reference
from attend import flash_attn_interface as flash
from conftest import check
from paged_cache import PagedCache, draw, int32


def in_dtype(q, k, v, dtype, **arguments):
    """The same math with inputs, scores and probabilities rounded to the dtype, as in FlashAttention's tests."""
    round_to = lambda x: np.asarray(x).astype(getattr(ml_dtypes, dtype, dtype)).astype(np.float64)
    scale, causal, window, chunk = (arguments.get(name) for name in ("scale", "causal", "window", "chunk"))
    out = np.zeros((len(q), q.shape[1], v.shape[-1]))
    for j in range(len(q)):
        begin, end = reference.visible(j, len(q), len(k), causal or False, window or (-1, -1), chunk or 0)
        for h in range(q.shape[1] if end > begin else 0):
            kv_head = h * k.shape[1] // q.shape[1]
            scores = round_to(round_to(q[j, h] * (scale or q.shape[-1] ** -0.5)) @ k[begin:end, kv_head].T)
            p = np.exp(scores - scores.max())
            out[j, h] = round_to(round_to(p / p.sum()) @ v[begin:end, kv_head])
    return out


def hold_to_twice_the_error(got, want, rounded):
    atol = 2 * np.abs((want.astype(np.float32) + np.float32(0.3) - np.float32(0.3)) - want).max()
    assert np.abs(got - want).max() <= 2 * np.abs(rounded - want).max() + atol + 1e-5


MASKS = [
    dict(window_size=(3, 5)),
    dict(window_size=(-1, 2)),
    dict(window_size=(4, -1)),
    dict(window_size=(0, 1)),
    dict(window_size=(30, 30)),
    dict(attention_chunk=8),
    dict(attention_chunk=100),
    dict(attention_chunk=8, window_size=(2, 3)),
]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_windows_to_the_right_and_chunks_without_a_causal_mask(rng, library, mask, dtype):
    seqlens, cu_q = [40, 5, 90], [0, 4, 12, 32]  # the second request has more queries than keys
    cache = PagedCache(rng, library, seqlens, 16, 2, 64, 64, dtype)
    q, q_values = draw(rng, library, 32, 4, 64, dtype=dtype)
    out, lse = flash.flash_attn_with_kvcache(
        q, cache.k, cache.v, cache_seqlens=int32(library, seqlens), page_table=cache.table,
        cu_seqlens_q=int32(library, cu_q), max_seqlen_q=20, return_softmax_lse=True, **mask,
    )  # fmt: skip
    how = dict(window=mask.get("window_size", (-1, -1)), chunk=mask.get("attention_chunk", 0))
    for r, n in enumerate(seqlens):
        rows = slice(cu_q[r], cu_q[r + 1])
        want, want_lse = reference.attend(q_values[rows], *cache.keys(r, n), **how)
        check(library.array(lse)[:, rows], want_lse, dtype)
        rounded = in_dtype(q_values[rows], *cache.keys(r, n), dtype, **how)
        hold_to_twice_the_error(library.array(out)[rows].astype(np.float64), want, rounded)


def test_plan_for_a_window_to_the_right(rng, library):
    q, k = (draw(rng, library, 2, n, 2, 32)[0] for n in (3, 20))
    lengths = int32(library, [20, 11])
    metadata = flash.get_scheduler_metadata(2, 3, 20, 2, 2, 32, lengths, window_size=(2, 4))
    call = dict(cache_seqlens=lengths, window_size=(2, 4))
    want = flash.flash_attn_with_kvcache(q, k, k, **call)
    got = flash.flash_attn_with_kvcache(q, k, k, scheduler_metadata=metadata, **call)
    np.testing.assert_array_equal(library.array(got), library.array(want))
    with pytest.raises(attend.Error, match="scheduler_metadata: made for"):
        flash.flash_attn_with_kvcache(q, k, k, cache_seqlens=lengths, scheduler_metadata=metadata, causal=True)


def test_seqused_q_skips_the_last_queries_of_each_request(rng, library):
    cu_q, used, cu_k = [0, 4, 9, 10], [3, 0, 1], [0, 8, 14, 31]
    q, q_values = draw(rng, library, 10, 4, 32)
    k, k_values = draw(rng, library, 31, 2, 32)
    v, v_values = draw(rng, library, 31, 2, 16)
    out, lse = flash.flash_attn_varlen_func(
        q, k, v, int32(library, cu_q), int32(library, cu_k), 5, 17, seqused_q=int32(library, used), causal=True,
        return_softmax_lse=True,
    )  # fmt: skip
    out, lse = library.array(out), library.array(lse)
    for r in range(3):
        rows, keys = slice(cu_q[r], cu_q[r] + used[r]), slice(cu_k[r], cu_k[r + 1])
        want, want_lse = reference.attend(q_values[rows], k_values[keys], v_values[keys], causal=True)
        check(out[rows], want)
        check(lse[:, rows], want_lse)
        rest = slice(cu_q[r] + used[r], cu_q[r + 1])
        assert (out[rest] == 0).all() and np.isneginf(lse[:, rest]).all()


def test_seqused_q_with_pages(rng, library):
    cu_q, used, seqlens = [0, 4, 4, 90, 95], [2, 0, 80, 5], [30, 7, 200, 64]
    cache = PagedCache(rng, library, seqlens, 16, 2, 64, 64, "bfloat16")
    q, q_values = draw(rng, library, 95, 4, 64, dtype="bfloat16")
    out = library.array(
        flash.flash_attn_varlen_func(
            q, cache.k, cache.v, int32(library, cu_q), None, 86, seqused_q=int32(library, used),
            seqused_k=int32(library, seqlens), page_table=cache.table, window_size=(40, 9),
        )  # fmt: skip
    )
    for r, n in enumerate(seqlens):
        rows = slice(cu_q[r], cu_q[r] + used[r])
        check(out[rows], reference.attend(q_values[rows], *cache.keys(r, n), window=(40, 9))[0], "bfloat16")
        assert (out[cu_q[r] + used[r] : cu_q[r + 1]] == 0).all()


@pytest.mark.parametrize("page_size", [None, 1, 16])
def test_plan_depends_on_the_leftpad(rng, library, page_size):
    lengths, leftpad = int32(library, [300, 17]), int32(library, [3, 16])
    cache = PagedCache(rng, library, [300, 17], page_size or 512, 2, 64, 64, "bfloat16")
    table = {"page_table": cache.table}
    if page_size is None:
        table = {"cache_batch_idx": library.tensor(np.array([pages[0] for pages in cache.pages], np.int32))}
    q, q_values = draw(rng, library, 2, 1, 4, 64, dtype="bfloat16")
    plan = flash.get_scheduler_metadata(2, 1, 300, 4, 2, 64, lengths, cache_leftpad=leftpad, causal=True)
    for metadata in (plan, flash.get_scheduler_metadata(2, 1, 300, 4, 2, 64, lengths, causal=True), None):
        out = flash.flash_attn_with_kvcache(
            q, cache.k, cache.v, cache_seqlens=lengths, cache_leftpad=leftpad, causal=True,
            scheduler_metadata=metadata, **table,
        )  # fmt: skip
        for r, (n, first) in enumerate([(300, 3), (17, 16)]):
            k, v = (x[first:] for x in cache.keys(r, n))
            check(library.array(out)[r], reference.attend(q_values[r], k, v, causal=True)[0], "bfloat16")


@pytest.mark.parametrize("page_size", [None, 1, 16])
def test_cache_leftpad_skips_the_first_keys(rng, library, page_size):
    seqlens, leftpad = [30, 17, 5], [3, 16, 5]
    q, q_values = draw(rng, library, 3, 2, 4, 32)
    new, new_values = draw(rng, library, 3, 2, 2, 32)
    cache = PagedCache(rng, library, seqlens, page_size or 64, 2, 32, 32, room=2)
    keys = [cache.keys(r, n) for r, n in enumerate(seqlens)]
    table = {"page_table": cache.table}
    if page_size is None:
        table = {"cache_batch_idx": library.tensor(np.array([pages[0] for pages in cache.pages], np.int32))}
    out = flash.flash_attn_with_kvcache(
        q, cache.k, cache.v, new, new, cache_seqlens=int32(library, seqlens), cache_leftpad=int32(library, leftpad),
        causal=True, attention_chunk=9, **table,
    )  # fmt: skip
    for r in range(3):
        k, v = (np.concatenate([x, new_values[r]])[leftpad[r] :] for x in keys[r])
        check(library.array(out)[r], reference.attend(q_values[r], k, v, causal=True, chunk=9)[0])
        for x in cache.keys(r, seqlens[r] + 2):
            np.testing.assert_array_equal(x[-2:], new_values[r])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("num_kv_heads", [1, 2])
def test_qv_adds_products_of_queries_and_values(rng, library, num_kv_heads, dtype):
    seqlens = [40, 3]
    cache = PagedCache(rng, library, seqlens, 16, num_kv_heads, 64, 512, dtype)
    q, q_values = draw(rng, library, 2, 3, 4, 64, dtype=dtype)
    qv, qv_values = draw(rng, library, 2, 3, 4, 512, dtype=dtype)
    out, lse = flash.flash_attn_with_kvcache(
        q, cache.k, cache.v, qv=qv, cache_seqlens=int32(library, seqlens), page_table=cache.table, causal=True,
        return_softmax_lse=True,
    )  # fmt: skip
    for r, n in enumerate(seqlens):
        k, v = cache.keys(r, n)
        both = np.concatenate([q_values[r], qv_values[r]], -1), np.concatenate([k, v], -1)
        want, want_lse = reference.attend(*both, v, scale=576**-0.5, causal=True)
        check(library.array(out)[r], want, dtype)
        check(library.array(lse)[r], want_lse, dtype)


@pytest.mark.parametrize("where", ["rows", "pages", "after a leftpad"])
@pytest.mark.parametrize("head_dim_v", [256, 512])
def test_qv_reads_keys_and_values_of_one_tensor_in_place(rng, library, where, head_dim_v):
    latent, values = draw(rng, library, 6, 16, 1, head_dim_v + 64, dtype="bfloat16")
    q, q_values = draw(rng, library, 2, 3, 16, 64, dtype="bfloat16")
    qv, qv_values = draw(rng, library, 2, 3, 16, head_dim_v, dtype="bfloat16")
    arguments, rows = {}, [values[r].reshape(16, 1, -1) for r in (4, 2)]
    if where == "rows":
        arguments = dict(cache_batch_idx=int32(library, [4, 2]))
    else:
        arguments = dict(page_table=int32(library, [[3, 0], [5, 2]]))
        rows = [np.concatenate([values[a], values[b]]) for a, b in ((3, 0), (5, 2))]
    leftpad = [2, 9] if where == "after a leftpad" else [0, 0]
    if any(leftpad):
        arguments["cache_leftpad"] = int32(library, leftpad)
    k, v = latent[..., head_dim_v:], latent[..., :head_dim_v]
    out = flash.flash_attn_with_kvcache(q, k, v, qv=qv, cache_seqlens=int32(library, [16, 11]), window_size=(5, 1), **arguments)
    for r, n in enumerate([16, 11]):
        x = rows[r][leftpad[r] : n]
        both = np.concatenate([qv_values[r], q_values[r]], -1), x
        want, _ = reference.attend(*both, x[..., :head_dim_v], scale=(head_dim_v + 64) ** -0.5, window=(5, 1))
        check(library.array(out)[r], want, "bfloat16")


def test_qv_attends_to_appended_keys(rng, library):
    seqlens = [20, 3]
    cache = PagedCache(rng, library, seqlens, 16, 2, 64, 256, "bfloat16", room=2)
    q, q_values = draw(rng, library, 2, 2, 4, 64, dtype="bfloat16")
    qv, qv_values = draw(rng, library, 2, 2, 4, 256, dtype="bfloat16")
    k_new, _ = draw(rng, library, 2, 2, 2, 64, dtype="bfloat16")
    v_new, v_values = draw(rng, library, 2, 2, 2, 256, dtype="bfloat16")
    angles = library.tensor(np.full((40, 32), 0.6, np.float32)), library.tensor(np.full((40, 32), 0.8, np.float32))
    out = flash.flash_attn_with_kvcache(
        q, cache.k, cache.v, k_new, v_new, qv=qv, cache_seqlens=int32(library, seqlens), page_table=cache.table,
        causal=True, rotary_cos=angles[0], rotary_sin=angles[1],
    )  # fmt: skip
    pairs = q_values.reshape(2, 2, 4, 32, 2)
    turned = np.stack([0.6 * pairs[..., 0] - 0.8 * pairs[..., 1], 0.6 * pairs[..., 1] + 0.8 * pairs[..., 0]], -1)
    for r, n in enumerate(seqlens):
        k, v = cache.keys(r, n + 2)
        np.testing.assert_array_equal(v[n:], v_values[r])
        both = np.concatenate([turned[r].reshape(2, 4, 64), qv_values[r]], -1), np.concatenate([k, v], -1)
        check(library.array(out)[r], reference.attend(*both, v, scale=320**-0.5, causal=True)[0], "bfloat16")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("head_dims", [(64, 256), (64, 512), (32, 384), (128, 264)], ids=str)
def test_values_may_be_wider_than_keys(rng, library, head_dims, dtype):
    cu_q, seqlens = [0, 1, 90], [700, 200]
    cache = PagedCache(rng, library, seqlens, 16, 2, *head_dims, dtype)
    q, q_values = draw(rng, library, 90, 4, head_dims[0], dtype=dtype)
    lengths = int32(library, seqlens)
    call = dict(cache_seqlens=lengths, page_table=cache.table, cu_seqlens_q=int32(library, cu_q), max_seqlen_q=89)
    plan = flash.get_scheduler_metadata(
        2, 89, 700, 4, 2, head_dims[0], lengths, headdim_v=head_dims[1], cu_seqlens_q=call["cu_seqlens_q"], causal=True
    )
    for metadata in (None, plan):
        out, lse = flash.flash_attn_with_kvcache(
            q, cache.k, cache.v, causal=True, return_softmax_lse=True, scheduler_metadata=metadata, **call
        )
        for r, n in enumerate(seqlens):
            rows = slice(cu_q[r], cu_q[r + 1])
            want, want_lse = reference.attend(q_values[rows], *cache.keys(r, n), causal=True)
            check(library.array(out)[rows], want, dtype)
            check(library.array(lse)[:, rows], want_lse, dtype)


def test_rotary_cos_and_sin_in_fp8(rng, library):
    cache = PagedCache(rng, library, [20, 3], 16, 2, 32, 32, "float8_e4m3fn", room=1)
    q, _ = draw(rng, library, 2, 1, 4, 32, dtype="float8_e4m3fn")
    new, new_values = draw(rng, library, 2, 1, 2, 32, dtype="float8_e4m3fn")
    cos, cos_values = draw(rng, library, 40, 16, dtype="float8_e4m3fn")
    sin, sin_values = draw(rng, library, 40, 16, dtype="float8_e4m3fn")
    flash.flash_attn_with_kvcache(
        q, cache.k, cache.v, new, new, cache_seqlens=int32(library, [20, 3]), page_table=cache.table, causal=True,
        rotary_cos=cos, rotary_sin=sin,
    )  # fmt: skip
    for r, n in enumerate([20, 3]):
        x = new_values[r, 0].reshape(2, 16, 2)
        turned = np.stack([x[..., 0] * cos_values[n] - x[..., 1] * sin_values[n],
                           x[..., 1] * cos_values[n] + x[..., 0] * sin_values[n]], -1)  # fmt: skip
        # Rounded to bfloat16, then to fp8.
        np.testing.assert_allclose(cache.keys(r, n + 1)[0][-1], turned.reshape(2, 32), rtol=0.07, atol=2e-3)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_fp8_queries_keys_and_values_with_descales_per_request_and_head(rng, library, dtype):
    q, q_values = draw(rng, library, 2, 3, 4, 64, dtype=dtype)
    k, k_values = draw(rng, library, 2, 9, 2, 64, dtype=dtype)
    v, v_values = draw(rng, library, 2, 9, 2, 64, dtype=dtype)
    descales = [rng.uniform(0.5, 1.5, (2, 2)).astype(np.float32) for _ in range(3)]
    names = ("q_descale", "k_descale", "v_descale")
    out = flash.flash_attn_func(q, k, v, causal=True, **{n: library.tensor(x) for n, x in zip(names, descales)})
    assert "bfloat16" in str(out.dtype)
    for r in range(2):
        of_q = np.repeat(descales[0][r], 2)[:, None]
        want, _ = reference.attend(
            q_values[r] * of_q, k_values[r] * descales[1][r][:, None], v_values[r] * descales[2][r][:, None], causal=True
        )
        check(library.array(out)[r], want, "bfloat16")


def test_new_keys_in_fp8_are_stored_unchanged(rng, library):
    cache = PagedCache(rng, library, [20, 3], 16, 2, 32, 32, "float8_e4m3fn", room=2)
    q, q_values = draw(rng, library, 2, 2, 4, 32, dtype="float8_e4m3fn")
    new, new_values = draw(rng, library, 2, 2, 2, 32, dtype="float8_e4m3fn")
    descale = np.array([[0.5, 2.0], [1.0, 0.75]], np.float32)
    out = flash.flash_attn_with_kvcache(
        q, cache.k, cache.v, new, new, cache_seqlens=int32(library, [20, 3]), page_table=cache.table, causal=True,
        k_descale=library.tensor(descale), v_descale=library.tensor(descale),
    )  # fmt: skip
    for r, n in enumerate([22, 5]):
        k, v = cache.keys(r, n)
        np.testing.assert_array_equal(k[-2:], new_values[r])
        want, _ = reference.attend(q_values[r], k * descale[r][:, None], v * descale[r][:, None], causal=True)
        check(library.array(out)[r], want, "bfloat16")


def test_cache_batch_idx_chooses_rows_of_the_page_table(rng, library):
    cache = PagedCache(rng, library, [20, 3, 33], 16, 2, 32, 32)
    q, q_values = draw(rng, library, 2, 1, 4, 32)
    call = lambda rows: flash.flash_attn_with_kvcache(
        q, cache.k, cache.v, cache_seqlens=int32(library, [33, 20]), page_table=cache.table, cache_batch_idx=int32(library, rows)
    )
    for r, (row, n) in enumerate([(2, 33), (0, 20)]):
        check(library.array(call([2, 0]))[r], reference.attend(q_values[r], *cache.keys(row, n))[0])
    if "cuda" not in library.name:  # on a GPU the host reads no row
        with pytest.raises(attend.Error, match="cache_batch_idx with page_table"):
            call([2, 3])


def test_hints_and_unused_arguments_have_no_effect(rng, library):
    q, k = (draw(rng, library, 2, n, 2, 32)[0] for n in (3, 20))
    lengths = int32(library, [20, 11])
    want = library.array(flash.flash_attn_with_kvcache(q, k, k, cache_seqlens=lengths))
    for hint in (dict(pack_gqa=False), dict(pack_gqa=True), dict(sm_margin=8), dict(rotary_seqlens=lengths)):
        np.testing.assert_array_equal(library.array(flash.flash_attn_with_kvcache(q, k, k, cache_seqlens=lengths, **hint)), want)
    for planned in (dict(max_seqlen_k_new=3), dict(pack_gqa=False, sm_margin=4, cache_leftpad=lengths)):
        metadata = flash.get_scheduler_metadata(2, 3, 20, 2, 2, 32, lengths, **planned)
        got = flash.flash_attn_with_kvcache(q, k, k, cache_seqlens=lengths, scheduler_metadata=metadata)
        np.testing.assert_array_equal(library.array(got), want)


def test_a_plan_of_ragged_queries_needs_no_total(rng, library):
    q, k = draw(rng, library, 4, 2, 32)[0], draw(rng, library, 2, 20, 2, 32)[0]
    lengths, cu = int32(library, [20, 11]), int32(library, [0, 3, 4])
    metadata = flash.get_scheduler_metadata(2, 3, 20, 2, 2, 32, lengths, cu_seqlens_q=cu)
    call = dict(cache_seqlens=lengths, cu_seqlens_q=cu, max_seqlen_q=3)
    want = flash.flash_attn_with_kvcache(q, k, k, **call)
    got = flash.flash_attn_with_kvcache(q, k, k, scheduler_metadata=metadata, **call)
    np.testing.assert_array_equal(library.array(got), library.array(want))


def test_packed_qkv(rng, library):
    qkv, values = draw(rng, library, 2, 7, 3, 4, 32)
    out = flash.flash_attn_qkvpacked_func(qkv, causal=True)
    grouped, grouped_values = draw(rng, library, 2, 7, 8, 32)
    of_groups = flash.flash_attn_qkvpacked_func(grouped, num_heads_q=4)
    for r in range(2):
        check(library.array(out)[r], reference.attend(*values[r].transpose(1, 0, 2, 3), causal=True)[0])
        x = grouped_values[r]
        check(library.array(of_groups)[r], reference.attend(x[:, :4], x[:, 4:6], x[:, 6:])[0])
    with pytest.raises(attend.Error, match="qkv of shape .*expected .batch, seqlen, 3"):
        flash.flash_attn_qkvpacked_func(grouped)
    with pytest.raises(attend.Error, match="num_heads_q 5"):
        flash.flash_attn_qkvpacked_func(grouped, num_heads_q=5)


@pytest.mark.parametrize("num_splits", [1, 2, 17])
def test_parts_are_combined_by_their_lse(rng, library, num_splits):
    lse_values = rng.standard_normal((num_splits, 2, 5, 3)).astype(np.float32)
    lse_values[:, 0, 1] = -np.inf
    lse_values[0, 1, 2] = -np.inf
    parts, part_values = draw(rng, library, num_splits, 2, 5, 3, 16)
    out, lse = flash.flash_attn_combine(parts, library.tensor(lse_values))
    with np.errstate(divide="ignore", invalid="ignore"):
        want_lse = np.log(np.exp(lse_values.astype(np.float64)).sum(0))
        weights = np.nan_to_num(np.exp(lse_values - want_lse))
    want = (weights[..., None] * part_values).sum(0)
    check(library.array(out), want)
    check(library.array(lse), want_lse)
    into = library.tensor(np.full((2, 5, 3, 16), np.nan, np.float32))
    assert flash.flash_attn_combine(parts, library.tensor(lse_values), out=into)[0] is into
    check(library.array(into), want)
    # Layout of FlashAttention's test: heads before tokens, and more splits and heads than are used.
    wide = [np.full((2 * num_splits, 2, 3, 5, 16), np.nan, np.float32), np.full((num_splits, 2, 6, 5), np.nan, np.float32)]
    wide[0][:num_splits], wide[1][:, :, :3] = part_values.transpose(0, 1, 3, 2, 4), lse_values.transpose(0, 1, 3, 2)
    of_heads = library.tensor(wide[0])[:num_splits].swapaxes(2, 3), library.tensor(wide[1])[:, :, :3].swapaxes(2, 3)
    out, lse = flash.flash_attn_combine(*of_heads)
    check(library.array(out), want)
    check(library.array(lse), want_lse)
    flat, _ = flash.flash_attn_combine(parts[:, 0], library.tensor(lse_values[:, 0]), out_dtype=parts.dtype)
    check(library.array(flat), want[0])


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(cache_leftpad=[9, 0]), "cache_leftpad 9 of request 0: expected 0 to 8"),
        (dict(cache_leftpad=[0]), "cache_leftpad of 1 entries: expected 2"),
        (dict(qv=np.ones((2, 1, 2, 16), np.float32)), "qv .*: expected the shape of q"),
        (dict(qv=np.ones((2, 1, 2, 32), np.float16)), "qv .*: expected float32, as q"),
        (dict(qv=np.ones((2, 1, 2, 32), np.float32), v_descale=2.0), "v_descale: expected None with qv"),
    ],
    ids=str,
)
def test_unsupported_fields_are_rejected_by_name(arguments, message):
    q, k = (np.ones(shape, np.float32) for shape in ((2, 1, 2, 32), (2, 8, 1, 32)))
    arguments = {n: np.array(x, np.int32) if isinstance(x, list) else x for n, x in arguments.items()}
    with pytest.raises(attend.Error, match=message):
        flash.flash_attn_with_kvcache(q, k, k, **arguments)


def test_seqused_q_beyond_a_request_s_queries_is_rejected():
    q, cu = np.ones((3, 2, 32), np.float32), np.array([0, 2, 3], np.int32)
    with pytest.raises(attend.Error, match="seqused_q 3 of request 0: expected 0 to 2"):
        flash.flash_attn_varlen_func(q, q, q, cu, cu, 2, seqused_q=np.array([3, 1], np.int32))


def test_head_dims_that_are_not_multiples_of_8_are_rejected_by_name():
    q = np.ones((1, 2, 2, 20), np.float32)
    with pytest.raises(attend.Error, match="head dims 20/20: expected multiples of 8"):
        flash.flash_attn_func(q, q, q)
