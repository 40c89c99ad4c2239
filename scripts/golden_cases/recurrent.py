"""Models with recurrent layers."""

import torch
from golden_configs import (
    Case,
    bamba,
    falcon_h1,
    granite_hybrid,
    kimi_linear,
    lfm2,
    lfm2_moe,
    nemotron_h,
    olmo_hybrid,
    qwen3_5,
    qwen3_5_text,
    qwen3_next,
)

NEMOTRON_PREFIXES = (("model.", "backbone."),)

CASES = {
    # Gated delta net; projections are grouped by key head, and two value heads share a key head. q has an output gate.
    "qwen3-next-grouped": Case(qwen3_next(), lengths=(1, 3, 65, 130)),
    # Layer 1 is dense, one value head per key head, full attention first; weights in bf16, A_log in float32.
    "qwen3-next-some-dense": Case(
        qwen3_next(
            num_hidden_layers=3,
            linear_num_value_heads=2,
            linear_conv_kernel_dim=3,
            layer_types=["full_attention", "linear_attention", "linear_attention"],
            mlp_only_layers=[1],
            norm_topk_prob=False,
            rope_scaling=None,
            partial_rotary_factor=0.5,
            torch_dtype="bfloat16",
        ),
        dtype=torch.bfloat16,
        lengths=(1, 2, 63, 64),
    ),
    # Rows of the projections are not grouped; three value heads share a key head.
    "qwen3-5-nested": Case(
        qwen3_5(
            "Qwen3_5ForConditionalGeneration",
            "qwen3_5",
            num_hidden_layers=4,
            linear_num_value_heads=6,
        ),
        lengths=(1, 7, 64, 129),
    ),
    # Text model without the vision tower, tied; layer_types instead of an interval.
    "qwen3-5-text-tied": Case(
        qwen3_5_text(
            "Qwen3_5ForCausalLM",
            "qwen3_5_text",
            num_hidden_layers=3,
            tie_word_embeddings=True,
            layer_types=["linear_attention", "full_attention", "linear_attention"],
        ),
        lengths=(1, 2, 33, 65),
    ),
    # Experts in one tensor, output features first.
    "qwen3-5-moe-fused": Case(
        qwen3_5(
            "Qwen3_5MoeForConditionalGeneration",
            "qwen3_5_moe",
            num_hidden_layers=4,
            intermediate_size=None,
            num_experts=8,
            num_experts_per_tok=3,
            moe_intermediate_size=24,
            shared_expert_intermediate_size=20,
        ),
        lengths=(1, 17, 66, 128),
        largest_rounding=True,
    ),
    # Short convolutions; the adjusted size of the MLP (2/3, rounded up) is 32, and embeddings are tied by default.
    "lfm2-conv": Case(lfm2(), lengths=(1, 2, 3, 65)),
    # Biases of convolutions and projections, the MLP's own size, an lm_head, weights in bf16.
    "lfm2-biases": Case(
        lfm2(
            conv_bias=True,
            conv_L_cache=4,
            block_auto_adjust_ff_dim=False,
            full_attn_idxs=None,
            layer_types=["full_attention", "conv", "conv"],
            tie_word_embeddings=False,
            torch_dtype="bfloat16",
        ),
        dtype=torch.bfloat16,
        lengths=(1, 7, 33, 64),
    ),
    # Sigmoid router with a bias in float32; the first two layers are dense.
    "lfm2-moe": Case(lfm2_moe(), lengths=(1, 3, 17, 64)),
    # Mamba-2 with two groups and biases of the convolution; attention in layer 1 rotates half of each head.
    "bamba-mamba2": Case(bamba(), lengths=(1, 3, 65, 130)),
    # One group, biases of projections, 3 taps; stored in bf16 with A_log and dt_bias in float32. The bound of the
    # steps has no effect, because transformers ignores bounds in decode steps.
    "bamba-biases": Case(
        bamba(
            mamba_n_groups=1,
            mamba_d_head="auto",
            mamba_d_conv=3,
            mamba_conv_bias=False,
            mamba_proj_bias=True,
            mlp_bias=True,
            attention_bias=True,
            attn_layer_indices=[0],
            time_step_limit=[0.0, 50.0],
            torch_dtype="bfloat16",
        ),
        dtype=torch.bfloat16,
        lengths=(1, 2, 33, 64),
    ),
    # Mamba-2 and attention without rotation; experts in one tensor, next to a dense MLP.
    "granite-hybrid-experts": Case(
        granite_hybrid(num_local_experts=8, num_experts_per_tok=3, intermediate_size=12),
        lengths=(1, 3, 17, 65),
    ),
    # A dense MLP, rotation, two groups; stored in bf16.
    "granite-hybrid-dense": Case(
        granite_hybrid(
            num_local_experts=0,
            position_embedding_type="rope",
            mamba_n_groups=2,
            torch_dtype="bfloat16",
        ),
        dtype=torch.bfloat16,
        lengths=(1, 2, 33, 64),
    ),
    # Attention and Mamba-2 of one input; a gate without a norm, two groups.
    "falcon-h1-gate-only": Case(falcon_h1(mamba_n_groups=2), lengths=(1, 3, 65, 130)),
    # A norm before the gate, biases where factors allow them; stored in bf16.
    "falcon-h1-norm-first": Case(
        falcon_h1(
            mamba_rms_norm=True,
            mamba_norm_before_gate=True,
            mamba_proj_bias=True,
            torch_dtype="bfloat16",
        ),
        dtype=torch.bfloat16,
        lengths=(1, 2, 33, 64),
    ),
    # One sublayer per layer; experts with relu2 on latent vectors, with a sigmoid router and a shared expert.
    "nemotron-h-experts": Case(
        nemotron_h(
            hybrid_override_pattern="ME*M",
            n_routed_experts=8,
            num_experts_per_tok=3,
            moe_intermediate_size=24,
            moe_shared_expert_intermediate_size=20,
            moe_latent_size=40,
            routed_scaling_factor=2.5,
        ),
        prefixes=NEMOTRON_PREFIXES,
        lengths=(1, 3, 17, 65),
    ),
    # MLPs with relu2 and biases, biases of Mamba-2; layers as a list, stored in bf16.
    "nemotron-h-dense": Case(
        nemotron_h(
            layers_block_type=["mamba", "mlp", "attention", "mlp", "mamba"],
            mlp_bias=True,
            use_bias=True,
            torch_dtype="bfloat16",
        ),
        dtype=torch.bfloat16,
        prefixes=NEMOTRON_PREFIXES,
        lengths=(1, 2, 33, 64),
    ),
    # KDA and, in layer 3 of 4, latent attention without rope; the first layer is dense.
    "kimi-linear-kda": Case(
        kimi_linear(
            kda_layers=[1, 2, 4], full_attn_layers=[3], head_dim=16, num_heads=4, num_hidden_layers=4
        ),
        dtype=torch.bfloat16,
        lengths=(1, 3, 65, 130),
    ),
    # Latent attention first, odd head sizes, 3 taps, two groups of experts; all layers have experts.
    "kimi-linear-groups": Case(
        kimi_linear(
            kda_layers=[2, 3],
            full_attn_layers=[1],
            head_dim=12,
            num_heads=3,
            kernel=3,
            num_hidden_layers=3,
            first_k_dense_replace=0,
            num_expert_group=2,
            topk_group=1,
            moe_renormalize=False,
            routed_scaling_factor=1.5,
        ),
        dtype=torch.bfloat16,
        lengths=(1, 2, 63, 64),
    ),
    # Gated delta net with separate projections and convolutions, heads of 12 and 24, and beta up to 2; no rope.
    "olmo-hybrid-nope": Case(olmo_hybrid(), lengths=(1, 3, 65, 130)),
    # Rope, beta up to 1, two value heads per key head, GQA, biases of attention, 3 taps; stored in bf16.
    "olmo-hybrid-rope": Case(
        olmo_hybrid(
            num_hidden_layers=3,
            num_key_value_heads=2,
            attention_bias=True,
            layer_types=["full_attention", "linear_attention", "linear_attention"],
            linear_allow_neg_eigval=False,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            linear_key_head_dim=16,
            linear_value_head_dim=8,
            linear_conv_kernel_dim=3,
            rope_parameters={"rope_theta": 10000.0, "rope_type": "default"},
            torch_dtype="bfloat16",
        ),
        dtype=torch.bfloat16,
        lengths=(1, 2, 63, 64),
    ),
}
