"""Models with LayerNorm, with attention and MLP in parallel, or with MLPs without a gate."""

import torch
from golden_configs import Case, config_of

LENGTHS = (1, 2, 33, 66)
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}


def layer_norm(architecture, model_type, **changes):
    """Removes the fields of COMMON that published models of this kind do not have."""
    return config_of(architecture, model_type, **{"rms_norm_eps": None, "hidden_act": None} | changes)


def gpt(architecture, model_type, **changes):
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "max_position_embeddings", "rope_theta")
    return layer_norm(
        architecture,
        model_type,
        **{name: None for name in names}
        | {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256}
        | {"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}
        | changes,
    )


CASES = {
    # Learned positions and transposed weights; names without "transformer.".
    "gpt2-bare-names": Case(
        gpt("GPT2LMHeadModel", "gpt2"),
        prefixes=(("transformer.", ""),),
        lengths=LENGTHS,
    ),
    # Interleaved rope in half of each head; bias of the head.
    "gptj-parallel": Case(
        gpt("GPTJForCausalLM", "gptj", rotary_dim=8, n_inner=80, torch_dtype="bfloat16"),
        dtype=torch.bfloat16,
        lengths=LENGTHS,
    ),
    # q, k and v by head, two norms of the same stream, rope in a quarter of each head.
    "gpt-neox-parallel": Case(
        layer_norm(
            "GPTNeoXForCausalLM", "gpt_neox", num_attention_heads=2, hidden_size=64, hidden_act="gelu",
            layer_norm_eps=1e-5, rotary_pct=0.25, rotary_emb_base=5000, rope_theta=None,
        ),
        prefixes=(("lm_head.", "embed_out."),),
        lengths=LENGTHS,
    ),
    # One sublayer after the other; no biases in attention.
    "gpt-neox-sequential": Case(
        layer_norm(
            "GPTNeoXForCausalLM", "gpt_neox", num_attention_heads=2, hidden_act="gelu_new",
            use_parallel_residual=False, attention_bias=False, rope_theta=None, torch_dtype="bfloat16",
        ),
        prefixes=(("lm_head.", "embed_out."),),
        dtype=torch.bfloat16,
        lengths=LENGTHS,
    ),
    "phi-parallel": Case(
        layer_norm("PhiForCausalLM", "phi", **HEADS, hidden_act="gelu_new", hidden_size=64, torch_dtype="bfloat16"),
        dtype=torch.bfloat16,
        lengths=LENGTHS,
    ),
    # No biases of norms, scaled logits, a tied head.
    "cohere-parallel": Case(
        layer_norm(
            "CohereForCausalLM", "cohere", **HEADS, hidden_act="silu", logit_scale=0.25, layer_norm_eps=1e-5,
            attention_bias=True, tie_word_embeddings=True, torch_dtype="bfloat16",
        ),
        dtype=torch.bfloat16,
        lengths=LENGTHS,
    ),
    # Windows with rope, and a full layer without.
    "cohere2-windows": Case(
        layer_norm(
            "Cohere2ForCausalLM", "cohere2", **HEADS, hidden_act="silu", num_hidden_layers=3, sliding_window=16,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"], logit_scale=0.125,
            tie_word_embeddings=True, torch_dtype="bfloat16",
        ),
        dtype=torch.bfloat16,
        lengths=LENGTHS,
    ),
    # Learned positions from row 2 on, ReLU.
    "opt-relu": Case(
        layer_norm(
            "OPTForCausalLM", "opt", num_attention_heads=4, ffn_dim=48, intermediate_size=None, rope_theta=None,
            activation_function="relu", do_layer_norm_before=True, word_embed_proj_dim=32, tie_word_embeddings=True,
        ),
        lengths=LENGTHS,
    ),
    # One key head (Falcon 7B).
    "falcon-multi-query": Case(
        layer_norm(
            "FalconForCausalLM", "falcon", num_attention_heads=3, hidden_size=48, ffn_hidden_size=64,
            intermediate_size=None, multi_query=True, parallel_attn=True, bias=False,
        ),
        lengths=LENGTHS,
    ),
    # Several key heads, biases (Falcon 11B).
    "falcon-new": Case(
        layer_norm(
            "FalconForCausalLM", "falcon", num_attention_heads=4, num_kv_heads=2, ffn_hidden_size=64,
            intermediate_size=None, new_decoder_architecture=True, num_ln_in_parallel_attn=1, bias=True,
            torch_dtype="bfloat16",
        ),
        dtype=torch.bfloat16,
        lengths=LENGTHS,
    ),
    "stablelm-partial": Case(
        layer_norm(
            "StableLmForCausalLM", "stablelm", num_attention_heads=2, num_key_value_heads=2, hidden_act="silu",
            hidden_size=64, layer_norm_eps=1e-5, use_qkv_bias=True, partial_rotary_factor=0.25,
        ),
        lengths=LENGTHS,
    ),
    "starcoder2-window": Case(
        layer_norm(
            "Starcoder2ForCausalLM", "starcoder2", **HEADS, hidden_act="gelu_pytorch_tanh", norm_epsilon=1e-5,
            sliding_window=24, use_bias=True, torch_dtype="bfloat16",
        ),
        dtype=torch.bfloat16,
        lengths=LENGTHS,
    ),
    # Norms that multiply by 1 + weight, squared ReLU.
    "nemotron-relu2": Case(
        layer_norm(
            "NemotronForCausalLM", "nemotron", **HEADS, hidden_act="relu2", norm_eps=1e-5, partial_rotary_factor=0.5,
            hidden_size=64, torch_dtype="bfloat16",
        ),
        dtype=torch.bfloat16,
        lengths=(1, 2, 7, 33),
    ),
    # Norms without weights; q, k and v are clipped where they are large.
    "olmo-clip": Case(
        layer_norm("OlmoForCausalLM", "olmo", **HEADS, hidden_act="silu", clip_qkv=1.0, torch_dtype="bfloat16"),
        dtype=torch.bfloat16,
        lengths=LENGTHS,
    ),
    "arcee-relu2": Case(
        config_of("ArceeForCausalLM", "arcee", **HEADS, hidden_act="relu2", torch_dtype="bfloat16"),
        dtype=torch.bfloat16,
        lengths=LENGTHS,
    ),
}
