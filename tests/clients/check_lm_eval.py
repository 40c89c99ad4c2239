"""Runs lm-eval's local-completions on a running server and expects the accuracy that `attend generate` has on
the same questions.

    python tests/clients/check_lm_eval.py URL BINARY      (packages: lm-eval[api], transformers; no torch)
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models/attend-tiny"
WORDS = "laugh scout coffee writer pea roll milk sun fox river".split()
NUM_QUESTIONS = 60

GENERATE = """
task: attend_copy
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
output_type: generate_until
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
target_delimiter: ""
generation_kwargs: {{until: ["\\n"], max_gen_toks: 12, temperature: 0}}
metric_list: [{{metric: exact_match}}]
"""
CHOOSE = """
task: attend_choose
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
output_type: multiple_choice
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_target: gold
doc_to_choice: choices
target_delimiter: ""
metric_list: [{{metric: acc}}]
"""


def questions():
    rng = random.Random(1)
    for _ in range(NUM_QUESTIONS):
        answers = [" " + " ".join(rng.sample(WORDS, rng.randrange(2, 9))) for _ in range(4)]
        gold = rng.randrange(4)
        yield {"question": f"copy: {rng.choice(WORDS)} [{answers[gold]} ] {rng.choice(WORDS)} ->", "answer": answers[gold],
               "choices": answers, "gold": gold}


def generated(binary, items):
    """Returns the answers of `attend generate`."""
    prompts = "".join(json.dumps({"prompt": one["question"]}) + "\n" for one in items)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write(prompts)
        file.flush()
        output = subprocess.run([binary, "generate", "--model-path", str(MODEL), "--prompts-file", file.name, "--json",
                                 "--max-new-tokens", "12", "--temperature", "0"], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in output.stdout.splitlines()]


def main():
    url, binary = sys.argv[1:]
    import lm_eval

    items = list(questions())
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "data.jsonl"
        data.write_text("".join(json.dumps(one) + "\n" for one in items))
        for name, task in (("copy", GENERATE), ("choose", CHOOSE)):
            (pathlib.Path(folder) / f"{name}.yaml").write_text(task.format(data=data))
        results = lm_eval.simple_evaluate(
            model="local-completions",
            model_args={"model": "tiny", "base_url": url + "/v1/completions", "tokenizer": str(MODEL), "num_concurrent": 8,
                        "tokenizer_backend": "huggingface", "max_length": 2048},
            tasks=["attend_copy", "attend_choose"], task_manager=lm_eval.tasks.TaskManager(include_path=folder),
            bootstrap_iters=0)["results"]
    answers = generated(binary, items)
    right = sum(answer["text"] == one["answer"] for answer, one in zip(answers, items)) / len(items)
    copied, chosen = results["attend_copy"]["exact_match,none"], results["attend_choose"]["acc,none"]
    print(f"lm-eval: {copied:.3f} copied right ({right:.3f} by attend generate), {chosen:.3f} chosen right")
    assert len(answers) == len(items) and abs(copied - right) < 1e-9 and chosen > 0.9


if __name__ == "__main__":
    main()
