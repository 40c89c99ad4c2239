"""/v1/rerank, /v1/score and /v1/classify with Cohere's own client and with requests in Jina's and vLLM's forms."""

import json

import pytest
from conftest import MODEL, ROOT, Server
from test_embeddings import status_of

GOLDENS = ROOT / "tests/goldens"


def served(name, *flags):
    started = Server(*flags, model=GOLDENS / name)
    yield started
    code, rest = started.stop()
    assert code == 0, rest


@pytest.fixture(scope="module")
def bert():
    yield from served("score-bert")


@pytest.fixture(scope="module")
def reranker():
    yield from served("score-qwen3-reranker", "--is-reranker")


@pytest.fixture(scope="module")
def labels():
    yield from served("score-roberta-labels")


@pytest.fixture(scope="module")
def vectors():
    started = Server("--is-embedding", model=MODEL)
    yield started
    code, rest = started.stop()
    assert code == 0, rest


def golden(name):
    """Returns pairs and texts with the scores that transformers computed."""
    return json.loads((GOLDENS / name / "golden.json").read_text())


def whole_pairs(name):
    return [pair for pair in golden(name)["pairs"] if "max_tokens" not in pair]


def post(server, path, **body):
    status, text = status_of(server, path, body)
    return status, json.loads(text)


def close(got, expected, tolerance=1e-4):
    return abs(got - expected) <= tolerance * max(1, abs(expected))


def check_order(results, query, documents, name):
    """Expects transformers' scores, from the largest to the smallest."""
    expected = {pair["second"]: pair["scores"][0] for pair in whole_pairs(name) if pair["first"] == query}
    assert sorted((r["index"] for r in results)) == list(range(len(documents)))
    scores = [r["relevance_score"] for r in results]
    assert scores == sorted(scores, reverse=True)
    for result in results:
        assert close(result["relevance_score"], expected[documents[result["index"]]])


def test_coheres_clients(bert):
    cohere = pytest.importorskip("cohere")
    pair = whole_pairs("score-bert")[:2]
    query, documents = pair[0]["first"], [p["second"] for p in pair]
    newer = cohere.ClientV2(api_key="none", base_url=bert.url).rerank(
        model="tiny", query=query, documents=documents, top_n=2, max_tokens_per_doc=4096)
    check_order([r.model_dump() for r in newer.results], query, documents, "score-bert")
    assert newer.id and newer.meta.tokens.input_tokens == sum(len(p["ids"]) for p in pair)
    older = cohere.Client(api_key="none", base_url=bert.url).rerank(
        model="tiny", query=query, documents=[{"text": d} for d in documents], return_documents=True, rank_fields=["text"])
    assert [r.document.text for r in older.results] == [documents[r.index] for r in older.results]
    assert [r.relevance_score for r in older.results] == [r.relevance_score for r in newer.results]


def test_jinas_form(bert):
    pair = whole_pairs("score-bert")[:2]
    query, documents = pair[0]["first"], [p["second"] for p in pair]
    for path in ("/v1/rerank", "/rerank", "/v2/rerank"):
        status, reply = post(bert, path, model="tiny", query=query, documents=documents)
        assert status == 200 and reply["model"] == "tiny"
        check_order(reply["results"], query, documents, "score-bert")
        assert all(r["document"] == {"text": documents[r["index"]]} for r in reply["results"])
        assert reply["usage"] == {"prompt_tokens": sum(len(p["ids"]) for p in pair), "total_tokens": sum(len(p["ids"]) for p in pair)}
    objects = [{"text": d} for d in documents]
    _, one = post(bert, "/v1/rerank", query={"text": query}, documents=objects, top_n=1, return_documents=False)
    assert one["results"] == [{k: reply["results"][0][k] for k in ("index", "relevance_score")}]


def test_vllms_scores(bert):
    pairs = whole_pairs("score-bert")
    firsts, seconds = [p["first"] for p in pairs], [p["second"] for p in pairs]
    for first, second in (("text_1", "text_2"), ("queries", "documents"), ("data_1", "data_2")):
        for path in ("/v1/score", "/score"):
            status, reply = post(bert, path, model="tiny", **{first: firsts, second: seconds})
            assert status == 200 and reply["object"] == "list" and reply["id"].startswith("score-")
            assert [d["index"] for d in reply["data"]] == list(range(len(pairs)))
            assert all(close(d["score"], p["scores"][0]) for d, p in zip(reply["data"], pairs))
    one = post(bert, "/v1/score", text_1=firsts[0], text_2=seconds[:2])[1]
    assert [d["score"] for d in one["data"]] == [d["score"] for d in reply["data"][:2]]
    assert len(post(bert, "/v1/score", text_1=firsts[0], text_2=seconds[0])[1]["data"]) == 1


def test_truncation(bert):
    for pair in golden("score-bert")["pairs"]:
        if "max_tokens" in pair:
            _, reply = post(bert, "/v1/score", text_1=pair["first"], text_2=pair["second"], truncate_prompt_tokens=pair["max_tokens"])
            assert close(reply["data"][0]["score"], pair["scores"][0])
    long = "sixteen tokens " * 300
    status, reply = post(bert, "/v1/rerank", query="a", documents=["b", long])
    assert status == 400 and reply["error"]["code"] == "context_length_exceeded" and "documents[1]" in reply["error"]["message"]
    assert post(bert, "/v1/rerank", query="a", documents=["b", long], truncate_prompt_tokens=-1)[1]["usage"]["total_tokens"] == 192 + 5
    assert post(bert, "/v1/rerank", query="a", documents=["b", long], max_tokens_per_doc=10)[1]["usage"]["total_tokens"] == 14 + 5


def test_language_model_that_answers_yes_or_no(reranker):
    for pair in whole_pairs("score-qwen3-reranker"):
        _, reply = post(reranker, "/v1/rerank", query=pair["first"], documents=[pair["second"]])
        assert close(reply["results"][0]["relevance_score"], pair["scores"][0])
        _, reply = post(reranker, "/v1/score", text_1=pair["first"], text_2=pair["second"], use_activation=False)
        assert close(reply["data"][0]["score"], pair["logits"][0])
    default, other = (
        post(reranker, "/v1/rerank", query="a", documents=["b"], **fields)[1] for fields in ({}, {"instruction": "Find code."}))
    assert default["usage"] != other["usage"]


def test_classes(labels):
    texts = golden("score-roberta-labels")["texts"]
    for path in ("/v1/classify", "/classify"):
        status, reply = post(labels, path, model="tiny", input=[t["text"] for t in texts])
        assert status == 200 and reply["usage"]["total_tokens"] == sum(len(t["ids"]) for t in texts)
        for i, (got, text) in enumerate(zip(reply["data"], texts)):
            assert got["index"] == i and got["num_classes"] == 3
            assert all(close(a, b) for a, b in zip(got["probs"], text["scores"]))
            best = max(range(3), key=text["scores"].__getitem__)
            assert got["label"] == ["contradiction", "entailment", "neutral"][best]
    ids = post(labels, "/v1/classify", input=texts[0]["ids"])[1]
    assert all(close(a, b) for a, b in zip(ids["data"][0]["probs"], texts[0]["scores"]))
    logits = post(labels, "/v1/classify", input=texts[0]["text"], use_activation=False)[1]
    assert all(close(a, b) for a, b in zip(logits["data"][0]["probs"], texts[0]["logits"]))


def test_embedding_models_score_by_cosine_similarity(vectors):
    texts = ["sun fox", "roll milk", "sun fox"]
    embedded = [item["embedding"] for item in post(vectors, "/v1/embeddings", input=texts)[1]["data"]]
    _, scores = post(vectors, "/v1/score", text_1=texts[0], text_2=texts[1:])
    cosine = [sum(a * b for a, b in zip(embedded[0], other)) for other in embedded[1:]]
    assert all(close(d["score"], c) for d, c in zip(scores["data"], cosine))
    _, ranked = post(vectors, "/v1/rerank", query=texts[0], documents=texts[1:])
    assert [r["index"] for r in ranked["results"]] == [1, 0]
    assert ranked["usage"]["total_tokens"] == scores["usage"]["total_tokens"]
    long = "sun fox " * 3000
    for texts, field in (((long, ["a"]), "queries[0]"), (("a", ["a", long]), "documents[1]")):
        status, reply = post(vectors, "/v1/score", queries=texts[0], documents=texts[1])
        assert status == 400 and reply["error"]["message"].startswith(field + " has "), reply


def test_errors_name_the_field_and_the_model(bert, labels, vectors, server):
    for running, path, body, param, words in [
        (bert, "/v1/rerank", {"documents": ["a"]}, "query", "missing"),
        (bert, "/v1/rerank", {"query": "a"}, "documents", "missing"),
        (bert, "/v1/rerank", {"query": "a", "documents": []}, "documents", "1 to 2048"),
        (bert, "/v1/rerank", {"query": "a", "documents": ["b", 1]}, "documents[1]", "\"text\""),
        (bert, "/v1/rerank", {"query": "a", "documents": ["b"], "top_n": -1}, "top_n", "0 to"),
        (bert, "/v1/rerank", {"query": "a", "documents": ["b"], "rank_fields": ["title"]}, "rank_fields", "title"),
        (bert, "/v1/rerank", {"query": "a", "documents": ["b"], "truncate_prompt_tokens": 193}, "truncate_prompt_tokens", "192"),
        (bert, "/v1/rerank", {"query": "a", "documents": ["b"], "instruction": "c"}, "instruction", "BertForSequenceClassification"),
        (bert, "/v1/rerank", {"query": "a", "documents": ["b"], "instruct": "c"}, "instruct", "instruct: "),
        (bert, "/v1/score", {"text_1": ["a", "b"], "text_2": ["a"]}, "text_2", "n and n"),
        (bert, "/v1/score", {"text_1": "a"}, "text_2", "missing"),
        (bert, "/v1/score", {"text_1": "a", "text_2": "b", "queries": "c", "documents": "d"}, "documents", "mutually exclusive"),
        (bert, "/v1/score", {"query": "a", "items": ["b"], "label_token_ids": [1]}, "items", "text_1"),
        (bert, "/v1/score", {}, "text_1", "missing"),
        (bert, "/v1/embeddings", {"input": "a"}, None, "/v1/rerank"),
        (bert, "/v1/chat/completions", {"messages": []}, None, "returns scores"),
        (labels, "/v1/rerank", {"query": "a", "documents": ["b"]}, None, "3 labels"),
        (labels, "/v1/classify", {"input": "a", "labels": ["b"]}, "labels", "labels"),
        (labels, "/v1/classify", {"messages": []}, "messages", "input"),
        (vectors, "/v1/classify", {"input": "a"}, None, "no classification head"),
        (server, "/v1/rerank", {"query": "a", "documents": ["b"]}, None, "--is-reranker"),
    ]:
        status, reply = post(running, path, **body)
        assert status == 400, (path, body, reply)
        assert reply["error"]["param"] == param and words in reply["error"]["message"], reply
    assert post(bert, "/v1/rerank", model="other", query="a", documents=["b"])[0] == 404
    info = json.loads(status_of(bert, "/server_info")[1])
    assert info["labels"] == ["LABEL_0"] and info["activation"] == "identity" and info["is_embedding"] is False
