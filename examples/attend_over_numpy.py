"""Decodes with numpy arrays and a paged K/V cache: keys are stored in pages, and one call computes attention for a batch of
requests with different lengths. Checks the result against a plain softmax."""

import attend
import numpy as np
from attend.flash_attn_interface import flash_attn_with_kvcache

NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, PAGE_SIZE = 8, 2, 64, 16

rng = np.random.default_rng(0)
lengths = np.array([5, 40, 17], np.int32)
page_table = np.array([[7, 0, 0], [2, 5, 1], [3, 6, 0]], np.int32)
k_cache = np.zeros((8, PAGE_SIZE, NUM_KV_HEADS, HEAD_DIM), np.float32)
v_cache = np.zeros_like(k_cache)

# Prefill: the keys of every prompt are stored at their slots.
prompts = []
for row, length in zip(page_table, lengths):
    k, v = rng.standard_normal((2, length, NUM_KV_HEADS, HEAD_DIM), dtype=np.float32)
    positions = np.arange(length)
    slots = row[positions // PAGE_SIZE] * PAGE_SIZE + positions % PAGE_SIZE
    attend.store_kv(k, v, k_cache, v_cache, slots.astype(np.int32))
    prompts.append((k, v))

# Decode step: each request's new key is appended and attended to in the same call.
q = rng.standard_normal((3, 1, NUM_HEADS, HEAD_DIM), dtype=np.float32)
k_new, v_new = rng.standard_normal((2, 3, 1, NUM_KV_HEADS, HEAD_DIM), dtype=np.float32)
out = flash_attn_with_kvcache(
    q, k_cache, v_cache, k_new, v_new, cache_seqlens=lengths, page_table=page_table, causal=True
)

worst = 0.0
for r, (k, v) in enumerate(prompts):
    k, v = np.concatenate([k, k_new[r]]), np.concatenate([v, v_new[r]])
    for head in range(NUM_HEADS):
        kv_head = head * NUM_KV_HEADS // NUM_HEADS
        scores = k[:, kv_head] @ q[r, 0, head] / np.sqrt(HEAD_DIM)
        weights = np.exp(scores - scores.max())
        worst = max(worst, np.abs(weights @ v[:, kv_head] / weights.sum() - out[r, 0, head]).max())
print(f"attend {attend.__version__}: largest difference from a plain softmax {worst:.1e}")
assert worst < 1e-5
