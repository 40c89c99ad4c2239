#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets from the repository's models, goldens and texts.

    make_fuzz_seeds.py FOLDER      creates a folder of seeds in FOLDER for each target
"""

import json
import pathlib
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = [ROOT / "models/attend-tiny", *sorted((ROOT / "tests/goldens").iterdir())]
TOKENIZERS = sorted(path.parent for path in (ROOT / "tests/data/tokenizers").glob("*/tokenizer.json"))


def safetensors_headers():
    """The header of each file, preceded by the length of its data (see fuzz_safetensors_header.cc)."""
    for model in MODELS:
        if not model.is_dir():
            continue
        for path in sorted(model.glob("*.safetensors")):
            raw = path.read_bytes()
            (length,) = struct.unpack("<Q", raw[:8])
            header = raw[8 : 8 + length]
            yield f"{model.name}-{path.stem}", struct.pack("<Q", len(raw) - 8 - length) + header
            few = shortest(json.loads(header), 3)
            size = max(tensor["data_offsets"][1] for tensor in few.values())
            yield f"{model.name}-{path.stem}-few", struct.pack("<Q", size) + json.dumps(few).encode()


def gguf_headers():
    """Small files with every type of value and several types of tensors, preceded by the size of the first read (see
    fuzz_gguf_header.cc)."""

    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    values = [(kind, bytes(size)) for kind, size in enumerate([1, 1, 2, 2, 4, 4, 4, 1])] + [(kind, bytes(8)) for kind in (10, 11, 12)]
    values += [(8, text("llama")), (9, struct.pack("<IQ", 8, 2) + text("a") + text("")), (9, struct.pack("<IQ", 5, 2) + bytes(8))]
    fields = [text(f"key.{i}") + struct.pack("<I", kind) + value for i, (kind, value) in enumerate(values)]
    fields.append(text("general.alignment") + struct.pack("<II", 4, 64))
    # Extents, type and bytes of tensors: F32, Q4_0 and Q4_K.
    kinds = [((3, 2), 0, 24), ((32, 2), 2, 36), ((256,), 12, 144)]
    for version in (2, 3):
        for count in range(len(kinds) + 1):
            infos, data = b"", b""
            for i, (extents, kind, size) in enumerate(kinds[:count]):
                infos += text(f"blk.{i}.weight") + struct.pack(f"<I{len(extents)}QIQ", len(extents), *extents, kind, len(data))
                data += bytes(size + -size % 64)
            header = b"GGUF" + struct.pack("<IQQ", version, count, len(fields)) + b"".join(fields) + infos
            yield f"v{version}-{count}", bytes([count]) + header + bytes(-len(header) % 64) + data

    def number(name, value):
        return text(name) + struct.pack("<II", 4, value)

    def strings(name, values):
        return text(name) + struct.pack("<IIQ", 9, 8, len(values)) + b"".join(map(text, values))

    tokens = ["<unk>", "<s>", "a", "b", "ab", "\u2581"]
    for name in ["deepseek2", "gemma2", "gemma3", "glm4moe", "gpt-oss", "lfm2", "llama", "phi3", "qwen3moe"]:
        keys = ["block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
                "attention.head_count_kv", "attention.key_length", "attention.value_length", "attention.kv_lora_rank",
                "rope.dimension_count", "expert_count", "expert_used_count", "shortconv.l_cache"]
        kind = "llama" if name.startswith("g") else "gpt2"
        fields = [text("general.architecture") + struct.pack("<I", 8) + text(name)] + [number(f"{name}.{key}", 4) for key in keys]
        fields += [text(f"tokenizer.ggml.{key}") + struct.pack("<I", 8) + text(value) for key, value in [("model", kind), ("pre", "qwen2")]]
        fields += [strings("tokenizer.ggml.tokens", tokens), strings("tokenizer.ggml.merges", ["a b"])]
        fields.append(text("tokenizer.ggml.scores") + struct.pack("<IIQ6f", 9, 6, 6, 0, 0, -3, -2, -1, 0))
        fields.append(text("tokenizer.ggml.token_type") + struct.pack("<IIQ6i", 9, 5, 6, 2, 3, 1, 1, 1, 1))
        fields += [number("tokenizer.ggml.bos_token_id", 1), number("tokenizer.ggml.eos_token_id", 1)]
        info = text("token_embd.weight") + struct.pack("<I2QIQ", 2, 4, 6, 0, 0)
        header = b"GGUF" + struct.pack("<IQQ", 3, 1, len(fields)) + b"".join(fields) + info
        yield name, b"\xff" + header + bytes(-len(header) % 32) + bytes(96)


def shortest(header, count):
    """The first tensors by offset, so that the rest is a valid file."""
    tensors = {name: tensor for name, tensor in header.items() if name != "__metadata__"}
    first = sorted(tensors, key=lambda name: tensors[name]["data_offsets"])[:count]
    return {name: tensors[name] for name in first}


def configs():
    for model in MODELS:
        if (model / "config.json").exists():
            yield model.name, with_adjacent(model, "config.json", "generation_config.json")


def tokenizers():
    for folder in TOKENIZERS:
        yield folder.name, with_adjacent(folder, "tokenizer.json", "tokenizer_config.json")
        small = smaller(json.loads((folder / "tokenizer.json").read_text()))
        yield f"{folder.name}-small", json.dumps(small).encode()
        for field, seed in growing(small):
            yield f"{folder.name}-{field}-grows", seed


def growing(tokenizer):
    """Steps of a tokenizer.json that multiply a text."""
    replace = {"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaa"}
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "use_regex": False}
    for field, step in [("normalizer", replace), ("pre_tokenizer", byte_level), ("decoder", replace)]:
        steps = {"type": "Sequence", field.replace("_", "") + "s": [step] * 12}
        yield field, json.dumps(dict(tokenizer, **{field: steps})).encode()


def smaller(tokenizer):
    """The same layout with the added tokens and a few others, since most of a file is repetitive."""
    model = tokenizer["model"]
    if isinstance(model["vocab"], list):  # Unigram: tokens with scores
        model["vocab"] = model["vocab"][:8]
        vocab = [token for token, _ in model["vocab"]]
    else:
        vocab = sorted(model["vocab"], key=model["vocab"].get)[:8]
        model["vocab"] = {token: i for i, token in enumerate(vocab)}
        model["merges"] = []
    tokenizer["added_tokens"] = [
        dict(token, id=len(vocab) + i)
        for i, token in enumerate(t for t in tokenizer["added_tokens"] if t["content"] not in vocab)
    ]
    return tokenizer


def with_adjacent(folder, first, second):
    raw = (folder / first).read_bytes()
    return raw + b"\0" + (folder / second).read_bytes() if (folder / second).exists() else raw


def texts():
    for i, line in enumerate((ROOT / "tests/data/tokenizers/texts.jsonl").read_text().splitlines()):
        text = json.loads(line)
        yield f"{i}", bytes([i % 256]) + text.encode("utf-8", "surrogatepass")


def chat_templates():
    talk = json.dumps({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}]}).encode()
    for path in [*sorted((ROOT / "tests/data/chat_templates").glob("*.jinja")), ROOT / "models/attend-tiny/chat_template.jinja"]:
        yield path.stem, path.read_bytes()
        yield f"{path.stem}-talk", path.read_bytes() + b"\0" + talk


def prompts():
    yield "text", b"copy: a\nrecall: oak=5; oak=\n"
    yield "lines", b'{"prompt": "a", "answer": "b"}\n\n{"input_ids": [1, 2, 3]}\n'
    yield "marked", b'\xef\xbb\xbf{"prompt": "a"}\r\n{"prompt": "b", "more": 1, "temperature": 0.5, "n": 2, "stop": ["x"], "logit_bias": {"5": -1}}'
    yield "array", b'[{"prompt": "a"}, {"prompt": "b"}]'


def http_bodies():
    """Bodies preceded by a byte for path and mode (see fuzz_http_bodies.cc): clients that stay, leave, and are answered."""
    talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "copy: a [ sun fox ] b ->"}]
    choice = {"temperature": 0.7, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 3, "stop": ["fox", "\u20ac"], "n": 2,
              "frequency_penalty": 0.5, "presence_penalty": -0.5, "logit_bias": {"17": -100}, "min_tokens": 1}
    message_talk = [talk[1], {"role": "assistant", "content": [{"type": "text", "text": "x"}, {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "y", "is_error": True}, {"type": "text", "text": "z"}]}]
    message_tools = [{"name": "f", "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}]
    response_items = [{"role": "developer", "content": "a"}, {"role": "user", "content": [{"type": "input_text", "text": "b"}]},
                      {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "c"}]},
                      {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
                      {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "d"}]},
                      {"type": "custom_tool_call", "call_id": "c2", "name": "g", "input": "e"},
                      {"type": "custom_tool_call_output", "call_id": "c2", "output": "f"}]
    response_tools = [{"type": "function", "name": "f", "parameters": {"type": "object"}}, {"type": "custom", "name": "g"}]
    stream = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    bodies = {
        0: [
            {"messages": talk, "max_tokens": 4},
            {"messages": talk, **choice, **stream, "logprobs": True, "top_logprobs": 2, "model": "tiny"},
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a <|end|> b"}]}], "tools": [], "user": None},
            {"messages": [*talk, {"role": "assistant", "content": " sun"}], "continue_final_message": True, "rid": "mine",
             "chat_template_kwargs": {"a": 1}, "response_format": {"type": "text"}, "max_completion_tokens": 3},
        ],
        1: [
            {"prompt": "recall: oak=5; oak=", "max_tokens": 3},
            {"prompt": ["a", "b \u00e9"], **choice, **stream, "logprobs": 2, "echo": True},
            {"prompt": [[1, 2, 3], [4]], "stop_token_ids": [5], "ignore_eos": True, "cache_salt": "x", "priority": 1},
            {"prompt": [0, 1, 2], "best_of": 1, "suffix": None, "include_stop_str_in_output": True, "repetition_penalty": 1.1},
        ],
        2: [
            {"text": "copy: a", "sampling_params": {"max_new_tokens": 3, "temperature": 0}},
            {"input_ids": [[1, 2], [3]], "stream": True, "return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 2,
             "return_text_in_logprobs": True, "sampling_params": {**choice, "skip_special_tokens": False}},
            {"text": ["a", "b"], "rid": "mine", "extra_key": "k"},
        ],
        3: [{"prompt": "a b", "add_special_tokens": False}, {"messages": talk}],
        4: [{"tokens": [0, 5, 2111], "skip_special_tokens": False}],
        5: [{"rid": "mine"}, {"abort_all": True}],
        6: [
            {"messages": talk[1:], "max_tokens": 3},
            {"messages": talk[1:], "max_tokens": 3, "stream": True, "stop_sequences": ["fox"], "thinking": {"type": "adaptive"}},
            {"messages": message_talk, "max_tokens": 9, "system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}],
             "tools": message_tools, "tool_choice": {"type": "none"}},
        ],
        7: [{"messages": message_talk, "tools": message_tools, "tool_choice": {"type": "none"}}],
        8: [
            {"input": "copy: a", "max_output_tokens": 3},
            {"input": "a", "stream": True, "instructions": "Be brief.", "reasoning": {"effort": "low", "summary": "auto"}, "store": False,
             "include": ["message.output_text.logprobs", "reasoning.encrypted_content"], "top_logprobs": 2, "metadata": {"a": "b"}},
            {"input": response_items, "tools": response_tools, "tool_choice": "none", "text": {"format": {"type": "text"}, "verbosity": "low"}},
            {"input": [{"type": "item_reference", "id": "msg_0"}], "previous_response_id": "resp_0", "truncation": "auto"},
        ],
        9: [{"input": response_items, "tools": response_tools, "tool_choice": "none"}],
    }
    for path, some in bodies.items():
        for i, body in enumerate(some):
            for way in (0, 16, 0xE0):
                yield f"{path}-{i}-{way}", bytes([path | way]) + json.dumps(body, ensure_ascii=i % 2 == 0).encode()


def utf8_streams():
    """Valid and broken texts preceded by four bytes that define how they are split (see fuzz_utf8_stream.cc)."""
    texts = ["a \u00e9\u20ac\U0001f600 \"b\"\n" * 3, "\u00e2\u20ac\u00e2\n a", "\ufffd\ud7ff\U0010ffff"]
    broken = [b"\xe2\x82", b"\xf0\x9f\x98a\xc3\xc3\xa9", b"\xed\xa0\x80\xf4\x90\x80\x80\xc0\xaf", bytes(range(256))]
    for i, raw in enumerate([text.encode() for text in texts] + broken):
        for way in range(4):
            yield f"{i}-{way}", bytes([way, 100, way * 2, 50 * way]) + raw


def media(kind):
    for path in sorted((ROOT / "tests/data" / kind).iterdir()):
        if path.suffix != ".safetensors":
            yield path.name, path.read_bytes()


def main():
    for name, seeds in [
        ("safetensors_header", safetensors_headers()),
        ("gguf_header", gguf_headers()),
        ("config", configs()),
        ("tokenizer", tokenizers()),
        ("text", texts()),
        ("chat_template", chat_templates()),
        ("prompts", prompts()),
        ("http_bodies", http_bodies()),
        ("utf8_stream", utf8_streams()),
        ("image", media("images")),
        ("audio", media("audio")),
    ]:
        folder = pathlib.Path(sys.argv[1]) / name
        folder.mkdir(parents=True, exist_ok=True)
        for seed, content in seeds:
            (folder / seed).write_bytes(content)


if __name__ == "__main__":
    main()
