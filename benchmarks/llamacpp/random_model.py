#!/usr/bin/env python3
"""Writes the same random weights for attend (a Hugging Face folder) and for llama.cpp (a GGUF file).

    random_model.py OUT [--shape qwen3-0.6b|tiny] [--layers N] [--dtype bfloat16|float16|q8_0|q4_0|q4_k_m]

The shape is Qwen3-0.6B's, or that of the bundled model with Qwen3's architecture. Files are OUT/config.json,
OUT/tokenizer.json, OUT/model.safetensors and OUT/model.gguf; for quantized weights only OUT/model.gguf. The vocabulary consists of letters; outputs are meaningless,
but all files have their full size. Needs only Python.
"""
import argparse
import itertools
import json
import random
import re
import string
import struct
from pathlib import Path

# The last one is the size of the vocabulary without padding.
NAMES = ("LAYERS", "HIDDEN", "INNER", "HEADS", "KV_HEADS", "HEAD_DIM", "VOCAB", "NUM_TOKENS")
SHAPES = {"qwen3-0.6b": (28, 1024, 3072, 16, 8, 128, 151936, 151643), "tiny": (4, 256, 512, 8, 2, 64, 2112, 2048)}
CONTEXT = 40960
EPS, THETA = 1e-6, 1e6
END = "<|endoftext|>"
# Split of Qwen's tokenizers.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")


def tensors(num_layers):
    """Returns (Hugging Face's name, GGUF's name, shape, True for a matrix)."""
    yield "model.embed_tokens.weight", "token_embd.weight", (VOCAB, HIDDEN), True
    for i in range(num_layers):
        model, blk = f"model.layers.{i}.", f"blk.{i}."
        yield model + "input_layernorm.weight", blk + "attn_norm.weight", (HIDDEN,), False
        yield model + "self_attn.q_proj.weight", blk + "attn_q.weight", (HEADS * HEAD_DIM, HIDDEN), True
        yield model + "self_attn.k_proj.weight", blk + "attn_k.weight", (KV_HEADS * HEAD_DIM, HIDDEN), True
        yield model + "self_attn.v_proj.weight", blk + "attn_v.weight", (KV_HEADS * HEAD_DIM, HIDDEN), True
        yield model + "self_attn.o_proj.weight", blk + "attn_output.weight", (HIDDEN, HEADS * HEAD_DIM), True
        yield model + "self_attn.q_norm.weight", blk + "attn_q_norm.weight", (HEAD_DIM,), False
        yield model + "self_attn.k_norm.weight", blk + "attn_k_norm.weight", (HEAD_DIM,), False
        yield model + "post_attention_layernorm.weight", blk + "ffn_norm.weight", (HIDDEN,), False
        yield model + "mlp.gate_proj.weight", blk + "ffn_gate.weight", (INNER, HIDDEN), True
        yield model + "mlp.up_proj.weight", blk + "ffn_up.weight", (INNER, HIDDEN), True
        yield model + "mlp.down_proj.weight", blk + "ffn_down.weight", (HIDDEN, INNER), True
    yield "model.norm.weight", "output_norm.weight", (HIDDEN,), False


def elements(shape):
    count = 1
    for size in shape:
        count *= size
    return count


def random_matrix(seed, count, dtype):
    """Magnitudes from 2^-7 to 2^-5 with random signs: upper bytes from a table, lower bytes random."""
    generator = random.Random(seed)
    high = bytes((0x3c, 0xbc)[i & 1] if dtype == "bfloat16" else 0x20 | i & 0x87 for i in range(256))
    data = bytearray(2 * count)
    data[0::2] = generator.randbytes(count)
    data[1::2] = generator.randbytes(count).translate(high)
    return data


# Number, elements and bytes of a block, and the float16 values at fixed positions: scales that keep elements below 1.
BLOCKS = {"q4_0": (2, 32, 18, {0: 0x2000}), "q8_0": (8, 32, 34, {0: 0x1000}),
          "q4_k": (12, 256, 144, {0: 0x0c00, 2: 0x0c00}), "q6_k": (14, 256, 210, {208: 0x0400})}
DTYPES = ("bfloat16", "float16", "q8_0", "q4_0", "q4_k_m")


def block_type(name, dtype):
    """Type of a matrix; Q4_K_M has 6 bits in the head and in half of the value and down projections."""
    if dtype != "q4_k_m":
        return dtype
    layer = re.search(r"blk\.(\d+)\.(attn_v|ffn_down)", name)
    return "q6_k" if name == "token_embd.weight" or (layer and int(layer[1]) % 2 == 0) else "q4_k"


def random_blocks(seed, count, kind):
    _, elements_of_block, size, scales = BLOCKS[kind]
    blocks = count // elements_of_block
    data = bytearray(random.Random(seed).randbytes(blocks * size))
    for at, half in scales.items():
        for byte in (0, 1):
            data[at + byte::size] = bytes([half >> 8 * byte & 255]) * blocks
    return data


def byte_letters():
    """Returns the character that byte-level tokenizers use for each byte (GPT-2's table)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]


def vocabulary():
    """Bytes, then words of two, three and four letters, each a shorter word and a letter."""
    tokens, merges = byte_letters(), []
    for length in itertools.count(2):
        for letters in itertools.product(string.ascii_lowercase, repeat=length):
            word = "".join(letters)
            merges.append(f"{word[:-1]} {word[-1]}")
            tokens.append(word)
            if len(tokens) == NUM_TOKENS:
                return tokens, merges


def write_tokenizer(path, tokens, merges):
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    path.write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": NUM_TOKENS, "content": END, "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True}],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": False}, byte_level]},
        "post_processor": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                  "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges}}, ensure_ascii=False))


def write_config(path, num_layers, dtype):
    path.write_text(json.dumps({
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": HIDDEN, "head_dim": HEAD_DIM,
        "intermediate_size": INNER, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
        "num_hidden_layers": num_layers, "vocab_size": VOCAB, "max_position_embeddings": CONTEXT,
        "rms_norm_eps": EPS, "rope_theta": THETA, "tie_word_embeddings": True, "attention_bias": False,
        "hidden_act": "silu", "torch_dtype": dtype, "eos_token_id": NUM_TOKENS, "bos_token_id": NUM_TOKENS}, indent=1))


def write_safetensors(path, num_layers, dtype):
    header, at = {}, 0
    for name, _, shape, _ in tensors(num_layers):
        end = at + 2 * elements(shape)
        header[name] = {"dtype": {"bfloat16": "BF16", "float16": "F16"}[dtype], "shape": shape,
                        "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    one = struct.pack("<H", {"bfloat16": 0x3f80, "float16": 0x3c00}[dtype])
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, _, shape, is_matrix in tensors(num_layers):
            file.write(random_matrix(name, elements(shape), dtype) if is_matrix else one * elements(shape))


# GGUF's types of values and tensors (its specification, version 3).
U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5
TENSOR_TYPES = {"float32": 0, "float16": 1, "bfloat16": 30}
NORMAL, CONTROL, UNUSED = 1, 3, 5  # token types


def gguf_string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_value(key, kind, value):
    packed = {U32: lambda: struct.pack("<I", value), F32: lambda: struct.pack("<f", value),
              BOOL: lambda: struct.pack("<?", value), STRING: lambda: gguf_string(value)}[kind]()
    return gguf_string(key) + struct.pack("<I", kind) + packed


def gguf_strings(key, values):
    return gguf_string(key) + struct.pack("<IIQ", ARRAY, STRING, len(values)) + b"".join(map(gguf_string, values))


def write_gguf(path, num_layers, dtype, tokens, merges):
    rest = VOCAB - NUM_TOKENS - 1
    kinds = [NORMAL] * NUM_TOKENS + [CONTROL] + [UNUSED] * rest
    values = [
        gguf_value("general.architecture", STRING, "qwen3"), gguf_value("general.name", STRING, "random"),
        gguf_value("qwen3.block_count", U32, num_layers), gguf_value("qwen3.context_length", U32, CONTEXT),
        gguf_value("qwen3.embedding_length", U32, HIDDEN), gguf_value("qwen3.feed_forward_length", U32, INNER),
        gguf_value("qwen3.attention.head_count", U32, HEADS),
        gguf_value("qwen3.attention.head_count_kv", U32, KV_HEADS),
        gguf_value("qwen3.attention.key_length", U32, HEAD_DIM),
        gguf_value("qwen3.attention.value_length", U32, HEAD_DIM),
        gguf_value("qwen3.attention.layer_norm_rms_epsilon", F32, EPS),
        gguf_value("qwen3.rope.freq_base", F32, THETA), gguf_value("qwen3.vocab_size", U32, VOCAB),
        gguf_value("tokenizer.ggml.model", STRING, "gpt2"), gguf_value("tokenizer.ggml.pre", STRING, "qwen2"),
        gguf_strings("tokenizer.ggml.tokens", tokens + [END] + [f"[PAD{i}]" for i in range(rest)]),
        gguf_string("tokenizer.ggml.token_type") + struct.pack(f"<IIQ{VOCAB}i", ARRAY, I32, VOCAB, *kinds),
        gguf_strings("tokenizer.ggml.merges", merges),
        gguf_value("tokenizer.ggml.eos_token_id", U32, NUM_TOKENS),
        gguf_value("tokenizer.ggml.bos_token_id", U32, NUM_TOKENS),
        gguf_value("tokenizer.ggml.add_bos_token", BOOL, False)]
    infos, at = [], 0
    for _, name, shape, is_matrix in tensors(num_layers):
        kind = block_type(name, dtype) if is_matrix else "float32"
        if kind in BLOCKS:
            number, elements_of_block, block_bytes, _ = BLOCKS[kind]
            size = elements(shape) // elements_of_block * block_bytes
        else:
            number, size = TENSOR_TYPES[kind], elements(shape) * (2 if is_matrix else 4)
        infos.append(gguf_string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), number, at))
        at += size + -size % 32
    with open(path, "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(values)) + b"".join(values) + b"".join(infos))
        file.write(bytes(-file.tell() % 32))
        for name, gguf_name, shape, is_matrix in tensors(num_layers):
            kind = block_type(gguf_name, dtype)
            file.write(struct.pack("<f", 1.0) * elements(shape) if not is_matrix
                       else random_blocks(name, elements(shape), kind) if kind in BLOCKS
                       else random_matrix(name, elements(shape), dtype))
            file.write(bytes(-file.tell() % 32))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="qwen3-0.6b")
    parser.add_argument("--layers", type=int, help="default: that of the shape")
    parser.add_argument("--dtype", choices=DTYPES, default="bfloat16")
    args = parser.parse_args()
    globals().update(zip(NAMES, SHAPES[args.shape]))
    args.layers = args.layers or LAYERS
    args.out.mkdir(parents=True, exist_ok=True)
    tokens, merges = vocabulary()
    if args.dtype in ("bfloat16", "float16"):
        write_tokenizer(args.out / "tokenizer.json", tokens, merges)
        write_config(args.out / "config.json", args.layers, args.dtype)
        write_safetensors(args.out / "model.safetensors", args.layers, args.dtype)
    # Renamed when complete, so that a partial file is never used.
    write_gguf(args.out / "model.gguf.part", args.layers, args.dtype, tokens, merges)
    (args.out / "model.gguf.part").rename(args.out / "model.gguf")


if __name__ == "__main__":
    main()
