#!/usr/bin/env python3
"""Writes tests/goldens/embed-*: tiny random embedding models with the vectors that transformers computes for prompts,
pooled, projected and normalized as configured in their sentence-transformers files.

    pip install torch transformers safetensors
    python3 scripts/make_embedding_goldens.py [CASE...]
"""

import argparse
import json
import pathlib
import shutil

import torch
from golden_configs import gemma3, qwen3
from make_goldens import random_weight
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel

LENGTHS = (1, 7, 33, 130)
ST = "sentence_transformers.models."


def qwen3_embedding():
    """Qwen3-Embedding: a causal decoder without name prefix, last token, length 1."""
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
    """EmbeddingGemma: windows on both sides, mean, two layers after it, length 1."""
    config = gemma3(
        num_hidden_layers=3,
        rope_theta=1000000.0,
        rope_local_base_freq=1000.0,
        sliding_window=16,
        use_bidirectional_attention=True,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ) | {"architectures": ["Gemma3TextModel"]}
    return {"config": config, "pooling": "mean_tokens", "dense": ((48, 80), (80, 24)), "normalize": True}


def mean_without_normalize():
    """A causal decoder with full names, mean, no normalization; stored in bf16."""
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


def bert(**changes):
    return {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "vocab_size": 128,
        "hidden_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "intermediate_size": 80,
        "max_position_embeddings": 192,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "hidden_act": "gelu",
        "pad_token_id": 0,
    } | changes


def bert_mean():
    """all-MiniLM and e5: no name prefix, position ids among the weights, mean, length 1."""
    return {"config": bert(), "pooling": "mean_tokens", "dense": (), "normalize": True, "position_ids": True}


def bert_cls_tanh():
    """bge's pooling, with the tanh approximation of GELU, names with prefix bert., another eps, stored in f16."""
    config = bert(
        hidden_size=64,
        num_attention_heads=2,
        num_hidden_layers=2,
        hidden_act="gelu_new",
        layer_norm_eps=1e-5,
        type_vocab_size=1,
        torch_dtype="float16",
    )
    return {
        "config": config,
        "pooling": "cls_token",
        "dense": (),
        "normalize": False,
        "prefix": "bert.",
        "dtype": torch.float16,
    }


def roberta_mean():
    """all-distilroberta: positions start after the id of the padding token."""
    config = bert(
        model_type="roberta", architectures=["RobertaModel"], pad_token_id=1, type_vocab_size=1, layer_norm_eps=1e-5
    )
    return {"config": config, "pooling": "mean_tokens", "dense": (), "normalize": True}


CASES = {
    "embed-qwen3-last": qwen3_embedding,
    "embed-gemma-mean-dense": embedding_gemma,
    "embed-qwen3-mean": mean_without_normalize,
    "embed-bert-mean": bert_mean,
    "embed-bert-cls-tanh": bert_cls_tanh,
    "embed-roberta-mean": roberta_mean,
}


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n")


def write_modules(folder, case):
    """Writes modules.json and the folders that it names."""
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
    vector = {"mean_tokens": states.mean(0), "cls_token": states[0], "lasttoken": states[-1]}[case["pooling"]]
    for path in sorted(folder.glob("*_Dense")):
        vector = load_file(path / "model.safetensors")["linear.weight"] @ vector
    return torch.nn.functional.normalize(vector, dim=0) if case["normalize"] else vector


def decoder_name(name):
    """Returns a decoder's name of the same weight, from which random_weight() derives its scale."""
    for bert_name, other in (
        ("LayerNorm.", "norm."),
        ("_embeddings.", "_embed_tokens."),
        ("self.query.", "q_proj."),
        ("self.key.", "k_proj."),
    ):
        name = name.replace(bert_name, other)
    return name


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
        case.get("prefix", "") + name: random_weight(decoder_name(name), tuple(p.shape), config, generator).to(dtype)
        for name, p in skeleton.named_parameters()
    }
    if case.get("position_ids"):
        weights["embeddings.position_ids"] = torch.arange(case["config"]["max_position_embeddings"])[None]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    write_modules(folder, case)
    model = AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    golden = {}
    for index, length in enumerate(LENGTHS):
        ids = torch.randint(2, config.vocab_size, (length,), generator=generator)
        golden[f"prompt.{index}.input_ids"] = ids.int()
        golden[f"prompt.{index}.embedding"] = embed(model, folder, case, ids).contiguous()
    save_file(golden, folder / "golden.safetensors")


def write_cases(cases, write, first_seed, models):
    """Writes the cases named on the command line. `write`: function of a folder, a case and a seed."""
    parser = argparse.ArgumentParser(description=f"Writes the {models} of tests/goldens.")
    parser.add_argument("cases", nargs="*", help="cases to write (default: all)")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/goldens"))
    arguments = parser.parse_args()
    with torch.inference_mode():
        for number, (name, make) in enumerate(cases.items()):
            if not arguments.cases or name in arguments.cases:
                write(arguments.out / name, make(), seed=first_seed + number)


if __name__ == "__main__":
    write_cases(CASES, make_case, 77, "embedding models")
