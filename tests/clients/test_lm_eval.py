"""lm-eval's completions client, unchanged, with the server's own tokenizer: generation and scoring.
scripts/nightly_server.sh
runs whole evaluations (check_lm_eval.py)."""

import importlib.util

import pytest

from conftest import ANSWER, QUESTION

pytestmark = pytest.mark.skipif(importlib.util.find_spec("lm_eval") is None, reason="no lm-eval")


@pytest.fixture(scope="module")
def client(server):
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    made = LocalCompletionsAPI(base_url=server.url + "/v1/completions", model="tiny", num_concurrent=4, max_length=2048)
    assert made.tokenizer_backend == "remote"  # detected by lm-eval
    return made


def make_instance(kind, *arguments):
    from lm_eval.api.instance import Instance

    return Instance(request_type=kind, doc={}, arguments=arguments, idx=0, metadata=("attend", 0, 1))


def test_generates_until_stop(client):
    questions = [QUESTION, "copy: a [ sun ] b ->"]
    rules = {"until": ["\n"], "max_gen_toks": 12, "temperature": 0}
    answers = client.generate_until([make_instance("generate_until", question, dict(rules)) for question in questions])
    assert answers == [ANSWER, " sun"]


def test_the_correct_answer_has_the_highest_likelihood(client):
    choices = [" sun fox", ANSWER, " scout coffee pea writer", ANSWER + " milk"]
    scores = client.loglikelihood([make_instance("loglikelihood", QUESTION, choice) for choice in choices])
    assert max(range(len(choices)), key=lambda i: scores[i][0]) == 1
    assert [is_greedy for _, is_greedy in scores] == [False, True, False, False]
