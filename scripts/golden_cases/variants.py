"""Further architectures: some layers rotate, factors, images, norms of experts."""

import torch
from golden_configs import (
    Case,
    config_of,
    glm4_moe,
    glm4_moe_lite,
    granite,
    llama,
    ministral3,
    mistral3,
    qwen2_5_vl,
    qwen3_vl,
)

CASES = {
    # Gemma 1: one KV head of 16, hidden_act "gelu" means the tanh approximation; tied by default.
    "gemma-first": Case(
        config_of(
            "GemmaForCausalLM",
            "gemma",
            num_attention_heads=4,
            num_key_value_heads=1,
            head_dim=32,
            hidden_act="gelu",
            rms_norm_eps=1e-6,
            tie_word_embeddings=None,
        )
    ),
    "glm-interleaved-rope": Case(
        config_of(
            "GlmForCausalLM",
            "glm",
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            rms_norm_eps=1.5625e-7,
            pad_token_id=0,
        )
    ),
    # All elements of each head are rotated in neighboring pairs; tied by default.
    "ernie4-5-biases": Case(
        config_of(
            "Ernie4_5ForCausalLM",
            "ernie4_5",
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            use_bias=True,
            tie_word_embeddings=None,
            pad_token_id=0,
        )
    ),
    "internlm3-biases": Case(
        config_of(
            "InternLM3ForCausalLM",
            "internlm3",
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            qkv_bias=True,
            bias=True,
            pad_token_id=0,
        )
    ),
    # Layers 0, 1 and 2 have a sliding window and RoPE; layer 3 has neither.
    "exaone4-some-layers-rotate": Case(
        config_of(
            "Exaone4ForCausalLM",
            "exaone4",
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            sliding_window=16,
            sliding_window_pattern=4,
        ),
        lengths=(1, 16, 17, 130),
    ),
    # sliding_window null: every layer has RoPE and full attention.
    "exaone4-all-full": Case(
        config_of(
            "Exaone4ForCausalLM",
            "exaone4",
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            layer_types=["full_attention", "full_attention"],
        )
        | {"sliding_window": None}
    ),
    # Layer 1 has no RoPE (no_rope_layer_interval 2) and a sliding window; tied by default.
    "smollm3-some-layers-rotate": Case(
        config_of(
            "SmolLM3ForCausalLM",
            "smollm3",
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            no_rope_layer_interval=2,
            use_sliding_window=True,
            sliding_window=16,
            tie_word_embeddings=None,
            pad_token_id=0,
        ),
        lengths=(1, 16, 17, 130),
    ),
    # Layers 0 to 2 have a sliding window and no scaling, layer 3 has yarn.
    "olmo3-windows-yarn": Case(
        config_of(
            "Olmo3ForCausalLM",
            "olmo3",
            num_hidden_layers=4,
            hidden_size=64,
            num_attention_heads=4,
            num_key_value_heads=2,
            sliding_window=16,
            rope_theta=500000.0,
            rope_scaling={
                "rope_type": "yarn",
                "factor": 8.0,
                "original_max_position_embeddings": 32,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "attention_factor": 1.2079441541679836,
            },
        ),
        lengths=(1, 16, 17, 130),
    ),
    "granite-multipliers": Case(granite()),
    "granite-bf16-tied": Case(
        granite(
            torch_dtype="bfloat16",
            tie_word_embeddings=True,
            attention_bias=True,
            embedding_multiplier=0.5,
        ),
        dtype=torch.bfloat16,
    ),
    "ministral3-temperature": Case(ministral3()),
    # As published: "language_model." and a vision tower in the file.
    "mistral3-multimodal": Case(
        mistral3(ministral3("", sliding_window=None)),
        prefixes=(
            ("model.language_model.", "language_model.model."),
            ("model.vision_tower.", "vision_tower."),
            ("model.multi_modal_projector.", "multi_modal_projector."),
            ("lm_head.", "language_model.lm_head."),
        ),
    ),
    # As published: names of Qwen2ForCausalLM next to "visual.".
    "qwen2-5-vl-flat": Case(
        qwen2_5_vl(),
        prefixes=(("model.language_model.", "model."), ("model.visual.", "visual.")),
    ),
    "qwen3-vl-nested": Case(qwen3_vl("Qwen3VLForConditionalGeneration", "qwen3_vl")),
    # One tensor for all experts of a layer, input features first; layer 1 is dense.
    "qwen3-vl-moe-fused": Case(
        qwen3_vl(
            "Qwen3VLMoeForConditionalGeneration",
            "qwen3_vl_moe",
            num_hidden_layers=3,
            num_experts=8,
            num_experts_per_tok=3,
            moe_intermediate_size=24,
            mlp_only_layers=[1],
        ),
    ),
    # Norms over all of q and k, and before sublayers; weights do not sum to 1 by default.
    "olmoe-top3": Case(
        config_of(
            "OlmoeForCausalLM",
            "olmoe",
            hidden_size=64,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=24,
            num_experts=8,
            num_experts_per_tok=3,
            pad_token_id=0,
        )
    ),
    # rotary_dim 16 of head dim 32; the choice is corrected by a float32 vector.
    "minimax-m2-partial": Case(
        config_of(
            "MiniMaxM2ForCausalLM",
            "minimax_m2",
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            rotary_dim=16,
            intermediate_size=24,
            num_local_experts=8,
            num_experts_per_tok=3,
            scoring_func="sigmoid",
        )
    ),
    # Half of each head is rotated by default, layer 0 is dense, a shared expert; norms of heads and biases.
    "glm4-moe-norms": Case(
        glm4_moe(num_hidden_layers=3, use_qk_norm=True, attention_bias=True, routed_scaling_factor=2.5)
    ),
    # A layer of multi-token prediction in the file, which is not read.
    "glm4-moe-plain": Case(
        glm4_moe(num_nextn_predict_layers=1),
        extra={"model.layers.2.eh_proj.weight": (32, 64)},
    ),
    # Latent attention with heads of 192 + 64 and values of 256, as published; a list defines the layers with experts.
    "glm4-moe-lite": Case(
        glm4_moe_lite(
            num_hidden_layers=3,
            mlp_layer_types=["dense", "sparse", "dense"],
            routed_scaling_factor=1.8,
        ),
        dtype=torch.bfloat16,
    ),
    # Weights are not divided by their sum, groups of experts, two shared experts; layer 1 has a sliding window.
    "dots1-groups": Case(
        config_of(
            "Dots1ForCausalLM",
            "dots1",
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            n_routed_experts=8,
            num_experts_per_tok=3,
            n_shared_experts=2,
            n_group=4,
            topk_group=2,
            moe_intermediate_size=12,
            routed_scaling_factor=2.5,
            sliding_window=16,
            max_window_layers=1,
        ),
        lengths=(1, 16, 17, 130),
    ),
    # 24 query heads per K/V head.
    "llama-mqa24-hd16": Case(llama(hidden_size=48, num_attention_heads=24, num_key_value_heads=1, head_dim=16)),
}
