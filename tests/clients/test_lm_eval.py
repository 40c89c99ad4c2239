"""lm-eval's client of completions, unchanged, with the server's own tokenizer: what it generates, and what it scores.
scripts/nightly_server.sh has whole evaluations (check_lm_eval.py)."""

import importlib.util

import pytest

from conftest import ANSWER, QUESTION

pytestmark = pytest.mark.skipif(importlib.util.find_spec("lm_eval") is None, reason="no lm-eval")


@pytest.fixture(scope="module")
def client(server):
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    made = LocalCompletionsAPI(base_url=server.url + "/v1/completions", model="tiny", num_concurrent=4, max_length=2048)
    assert made.tokenizer_backend == "remote"  # found by itself
    return made


def asked(kind, *arguments):
    from lm_eval.api.instance import Instance

    return Instance(request_type=kind, doc={}, arguments=arguments, idx=0, metadata=("attend", 0, 1))


def test_generates_until_stop(client):
    questions = [QUESTION, "copy: a [ sun ] b ->"]
    rules = {"until": ["\n"], "max_gen_toks": 12, "temperature": 0}
    answers = client.generate_until([asked("generate_until", question, dict(rules)) for question in questions])
    assert answers == [ANSWER, " sun"]


def test_the_right_answer_is_the_likeliest(client):
    choices = [" sun fox", ANSWER, " scout coffee pea writer", ANSWER + " milk"]
    scores = client.loglikelihood([asked("loglikelihood", QUESTION, choice) for choice in choices])
    assert max(range(len(choices)), key=lambda i: scores[i][0]) == 1
    assert [is_greedy for _, is_greedy in scores] == [False, True, False, False]
