"""Models with experts, sinks, latent attention and chunked attention."""

import torch
from golden_configs import (
    Case,
    deepseek_v2,
    deepseek_v3,
    gpt_oss,
    llama4,
    llama4_multimodal,
    mixtral,
    qwen3_moe,
)

CASES = {
    # Layer 1 is dense with intermediate_size; layers 0 and 2 are not.
    "qwen3-moe-some-dense": Case(
        qwen3_moe(
            num_hidden_layers=3,
            norm_topk_prob=True,
            decoder_sparse_step=1,
            mlp_only_layers=[1],
        )
    ),
    # norm_topk_prob is implied (false); layers 1 and 3 have experts.
    "qwen3-moe-sparse-step": Case(
        qwen3_moe(
            num_hidden_layers=4,
            decoder_sparse_step=2,
            num_experts=12,
            num_experts_per_tok=4,
            torch_dtype="bfloat16",
        ),
        dtype=torch.bfloat16,
    ),
    # num_local_experts (8) and num_experts_per_tok (2) are implied.
    "mixtral-top2": Case(
        mixtral(
            num_attention_heads=4,
            num_key_value_heads=2,
            hidden_size=40,
            head_dim=16,
            rope_theta=1000000.0,
        )
    ),
    # As published: layers 0 and 2 have a sliding window, yarn with a ramp that is not rounded; most gates and ups reach
    # the swiglu limit.
    "gpt-oss-sinks-window": Case(
        gpt_oss(
            num_hidden_layers=3,
            num_attention_heads=8,
            num_key_value_heads=1,
            head_dim=64,
            intermediate_size=24,
            num_local_experts=8,
            experts_per_token=4,
            num_experts_per_tok=3,
            swiglu_limit=1.25,
            rope_theta=150000.0,
            rope_scaling={
                "rope_type": "yarn",
                "factor": 8.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "truncate": False,
                "original_max_position_embeddings": 32,
            },
        ),
        lengths=(1, 16, 17, 130),
    ),
    # Optional keys are absent: theta, yarn, experts per token (4), limit and slope of swiglu. Weights in bf16.
    "gpt-oss-defaults": Case(
        gpt_oss(
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            intermediate_size=20,
            num_local_experts=6,
            attention_bias=False,
            max_position_embeddings=131072,
            rope_theta=None,
            torch_dtype="bfloat16",
            layer_types=["full_attention", "sliding_attention", "sliding_attention"],
        ),
        dtype=torch.bfloat16,
    ),
    # q is computed from x itself (q_lora_rank null), YaRN with the mscales of V2-Lite, layer 0 is dense.
    "deepseek-v2-lite": Case(
        deepseek_v2(
            num_hidden_layers=3,
            first_k_dense_replace=1,
            n_routed_experts=8,
            num_experts_per_tok=3,
            n_shared_experts=2,
            n_group=1,
            topk_group=1,
            rope_scaling={
                "type": "yarn",
                "factor": 4.0,
                "beta_fast": 32,
                "beta_slow": 1,
                "mscale": 0.707,
                "mscale_all_dim": 0.707,
                "original_max_position_embeddings": 64,
            },
        )
        | {"q_lora_rank": None},
        dtype=torch.bfloat16,
    ),
    # q is computed from a latent vector; groups of experts ranked by their best one; biases; v wider than the unrotated
    # k.
    "deepseek-v2-groups": Case(
        deepseek_v2(
            q_lora_rank=24,
            attention_bias=True,
            qk_nope_head_dim=16,
            v_head_dim=24,
            n_routed_experts=12,
            num_experts_per_tok=3,
            n_shared_experts=1,
            topk_method="group_limited_greedy",
            n_group=4,
            topk_group=2,
            routed_scaling_factor=2.0,
        ),
        dtype=torch.bfloat16,
    ),
    # Sigmoid scores, a bias-corrected choice, groups ranked by their two best experts, weights with sum 2.5; another
    # eps than the latent norms', YaRN, and a layer of multi-token prediction, which is not read.
    "deepseek-v3": Case(
        deepseek_v3(
            rms_norm_eps=1e-3,
            q_lora_rank=24,
            qk_nope_head_dim=24,
            v_head_dim=16,
            first_k_dense_replace=1,
            n_routed_experts=16,
            num_experts_per_tok=4,
            n_shared_experts=1,
            n_group=4,
            topk_group=2,
            num_nextn_predict_layers=1,
            rope_scaling={
                "type": "yarn",
                "factor": 4.0,
                "beta_fast": 32,
                "beta_slow": 1,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "original_max_position_embeddings": 64,
            },
        ),
        dtype=torch.bfloat16,
        extra={
            "model.layers.2.enorm.weight": (32,),
            "model.layers.2.eh_proj.weight": (32, 64),
            "model.layers.2.self_attn.kv_a_layernorm.weight": (512,),
        },
    ),
    # As published: layers 0 to 2 have chunked attention and normalize rotated heads, layer 3 has no RoPE; all layers
    # have experts.
    "llama4-chunks": Case(
        llama4(
            num_hidden_layers=4,
            num_local_experts=4,
            rope_theta=500000.0,
            rope_scaling={
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            },
        ),
        lengths=(1, 15, 16, 130),
    ),
    # Every other layer has experts, two per token; no qk norm, no temperature; a full layer with RoPE; bf16.
    "llama4-interleaved": Case(
        llama4_multimodal(
            num_hidden_layers=4,
            num_local_experts=6,
            num_experts_per_tok=2,
            interleave_moe_layer_step=2,
            intermediate_size_mlp=40,
            use_qk_norm=False,
            attn_temperature_tuning=False,
            no_rope_layers=[1, 0, 1, 1],
            layer_types=[
                "chunked_attention",
                "full_attention",
                "full_attention",
                "chunked_attention",
            ],
            torch_dtype="bfloat16",
        ),
        dtype=torch.bfloat16,
        lengths=(1, 16, 17, 130),
        prefixes=(("", "language_model."),),
        extra={"vision_model.class_embedding": (8,)},
    ),
}
