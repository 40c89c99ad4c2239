"""Streams and graphs of GPUs. Skips if torch finds no GPU."""

import attend
import numpy as np
import pytest
import reference
from attend import flash_attn_interface as flash
from attend import flash_mla, flashinfer
from conftest import check

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")

BATCH, PAGE_SIZE, WIDTH, HEADS, KV_HEADS, DIM = 5, 16, 8, 8, 2, 128
CAPACITY = PAGE_SIZE * WIDTH


@pytest.fixture
def cache():
    torch.manual_seed(0)
    k, v = (torch.randn(BATCH * WIDTH, PAGE_SIZE, KV_HEADS, DIM, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return k, v, torch.randperm(BATCH * WIDTH, device="cuda").int().view(BATCH, WIDTH)


def queries(seqlen_q=1):
    return torch.randn(BATCH, seqlen_q, HEADS, DIM, device="cuda", dtype=torch.bfloat16)


def captured(call):
    """Graph of the call and its outputs. The call is not warmed up on the capturing stream."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call()
    return graph, out


LENGTHS = [[1, 128, 17, 64, 5], [128] * 5, [1] * 5, [16, 15, 100, 3, 99]]


@pytest.mark.parametrize("seqlen_q", [1, 40])
@pytest.mark.parametrize("name", ["window_size", "cache_leftpad", "qv"])
def test_graph_replays_with_any_lengths_mask_and_leftpad(cache, name, seqlen_q):
    k, v, table = cache
    q, lengths = queries(seqlen_q), torch.full((BATCH,), 70, dtype=torch.int32, device="cuda")
    leftpad = torch.zeros(BATCH, dtype=torch.int32, device="cuda")
    arguments = dict(causal=True, cache_leftpad=leftpad) if name == "cache_leftpad" else dict(window_size=(9, 30))
    if name == "qv":
        q, arguments["qv"] = q[..., :64].contiguous(), queries(seqlen_q)
        k = k[..., :64].contiguous()
    call = lambda: flash.flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths, page_table=table, **arguments)
    graph, out = captured(call)
    for step in LENGTHS:
        lengths.copy_(torch.tensor(step))
        leftpad.copy_(torch.tensor([n // 3 for n in step]))
        graph.replay()
        torch.cuda.synchronize()
        np.testing.assert_array_equal(out.float().cpu(), call().float().cpu())


def test_graph_reads_seqused_q_at_replay(cache):
    k, v, table = cache
    q, used = queries(6).flatten(0, 1), torch.zeros(BATCH, dtype=torch.int32, device="cuda")
    cu, lengths = (torch.arange(BATCH + 1, device="cuda") * 6).int(), torch.tensor(LENGTHS[0], device="cuda").int()
    call = lambda: flash.flash_attn_varlen_func(
        q, k, v, cu, None, 6, seqused_q=used, seqused_k=lengths, page_table=table, causal=True
    )
    graph, out = captured(call)
    for step in ([6, 0, 3, 1, 5], [0, 6, 6, 2, 4]):
        used.copy_(torch.tensor(step))
        graph.replay()
        assert torch.equal(out, call())
        for r, n in enumerate(step):
            row = [x[table[r].long()].view(-1, KV_HEADS, DIM)[: LENGTHS[0][r]] for x in (k, v)]
            want, _ = reference.attend(*(x.float().cpu().numpy() for x in (q[6 * r : 6 * r + n], *row)), causal=True)
            check(out[6 * r : 6 * r + n].float().cpu(), want, "bfloat16")
            assert (out[6 * r + n : 6 * r + 6] == 0).all()


@pytest.mark.parametrize("seqlen_q", [1, 4])
def test_graph_replays_with_growing_and_shrinking_lengths(cache, seqlen_q):
    k, v, table = cache
    q, lengths = queries(seqlen_q), torch.full((BATCH,), 40, dtype=torch.int32, device="cuda")
    call = lambda: flash.flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths, page_table=table, causal=True)
    call()
    graph, out = captured(call)
    for step in LENGTHS:
        lengths.copy_(torch.tensor([max(n, seqlen_q) for n in step]))
        graph.replay()
        torch.cuda.synchronize()
        np.testing.assert_array_equal(out.float().cpu(), call().float().cpu())


def test_graph_appends_at_the_current_lengths(cache):
    k, v, table = cache
    q, lengths = queries(), torch.full((BATCH,), 40, dtype=torch.int32, device="cuda")
    k_new, v_new = (torch.randn(BATCH, 1, KV_HEADS, DIM, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    graph, out = captured(
        lambda: flash.flash_attn_with_kvcache(
            q, k, v, k_new, v_new, cache_seqlens=lengths, page_table=table, causal=True
        )
    )
    for step in ([3, 0, 16, 127, 50], [4, 1, 17, 126, 51]):
        lengths.copy_(torch.tensor(step))
        k_new.normal_()
        graph.replay()
        for r, n in enumerate(step):
            row = [x[table[r].long()].view(-1, KV_HEADS, DIM) for x in (k, v)]
            assert torch.equal(row[0][n], k_new[r, 0]) and torch.equal(row[1][n], v_new[r, 0])
            want, _ = reference.attend(*(x.float().cpu().numpy() for x in (q[r], row[0][: n + 1], row[1][: n + 1])))
            check(out[r].float().cpu(), want, "bfloat16")


def test_new_keys_beyond_the_cache_are_skipped(cache):
    k, v, table = cache
    before = k.clone()
    new = torch.ones(BATCH, 2, KV_HEADS, DIM, device="cuda", dtype=torch.bfloat16)
    full = torch.full((BATCH,), CAPACITY - 1, dtype=torch.int32, device="cuda")
    attend.store_kv(new[:, 0], new[:, 0], k, v, torch.full((BATCH,), -1, dtype=torch.int32, device="cuda"))
    assert torch.equal(k, before)
    flash.flash_attn_with_kvcache(
        queries(), k, v, new, new, cache_seqlens=full, page_table=table.repeat(1, 2)[:, :WIDTH], causal=True
    )
    changed = (k != before).flatten(2).any(2)
    assert changed.sum() == BATCH and changed[table[:, -1].long(), PAGE_SIZE - 1].all()


def test_captured_plan_is_shared_by_the_layers_of_every_step(cache):
    k, v, table = cache
    q, lengths = queries(), torch.full((BATCH,), 40, dtype=torch.int32, device="cuda")
    kept = []

    def step():
        metadata = flash.get_scheduler_metadata(
            BATCH, 1, CAPACITY, HEADS, KV_HEADS, DIM, lengths, causal=True, page_size=PAGE_SIZE
        )
        kept.append(metadata)
        arguments = dict(cache_seqlens=lengths, page_table=table, causal=True, scheduler_metadata=metadata)
        return [flash.flash_attn_with_kvcache(q, k, v * layer, **arguments) for layer in (1, 2)]

    graph, outs = captured(step)
    for lengths_of_step in LENGTHS:
        lengths.copy_(torch.tensor(lengths_of_step))
        graph.replay()
        eager = flash.flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths, page_table=table, causal=True)
        assert torch.equal(outs[0], eager)
        torch.testing.assert_close(outs[1], 2 * eager)


def test_concurrent_plans_do_not_share_memory(cache):
    k, v, table = cache
    q = queries()
    kept, wants = [], []
    for step in LENGTHS * 3:
        lengths = torch.tensor(step, dtype=torch.int32, device="cuda")
        arguments = dict(cache_seqlens=lengths, page_table=table, causal=True)
        wants.append(flash.flash_attn_with_kvcache(q, k, v, **arguments))
        metadata = flash.get_scheduler_metadata(BATCH, 1, CAPACITY, HEADS, KV_HEADS, DIM, lengths, causal=True)
        kept = (kept + [(metadata, arguments)])[-2:]
        for (plan, planned_for), want in zip(kept, wants[-len(kept):]):
            assert torch.equal(flash.flash_attn_with_kvcache(q, k, v, scheduler_metadata=plan, **planned_for), want)


def test_memory_of_a_plan_in_use_on_a_second_stream_is_not_reused(cache):
    k, v, table = cache
    q, second = queries(), torch.cuda.Stream()
    plan = lambda lengths: flash.get_scheduler_metadata(BATCH, 1, CAPACITY, HEADS, KV_HEADS, DIM, lengths, causal=True)
    short, full = (torch.full((BATCH,), n, dtype=torch.int32, device="cuda") for n in (3, CAPACITY))
    arguments = dict(cache_seqlens=full, page_table=table, causal=True)
    want = flash.flash_attn_with_kvcache(q, k, v, **arguments)
    metadata = plan(full)
    torch.cuda.synchronize()
    with torch.cuda.stream(second):
        # The plan is read long after its owner was deleted and the next plan was made.
        torch.cuda._sleep(50_000_000)
        out = flash.flash_attn_with_kvcache(q, k, v, scheduler_metadata=metadata, **arguments)
    del metadata
    plan(short)
    torch.cuda.synchronize()
    assert torch.equal(out, want)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="torch sees one GPU")
def test_plan_is_made_on_the_device_of_its_lengths(cache):
    k, v, table = (x.to("cuda:1") for x in cache)
    q, lengths = queries().to("cuda:1"), torch.full((BATCH,), CAPACITY, dtype=torch.int32, device="cuda:1")
    arguments = dict(cache_seqlens=lengths, page_table=table, causal=True)
    metadata = flash.get_scheduler_metadata(BATCH, 1, CAPACITY, HEADS, KV_HEADS, DIM, lengths, causal=True)
    planned = flash.flash_attn_with_kvcache(q, k, v, scheduler_metadata=metadata, **arguments)
    assert torch.equal(planned, flash.flash_attn_with_kvcache(q, k, v, **arguments))


@pytest.mark.parametrize(
    "planned, called, message",
    [
        (dict(causal=True, window_size=(4, 0)), dict(causal=True, window_size=(3, 0)), "a window_size of 4 .* True, 3, 0"),
        (dict(causal=True, attention_chunk=8), dict(causal=True), "attention_chunk 8, the call has True, -1, 0"),
        ({}, dict(causal=True), "made for causal=False"),
        (dict(num_heads_q=4), {}, "4/2 heads"),
    ],
    ids=str,
)
def test_plan_for_other_host_values_is_rejected(cache, planned, called, message):
    k, v, table = cache
    lengths = torch.full((BATCH,), 40, dtype=torch.int32, device="cuda")
    shape = dict(batch_size=BATCH, max_seqlen_q=1, max_seqlen_k=CAPACITY, num_heads_q=HEADS, num_heads_kv=KV_HEADS)
    metadata = flash.get_scheduler_metadata(**{**shape, "headdim": DIM, "cache_seqlens": lengths, **planned})
    with pytest.raises(attend.Error, match="scheduler_metadata.*" + message):
        flash.flash_attn_with_kvcache(
            queries(), k, v, cache_seqlens=lengths, page_table=table, scheduler_metadata=metadata, **called
        )


def test_plan_for_appended_keys_works_without_new_keys(cache):
    k, v, table = cache
    lengths = torch.full((BATCH,), 40, dtype=torch.int32, device="cuda")
    q, arguments = queries(), dict(cache_seqlens=lengths, page_table=table, causal=True)
    metadata = flash.get_scheduler_metadata(
        BATCH, 1, CAPACITY, HEADS, KV_HEADS, DIM, lengths, causal=True, max_seqlen_k_new=1
    )
    planned = flash.flash_attn_with_kvcache(q, k, v, scheduler_metadata=metadata, **arguments)
    assert torch.equal(planned, flash.flash_attn_with_kvcache(q, k, v, **arguments))


def test_work_is_queued_on_the_current_stream(cache):
    k, v, table = cache
    lengths = torch.full((BATCH,), CAPACITY, dtype=torch.int32, device="cuda")
    want = flash.flash_attn_with_kvcache(q := queries(), k, v, cache_seqlens=lengths, page_table=table)
    late, stream = torch.zeros_like(q), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        # The queries are written long after the call has returned.
        torch.cuda._sleep(50_000_000)
        late.copy_(q)
        out = flash.flash_attn_with_kvcache(late, k, v, cache_seqlens=lengths, page_table=table)
    assert not stream.query()
    stream.synchronize()
    assert torch.equal(out, want)


def test_results_repeat_bit_for_bit(cache):
    k, v, table = cache
    q, lengths = queries(), torch.tensor([1, 128, 17, 64, 5], dtype=torch.int32, device="cuda")
    call = lambda: flash.flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths, page_table=table, causal=True)
    first = call()
    assert all(torch.equal(call(), first) for _ in range(100))


def test_fp8_keys_with_bfloat16_queries(cache):
    k, v, table = cache
    k8, v8 = k.to(torch.float8_e4m3fn), (v / 2).to(torch.float8_e4m3fn)
    lengths = torch.tensor([1, 128, 17, 64, 5], dtype=torch.int32, device="cuda")
    q = queries()
    out = flash.flash_attn_with_kvcache(
        q, k8, v8, cache_seqlens=lengths, page_table=table, causal=True, v_descale=2.0
    )
    want = flash.flash_attn_with_kvcache(
        q, k8.bfloat16(), v8.bfloat16() * 2, cache_seqlens=lengths, page_table=table, causal=True
    )
    torch.testing.assert_close(out, want, rtol=2e-2, atol=2e-2)


def test_mla_can_be_captured():
    q = torch.randn(2, 1, 16, 576, device="cuda", dtype=torch.bfloat16)
    latent = torch.randn(6, 64, 1, 576, device="cuda", dtype=torch.bfloat16)
    table = torch.tensor([[3, 0, 5], [1, 4, 2]], dtype=torch.int32, device="cuda")
    lengths = torch.tensor([150, 7], dtype=torch.int32, device="cuda")
    call = lambda: flash_mla.flash_mla_with_kvcache(q, latent, table, lengths, 512, *flash_mla.get_mla_metadata())
    graph, (out, lse) = captured(call)
    lengths.copy_(torch.tensor([12, 192]))
    graph.replay()
    want, want_lse = call()
    assert torch.equal(out, want) and torch.equal(lse, want_lse)


def test_mla_metadata_is_shared_by_layers_of_captured_and_eager_steps():
    q = torch.randn(2, 1, 16, 576, device="cuda", dtype=torch.bfloat16)
    latents = [torch.randn(6, 64, 1, 576, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    table = torch.tensor([[3, 0, 5], [1, 4, 2]], dtype=torch.int32, device="cuda")
    lengths = torch.tensor([150, 7], dtype=torch.int32, device="cuda")

    def layers(metadata):
        return [flash_mla.flash_mla_with_kvcache(q, latent, table, lengths, 512, *metadata)[0] for latent in latents]

    # One object for the warm-up, the graph and later calls: each capture computes its own plan.
    metadata = flash_mla.get_mla_metadata()
    layers(metadata)
    graph, outs = captured(lambda: layers(metadata))
    for step in ([12, 192], [192, 1], [150, 7]):
        lengths.copy_(torch.tensor(step))
        graph.replay()
        want = [flash_mla.flash_mla_with_kvcache(q, latent, table, lengths, 512)[0] for latent in latents]
        assert all(torch.equal(a, b) for a, b in zip(outs, want))
        assert all(torch.equal(a, b) for a, b in zip(layers(flash_mla.get_mla_metadata()), want))


def test_mla_metadata_outlives_another_call_in_between():
    q = torch.randn(1, 1, 16, 576, device="cuda", dtype=torch.bfloat16)
    latent = torch.randn(3, 64, 1, 576, device="cuda", dtype=torch.bfloat16)
    table = torch.tensor([[2, 0, 1]], dtype=torch.int32, device="cuda")
    long, short = (torch.tensor([n], dtype=torch.int32, device="cuda") for n in (190, 3))
    call = lambda lengths, metadata=(None, None): flash_mla.flash_mla_with_kvcache(q, latent, table, lengths, 512, *metadata)
    metadata = flash_mla.get_mla_metadata()
    want, _ = call(long, metadata)
    call(short)
    assert torch.equal(call(long, metadata)[0], want)


def test_a_graph_reads_descales_when_it_is_replayed(cache):
    k, v, table = cache
    k8, v8 = k.to(torch.float8_e4m3fn), v.to(torch.float8_e4m3fn)
    q, lengths = queries(), torch.tensor([1, 128, 17, 64, 5], dtype=torch.int32, device="cuda")
    descales = [torch.ones(1, device="cuda").expand(BATCH, KV_HEADS) for _ in range(2)]
    call = lambda k_descale, v_descale: flash.flash_attn_with_kvcache(
        q, k8, v8, cache_seqlens=lengths, page_table=table, causal=True, k_descale=k_descale, v_descale=v_descale
    )
    graph, out = captured(lambda: call(*descales))
    # Powers of two do not change the rounding of queries.
    for k_descale, v_descale in ((0.5, 4.0), (2.0, 0.25)):
        descales[0][:1, :1].fill_(k_descale), descales[1][:1, :1].fill_(v_descale)
        graph.replay()
        assert torch.equal(out, call(k_descale, v_descale))


@pytest.mark.parametrize("window_size", [(-1, -1), (30, 0)], ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_prefill_supports_descales_per_request_and_head(cache, dtype, window_size):
    k, v, table = cache
    k8, v8 = k.to(torch.float8_e4m3fn), v.to(torch.float8_e4m3fn)
    # 160 rows per KV head.
    q = queries(40).to(dtype)
    lengths = torch.tensor([70, 128, 40, 64, 99], dtype=torch.int32, device="cuda")
    k_descale, v_descale = (torch.rand(BATCH, KV_HEADS, device="cuda") + 0.5 for _ in range(2))
    arguments = dict(causal=True, window_size=window_size, return_softmax_lse=True)
    out, lse = flash.flash_attn_with_kvcache(
        q, k8, v8, cache_seqlens=lengths, page_table=table, k_descale=k_descale, v_descale=v_descale, **arguments
    )
    for r in range(BATCH):
        for head in range(KV_HEADS):
            group = slice(head * HEADS // KV_HEADS, (head + 1) * HEADS // KV_HEADS)
            want, want_lse = flash.flash_attn_with_kvcache(
                q[r : r + 1, :, group], k8[:, :, head : head + 1], v8[:, :, head : head + 1],
                cache_seqlens=lengths[r : r + 1], page_table=table[r : r + 1], k_descale=k_descale[r, head].item(),
                v_descale=v_descale[r, head].item(), **arguments,
            )  # fmt: skip
            torch.testing.assert_close(out[r : r + 1, :, group], want, rtol=1e-2, atol=1e-2)
            torch.testing.assert_close(lse[r : r + 1, group], want_lse, rtol=1e-4, atol=1e-4)


def test_descales_in_host_memory_that_differ_by_head_are_rejected(cache):
    k, v, table = cache
    lengths = torch.ones(BATCH, dtype=torch.int32, device="cuda")
    with pytest.raises(attend.Error, match="k_descale .*: expected on cuda:0"):
        flash.flash_attn_with_kvcache(
            queries(), k, v, cache_seqlens=lengths, page_table=table, k_descale=torch.rand(BATCH, KV_HEADS)
        )


def test_graph_replay_rotates_by_current_lengths(cache):
    k, v, table = cache
    q, lengths = queries(), torch.full((BATCH,), 40, dtype=torch.int32, device="cuda")
    k_new, v_new = (torch.randn(BATCH, 1, KV_HEADS, DIM, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    rotary = {name: torch.randn(CAPACITY, DIM // 2, device="cuda") for name in ("rotary_cos", "rotary_sin")}
    call = lambda: flash.flash_attn_with_kvcache(
        q, k, v, k_new, v_new, cache_seqlens=lengths, page_table=table, causal=True, **rotary
    )
    graph, out = captured(call)
    for step in ([3, 0, 16, 127, 50], [4, 1, 17, 126, 51]):
        lengths.copy_(torch.tensor(step))
        graph.replay()
        replayed, stored = out.clone(), k.clone()
        assert torch.equal(replayed, call()) and torch.equal(stored, k)
        for r, n in enumerate(step):
            cos, sin = rotary["rotary_cos"][n], rotary["rotary_sin"][n]
            x = k_new[r, 0].float().unflatten(-1, (-1, 2))
            want = torch.stack([x[..., 0] * cos - x[..., 1] * sin, x[..., 1] * cos + x[..., 0] * sin], -1).flatten(-2)
            row = k[table[r].long()].view(-1, KV_HEADS, DIM)[n]
            torch.testing.assert_close(row.float(), want, rtol=8e-3, atol=1e-5)


@pytest.mark.parametrize("kind", ["decode", "prefill"])
def test_graph_uses_the_last_flashinfer_plan(cache, kind):
    k, v, table = cache
    indices = torch.zeros(BATCH * WIDTH, dtype=torch.int32, device="cuda")
    seqlen_q = 1 if kind == "decode" else 3
    q = queries(seqlen_q).flatten(0, 1)

    def planned(wrapper, step):
        counts = [-(-n // PAGE_SIZE) for n in step]
        indptr = torch.tensor([0, *np.cumsum(counts)], dtype=torch.int32, device="cuda")
        pages = torch.cat([table[r, :count] for r, count in enumerate(counts)])
        last = torch.tensor([(n - 1) % PAGE_SIZE + 1 for n in step], dtype=torch.int32, device="cuda")
        if kind == "decode":
            wrapper.plan(indptr, pages, last, HEADS, KV_HEADS, DIM, PAGE_SIZE)
        else:
            cu = (torch.arange(BATCH + 1, device="cuda") * seqlen_q).int()
            wrapper.plan(cu, indptr, pages, last, HEADS, KV_HEADS, DIM, PAGE_SIZE, causal=True)
        return wrapper

    make = flashinfer.BatchDecodeWithPagedKVCacheWrapper if kind == "decode" else flashinfer.BatchPrefillWithPagedKVCacheWrapper
    name = "paged_kv_indices_buffer" if kind == "decode" else "paged_kv_indices_buf"
    wrapper = planned(make(None, use_cuda_graph=True, **{name: indices}), LENGTHS[1])
    graph, out = captured(lambda: wrapper.run(q, (k, v)))
    for step in ([20, 128, 17, 64, 5], LENGTHS[1], [3] * 5):
        planned(wrapper, step)
        graph.replay()
        torch.cuda.synchronize()
        want = planned(make(None), step).run(q, (k, v))
        np.testing.assert_array_equal(out.float().cpu(), want.float().cpu())


def test_tensors_of_a_call_must_be_on_one_device(cache):
    k, v, table = cache
    with pytest.raises(attend.Error, match="page_table .* expected on cuda:0"):
        flash.flash_attn_with_kvcache(queries(), k, v, cache_seqlens=1, page_table=table.cpu())


def test_flashinfer_arrays_may_be_in_host_memory(cache):
    k, v, table = cache
    indptr, last = torch.arange(BATCH + 1).int() * WIDTH, torch.full((BATCH,), PAGE_SIZE, dtype=torch.int32)
    q = queries().flatten(0, 1)
    results = []
    for of_pages, of_last in ((indptr, last), (indptr.cuda(), last), (indptr, last.cuda()), (indptr.cuda(), last.cuda())):
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None)
        torch.cuda._sleep(10**7)  # a copy without synchronization would arrive late
        wrapper.plan(of_pages, table.flatten(), of_last, HEADS, KV_HEADS, DIM, PAGE_SIZE)
        results.append(wrapper.run(q, (k, v)))
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_graph_over_odd_page_sizes_uses_the_later_plan(layout):
    page_size, counts = 5, [[3, 1, 2], [1, 2, 3]]
    shape = (6, page_size, KV_HEADS, DIM) if layout == "NHD" else (6, KV_HEADS, page_size, DIM)
    k, v = (torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    q = torch.randn(3, HEADS, DIM, device="cuda", dtype=torch.bfloat16)

    def planned(wrapper, step):
        indptr = torch.tensor([0, *np.cumsum(counts[step])], dtype=torch.int32, device="cuda")
        pages = torch.randperm(6, device="cuda", generator=torch.Generator("cuda").manual_seed(step)).int()
        last = torch.tensor([5, 2, 4], dtype=torch.int32, device="cuda")
        wrapper.plan(indptr, pages, last, HEADS, KV_HEADS, DIM, page_size)
        return wrapper

    wrapper = planned(flashinfer.BatchDecodeWithPagedKVCacheWrapper(None, layout, use_cuda_graph=True), 0)
    graph, out = captured(lambda: wrapper.run(q, (k, v)))
    for step in (1, 0):
        planned(wrapper, step)
        graph.replay()
        want = planned(flashinfer.BatchDecodeWithPagedKVCacheWrapper(None, layout), step).run(q, (k, v))
        assert torch.equal(out, want)
