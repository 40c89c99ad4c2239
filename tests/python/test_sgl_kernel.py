"""attend.sgl_kernel, compared with torch in float64, on the CPU and, if available, a GPU."""

import subprocess
import sys

import attend
import numpy as np
import pytest
import reference
from conftest import check

torch = pytest.importorskip("torch")
from attend import sgl_kernel  # noqa: E402
from attend.sgl_kernel import flash_attn, flash_mla, sampling  # noqa: E402

DTYPES = ["float32", "bfloat16", "float16"]


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    torch.manual_seed(5)
    return request.param


def normal(device, dtype, *shape):
    return torch.randn(*shape, device=device).to(getattr(torch, dtype))


def norm(x, weight, eps, offset):
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * (weight.double() + offset)


def agree(got, want, dtype):
    check(got.float().cpu().numpy(), want.cpu().numpy(), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("call, offset", [(sgl_kernel.rmsnorm, 0), (sgl_kernel.gemma_rmsnorm, 1)])
def test_norms(device, dtype, call, offset):
    weight, x = normal(device, dtype, 136), normal(device, dtype, 5, 136)
    agree(call(x, weight, 1e-5), norm(x, weight, 1e-5, offset), dtype)
    heads = normal(device, dtype, 5, 3, 136)
    agree(call(heads, weight), norm(heads, weight, 1e-6, offset), dtype)
    want = norm(x, weight, 1e-6, offset)
    assert call(x, weight, out=x) is x
    agree(x, want, dtype)


@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_routing_selects_the_best_experts(device, dtype, renormalize):
    logits = normal(device, dtype, 37, 60)
    weights, experts = torch.empty(37, 6, device=device), torch.empty(37, 6, dtype=torch.int32, device=device)
    sgl_kernel.topk_softmax(weights, experts, logits, renormalize)
    want, of_best = logits.double().softmax(-1).sort(dim=-1, descending=True, stable=True)
    want = want[:, :6] / (want[:, :6].sum(-1, keepdim=True) if renormalize else 1)
    assert torch.equal(experts.long(), of_best[:, :6])
    agree(weights, want, "float32")


def aligned(topk_ids, num_experts, block_size):
    """Reference: pairs sorted by expert, padded, and the expert of each block; -1 for the first."""
    pairs, experts = [], []
    for expert in range(-1, num_experts - 1):
        own = [i for i, e in enumerate(topk_ids.reshape(-1).tolist()) if e == expert]
        own += [topk_ids.numel()] * (-len(own) % block_size)
        pairs += own
        experts += [expert] * (len(own) // block_size)
    return pairs, experts


@pytest.mark.parametrize("pads", [False, True])
@pytest.mark.parametrize("num_tokens, num_experts, block_size", [(1, 9, 16), (50, 9, 16), (300, 129, 64), (7, 3, 1)])
def test_pairs_are_aligned_to_blocks(device, num_tokens, num_experts, block_size, pads):
    topk_ids = torch.stack([torch.randperm(num_experts - 1)[:2] for _ in range(num_tokens)]).int().to(device)
    topk_ids[num_tokens // 2 :] -= (torch.rand(num_tokens - num_tokens // 2, 2, device=device) < 0.2) * (1 + topk_ids[num_tokens // 2 :])
    size = topk_ids.numel() + num_experts * (block_size - 1)
    ints = lambda count: torch.full((count,), -7, dtype=torch.int32, device=device)
    pairs, experts, total, begins = ints(size + 3), ints(size // block_size + 2), ints(1), ints(num_experts + 2)
    sgl_kernel.moe_align_block_size(topk_ids, num_experts, block_size, pairs, experts, total, begins, pads)
    want_pairs, want_experts = aligned(topk_ids, num_experts, block_size)
    assert total.item() == len(want_pairs) == begins[num_experts] and begins[0] == 0
    rest = topk_ids.numel() if pads else -7
    assert pairs.tolist() == want_pairs + [rest] * (len(pairs) - len(want_pairs))
    assert experts.tolist() == want_experts + [-7] * (len(experts) - len(want_experts))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("call, offset", [(sgl_kernel.fused_add_rmsnorm, 0), (sgl_kernel.gemma_fused_add_rmsnorm, 1)])
def test_norms_with_a_residual(device, dtype, call, offset):
    weight, residual, x = normal(device, dtype, 136), normal(device, dtype, 5, 136), normal(device, dtype, 5, 136)
    total = (x.float() + residual.float()).to(x.dtype)
    call(x, residual, weight, 1e-5)
    assert torch.equal(residual, total)
    agree(x, norm(total, weight, 1e-5, offset), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "call, activation",
    [
        (sgl_kernel.silu_and_mul, torch.nn.functional.silu),
        (sgl_kernel.gelu_and_mul, torch.nn.functional.gelu),
        (sgl_kernel.gelu_tanh_and_mul, lambda x: torch.nn.functional.gelu(x, approximate="tanh")),
    ],
    ids=["silu", "gelu", "gelu_tanh"],
)
def test_gated_activations(device, dtype, call, activation):
    for shape in ((5, 272), (2, 3, 272)):
        x = 3 * normal(device, dtype, *shape)
        want = activation(x.double()[..., :136]) * x.double()[..., 136:]
        agree(call(x), want, dtype)
        out = x.new_empty(want.shape)
        assert call(x, out) is out
        agree(out, want, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_neox", [True, False])
@pytest.mark.parametrize("head_size, rotary_dim", [(64, 64), (96, 32)])
def test_rotary_embeddings(device, dtype, is_neox, head_size, rotary_dim):
    angles = torch.rand(50, rotary_dim // 2, dtype=torch.float64) * 6
    cache = torch.cat([angles.cos(), angles.sin()], -1).float().to(device)
    positions = torch.tensor([3, 49, 0, 7, 7], device=device)
    # q, k and v as parts of one tensor, as a fused projection returns them.
    qkv = normal(device, dtype, 5, 7 * head_size)
    query, key = qkv[:, : 4 * head_size], qkv[:, 4 * head_size : 6 * head_size]
    expected = []
    for x in (query, key):
        heads = x.double().unflatten(1, (-1, head_size))
        turned = heads[..., :rotary_dim]
        cos, sin = (part.to(device)[positions][:, None] for part in (angles.cos(), angles.sin()))
        a, b = turned.chunk(2, -1) if is_neox else (turned[..., ::2], turned[..., 1::2])
        pair = a * cos - b * sin, b * cos + a * sin
        turned = torch.cat(pair, -1) if is_neox else torch.stack(pair, -1).flatten(-2)
        expected.append(torch.cat([turned, heads[..., rotary_dim:]], -1).flatten(1))
    rest = qkv[:, 6 * head_size :].clone()
    sgl_kernel.apply_rope_with_cos_sin_cache_inplace(positions.int(), query, key, head_size, cache, is_neox)
    for got, want in zip((query, key), expected):
        agree(got, want, dtype)
    assert torch.equal(qkv[:, 6 * head_size :], rest)
    again = query.clone(), key.clone()
    sgl_kernel.apply_rope_with_cos_sin_cache_inplace(positions * 0 + 1, *again, head_size, cache * 0, is_neox)
    assert not again[0].unflatten(1, (-1, head_size))[..., :rotary_dim].any()


def spread(device, num_rows=6, vocab_size=700):
    return torch.softmax(3 * torch.randn(num_rows, vocab_size, device=device), -1)


def largest(probs, counts):
    """probs with only the counts[i] largest of row i, normalized."""
    kept = torch.zeros_like(probs, dtype=torch.float64)
    for row, count in enumerate(counts):
        top = probs[row].double().topk(int(count))
        kept[row, top.indices] = top.values
    return kept / kept.sum(-1, keepdim=True)


def reaching(probs, top_p):
    """Number of largest probabilities that reach top_p together, per row."""
    sums = probs.double().sort(-1, descending=True).values.cumsum(-1)
    return [int((row < p).sum()) + 1 for row, p in zip(sums, top_p)]


def test_renormalization_keeps_the_top_tokens(device):
    probs = spread(device)
    ks = torch.tensor([1, 5, 700, 100, 3, 7], device=device)
    agree(sgl_kernel.top_k_renorm_prob(probs, ks), largest(probs, ks), "float32")
    agree(sgl_kernel.top_k_renorm_prob(probs, 9), largest(probs, [9] * 6), "float32")
    ps = torch.tensor([0.1, 0.5, 0.9, 1.0, 0.99, 1e-6], device=device)
    agree(sgl_kernel.top_p_renorm_prob(probs, ps), largest(probs, [*reaching(probs, ps)[:3], 700, *reaching(probs, ps)[4:]]), "float32")
    agree(sgl_kernel.top_p_renorm_prob(probs, 0.7), largest(probs, reaching(probs, [0.7] * 6)), "float32")


def test_softmax_with_a_temperature_per_row(device):
    logits = 4 * torch.randn(4, 300, device=device)
    temperatures = torch.tensor([1.0, 0.2, 5.0, 0.7], device=device)
    agree(sampling.softmax(logits, temperatures), torch.softmax(logits.double() / temperatures[:, None], -1), "float32")
    agree(sampling.softmax(logits), torch.softmax(logits.double(), -1), "float32")
    greedy = sampling.softmax(logits, torch.zeros(4, device=device))
    assert torch.equal(greedy.argmax(-1), logits.argmax(-1)) and torch.equal(greedy.sum(-1), torch.ones(4, device=device))


FILTERS = {
    "none": (lambda p: sampling.sampling_from_probs(p), lambda p: p),
    "top_k": (lambda p: sampling.top_k_sampling_from_probs(p, 3), lambda p: largest(p, [3])),
    "top_p": (lambda p: sampling.top_p_sampling_from_probs(p, 0.6), lambda p: largest(p, reaching(p, [0.6]))),
    "top_k_top_p": (
        lambda p: sgl_kernel.top_k_top_p_sampling_from_probs(p, 4, 0.8),
        lambda p: largest(p, reaching(largest(p, [4]), [0.8])),
    ),
    "joint": (
        lambda p: sgl_kernel.top_k_top_p_sampling_from_probs(p, 4, 0.55, filter_apply_order="joint"),
        lambda p: largest(p, [min(4, reaching(p, [0.55])[0])]),
    ),
    "min_p": (
        lambda p: sgl_kernel.min_p_sampling_from_probs(p, 0.4),
        lambda p: torch.where(p >= 0.4 * p.max(), p.double(), 0.0),
    ),
}


@pytest.mark.parametrize("name", FILTERS)
def test_samples_have_the_requested_distribution(device, name):
    call, filtered = FILTERS[name]
    row = torch.tensor([[0.05, 0.3, 0.1, 0.02, 0.2, 0.08, 0.25]], device=device)
    num_draws = 20000
    want = filtered(row)[0].cpu().double()
    want /= want.sum()
    samples = call(row.repeat(num_draws, 1))
    assert samples.dtype == torch.int32 and samples.device.type == device
    got = torch.bincount(samples.cpu().long(), minlength=7) / num_draws
    # Six standard deviations of the largest; one run in 10^8 fails by chance.
    assert (got - want).abs().max() < 6 * np.sqrt(0.25 / num_draws)
    assert not got[want == 0].any()


def test_samples_depend_on_generator_and_indices(device):
    probs = spread(device)
    generator = torch.Generator(device)
    draws = [sampling.sampling_from_probs(probs, generator=generator.manual_seed(seed)) for seed in (1, 2, 1)]
    assert torch.equal(draws[0], draws[2]) and not torch.equal(draws[0], draws[1])
    certain = torch.eye(6, device=device)
    indices = torch.tensor([4, 0, 4, 2], device=device)
    assert sampling.top_p_sampling_from_probs(certain, 0.9, indices).tolist() == [4, 0, 4, 2]


def test_nan_check_is_optional():
    probs = spread("cpu")
    probs[1, 1] = float("nan")
    with pytest.raises(attend.Error, match="probs: contains NaN"):
        sgl_kernel.top_k_top_p_sampling_from_probs(probs, 3, 0.5, check_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("call, base", [(sgl_kernel.merge_state, 2.0), (sgl_kernel.merge_state_v2, np.e)])
def test_merges(device, dtype, call, base):
    (v_a, v_b), (s_a, s_b) = (normal(device, dtype, 2, 5, 3, 16), torch.randn(2, 5, 3, device=device))
    s_a[0, 1] = s_b[2] = s_a[3] = s_b[3] = -torch.inf
    weights = torch.pow(base, torch.stack([s_a, s_b]).double())
    total = weights.sum(0)
    want_v = (weights[0, ..., None] * v_a.double() + weights[1, ..., None] * v_b.double()) / total.clamp_min(1e-30)[..., None]
    want_s = total.log() / np.log(base)
    v, s = call(v_a, s_a, v_b, s_b)
    agree(v, want_v, dtype)
    agree(s, want_s, "float32")
    into = torch.empty_like(v), torch.empty_like(s)
    merged = call(v_a, s_a, v_b, s_b, *into)
    assert merged[0].data_ptr() == into[0].data_ptr() and torch.equal(into[0], v) and torch.equal(into[1], s)


@pytest.mark.parametrize("num_heads, page_size", [(128, 128), (7, 64)])
def test_cutlass_mla_decode(device, num_heads, page_size):
    dtype, seqlens = "bfloat16", [200, 1, 77]
    cache = normal(device, dtype, 9, page_size, 576)
    table = torch.randperm(9, device=device).int().view(3, 3)[:, : 256 // page_size]
    table = torch.nn.functional.pad(table, (0, 4 - table.shape[1])) if page_size == 64 else table
    seqlens = [min(n, table.shape[1] * page_size) for n in seqlens]
    q_nope, q_pe = normal(device, dtype, 3, num_heads, 512), normal(device, dtype, 3, num_heads, 64)
    size = sgl_kernel.cutlass_mla_get_workspace_size(1024, 3, num_kv_splits=1)
    out = sgl_kernel.cutlass_mla_decode(
        q_nope, q_pe, cache, torch.tensor(seqlens, dtype=torch.int32, device=device), table,
        torch.empty(size, dtype=torch.uint8, device=device), 0.07, 1,
    )  # fmt: skip
    q, rows = torch.cat([q_nope, q_pe], -1), cache.float().cpu().numpy()
    for r, n in enumerate(seqlens):
        keys = reference.gather(rows, table[r].cpu().numpy(), n)[:, None]
        want, _ = reference.attend(q[r : r + 1].float().cpu().numpy(), keys, keys[..., :512], 0.07)
        check(out[r : r + 1].float().cpu().numpy(), want, dtype)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
def test_first_call_can_be_captured():
    q, cache = normal("cuda", "bfloat16", 37, 16, 576), normal("cuda", "bfloat16", 37, 64, 576)
    lengths, table = (torch.arange(37, dtype=torch.int32, device="cuda") for _ in range(2))
    call = lambda: sgl_kernel.cutlass_mla_decode(q[..., :512], q[..., 512:], cache, lengths + 1, table[:, None], None, 0.07)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call()
    eager = call()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, eager)


def test_flash_attention_with_calls_of_mini_sglang(device):
    q, k, v = normal(device, "bfloat16", 6, 4, 64), *(normal(device, "bfloat16", 40, 1, 2, 64) for _ in range(2))
    table = torch.randperm(40, device=device).int().view(2, 20)
    int32 = lambda *values: torch.tensor(values, dtype=torch.int32, device=device)
    call = dict(
        q=q, k_cache=k, v_cache=v, page_table=table, cache_seqlens=int32(11, 5), cu_seqlens_q=int32(0, 2, 6),
        cu_seqlens_k_new=int32(0, 11, 16), max_seqlen_q=4, softmax_scale=0.2, sm_margin=0, window_size=(-1, -1), softcap=0.0,
        num_splits=0, pack_gqa=None, causal=True, ver=3,
    )  # fmt: skip
    assert flash_attn.is_fa3_supported()
    sinks = normal(device, "bfloat16", 4)
    for options in ({}, dict(sinks=sinks), dict(attention_chunk=4)):
        out = flash_attn.flash_attn_with_kvcache(**call, **options)
        for r, (rows, n) in enumerate([(slice(0, 2), 11), (slice(2, 6), 5)]):
            keys = (reference.gather(x.float().cpu().numpy(), table[r].cpu().numpy(), n) for x in (k, v))
            how = {"sinks": sinks.float().cpu().numpy()} if "sinks" in options else {}
            want, _ = reference.attend(
                q[rows].float().cpu().numpy(), *keys, 0.2, causal=True, chunk=options.get("attention_chunk", 0), **how
            )
            check(out[rows].float().cpu().numpy(), want, "bfloat16")


def test_flash_attention_over_ragged_keys(device):
    q, k, v = normal(device, "float16", 7, 4, 64), *(normal(device, "float16", 9, 2, 64) for _ in range(2))
    cu = torch.tensor([0, 3, 7], dtype=torch.int32, device=device), torch.tensor([0, 3, 9], dtype=torch.int32, device=device)
    out, lse = flash_attn.flash_attn_varlen_func(q, k, v, *cu, 4, 6, causal=True, return_softmax_lse=True)
    for rows, keys in ((slice(0, 3), slice(0, 3)), (slice(3, 7), slice(3, 9))):
        want, want_lse = reference.attend(*(x.float().cpu().numpy() for x in (q[rows], k[keys], v[keys])), causal=True)
        check(out[rows].float().cpu().numpy(), want, "float16")
        check(lse[:, rows].float().cpu().numpy(), want_lse, "float16")


def test_mla_metadata_can_be_copied_between_steps(device):
    lengths = torch.tensor([20, 3], dtype=torch.int32, device=device)
    metadata, num_splits = flash_mla.get_mla_metadata(lengths, 16, 1)
    metadata.copy_(flash_mla.get_mla_metadata(lengths, 16, 1)[0])
    q, cache = normal(device, "bfloat16", 2, 1, 16, 576), normal(device, "bfloat16", 2, 64, 1, 576)
    table = torch.tensor([[1], [0]], dtype=torch.int32, device=device)
    out, lse = flash_mla.flash_mla_with_kvcache(q, cache, table, lengths, 512, metadata, num_splits, 0.1, True)
    for r, n in enumerate((20, 3)):
        keys = cache[1 - r, :n].float().cpu().numpy()
        want, want_lse = reference.attend(q[r].float().cpu().numpy(), keys, keys[..., :512], 0.1, causal=True)
        check(out[r].float().cpu().numpy(), want, "bfloat16")
        check(lse[r].float().cpu().numpy(), want_lse, "bfloat16")


IDS = torch.zeros(2, 8, dtype=torch.int32)
ONES = torch.ones(2, 8)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: sgl_kernel.rmsnorm(ONES, torch.ones(4)), r"^weight .*: expected \[8\], the last dimension of input"),
        (lambda: sgl_kernel.rmsnorm(torch.ones(8), torch.ones(8)), "^input .*: expected 2 or 3 dimensions"),
        (lambda: sgl_kernel.rmsnorm(ONES.double(), torch.ones(8)), "^input of float64: expected float32, float16 or bfloat16"),
        (lambda: sgl_kernel.rmsnorm(ONES, torch.ones(8), out=torch.ones(2, 4)), "^out .*: expected the shape of input"),
        (lambda: sgl_kernel.rmsnorm(ONES.t(), torch.ones(2), out=torch.ones(8, 2)), "^input .*: expected a stride of 1"),
        (lambda: sgl_kernel.fused_add_rmsnorm(ONES, torch.ones(2, 4), torch.ones(8)), "^residual .*: expected the shape of input"),
        (lambda: sgl_kernel.silu_and_mul(torch.ones(2, 7)), r"^input of shape \(2, 7\): expected an even last dimension"),
        (lambda: sgl_kernel.silu_and_mul(ONES, torch.ones(2, 8)), r"^out of shape \(2, 8\): expected \(2, 4\)"),
        (
            lambda: sgl_kernel.apply_rope_with_cos_sin_cache_inplace(torch.tensor([0, 9]), ONES, ONES, 4, torch.ones(9, 4)),
            r"^positions\[1\] is 9: cos_sin_cache has 9 rows",
        ),
        (
            lambda: sgl_kernel.apply_rope_with_cos_sin_cache_inplace(torch.tensor([0]), ONES, ONES, 4, torch.ones(9, 4)),
            r"^query .*: expected \[1, num_heads, head_size\], a row for each position",
        ),
        (
            lambda: sgl_kernel.apply_rope_with_cos_sin_cache_inplace(torch.tensor([0, 0]), ONES, ONES, 4, torch.ones(9, 6)),
            "^query .*: expected a head_size of at least 6, the rotary_dim of cos_sin_cache",
        ),
        (
            lambda: sgl_kernel.apply_rope_with_cos_sin_cache_inplace(torch.tensor([0, 0]), ONES, ONES, 3, torch.ones(9, 2)),
            r"^query of shape \(2, 8\): expected \[num_tokens, num_heads \* 3\]",
        ),
        (
            lambda: sgl_kernel.apply_rope_with_cos_sin_cache_inplace(None, ONES, ONES, 4, ONES, fused_set_kv_buffer_arg=1),
            "^fused_set_kv_buffer_arg: expected None",
        ),
        (lambda: sgl_kernel.top_k_top_p_sampling_from_probs(torch.ones(3), 1, 1.0), r"^probs of shape \(3,\): expected \[num_rows"),
        (lambda: sgl_kernel.top_k_renorm_prob(ONES, torch.ones(3)), r"^top_k of shape \(3,\): expected a number, or \[2\]"),
        (lambda: sgl_kernel.top_p_renorm_prob(ONES, 1.5), "^top_p 1.5: expected above 0 and at most 1"),
        (
            lambda: sgl_kernel.top_k_top_p_sampling_from_probs(ONES, 1, 1.0, filter_apply_order="last"),
            "^filter_apply_order 'last': expected 'top_k_first' or 'joint'",
        ),
        (lambda: sgl_kernel.topk_softmax(ONES, IDS, ONES, moe_softcapping=1.0), "^moe_softcapping 1.0: expected 0"),
        (lambda: sgl_kernel.topk_softmax(ONES, IDS[:1], ONES), r"^topk_ids .*: expected \[2, topk\]"),
        (lambda: sgl_kernel.moe_align_block_size(IDS, 8, 0, IDS, IDS, IDS, IDS), "^block_size 0: expected at least 1"),
        (lambda: sgl_kernel.moe_align_block_size(IDS, 8, 4, IDS, IDS, IDS, IDS), "^sorted_token_ids of 16 torch.int32 on cpu: expected"),
        (lambda: sgl_kernel.cutlass_mla_decode(ONES, ONES, ONES, None, None, None, 1.0), r"^q_nope of shape \(2, 8\): expected"),
        (lambda: flash_attn.flash_attn_with_kvcache(ONES, ONES, ONES, score_mod=1), "^score_mod: expected None"),
        (
            lambda: flash_mla.flash_mla_with_kvcache(ONES, ONES, None, None, 4, descale_q=ONES),
            "^descale_q: expected None",
        ),
    ],
    ids=lambda x: "" if callable(x) else x[:40],
)
def test_unsupported_arguments_are_rejected_by_name(call, message):
    with pytest.raises(attend.Error, match=message):
        call()


PROGRAM = """
import multiprocessing, sys
def names(_):
    from flashinfer.sampling import softmax
    from sgl_kernel.flash_attn import flash_attn_with_kvcache
    import flashinfer, sgl_kernel
    return flash_attn_with_kvcache.__module__, softmax.__module__, flashinfer.rmsnorm is sgl_kernel.rmsnorm
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(names(0), *pool.map(names, [0]), *sys.argv[1:])
"""


def test_programs_and_child_processes_import_attend_under_the_other_names(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "attend.sgl_kernel", str(program), "one", "two"], capture_output=True, text=True, timeout=300
    )
    found = "('attend.sgl_kernel.flash_attn', 'attend.sgl_kernel.sampling', True)"
    assert done.returncode == 0 and done.stdout.split("\n")[0] == f"{found} {found} one two", done.stderr
