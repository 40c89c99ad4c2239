"""Quantized models: fp8, int4 and mxfp4 in the formats of their tools."""

import torch
from golden_configs import (
    Case,
    compressed,
    deepseek_v3,
    gpt_oss,
    llama,
    mixtral,
    qwen2,
    qwen3,
    qwen3_moe,
    wide,
)
from quantize import Fp8, Int4, MxFp4, StackedMxFp4

CASES = {
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
}
