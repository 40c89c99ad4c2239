"""Text that follows a prompt, with a SentencePiece-like vocabulary: a space is part of the word after it, and the decoder
strips the first one of a text. The model has dummy weights; logit_bias chooses the tokens."""

import json
import pathlib
import shutil

import pytest
from conftest import ROOT, Server
from test_protocol import ask

LAYOUT = ROOT / "tests/data/tokenizers/llama2/tokenizer.json"
TEXT = "The engine"
END = "</s>"


@pytest.fixture(scope="module")
def llama2(tmp_path_factory):
    folder = pathlib.Path(tmp_path_factory.mktemp("llama2"))
    shutil.copy(LAYOUT, folder)
    vocab = json.loads(LAYOUT.read_text(encoding="utf-8"))["model"]["vocab"]
    sizes = {"vocab_size": len(vocab), "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 1,
             "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "max_position_embeddings": 512}
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5,
              "torch_dtype": "float32", "bos_token_id": 1, **sizes}
    (folder / "config.json").write_text(json.dumps(config))
    # Only this file names the end-of-sequence token.
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": END}))
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}{{ eos_token }}")
    server = Server("--load-format", "dummy", model=folder)
    server.vocab = vocab
    yield server
    assert server.stop()[0] == 0


def complete(server, prompt, *tokens, path="/v1/completions", **more):
    """Completes a prompt with these tokens, one request each; returns the last choice."""
    ids = ask(server, "/tokenize", prompt=prompt)["tokens"] if isinstance(prompt, str) else list(prompt)
    for token in tokens[:-1]:
        ids.append(server.vocab[token])
    bias = {str(server.vocab[tokens[-1]]): 100}
    return ask(server, path, prompt=prompt if len(tokens) == 1 else ids, max_tokens=1, temperature=0, logit_bias=bias,
               **more)["choices"][0]


def test_the_first_word_keeps_its_space(llama2):
    assert complete(llama2, TEXT, "▁the")["text"] == " the"
    assert complete(llama2, TEXT, "▁the", echo=True)["text"] == TEXT + " the"
    stopped = complete(llama2, TEXT, "▁the", stop=" the")
    assert (stopped["text"], stopped["matched_stop"]) == ("", " the")
    native = ask(llama2, "/generate", text=TEXT, sampling_params={
        "max_new_tokens": 1, "temperature": 0, "logit_bias": {str(llama2.vocab["▁the"]): 100}})
    assert native["text"] == " the"


def test_a_prompt_may_end_within_a_character(llama2):
    prompt = ["▁the", "<0xE4>", "<0xB8>"]
    ids = [llama2.vocab[token] for token in prompt]
    assert complete(llama2, ids, "<0xAD>")["text"] == "中"
    assert complete(llama2, ids, "<0xAD>", echo=True)["text"] == "the中"


def test_logprobs_join_to_the_text(llama2):
    choice = complete(llama2, TEXT, "▁the", echo=True, logprobs=2)
    tokens, offsets = choice["logprobs"]["tokens"], choice["logprobs"]["text_offset"]
    assert tokens[0] == "<s>" and "".join(tokens[1:]) == choice["text"] == TEXT + " the"
    assert offsets[0] == 0
    for token, offset in zip(tokens[1:], offsets[1:]):
        assert choice["text"][offset:].startswith(token)
    part = complete(llama2, TEXT, "<0xE4>", "<0xB8>", "<0xAD>", logprobs=1)["logprobs"]
    assert part["tokens"] == ["中"]


def test_bytes_of_a_part_of_a_character(llama2):
    ask_chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "temperature": 0, "logprobs": True,
                "top_logprobs": 1, "logit_bias": {str(llama2.vocab["<0xE4>"]): 100}}
    (token,) = ask(llama2, "/v1/chat/completions", **ask_chat)["choices"][0]["logprobs"]["content"]
    assert token["bytes"] == [0xE4] and token["token"] == "\ufffd", "nothing follows"


def test_a_prompt_of_one_token_has_an_entry(llama2):
    shown = complete(llama2, [llama2.vocab["▁the"]], "▁the", echo=True, logprobs=1)["logprobs"]
    assert shown["tokens"] == ["the", " the"] and shown["token_logprobs"][0] is None
    assert shown["text_offset"] == [0, 3]
    meta = ask(llama2, "/generate", input_ids=[llama2.vocab["▁the"]], return_logprob=True, logprob_start_len=0,
               sampling_params={"max_new_tokens": 1})["meta_info"]
    assert len(meta["input_token_logprobs"]) == 1


def test_the_end_token_of_the_tokenizer_ends_an_answer(llama2):
    reply = complete(llama2, TEXT, END)
    assert (reply["finish_reason"], reply["text"]) == ("stop", "")
    assert reply["matched_stop"] == llama2.vocab[END]
