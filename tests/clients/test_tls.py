"""TLS: real clients, and sockets that do not use TLS."""

import json
import ssl
import subprocess

import openai
import pytest

from conftest import ANSWER, BINARY, MODEL, QUESTION, Server
from test_http import LONG, curl, eventually, post, read_all


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Files of a certificate authority that signed a server certificate and a client certificate; the
    server's key has a password."""
    folder = tmp_path_factory.mktemp("keys")

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1")
    for name, protect in (("server", ["-passout", "pass:secret"]), ("client", ["-nodes"])):
        openssl("req", "-newkey", "rsa:2048", *protect, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-extfile", "names", "-out", f"{name}.pem")
    return folder


def flags(keys):
    return ["--ssl-certfile", str(keys / "server.pem"), "--ssl-keyfile", str(keys / "server.key"),
            "--ssl-keyfile-password", "secret"]


@pytest.fixture(scope="module")
def secure(keys):
    server = Server(*flags(keys))
    yield server
    assert server.stop()[0] == 0


def wrapped(server, keys):
    context = ssl.create_default_context(cafile=keys / "ca.pem")
    return context.wrap_socket(server.connect(), server_hostname="127.0.0.1")


def test_curl_and_openai_work_over_tls(secure, keys):
    assert secure.url.startswith("https://")
    reply = curl("--cacert", str(keys / "ca.pem"), secure.url + "/v1/completions", "-d", json.dumps({"prompt": QUESTION}))
    assert json.loads(reply)["choices"][0]["text"] == ANSWER
    context = ssl.create_default_context(cafile=keys / "ca.pem")
    client = openai.OpenAI(base_url=secure.url + "/v1", api_key="none", http_client=openai.DefaultHttpxClient(verify=context))
    chunks = client.chat.completions.create(model="tiny", stream=True, messages=[{"role": "user", "content": QUESTION}])
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == ANSWER


def test_disconnect_aborts_the_request_under_tls(secure, keys):
    def value(name):
        text = curl("--cacert", str(keys / "ca.pem"), secure.url + "/metrics")
        return next(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(f"sglang:{name}{{"))

    before = value("num_aborted_requests_total")
    with wrapped(secure, keys) as connection:
        connection.sendall(post("/v1/completions", LONG))
        connection.recv(4096)
    eventually(lambda: value("num_aborted_requests_total") == before + 1)
    eventually(lambda: value("num_used_tokens") == 0)


def test_tls_close_notify_is_sent(secure, keys):
    with wrapped(secure, keys) as connection:
        connection.sendall(post("/v1/completions", {"prompt": QUESTION}, "Connection: close\r\n"))
        assert ANSWER.encode() in read_all(connection)  # raises if the stream was cut off


def test_plain_http_on_a_tls_port_is_dropped(secure, keys):
    for sent in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00" + b"\x00" * 512, b""):
        with secure.connect() as connection:
            if sent:
                connection.sendall(sent)
                try:
                    assert b"200" not in connection.recv(4096)
                except ConnectionError:
                    pass
    test_curl_and_openai_work_over_tls(secure, keys)


def test_client_certificates_can_be_required(keys):
    server = Server(*flags(keys), "--ssl-ca-certs", str(keys / "ca.pem"))
    try:
        known = ["--cacert", str(keys / "ca.pem")]
        own = ["--cert", str(keys / "client.pem"), "--key", str(keys / "client.key")]
        assert "tiny" in curl(*known, *own, server.url + "/v1/models")
        with pytest.raises(subprocess.CalledProcessError):
            curl(*known, server.url + "/v1/models")
    finally:
        server.stop()


def test_mismatched_files_are_rejected_before_the_model_is_loaded(keys):
    good = flags(keys)
    for bad, message in [
        (good[:2], "expected both"),
        (good[:4], "the key is encrypted: expected --ssl-keyfile-password"),
        ([*good[:5], "wrong"], "--ssl-keyfile-password is not the password of the key"),
        (good[4:], "--ssl-keyfile-password: only with --ssl-keyfile"),
        (["--ssl-certfile", str(keys / "client.pem"), *good[2:]], "server.key: not the key of --ssl-certfile"),
        (["--ssl-certfile", str(keys / "names"), *good[2:]], "names: expected a PEM file with certificates"),
        ([*good[:2], "--ssl-keyfile", str(keys / "names")], "names: expected a PEM file with a private key"),
        (["--ssl-certfile", str(keys / "none.pem"), *good[2:]], "none.pem: cannot be read: No such file"),
        (["--ssl-certfile", str(keys), *good[2:]], "is a directory: expected a file"),
        (["--ssl-ca-certs", str(keys / "ca.pem")], "only with --ssl-certfile"),
    ]:
        run = subprocess.run([BINARY, "serve", "--model-path", str(MODEL), "--port", "0", *bad],
                             capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        assert run.returncode != 0 and message in run.stderr, run.stderr
