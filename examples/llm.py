"""Completes prompts, streams one, and answers questions concurrently, all with one engine.

python3 llm.py models/attend-tiny
"""

import asyncio
import sys

import attend

PROMPTS = [
    "recall: sun=42, river=17; river=",
    "reverse: camp [ otter iron baker handle ] needle shell ->",
]


async def ask(llm, question):
    text = ""
    async for new in llm.stream_chat([{"role": "user", "content": question}], {"temperature": 0}):
        text += new.text
    return text


async def ask_all(llm):
    return await asyncio.gather(*(ask(llm, question) for question in PROMPTS))


def main():
    with attend.LLM(sys.argv[1]) as llm:
        greedy = attend.SamplingParams(temperature=0, max_tokens=32, logprobs=0)
        for output in llm.generate(PROMPTS, greedy):
            print(f"{output.prompt} -> {output.text.strip()}")
            print(f"  {output.finish_reason} after {len(output.token_ids)} tokens,", end=" ")
            print(f"log p = {output.outputs[0].cumulative_logprob:.3f}")

        print("streamed:", end="")
        for new in llm.stream(PROMPTS[1], greedy):
            print(new.text, end="|", flush=True)
        print()

        print("answered concurrently:", asyncio.run(ask_all(llm)))


if __name__ == "__main__":
    main()
