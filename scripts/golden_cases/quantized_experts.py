"""Quantized experts, int8, and models of several formats."""

import torch
from golden_configs import (
    Case,
    compressed,
    llama,
    llama4,
    ministral3,
    qwen2,
    qwen3_moe,
    qwen3_vl,
    wide,
)
from quantize import Fp8, Int4, Int8, Mixed, StackedFp8

CASES = {
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
}
