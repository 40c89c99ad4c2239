#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets from the repository's models, goldens and texts.

    make_fuzz_seeds.py FOLDER      makes FOLDER/{safetensors_header,config,tokenizer,text,chat_template,prompts}/
"""

import json
import pathlib
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = [ROOT / "models/attend-tiny", *sorted((ROOT / "tests/goldens").iterdir())]
TOKENIZERS = sorted(path.parent for path in (ROOT / "tests/data/tokenizers").glob("*/tokenizer.json"))


def safetensors_headers():
    """The header of each file behind the length of its data (see fuzz_safetensors_header.cc)."""
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


def shortest(header, count):
    """The first tensors by their place, so that what is left is a whole file."""
    tensors = {name: tensor for name, tensor in header.items() if name != "__metadata__"}
    first = sorted(tensors, key=lambda name: tensors[name]["data_offsets"])[:count]
    return {name: tensors[name] for name in first}


def configs():
    for model in MODELS:
        if (model / "config.json").exists():
            yield model.name, with_neighbour(model, "config.json", "generation_config.json")


def tokenizers():
    for folder in TOKENIZERS:
        yield folder.name, with_neighbour(folder, "tokenizer.json", "tokenizer_config.json")
        small = smaller(json.loads((folder / "tokenizer.json").read_text()))
        yield f"{folder.name}-small", json.dumps(small).encode()
        for field, seed in growing(small):
            yield f"{folder.name}-{field}-grows", seed


def growing(tokenizer):
    """Steps that multiply a text, as tokenizer.json has them."""
    replace = {"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaa"}
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "use_regex": False}
    for field, step in [("normalizer", replace), ("pre_tokenizer", byte_level), ("decoder", replace)]:
        steps = {"type": "Sequence", field.replace("_", "") + "s": [step] * 12}
        yield field, json.dumps(dict(tokenizer, **{field: steps})).encode()


def smaller(tokenizer):
    """The same layout with the added tokens and a handful of others: most of a file is alike."""
    vocab = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)[:8]
    tokenizer["model"]["vocab"] = {token: i for i, token in enumerate(vocab)}
    tokenizer["model"]["merges"] = []
    tokenizer["added_tokens"] = [
        dict(token, id=len(vocab) + i)
        for i, token in enumerate(t for t in tokenizer["added_tokens"] if t["content"] not in vocab)
    ]
    return tokenizer


def with_neighbour(folder, first, second):
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


def main():
    for name, seeds in [
        ("safetensors_header", safetensors_headers()),
        ("config", configs()),
        ("tokenizer", tokenizers()),
        ("text", texts()),
        ("chat_template", chat_templates()),
        ("prompts", prompts()),
    ]:
        folder = pathlib.Path(sys.argv[1]) / name
        folder.mkdir(parents=True, exist_ok=True)
        for seed, content in seeds:
            (folder / seed).write_bytes(content)


if __name__ == "__main__":
    main()
