"""Gemma 4: heads of two sizes, K used as V, shared K and V, embeddings per layer, experts next to the MLP."""

import torch
from golden_configs import Case, compressed, gemma4, gemma4_multimodal, gemma4_unified
from quantize import Fp8

LENGTHS = (1, 16, 17, 130)

CASES = {
    # As E2B: embeddings per layer, the last two layers share the K and V of layers before them and have a wide MLP.
    "gemma4-shared-kv": Case(
        gemma4(
            num_hidden_layers=6,
            layer_types=["sliding_attention", "full_attention"] * 3,
            num_kv_shared_layers=2,
            use_double_wide_mlp=True,
            hidden_size_per_layer_input=8,
            vocab_size_per_layer_input=160,
        ),
        # Files have the weights of K and V that shared layers do not use.
        extra={
            f"model.layers.4.self_attn.{name}.weight": shape
            for name, shape in (("k_proj", (32, 32)), ("v_proj", (32, 32)), ("k_norm", (32,)))
        },
        dtype=torch.bfloat16,
        lengths=LENGTHS,
    ),
    # As 26B-A4B: experts in parallel with the MLP; fewer KV heads in layers with full attention, K is also V.
    "gemma4-experts": Case(
        gemma4_multimodal(
            num_attention_heads=4,
            num_key_value_heads=2,
            layer_types=["sliding_attention", "full_attention"],
            attention_k_eq_v=True,
            num_global_key_value_heads=1,
            enable_moe_block=True,
            num_experts=8,
            top_k_experts=3,
            moe_intermediate_size=12,
            hidden_size_per_layer_input=0,
            final_logit_softcapping=8.0,
        ),
        dtype=torch.bfloat16,
        lengths=(1, 16, 17, 50),
    ),
    # As 31B, with heads of 512 and 256 and default layer types.
    "gemma4-wide-heads": Case(
        gemma4(
            hidden_size=16,
            num_key_value_heads=2,
            head_dim=256,
            global_head_dim=512,
            num_global_key_value_heads=1,
            attention_k_eq_v=True,
            layer_types=["sliding_attention", "full_attention"],
            hidden_size_per_layer_input=0,
            rope_parameters=None,
        ),
        dtype=torch.bfloat16,
        lengths=LENGTHS,
    ),
    # As transformers 5.24 writes it: per_layer_config. The last layer is full regardless of its type, biases, an
    # lm_head, a shared layer that uses K as V, other shares of rotated pairs.
    "gemma4-per-layer-config": Case(
        gemma4(
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            global_head_dim=None,
            per_layer_config={
                "1": {"head_dim": 48, "num_key_value_heads": 1},
                "3": {"head_dim": 48, "num_key_value_heads": 1},
            },
            layer_types=["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"],
            attention_k_eq_v=True,
            attention_bias=True,
            num_kv_shared_layers=1,
            hidden_size_per_layer_input=16,
            tie_word_embeddings=False,
            rope_parameters={
                "full_attention": {
                    "rope_type": "proportional",
                    "partial_rotary_factor": 0.5,
                    "rope_theta": 5e5,
                    "factor": 2.0,
                },
                "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
            },
        ),
        dtype=torch.bfloat16,
        lengths=LENGTHS,
    ),
    # As the 12B model: no embeddings per layer; default types of six layers, and tensors of an encoder.
    "gemma4-unified": Case(
        gemma4_unified(num_hidden_layers=6, hidden_size=16, intermediate_size=32, global_head_dim=40, head_dim=24),
        dtype=torch.bfloat16,
        extra={"model.embed_vision.patch_dense.weight": (8, 8)},
        lengths=LENGTHS,
    ),
    # Quantized matrices in every kind of layer, also where K is V and where K and V are shared.
    "gemma4-fp8-channel": Case(
        gemma4(
            num_hidden_layers=4,
            global_head_dim=32,
            head_dim=16,
            layer_types=["sliding_attention", "full_attention"] * 2,
            attention_k_eq_v=True,
            num_kv_shared_layers=2,
            hidden_size_per_layer_input=8,
        ),
        dtype=torch.bfloat16,
        scheme=Fp8(
            compressed(
                "float-quantized",
                {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True},
                ["lm_head", "model.per_layer_model_projection"],
            ),
            blocks=(1, None),
            scale_dtype=torch.bfloat16,
        ),
        plain=("per_layer_model_projection", "per_layer_projection_norm"),
        lengths=LENGTHS,
    ),
}
