#!/usr/bin/env python3
"""Writes tests/goldens/embed-*: tiny random embedding models with the vectors that transformers makes of prompts,
pooled, projected and normalised as their sentence-transformers files say.

    pip install torch transformers safetensors
    python3 scripts/make_embedding_goldens.py [CASE...]
"""

import argparse
import json
import pathlib
import shutil

import torch
from golden_cases import gemma3, qwen3
from make_goldens import random_weight
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel

LENGTHS = (1, 7, 33, 130)
ST = "sentence_transformers.models."


def qwen3_embedding():
    """Qwen3-Embedding's: a causal decoder under bare names, the last token, length 1."""
    config = qwen3(
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        rms_norm_eps=1e-6,
        attention_bias=False,
        tie_word_embeddings=True,
    )
    return {"config": config, "pooling": "lasttoken", "dense": (), "normalize": True}


def embedding_gemma():
    """EmbeddingGemma's: windows on both sides, the mean, two layers behind it, length 1."""
    config = gemma3(
        num_hidden_layers=3,
        rope_theta=1000000.0,
        rope_local_base_freq=1000.0,
        sliding_window=16,
        use_bidirectional_attention=True,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ) | {"architectures": ["Gemma3TextModel"]}
    return {"config": config, "pooling": "mean_tokens", "dense": ((48, 80), (80, 24)), "normalize": True}


def mean_as_it_is():
    """A causal decoder under full names, the mean, no normalisation; stored in bf16."""
    config = qwen3(
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        attention_bias=False,
        torch_dtype="bfloat16",
    )
    return {
        "config": config,
        "pooling": "mean_tokens",
        "dense": (),
        "normalize": False,
        "prefix": "model.",
        "dtype": torch.bfloat16,
    }


CASES = {
    "embed-qwen3-last": qwen3_embedding,
    "embed-gemma-mean-dense": embedding_gemma,
    "embed-qwen3-mean": mean_as_it_is,
}


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n")


def write_modules(folder, case):
    """modules.json and the folders it names."""
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    modes = ("cls_token", "mean_tokens", "max_tokens", "lasttoken")
    write_json(
        folder / "1_Pooling/config.json",
        {
            "word_embedding_dimension": case["config"]["hidden_size"],
            **{f"pooling_mode_{mode}": mode == case["pooling"] for mode in modes},
            "include_prompt": True,
        },
    )
    for inputs, outputs in case["dense"]:
        path = f"{len(modules)}_Dense"
        modules.append((path, "Dense"))
        write_json(
            folder / path / "config.json",
            {
                "in_features": inputs,
                "out_features": outputs,
                "bias": False,
                "activation_function": "torch.nn.modules.linear.Identity",
            },
        )
        save_file({"linear.weight": torch.randn(outputs, inputs) / inputs**0.5}, folder / path / "model.safetensors")
    if case["normalize"]:
        modules.append((f"{len(modules)}_Normalize", "Normalize"))
    entries = [
        {"idx": i, "name": str(i), "path": path, "type": f"{ST}{kind}"}
        for i, (path, kind) in enumerate(modules)
    ]
    write_json(folder / "modules.json", entries)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 160, "do_lower_case": False})


def embed(model, folder, case, ids):
    states = model(input_ids=ids[None]).last_hidden_state[0]
    vector = states.mean(0) if case["pooling"] == "mean_tokens" else states[-1]
    for path in sorted(folder.glob("*_Dense")):
        vector = load_file(path / "model.safetensors")["linear.weight"] @ vector
    return torch.nn.functional.normalize(vector, dim=0) if case["normalize"] else vector


def make_case(folder, case, seed):
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(seed)
    write_json(folder / "config.json", case["config"])
    config = AutoConfig.for_model(**case["config"])
    with torch.device("meta"):
        skeleton = AutoModel.from_config(config)
    generator = torch.Generator().manual_seed(seed)
    dtype = case.get("dtype", torch.float32)
    weights = {
        case.get("prefix", "") + name: random_weight(name, tuple(p.shape), config, generator).to(dtype)
        for name, p in skeleton.named_parameters()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    write_modules(folder, case)
    model = AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    golden = {}
    for index, length in enumerate(LENGTHS):
        ids = torch.randint(2, config.vocab_size, (length,), generator=generator)
        golden[f"prompt.{index}.input_ids"] = ids.int()
        golden[f"prompt.{index}.embedding"] = embed(model, folder, case, ids).contiguous()
    save_file(golden, folder / "golden.safetensors")


def main():
    parser = argparse.ArgumentParser(description="Writes the embedding models of tests/goldens.")
    parser.add_argument("cases", nargs="*", help="cases to write (default: all)")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/goldens"))
    arguments = parser.parse_args()
    with torch.inference_mode():
        for number, (name, make) in enumerate(CASES.items()):
            if not arguments.cases or name in arguments.cases:
                make_case(arguments.out / name, make(), seed=77 + number)


if __name__ == "__main__":
    main()
