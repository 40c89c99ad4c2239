"""Reference attention in float64 with numpy, one query and head at a time."""

import numpy as np


def attend_row(q, k, v, scale, softcap=0.0, sink=None):
    """One query [d] over its visible keys [n, d] and values [n, dv]. Returns (out [dv], lse)."""
    if len(k) == 0:
        return np.zeros(v.shape[-1]), -np.inf
    scores = scale * (k @ q)
    if softcap > 0:
        scores = softcap * np.tanh(scores / softcap)
    largest = scores.max()
    weights = np.exp(scores - largest)
    total = weights.sum()
    denominator = total + (0.0 if sink is None else np.exp(sink - largest))
    return weights @ v / denominator, largest + np.log(total)


def visible(j, seqlen_q, seqlen_k, causal, window, chunk=0):
    """Returns the range [begin, end) of keys that query j attends to. Masks are aligned at the end."""
    p = seqlen_k - seqlen_q + j
    left, right = window
    if causal:
        right = 0
    begin = 0 if left < 0 else max(0, p - left)
    end = seqlen_k if right < 0 else min(seqlen_k, p + right + 1)
    if chunk:
        begin = max(begin, p // chunk * chunk)
        end = min(end, (p // chunk + 1) * chunk)
    return begin, max(begin, end)


def attend(q, k, v, scale=None, causal=False, window=(-1, -1), chunk=0, softcap=0.0, sinks=None):
    """One request: q [sq, h, d], k [sk, hk, d], v [sk, hk, dv]. Returns (out [sq, h, dv], lse [h, sq])."""
    q, k, v = (np.asarray(x).astype(np.float64) for x in (q, k, v))
    seqlen_q, num_heads, head_dim = q.shape
    seqlen_k, num_kv_heads, _ = k.shape
    scale = head_dim**-0.5 if scale is None else scale
    out, lse = np.zeros((seqlen_q, num_heads, v.shape[-1])), np.zeros((num_heads, seqlen_q))
    for j in range(seqlen_q):
        begin, end = visible(j, seqlen_q, seqlen_k, causal, window, chunk)
        for h in range(num_heads):
            kv_head = h * num_kv_heads // num_heads
            sink = None if sinks is None else float(sinks[h])
            out[j, h], lse[h, j] = attend_row(
                q[j, h], k[begin:end, kv_head], v[begin:end, kv_head], scale, softcap, sink
            )
    return out, lse


def gather(cache, pages, seqlen):
    """Returns the first seqlen tokens of a request's pages; cache [num_pages, page_size, ...]."""
    return cache[pages].reshape(-1, *cache.shape[2:])[:seqlen]
