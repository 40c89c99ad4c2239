"""Sounds for goldens, by integer arithmetic, so that tests compute the same samples (tests/support/sounds.h)."""

import numpy as np


def sound(num_samples, seed=1):
    """A rising triangle wave, interrupted by silence, over quiet noise. f32 [num_samples], multiples of 1 / 32768."""
    i = np.arange(num_samples, dtype=np.uint64)
    phase = (i * np.uint64(2000003 * seed) + i * (i + np.uint64(1)) // np.uint64(2) * np.uint64(131)) & np.uint64(0xFFFFFFFF)
    triangle = (np.where(phase < 2**31, phase, 2**32 - 1 - phase) >> 16).astype(np.int64) - 16384
    triangle = np.where((i // np.uint64(6000)) % np.uint64(5) == 3, 0, triangle)
    noise = i + np.uint64(seed * 977)
    for factor in (0x45D9F3B, 0x45D9F3B):
        noise = ((noise >> np.uint64(16)) ^ noise) * np.uint64(factor) & np.uint64(0xFFFFFFFF)
    noise = (noise >> np.uint64(23)).astype(np.int64) - 256
    return ((triangle + noise) / 32768.0).astype(np.float32)
