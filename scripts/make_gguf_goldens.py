#!/usr/bin/env python3
"""Writes random blocks of every GGUF type that attend supports, and their elements as gguf-py (pip install gguf)
dequantizes them, to tests/data/gguf/blocks.safetensors.

    make_gguf_goldens.py
"""

import pathlib

import gguf
import numpy
from safetensors.numpy import save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
ELEMENTS = 512  # per type
# Offsets of float16 scales in a block.
SCALES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2],
    "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [],
}


def main():
    random = numpy.random.default_rng(1)
    tensors = {}
    for name, offsets in SCALES.items():
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = random.integers(0, 256, (ELEMENTS // elements, size), dtype=numpy.uint8)
        for offset in offsets:
            # Any finite number, also negative and subnormal ones.
            scales = random.integers(0, 0x7C00, len(blocks), dtype=numpy.uint16) | random.integers(0, 2, len(blocks), dtype=numpy.uint16) << 15
            blocks[:, offset : offset + 2] = scales.astype("<u2").view(numpy.uint8).reshape(-1, 2)
        tensors[f"{name}.blocks"] = blocks
        tensors[f"{name}.elements"] = gguf.quants.dequantize(blocks, kind).astype(numpy.float32).reshape(len(blocks), elements)
    folder = ROOT / "tests/data/gguf"
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "blocks.safetensors")


if __name__ == "__main__":
    main()
