#!/usr/bin/env python3
"""Writes tests/goldens: tiny random models with the logits Hugging Face transformers computes.

Each case is a folder that looks like a published model (config.json, model.safetensors) with
the truth beside it (golden.safetensors). attend's tests load the folder as they would load any
model and compare. The cases are in golden_cases.py.

    pip install torch transformers safetensors
    python3 scripts/make_goldens.py                    # all cases
    python3 scripts/make_goldens.py llama-gqa4-hd32    # one case
    python3 scripts/make_goldens.py --rounding         # rounding.json alone, of goldens that are there

The config is written first and the model is then loaded from the folder, so the goldens
are what transformers makes of exactly the files that are committed.
"""

import argparse
import json
import math
import pathlib
import shutil

import torch
from golden_cases import CASES, EOS
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

GREEDY_TOKENS = 16
# A greedy choice is safe when the runner-up is this far below, relative to the largest logit.
MIN_MARGIN = 0.01
# float32 must agree with float64 this well, or a tolerance of 1e-4 would test luck.
MAX_ROUNDING = 1e-5
# A continuation that repeats one token would pass by accident.
MIN_DISTINCT = 4


def random_weight(name, shape, tied, generator):
    """Weights that show errors: sharp attention, spread logits, no norm weight 1, no bias 0.

    The usual 0.02 would make attention nearly uniform, and a wrong mask or rope would hide.
    Tied embeddings stay below what the layers add, or the model only repeats its last token.
    """
    noise = torch.randn(shape, generator=generator)
    if name.endswith("bias"):
        return 0.5 * noise
    if name.endswith(("q_norm.weight", "k_norm.weight")):
        return 1.4 + 0.3 * noise
    if name.endswith("norm.weight"):
        return 1.0 + 0.3 * noise
    if name.endswith("embed_tokens.weight"):
        return 0.3 * noise if tied else noise
    gain = 1.5 if name.endswith(("q_proj.weight", "k_proj.weight")) else 1.0
    return gain * noise / math.sqrt(shape[-1])


def make_weights(config_json, dtype, seed):
    """Random tensors under the names transformers saves them by (no lm_head when it is tied)."""
    config = AutoConfig.for_model(**config_json)
    with torch.device("meta"):
        skeleton = AutoModelForCausalLM.from_config(config)
    generator = torch.Generator().manual_seed(seed)
    tied = config.tie_word_embeddings
    return {
        name: random_weight(name, tuple(parameter.shape), tied, generator).to(dtype)
        for name, parameter in skeleton.named_parameters()
    }


def write_weights(folder, weights, num_files):
    """One model.safetensors, or num_files shards with the index that names each tensor's file."""
    if num_files == 1:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names = sorted(weights)
    weight_map = {}
    for shard in range(num_files):
        file = f"model-{shard + 1:05d}-of-{num_files:05d}.safetensors"
        members = {name: weights[name] for name in names[shard::num_files]}
        save_file(members, folder / file, metadata={"format": "pt"})
        weight_map.update({name: file for name in members})
    total = sum(weight.nbytes for weight in weights.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def load(folder, dtype):
    """Loads the folder as a user would. Eager attention: the mask is a plain matrix."""
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager"
    ).eval()


def next_tokens(model, prompt):
    """Greedy continuation with a KV cache; also the smallest relative margin of its choices."""
    ids = torch.tensor([prompt])
    cache = None
    greedy, margin = [], math.inf
    for _ in range(GREEDY_TOKENS):
        step = model(input_ids=ids, past_key_values=cache, use_cache=True)
        cache = step.past_key_values
        logits = step.logits[0, -1]
        top = logits.topk(2)
        margin = min(margin, ((top.values[0] - top.values[1]) / logits.abs().max()).item())
        greedy.append(top.indices[0].item())
        ids = top.indices[:1].view(1, 1)
    return greedy, margin


def recomputed_greedy(folder, prompt, greedy):
    """The same continuation from one forward over prompt and answer, without a cache.

    It differs from next_tokens only where rope depends on the length (dynamic); a prompt is
    kept when both agree, so that it does not matter when a key was rotated.
    """
    model = load(folder, torch.float32)
    logits = model(input_ids=torch.tensor([prompt + greedy[:-1]]), use_cache=False).logits[0]
    return logits[len(prompt) - 1 :].argmax(-1).tolist()


def rounding(folder, prompt, logits):
    """How far float32 is from float64, relative to the largest logit."""
    exact = load(folder, torch.float64)(input_ids=torch.tensor([prompt])).logits[0]
    return ((logits.double() - exact).abs().max() / exact.abs().max()).item()


def write_rounding(folder):
    """rounding.json: for each 16-bit dtype and prompt, how far transformers computing in that dtype
    is from the goldens, relative to the largest logit. What a 16-bit model may be off by.
    """
    golden = load_file(folder / "golden.safetensors")
    errors = {}
    for dtype in (torch.float16, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        errors[name] = []
        for index in range(sum(key.endswith(".logits") for key in golden)):
            ids = golden[f"prompt.{index}.input_ids"].long()[None]
            expected = golden[f"prompt.{index}.logits"]
            logits = load(folder, dtype)(input_ids=ids).logits[0].float()
            error = (logits - expected).abs().max() / expected.abs().max()
            errors[name].append(float(f"{error.item():.3g}"))
    (folder / "rounding.json").write_text(json.dumps(errors) + "\n")


def make_prompt(folder, vocab_size, length, generator):
    """Draws prompts until greedy decoding is safe; returns the prompt's golden tensors.

    Every try loads the model anew, because dynamic rope keeps state in the model.
    """
    for _ in range(1000):
        prompt = torch.randint(2, vocab_size, (length,), generator=generator).tolist()
        greedy, margin = next_tokens(load(folder, torch.float32), prompt)
        if margin < MIN_MARGIN or EOS in greedy or len(set(greedy)) < MIN_DISTINCT:
            continue
        if recomputed_greedy(folder, prompt, greedy) != greedy:
            continue
        logits = load(folder, torch.float32)(input_ids=torch.tensor([prompt])).logits[0]
        error = rounding(folder, prompt, logits)
        if error > MAX_ROUNDING:
            continue
        print(f"  length {length:3}: margin {margin:.3f}, float32 rounding {error:.1e}", flush=True)
        return {
            "input_ids": torch.tensor(prompt, dtype=torch.int32),
            "logits": logits.contiguous(),
            "greedy": torch.tensor(greedy, dtype=torch.int32),
        }
    raise SystemExit(f"{folder.name}: no prompt of length {length} with a safe greedy continuation")


def make_case(folder, case, seed):
    """Writes one folder anew: config, weights, then the goldens computed from those files."""
    print(folder.name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(case.config, indent=2) + "\n")
    write_weights(folder, make_weights(case.config, case.dtype, seed), case.num_files)
    generator = torch.Generator().manual_seed(seed + 1)
    golden = {}
    for index, length in enumerate(case.lengths):
        tensors = make_prompt(folder, case.config["vocab_size"], length, generator)
        golden.update({f"prompt.{index}.{name}": tensor for name, tensor in tensors.items()})
    save_file(golden, folder / "golden.safetensors")
    write_rounding(folder)


def main():
    parser = argparse.ArgumentParser(description="Writes the golden models of tests/goldens.")
    parser.add_argument("cases", nargs="*", help="cases to write (default: all)")
    parser.add_argument(
        "--rounding", action="store_true", help="write rounding.json only, of goldens that are there"
    )
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/goldens"))
    arguments = parser.parse_args()
    unknown = set(arguments.cases) - set(CASES)
    if unknown:
        parser.error(f"unknown case {sorted(unknown)}; known: {', '.join(CASES)}")
    with torch.inference_mode():
        for number, (name, case) in enumerate(CASES.items()):
            if arguments.cases and name not in arguments.cases:
                continue
            if arguments.rounding:
                write_rounding(arguments.out / name)
            else:
                make_case(arguments.out / name, case, seed=1000 * number + 7)


if __name__ == "__main__":
    main()
