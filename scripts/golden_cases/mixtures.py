"""Architectures with experts that differ in the router, the attention or the names of tensors, and others that need one
module of their own."""

import torch
from golden_cases.layer_norm import HEADS, gpt, layer_norm
from golden_configs import Case, config_of, deepseek_v3

DENSE_FIRST = ["dense", "sparse", "sparse"]
ALTERNATING = ["sliding_attention", "full_attention", "sliding_attention"]


def heads(**changes):
    """Four heads of 16, two of k."""
    return {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16} | changes


def experts(**changes):
    return {"moe_intermediate_size": 24, "num_experts": 8, "num_experts_per_tok": 3} | changes


def qwen2_moe(**changes):
    return config_of(
        "Qwen2MoeForCausalLM",
        "qwen2_moe",
        num_attention_heads=4,
        num_key_value_heads=2,
        shared_expert_intermediate_size=40,
        **experts(),
        **changes,
    )


def granite_moe(architecture, model_type, **changes):
    return config_of(
        architecture,
        model_type,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=6,
        num_experts_per_tok=2,
        intermediate_size=24,
        embedding_multiplier=3.0,
        residual_multiplier=0.4,
        attention_multiplier=0.2,
        logits_scaling=4.0,
        **changes,
    )


def kimi_k25():
    text = deepseek_v3(
        num_hidden_layers=3,
        first_k_dense_replace=1,
        q_lora_rank=24,
        qk_nope_head_dim=16,
        v_head_dim=16,
        n_routed_experts=8,
        num_experts_per_tok=3,
        n_shared_experts=1,
        n_group=1,
        topk_group=1,
        routed_scaling_factor=2.827,
    ) | {"kv_lora_rank": 64, "qk_rope_head_dim": 16}
    outer = ("bos_token_id", "eos_token_id", "torch_dtype", "tie_word_embeddings")
    return {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        **{key: text[key] for key in outer},
        "image_token_id": 127,
        "text_config": {key: value for key, value in text.items() if key not in outer},
        "vision_config": {
            "model_type": "kimi_k25_vision",
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 1,
            "pos_emb_height": 2,
            "pos_emb_width": 2,
            "pos_emb_time": 1,
        },
        "projection_hidden_size": 16,
    }


def mistral4(**changes):
    return config_of(
        "Mistral4ForCausalLM",
        "mistral4",
        **{
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "q_lora_rank": 24,
            "kv_lora_rank": 32,
            "qk_nope_head_dim": 24,
            "qk_rope_head_dim": 8,
            "v_head_dim": 16,
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 24,
            "rope_theta": None,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 8.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "original_max_position_embeddings": 32,
                "llama_4_scaling_beta": 0.5,
            },
        }
        | changes,
    )


def muse_glimmer():
    text = config_of(
        "",
        "muse_glimmer_text",
        num_hidden_layers=5,
        hidden_activation="silu",
        sliding_window=16,
        qk_scale_factor=2.0,
        post_norm_eps=1e-3,
        output_multiplier=0.5,
        final_logit_softcapping=5.0,
        **heads(),
    )
    outer = ("bos_token_id", "eos_token_id", "torch_dtype", "tie_word_embeddings")
    return {
        "architectures": ["MuseGlimmerForConditionalGeneration"],
        "model_type": "muse_glimmer",
        **{key: text[key] for key in outer},
        "image_token_id": 127,
        "video_token_id": 126,
        "text_config": {
            key: value for key, value in text.items() if key not in (*outer, "architectures", "hidden_act")
        },
        "vision_config": {
            "model_type": "muse_glimmer_vision",
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 1,
            "patch_size": 2,
            "pos_emb_height": 2,
            "pos_emb_width": 2,
        },
        "out_hidden_size": 16,
        "projector_hidden_size": 16,
    }


# Rotary embeddings of both types of layers.
LAYER_ROPES = {
    "full_attention": {
        "rope_type": "yarn",
        "rope_theta": 50000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "partial_rotary_factor": 0.5,
    },
    "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 1.0},
}


def laguna(**changes):
    return config_of(
        "LagunaForCausalLM",
        "laguna",
        num_hidden_layers=3,
        rope_theta=None,
        rope_parameters=LAYER_ROPES,
        sliding_window=16,
        layer_types=ALTERNATING,
        shared_expert_intermediate_size=40,
        moe_routed_scaling_factor=2.5,
        **heads(),
        **experts(),
        **changes,
    )


def in_bf16(config, **changes):
    """A case with weights in bfloat16, which are half as large in the file."""
    return Case(config | {"torch_dtype": "bfloat16"}, dtype=torch.bfloat16, **changes)


CASES = {
    # A gated shared expert, biases of q, k and v; layer 1 is dense; layers 0 and 2 slide.
    "qwen2-moe-shared": in_bf16(
        qwen2_moe(
            num_hidden_layers=3,
            mlp_only_layers=[1],
            norm_topk_prob=False,
            use_sliding_window=True,
            sliding_window=16,
            max_window_layers=3,
        )
    ),
    "granite-moe": in_bf16(
        granite_moe("GraniteMoeForCausalLM", "granitemoe", attention_bias=True)
    ),
    "granite-moe-shared": in_bf16(
        granite_moe(
            "GraniteMoeSharedForCausalLM",
            "granitemoeshared",
            shared_intermediate_size=40,
        )
    ),
    # Softmax scores with a correction; two shared experts; layer 0 is dense.
    "ernie4-5-moe": Case(
        config_of(
            "Ernie4_5_MoeForCausalLM",
            "ernie4_5_moe",
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            use_bias=False,
            moe_intermediate_size=24,
            moe_k=3,
            moe_num_experts=8,
            moe_num_shared_experts=2,
            moe_layer_start_index=1,
            rope_theta=500000.0,
            tie_word_embeddings=True,
        )
    ),
    # Norms of q and k after RoPE, whose base a fixed alpha stretches.
    "hunyuan-dense": Case(
        config_of(
            "HunYuanDenseV1ForCausalLM",
            "hunyuan_v1_dense",
            attention_bias=True,
            rope_scaling={"type": "dynamic", "alpha": 50.0, "factor": 1.0},
            **heads(),
        )
    ),
    "hunyuan-moe": in_bf16(
        config_of(
            "HunYuanMoEV1ForCausalLM",
            "hunyuan_v1_moe",
            num_experts=8,
            moe_topk=[3, 2],
            intermediate_size=24,
            **heads(),
        )
    ),
    # Sigmoid scores with a correction, weights with sum 2.826.
    "hy-v3": in_bf16(
        config_of(
            "HYV3ForCausalLM",
            "hy_v3",
            num_hidden_layers=3,
            num_shared_experts=1,
            rope_theta=11158840.0,
            **heads(),
            **experts(),
        )
    ),
    # Layer 0 is dense; layers 0 and 2 slide, layer 1 is not rotated.
    "exaone-moe": in_bf16(
        config_of(
            "ExaoneMoeForCausalLM",
            "exaone_moe",
            num_hidden_layers=3,
            sliding_window=16,
            sliding_window_pattern=2,
            num_shared_experts=1,
            n_group=2,
            topk_group=1,
            **heads(),
            **experts(),
        )
    ),
    "kimi-k25-text": in_bf16(
        kimi_k25(),
        prefixes=(("model.language_model.", "language_model.model."), ("lm_head", "language_model.lm_head")),
    ),
    # Layer 0 is dense, with a window pattern of its own, and rotated. The shared expert has half of the weight.
    "cohere2-moe-average": in_bf16(
        config_of(
            "Cohere2MoeForCausalLM",
            "cohere2_moe",
            num_hidden_layers=4,
            num_shared_experts=2,
            intermediate_size=24,
            first_k_dense_replace=1,
            prefix_dense_intermediate_size=40,
            sliding_window=16,
            sliding_window_pattern=3,
            num_experts=8,
            num_experts_per_tok=3,
            layer_norm_eps=1e-5,
            rms_norm_eps=None,
            logit_scale=0.25,
            tie_word_embeddings=True,
            **heads(),
        )
    ),
    # Sigmoid scores that are not divided by their sum, RMSNorm, biases, no window before the last layer.
    "cohere2-moe-sigmoid": in_bf16(
        config_of(
            "Cohere2MoeForCausalLM",
            "cohere2_moe",
            num_shared_experts=1,
            shared_expert_combination_strategy="sum",
            expert_selection_fn="sigmoid",
            norm_topk_prob=False,
            intermediate_size=24,
            attention_bias=True,
            sliding_window=16,
            layer_types=["full_attention", "sliding_attention"],
            num_experts=8,
            num_experts_per_tok=3,
            tie_word_embeddings=True,
            **heads(),
        )
    ),
    # YaRN of a share of each head, a query temperature that changes every 32 tokens; layer 0 is dense.
    "mistral4-temperature": in_bf16(mistral4(first_k_dense_replace=1)),
    # RoPE in halves; scaled embeddings, sublayers and logits.
    "minicpm3-scales": Case(
        config_of(
            "MiniCPM3ForCausalLM",
            "minicpm3",
            num_attention_heads=4,
            num_key_value_heads=4,
            q_lora_rank=24,
            kv_lora_rank=32,
            qk_nope_head_dim=16,
            qk_rope_head_dim=8,
            scale_emb=3,
            scale_depth=1.4,
            dim_model_base=16,
            tie_word_embeddings=False,
        )
    ),
    # SparseMixer with a distance at which two experts are often near each other.
    "phimoe-sparsemixer": in_bf16(
        config_of(
            "PhiMoEForCausalLM",
            "phimoe",
            num_attention_heads=4,
            num_key_value_heads=2,
            num_local_experts=8,
            num_experts_per_tok=2,
            intermediate_size=24,
            router_jitter_noise=0.2,
            attention_bias=True,
            lm_head_bias=True,
            sliding_window=40,
        ),
        largest_rounding=True,
    ),
    # Gates of heads, another number of heads in layer 1.
    "laguna-head-gates": in_bf16(laguna(num_attention_heads_per_layer=[4, 6, 4])),
    # A gate per feature, capped router logits; all layers have experts.
    "laguna-feature-gates": in_bf16(
        laguna(
            gating="per-element",
            moe_router_logit_softcapping=2.0,
            mlp_layer_types=["sparse"] * 3,
        )
    ),
    # Heads of 24 for q and k and of 16 for v, sinks and twice as many heads in layers with a window.
    "mimo-v2-flash": in_bf16(
        config_of(
            "MiMoV2FlashForCausalLM",
            "mimo_v2_flash",
            num_hidden_layers=3,
            rope_theta=None,
            rope_parameters={
                layer_type: {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": 0.334}
                for layer_type, theta in (("full_attention", 5000000.0), ("sliding_attention", 10000.0))
            },
            layer_types=["full_attention", "sliding_attention", "sliding_attention"],
            sliding_window=16,
            v_head_dim=16,
            n_routed_experts=8,
            num_experts_per_tok=3,
            moe_intermediate_size=24,
            **heads(head_dim=24, num_attention_heads=4, num_key_value_heads=1),
        )
    ),
    "apertus-xielu": Case(
        config_of(
            "ApertusForCausalLM",
            "apertus",
            hidden_act="xielu",
            num_attention_heads=4,
            num_key_value_heads=2,
            rope_scaling={
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        )
    ),
    # q, k and v are clipped after the norms of q and k.
    "olmoe-clip": in_bf16(
        config_of(
            "OlmoeForCausalLM",
            "olmoe",
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=24,
            num_experts=8,
            num_experts_per_tok=3,
            norm_topk_prob=True,
            clip_qkv=0.7,
            pad_token_id=0,
        )
    ),
    # A norm each for attention and MLP (Falcon 40B), grouped-query heads.
    "falcon-two-norms": Case(
        layer_norm(
            "FalconForCausalLM",
            "falcon",
            num_attention_heads=4,
            num_kv_heads=2,
            ffn_hidden_size=64,
            intermediate_size=None,
            new_decoder_architecture=True,
            bias=False,
        )
    ),
    # LayerNorm of each head of q and k (StableLM 2 12B, Command R+).
    "stablelm-qk-norms": Case(
        layer_norm(
            "StableLmForCausalLM",
            "stablelm",
            num_attention_heads=4,
            num_key_value_heads=2,
            hidden_act="silu",
            hidden_size=64,
            layer_norm_eps=1e-5,
            partial_rotary_factor=0.25,
            qk_layernorm=True,
            use_parallel_residual=True,
        )
    ),
    "cohere-qk-norms": Case(
        layer_norm(
            "CohereForCausalLM",
            "cohere",
            **HEADS,
            hidden_act="silu",
            logit_scale=0.25,
            layer_norm_eps=1e-5,
            use_qk_norm=True,
            tie_word_embeddings=True,
        )
    ),
    # Heads of 20, which attention pads to 24: norms of heads, biases, an output of another size than the stream.
    "qwen3-head-dim-20": Case(
        config_of(
            "Qwen3ForCausalLM",
            "qwen3",
            num_attention_heads=3,
            num_key_value_heads=1,
            head_dim=20,
            attention_bias=True,
            sliding_window=16,
            use_sliding_window=True,
            max_window_layers=1,
        )
    ),
    # Heads of 59.
    "gpt2-head-dim-59": in_bf16(gpt("GPT2LMHeadModel", "gpt2", n_embd=59, n_head=1), lengths=(1, 2, 33, 66)),
    # Gates, norms of embeddings, q and k without weights, another epsilon after sublayers; layers 0 and 4 have full
    # attention without RoPE.
    "muse-glimmer-gates": in_bf16(muse_glimmer()),
}
