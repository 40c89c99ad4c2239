#!/usr/bin/env python3
"""Writes tests/goldens: tiny random models with the logits that Hugging Face transformers computes.

Each case is a folder in the form of a published model (config.json, model.safetensors) with its
expected results (golden.safetensors). attend's tests load the folder like any other model and
compare. The cases are in golden_cases/.

    pip install torch transformers safetensors
    python3 scripts/make_goldens.py                    # all cases
    python3 scripts/make_goldens.py llama-gqa4-hd32    # one case
    python3 scripts/make_goldens.py --rounding         # only rounding.json of existing goldens

The config is written first and the model is then loaded from the folder, so the goldens
are what transformers computes from exactly the committed files.
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
# A greedy choice is safe if the second-best logit is lower by this margin, relative to the largest logit.
MIN_MARGIN = 0.01
# float32 must agree with float64 to this precision; otherwise a tolerance of 1e-4 would depend on luck.
MAX_ROUNDING = 1e-5
# In every layer with experts, the last selected expert of a prompt's token leads the first unselected one by this
# margin, relative to the largest router logit. It is larger than the error of 16-bit models.
MIN_ROUTER_GAP = 0.05
CANDIDATES = 16  # per token of such a prompt, in one batch
# A continuation that repeats a single token would match by accident.
MIN_DISTINCT = 4


def random_weight(name, shape, config, generator):
    """Returns weights that expose errors: sharp attention, spread logits, no norm weight of 1, no bias of 0.

    The usual 0.02 would make attention nearly uniform and hide a wrong mask or rope. Tied
    embeddings are smaller than the layers' outputs, or the model would only repeat its last token.
    """
    noise = torch.randn(shape, generator=generator)
    gemma = config.model_type.startswith("gemma")
    gemma4 = config.model_type.startswith("gemma4")
    zero_centered = (gemma and not gemma4) or (
        config.model_type.startswith(ZERO_CENTERED) or config.model_type == "nemotron"
    )
    if gemma4 and (weight := random_gemma4_weight(name, shape, noise)) is not None:
        return weight
    # Rates and steps of published models: a recurrent state outlives a prompt.
    if name.endswith("A_log"):
        return torch.empty(shape).uniform_(0.05, 2.0, generator=generator).log()
    if name.endswith("dt_bias"):
        return torch.empty(shape).uniform_(-7.0, -2.3, generator=generator).exp().expm1().log()
    if name.endswith(("e_score_correction_bias", "expert_bias")):
        # Scores of a softmax are small.
        return (0.05 if config.model_type == "ernie4_5_moe" else 0.2) * noise
    if name.endswith("bias"):
        return 0.5 * noise
    # Norm weights minus 1, except those of gated norms and of the final norm of MuseGlimmer.
    plain = name.endswith(("linear_attn.norm.weight", "language_model.norm.weight"))
    stored_one = 0.0 if zero_centered and not plain else 1.0
    if name.endswith(Q_AND_K_NORMS) or "_layernorm.norms." in name:
        return stored_one + 0.4 + 0.3 * noise
    if name.endswith(("norm.weight", "norm_f.weight", "ln_1.weight", "ln_2.weight", "ln_f.weight")):
        return stored_one + 0.3 * noise
    if name.endswith(EMBEDDINGS):
        scale = 0.3 if config.tie_word_embeddings else 1.0
        # Gemma multiplies the embedding by sqrt(hidden_size).
        return scale * noise / (math.sqrt(shape[-1]) if gemma else 1.0)
    # Same magnitude as the scores.
    if name.endswith("sinks"):
        return 2.0 * noise
    sharp = (
        *("q_proj.weight", "q_b_proj.weight", "k_proj.weight"),
        *(".gate.weight", "router.weight", ".wg.weight"),
    )
    gain = 1.5 if name.endswith(sharp) else 1.0
    # Experts that share a tensor have their input features first.
    in_features = shape[-2] if len(shape) == 3 and config.model_type in FUSED_EXPERTS else shape[-1]
    return gain * noise / math.sqrt(in_features)


Q_AND_K_NORMS = tuple(
    f"{name}.weight"
    for name in ("q_norm", "k_norm", "q_layernorm", "k_layernorm", "query_layernorm", "key_layernorm")
)


def random_gemma4_weight(name, shape, noise):
    """Returns a weight that has no counterpart in other models, or None. Scores are not scaled, so the norms of q and k
    make them sharp for heads of any size. The router's input is divided by sqrt(hidden_size)."""
    if name.endswith(("q_norm.weight", "k_norm.weight")):
        return 1.4 * (1.0 + 0.3 * noise) / shape[-1] ** 0.25
    if name.endswith(("layer_scalar", "router.scale", "per_expert_scale")):
        return 0.8 + 0.2 * noise.clamp(-2.0, 2.0)
    if name.endswith(("layernorm_1.weight", "layernorm_2.weight")):
        return 1.0 + 0.3 * noise
    if name.endswith("router.proj.weight"):
        return 1.5 * noise
    return None


# Ends of names of tables by token or position.
EMBEDDINGS = tuple(f"{name}.weight" for name in ("embed_tokens", "embeddings", "wte", "wpe", "embed_in", "embed_positions"))
# Begins of model types that store norm weights minus 1, like Gemma.
ZERO_CENTERED = ("qwen3_next", "qwen3_5", "muse_glimmer")
# Ends of names of parameters that are float32 in files of any dtype.
IN_FLOAT32 = ("A_log", "dt_bias", "e_score_correction_bias")
# Ends of names of constants in files.
CONSTANTS = {"act_fn.beta": 0.5, "act_fn.eps": -1e-6}


def stored_name(name, prefixes):
    """Returns the name of a tensor in the file."""
    for begin, stored in prefixes:
        if name.startswith(begin):
            return stored + name.removeprefix(begin)
    return name


# Model types with all experts in one tensor in the file, as in transformers' memory.
FUSED_EXPERTS = ("gpt_oss", "llama4_text")
# The same, but with input features first in the file and output features first in memory.
TRANSPOSED_EXPERTS = ("qwen3_vl_moe",)
# All experts in one tensor, output features first, in the file as in memory.
STACKED_EXPERTS = ("qwen3_5_moe", "mistral4")
# Names in files of the modules that transformers stores as mlp.gate and, for all experts in one tensor, as
# mlp.experts.gate_up_proj and mlp.experts.down_proj.
QWEN_NAMES = ("mlp.", "mlp.experts", ("gate_proj", "up_proj", "down_proj"))
LFM2_NAMES = ("feed_forward.", "feed_forward.experts", ("w1", "w3", "w2"))
MIXTRAL_NAMES = ("block_sparse_moe.", "block_sparse_moe.experts", ("w1", "w3", "w2"))
EXPERT_NAMES = {
    "cohere2_moe": QWEN_NAMES,
    "deepseek_v2": QWEN_NAMES,
    "deepseek_v3": QWEN_NAMES,
    "deepseek_v32": QWEN_NAMES,
    "dots1": QWEN_NAMES,
    "ernie4_5_moe": QWEN_NAMES,
    "exaone_moe": QWEN_NAMES,
    "glm4_moe": QWEN_NAMES,
    "glm4_moe_lite": QWEN_NAMES,
    "glm_moe_dsa": QWEN_NAMES,
    "hunyuan_v1_moe": QWEN_NAMES,
    "hy_v3": QWEN_NAMES,
    "kimi_k25": QWEN_NAMES,
    "kimi_linear": MIXTRAL_NAMES,
    "laguna": QWEN_NAMES,
    "lfm2_moe": LFM2_NAMES,
    "mimo_v2_flash": QWEN_NAMES,
    "minimax_m2": MIXTRAL_NAMES,
    "mixtral": MIXTRAL_NAMES,
    "olmoe": QWEN_NAMES,
    "phimoe": MIXTRAL_NAMES,
    "qwen2_moe": QWEN_NAMES,
    "qwen3_moe": QWEN_NAMES,
    "qwen3_next": QWEN_NAMES,
}
MLP_WEIGHTS = ("gate_proj.weight", "up_proj.weight", "down_proj.weight")
GRANITE_NAMES = {
    "experts.gate_up_proj": "input_linear.weight",
    "experts.down_proj": "output_linear.weight",
    "router.weight": "router.layer.weight",
}
# Ends of names in transformers' memory, and those in files.
RENAMED = {
    "ernie4_5_moe": {
        "gate.moe_statics.e_score_correction_bias": "moe_statics.e_score_correction_bias"
    },
    "exaone_moe": {"gate.e_score_correction_bias": "e_score_correction_bias"},
    "granitemoe": GRANITE_NAMES,
    "granitemoehybrid": GRANITE_NAMES,
    "granitemoeshared": GRANITE_NAMES,
    "hy_v3": {
        "mlp.gate.weight": "mlp.router.gate.weight",
        "mlp.e_score_correction_bias": "mlp.expert_bias",
        **{f"shared_experts.{part}": f"shared_mlp.{part}" for part in MLP_WEIGHTS},
    },
    "laguna": {
        "gate.e_score_correction_bias": "experts.e_score_correction_bias",
        **{f"shared_experts.{part}": f"shared_expert.{part}" for part in MLP_WEIGHTS},
    },
    "mimo_v2_flash": {"self_attn.sinks": "self_attn.attention_sink_bias"},
    "phimoe": {"mlp.router.weight": "block_sparse_moe.gate.weight"},
    "kimi_linear": {
        f"{module}.{part}": f"{file}.{part}"
        for module, file, parts in (
            ("self_attn.forget_gate", "self_attn", ("A_log", "dt_bias", "f_a_proj.weight", "f_b_proj.weight")),
            ("mlp.shared_experts", "block_sparse_moe.shared_experts", MLP_WEIGHTS),
        )
        for part in parts
    },
}
# Models whose first layer has no length in the cache, from which transformers derives missing positions.
WITH_POSITIONS = ("bamba", "falcon_h1", "granitemoehybrid")


# Model types with a convolution each of q, k and v in files, and their channels.
SPLIT_CONVOLUTIONS = {
    "kimi_linear": lambda config: [config.linear_num_heads * config.linear_head_dim] * 3,
    "olmo_hybrid": lambda config: [
        config.linear_num_key_heads * config.linear_key_head_dim,
        config.linear_num_key_heads * config.linear_key_head_dim,
        config.linear_num_value_heads * config.linear_value_head_dim,
    ],
}


def olmo_hybrid_name(name, config):
    """Returns the stored name: linear layers have other names of norms than layers with attention."""
    parts = name.split(".")
    if parts[1] == "layers" and config.layer_types[int(parts[2])] == "linear_attention":
        name = name.replace("input_layernorm", "attention_layer_norm")
        name = name.replace("post_attention_layernorm", "feedforward_layer_norm")
    return name


def has_experts(config):
    if config.model_type == "nemotron_h":
        return "moe" in config.layers_block_type
    if config.model_type.startswith("granitemoe"):
        return config.num_local_experts > 0
    if config.model_type.startswith("gemma4"):
        return getattr(config.get_text_config(), "enable_moe_block", False)
    return config.model_type in (*EXPERT_NAMES, *FUSED_EXPERTS, *TRANSPOSED_EXPERTS, *STACKED_EXPERTS)


def renamed_tensor(name, config):
    """Returns the name according to RENAMED."""
    for memory, file in RENAMED.get(config.model_type, {}).items():
        if name.endswith(memory):
            return name.removesuffix(memory) + file
    return name


def published_tensors(name, weight, config):
    """Returns the tensors of the file by name, with separate tensors per expert."""
    if config.model_type in TRANSPOSED_EXPERTS and ".mlp.experts." in name:
        return {name: weight.transpose(1, 2).contiguous()}
    if (renamed := renamed_tensor(name, config)) != name:
        return {renamed: weight}
    if config.model_type in SPLIT_CONVOLUTIONS and name.endswith(".conv1d.weight"):
        layer = name.removesuffix("conv1d.weight")
        parts = zip("qkv", weight.split(SPLIT_CONVOLUTIONS[config.model_type](config)))
        return {f"{layer}{part}_conv1d.weight": tensor.contiguous() for part, tensor in parts}
    if config.model_type == "olmo_hybrid":
        return {olmo_hybrid_name(name, config): weight}
    if config.model_type == "nemotron_h" and ".experts." in name:
        experts, part = name.rsplit(".", 1)
        return {f"{experts}.{i}.{part}.weight": expert.contiguous() for i, expert in enumerate(weight)}
    if config.model_type not in EXPERT_NAMES:
        return {name: weight}
    mlp, experts, (gate, up, down) = EXPERT_NAMES[config.model_type]
    module = "feed_forward." if config.model_type == "lfm2_moe" else "mlp."
    if name.endswith(module + "gate.weight"):
        return {name.replace(module, mlp): weight}
    if f".{module}experts." not in name:
        return {name: weight}
    layer, fused = name.split(f".{module}experts.")
    tensors = {}
    for index, expert in enumerate(weight):
        parts = zip((gate, up), expert.chunk(2)) if fused == "gate_up_proj" else [(down, expert)]
        for part, tensor in parts:
            tensors[f"{layer}.{experts}.{index}.{part}.weight"] = tensor.contiguous()
    return tensors


def model_class(config):
    """Returns transformers' class for text generation; models with images have a separate class."""
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
        weight = random_weight(name, tuple(parameter.shape), config, generator)
        weight = weight if name.endswith(IN_FLOAT32) else weight.to(dtype)
        weights |= published_tensors(stored_name(name, prefixes), weight, config)
    # The correction of a router's choice is a buffer, and always float32.
    for name, buffer in skeleton.named_buffers():
        if name.endswith("layer_scalar"):
            scalar = random_weight(name, tuple(buffer.shape), config, generator)
            weights[stored_name(name, prefixes)] = scalar.to(dtype)
        if name.endswith(("e_score_correction_bias", "expert_bias")):
            correction = random_weight(name, tuple(buffer.shape), config, generator)
            mlp, *_ = EXPERT_NAMES.get(config.model_type, ("mlp.",))
            stored = renamed_tensor(name, config).replace("mlp.", mlp, 1)
            weights[stored_name(stored, prefixes)] = correction
        for ending, value in CONSTANTS.items():
            if name.endswith(ending):
                weights[stored_name(name, prefixes)] = torch.tensor(value, dtype=dtype)
    for name, shape in extra.items():
        weights[name] = random_weight(name, shape, config, generator).to(dtype)
    return weights


def write_weights(folder, weights, num_files):
    """Writes one model.safetensors, or num_files shards with an index."""
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
    """Returns the folder that transformers computes goldens from: the case's own or, for a quantized model, a float32 copy
    with dequantized weights. Writes the weights of both.
    """
    weights = make_weights(case.config, case.dtype, seed, case.prefixes, case.extra)
    if case.scheme is None:
        write_weights(folder, weights, case.num_files)
        yield folder
        return
    generator = torch.Generator().manual_seed(seed + 2)
    stored, dequantized = quantize(weights, case.scheme, case.plain, generator)
    write_weights(folder, stored, case.num_files)
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        (directory / "config.json").write_text(json.dumps(case.config) + "\n")
        write_weights(directory, dequantized, 1)
        yield directory


def load(folder, dtype):
    """Loads the folder as a user would. Eager attention uses a plain matrix as mask; eager experts
    support float64.
    """
    config = AutoConfig.from_pretrained(folder)
    implementations = {"experts_implementation": "eager"} if has_experts(config) else {}
    return model_class(config).from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", **implementations
    ).eval()


def next_tokens(model, prompt):
    """Returns a greedy continuation with a KV cache, and the smallest relative margin of its choices."""
    ids = torch.tensor([prompt])
    cache = None
    greedy, margin = [], math.inf
    for _ in range(GREEDY_TOKENS):
        positions = {}
        if model.config.model_type in WITH_POSITIONS:
            end = len(prompt) + len(greedy)
            positions = {"position_ids": torch.arange(end - ids.shape[1], end)[None]}
        step = model(input_ids=ids, past_key_values=cache, use_cache=True, **positions)
        # transformers 5.24 renames the field.
        cache = step.get("cache") or step.get("past_key_values")
        logits = step.logits[0, -1]
        top = logits.topk(2)
        margin = min(margin, ((top.values[0] - top.values[1]) / logits.abs().max()).item())
        greedy.append(top.indices[0].item())
        ids = top.indices[:1].view(1, 1)
    return greedy, margin


def recomputed_greedy(folder, prompt, greedy):
    """Returns the same continuation from one forward pass over prompt and answer, without a cache.

    It differs from next_tokens only if rope depends on the length (dynamic). A prompt is kept if
    both agree, so that the time at which a key is rotated does not matter.
    """
    model = load(folder, torch.float32)
    logits = model(input_ids=torch.tensor([prompt + greedy[:-1]]), use_cache=False).logits[0]
    return logits[len(prompt) - 1 :].argmax(-1).tolist()


def rounding(folder, prompt, logits):
    """Returns the difference between float32 and float64, relative to the largest logit."""
    exact = load(folder, torch.float64)(input_ids=torch.tensor([prompt])).logits[0]
    return ((logits.double() - exact).abs().max() / exact.abs().max()).item()


def write_rounding(folder, truth, largest=False):
    """Writes rounding.json: for each 16-bit dtype and prompt, the difference between transformers in that
    dtype and the goldens, relative to the largest logit. It is the tolerance of a 16-bit model. `largest`: see Case.
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
    if largest:
        errors = {name: [max(errors["bfloat16"])] * len(of_dtype) for name, of_dtype in errors.items()}
    (folder / "rounding.json").write_text(json.dumps(errors) + "\n")


# Index of the logits among a router's outputs, if not 0.
ROUTER_LOGITS = {"Llama4Router": 1}
ROUTERS = ("topkrouter", "llama4router", "gemma4textrouter", "hunyuanmoev1gate")


def selection_gap(router, bias, logits, top_k):
    """Returns the gap between the last selected and the first unselected choice, among groups of experts and among the
    experts of the selected groups, relative to the largest compared value."""
    ranks = logits if bias is None else logits.sigmoid() + bias
    if hasattr(router, "moe_statics"):
        ranks = router.moe_statics(logits.softmax(-1))
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


def min_router_gap(model, ids):
    """Returns for the last token of each row the smallest gap of the selected experts over all
    layers."""
    logits = []
    hooks = [
        module.register_forward_hook(
            lambda router, given, output: logits.append(
                (
                    router,
                    # MiniMax's router receives the bias as an argument.
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
    gaps = []
    text = model.config.get_text_config()
    top_k = getattr(text, "num_experts_per_tok", None) or text.top_k_experts
    top_k = top_k if isinstance(top_k, list) else [top_k] * len(logits)
    for (router, bias, layer), top_k_here in zip(logits, top_k, strict=True):
        layer = layer.view(*ids.shape, -1)
        gaps.append(selection_gap(router, bias, layer, top_k_here)[:, -1])
    return torch.stack(gaps).amin(0)


def draw_prompt(folder, vocab_size, length, generator):
    """Returns a random prompt; for a model with experts, one with safe choices of experts."""
    model = load(folder, torch.float32)
    if not has_experts(model.config):
        return torch.randint(2, vocab_size, (length,), generator=generator).tolist()
    prompt = []
    while len(prompt) < length:
        last = torch.randint(2, vocab_size, (CANDIDATES, 1), generator=generator)
        ids = torch.cat([torch.tensor(prompt, dtype=torch.long).expand(CANDIDATES, -1), last], 1)
        safe = (min_router_gap(model, ids) >= MIN_ROUTER_GAP).nonzero()
        if len(safe) > 0:
            prompt.append(last[safe[0, 0], 0].item())
        elif prompt:
            prompt.pop()
    return prompt


def make_prompt(folder, vocab_size, length, generator):
    """Draws prompts until greedy decoding is safe; returns the prompt's golden tensors.

    Every attempt loads the model again, because dynamic rope keeps state in the model.
    """
    for _ in range(1000):
        prompt = draw_prompt(folder, vocab_size, length, generator)
        greedy, margin = next_tokens(load(folder, torch.float32), prompt)
        if margin < MIN_MARGIN or EOS in greedy or len(set(greedy)) < MIN_DISTINCT:
            continue
        # Placeholders of images, which are no text.
        if max(greedy) >= vocab_size:
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
    """Writes one folder from scratch: config, weights, then the goldens computed from those files."""
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
    # Tokens for parts of images.
    last = vocab_size - 3 if "text_config" in case.config else vocab_size
    with reference_of(folder, case, seed) as truth:
        for index, length in enumerate(case.lengths):
            tensors = make_prompt(truth, last, length, generator)
            golden.update({f"prompt.{index}.{name}": tensor for name, tensor in tensors.items()})
        save_file(golden, folder / "golden.safetensors")
        write_rounding(folder, truth, case.largest_rounding)


def main():
    parser = argparse.ArgumentParser(description="Writes the golden models of tests/goldens.")
    parser.add_argument("cases", nargs="*", help="cases to write (default: all)")
    parser.add_argument(
        "--rounding", action="store_true", help="write only rounding.json of existing goldens"
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
                write_rounding(arguments.out / name, truth, case.largest_rounding)


if __name__ == "__main__":
    main()
