#!/usr/bin/env python3
"""Writes the goldens of LoRA adapters: tests/goldens/lora/BASE/ADAPTER, tiny random adapters of the models in tests/goldens,
as PEFT saves them, with the log probabilities and answers that PEFT computes.

    pip install torch transformers safetensors peft
    python3 scripts/make_lora_goldens.py         # all cases
    python3 scripts/make_lora_goldens.py BASE    # the adapters of one model
    python3 scripts/make_lora_goldens.py --rounding    # only rounding.json, of the adapters that exist

golden.safetensors has, for each prompt of the base model: `prompt.I.logprobs`, float32, of its tokens after the first one,
and `prompt.I.greedy`, the answer up to the first token that the next likely one nearly equals. rounding.json has PEFT's largest
error of these log probabilities in 16 bits.
"""

import argparse
import contextlib
import json
import pathlib
import shutil
import tempfile

import torch
from golden_cases import CASES
from make_goldens import GREEDY_TOKENS, MIN_MARGIN, load, reference_of
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

NUM_PROMPTS = 4
MIN_GREEDY = 6  # tokens of the shortest answer

# By base model and name of the adapter: arguments of LoraConfig and, if it is not float32, the dtype of the tensors.
ADAPTERS = {
    # Layers with a tensor each.
    "llama-gqa4-hd32": {
        "rank1-list": {"r": 1, "lora_alpha": 2, "target_modules": ["q_proj", "v_proj"]},
        "all-linear": {"r": 8, "lora_alpha": 12, "target_modules": "all-linear"},
        "patterns": {
            "r": 6,
            "lora_alpha": 6,
            "use_rslora": True,
            "target_modules": r"model\.layers\.\d+\.(self_attn\.(k|o)_proj|mlp\..*_proj)",
            "rank_pattern": {r"layers\.1\.mlp\..*": 3, r"layers\.\d\.mlp\.up_proj": 20},
            "alpha_pattern": {"o_proj": 9},
        },
        "one-layer": {"r": 33, "lora_alpha": 8.5, "target_modules": ["o_proj"], "layers_to_transform": [1]},
    },
    # q, k and v in one tensor, gate and up too.
    "phi3-partial-window": {"fused": {"r": 5, "lora_alpha": 5, "target_modules": "all-linear"}},
    # Transposed weights, names without the prefix of the module.
    "gpt2-bare-names": {
        "transposed": {
            "r": 3,
            "lora_alpha": 6,
            "target_modules": ["c_attn", "c_proj", "c_fc"],
            "fan_in_fan_out": True,
        }
    },
    # Rows of q, k and v by head.
    "gpt-neox-sequential": {"by-head": {"r": 4, "lora_alpha": 4, "target_modules": "all-linear"}},
    # A decoder within a model of images, with the names of older files.
    "gemma3-multimodal": {
        "nested": {"r": 4, "lora_alpha": 8, "target_modules": r".*language_model.*\.(q_proj|v_proj|down_proj)"}
    },
    # A base and adapters in 16 bits.
    "llama-bf16": {
        "bfloat16": {"r": 16, "lora_alpha": 16, "target_modules": "all-linear", "dtype": torch.bfloat16},
        "float16": {"r": 2, "lora_alpha": 4, "target_modules": ["down_proj"], "dtype": torch.float16},
    },
    # Recurrent layers, and latent attention without kv_b_proj.
    "qwen3-5-text-tied": {"gated-delta": {"r": 4, "lora_alpha": 4, "target_modules": "all-linear"}},
    "lfm2-conv": {
        "convolution": {"r": 4, "lora_alpha": 4, "target_modules": ["in_proj", "out_proj", "q_proj", "w1"]}
    },
    "bamba-mamba2": {"mamba": {"r": 4, "lora_alpha": 4, "target_modules": ["in_proj", "k_proj", "down_proj"]}},
    "falcon-h1-norm-first": {
        "both-mixers": {"r": 4, "lora_alpha": 4, "target_modules": ["in_proj", "q_proj", "o_proj", "up_proj"]}
    },
    "deepseek-v3": {
        "latent": {
            "r": 4,
            "lora_alpha": 4,
            "target_modules": ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "o_proj"],
        }
    },
    # Quantized bases.
    "qwen2-gptq-act-order": {"int4": {"r": 8, "lora_alpha": 8, "target_modules": "all-linear"}},
    "qwen3-fp8-blocks": {"fp8": {"r": 8, "lora_alpha": 8, "target_modules": "all-linear"}},
}


@contextlib.contextmanager
def base_folder(name):
    """Returns the folder that transformers computes goldens from: a float32 copy of a quantized model."""
    folder = pathlib.Path("tests/goldens") / name
    if CASES[name].scheme is None:
        yield folder
        return
    stored = load_file(folder / "model.safetensors")
    for number in range(len(CASES)):  # the case's number when its model was written
        with tempfile.TemporaryDirectory() as copy:
            with reference_of(pathlib.Path(copy), CASES[name], 1000 * number + 7) as truth:
                made = load_file(pathlib.Path(copy) / "model.safetensors")
                if all(torch.equal(tensor, made[key]) for key, tensor in stored.items()):
                    yield truth
                    return
    raise SystemExit(f"{name}: no seed gives the weights of model.safetensors")


def randomize(model, dtype, seed):
    """Changes layers about as much as their weights do: PEFT's own B is zero."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if ".lora_" not in name:
            continue
        width = parameter.shape[1] if ".lora_A." in name else 2.0 * parameter.shape[1] ** 0.5
        noise = torch.randn(parameter.shape, generator=generator) / width**0.5
        parameter.data = noise.to(dtype).float()


def greedy_of(model, prompt):
    """Returns the answer up to the first unsafe choice."""
    ids = list(prompt)
    for _ in range(GREEDY_TOKENS):
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]
        top = logits.topk(2)
        if (top.values[0] - top.values[1]) / logits.abs().max() < MIN_MARGIN:
            break
        ids.append(top.indices[0].item())
    return ids[len(prompt) :]


def logprobs_of(model, prompt):
    logits = model(input_ids=torch.tensor([prompt]), use_cache=False).logits[0].float()
    return logits.log_softmax(-1)[:-1].gather(1, torch.tensor(prompt[1:]).long()[:, None])[:, 0].contiguous()


def prompts_of(base):
    golden = load_file(pathlib.Path("tests/goldens") / base / "golden.safetensors")
    return [golden[f"prompt.{index}.input_ids"].tolist() for index in range(NUM_PROMPTS)]


def write_rounding(base, folder, truth):
    expected = load_file(folder / "golden.safetensors")
    errors = {}
    for dtype in (torch.float16, torch.bfloat16):
        model = PeftModel.from_pretrained(load(truth, dtype), folder, autocast_adapter_dtype=False).to(dtype).eval()
        of_prompts = [
            (logprobs_of(model, prompt) - expected[f"prompt.{index}.logprobs"]).abs().max().item()
            for index, prompt in enumerate(prompts_of(base))
            if len(prompt) > 1
        ]
        errors[str(dtype).removeprefix("torch.")] = float(f"{max(of_prompts):.3g}")
    (folder / "rounding.json").write_text(json.dumps(errors) + "\n")
    print(f"{base}/{folder.name}: {errors}", flush=True)


def goldens_of(model, prompts):
    golden = {}
    for index, prompt in enumerate(prompts):
        greedy = greedy_of(model, prompt)
        if len(greedy) < MIN_GREEDY:
            return None
        if len(prompt) > 1:
            golden[f"prompt.{index}.logprobs"] = logprobs_of(model, prompt)
        golden[f"prompt.{index}.greedy"] = torch.tensor(greedy, dtype=torch.int32)
    return golden


def make_adapter(base, folder, truth, arguments):
    arguments = dict(arguments)
    dtype = arguments.pop("dtype", torch.float32)
    prompts = prompts_of(base)
    for seed in range(1000):
        model = get_peft_model(load(truth, torch.float32), LoraConfig(task_type="CAUSAL_LM", **arguments))
        randomize(model, dtype, seed)
        if (golden := goldens_of(model.eval(), prompts)) is not None:
            break
    else:
        raise SystemExit(f"{folder}: no adapter with safe answers")
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = base
    # PEFT writes lists of names in no fixed order.
    if isinstance(config["target_modules"], list):
        config["target_modules"].sort()
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n")
    file = folder / "adapter_model.safetensors"
    save_file({name: tensor.to(dtype) for name, tensor in load_file(file).items()}, file, metadata={"format": "pt"})
    save_file(golden, folder / "golden.safetensors")
    print(f"{base}/{folder.name}: seed {seed}, {file.stat().st_size} bytes", flush=True)


def main():
    parser = argparse.ArgumentParser(description="Writes the golden adapters of tests/goldens/lora.")
    parser.add_argument("bases", nargs="*", help="models whose adapters are written (default: all)")
    parser.add_argument("--rounding", action="store_true", help="write only rounding.json of adapters that exist")
    arguments = parser.parse_args()
    for base, adapters in ADAPTERS.items():
        if arguments.bases and base not in arguments.bases:
            continue
        with base_folder(base) as truth, torch.no_grad():
            for name, options in adapters.items():
                folder = pathlib.Path("tests/goldens/lora") / base / name
                if not arguments.rounding:
                    make_adapter(base, folder, truth, options)
                write_rounding(base, folder, truth)


if __name__ == "__main__":
    main()
