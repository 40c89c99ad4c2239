"""Configs of the tiny random models of tests/goldens, in the form of published models, and the parts of a case."""

import torch

EOS = 1

SEQUENCE_LENGTHS = (1, 7, 33, 130)

COMMON = {
    "bos_token_id": 0,
    "eos_token_id": EOS,
    "hidden_act": "silu",
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "use_cache": True,
}


def config_of(architecture, model_type, **changes):
    """Returns a config.json in the form of published models: COMMON, then the changes of the case.

    A change to None removes the key, since published configs omit unused keys.
    """
    config = {"architectures": [architecture], "model_type": model_type, **COMMON, **changes}
    return {key: value for key, value in config.items() if value is not None}


def llama(**changes):
    return config_of("LlamaForCausalLM", "llama", **changes)


def mistral(**changes):
    return config_of("MistralForCausalLM", "mistral", **changes)


def qwen2(**changes):
    return config_of("Qwen2ForCausalLM", "qwen2", **changes)


def qwen3(**changes):
    return config_of("Qwen3ForCausalLM", "qwen3", **changes)


def seed_oss(**changes):
    return config_of("SeedOssForCausalLM", "seed_oss", **changes)


def gemma(architecture, model_type, **changes):
    """hidden_act is kept in the file, as in published models: Gemma reads hidden_activation."""
    return config_of(
        architecture,
        model_type,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        rms_norm_eps=1e-6,
        hidden_activation="gelu_pytorch_tanh",
        **{
            "hidden_size": 48,
            "tie_word_embeddings": None,
            "query_pre_attn_scalar": 24,
            "sliding_window": 16,
        }
        | changes,
    )


def gemma2(**changes):
    return gemma("Gemma2ForCausalLM", "gemma2", **changes)


def gemma3(**changes):
    return gemma("Gemma3ForCausalLM", "gemma3_text", **changes)


def gemma3_multimodal(**text_changes):
    """Gemma 3 with its vision tower: the decoder's keys are in text_config."""
    text = gemma("", "gemma3_text", **text_changes)
    outer = ("bos_token_id", "eos_token_id", "torch_dtype")
    return {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        **{key: text[key] for key in outer},
        "image_token_index": 127,
        "boi_token_index": 126,
        "eoi_token_index": 125,
        "mm_tokens_per_image": 4,
        "text_config": {
            key: value for key, value in text.items() if key not in (*outer, "architectures")
        },
        "vision_config": {
            "model_type": "siglip_vision_model",
            "hidden_size": 8,
            "intermediate_size": 8,
            "num_hidden_layers": 1,
            "num_attention_heads": 1,
            "image_size": 28,
            "patch_size": 14,
        },
    }


def gemma4(**changes):
    """With the fields of published files, which transformers 5.24 no longer writes."""
    return config_of(
        "Gemma4ForCausalLM",
        "gemma4_text",
        **{
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 32,
            "global_head_dim": 64,
            "rms_norm_eps": 1e-6,
            "hidden_act": None,
            "hidden_activation": "gelu_pytorch_tanh",
            "rope_theta": None,
            "rope_parameters": {
                "full_attention": {
                    "rope_type": "proportional",
                    "partial_rotary_factor": 0.25,
                    "rope_theta": 1e6,
                },
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
            "tie_word_embeddings": None,
            "sliding_window": 16,
            "vocab_size_per_layer_input": 128,
            "final_logit_softcapping": 30.0,
            "pad_token_id": 0,
        }
        | changes,
    )


def gemma4_multimodal(**text_changes):
    """The decoder's keys are in text_config; the folder has no towers."""
    text = gemma4(**text_changes)
    outer = ("bos_token_id", "eos_token_id", "torch_dtype")
    return {
        "architectures": ["Gemma4ForConditionalGeneration"],
        "model_type": "gemma4",
        **{key: text[key] for key in outer},
        "image_token_id": 127,
        "video_token_id": 126,
        "audio_token_id": 125,
        "vision_config": None,
        "audio_config": None,
        "text_config": {key: value for key, value in text.items() if key not in (*outer, "architectures")},
    }


def gemma4_unified(**text_changes):
    """Without embeddings per layer and experts."""
    config = gemma4_multimodal(vocab_size_per_layer_input=None, **text_changes)
    config["text_config"]["model_type"] = "gemma4_unified_text"
    return config | {"architectures": ["Gemma4UnifiedForConditionalGeneration"], "model_type": "gemma4_unified"}


def phi3(**changes):
    return config_of("Phi3ForCausalLM", "phi3", pad_token_id=0, **changes)


def olmo2(**changes):
    return config_of("Olmo2ForCausalLM", "olmo2", **changes)


def glm4(**changes):
    return config_of("Glm4ForCausalLM", "glm4", pad_token_id=0, **changes)


def qwen3_moe(**changes):
    return config_of(
        "Qwen3MoeForCausalLM",
        "qwen3_moe",
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        rms_norm_eps=1e-6,
        attention_bias=False,
        **{"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24} | changes,
    )


def mixtral(**changes):
    return config_of("MixtralForCausalLM", "mixtral", **changes)


def gpt_oss(**changes):
    return config_of("GptOssForCausalLM", "gpt_oss", pad_token_id=0, sliding_window=16, **changes)
DEEPSEEK_EXPERTS = {"moe_intermediate_size": 12, "num_attention_heads": 2, "kv_lora_rank": 512}


def deepseek_v2(**changes):
    """Latent rows have the published width, which backends require: 512 and 64."""
    return config_of(
        "DeepseekV2ForCausalLM",
        "deepseek_v2",
        rms_norm_eps=1e-6,
        **DEEPSEEK_EXPERTS,
        qk_rope_head_dim=64,
        **{"qk_nope_head_dim": 16, "v_head_dim": 16, "torch_dtype": "bfloat16"} | changes,
    )


def deepseek_v3(**changes):
    return config_of(
        "DeepseekV3ForCausalLM",
        "deepseek_v3",
        num_key_value_heads=2,
        **DEEPSEEK_EXPERTS,
        qk_rope_head_dim=64,
        scoring_func="sigmoid",
        topk_method="noaux_tc",
        torch_dtype="bfloat16",
        **changes,
    )


def kimi_linear(kda_layers, full_attn_layers, head_dim, num_heads, kernel=4, **changes):
    """The numbers of layers begin at 1, as published."""
    return config_of(
        "KimiLinearForCausalLM",
        "kimi_linear",
        num_key_value_heads=2,
        moe_intermediate_size=12,
        num_attention_heads=2,
        kv_lora_rank=512,
        q_lora_rank=None,
        qk_nope_head_dim=16,
        qk_rope_head_dim=64,
        v_head_dim=16,
        linear_attn_config={
            "full_attn_layers": full_attn_layers,
            "head_dim": head_dim,
            "kda_layers": kda_layers,
            "num_heads": num_heads,
            "short_conv_kernel_size": kernel,
        },
        mla_use_nope=True,
        model_max_length=256,
        max_position_embeddings=None,
        moe_router_activation_func="sigmoid",
        num_experts=8,
        num_experts_per_token=3,
        num_shared_experts=1,
        pad_token_id=0,
        torch_dtype="bfloat16",
        **changes,
    )


def granite(**changes):
    """Sublayers add half of their output, and the embedding is multiplied by three."""
    return config_of(
        "GraniteForCausalLM",
        "granite",
        num_attention_heads=4,
        num_key_value_heads=2,
        hidden_size=64,
        residual_multiplier=0.4,
        attention_multiplier=0.2,
        logits_scaling=4.0,
        **{"embedding_multiplier": 3.0} | changes,
    )


def glm4_moe(**changes):
    return config_of(
        "Glm4MoeForCausalLM",
        "glm4_moe",
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        n_routed_experts=8,
        num_experts_per_tok=3,
        moe_intermediate_size=12,
        **changes,
    )


def glm4_moe_lite(**changes):
    """Latent rows have the published width, which backends require: 512 and 64."""
    return config_of(
        "Glm4MoeLiteForCausalLM",
        "glm4_moe_lite",
        num_attention_heads=2,
        num_key_value_heads=2,
        q_lora_rank=24,
        kv_lora_rank=512,
        qk_nope_head_dim=192,
        qk_rope_head_dim=64,
        v_head_dim=256,
        n_routed_experts=8,
        num_experts_per_tok=3,
        moe_intermediate_size=12,
        torch_dtype="bfloat16",
        **changes,
    )


def multimodal(architecture, model_type, text, vision, **outer):
    """A model for images and text: the decoder's keys are in text_config."""
    own = ("bos_token_id", "eos_token_id", "torch_dtype")
    return {
        "architectures": [architecture],
        "model_type": model_type,
        **{key: text[key] for key in own},
        **outer,
        "text_config": {key: value for key, value in text.items() if key not in (*own, "architectures")},
        "vision_config": vision,
    }


QWEN_VISION = {
    "depth": 1,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_heads": 1,
    "patch_size": 2,
    "spatial_merge_size": 2,
    "temporal_patch_size": 1,
}
QWEN_IMAGE_TOKENS = {
    "image_token_id": 127,
    "video_token_id": 126,
    "vision_start_token_id": 125,
    "vision_end_token_id": 125,
}


def qwen3_vl(architecture, model_type, **text_changes):
    """Positions with three axes, which are equal for text."""
    return multimodal(
        architecture,
        model_type,
        config_of(
            "",
            model_type + "_text",
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            rms_norm_eps=1e-6,
            rope_theta=5000000.0,
            rope_scaling={"mrope_interleaved": True, "mrope_section": [6, 5, 5], "rope_type": "default"},
            **text_changes,
        ),
        QWEN_VISION
        | {
            "model_type": model_type,
            "out_hidden_size": 32,
            "num_position_embeddings": 4,
            "deepstack_visual_indexes": [0],
        },
        **QWEN_IMAGE_TOKENS,
        tie_word_embeddings=False,
    )


# Sizes of the linear-attention layers of Qwen3-Next and Qwen3.5: values are wider than keys.
GATED_DELTA = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "head_dim": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
}


def qwen3_next(**changes):
    """Layers 0 to 2 are linear attention by default, layer 3 has full attention."""
    return config_of(
        "Qwen3NextForCausalLM",
        "qwen3_next",
        num_experts=8,
        num_experts_per_tok=3,
        moe_intermediate_size=24,
        shared_expert_intermediate_size=20,
        **GATED_DELTA | {"num_hidden_layers": 4} | changes,
    )


def olmo_hybrid(**changes):
    """Layers 0 to 2 are linear attention by default, layer 3 has full attention; no rope. Values are wider than keys."""
    return config_of(
        "OlmoHybridForCausalLM",
        "olmo_hybrid",
        num_attention_heads=4,
        pad_token_id=0,
        rope_theta=None,
        **{
            "hidden_size": 64,
            "num_hidden_layers": 4,
            "rope_parameters": {"rope_theta": None, "rope_type": "default"},
        }
        | changes,
    )


def qwen3_5_text(architecture, model_type, **changes):
    return config_of(
        architecture,
        model_type,
        rope_theta=None,
        rope_parameters={
            "mrope_interleaved": True,
            "mrope_section": [2, 1, 1],
            "partial_rotary_factor": 0.25,
            "rope_theta": 100000.0,
            "rope_type": "default",
        },
        **GATED_DELTA | changes,
    )


def qwen3_5(architecture, model_type, **text_changes):
    """Qwen3.5 as published, with its vision tower."""
    return multimodal(
        architecture,
        model_type,
        qwen3_5_text("", model_type + "_text", **text_changes),
        QWEN_VISION
        | {"model_type": model_type + "_vision", "out_hidden_size": 32, "num_position_embeddings": 4},
        **QWEN_IMAGE_TOKENS,
        tie_word_embeddings=False,
    )


def lfm2(**changes):
    """Short convolutions, and attention in layer 1; norm_eps instead of rms_norm_eps."""
    return config_of(
        "Lfm2ForCausalLM",
        "lfm2",
        num_attention_heads=4,
        num_key_value_heads=2,
        hidden_size=64,
        num_hidden_layers=3,
        rms_norm_eps=None,
        hidden_act=None,
        norm_eps=1e-5,
        rope_theta=1000000.0,
        **{
            "conv_L_cache": 3,
            "full_attn_idxs": [1],
            "block_multiple_of": 16,
            "tie_word_embeddings": None,
        }
        | changes,
    )


def lfm2_moe(**changes):
    return config_of(
        "Lfm2MoeForCausalLM",
        "lfm2_moe",
        num_attention_heads=4,
        num_key_value_heads=2,
        hidden_size=64,
        rms_norm_eps=None,
        hidden_act=None,
        norm_eps=1e-5,
        num_experts=8,
        num_experts_per_tok=3,
        moe_intermediate_size=24,
        layer_types=["conv", "full_attention", "conv", "conv"],
        **{"num_hidden_layers": 4, "tie_word_embeddings": None} | changes,
    )


def bamba(**changes):
    """Mamba-2 with 128 features, as transformers requires: mamba_expand times hidden_size."""
    return config_of(
        "BambaForCausalLM",
        "bamba",
        num_attention_heads=4,
        num_key_value_heads=2,
        hidden_size=64,
        num_hidden_layers=3,
        mamba_chunk_size=16,
        mamba_n_heads=8,
        mamba_d_state=24,
        **{"mamba_n_groups": 2, "mamba_d_head": 16, "attn_layer_indices": [1]} | changes,
    )


def granite_hybrid(**changes):
    """Mamba-2 in all layers except layer 1, with the multipliers of granite()."""
    return granite(
        **{
            "num_hidden_layers": 3,
            "layer_types": ["mamba", "attention", "mamba"],
            "mamba_chunk_size": 16,
            "mamba_n_heads": 8,
            "mamba_d_state": 24,
            "shared_intermediate_size": 40,
            "position_embedding_type": "nope",
        }
        | changes,
    ) | {"architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid"}


def falcon_h1(**changes):
    """Attention and Mamba-2 in each layer, with 96 features of Mamba-2 and factors of all activations."""
    return config_of(
        "FalconH1ForCausalLM",
        "falcon_h1",
        num_attention_heads=4,
        num_key_value_heads=2,
        hidden_size=64,
        mamba_chunk_size=16,
        mamba_d_ssm=96,
        mamba_n_heads=8,
        mamba_d_head=12,
        mamba_d_state=24,
        attention_in_multiplier=1.25,
        attention_out_multiplier=0.9,
        key_multiplier=0.6,
        embedding_multiplier=1.5,
        lm_head_multiplier=0.5,
        mlp_multipliers=[0.8, 0.7],
        ssm_in_multiplier=1.2,
        ssm_out_multiplier=0.8,
        ssm_multipliers=[0.7, 1.1, 0.9, 1.3, 0.6],
        **changes,
    )


def nemotron_h(**changes):
    """One sublayer per layer; 128 features of Mamba-2. transformers bounds steps by time_step_min, in prompts only."""
    return config_of(
        "NemotronHForCausalLM",
        "nemotron_h",
        num_attention_heads=4,
        num_key_value_heads=2,
        hidden_size=64,
        head_dim=24,
        num_hidden_layers=None,
        rms_norm_eps=None,
        hidden_act=None,
        rope_theta=None,
        layer_norm_epsilon=1e-5,
        mamba_num_heads=8,
        mamba_head_dim=16,
        ssm_state_size=24,
        n_groups=2,
        chunk_size=16,
        time_step_min=0.0,
        **changes,
    )


def qwen2_5_vl(**changes):
    """As published: the decoder's keys are next to vision_config, not in a text_config."""
    return config_of(
        "Qwen2_5_VLForConditionalGeneration",
        "qwen2_5_vl",
        num_attention_heads=2,
        num_key_value_heads=1,
        hidden_size=64,
        rope_theta=1000000.0,
        use_sliding_window=False,
        sliding_window=16,
        max_window_layers=1,
        rope_scaling={"type": "mrope", "mrope_section": [4, 6, 6]},
        vision_config=QWEN_VISION
        | {
            "model_type": "qwen2_5_vl",
            "out_hidden_size": 64,
            "fullatt_block_indexes": [0],
            "window_size": 4,
        },
        **QWEN_IMAGE_TOKENS,
        **changes,
    )


def mistral3(text):
    """Mistral Small and Ministral 3 with their vision tower."""
    return multimodal(
        "Mistral3ForConditionalGeneration",
        "mistral3",
        text,
        {
            "model_type": "pixtral",
            "hidden_size": 8,
            "intermediate_size": 8,
            "num_hidden_layers": 1,
            "num_attention_heads": 1,
            "head_dim": 8,
            "image_size": 8,
            "patch_size": 4,
        },
        image_token_index=127,
        tie_word_embeddings=False,
    )


def ministral3(architecture="Ministral3ForCausalLM", **changes):
    """The temperature of queries increases within the prompts, at positions 64 and 128."""
    return config_of(
        architecture,
        "ministral3",
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        rope_theta=None,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 64,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.5,
        },
        **changes,
    )


def llama4(**changes):
    return config_of(
        "Llama4ForCausalLM",
        "llama4_text",
        pad_token_id=0,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        **{"attention_chunk_size": 16, "floor_scale": 8, "intermediate_size": 24} | changes,
    )


def llama4_multimodal(**text_changes):
    """Llama 4 with its vision tower: the decoder's keys are in text_config."""
    text = llama4(**text_changes)
    outer = ("bos_token_id", "eos_token_id", "torch_dtype")
    return {
        "architectures": ["Llama4ForConditionalGeneration"],
        "model_type": "llama4",
        **{key: text[key] for key in outer},
        "image_token_index": 127,
        "boi_token_index": 126,
        "eoi_token_index": 125,
        "text_config": {
            key: value for key, value in text.items() if key not in (*outer, "architectures")
        },
    }


def wide(architecture, **changes):
    """Sizes that are multiples of groups of 32 and 64 inputs."""
    return architecture(
        hidden_size=64,
        intermediate_size=128,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        **changes,
    )


def compressed(format, weights, ignore):
    """quantization_config of compressed-tensors."""
    return {
        "quant_method": "compressed-tensors",
        "format": format,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": ignore,
        "quantization_status": "compressed",
    }


class Case:
    """One folder: a config, the lengths of its prompts, and the format of its weights.

    `prefixes`: pairs (from, to) of name prefixes in transformers' memory and in the file.
    `extra`: shapes by name of tensors that are in the file and not in the model.
    `scheme`: quantization of linear layers (quantize.py), except those with a word of `plain` in their names.
    `largest_rounding`: 16-bit rounding changes the experts of some tokens, and states or attention carry the
        difference to later tokens, so that a prompt's own error is a small sample: each has the largest error of the
        case in bfloat16.
    """

    def __init__(
        self,
        config,
        lengths=SEQUENCE_LENGTHS,
        dtype=torch.float32,
        num_files=1,
        prefixes=(),
        extra=(),
        scheme=None,
        plain=(),
        largest_rounding=False,
    ):
        self.config = config
        self.lengths = lengths
        self.dtype = dtype
        self.num_files = num_files
        self.prefixes = prefixes
        self.extra = dict(extra)
        self.scheme = scheme
        self.plain = plain
        self.largest_rounding = largest_rounding
