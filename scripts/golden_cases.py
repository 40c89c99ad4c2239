"""The tiny random models of tests/goldens: config, prompts, and how the weights are stored.

A case exists because it holds one thing another case does not: a head dimension, a GQA ratio, a rope type, a bias, a
window, a way of storing weights. make_goldens.py writes them.
"""

import torch

EOS = 1

SEQUENCE_LENGTHS = (1, 7, 33, 130)

COMMON = {
    "bos_token_id": 0,
    "eos_token_id": EOS,
    "hidden_act": "silu",
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "use_cache": True,
}


def config_of(architecture, model_type, **changes):
    """A config.json as published models write it: COMMON, then what the case is about.

    A change to None removes the key, since a published config leaves out what it does not use.
    """
    config = {"architectures": [architecture], "model_type": model_type, **COMMON, **changes}
    return {key: value for key, value in config.items() if value is not None}


def llama(**changes):
    return config_of("LlamaForCausalLM", "llama", **changes)


def mistral(**changes):
    return config_of("MistralForCausalLM", "mistral", **changes)


def qwen2(**changes):
    return config_of("Qwen2ForCausalLM", "qwen2", **changes)


def qwen3(**changes):
    return config_of("Qwen3ForCausalLM", "qwen3", **changes)


def seed_oss(**changes):
    return config_of("SeedOssForCausalLM", "seed_oss", **changes)


class Case:
    """One folder: a config, the lengths of its prompts, and how its weights are stored."""

    def __init__(self, config, lengths=SEQUENCE_LENGTHS, dtype=torch.float32, num_files=1):
        self.config = config
        self.lengths = lengths
        self.dtype = dtype
        self.num_files = num_files


CASES = {
    "llama-gqa4-hd32": Case(
        llama(hidden_size=48, num_attention_heads=8, num_key_value_heads=2, head_dim=32)
    ),
    "llama-mha-hd64-tied": Case(
        llama(
            hidden_size=48,
            num_attention_heads=2,
            num_key_value_heads=2,
            head_dim=64,
            tie_word_embeddings=True,
        )
    ),
    "llama-rope-llama3": Case(
        llama(
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            rope_theta=500000.0,
            rope_scaling={
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            },
        )
    ),
    # head_dim stays implied (hidden_size / num_attention_heads) and num_key_value_heads too (MHA).
    "llama-rope-linear": Case(
        llama(
            hidden_size=64,
            num_attention_heads=2,
            rope_scaling={"type": "linear", "factor": 4.0},
        )
    ),
    # 58 grows past max_position_embeddings while it decodes; 130 starts beyond it.
    "llama-rope-dynamic": Case(
        llama(
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            max_position_embeddings=64,
            rope_scaling={"type": "dynamic", "factor": 2.0},
        ),
        lengths=(1, 33, 58, 130),
    ),
    "llama-rope-yarn": Case(
        llama(
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            rope_scaling={
                "rope_type": "yarn",
                "factor": 8.0,
                "original_max_position_embeddings": 32,
                "beta_fast": 16.0,
                "beta_slow": 2.0,
                "attention_factor": 1.5,
            },
        )
    ),
    # The form transformers 5 writes: one dict holds theta and the scaling; dtype, not torch_dtype.
    "llama-rope-parameters": Case(
        llama(
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            rope_theta=None,
            torch_dtype=None,
            dtype="float32",
            rope_parameters={
                "rope_type": "llama3",
                "rope_theta": 50000.0,
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        )
    ),
    "llama-biases": Case(
        llama(
            hidden_size=64,
            num_attention_heads=2,
            num_key_value_heads=1,
            attention_bias=True,
            mlp_bias=True,
        )
    ),
    "mistral-window-hd128": Case(
        mistral(
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=128,
            sliding_window=16,
        ),
        lengths=(1, 15, 16, 17, 130),
    ),
    # sliding_window must be null in the file: transformers takes a missing one for 4096.
    "mistral-full-hd80": Case(
        mistral(
            hidden_size=48,
            num_attention_heads=3,
            num_key_value_heads=1,
            head_dim=80,
        )
        | {"sliding_window": None}
    ),
    "qwen2-gqa7-hd64": Case(
        qwen2(
            hidden_size=28,
            num_attention_heads=7,
            num_key_value_heads=1,
            head_dim=64,
            rope_theta=1000000.0,
            rms_norm_eps=1e-6,
            use_sliding_window=False,
            sliding_window=16,
            max_window_layers=1,
        )
    ),
    "qwen2-some-layers-slide": Case(
        qwen2(
            hidden_size=64,
            num_hidden_layers=3,
            num_attention_heads=2,
            num_key_value_heads=1,
            use_sliding_window=True,
            sliding_window=16,
            max_window_layers=1,
            tie_word_embeddings=True,
        ),
        lengths=(1, 16, 17, 130),
    ),
    "qwen3-gqa2-hd128": Case(
        qwen3(
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=128,
            attention_bias=False,
            rope_theta=1000000.0,
            rms_norm_eps=1e-6,
            tie_word_embeddings=True,
        )
    ),
    "qwen3-gqa3-hd256": Case(
        qwen3(
            hidden_size=24,
            num_attention_heads=3,
            num_key_value_heads=1,
            head_dim=256,
            attention_bias=False,
            rms_norm_eps=1e-6,
        )
    ),
    "qwen3-yarn": Case(
        qwen3(
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            attention_bias=False,
            rms_norm_eps=1e-6,
            rope_scaling={
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        )
    ),
    # attention_bias stays implied (true), attention_out_bias too (false), and num_key_value_heads (8).
    "seed-oss-biases": Case(
        seed_oss(
            num_attention_heads=8,
            head_dim=32,
            mlp_bias=True,
        )
    ),
    "llama-f16": Case(
        llama(
            hidden_size=64,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            torch_dtype="float16",
        ),
        dtype=torch.float16,
    ),
    "llama-bf16": Case(
        llama(
            hidden_size=64,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            torch_dtype="bfloat16",
        ),
        dtype=torch.bfloat16,
    ),
    "llama-sharded": Case(
        llama(num_attention_heads=2, num_key_value_heads=1, head_dim=32), num_files=2
    ),
}
