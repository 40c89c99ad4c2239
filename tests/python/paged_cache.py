"""Tensors of a library together with their values, and paged caches."""

import numpy as np
import reference


def draw(rng, library, *shape, dtype="float32"):
    """Returns a tensor of the library and its rounded values in float64."""
    tensor = library.tensor(rng.standard_normal(shape, dtype=np.float32), dtype)
    return tensor, library.array(tensor).astype(np.float64)


def int32(library, values):
    return library.tensor(np.array(values, np.int32))


class PagedCache:
    """Keys and values of ragged requests in pages of random order. Unused slots contain NaN, unused table
    entries invalid ids."""

    def __init__(self, rng, library, seqlens, page_size, num_kv_heads, head_dim, head_dim_v, dtype="float32", room=0):
        counts = [-(-(n + room) // page_size) for n in seqlens]
        num_pages, self.width = sum(counts) + 3, max(counts) + 1
        ids = rng.permutation(num_pages)
        self.pages, at = [], 0
        for count in counts:
            self.pages.append(ids[at : at + count])
            at += count
        table = np.full((len(seqlens), self.width), 2**30, np.int32)
        k = np.full((num_pages, page_size, num_kv_heads, head_dim), np.nan, np.float32)
        v = np.full((num_pages, page_size, num_kv_heads, head_dim_v), np.nan, np.float32)
        for r, (pages, n) in enumerate(zip(self.pages, seqlens)):
            table[r, : len(pages)] = pages
            for p in range(n):
                k[pages[p // page_size], p % page_size] = rng.standard_normal((num_kv_heads, head_dim))
                v[pages[p // page_size], p % page_size] = rng.standard_normal((num_kv_heads, head_dim_v))
        self.k, self.v = library.tensor(k, dtype), library.tensor(v, dtype)
        self.table, self.maker = library.tensor(table), library

    def keys(self, r, seqlen):
        k, v = (self.maker.array(x).astype(np.float64) for x in (self.k, self.v))
        return reference.gather(k, self.pages[r], seqlen), reference.gather(v, self.pages[r], seqlen)
