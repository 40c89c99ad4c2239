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
import contextlib
import json
import math
import pathlib
import shutil
import tempfile

import torch
from golden_cases import CASES
from golden_configs import EOS
from quantize import quantize
from safetensors.torch import load_file, save_file
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
)

GREEDY_TOKENS = 16
# A greedy choice is safe when the runner-up is this far below, relative to the largest logit.
MIN_MARGIN = 0.01
# float32 must agree with float64 this well, or a tolerance of 1e-4 would test luck.
MAX_ROUNDING = 1e-5
# In every layer with experts the last one that a prompt's token chooses leads the first that it does not
# by so much, in parts of the largest router logit: more than 16-bit models are off by.
MIN_ROUTER_MARGIN = 0.05
CANDIDATES = 16  # for a token of such a prompt, at once
# A continuation that repeats one token would pass by accident.
MIN_DISTINCT = 4


def random_weight(name, shape, config, generator):
    """Weights that show errors: sharp attention, spread logits, no norm weight 1, no bias 0.

    The usual 0.02 would make attention nearly uniform, and a wrong mask or rope would hide.
    Tied embeddings stay below what the layers add, or the model only repeats its last token.
    """
    noise = torch.randn(shape, generator=generator)
    gemma = config.model_type.startswith("gemma")
    if name.endswith("e_score_correction_bias"):
        return 0.2 * noise
    if name.endswith("bias"):
        return 0.5 * noise
    # Gemma stores what is added to 1.
    stored_one = 0.0 if gemma else 1.0
    if name.endswith(("q_norm.weight", "k_norm.weight")):
        return stored_one + 0.4 + 0.3 * noise
    if name.endswith("norm.weight"):
        return stored_one + 0.3 * noise
    if name.endswith("embed_tokens.weight"):
        scale = 0.3 if config.tie_word_embeddings else 1.0
        # Gemma multiplies the embedding by sqrt(hidden_size).
        return scale * noise / (math.sqrt(shape[-1]) if gemma else 1.0)
    # As large as the scores they stand beside.
    if name.endswith("sinks"):
        return 2.0 * noise
    sharp = ("q_proj.weight", "q_b_proj.weight", "k_proj.weight", "mlp.gate.weight", "router.weight")
    gain = 1.5 if name.endswith(sharp) else 1.0
    # Experts that share a tensor have their input features first.
    in_features = shape[-2] if len(shape) == 3 and config.model_type in FUSED_EXPERTS else shape[-1]
    return gain * noise / math.sqrt(in_features)


def stored_name(name, prefixes):
    """The name by which the file has a tensor."""
    for begin, stored in prefixes:
        if name.startswith(begin):
            return stored + name.removeprefix(begin)
    return name


# Model types whose files have all experts in one tensor, as transformers has them in memory.
FUSED_EXPERTS = ("gpt_oss", "llama4_text")
# The same with input features first in the file, and output features first in memory.
TRANSPOSED_EXPERTS = ("qwen3_vl_moe",)
# How files call what transformers keeps as mlp.gate and, of all experts in one tensor, as
# mlp.experts.gate_up_proj and mlp.experts.down_proj.
QWEN_NAMES = ("mlp.", "mlp.experts", ("gate_proj", "up_proj", "down_proj"))
MIXTRAL_NAMES = ("block_sparse_moe.", "block_sparse_moe.experts", ("w1", "w3", "w2"))
EXPERT_NAMES = {
    "deepseek_v2": QWEN_NAMES,
    "deepseek_v3": QWEN_NAMES,
    "dots1": QWEN_NAMES,
    "glm4_moe": QWEN_NAMES,
    "glm4_moe_lite": QWEN_NAMES,
    "minimax_m2": MIXTRAL_NAMES,
    "mixtral": MIXTRAL_NAMES,
    "olmoe": QWEN_NAMES,
    "qwen3_moe": QWEN_NAMES,
}


def has_experts(config):
    return config.model_type in (*EXPERT_NAMES, *FUSED_EXPERTS, *TRANSPOSED_EXPERTS)


def published_tensors(name, weight, config):
    """The tensors of the file, by name: those of experts one by one."""
    if config.model_type in TRANSPOSED_EXPERTS and ".mlp.experts." in name:
        return {name: weight.transpose(1, 2).contiguous()}
    if config.model_type not in EXPERT_NAMES:
        return {name: weight}
    mlp, experts, (gate, up, down) = EXPERT_NAMES[config.model_type]
    if name.endswith("mlp.gate.weight"):
        return {name.replace("mlp.", mlp): weight}
    if ".mlp.experts." not in name:
        return {name: weight}
    layer, fused = name.split(".mlp.experts.")
    tensors = {}
    for index, expert in enumerate(weight):
        parts = zip((gate, up), expert.chunk(2)) if fused == "gate_up_proj" else [(down, expert)]
        for part, tensor in parts:
            tensors[f"{layer}.{experts}.{index}.{part}.weight"] = tensor.contiguous()
    return tensors


def model_class(config):
    """What transformers generates text with: models of images too have a class of their own."""
    causal = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
    return AutoModelForCausalLM if causal else AutoModelForImageTextToText


def make_weights(config_json, dtype, seed, prefixes, extra):
    """Random tensors under the names transformers saves them by (no lm_head when it is tied)."""
    config = AutoConfig.for_model(**config_json)
    with torch.device("meta"):
        skeleton = model_class(config).from_config(config)
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, parameter in skeleton.named_parameters():
        weight = random_weight(name, tuple(parameter.shape), config, generator).to(dtype)
        weights |= published_tensors(stored_name(name, prefixes), weight, config)
    # What corrects a router's choice is no parameter, and in float32 whatever the weights are.
    for name, buffer in skeleton.named_buffers():
        if name.endswith("e_score_correction_bias"):
            correction = random_weight(name, tuple(buffer.shape), config, generator)
            weights[name.replace("mlp.", EXPERT_NAMES[config.model_type][0], 1)] = correction
    for name, shape in extra.items():
        weights[name] = random_weight(name, shape, config, generator).to(dtype)
    return weights


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


@contextlib.contextmanager
def reference_of(folder, case, seed):
    """The folder that transformers computes goldens from: the case's own or, of a quantized one, its twin in
    float32, which holds what the codes stand for. Writes the weights of both.
    """
    weights = make_weights(case.config, case.dtype, seed, case.prefixes, case.extra)
    if case.scheme is None:
        write_weights(folder, weights, case.num_files)
        yield folder
        return
    generator = torch.Generator().manual_seed(seed + 2)
    stored, twin = quantize(weights, case.scheme, case.plain, generator)
    write_weights(folder, stored, case.num_files)
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        (directory / "config.json").write_text(json.dumps(case.config) + "\n")
        write_weights(directory, twin, 1)
        yield directory


def load(folder, dtype):
    """Loads the folder as a user would. Eager attention: the mask is a plain matrix. Eager experts
    know float64.
    """
    config = AutoConfig.from_pretrained(folder)
    implementations = {"experts_implementation": "eager"} if has_experts(config) else {}
    return model_class(config).from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", **implementations
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


def write_rounding(folder, truth):
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
            logits = load(truth, dtype)(input_ids=ids).logits[0].float()
            error = (logits - expected).abs().max() / expected.abs().max()
            errors[name].append(float(f"{error.item():.3g}"))
    (folder / "rounding.json").write_text(json.dumps(errors) + "\n")


# Which of what a router returns its logits are, where they are not the first.
ROUTER_LOGITS = {"Llama4Router": 1}
ROUTERS = ("topkrouter", "llama4router")


def choice_margins(router, bias, logits, top_k):
    """By how much the least of the chosen leads the best of the others, among groups of experts and among the
    experts of the chosen groups, in parts of the largest number that is compared."""
    ranks = logits if bias is None else logits.sigmoid() + bias
    lead = torch.full(ranks.shape[:-1], math.inf)
    num_groups = getattr(router, "num_group", None) or 1
    if num_groups > 1:
        by_group = ranks.unflatten(-1, (num_groups, -1))
        groups = by_group.topk(1 if bias is None else 2, -1).values.sum(-1)
        top = groups.topk(router.topk_group + 1).values
        lead = top[..., -2] - top[..., -1]
        outside = groups < top[..., -2, None]
        ranks = by_group.masked_fill(outside[..., None], -math.inf).flatten(-2)
    top = ranks.topk(top_k + 1).values
    lead = lead.minimum(top[..., -2] - top[..., -1])
    return lead / ranks[ranks.isfinite()].abs().max()


def router_margins(model, ids):
    """Of the last token of each row: by how much the least of the chosen experts leads, in the
    layer where that is least."""
    logits = []
    hooks = [
        module.register_forward_hook(
            lambda router, given, output: logits.append(
                (
                    router,
                    # MiniMax's router is given what others hold.
                    given[1] if len(given) > 1 else getattr(router, "e_score_correction_bias", None),
                    output[ROUTER_LOGITS.get(type(router).__name__, 0)],
                )
            )
        )
        for module in model.modules()
        if type(module).__name__.lower().endswith(ROUTERS)
    ]
    model(input_ids=ids, use_cache=False)
    for hook in hooks:
        hook.remove()
    margins = []
    top_k = model.config.get_text_config().num_experts_per_tok
    for router, bias, layer in logits:
        layer = layer.view(*ids.shape, -1)
        margins.append(choice_margins(router, bias, layer, top_k)[:, -1])
    return torch.stack(margins).amin(0)


def draw_prompt(folder, vocab_size, length, generator):
    """A random prompt; of a model with experts one whose choices of experts are safe."""
    model = load(folder, torch.float32)
    if not has_experts(model.config):
        return torch.randint(2, vocab_size, (length,), generator=generator).tolist()
    prompt = []
    while len(prompt) < length:
        last = torch.randint(2, vocab_size, (CANDIDATES, 1), generator=generator)
        ids = torch.cat([torch.tensor(prompt, dtype=torch.long).expand(CANDIDATES, -1), last], 1)
        safe = (router_margins(model, ids) >= MIN_ROUTER_MARGIN).nonzero()
        if len(safe) > 0:
            prompt.append(last[safe[0, 0], 0].item())
        elif prompt:
            prompt.pop()
    return prompt


def make_prompt(folder, vocab_size, length, generator):
    """Draws prompts until greedy decoding is safe; returns the prompt's golden tensors.

    Every try loads the model anew, because dynamic rope keeps state in the model.
    """
    for _ in range(1000):
        prompt = draw_prompt(folder, vocab_size, length, generator)
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
    config = case.config
    if case.scheme is not None:
        config = config | {"quantization_config": case.scheme.config}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    generator = torch.Generator().manual_seed(seed + 1)
    golden = {}
    vocab_size = case.config.get("text_config", case.config)["vocab_size"]
    # What stands for parts of images.
    last = vocab_size - 3 if "text_config" in case.config else vocab_size
    with reference_of(folder, case, seed) as truth:
        for index, length in enumerate(case.lengths):
            tensors = make_prompt(truth, last, length, generator)
            golden.update({f"prompt.{index}.{name}": tensor for name, tensor in tensors.items()})
        save_file(golden, folder / "golden.safetensors")
        write_rounding(folder, truth)


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
            seed = 1000 * number + 7
            if not arguments.rounding:
                make_case(arguments.out / name, case, seed)
                continue
            with reference_of(arguments.out / name, case, seed) as truth:
                write_rounding(arguments.out / name, truth)


if __name__ == "__main__":
    main()
