"""attend.LLM with models that return vectors, scores and classes: the values of transformers in tests/goldens."""

import json
import math
import pathlib

import attend
import pytest

GOLDENS = pathlib.Path(__file__).resolve().parents[1] / "goldens"
MODEL = GOLDENS.parents[1] / "models" / "attend-tiny"


def golden(name):
    return json.loads((GOLDENS / name / "golden.json").read_text())


def close_to(expected):
    return pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize(
    "name, options",
    [("score-bert", {}), ("score-xlm-roberta", {"task": "score"}), ("score-qwen3-reranker", {"convert": "classify"})],
)
def test_scores_are_those_of_transformers(name, options):
    every = golden(name)["pairs"]
    pairs = [pair for pair in every if "max_tokens" not in pair]
    firsts, seconds = [pair["first"] for pair in pairs], [pair["second"] for pair in pairs]
    with attend.LLM(GOLDENS / name, device="cpu", **options) as llm:
        outputs = llm.score(firsts, seconds)
        assert [output.outputs.score for output in outputs] == [close_to(pair["scores"][0]) for pair in pairs]
        assert [output.prompt_token_ids for output in outputs] == [pair["ids"] for pair in pairs]
        logits = [output.outputs.score for output in llm.score(firsts, seconds, use_activation=False)]
        assert logits == [close_to(pair["logits"][0]) for pair in pairs]
        for pair in every:
            if "max_tokens" in pair:
                (cut,) = llm.score(pair["first"], pair["second"], truncate_prompt_tokens=pair["max_tokens"])
                assert cut.prompt_token_ids == pair["ids"] and cut.outputs.score == close_to(pair["scores"][0])
        one = llm.score(firsts[0], seconds)
        assert len(one) == len(seconds) and one[0].outputs.score == pytest.approx(outputs[0].outputs.score)
        with pytest.raises(attend.InvalidArgument, match="expected 1 and n, or n and n"):
            llm.score(firsts[:2], [*seconds, *seconds, "x"])
        with pytest.raises(attend.Error, match="embed: .* returns scores"):
            llm.embed("a")
        with pytest.raises(attend.Error, match="not text; expected embed, score or classify"):
            llm.generate("a")


def test_classes_are_those_of_transformers():
    texts = golden("score-roberta-labels")["texts"]
    with attend.LLM(GOLDENS / "score-roberta-labels", device="cpu") as llm:
        outputs = llm.classify([{"prompt_token_ids": text["ids"]} for text in texts])
        assert [output.outputs.probs for output in outputs] == [close_to(text["scores"]) for text in texts]
        assert outputs[0].outputs.num_classes == len(llm.embedder.info()["labels"])


def test_vectors_have_the_models_form():
    with attend.LLM(MODEL, device="cpu", runner="pooling", threads=2) as llm:
        texts = [f"recall: sun={i}" for i in range(70)]
        outputs = llm.embed(texts)
        info = llm.embedder.info()
        assert all(output.outputs.hidden_size == info["dimensions"] and output.finished for output in outputs)
        assert all(math.hypot(*output.outputs.embedding) == pytest.approx(1, abs=1e-5) for output in outputs)
        ids = llm.embedder.encode(texts[3])
        for prompt in (texts[3], ids, {"prompt": texts[3]}, [ids], {"prompt_token_ids": ids}):
            (output,) = llm.embed(prompt)
            assert output.prompt_token_ids == ids
            assert output.outputs.embedding == pytest.approx(outputs[3].outputs.embedding, abs=1e-5)
        (short,) = llm.embed(texts[3], dimensions=8)
        start = outputs[3].outputs.embedding[:8]
        assert short.outputs.embedding == pytest.approx([x / math.hypot(*start) for x in start], abs=1e-5)
        (cut,) = llm.embed(texts[3], truncate_prompt_tokens=2)
        assert cut.prompt_token_ids == ids[:2]
        (score,) = llm.score(texts[0], texts[1])
        dot = sum(a * b for a, b in zip(outputs[0].outputs.embedding, outputs[1].outputs.embedding))
        assert score.outputs.score == pytest.approx(dot, abs=1e-5)
    with pytest.raises(attend.Error, match="was closed"):
        llm.embed("a")


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda llm: llm.embed(["a", []]), r"prompts\[1\]: "),
        (lambda llm: llm.classify("a"), "returns embeddings; expected embed"),
    ],
)
def test_invalid_arguments_are_named(call, message):
    with attend.LLM(MODEL, device="cpu", runner="pooling") as llm:
        with pytest.raises(attend.Error, match=message):
            call(llm)


@pytest.mark.parametrize("options", [{}, {"runner": "pooling"}])
def test_load_format_is_that_of_the_model(options):
    with pytest.raises(attend.InvalidArgument, match="load_format 'gguf': expected auto, safetensors or dummy"):
        attend.LLM(MODEL, device="cpu", load_format="gguf", **options)
    attend.LLM(MODEL, device="cpu", load_format="safetensors", **options).close()


def test_options_are_checked():
    with attend.LLM(MODEL, device="cpu", task="generate") as llm:
        with pytest.raises(attend.Error, match="runner=.pooling"):
            llm.embed("a")
    with pytest.raises(attend.InvalidArgument, match="task 'sing': expected one of"):
        attend.LLM(MODEL, task="sing")
    with pytest.raises(attend.Error, match="max_running_requests: has no effect on a model that returns vectors"):
        attend.LLM(MODEL, runner="pooling", max_running_requests=3)


@pytest.mark.parametrize("pooling", [False, True])
def test_invalid_prompts_are_rejected(pooling):
    with attend.LLM(MODEL, device="cpu", threads=1, **({"runner": "pooling"} if pooling else {})) as llm:
        complete = llm.embed if pooling else llm.generate
        for prompts in (None, 5, {"a"}, (text for text in "a")):
            with pytest.raises(attend.InvalidArgument, match="prompts .*: expected a prompt or a list of prompts"):
                complete(prompts)
        for prompt in (
            b"abc",
            [1, 2.5],
            [2**40],
            {"text": "a"},
            {"prompt": None},
            {"prompt_token_ids": "abc"},
            {"prompt": "a", "multi_modal_data": {}},
        ):
            with pytest.raises(attend.InvalidArgument, match=r"prompts\[0\]: prompt .*: expected a text, a list of token ids"):
                complete(prompt)
        with pytest.raises(attend.InvalidArgument, match=r"prompts\[1\]: .*: expected a text without surrogates"):
            complete(["a", "\ud800"])


def test_invalid_arguments_are_rejected():
    with attend.LLM(MODEL, device="cpu", runner="pooling", threads=1) as llm:
        for dimensions in (0, 1.5, "3", True):
            with pytest.raises(attend.InvalidArgument, match=f"dimensions {dimensions!r}: expected 1 to "):
                llm.embed("a", dimensions=dimensions)
        for tokens in (0, -2, 1.5, "3"):
            with pytest.raises(attend.InvalidArgument, match=f"truncate_prompt_tokens {tokens!r}: expected 1 to .*, or -1"):
                llm.embed("a", truncate_prompt_tokens=tokens)
        for texts in (None, 5, [], [1], {"text": "a"}, b"ab"):
            with pytest.raises(attend.InvalidArgument, match="data_1 .*: expected a text, or a list of at least one text"):
                llm.score(texts, "a")
