"""The tiny random models of tests/goldens by name (golden_configs.py contains shared parts of their configs).

Each case covers something that no other case covers: a head dimension, a GQA ratio, a rope type, a bias, a window, a
weight format. make_goldens.py writes them.
"""

import torch
from golden_configs import (
    Case,
    bamba,
    compressed,
    config_of,
    deepseek_v2,
    deepseek_v3,
    falcon_h1,
    gemma2,
    gemma3,
    gemma3_multimodal,
    glm4,
    glm4_moe,
    glm4_moe_lite,
    gpt_oss,
    granite,
    granite_hybrid,
    lfm2,
    lfm2_moe,
    llama,
    llama4,
    llama4_multimodal,
    ministral3,
    mistral,
    mistral3,
    mixtral,
    nemotron_h,
    olmo2,
    phi3,
    qwen2,
    qwen2_5_vl,
    qwen3,
    qwen3_5,
    qwen3_5_text,
    qwen3_moe,
    qwen3_next,
    qwen3_vl,
    seed_oss,
    wide,
)
from quantize import Fp8, Int4, Int8, Mixed, MxFp4, StackedFp8, StackedMxFp4

NEMOTRON_PREFIXES = (("model.", "backbone."),)

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
    # Quantized: input vectors must be complete, so these models are a little larger. lm_head is never quantized.
    "llama-fp8-tensor": Case(
        wide(llama),
        scheme=Fp8(
            {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]},
            static="input_scale",
        ),
    ),
    "llama-fp8-channel": Case(
        wide(llama, torch_dtype="bfloat16"),
        dtype=torch.bfloat16,
        scheme=Fp8(
            compressed(
                "float-quantized",
                {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True},
                ["lm_head", "model.layers.0.self_attn.o_proj"],
            ),
            blocks=(1, None),
            scale_dtype=torch.bfloat16,
        ),
        plain=("layers.0.self_attn.o_proj",),
    ),
    # Blocks are partial at the ends of each matrix.
    "qwen3-fp8-blocks": Case(
        qwen3(
            hidden_size=160,
            intermediate_size=144,
            num_attention_heads=3,
            num_key_value_heads=1,
            head_dim=48,
            attention_bias=False,
        ),
        scheme=Fp8(
            {
                "quant_method": "fp8",
                "activation_scheme": "dynamic",
                "fmt": "e4m3",
                "weight_block_size": [128, 128],
            },
            blocks=(128, 128),
            name="weight_scale_inv",
        ),
    ),
    "llama-awq": Case(
        wide(llama, torch_dtype="float16"),
        dtype=torch.float16,
        scheme=Int4(
            {
                "quant_method": "awq",
                "bits": 4,
                "group_size": 32,
                "zero_point": True,
                "version": "gemm",
                "modules_to_not_convert": None,
            },
            "awq",
            symmetric=False,
        ),
    ),
    "qwen2-gptq-act-order": Case(
        wide(qwen2, torch_dtype="float16"),
        dtype=torch.float16,
        scheme=Int4(
            {
                "quant_method": "gptq",
                "bits": 4,
                "group_size": 32,
                "desc_act": True,
                "sym": True,
                "lm_head": False,
            },
            "gptq",
            act_order=True,
            less_one=True,
        ),
    ),
    "llama-gptq-v2": Case(
        wide(llama, torch_dtype="float16"),
        dtype=torch.float16,
        scheme=Int4(
            {
                "quant_method": "gptq",
                "bits": 4,
                "group_size": 64,
                "desc_act": False,
                "sym": False,
                "checkpoint_format": "gptq_v2",
            },
            "gptq",
            group=64,
            symmetric=False,
        ),
    ),
    "llama-int4-packed": Case(
        wide(llama, torch_dtype="bfloat16"),
        dtype=torch.bfloat16,
        scheme=Int4(
            compressed(
                "pack-quantized",
                {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True},
                ["lm_head"],
            ),
            "packed",
            dtype=torch.bfloat16,
        ),
    ),
    "llama-int4-packed-zeros": Case(
        wide(llama, torch_dtype="bfloat16"),
        dtype=torch.bfloat16,
        scheme=Int4(
            compressed(
                "pack-quantized",
                {
                    "num_bits": 4,
                    "type": "int",
                    "strategy": "group",
                    "group_size": 32,
                    "symmetric": False,
                    "actorder": "group",
                },
                ["lm_head"],
            ),
            "packed",
            symmetric=False,
            act_order=True,
            dtype=torch.bfloat16,
        ),
    ),
    "llama-mxfp4": Case(
        wide(llama, torch_dtype="bfloat16"),
        dtype=torch.bfloat16,
        scheme=MxFp4(
            compressed(
                "mxfp4-pack-quantized",
                {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True},
                ["lm_head"],
            )
        ),
    ),
    # As published: attention, router and biases are in bf16.
    "gpt-oss-mxfp4": Case(
        gpt_oss(
            num_hidden_layers=2,
            hidden_size=64,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            intermediate_size=32,
            num_local_experts=4,
            num_experts_per_tok=2,
            torch_dtype="bfloat16",
        ),
        lengths=(1, 7, 17, 33),
        dtype=torch.bfloat16,
        scheme=StackedMxFp4(
            {
                "quant_method": "mxfp4",
                "modules_to_not_convert": [
                    "model.layers.*.self_attn",
                    "model.layers.*.mlp.router",
                    "model.embed_tokens",
                    "lm_head",
                ],
            }
        ),
        plain=("self_attn", "_bias"),
    ),
    "qwen3-moe-fp8-blocks": Case(
        qwen3_moe(hidden_size=160, moe_intermediate_size=32, mlp_only_layers=[]),
        lengths=(1, 7, 17, 33),
        scheme=Fp8(
            {
                "quant_method": "fp8",
                "activation_scheme": "dynamic",
                "weight_block_size": [128, 128],
                "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate"],
            },
            blocks=(128, 128),
            name="weight_scale_inv",
        ),
    ),
    # kv_b_proj is read per head, and kv_a_proj_with_mqa ends with a partial block.
    "deepseek-v3-fp8-blocks": Case(
        deepseek_v3(
            q_lora_rank=24,
            qk_nope_head_dim=24,
            v_head_dim=16,
            first_k_dense_replace=1,
            n_routed_experts=8,
            num_experts_per_tok=2,
            n_shared_experts=1,
            n_group=2,
            topk_group=1,
        ),
        lengths=(1, 7, 17, 33),
        dtype=torch.bfloat16,
        scheme=Fp8(
            {
                "quant_method": "fp8",
                "activation_scheme": "dynamic",
                "fmt": "e4m3",
                "weight_block_size": [128, 128],
            },
            blocks=(128, 128),
            name="weight_scale_inv",
        ),
    ),
    "mixtral-awq": Case(
        mixtral(
            hidden_size=64,
            intermediate_size=32,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            num_local_experts=4,
            num_experts_per_tok=2,
            torch_dtype="float16",
        ),
        lengths=(1, 7, 17, 33),
        dtype=torch.float16,
        scheme=Int4(
            {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"},
            "awq",
            symmetric=False,
        ),
    ),
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
    # As Ministral 3 and Devstral 2 are published: no blocks, but scales under the name of block scales.
    "ministral3-fp8-tensor": Case(
        ministral3(torch_dtype="bfloat16"),
        dtype=torch.bfloat16,
        lengths=(1, 7, 17, 33),
        scheme=Fp8(
            {
                "quant_method": "fp8",
                "activation_scheme": "static",
                "dequantize": False,
                "modules_to_not_convert": ["model.vision_tower", "model.multi_modal_projector", "lm_head"],
                "weight_block_size": None,
            },
            scale_dtype=torch.bfloat16,
            name="weight_scale_inv",
            static="activation_scale",
        ),
    ),
    # Llama 4 as written by llm-compressor: experts as separate tensors.
    "llama4-fp8-by-expert": Case(
        llama4(
            num_local_experts=4,
            num_experts_per_tok=1,
            interleave_moe_layer_step=1,
            intermediate_size=32,
            torch_dtype="bfloat16",
        ),
        dtype=torch.bfloat16,
        lengths=(1, 7, 17, 33),
        scheme=Fp8(
            compressed(
                "float-quantized",
                {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True},
                ["re:.*lm_head", "re:.*self_attn", "re:.*router"],
            ),
            blocks=(1, None),
            scale_dtype=torch.bfloat16,
        ),
        plain=("self_attn",),
    ),
    # Llama 4 as written by ModelOpt: one tensor for all experts, with one scale.
    "llama4-fp8-tensor": Case(
        llama4(
            num_local_experts=4,
            num_experts_per_tok=1,
            interleave_moe_layer_step=2,
            intermediate_size=32,
            intermediate_size_mlp=64,
            torch_dtype="bfloat16",
        ),
        dtype=torch.bfloat16,
        lengths=(1, 7, 17, 33),
        scheme=StackedFp8({"quant_method": "modelopt", "quant_algo": "FP8"}, "_weight_scale", static="input_scale"),
    ),
    "llama-int8-channel": Case(
        wide(llama, torch_dtype="bfloat16"),
        dtype=torch.bfloat16,
        lengths=(1, 7, 17, 33),
        scheme=Int8(
            compressed(
                "int-quantized",
                {"num_bits": 8, "type": "int", "strategy": "channel", "group_size": None, "symmetric": True},
                ["lm_head"],
            ),
            "plain",
            dtype=torch.bfloat16,
        ),
    ),
    "qwen2-gptq-int8": Case(
        wide(qwen2, torch_dtype="float16"),
        dtype=torch.float16,
        lengths=(1, 7, 17, 33),
        scheme=Int8(
            {"quant_method": "gptq", "bits": 8, "group_size": 32, "desc_act": False, "sym": True, "lm_head": False},
            "gptq",
            group=32,
        ),
    ),
    "qwen3-moe-int8-packed": Case(
        qwen3_moe(
            hidden_size=64,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=64,
            mlp_only_layers=[],
            torch_dtype="bfloat16",
        ),
        dtype=torch.bfloat16,
        lengths=(1, 7, 17, 33),
        scheme=Int8(
            compressed(
                "pack-quantized",
                {"num_bits": 8, "type": "int", "strategy": "group", "group_size": 64, "symmetric": True},
                ["lm_head", "re:.*mlp.gate$"],
            ),
            "packed",
            group=64,
            dtype=torch.bfloat16,
        ),
    ),
    # Some layers have other bits and groups, by GPTQModel's "dynamic"; q, k and v have two formats.
    "qwen2-gptq-mixed": Case(
        wide(qwen2, torch_dtype="float16"),
        dtype=torch.float16,
        lengths=(1, 7, 17, 33),
        scheme=Mixed(
            {
                "quant_method": "gptq",
                "bits": 4,
                "group_size": 32,
                "desc_act": False,
                "sym": True,
                "lm_head": False,
                "dynamic": {
                    "+:.*down_proj": {"bits": 8, "group_size": 64},
                    "+:.*v_proj": {"bits": 8},
                    "+:.*o_proj": {"group_size": 64},
                },
            },
            {
                "down_proj": Int8(None, "gptq", group=64),
                "v_proj": Int8(None, "gptq", group=32),
                "o_proj": Int4(None, "gptq", group=64, less_one=True),
                "_proj": Int4(None, "gptq", group=32, less_one=True),
            },
        ),
    ),
    # Groups of layers with different formats: attention in fp8, experts in int4.
    "qwen3-moe-fp8-int4": Case(
        qwen3_moe(
            hidden_size=64,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=32,
            mlp_only_layers=[],
            torch_dtype="bfloat16",
        ),
        dtype=torch.bfloat16,
        lengths=(1, 7, 17, 33),
        scheme=Mixed(
            {
                "quant_method": "compressed-tensors",
                "format": "mixed-precision",
                "config_groups": {
                    "group_0": {
                        "targets": ["re:.*self_attn.*_proj"],
                        "format": "float-quantized",
                        "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True},
                    },
                    "group_1": {
                        "targets": ["re:.*experts.*_proj"],
                        "format": "pack-quantized",
                        "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32},
                    },
                },
                "ignore": ["lm_head", "re:.*mlp.gate$"],
            },
            {
                "self_attn": Fp8(None, blocks=(1, None), scale_dtype=torch.bfloat16),
                "experts": Int4(None, "packed", group=32, dtype=torch.bfloat16),
            },
        ),
    ),
    # Qwen3-VL: one tensor for all experts in blocks, which are partial in both dimensions.
    "qwen3-vl-moe-fp8-blocks": Case(
        qwen3_vl(
            "Qwen3VLMoeForConditionalGeneration",
            "qwen3_vl_moe",
            hidden_size=160,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=72,
            mlp_only_layers=[],
        ),
        lengths=(1, 7, 17, 33),
        scheme=StackedFp8(
            {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
            "_scale_inv",
            blocks=(128, 128),
            name="weight_scale_inv",
        ),
    ),
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
}
