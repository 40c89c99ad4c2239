"""Dense models: head dims, GQA ratios, ropes, windows, biases, norms, dtypes."""

import torch
from golden_configs import (
    Case,
    config_of,
    gemma2,
    gemma3,
    gemma3_multimodal,
    glm4,
    llama,
    mistral,
    olmo2,
    phi3,
    qwen2,
    qwen3,
    seed_oss,
)

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
    # head_dim is implied (hidden_size / num_attention_heads), and so is num_key_value_heads (MHA).
    "llama-rope-linear": Case(
        llama(
            hidden_size=64,
            num_attention_heads=2,
            rope_scaling={"type": "linear", "factor": 4.0},
        )
    ),
    # Decoding after 58 tokens exceeds max_position_embeddings; 130 starts beyond it.
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
    # Form of transformers 5: one dict contains theta and the scaling; dtype instead of torch_dtype.
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
    # sliding_window must be null in the file, since transformers uses 4096 if it is missing.
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
    # attention_bias is implied (true), and so are attention_out_bias (false) and num_key_value_heads (8).
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
    # layer_types is implied: layers 0 and 2 have a sliding window. Caps are small enough to change scores and logits.
    "gemma2-caps-window": Case(
        gemma2(
            num_hidden_layers=4,
            attn_logit_softcapping=3.0,
            final_logit_softcapping=2.0,
        ),
        lengths=(1, 16, 17, 130),
    ),
    # No caps, an lm_head and biases; layer_types lists the sliding layers, theta is in rope_parameters.
    "gemma2-no-caps": Case(
        gemma2(
            num_hidden_layers=3,
            attention_bias=True,
            tie_word_embeddings=False,
            rope_theta=None,
            rope_parameters={"rope_type": "default", "rope_theta": 500.0},
            layer_types=["full_attention", "sliding_attention", "sliding_attention"],
        )
        | {"attn_logit_softcapping": None, "final_logit_softcapping": None}
    ),
    # Keys of transformers 4: sliding layers have their own theta and no scaling.
    "gemma3-local-rope": Case(
        gemma3(
            num_hidden_layers=4,
            sliding_window_pattern=3,
            rope_theta=1000000.0,
            rope_local_base_freq=1000.0,
            rope_scaling={"rope_type": "linear", "factor": 8.0},
            attn_logit_softcapping=1.0,
            final_logit_softcapping=2.0,
        ),
        lengths=(1, 16, 17, 130),
    ),
    # Keys of transformers 5: one rope per type of layer.
    "gemma3-layer-ropes": Case(
        gemma3(
            num_hidden_layers=3,
            rope_theta=None,
            rope_parameters={
                "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 50000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
            },
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        )
    ),
    # As published: sparse text_config, "language_model.model." and a vision tower in the file.
    "gemma3-multimodal": Case(
        gemma3_multimodal(
            rope_theta=None,
            num_hidden_layers=2,
            layer_types=["sliding_attention", "full_attention"],
            rope_scaling={"rope_type": "linear", "factor": 8.0},
            query_pre_attn_scalar=None,
            tie_word_embeddings=None,
        ),
        prefixes=(
            ("model.language_model.", "language_model.model."),
            ("model.vision_tower.", "vision_tower."),
            ("model.multi_modal_projector.", "multi_modal_projector."),
        ),
    ),
    # Decoding after 30 tokens crosses the original length; 60 and 130 start beyond it.
    "phi3-longrope": Case(
        phi3(
            hidden_size=64,
            num_attention_heads=2,
            num_key_value_heads=1,
            original_max_position_embeddings=32,
            rope_scaling={
                "type": "longrope",
                "short_factor": [1.0 + 0.02 * i for i in range(16)],
                "long_factor": [1.0 + 0.5 * i for i in range(16)],
            },
        ),
        lengths=(1, 30, 60, 130),
    ),
    # Three quarters of each head are rotated; every layer has a sliding window; no longrope; MHA by default.
    "phi3-partial-window": Case(
        phi3(
            hidden_size=64,
            num_attention_heads=2,
            partial_rotary_factor=0.75,
            sliding_window=16,
            tie_word_embeddings=True,
        ),
        lengths=(1, 16, 17, 130),
    ),
    "olmo2-post-norms": Case(
        olmo2(hidden_size=64, num_attention_heads=4, num_key_value_heads=2)
    ),
    # Biases of q, k and v, and half of each head rotated in neighboring pairs, both by default.
    "glm4-interleaved-rope": Case(
        glm4(
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            rms_norm_eps=1.5625e-7,
        )
    ),
    "ministral-some-layers-slide": Case(
        config_of(
            "MinistralForCausalLM",
            "ministral",
            hidden_size=64,
            head_dim=32,
            num_hidden_layers=3,
            num_attention_heads=2,
            num_key_value_heads=1,
            sliding_window=16,
            layer_types=["full_attention", "sliding_attention", "full_attention"],
        )
    ),
    "qwen3-some-layers-slide": Case(
        qwen3(
            hidden_size=48,
            num_hidden_layers=3,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            use_sliding_window=True,
            sliding_window=16,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        )
    ),
    # sqrt(hidden_size) is 8 in every dtype.
    "gemma2-bf16": Case(
        gemma2(hidden_size=64, torch_dtype="bfloat16"),
        dtype=torch.bfloat16,
    ),
}
