#!/usr/bin/env python3
"""Reads ptxas' output for every kernel (nvcc -Xptxas=-v). Fails if a kernel spills more registers than allowed, if its
wgmma are serialized, or if its setmaxnreg is ignored.

  scripts/check_spills.py [--allow-none] BUILD_LOG...

A kernel may spill the bytes of stores listed in ALLOWED. --allow-none accepts logs without a kernel, such as those of a
build without CUDA."""

import re
import sys

# Part of a kernel's mangled name, and the accepted bytes of spill stores.
ALLOWED = {
    # 128 rows with fp8 keys, head dim 128: the conversion needs registers in addition to 192 accumulators.
    r"attention_kernelI.*ElementE[34]ELi128ELi128ELi128ELb0E": 128,
    # MLA's fp8 rows: four counters of the converting warps, written once per KV tile and work tile.
    r"mla_kernelI.*Lb1ELb[01]ELb[01]E": 48,
    # K and V that are loaded row by row, head dims 192/128: one register of a consumer, per work tile.
    r"prefill_kernelI.*PrefillTileILi192ELi128E.*PrefillKindE3E": 8,
    # Scaled quantized GEMM: one counter of the epilogue, in addition to the accumulators of 256 rows of W.
    r"scaled_quantized_kernelI.*Li2ELi128E": 32,
    # Scan of the delta rule: addresses and factors, in addition to the state and two results, per chunk.
    r"4sm9023delta_chunk_scan_kernel": 104,
    # The same scan on sm80 with decays per channel: addresses and factors, per chunk.
    r"4sm8023delta_chunk_scan_kernelI.*DeltaChannelStage": 36,
    # Decode with heads of 512, 64 rows: addresses of the producer's tile, in addition to 256 columns of output per warpgroup.
    r"wide_decode_kernelI.*Li64ELb[01]E": 40,
    # Fixed splits: saved accumulators.
    r"attention_kernelI.*Li(64|128)ELb1E": 80,
}

# Notes of ptxas about kernels that compile to slow code. C7504 and C7506 to C7508: setmaxnreg is ignored for the kernel.
# C7509 to C7516, C7518 and C7520: wgmma are serialized. C7517 and C7519 report an inserted wait or arrive.
SLOW_NOTE = re.compile(r"\((C75(?:0[4-9]|1[0-68]|20))\) (.*)")

ENTRY = re.compile(r"Compiling entry function '([^']+)' for '([^']+)'")
SPILL = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


def spills(lines):
    """Returns (kernel, architecture, bytes of spill stores) of every kernel in a build log."""
    kernel = None
    for line in lines:
        if entry := ENTRY.search(line):
            kernel = entry.groups()
        elif kernel and (spill := SPILL.search(line)):
            yield *kernel, int(spill[1])
            kernel = None


def main():
    arguments = sys.argv[1:]
    allow_none = "--allow-none" in arguments
    logs = [argument for argument in arguments if argument != "--allow-none"]
    if not logs:
        sys.exit(__doc__)
    found, bad, slow = 0, [], []
    for path in logs:
        with open(path, errors="replace") as log:
            lines = log.readlines()
            slow += (f"{code}: {text}" for code, text in (note.groups() for note in map(SLOW_NOTE.search, lines) if note))
            for name, architecture, num_bytes in spills(lines):
                found += 1
                allowed = max((limit for pattern, limit in ALLOWED.items() if re.search(pattern, name)), default=0)
                if num_bytes > allowed:
                    bad.append(f"{name} ({architecture}): {num_bytes} bytes of spill stores, {allowed} allowed")
    if found == 0 and not allow_none:
        sys.exit("no kernels in these logs: build from scratch with -Xptxas=-v (CMAKE_CUDA_FLAGS)")
    if bad or slow:
        sys.exit(
            "\n  ".join(["kernels that spill registers:", *bad] if bad else [])
            + "\n" * bool(bad and slow)
            + "\n  ".join(["kernels whose wgmma are serialized or whose setmaxnreg is ignored:", *slow] if slow else [])
        )
    if found == 0:
        print("spills: no kernel was compiled in this build")
        return
    print(f"spills: {found} kernels without excess spills or serialized wgmma")


if __name__ == "__main__":
    main()
