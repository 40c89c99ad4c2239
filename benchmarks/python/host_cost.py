#!/usr/bin/env python3
"""Measures the host cost of a call: microseconds until it returns, on a mostly idle GPU. Prints one line of JSON."""

import json
import time

import attend
import torch
from attend.flash_attn_interface import flash_attn_with_kvcache, get_scheduler_metadata
from attend.flash_mla import flash_mla_with_kvcache, get_mla_metadata


def microseconds(call, repeats=50, rounds=60):
    """Returns the median over rounds of `repeats` calls; the GPU is idle at the start of a round and must not fall behind."""
    for _ in range(20):
        call()
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        times.append((time.perf_counter() - start) * 1e6 / repeats)
    return round(sorted(times)[rounds // 2], 2)


def main():
    batch, pages, page_size, heads, kv_heads, dim = 4, 4, 64, 8, 1, 128
    bf16 = dict(device="cuda", dtype=torch.bfloat16)
    q = torch.randn(batch, 1, heads, dim, **bf16)
    k, v = (torch.randn(batch * pages, page_size, kv_heads, dim, **bf16) for _ in range(2))
    k_new, v_new = (torch.randn(batch, 1, kv_heads, dim, **bf16) for _ in range(2))
    table = torch.arange(batch * pages, dtype=torch.int32, device="cuda").view(batch, pages)
    lengths = torch.full((batch,), 60, dtype=torch.int32, device="cuda")
    where = dict(cache_seqlens=lengths, page_table=table, causal=True)
    plan = lambda: get_scheduler_metadata(batch, 1, 256, heads, kv_heads, dim, lengths, causal=True)
    metadata, mla_metadata = plan(), get_mla_metadata()
    out = torch.empty_like(q)
    q_mla = torch.randn(batch, 1, 16, 576, **bf16)
    latent = torch.randn(batch * pages, page_size, 1, 576, **bf16)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        flash_attn_with_kvcache(q, k, v, **where)
    costs = {
        "decode": lambda: flash_attn_with_kvcache(q, k, v, **where),
        "decode, out given": lambda: flash_attn_with_kvcache(q, k, v, out=out, **where),
        "decode, planned before": lambda: flash_attn_with_kvcache(q, k, v, scheduler_metadata=metadata, **where),
        "decode, planned before, out given": lambda: flash_attn_with_kvcache(
            q, k, v, scheduler_metadata=metadata, out=out, **where
        ),
        "decode, with appended keys": lambda: flash_attn_with_kvcache(q, k, v, k_new, v_new, **where),
        "mla": lambda: flash_mla_with_kvcache(q_mla, latent, table, lengths, 512),
        "mla, planned before": lambda: flash_mla_with_kvcache(q_mla, latent, table, lengths, 512, *mla_metadata),
        "a plan": plan,
        "replay of a captured decode": graph.replay,
        "torch.add, for comparison": lambda: torch.add(q, q),
    }
    report = {name: microseconds(call) for name, call in costs.items()}
    print(json.dumps({"gpu": torch.cuda.get_device_name(), "attend": attend.__version__, "us of the host": report}))


if __name__ == "__main__":
    main()
