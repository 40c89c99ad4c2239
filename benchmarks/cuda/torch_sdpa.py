#!/usr/bin/env python3
"""Times PyTorch's matrix product and its FlashAttention-2 (scaled_dot_product_attention) on the prefill cases of
attention_bench.cc, for the same session."""

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
        (16384 // s, s, 32, 8, 128, causal)
        for s in (512, 1024, 2048, 4096, 8192, 16384)
        for causal in (True, False)
    ]
    cases += [(1, 8192, 64, 8, 128, True), (2, 8192, 32, 8, 64, True), (2, 8192, 8, 2, 256, True)]
    for batch, s, heads, kv_heads, dim, causal in cases:
        # K/V heads repeated beforehand, so that no time goes into that.
        q, k, v = (torch.randn(batch, heads, s, dim, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            us = time_us(lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal))
        flops = 4 * batch * heads * dim * s * s / (2 if causal else 1)
        mask = "causal" if causal else "full"
        print(f"torch FA2 {heads}/{kv_heads} d{dim} b{batch} {s} {mask}: {us:.1f} us {flops / us * 1e-6:.1f} TFLOP/s")


if __name__ == "__main__":
    main()
