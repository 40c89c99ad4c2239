#!/usr/bin/env python3
"""Times PyTorch's matrix product and its FlashAttention-2 (scaled_dot_product_attention) on the prefill cases of
attention_bench.cc, in the same session."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


def time_us(call, repeats=10, rounds=5):
    call()
    torch.cuda.synchronize()
    times = []
    for _ in range(rounds):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(repeats):
            call()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) * 1e3 / repeats)
    return sorted(times)[rounds // 2]


def main():
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    print(f"GEMM 8192^3 bf16: {2 * 8192**3 / time_us(lambda: a @ b) * 1e-6:.0f} TFLOP/s")
    cases = [
        (16384 // s, s, heads, kv_heads, dim, causal)
        for heads, kv_heads, dim in ((32, 8, 128), (32, 8, 64), (8, 2, 256))
        for s in (512, 1024, 2048, 4096, 8192, 16384)
        for causal in (True, False)
    ]
    cases += [(1, 8192, 64, 8, 128, True)]
    for batch, s, heads, kv_heads, dim, causal in cases:
        # K/V heads are repeated beforehand, so that this is not timed.
        q, k, v = (torch.randn(batch, heads, s, dim, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            us = time_us(lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal))
        flops = 4 * batch * heads * dim * s * s / (2 if causal else 1)
        mask = "causal" if causal else "full"
        print(f"torch FA2 {heads}/{kv_heads} d{dim} b{batch} {s} {mask}: {us:.1f} us {flops / us * 1e-6:.1f} TFLOP/s")
    for batch, mean in ((16, 2048), (64, 1024), (64, 4096)):
        ragged_decode(batch, mean)


def ragged_decode(batch, mean, heads=64, kv_heads=8, dim=128):
    """The skewed batches of attention_bench.cc, with contiguous K/V that rotate beyond the L2 cache."""
    lengths = [max(1, int(mean * 2 * ((r * 7919) % batch + 0.5) / batch)) for r in range(batch)]
    total = sum(lengths)
    num_bytes = 2 * total * kv_heads * dim * 2
    copies = max(1, -(-180_000_000 // num_bytes))
    cu_q = torch.arange(batch + 1, device="cuda", dtype=torch.int32)
    cu_kv = torch.tensor([0] + lengths, device="cuda").cumsum(0).to(torch.int32)
    q = torch.randn(batch, heads, dim, device="cuda", dtype=torch.bfloat16)
    pools = [
        [torch.randn(total, kv_heads, dim, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
        for _ in range(copies)
    ]

    def call():
        for k, v in pools:
            torch.ops.aten._flash_attention_forward(
                q, k, v, cu_q, cu_kv, 1, max(lengths), 0.0, False, False, scale=dim**-0.5
            )

    us = time_us(call, repeats=3) / copies
    print(f"torch FA2 ragged decode b{batch} kv{mean}: {us:.1f} us {num_bytes / us * 1e-3:.0f} GB/s")


if __name__ == "__main__":
    main()
