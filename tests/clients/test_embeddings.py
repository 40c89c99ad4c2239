"""/v1/embeddings with OpenAI's own client: an encoder, and a model that generates too."""

import array
import base64
import concurrent.futures
import json
import math
import socket
import struct
import time
import urllib.error
import urllib.request

import openai
import pytest

from conftest import MODEL, ROOT, Server

BERT = ROOT / "tests/goldens/embed-bert-mean"


def client_of(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def bert():
    started = Server(model=BERT)
    yield started
    code, rest = started.stop()
    assert code == 0, rest


@pytest.fixture(scope="module")
def causal():
    started = Server("--is-embedding", model=MODEL)
    yield started
    code, rest = started.stop()
    assert code == 0, rest


def goldens():
    """Returns token ids and vectors computed by transformers, without importing it."""
    data = (BERT / "golden.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8 : 8 + size])

    def read(name, code):
        begin, end = head[name]["data_offsets"]
        return list(array.array(code, data[8 + size + begin : 8 + size + end]))

    count = sum(name.endswith(".input_ids") for name in head)
    return [(read(f"prompt.{i}.input_ids", "i"), read(f"prompt.{i}.embedding", "f")) for i in range(count)]


def floats(text):
    return list(array.array("f", base64.b64decode(text)))


def close(got, expected, tolerance=1e-4):
    return len(got) == len(expected) and all(abs(a - b) <= tolerance for a, b in zip(got, expected))


def status_of(server, path, body=None):
    request = urllib.request.Request(server.url + path, None if body is None else json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_vectors_match_transformers_as_floats_and_base64(bert):
    client, cases = client_of(bert), goldens()
    assert len(cases) >= 4
    ids = [case[0] for case in cases]
    for encoding in ("float", "base64"):
        reply = client.embeddings.create(model="tiny", input=ids, encoding_format=encoding)
        assert reply.object == "list" and reply.model == "tiny"
        assert [item.index for item in reply.data] == list(range(len(cases)))
        assert reply.usage.prompt_tokens == reply.usage.total_tokens == sum(map(len, ids))
        for item, (_, vector) in zip(reply.data, cases):
            got = item.embedding if encoding == "float" else floats(item.embedding)
            assert close(got, vector)
    one = client.embeddings.create(model="tiny", input=ids[1], encoding_format="float")
    assert close(one.data[0].embedding, cases[1][1])


def test_openai_client_with_defaults(causal):
    reply = client_of(causal).embeddings.create(model="tiny", input=["sun fox", "roll milk", "sun fox"], user="someone")
    vectors = [item.embedding for item in reply.data]
    assert close(vectors[0], vectors[2], 1e-5) and not close(vectors[0], vectors[1], 1e-2)
    assert math.isclose(sum(x * x for x in vectors[0]), 1, rel_tol=1e-3)


def test_dimensions_truncates_and_normalizes(bert):
    ids, vector = goldens()[2]
    short = client_of(bert).embeddings.create(model="tiny", input=ids, dimensions=8, encoding_format="float")
    length = math.sqrt(sum(x * x for x in vector[:8]))
    assert close(short.data[0].embedding, [x / length for x in vector[:8]])


def test_errors_name_the_field(bert):
    client = client_of(bert)
    for fields, param, code in [
        ({"input": [1] * 161}, "input", "context_length_exceeded"),
        ({"input": [[1], [128]]}, "input", None),
        ({"input": "text"}, "input", "unsupported"),
        ({"input": [1], "dimensions": 49}, "dimensions", None),
        ({"input": [1], "encoding_format": "int8"}, "encoding_format", None),
    ]:
        with pytest.raises(openai.BadRequestError) as rejected:
            client.embeddings.create(**({"model": "tiny", "encoding_format": "float"} | fields))
        assert (rejected.value.param, rejected.value.code) == (param, code), fields
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="other", input=[1])


def test_other_paths(bert):
    assert [model.id for model in client_of(bert).models.list()] == ["tiny"]
    assert status_of(bert, "/health")[0] == status_of(bert, "/health_generate")[0] == 200
    for path, body in [("/v1/chat/completions", {"messages": []}), ("/v1/completions", {"prompt": "x"}), ("/generate", {})]:
        status, text = status_of(bert, path, body)
        assert status == 400 and "/v1/embeddings" in text
    assert json.loads(status_of(bert, "/model_info")[1])["is_generation"] is False
    assert json.loads(status_of(bert, "/server_info")[1])["dimensions"] == 48
    status, text = status_of(bert, "/metrics")
    assert status == 200 and "sglang:prompt_tokens_total" in text


def test_concurrent_requests_get_their_own_vectors(bert):
    cases = goldens()
    client = client_of(bert)

    def ask(i):
        ids, vector = cases[i % len(cases)]
        return close(client.embeddings.create(model="tiny", input=ids, encoding_format="float").data[0].embedding, vector)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(64)))


def test_disconnected_clients_do_not_affect_others(bert):
    body = json.dumps({"input": [[1] * 160] * 500}).encode()
    for _ in range(4):
        with bert.connect() as leaving:
            leaving.sendall(
                b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
            leaving.shutdown(socket.SHUT_RDWR)
    ids, vector = goldens()[1]
    reply = client_of(bert).embeddings.create(model="tiny", input=ids, encoding_format="float")
    assert close(reply.data[0].embedding, vector)
    # Requests of disconnected clients are dropped; finally none is left.
    deadline = time.monotonic() + 60
    while "sglang:num_queue_reqs" in (text := status_of(bert, "/metrics")[1]):
        waiting = [line for line in text.split("\n") if line.startswith("sglang:num_queue_reqs{")]
        if waiting[0].endswith(" 0"):
            break
        assert time.monotonic() < deadline, waiting
        time.sleep(0.05)


def test_a_generating_server_explains_how_to_get_embeddings(server):
    with pytest.raises(openai.BadRequestError) as rejected:
        client_of(server).embeddings.create(model="tiny", input="x")
    assert "--is-embedding" in str(rejected.value)


def test_generation_flags_are_rejected():
    with pytest.raises(RuntimeError, match="--schedule-policy: has no effect"):
        Server("--schedule-policy", "lpm", model=BERT)
