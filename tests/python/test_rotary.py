"""Rotary embeddings of queries and appended keys, compared with formulas in float64."""

import attend
import numpy as np
import pytest
import reference
from attend import flash_attn_interface as flash
from conftest import check
from paged_cache import PagedCache, draw, int32

NUM_POSITIONS = 64


def angles(rng, library, pairs, dtype="float32"):
    """Returns (cos, sin) as tensors, and their values."""
    cos, cos_values = draw(rng, library, NUM_POSITIONS, pairs, dtype=dtype)
    sin, sin_values = draw(rng, library, NUM_POSITIONS, pairs, dtype=dtype)
    return (cos, sin), (cos_values, sin_values)


def rotate(x, positions, cos, sin, interleaved):
    """x [tokens, heads, dim], rotated by cos and sin [num_positions, pairs] at positions [tokens]."""
    pairs = cos.shape[1]
    c, s = (a[np.asarray(positions)][:, None] for a in (cos, sin))
    first, second = (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)) if interleaved else (slice(0, pairs), slice(pairs, 2 * pairs))
    rotated = x.copy()
    rotated[..., first] = x[..., first] * c - x[..., second] * s
    rotated[..., second] = x[..., second] * c + x[..., first] * s
    return rotated


@pytest.mark.parametrize("interleaved", [True, False], ids=["interleaved", "halves"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("dtype, pairs, angles_dtype", [("float32", 16, "float32"), ("bfloat16", 8, "bfloat16"),
                                                        ("float16", 3, "float32")])  # fmt: skip
def test_queries_and_appended_keys_are_rotated_by_position(rng, library, interleaved, causal, dtype, pairs, angles_dtype):
    seqlens, seqlen_new = [5, 0, 30], 3
    cache = PagedCache(rng, library, seqlens, 16, 2, 32, 40, dtype, room=seqlen_new)
    k, k_values = draw(rng, library, 3, seqlen_new, 2, 32, dtype=dtype)
    v, v_values = draw(rng, library, 3, seqlen_new, 2, 40, dtype=dtype)
    q, q_values = draw(rng, library, 3, seqlen_new, 4, 32, dtype=dtype)
    (cos, sin), held = angles(rng, library, pairs, angles_dtype)
    out = flash.flash_attn_with_kvcache(
        q, cache.k, cache.v, k, v, rotary_cos=cos, rotary_sin=sin, rotary_interleaved=interleaved,
        cache_seqlens=int32(library, seqlens), page_table=cache.table, causal=causal,
    )  # fmt: skip
    for tensor, values in ((q, q_values), (k, k_values)):
        np.testing.assert_array_equal(library.array(tensor).astype(np.float64), values)
    for r, n in enumerate(seqlens):
        positions = n + np.arange(seqlen_new)
        keys, values = cache.keys(r, n + seqlen_new)
        check(keys[n:], rotate(k_values[r], positions, *held, interleaved), dtype)
        np.testing.assert_array_equal(values[n:], v_values[r])
        # Without a causal mask all queries have the position of the first new key.
        rotated = rotate(q_values[r], positions if causal else [n] * seqlen_new, *held, interleaved)
        check(library.array(out)[r], reference.attend(rotated, keys, values, causal=causal)[0], dtype)


def test_rotary_positions_of_ragged_requests_may_differ_from_their_lengths(rng, library):
    seqlens, cu_new, rotary_positions = [4, 17, 1], [0, 2, 2, 7], [9, 3, 50]
    cache = PagedCache(rng, library, seqlens, 4, 1, 16, 16, room=5)
    k, k_values = draw(rng, library, 7, 1, 16)
    v, _ = draw(rng, library, 7, 1, 16)
    q, q_values = draw(rng, library, 7, 2, 16)
    (cos, sin), held = angles(rng, library, 8)
    cu = int32(library, cu_new)
    out = flash.flash_attn_with_kvcache(
        q, cache.k, cache.v, k, v, rotary_cos=cos, rotary_sin=sin, rotary_seqlens=int32(library, rotary_positions),
        cache_seqlens=int32(library, seqlens), page_table=cache.table, cu_seqlens_q=cu, cu_seqlens_k_new=cu,
        max_seqlen_q=5, causal=True,
    )  # fmt: skip
    for r, n in enumerate(seqlens):
        rows = slice(cu_new[r], cu_new[r + 1])
        positions = rotary_positions[r] + np.arange(cu_new[r + 1] - cu_new[r])
        keys, values = cache.keys(r, n + len(positions))
        check(keys[n:], rotate(k_values[rows], positions, *held, True))
        want, _ = reference.attend(rotate(q_values[rows], positions, *held, True), keys, values, causal=True)
        check(library.array(out)[rows], want)


def test_dense_rows_accept_one_length_for_all(rng, any_library):
    if any_library.name == "jax":
        pytest.skip("jax arrays are not appended to")
    (cos, sin), held = angles(rng, any_library, 4)
    k_cache, before = draw(rng, any_library, 2, 8, 1, 16)
    v_cache, _ = draw(rng, any_library, 2, 8, 1, 16)
    k, k_values = draw(rng, any_library, 2, 1, 1, 16)
    v, _ = draw(rng, any_library, 2, 1, 1, 16)
    q, _ = draw(rng, any_library, 2, 1, 2, 16)
    flash.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, rotary_cos=cos, rotary_sin=sin, cache_seqlens=6)
    after = any_library.array(k_cache)
    for r in range(2):
        check(after[r, 6:7], rotate(k_values[r], [6], *held, True))
        np.testing.assert_array_equal(after[r, :6], before[r, :6].astype(np.float32))


ONES = lambda *shape: np.ones(shape, np.float32)
NEW = dict(k=ONES(1, 1, 1, 16), v=ONES(1, 1, 1, 16))


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(rotary_cos=ONES(8, 8), rotary_sin=ONES(8, 8)), "rotary_cos: expected k and v to append"),
        (dict(rotary_cos=ONES(8, 8), **NEW), "rotary_cos, rotary_sin, rotary_seqlens: expected rotary_cos and rotary_sin both"),
        (dict(rotary_cos=ONES(8, 9), rotary_sin=ONES(8, 9), **NEW), "rotary_cos .*: expected .* rotary_dim of at most 16"),
        (dict(rotary_cos=ONES(8, 8), rotary_sin=ONES(7, 8), **NEW), "rotary_sin .*: expected the dtype and shape of rotary_cos"),
        (dict(rotary_cos=ONES(8, 8), rotary_sin=ONES(8, 8), rotary_seqlens=np.zeros(2, np.int32), **NEW), "rotary_seqlens of 2 entries"),
        (dict(rotary_cos=ONES(5, 8), rotary_sin=ONES(5, 8), **NEW), "request 0 has positions 5 to 5: cos and sin have 5"),
        (dict(rotary_cos=1, rotary_sin=ONES(5, 8), **NEW), "rotary_cos: int: expected a tensor"),
    ],
    ids=lambda x: "" if isinstance(x, dict) else x[:40],
)  # fmt: skip
def test_mismatched_rotary_arguments_are_rejected_by_name(arguments, message):
    with pytest.raises(attend.Error, match="^" + message):
        flash.flash_attn_with_kvcache(ONES(1, 1, 2, 16), ONES(1, 8, 1, 16), ONES(1, 8, 1, 16), cache_seqlens=5, **arguments)
