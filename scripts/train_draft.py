#!/usr/bin/env python3
"""Trains the draft heads of models/attend-tiny: models/attend-tiny-eagle3 and models/attend-tiny-mtp.

Both have one decoder layer and use the target's embedding as table and head. A row of their input is a token and the
target's hidden state of the token before it. Training unrolls the draft: step 0 reads the target's hidden states, each
later step the state of the step before, as when drafts are made (docs/draft-models.md).

    pip install torch transformers tokenizers safetensors
    python3 scripts/train_draft.py eagle3 --out models/attend-tiny-eagle3
    python3 scripts/train_draft.py mtp --out models/attend-tiny-mtp

The end of the output is the accepted length over the demo's prompts: tokens per verification step, with greedy chains.
"""

import argparse
import json
import pathlib
import random
import time

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

import tiny_tasks

TARGET = pathlib.Path(__file__).parent.parent / "models/attend-tiny"
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, MLP = 256, 4, 2, 64, 384
EPS, THETA = 1e-5, 500000.0
AUX_OUTPUTS = (0, 1, 2)  # layers whose outputs EAGLE-3 reads
WEIGHTS = {"copy": 3, "reverse": 3, "path": 3, "sort": 3, "next": 1, "recall": 1}
# Lengths of training texts, and number of texts per batch.
SHAPES = ((48, 24), (96, 12), (192, 6), (768, 2))


class RmsNorm(nn.Module):
    def __init__(self, size=HIDDEN):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return functional.rms_norm(x, (x.shape[-1],), self.weight, EPS)


def linear(inputs, outputs):
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, std=inputs**-0.5)
    return layer


def rotate(x, positions):
    """x: [.., heads, HEAD_DIM], positions: [..]; pairs are (i, i + HEAD_DIM / 2)."""
    half = HEAD_DIM // 2
    angles = positions[..., None, None] * THETA ** (-torch.arange(half) / half)
    cos, sin = angles.cos(), angles.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Draft(nn.Module):
    """kind "eagle3": LlamaForCausalLMEagle3. kind "mtp": the layer of MiMo, with its order hidden, then embedding."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        eagle = kind == "eagle3"
        self.join = linear((3 if eagle else 2) * HIDDEN, HIDDEN)
        self.token_norm, self.hidden_norm, self.final_norm = RmsNorm(), RmsNorm(), RmsNorm()
        self.attention_norm = None if eagle else RmsNorm()
        width = 2 * HIDDEN if eagle else HIDDEN
        self.q, self.k, self.v = (linear(width, n * HEAD_DIM) for n in (HEADS, KV_HEADS, KV_HEADS))
        self.o = linear(HEADS * HEAD_DIM, HIDDEN)
        self.mlp_norm = RmsNorm()
        self.gate, self.up, self.down = linear(HIDDEN, MLP), linear(HIDDEN, MLP), linear(MLP, HIDDEN)

    def inputs(self, embedded, hidden, positions, from_target):
        """Returns the residual stream and the attention's input."""
        if self.kind == "eagle3":
            x = self.join(hidden) if from_target else hidden
            return x, torch.cat([self.token_norm(embedded), self.hidden_norm(x)], -1)
        embedded = embedded * (positions > 0)[..., None]
        x = self.join(torch.cat([self.hidden_norm(hidden), self.token_norm(embedded)], -1))
        return x, self.attention_norm(x)

    def keys(self, joined, positions):
        k = self.k(joined).unflatten(-1, (KV_HEADS, HEAD_DIM))
        return rotate(k, positions), self.v(joined).unflatten(-1, (KV_HEADS, HEAD_DIM))

    def queries(self, joined, positions):
        return rotate(self.q(joined).unflatten(-1, (HEADS, HEAD_DIM)), positions)

    def outputs(self, x, attended):
        """Returns the normalized output, which the head reads, and the state that the next step reads."""
        x = x + self.o(attended)
        y = self.mlp_norm(x)
        x = x + self.down(functional.silu(self.gate(y)) * self.up(y))
        normalized = self.final_norm(x)
        return normalized, x if self.kind == "eagle3" else normalized


class Target:
    def __init__(self, kind):
        self.kind = kind
        self.model = LlamaForCausalLM.from_pretrained(TARGET, dtype=torch.float32).eval().to(torch.get_default_device())
        self.tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(TARGET / "tokenizer.json"))
        self.table = self.model.model.embed_tokens.weight.detach()

    @torch.no_grad()
    def hidden(self, rows):
        """Returns the hidden states that the draft reads, and those after the final norm."""
        states = self.model.model(input_ids=rows, output_hidden_states=True, use_cache=False)
        final = states.last_hidden_state
        if self.kind == "mtp":
            return final, final
        return torch.cat([states.hidden_states[i + 1] for i in AUX_OUTPUTS], -1), final

    def encode(self, example):
        prompt = self.tokenizer(example.prompt).input_ids
        answer = self.tokenizer(example.answer, add_special_tokens=False).input_ids
        return prompt + answer + [1], len(prompt)


def make_batch(target, rng, avoid, factor=1):
    """Returns token rows, the first row of each answer, lengths, and the target's hidden states."""
    length, count = rng.choice(SHAPES)
    count *= factor
    texts = []
    while len(texts) < count:
        task = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        example = tiny_tasks.TASKS[task](rng, rng.randint(min(20, length), length - 2))
        ids, start = target.encode(example)
        # An answer of one token has no token to draft but the end.
        if len(ids) <= length and example.prompt not in avoid:
            texts.append((ids, start))
    longest = max(len(ids) for ids, _ in texts)
    rows = torch.tensor([ids + [1] * (longest - len(ids)) for ids, _ in texts])
    starts = torch.tensor([start for _, start in texts])
    lengths = torch.tensor([len(ids) for ids, _ in texts])
    return rows, starts, lengths, *target.hidden(rows)


def attend(q, keys, values, mask):
    """q: [B, A, HEADS, d], keys and values: [B, n, KV_HEADS, d], mask: [B, A, n]."""
    groups = HEADS // KV_HEADS
    q, k, v = q.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = (q @ k.transpose(2, 3) * HEAD_DIM**-0.5).masked_fill(~mask[:, None], -1e9)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def loss_of(draft, target, batch, num_steps):
    """Soft cross-entropy with the target's probabilities over the unrolled steps; also the share of right drafts."""
    rows, starts, lengths, hidden, final = batch
    count, longest = rows.shape
    columns = torch.arange(longest - 1)
    x0, joined0 = draft.inputs(target.table[rows[:, 1:]], hidden[:, :-1], columns, True)
    k0, v0 = draft.keys(joined0, columns.expand(count, -1))
    # Row i has token i + 1 and predicts token i + 2: from the row with the first answer token on.
    num_rows = int((lengths - starts).max())
    index = (starts - 1)[:, None] + torch.arange(num_rows)
    batch_index = torch.arange(count)[:, None]
    clipped = index.clamp(max=longest - 2)
    prefix = columns[None, None] <= index[..., None]
    own = []  # keys and values of later steps, each of one row
    state = None
    total, weights, right, drafted = 0.0, 0.0, [], []
    for step in range(num_steps):
        valid = index + 2 + step < lengths[:, None]
        positions = index + step
        if step == 0:
            x, joined = x0[batch_index, clipped], joined0[batch_index, clipped]
        else:
            tokens = rows[batch_index, (positions + 1).clamp(max=longest - 1)]
            x, joined = draft.inputs(target.table[tokens], state, positions, False)
            own.append(draft.keys(joined, positions))
        q = draft.queries(joined, positions)
        keys, values, mask = k0, v0, prefix
        if own:
            # Keys of a later step are visible to their own row only.
            keys = torch.cat([k0] + [k for k, _ in own], 1)
            values = torch.cat([v0] + [v for _, v in own], 1)
            same = torch.eye(num_rows, dtype=torch.bool).expand(count, -1, -1)
            mask = torch.cat([prefix] + [same] * len(own), 2)
        normalized, state = draft.outputs(x, attend(q, keys, values, mask))
        logits = normalized[valid] @ target.table.T
        with torch.no_grad():
            source = (positions + 1).clamp(max=longest - 1)
            probabilities = (final[batch_index, source][valid] @ target.table.T).softmax(-1)
        if logits.shape[0] == 0:
            break
        losses = -(probabilities * logits.log_softmax(-1)).sum(-1)
        total, weights = total + 0.8**step * losses.sum(), weights + 0.8**step * len(losses)
        right.append(int((logits.argmax(-1) == probabilities.argmax(-1)).sum()))
        drafted.append(len(losses))
    return total / weights, right, drafted


@torch.no_grad()
def accepted_length(draft, target, examples, num_steps):
    """Simulates greedy rounds over the target's answers. Returns tokens per round."""
    tokens, rounds = 0, 0
    for example in examples:
        ids, start = target.encode(example)
        rows = torch.tensor([ids])
        hidden, final = target.hidden(rows)
        best = (final[0] @ target.table.T).argmax(-1).tolist()
        assert best[start - 1 : -1] == ids[start:], "the target answers wrongly"
        columns = torch.arange(len(ids) - 1)
        x0, joined0 = draft.inputs(target.table[rows[:, 1:]], hidden[:, :-1], columns, True)
        k0, v0 = draft.keys(joined0, columns[None])
        known = start  # index of the last known token
        while known < len(ids) - 1:
            row = known - 1
            keys, values = k0[:, :known], v0[:, :known]
            x, joined = x0[:, row : row + 1], joined0[:, row : row + 1]
            accepted = 0
            for step in range(num_steps):
                positions = torch.tensor([[row + step]])
                if step > 0:
                    x, joined = draft.inputs(target.table[token][None, None], state, positions, False)
                    k, v = draft.keys(joined, positions)
                    keys, values = torch.cat([keys, k], 1), torch.cat([values, v], 1)
                mask = torch.ones((1, 1, keys.shape[1]), dtype=torch.bool)
                q = draft.queries(joined, positions)
                normalized, state = draft.outputs(x, attend(q, keys, values, mask))
                token = (normalized[0, 0] @ target.table.T).argmax()
                at = known + 1 + step
                if at >= len(ids) or int(token) != ids[at]:
                    break
                accepted += 1
            advance = min(accepted + 1, len(ids) - 1 - known)
            tokens, rounds, known = tokens + advance, rounds + 1, known + advance
    return tokens / rounds


def tensors_of(draft):
    """Returns the weights with the names of the published form."""
    layer = "midlayer." if draft.kind == "eagle3" else "model.mtp_layers.0."
    names = {
        "q": "self_attn.q_proj",
        "k": "self_attn.k_proj",
        "v": "self_attn.v_proj",
        "o": "self_attn.o_proj",
        "mlp_norm": "post_attention_layernorm",
        "gate": "mlp.gate_proj",
        "up": "mlp.up_proj",
        "down": "mlp.down_proj",
        "token_norm": "input_layernorm" if draft.kind == "eagle3" else "token_layernorm",
        "hidden_norm": "hidden_norm" if draft.kind == "eagle3" else "hidden_layernorm",
        "attention_norm": "input_layernorm",
        "final_norm": "final_layernorm",
        "join": "input_proj",
    }
    top = {"join": "fc", "final_norm": "norm"} if draft.kind == "eagle3" else {}
    return {
        (f"{top[name]}.weight" if name in top else f"{layer}{names[name]}.weight"): tensor
        for name, tensor in ((name.removesuffix(".weight"), p.detach()) for name, p in draft.named_parameters())
    }


def save(draft, target, folder):
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.to("cpu", torch.bfloat16) for name, tensor in tensors_of(draft).items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLMEagle3" if draft.kind == "eagle3" else "MiMoMTP"],
        "model_type": "llama" if draft.kind == "eagle3" else "mimo",
        "vocab_size": target.model.config.vocab_size,
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "max_position_embeddings": tiny_tasks.CONTEXT,
        "rms_norm_eps": EPS,
        "rope_theta": THETA,
        "attention_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    if draft.kind == "eagle3":
        config["draft_vocab_size"] = None
        config["eagle_config"] = {
            "eagle_aux_hidden_state_layer_ids": list(AUX_OUTPUTS),
            "use_aux_hidden_state": True,
        }
    else:
        config["num_nextn_predict_layers"] = 1
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def restore(draft, folder):
    stored = load_file(folder / "model.safetensors")
    with torch.no_grad():
        for name, tensor in tensors_of(draft).items():
            tensor.copy_(stored[name].float())


def train(draft, target, arguments):
    optimizer = torch.optim.AdamW(draft.parameters(), lr=arguments.lr, betas=(0.9, 0.98), weight_decay=0.01)
    avoid = frozenset(example.prompt for example in tiny_tasks.held_out() + tiny_tasks.demo())
    rng = random.Random(arguments.seed)
    start, step = time.time(), 0

    def share():
        return max(step / arguments.steps, (time.time() - start) / (60 * arguments.minutes))

    while share() < 1:
        # The target's forward is the larger part of the work, so each batch is used several times.
        batches = [make_batch(target, rng, avoid, arguments.batch_factor) for _ in range(8)]
        for batch in rng.sample(batches * arguments.repeats, len(batches) * arguments.repeats):
            rate = arguments.lr * min(1, (step + 1) / 100) * max(0.02, min(1, 1.6 * (1 - share())))
            for group in optimizer.param_groups:
                group["lr"] = rate
            loss, right, drafted = loss_of(draft, target, batch, arguments.unroll)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(draft.parameters(), 1.0)
            optimizer.step()
            if step % 50 == 0:
                shares = " ".join(f"{r / max(1, d):.0%}" for r, d in zip(right, drafted))
                print(f"step {step} loss {loss.item():.3f} right {shares} {time.time() - start:.0f} s", flush=True)
            if step % 400 == 399:
                save(draft, target, arguments.out)
                print(f"accepted length {accepted_length(draft, target, tiny_tasks.demo(), 4):.2f}", flush=True)
            step += 1


def main():
    parser = argparse.ArgumentParser(description="Trains a draft head for models/attend-tiny.")
    parser.add_argument("kind", choices=("eagle3", "mtp"))
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--minutes", type=float, default=600, help="ends earlier than --steps after this time")
    parser.add_argument("--unroll", type=int, default=4, help="steps of drafts per row")
    parser.add_argument("--batch-factor", type=int, default=1, help="batches larger by this factor, for GPUs")
    parser.add_argument("--repeats", type=int, default=3, help="uses of a batch")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--resume", action="store_true", help="start from the weights in --out")
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(arguments.threads)
    torch.set_default_device(arguments.device)
    target, draft = Target(arguments.kind), Draft(arguments.kind)
    if arguments.resume:
        restore(draft, arguments.out)
    print(f"{sum(p.numel() for p in draft.parameters()) / 1e6:.2f}M parameters")
    train(draft, target, arguments)
    save(draft, target, arguments.out)
    restore(draft, arguments.out)
    for num_steps in (1, 2, 3, 4, 5):
        demo, held_out = tiny_tasks.demo(), tiny_tasks.held_out(60)
        print(
            f"{num_steps} drafts: accepted length {accepted_length(draft, target, demo, num_steps):.2f} over the "
            f"demo's prompts, {accepted_length(draft, target, held_out, num_steps):.2f} over held-out ones"
        )


if __name__ == "__main__":
    main()
