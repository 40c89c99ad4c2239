#!/usr/bin/env python3
"""Writes tests/goldens/score-*: tiny random classifiers and rerankers, each with a tokenizer, and the logits that
transformers computes for texts and pairs of texts.

    pip install torch transformers safetensors
    python3 scripts/make_score_goldens.py [CASE...]

golden.json of a case:
  pairs   first, second, ids, types, logits, scores; with max_tokens, the pair was truncated to this number
  texts   text, ids, types, logits, scores
"""

import json
import pathlib
import shutil

import torch
from golden_configs import llama, qwen3
from make_embedding_goldens import bert, decoder_name, write_cases, write_json
from make_goldens import random_weight
from safetensors.torch import save_file
from tokenizers import Tokenizer, processors
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

TOKENIZERS = pathlib.Path(__file__).resolve().parents[1] / "tests/data/tokenizers"

PAIRS = [
    ("Where does a page live?", "A page holds sixteen tokens; the table says where each page of a request lives."),
    ("Where does a page live?", "Der Käse schmeckt gut."),
    ("numbers", ""),
    ("x = y + 1;", "for (int i = 0; i < n; ++i) { sum += a[i] * b[i]; }  // no overflow here"),
    ("Что это такое?", "Быстрая лиса прыгает через ленивую собаку. Это токен. " * 3),
]
TEXTS = ["The engine reads a prompt and writes the next token.", "a", "你好，世界！ Καλημέρα κόσμε."]
# Pairs, with numbers of tokens that truncate one text or both.
TRUNCATED = [(0, 12), (4, 9), (4, 30), (3, 7)]

QWEN3_PREFIX = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
QWEN3_SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
QWEN3_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"


def labels(*names):
    return {"id2label": {str(i): name for i, name in enumerate(names)}, "label2id": {n: i for i, n in enumerate(names)}}


def bert_tokenizer():
    tokenizer = Tokenizer.from_file(str(TOKENIZERS / "bert/tokenizer.json"))
    special = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=special
    )
    return tokenizer


def layout(name):
    return lambda: Tokenizer.from_file(str(TOKENIZERS / name / "tokenizer.json"))


def reranker_tokenizer():
    tokenizer = layout("qwen2")()
    tokenizer.add_tokens(["yes", "no"])
    return tokenizer


def bert_pair():
    """A cross-encoder of sentence-transformers that returns logits."""
    config = bert(
        architectures=["BertForSequenceClassification"],
        sbert_ce_default_activation_function="torch.nn.modules.linear.Identity",
        **labels("LABEL_0"),
    )
    return {"config": config, "tokenizer": bert_tokenizer}


def xlm_roberta_pair():
    """bge-reranker: a Unigram tokenizer, and positions that start after the id of the padding token."""
    config = bert(
        model_type="xlm-roberta",
        architectures=["XLMRobertaForSequenceClassification"],
        pad_token_id=1,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        max_position_embeddings=162,
        **labels("LABEL_0"),
    )
    return {"config": config, "tokenizer": layout("xlm_roberta")}


def roberta_labels():
    """Three labels, and weights stored in f16."""
    config = bert(
        model_type="roberta",
        architectures=["RobertaForSequenceClassification"],
        pad_token_id=1,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        max_position_embeddings=402,
        torch_dtype="float16",
        **labels("contradiction", "entailment", "neutral"),
    )
    return {"config": config, "tokenizer": layout("roberta"), "dtype": torch.float16}


def qwen3_labels():
    """A decoder with a head, independent labels."""
    config = qwen3(
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        attention_bias=False,
        pad_token_id=0,
        max_position_embeddings=512,
        problem_type="multi_label_classification",
        **labels("code", "prose"),
    ) | {"architectures": ["Qwen3ForSequenceClassification"]}
    return {"config": config, "tokenizer": layout("qwen2")}


def llama_reward():
    """A reward model: one number, weights stored in bf16."""
    config = llama(
        num_attention_heads=4,
        num_key_value_heads=2,
        pad_token_id=0,
        max_position_embeddings=512,
        torch_dtype="bfloat16",
        problem_type="regression",
        **labels("LABEL_0"),
    ) | {"architectures": ["LlamaForSequenceClassification"]}
    return {"config": config, "tokenizer": layout("llama3"), "dtype": torch.bfloat16}


def qwen3_reranker():
    """Qwen3-Reranker as published: a language model whose answer yes or no is the score."""
    config = qwen3(
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        attention_bias=False,
        tie_word_embeddings=True,
        max_position_embeddings=512,
    )
    return {"config": config, "tokenizer": reranker_tokenizer, "reranks": True}


CASES = {
    "score-bert": bert_pair,
    "score-xlm-roberta": xlm_roberta_pair,
    "score-roberta-labels": roberta_labels,
    "score-qwen3-labels": qwen3_labels,
    "score-llama-reward": llama_reward,
    "score-qwen3-reranker": qwen3_reranker,
}


def scores_of(logits, config):
    """Returns the scores as vLLM defines them."""
    if "sbert_ce_default_activation_function" in config or config.get("problem_type") == "regression":
        return logits
    if len(logits) == 1 or config.get("problem_type") == "multi_label_classification":
        return torch.sigmoid(logits)
    return torch.softmax(logits, 0)


def compute(model, encoding, config):
    ids, types = torch.tensor([encoding.ids]), torch.tensor([encoding.type_ids])
    arguments = {"token_type_ids": types} if config.get("type_vocab_size", 1) > 1 else {}
    logits = model(input_ids=ids, **arguments).logits[0]
    return {
        "ids": encoding.ids,
        "types": encoding.type_ids,
        "logits": logits.tolist(),
        "scores": scores_of(logits, config).tolist(),
    }


def classified(model, tokenizer, config):
    pairs = [{"first": a, "second": b} | compute(model, tokenizer.encode(a, b), config) for a, b in PAIRS]
    for index, length in TRUNCATED:
        tokenizer.enable_truncation(length)
        first, second = PAIRS[index]
        pair = compute(model, tokenizer.encode(first, second), config)
        pairs.append({"first": first, "second": second, "max_tokens": length} | pair)
        tokenizer.no_truncation()
    return {"pairs": pairs, "texts": [{"text": t} | compute(model, tokenizer.encode(t), config) for t in TEXTS]}


def reranked(model, tokenizer):
    """Follows the published example: prefix, pair and suffix are tokenized separately."""
    no, yes = tokenizer.token_to_id("no"), tokenizer.token_to_id("yes")
    pairs = []
    for first, second in PAIRS:
        body = f"<Instruct>: {QWEN3_INSTRUCTION}\n<Query>: {first}\n<Document>: {second}"
        ids = sum((tokenizer.encode(part).ids for part in (QWEN3_PREFIX, body, QWEN3_SUFFIX)), [])
        logits = model(input_ids=torch.tensor([ids])).logits[0, -1, [no, yes]]
        score = torch.log_softmax(logits, 0)[1].exp().item()
        pair = {"ids": ids, "types": [0] * len(ids), "logits": [(logits[1] - logits[0]).item()], "scores": [score]}
        pairs.append({"first": first, "second": second} | pair)
    return {"pairs": pairs, "texts": []}


def make_case(folder, case, seed):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    torch.manual_seed(seed)
    tokenizer = case["tokenizer"]()
    tokenizer.save(str(folder / "tokenizer.json"))
    case["config"]["vocab_size"] = tokenizer.get_vocab_size()
    write_json(folder / "config.json", case["config"])
    kind = AutoModelForCausalLM if case.get("reranks") else AutoModelForSequenceClassification
    config = AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        skeleton = kind.from_config(config)
    generator = torch.Generator().manual_seed(seed)
    weights = {
        name: random_weight(decoder_name(name), tuple(p.shape), config, generator).to(case.get("dtype", torch.float32))
        for name, p in skeleton.named_parameters()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    golden = reranked(model, tokenizer) if case.get("reranks") else classified(model, tokenizer, case["config"])
    (folder / "golden.json").write_text(json.dumps(golden, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    write_cases(CASES, make_case, 177, "classifiers and rerankers")
