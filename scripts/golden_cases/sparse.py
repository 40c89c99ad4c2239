"""Attention to the keys that an indexer selects (DeepSeek Sparse Attention)."""

import torch
from golden_configs import Case, deepseek_v3

# Fewer visible keys than index_topk, the same number, one more, and many more.
LENGTHS = (1, 9, 16, 17, 90)


def sparse(architecture, model_type, **changes):
    """Eight index heads: with few heads, many keys would have no positive product and thus equal scores of 0."""
    config = deepseek_v3(
        q_lora_rank=24,
        n_routed_experts=8,
        num_experts_per_tok=3,
        n_shared_experts=1,
        index_n_heads=8,
        index_head_dim=32,
        index_topk=16,
        **changes,
    )
    config |= {"architectures": [architecture], "model_type": model_type}
    return config | {"kv_lora_rank": 64, "qk_rope_head_dim": 16}


CASES = {
    # The indexer rotates halves of its first dimensions, attention rotates neighboring pairs; YaRN.
    "deepseek-v32-indexer": Case(
        sparse(
            "DeepseekV32ForCausalLM",
            "deepseek_v32",
            qk_nope_head_dim=24,
            v_head_dim=16,
            first_k_dense_replace=1,
            n_group=4,
            topk_group=2,
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
        lengths=LENGTHS,
        dtype=torch.bfloat16,
    ),
    # Both rotate neighboring pairs. Layers 2 and 4 use the choice of the layer before them; the file has weights of an
    # indexer for layer 2 too, as published files do, which are not used.
    "glm-moe-dsa-shared": Case(
        sparse(
            "GlmMoeDsaForCausalLM",
            "glm_moe_dsa",
            num_hidden_layers=5,
            qk_nope_head_dim=16,
            v_head_dim=24,
            first_k_dense_replace=4,
            n_group=1,
            topk_group=1,
            index_topk_freq=2,
            index_skip_topk_offset=2,
        ),
        lengths=LENGTHS,
        dtype=torch.bfloat16,
        extra={
            "model.layers.2.self_attn.indexer.wq_b.weight": (256, 24),
            "model.layers.2.self_attn.indexer.wk.weight": (32, 32),
            "model.layers.2.self_attn.indexer.k_norm.weight": (32,),
            "model.layers.2.self_attn.indexer.k_norm.bias": (32,),
            "model.layers.2.self_attn.indexer.weights_proj.weight": (8, 32),
        },
    ),
}
