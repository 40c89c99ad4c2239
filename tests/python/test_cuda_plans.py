"""Dependencies of a GPU call's bits, and its number of launches."""

import pytest
from attend import flash_attn_interface as flash
from launches import num_launches

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")


def draw(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def int32(values):
    return torch.tensor(values, dtype=torch.int32, device="cuda")


def ragged(seqlens_q, seqlens_k, heads, kv_heads, dim, **options):
    torch.manual_seed(0)
    q, k, v = draw(sum(seqlens_q), heads, dim), draw(sum(seqlens_k), kv_heads, dim), draw(sum(seqlens_k), kv_heads, dim)
    sums = lambda lengths: torch.nn.functional.pad(int32(lengths).cumsum(0).int(), (1, 0))
    return lambda: flash.flash_attn_varlen_func(
        q, k, v, sums(seqlens_q), sums(seqlens_k), max(seqlens_q), max(seqlens_k), causal=True, **options
    )


def test_bits_do_not_depend_on_earlier_calls():
    # No other test has this number of heads, so the first call creates a workspace. It has one long request
    # among short ones; with the number of tokens of the second call there would be enough row tiles to need
    # no splits.
    heads = (8, 2, 120)
    call = ragged([300] + [1] * 39, [3000] + [50] * 39, *heads)
    first = call()
    ragged([300] * 40, [300] * 40, *heads)()
    assert torch.equal(call(), first)


@pytest.mark.parametrize("dim", [64, 128, 256])
def test_bits_of_a_request_with_many_rows_do_not_depend_on_others_without_splits(dim):
    seqlen_q, seqlen_k = 60, 700
    q, k, v = draw(100 * seqlen_q, 8, dim), draw(100 * seqlen_k, 2, dim), draw(100 * seqlen_k, 2, dim)

    def of(num_reqs):
        sums = lambda length: int32([r * length for r in range(num_reqs + 1)])
        return flash.flash_attn_varlen_func(
            q[: num_reqs * seqlen_q], k[: num_reqs * seqlen_k], v[: num_reqs * seqlen_k], sums(seqlen_q), sums(seqlen_k),
            seqlen_q, seqlen_k, causal=True, num_splits=1,
        )  # fmt: skip

    single = of(1)
    assert all(torch.equal(of(num_reqs)    [:seqlen_q], single) for num_reqs in (2, 30, 100))


def test_metadata_for_an_fp8_cache():
    torch.manual_seed(0)
    q, k, v = draw(3, 1, 16, 256), draw(12, 64, 1, 256), draw(12, 64, 1, 256)
    k8, v8 = k.to(torch.float8_e4m3fn), v.to(torch.float8_e4m3fn)
    lengths, table = int32([200, 1, 256]), torch.randperm(12, device="cuda").int().view(3, 4)
    where = dict(cache_seqlens=lengths, page_table=table, causal=True)
    plan = lambda dtype: flash.get_scheduler_metadata(3, 1, 256, 16, 1, 256, lengths, qkv_dtype=dtype, causal=True)
    want = flash.flash_attn_with_kvcache(q, k8, v8, **where)
    assert torch.equal(flash.flash_attn_with_kvcache(q, k8, v8, scheduler_metadata=plan(torch.float8_e4m3fn), **where), want)
    from_bfloat16 = flash.flash_attn_with_kvcache(q, k8, v8, scheduler_metadata=plan(None), **where)
    torch.testing.assert_close(from_bfloat16, want, rtol=2e-2, atol=2e-2)


def test_dense_caches_are_decoded_in_one_launch():
    q, k, v, lengths = draw(4, 1, 8, 128), draw(4, 300, 2, 128), draw(4, 300, 2, 128), int32([300, 1, 50, 299])
    new = dict(k=draw(4, 1, 2, 128), v=draw(4, 1, 2, 128))
    rows = int32([2, 0, 3, 1])
    call = lambda **options: lambda: flash.flash_attn_with_kvcache(q, k, v, causal=True, **options)
    assert num_launches(call(cache_seqlens=lengths)) == 1
    shorter = lengths - 1
    assert num_launches(call(cache_seqlens=shorter, **new)) == 1
    assert num_launches(lambda: flash.flash_attn_func(q, k, v)) == 1
    # Row offsets are computed on the GPU.
    assert num_launches(call(cache_seqlens=lengths, cache_batch_idx=rows)) == 2


def test_decode_with_very_many_dense_cache_sizes():
    """Row offsets are cached for some sizes. For other sizes a launch derives them, with the same bits."""
    q, cache = draw(3, 1, 4, 64), draw(2, 3, 200, 2, 64)
    outputs = [flash.flash_attn_func(q, *cache[:, :, :n]) for n in range(1, 200)]
    for n, out in enumerate(outputs, 1):
        k, v = cache[:, :, :n].contiguous()
        assert torch.equal(flash.flash_attn_with_kvcache(q, k, v, cache_seqlens=int32([n] * 3)), out)
