#!/usr/bin/env python3
"""Writes the goldens of draft heads: tests/goldens/draft-*, tiny random drafts with their logits and hidden states.

    pip install torch transformers safetensors
    python3 scripts/make_draft_goldens.py              # all cases
    python3 scripts/make_draft_goldens.py draft-eagle  # one case

Heads with files of their own (EAGLE) are computed here in numpy; their target is the Llama draft-target. Layers for
multi-token prediction are in their target's folder; their decoder layer is that of transformers.

golden.safetensors: `tokens` [n + 2]; `target_hidden`, the target's hidden states of the first n tokens; `logits` and
`hidden` of the n rows with tokens 1 to n; `next_logits` and `next_hidden` of a further row, which has the last token and
reads the hidden state of the row before it.
"""

import argparse
import json
import pathlib
import shutil

import numpy as np
import torch
from golden_configs import config_of, deepseek_v3, glm4_moe, llama, qwen3_next
from make_goldens import load, make_weights, published_tensors, random_weight
from safetensors.torch import load_file, save_file
from transformers import AutoConfig
from transformers.modeling_layers import MtpLayer

NUM_ROWS = 19
TARGET = "draft-target"


def target_config():
    return llama(num_hidden_layers=7, num_attention_heads=4, num_key_value_heads=2, head_dim=16, torch_dtype="bfloat16")


def tokens_of(vocab_size, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2, vocab_size, (NUM_ROWS + 2,), generator=generator)


# EAGLE: drafts of draft-target.


def draft_config(architecture="LlamaForCausalLMEagle3", **changes):
    return config_of(
        architecture,
        "llama",
        **{
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 24,
            "intermediate_size": 40,
            "max_position_embeddings": 64,
            "torch_dtype": "bfloat16",
        }
        | changes,
    )


EAGLE_CASES = {
    # Default layers, a head with some of the tokens.
    "draft-eagle3": draft_config(draft_vocab_size=48),
    # gpt-oss and Qwen3: a norm per state, a normalized state that recurs, the target's head, two layers.
    "draft-eagle3-norms": draft_config(
        num_hidden_layers=2,
        draft_vocab_size=None,
        fc_norm=True,
        norm_output=True,
        eagle_config={"eagle_aux_hidden_state_layer_ids": [0, 2, 5]},
    ),
    # A norm over all states, a bias, a table of its own and a full head.
    "draft-eagle3-bias": draft_config(
        draft_vocab_size=128,
        bias=True,
        norm_before_fc=True,
        eagle_config={"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": [1, 6]},
    ),
    # The final hidden state, a normalized stream, a head tied to the draft's own table.
    "draft-eagle3-final": draft_config(
        norm_before_residual=True, tie_word_embeddings=True, eagle_config={"use_aux_hidden_state": False}
    ),
    "draft-eagle": draft_config("LlamaForCausalLMEagle", bias=True),
}
OWN_TABLE = ("draft-eagle3-bias", "draft-eagle3-final")
NAMED_LAYERS = ("draft-eagle3-norms", "draft-eagle")  # layers.0 instead of midlayer


def aux_layers(config, num_layers):
    eagle = config.get("eagle_config", {})
    if config["architectures"][0] == "LlamaForCausalLMEagle" or not eagle.get("use_aux_hidden_state", True):
        return None
    ids = eagle.get("eagle_aux_hidden_state_layer_ids")
    return [i + 1 for i in ids] if ids else [2, num_layers // 2, num_layers - 3]


def eagle_shapes(name, config, num_states):
    h, d = config["hidden_size"], config["head_dim"]
    q, kv, inner = config["num_attention_heads"] * d, config["num_key_value_heads"] * d, config["intermediate_size"]
    eagle3 = config["architectures"][0] == "LlamaForCausalLMEagle3"
    shapes = {"fc.weight": (h, num_states * h if eagle3 else 2 * h)}
    if config.get("bias"):
        shapes["fc.bias"] = (h,)
    if config.get("fc_norm"):
        shapes |= {f"fc_norm.{i}.weight": (h,) for i in range(num_states)}
    if config.get("norm_before_fc"):
        shapes["input_norm.weight"] = (num_states * h,)
    for index in range(config["num_hidden_layers"]):
        layer = f"layers.{index}." if index or name in NAMED_LAYERS else "midlayer."
        width = 2 * h if eagle3 and index == 0 else h
        if eagle3 and index == 0:
            shapes[f"{layer}hidden_norm.weight"] = (h,)
        if eagle3 or index > 0:
            shapes[f"{layer}input_layernorm.weight"] = (h,)
        shapes |= {
            f"{layer}self_attn.q_proj.weight": (q, width),
            f"{layer}self_attn.k_proj.weight": (kv, width),
            f"{layer}self_attn.v_proj.weight": (kv, width),
            f"{layer}self_attn.o_proj.weight": (h, q),
            f"{layer}post_attention_layernorm.weight": (h,),
            f"{layer}mlp.gate_proj.weight": (inner, h),
            f"{layer}mlp.up_proj.weight": (inner, h),
            f"{layer}mlp.down_proj.weight": (h, inner),
        }
    if eagle3:
        shapes["norm.weight"] = (h,)
    if config.get("draft_vocab_size"):
        shapes["lm_head.weight"] = (config["draft_vocab_size"], h)
    if name in OWN_TABLE:
        shapes["embed_tokens.weight"] = (config["vocab_size"], h)
    return shapes


class EagleReference:
    """EAGLE and EAGLE-3 in float64."""

    def __init__(self, name, config, weights, target):
        self.config = config
        self.eagle3 = config["architectures"][0] == "LlamaForCausalLMEagle3"
        self.first = "layers.0." if name in NAMED_LAYERS else "midlayer."
        self.w = {key: value.double().numpy() for key, value in weights.items()}
        self.table = self.w.get("embed_tokens.weight", target["model.embed_tokens.weight"].double().numpy())
        tied = config["tie_word_embeddings"]
        head = self.table if tied else target["lm_head.weight"].double().numpy()
        self.head = self.w.get("lm_head.weight", head)

    def norm(self, x, name):
        scale = np.sqrt((x * x).mean(-1, keepdims=True) + self.config["rms_norm_eps"])
        return x / scale * self.w[name + ".weight"]

    def fc(self, x):
        return x @ self.w["fc.weight"].T + self.w.get("fc.bias", 0.0)

    def rope(self, x, positions):
        half = x.shape[-1] // 2
        angles = positions[:, None, None] * self.config["rope_theta"] ** (-np.arange(half) / half)
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1)

    def attention(self, x, layer):
        c, n = self.config, len(x)
        heads = lambda part: (x @ self.w[f"{layer}self_attn.{part}_proj.weight"].T).reshape(n, -1, c["head_dim"])
        positions = np.arange(n)
        q, k, v = self.rope(heads("q"), positions), self.rope(heads("k"), positions), heads("v")
        groups = c["num_attention_heads"] // c["num_key_value_heads"]
        k, v = k.repeat(groups, 1), v.repeat(groups, 1)
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(c["head_dim"])
        scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return np.einsum("hqk,khd->qhd", weights, v).reshape(n, -1) @ self.w[f"{layer}self_attn.o_proj.weight"].T

    def mlp(self, x, layer):
        gate, up = (x @ self.w[f"{layer}mlp.{part}_proj.weight"].T for part in ("gate", "up"))
        return (gate / (1 + np.exp(-gate)) * up) @ self.w[f"{layer}mlp.down_proj.weight"].T

    def states(self, hidden):
        """Normalizes the target's hidden states before fc."""
        if self.config.get("fc_norm"):
            chunks = np.split(hidden, hidden.shape[-1] // self.config["hidden_size"], -1)
            return np.concatenate([self.norm(chunk, f"fc_norm.{i}") for i, chunk in enumerate(chunks)], -1)
        return self.norm(hidden, "input_norm") if self.config.get("norm_before_fc") else hidden

    def forward(self, tokens, hidden, own):
        """`hidden`: of the target for the first rows; `own`: of the draft for further rows."""
        e = self.table[tokens]
        if self.eagle3:
            x = np.concatenate([self.fc(self.states(hidden)), own])
            normed = self.norm(x, self.first + "hidden_norm")
            joined = np.concatenate([self.norm(e, self.first + "input_layernorm"), normed], -1)
            x = (normed if self.config.get("norm_before_residual") else x) + self.attention(joined, self.first)
        else:
            x = self.fc(np.concatenate([e, np.concatenate([hidden, own])], -1))
            x = x + self.attention(x, self.first)
        x = x + self.mlp(self.norm(x, self.first + "post_attention_layernorm"), self.first)
        for index in range(1, self.config["num_hidden_layers"]):
            layer = f"layers.{index}."
            x = x + self.attention(self.norm(x, layer + "input_layernorm"), layer)
            x = x + self.mlp(self.norm(x, layer + "post_attention_layernorm"), layer)
        normed = self.norm(x, "norm") if self.eagle3 else x
        return normed @ self.head.T, normed if self.config.get("norm_output") else x


def golden_of(forward, tokens, target_hidden):
    """`forward(tokens, target's hidden, own hidden)` returns logits and hidden states of all rows, as numpy arrays."""
    logits, hidden = forward(tokens[1 : NUM_ROWS + 1].numpy(), target_hidden, target_hidden[:0])
    next_logits, next_hidden = forward(tokens[1:].numpy(), target_hidden, hidden[-1:])
    arrays = {
        "target_hidden": target_hidden,
        "logits": logits,
        "hidden": hidden,
        "next_logits": next_logits[-1:],
        "next_hidden": next_hidden[-1:],
    }
    golden = {name: torch.from_numpy(np.ascontiguousarray(array)).float() for name, array in arrays.items()}
    return golden | {"tokens": tokens.to(torch.int32)}


@torch.no_grad()
def hidden_of(folder, tokens, layers):
    """Returns the target's residual stream before `layers`, or the hidden state after its final norm."""
    model = load(folder, torch.float64)
    output = model(input_ids=tokens[None, :NUM_ROWS], output_hidden_states=True, use_cache=False)
    states = output.hidden_states
    if layers is None:
        return states[-1][0].numpy()
    # The last entry is normalized; the stream before the norm is not returned.
    captured = {}
    handle = model.model.norm.register_forward_pre_hook(lambda _, inputs: captured.update(stream=inputs[0]))
    model(input_ids=tokens[None, :NUM_ROWS], use_cache=False)
    handle.remove()
    streams = [*states[:-1], captured["stream"]]
    return torch.cat([streams[i] for i in layers], -1)[0].numpy()


def write_folder(folder, config, weights):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    save_file({k: v.contiguous() for k, v in weights.items()}, folder / "model.safetensors", metadata={"format": "pt"})


def make_eagle(out, name, seed):
    config, target = EAGLE_CASES[name], out / TARGET
    layers = aux_layers(config, target_config()["num_hidden_layers"])
    generator = torch.Generator().manual_seed(seed)
    model_config = AutoConfig.for_model(**target_config())
    weights = {
        key: random_weight(key, shape, model_config, generator).to(torch.bfloat16)
        for key, shape in eagle_shapes(name, config, len(layers) if layers else 1).items()
    }
    draft_vocab = config.get("draft_vocab_size")
    if draft_vocab and draft_vocab < config["vocab_size"]:
        chosen = torch.randperm(config["vocab_size"], generator=generator)[:draft_vocab].sort().values
        weights["d2t"] = chosen - torch.arange(draft_vocab)
        weights["t2d"] = torch.zeros(config["vocab_size"], dtype=torch.bool).index_fill_(0, chosen, True)
    write_folder(out / name, config, weights)
    tokens = tokens_of(config["vocab_size"], seed)
    reference = EagleReference(name, config, weights, load_file(target / "model.safetensors"))
    own_width = config["hidden_size"]
    golden = golden_of(
        lambda ids, hidden, own: reference.forward(ids, hidden, own[:, :own_width]),
        tokens,
        hidden_of(target, tokens, layers),
    )
    save_file(golden, out / name / "golden.safetensors")


# Multi-token prediction. Names of the parts of transformers' MtpLayer in files.


def next_layer(config):
    layer = f"model.layers.{config['num_hidden_layers']}."
    parts = ("enorm", "hnorm", "eh_proj")
    return {part: layer + part for part in parts} | {"post_norm": layer + "shared_head.norm", "mtp_block": layer}


MIMO = {
    "enorm": "model.mtp_layers.0.token_layernorm",
    "hnorm": "model.mtp_layers.0.hidden_layernorm",
    "eh_proj": "model.mtp_layers.0.input_proj",
    "post_norm": "model.mtp_layers.0.final_layernorm",
    "mtp_block": "model.mtp_layers.0.",
}
ERNIE = {
    "enorm": "model.mtp_emb_norm.0",
    "hnorm": "model.mtp_hidden_norm.0",
    "eh_proj": "model.mtp_linear_proj.0",
    "mtp_block": "model.mtp_block.0.",
}
QWEN = {
    "enorm": "mtp.pre_fc_norm_embedding",
    "hnorm": "mtp.pre_fc_norm_hidden",
    "eh_proj": "mtp.fc",
    "post_norm": "mtp.norm",
    "mtp_block": "mtp.layers.0.",
}
SMALL_HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_nextn_predict_layers": 1}


def prediction_cases():
    mimo = config_of("MiMoForCausalLM", "qwen2", attention_bias=True, torch_dtype="bfloat16", **SMALL_HEADS)
    ernie = config_of(
        "Ernie4_5ForCausalLM", "ernie4_5", use_bias=True, **SMALL_HEADS | {"torch_dtype": "bfloat16"}
    )
    glm = glm4_moe(
        use_qk_norm=True,
        n_shared_experts=1,
        first_k_dense_replace=1,
        num_nextn_predict_layers=1,
        torch_dtype="bfloat16",
    )
    deepseek = deepseek_v3(
        q_lora_rank=16,
        qk_nope_head_dim=16,
        v_head_dim=16,
        first_k_dense_replace=1,
        num_nextn_predict_layers=1,
        n_routed_experts=8,
        num_experts_per_tok=3,
        n_shared_experts=1,
        n_group=2,
        topk_group=2,
    )
    qwen = qwen3_next(torch_dtype="bfloat16", num_hidden_layers=2, full_attention_interval=2)
    return {
        "draft-mimo": (mimo, MIMO),
        "draft-ernie4-5": (ernie, ERNIE),
        "draft-glm4-moe": (glm, next_layer(glm)),
        "draft-deepseek-v3": (deepseek, next_layer(deepseek)),
        "draft-qwen3-next": (qwen, QWEN),
    }


class Prediction:
    """transformers' MtpLayer of a target in `folder`, with random weights of the file's dtype."""

    def __init__(self, folder, config, names, seed):
        self.model = load(folder, torch.float64)
        decoder = self.model.model
        self.config = self.model.config
        self.clears_first = names in (MIMO, ERNIE)
        self.config.mtp_hidden_states_first = names is MIMO
        index = self.config.num_hidden_layers - 1
        with torch.device("cpu"):
            self.layer = MtpLayer(
                self.config, type(decoder.layers[-1]), type(decoder.norm), index, "post_norm" in names
            ).eval()
            if config.get("use_bias"):
                self.layer.eh_proj = torch.nn.Linear(2 * self.config.hidden_size, self.config.hidden_size)
        self.layer.double()
        generator = torch.Generator().manual_seed(seed)
        self.weights = {}
        tensors = [*self.layer.named_parameters()]
        tensors += [(n, b) for n, b in self.layer.named_buffers() if n.endswith("e_score_correction_bias")]
        for name, tensor in tensors:
            part, rest = name.split(".", 1)
            stored = names[part] + ("" if part == "mtp_block" else ".") + rest
            if part != "mtp_block" and "norm" in part:
                random = random_weight("norm.weight", tuple(tensor.shape), self.config, generator)
            else:
                random = random_weight(stored, tuple(tensor.shape), self.config, generator)
            if not name.endswith("e_score_correction_bias"):
                random = random.to(torch.bfloat16)
            self.weights |= published_tensors(stored, random, self.config)
            with torch.no_grad():
                tensor.copy_(random.double())

    @torch.no_grad()
    def forward(self, tokens, hidden, own):
        hidden = torch.from_numpy(np.concatenate([hidden, own.reshape(-1, hidden.shape[-1])]))[None]
        embedded = self.model.get_input_embeddings()(torch.from_numpy(tokens)[None])
        if self.clears_first:
            embedded[:, 0] = 0
        count = len(tokens)
        positions = torch.arange(count)[None]
        mask = torch.full((count, count), torch.finfo(torch.float64).min, dtype=torch.float64).triu(1)[None, None]
        cos_sin = self.model.model.rotary_emb(hidden, positions)
        output = self.layer(
            embedded, hidden, position_embeddings=cos_sin, attention_mask=mask, position_ids=positions, cache=None
        )
        output = output[0] if isinstance(output, tuple) else output
        return self.model.lm_head(output)[0].numpy(), output[0].numpy()


def make_prediction(out, name, seed):
    config, names = prediction_cases()[name]
    # transformers has no MiMo; its decoder is Qwen2's.
    read = {**config, "architectures": ["Qwen2ForCausalLM"]} if names is MIMO else config
    weights = make_weights(read, torch.bfloat16, seed, (), {})
    write_folder(out / name, read, weights)
    tokens = tokens_of(config["vocab_size"], seed)
    target_hidden = hidden_of(out / name, tokens, None)
    prediction = Prediction(out / name, config, names, seed + 1)
    # Files of DeepSeek-V3 and GLM have copies of table and head, which are not read.
    copies = {}
    if "model.layers" in names["mtp_block"]:
        copies = {names["mtp_block"] + "embed_tokens.weight": torch.zeros(1, 8, dtype=torch.bfloat16)}
    write_folder(out / name, config, weights | prediction.weights | copies)
    save_file(golden_of(prediction.forward, tokens, target_hidden), out / name / "golden.safetensors")


def main():
    parser = argparse.ArgumentParser(description="Writes the golden drafts of tests/goldens.")
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/goldens"))
    arguments = parser.parse_args()
    torch.manual_seed(0)
    write_folder(
        arguments.out / TARGET, target_config(), make_weights(target_config(), torch.bfloat16, 470, (), {})
    )
    for seed, name in enumerate([*EAGLE_CASES, *prediction_cases()], start=471):
        if arguments.cases and name not in arguments.cases:
            continue
        (make_eagle if name in EAGLE_CASES else make_prediction)(arguments.out, name, seed)
        size = sum(file.stat().st_size for file in (arguments.out / name).iterdir())
        print(f"{name}: {size / 1024:.0f} KB", flush=True)


if __name__ == "__main__":
    main()
