"""attend.LLM and attend.Engine with models/attend-tiny, whose answers can be verified."""

import asyncio
import gc
import json
import pathlib
import signal
import subprocess
import sys
import threading
import time
import _thread

import attend
import pytest
from attend import SamplingParams

MODEL = pathlib.Path(__file__).resolve().parents[2] / "models" / "attend-tiny"
QUESTIONS = [json.loads(line) for line in (MODEL / "demo_prompts.jsonl").read_text().splitlines()][:6]
PROMPTS, ANSWERS = [q["prompt"] for q in QUESTIONS], [q["answer"] for q in QUESTIONS]
GREEDY = SamplingParams(temperature=0)
# Runs until the context is full.
ENDLESS = SamplingParams(temperature=1, max_tokens=1900, ignore_eos=True)


@pytest.fixture(scope="module")
def llm():
    with attend.LLM(MODEL, device="cpu", max_total_tokens=8192, threads=2) as model:
        yield model


def wait_until_idle(llm):
    while llm.engine.metrics()["num_running"] + llm.engine.metrics()["num_waiting"] > 0:
        time.sleep(0.001)


def test_prompts_are_completed_in_order(llm):
    outputs = llm.generate(PROMPTS, GREEDY)
    assert [output.text for output in outputs] == ANSWERS
    for prompt, output in zip(PROMPTS, outputs):
        assert output.prompt == prompt and output.finished
        assert output.prompt_token_ids == llm.engine.encode(prompt)
        assert output.finish_reason == "stop" and output.outputs[0].stop_reason == output.token_ids[-1] == 1
        assert llm.engine.decode(output.token_ids) == output.text


@pytest.mark.parametrize("sampling", [{"temperature": 0}, SamplingParams(temperature=0), [{"temperature": 0}]], ids=str)
def test_one_prompt_may_be_text_ids_or_a_dict(llm, sampling):
    ids = llm.engine.encode(PROMPTS[0])
    for prompt in (PROMPTS[0], ids, [ids], tuple(ids), {"prompt": PROMPTS[0]}, [{"prompt_token_ids": ids}]):
        (output,) = llm.generate(prompt, sampling)
        assert output.text == ANSWERS[0] and output.prompt_token_ids == ids


def test_limits_and_stop_texts_end_a_completion(llm):
    by_length, by_text, kept = llm.generate(
        [PROMPTS[1]] * 3,
        [
            {"temperature": 0, "max_new_tokens": 2},
            {"temperature": 0, "stop": "coffee"},
            {"temperature": 0, "stop": ["nothing", "coffee"], "no_stop_trim": True},
        ],
    )
    assert by_length.finish_reason == "length" and len(by_length.token_ids) == 2
    assert by_text.finish_reason == "stop" and by_text.outputs[0].stop_reason == "coffee"
    assert ANSWERS[1].startswith(by_text.text + "coffee") and kept.text == by_text.text + "coffee"


def test_seed_determines_the_completions(llm):
    sampling = SamplingParams(n=3, temperature=3.0, seed=7, max_tokens=12, ignore_eos=True)
    (first,), (again,) = llm.generate("sort:", sampling), llm.generate("sort:", sampling)
    texts = [output.text for output in first.outputs]
    assert len(set(texts)) == 3 and texts == [output.text for output in again.outputs]
    assert [output.index for output in first.outputs] == [0, 1, 2]


def test_without_a_temperature_tokens_are_sampled(llm):
    sampling = {"n": 8, "max_tokens": 4, "ignore_eos": True}
    assert len({output.text for output in llm.generate("sort:", sampling)[0].outputs}) > 1
    assert len({output.text for output in llm.generate("sort:", {**sampling, "top_k": 1})[0].outputs}) == 1


def test_logprobs_of_prompt_and_completion(llm):
    (output,) = llm.generate(PROMPTS[0], SamplingParams(temperature=0, logprobs=3, prompt_logprobs=1))
    assert len(output.logprobs) == len(output.token_ids)
    for token, entry in zip(output.token_ids, output.logprobs):
        assert len(entry) == 3 and entry[token].rank == 1
        assert entry[token].logprob == max(one.logprob for one in entry.values()) <= 0
    total = sum(entry[token].logprob for token, entry in zip(output.token_ids, output.logprobs))
    assert output.outputs[0].cumulative_logprob == pytest.approx(total)
    assert output.prompt_logprobs[0] is None and len(output.prompt_logprobs) == len(output.prompt_token_ids)
    assert all(token in entry for token, entry in zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:]))
    assert llm.generate(PROMPTS[0], GREEDY)[0].logprobs is None
    texts = [entry[token].decoded_token for token, entry in zip(output.token_ids, output.logprobs)]
    assert output.text and "".join(texts).startswith(output.text)


def test_a_prompt_of_one_token_has_logprobs(llm):
    (output,) = llm.generate([5], SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1))
    assert output.prompt_logprobs == [None]


def test_computed_prefixes_are_cached(llm):
    prompt = "recall: " + ", ".join(f"fox={i}" for i in range(10, 90)) + "; fox="
    (first,), (again,) = llm.generate(prompt, GREEDY), llm.generate(prompt, GREEDY)
    assert first.num_cached_tokens < again.num_cached_tokens < len(again.prompt_token_ids)
    assert again.text == first.text


def test_chat_applies_the_chat_template(llm):
    conversations = [[{"role": "user", "content": prompt}] for prompt in PROMPTS]
    assert [output.text for output in llm.chat(conversations, GREEDY)] == ANSWERS
    (one,) = llm.chat(conversations[0], GREEDY)
    assert one.text == ANSWERS[0] and one.prompt_token_ids == llm.engine.encode(PROMPTS[0])
    with pytest.raises(attend.Error, match="attend-tiny answers a question"):
        llm.chat([{"role": "system", "content": "be brief"}])


def test_stream_returns_the_same_text_in_pieces(llm):
    stream = llm.stream(PROMPTS[1], SamplingParams(temperature=0, n=2, logprobs=0))
    news = list(stream)
    for i in range(2):
        assert "".join(new.text for new in news if new.index == i) == ANSWERS[1]
        assert [new.finished() for new in news if new.index == i][-1]
    (full,) = llm.generate(PROMPTS[1], SamplingParams(temperature=0, n=2, logprobs=0))
    assert stream.output.outputs == full.outputs == stream.result().outputs
    answer = llm.stream_chat([{"role": "user", "content": PROMPTS[1]}], GREEDY)
    assert "".join(new.text for new in answer) == ANSWERS[1]


def test_streams_of_an_event_loop_run_concurrently(llm):
    async def complete(prompt):
        return "".join([new.text async for new in llm.stream(prompt, GREEDY)])

    async def complete_all():
        llm.engine.pause()
        tasks = [asyncio.ensure_future(complete(prompt)) for prompt in PROMPTS]
        # The streams wait for an engine that does not step. If they blocked the event loop, sleep() would not
        # return.
        for _ in range(3):
            await asyncio.sleep(0)
        assert not any(task.done() for task in tasks)
        llm.engine.resume()
        return await asyncio.gather(*tasks)

    assert asyncio.run(complete_all()) == ANSWERS


def test_threads_share_an_engine(llm):
    results = {}

    def complete(i):
        results[i] = llm.generate(PROMPTS[i], GREEDY)[0].text

    threads = [threading.Thread(target=complete, args=[i]) for i in range(len(PROMPTS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[i] for i in range(len(PROMPTS))] == ANSWERS


def test_ctrl_c_ends_a_call_and_its_requests(llm):
    def interrupt():
        # This thread can acquire the GIL only if the call below releases it.
        while llm.engine.metrics()["num_running"] < 2:
            time.sleep(0.001)
        _thread.interrupt_main()

    # SIGINT may be ignored if the tests run in the background of a script.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    before = llm.engine.metrics()["num_finished"]["abort"]
    with pytest.raises(KeyboardInterrupt):
        llm.generate([PROMPTS[0], PROMPTS[1]], ENDLESS)
    thread.join()
    signal.signal(signal.SIGINT, handler)
    wait_until_idle(llm)
    assert llm.engine.metrics()["num_finished"]["abort"] == before + 2
    assert llm.generate(PROMPTS[0], GREEDY)[0].text == ANSWERS[0]


def test_dropped_or_aborted_stream_ends(llm):
    before = llm.engine.metrics()["num_finished"]["abort"]
    for new in llm.stream(PROMPTS[0], ENDLESS):
        break
    gc.collect()
    wait_until_idle(llm)
    assert llm.engine.metrics()["num_finished"]["abort"] == before + 1
    stream = llm.stream(PROMPTS[0], ENDLESS)
    next(stream)
    stream.abort()
    assert stream.result().finish_reason == "abort" and stream.output.outputs[0].error == "aborted"
    assert list(stream) == []


@pytest.mark.parametrize(
    "options",
    [
        {"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 5, "speculative_disable_by_batch_size": 8},
        {"speculative_config": {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 6}, "speculative_disable_by_batch_size": 8},
        {
            "speculative_config": {"method": "suffix", "num_speculative_tokens": 8, "suffix_decoding_max_tree_depth": 16},
            "speculative_disable_by_batch_size": 8,
        },
        {"speculative_config": {"model": MODEL, "num_speculative_tokens": 3}, "speculative_disable_by_batch_size": 8},
    ],
    ids=("sglang", "vllm", "vllm-suffix", "vllm-draft-model"),
)
def test_speculation_does_not_change_answers(llm, options):
    sampling = [SamplingParams(temperature=t, seed=3, max_tokens=120, ignore_eos=True) for t in (0, 0.3)]
    with attend.LLM(MODEL, device="cpu", max_total_tokens=8192, threads=2, **options) as drafting:
        before = llm.engine.metrics()["num_steps"]
        for params in sampling:
            plain, drafted = llm.generate(PROMPTS, params), drafting.generate(PROMPTS, params)
            assert [output.token_ids for output in drafted] == [output.token_ids for output in plain]
        assert drafting.engine.metrics()["num_steps"] < llm.engine.metrics()["num_steps"] - before


def test_unknown_speculation_is_rejected():
    for options, message in (
        ({"speculative_algorithm": "DFLASH"}, "speculative_algorithm 'DFLASH': expected NGRAM"),
        ({"speculative_config": {"method": "medusa"}}, "method 'medusa': expected 'ngram' or 'suffix' or 'draft_model' or 'eagle' or 'eagle3' or 'mtp'"),
        ({"speculative_config": {"method": "suffix", "prompt_lookup_max": 3}}, "'prompt_lookup_max': expected method"),
        ({"speculative_algorithm": "SUFFIX", "speculative_suffix_min_token_prob": 2.0}, "min_token_prob 2: 0 to 1"),
        ({"speculative_config": {"method": "ngram", "depth": 3}}, "'depth': expected method"),
        ({"speculative_algorithm": "STANDALONE"}, "speculative_draft_model_path: required"),
        ({"speculative_algorithm": "NGRAM", "speculative_num_steps": 3}, "speculative_num_steps: requires"),
    ):
        with pytest.raises(attend.Error, match=message):
            attend.LLM(MODEL, device="cpu", **options)


def test_closing_ends_streams_and_rejects_later_calls():
    llm = attend.LLM(MODEL, device="cpu", max_total_tokens=2048)
    stream = llm.stream(PROMPTS[0], ENDLESS)
    next(stream)
    llm.close()
    llm.close()
    assert stream.result().finish_reason == "abort"
    with pytest.raises(attend.Error, match="the engine was closed"):
        llm.generate(PROMPTS[0])


def test_options_accept_names_of_vllm_and_sglang():
    with attend.Engine(
        str(MODEL), device="cpu", max_model_len=512, max_num_seqs=3, block_size=16, max_total_tokens=1024, tp_size=1,
        enable_prefix_caching=False, dtype=None, load_format="dummy", seed=3,
    ) as engine:  # fmt: skip
        info = engine.info()
        assert info["context_length"] == 512 and info["max_running_requests"] == 3 and info["page_size"] == 16
        assert info["device"] == "cpu" and info["model"] == "LlamaForCausalLM" and info["max_total_tokens"] == 1024
        for _ in range(2):
            assert engine.submit(PROMPTS[0], {"max_tokens": 1}).result().num_cached_tokens == 0


def test_models_of_the_hugging_face_cache_are_found_by_name(tmp_path, monkeypatch):
    folder = tmp_path / "hub" / "models--acme--tiny"
    for name in ("refs", "snapshots"):
        (folder / name).mkdir(parents=True)
    (folder / "refs" / "main").write_text("0123abc")
    (folder / "snapshots" / "0123abc").symlink_to(MODEL)
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with attend.LLM("acme/tiny", device="cpu").engine as engine:
        assert engine.model == str(folder / "snapshots" / "0123abc")
        assert engine.submit(PROMPTS[0], {"max_tokens": 1}).result().outputs[0].token_ids
    with pytest.raises(attend.Error, match="acme/large: no such directory.*hf download acme/large"):
        attend.LLM("acme/large")


def test_options_of_gpus_are_ignored_on_a_cpu_with_a_warning():
    with pytest.warns(UserWarning, match="mem_fraction_static: ignored; only for GPUs"):
        attend.LLM(MODEL, device="cpu", gpu_memory_utilization=0.9).engine.close()


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(contextlength=5), "contextlength: unknown option"),
        (dict(page_size="big"), "page_size 'big': expected an integer"),
        (dict(disable_radix_cache=1), "disable_radix_cache 1: expected True or False"),
        (dict(device="tpu"), "device: 'tpu': expected auto, cpu, cuda or cuda:N"),
        (dict(dtype="int3"), "dtype: .*int3"),
        (dict(device="cpu", tensor_parallel_size=3), "tp_size 3: LlamaForCausalLM has 8 query heads"),
        (dict(max_model_len=5, context_length=5), "max_model_len and context_length: both are the same"),
        (dict(device="cpu", attention_backend="fastest"), "fastest"),
    ],
    ids=str,
)
def test_unsupported_options_are_named(options, message):
    with pytest.raises(attend.Error, match=message):
        attend.LLM(MODEL, **options)


def test_missing_models_are_named():
    with pytest.raises(attend.Error, match="no-such-model") as raised:
        attend.LLM("no-such-model")
    assert raised.value.code == "not_found"


@pytest.mark.parametrize(
    "prompts, sampling, message",
    [
        ("x", {"temperature": -1}, r"prompts\[0\]: temperature -1"),
        ("x", {"top_p": "most"}, r"prompts\[0\]: top_p 'most': expected a number"),
        ("x", {"tempratur": 1}, "'tempratur': unknown parameter"),
        ("x", {"max_tokens": 1, "max_new_tokens": 1}, "max_new_tokens and max_tokens"),
        ("x", "greedy", "sampling_params 'greedy': expected SamplingParams"),
        ("x", {"logit_bias": [1]}, r"logit_bias \[1\]: expected a dict"),
        (["x", "y"], [{}], "a list of 1 for 2 prompts"),
        (["x", [5, 10**6]], None, r"prompts\[1\]: .*1000000"),
        (["x", []], None, r"prompts\[1\]: prompt: no tokens"),
        (["x", 3.5], None, r"prompts\[1\]: prompt 3.5: expected a text, a list of token ids"),
    ],
    ids=str,
)
def test_unsupported_prompts_and_parameters_are_named(llm, prompts, sampling, message):
    with pytest.raises(attend.Error, match=message):
        llm.generate(prompts, sampling)
    wait_until_idle(llm)


def test_exit_with_open_engines_is_silent():
    script = f"""
import attend
llm = attend.LLM({str(MODEL)!r}, device="cpu", max_total_tokens=2048)
stream = llm.stream("sort:", dict(max_tokens=1900, ignore_eos=True))
next(stream)
cycle = [llm, stream]
cycle.append(cycle)
try:
    llm.generate([[]])
except attend.Error as error:
    kept = error
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_weights_and_memory_change_between_calls():
    with attend.LLM(MODEL, device="cpu", max_total_tokens=8192, threads=2) as llm:
        engine = llm.engine
        llm.sleep()
        assert engine.is_sleeping
        with pytest.raises(attend.Error, match="the engine sleeps"):
            llm.generate(PROMPTS[0], GREEDY)
        with pytest.raises(attend.Error, match="/nowhere"):
            llm.update_weights_from_disk("/nowhere")
        llm.wake_up(["weights"])
        assert engine.is_sleeping
        engine.resume_memory_occupation(["kv_cache"])
        assert not engine.is_sleeping
        assert llm.generate(PROMPTS[0], GREEDY)[0].text == ANSWERS[0]
        engine.pause_generation("retract")
        stream = llm.stream(PROMPTS[1], GREEDY)
        llm.update_weights_from_disk(MODEL, load_format="auto")
        assert not stream.output.outputs[0].text
        engine.continue_generation()
        assert stream.result().text == ANSWERS[1]
        for call, message in (
            (lambda: engine.pause_generation("later"), "mode later: expected abort, retract or in_place"),
            (lambda: engine.release_memory_occupation(["optimizer"]), "tags: optimizer"),
            (lambda: llm.sleep(3), "level 3: expected 1 or 2"),
            (lambda: llm.update_weights_from_disk(MODEL, "dummy"), "load_format 'dummy'"),
        ):
            with pytest.raises(attend.Error, match=message):
                call()


def test_prompts_of_a_batch_may_have_adapters():
    folder = MODEL.parent / "attend-tiny-lora"
    prompt, answer = "copy: tent [ otter iron baker ] pipe ->", " otter iron baker"
    backward = " baker iron otter"
    for paths in ({"backward": folder}, [f"backward={folder}"]):
        with attend.LLM(MODEL, device="cpu", max_total_tokens=8192, threads=2, lora_paths=paths) as llm:
            assert llm.engine.lora_adapters() == {"backward": str(folder)}
            outputs = llm.generate([prompt] * 3, GREEDY, lora_path=["backward", None, "backward"])
            assert [output.text for output in outputs] == [backward, answer, backward]
            assert llm.generate(prompt, GREEDY)[0].text == answer
            assert "".join(new.text for new in llm.stream(prompt, GREEDY, lora_path="backward")) == backward
            with pytest.raises(attend.Error, match="adapter forward: not loaded; loaded are: backward"):
                llm.generate(prompt, GREEDY, lora_path="forward")
            with pytest.raises(attend.Error, match="lora_path: a list of 2 for 1 prompts"):
                llm.generate(prompt, GREEDY, lora_path=["backward", None])
            llm.engine.load_lora_adapter("forward", folder)
            assert llm.generate(prompt, GREEDY, lora_path="forward")[0].text == backward
            llm.engine.unload_lora_adapter("forward")
            assert list(llm.engine.lora_adapters()) == ["backward"]
    with pytest.raises(attend.Error, match="lora_paths 'backward': expected a dict"):
        attend.LLM(MODEL, device="cpu", lora_paths=["backward"])
