"""The tasks that models/attend-tiny can do: generators of prompts with their answers.

Training, the committed test data and the documentation share this module. It is plain Python.

A prompt is one line of text. It ends with `=` if the answer is a number, or with `->` if the answer is a list, whose
items have a space before each. The end-of-sequence token follows. Words are from tiny_words.txt, numbers are 10 to 99.

    recall   the number that belongs to a word; every word of the list occurs once
             recall: sun=42, river=17, fox=80; river=17
    copy     the words in brackets; the words around them, if any, do not matter
             copy: sun [ river fox apple ] stone moon -> river fox apple
    reverse  the words in brackets, last one first
             reverse: sun [ river fox apple ] stone moon -> apple fox river
    next     the word that follows another one in a list without repetitions
             next: sun, river, fox, apple; river -> fox
    path     follow the edges `word > word` from a word until `end`; no word has two edges
             path: fox > end, sun > river, apple > sun, river > fox; sun -> river fox end
    sort     the numbers, smallest first; words in between do not matter
             sort: 42 sun 17 river 80 -> 17 42 80

Training includes one more task, which the model learns only in part, so no test uses it:

    count    how often a word occurs, 1 to 5 times
             count: fox sun river sun fox sun; sun=3

Every task can have any length up to the model's context: `budget` is the maximum number of tokens of prompt and answer,
with one token for each word, number, mark, and space before a number, and two for the begin and end tokens.
"""

import pathlib
import random
from typing import Callable, NamedTuple

WORDS = pathlib.Path(__file__).with_name("tiny_words.txt").read_text().split()
CONTEXT = 2048
SHORTEST = 14
# Training never uses these seeds, and skips a held-out prompt if it draws the same one.
HELD_OUT_SEED = 20480
DEMO_SEED = 20481


class Example(NamedTuple):
    task: str
    prompt: str
    answer: str


def recall(rng: random.Random, budget: int) -> Example:
    """Four tokens per entry: ` word`, `=`, `42`, `,`."""
    size = max(2, (budget - 8) // 4)
    keys = rng.sample(WORDS, size)
    values = [rng.randint(10, 99) for _ in keys]
    asked = rng.randrange(size)
    entries = ", ".join(f"{key}={value}" for key, value in zip(keys, values))
    return Example("recall", f"recall: {entries}; {keys[asked]}=", str(values[asked]))


def words_in_brackets(rng: random.Random, budget: int, longest: int) -> tuple[list[str], str]:
    """Returns distinct words in brackets, and a text of other words that contains them."""
    room = budget - 7
    inside = rng.sample(WORDS, rng.randint(4, max(4, min(longest, room // 2))))
    marked = set(inside)
    others = [word for word in WORDS if word not in marked]
    around = rng.choices(others, k=max(0, room - 2 * len(inside)))
    at = rng.randint(0, len(around))
    return inside, " ".join(around[:at] + ["["] + inside + ["]"] + around[at:])


def copy(rng: random.Random, budget: int) -> Example:
    inside, text = words_in_brackets(rng, budget, longest=24)
    return Example("copy", f"copy: {text} ->", " " + " ".join(inside))


def reverse(rng: random.Random, budget: int) -> Example:
    inside, text = words_in_brackets(rng, budget, longest=16)
    return Example("reverse", f"reverse: {text} ->", " " + " ".join(reversed(inside)))


def next_word(rng: random.Random, budget: int) -> Example:
    """Two tokens per item: ` word` and `,`."""
    items = rng.sample(WORDS, min(len(WORDS), max(3, (budget - 7) // 2)))
    asked = rng.randrange(len(items) - 1)
    return Example("next", f"next: {', '.join(items)}; {items[asked]} ->", f" {items[asked + 1]}")


def count(rng: random.Random, budget: int) -> Example:
    size = max(6, budget - 8)
    times = rng.randint(1, 5)
    asked = rng.choice(WORDS)
    others = [word for word in WORDS if word != asked]
    text = rng.choices(others, k=size)
    for at in rng.sample(range(size), times):
        text[at] = asked
    return Example("count", f"count: {' '.join(text)}; {asked}=", str(times))


def path(rng: random.Random, budget: int) -> Example:
    """Four tokens per edge: ` word`, ` >`, ` word`, `,`. Words outside the path have edges to random words."""
    num_edges = rng.randint(2, max(2, min(8, (budget - 7) // 8)))
    size = max(num_edges + 1, (budget - 7 - num_edges) // 4)
    sources = rng.sample(WORDS, size)
    chain = sources[:num_edges]
    edges = list(zip(chain, chain[1:] + ["end"]))
    edges += [(source, rng.choice(WORDS)) for source in sources[num_edges:]]
    rng.shuffle(edges)
    text = ", ".join(f"{source} > {target}" for source, target in edges)
    return Example("path", f"path: {text}; {chain[0]} ->", " " + " ".join(chain[1:] + ["end"]))


def sort(rng: random.Random, budget: int) -> Example:
    """A number needs two tokens, the space and its digits, in the prompt and in the answer."""
    room = budget - 5
    numbers = rng.sample(range(10, 100), rng.randint(3, max(3, min(6, room // 4))))
    text = rng.choices(WORDS, k=max(0, room - 4 * len(numbers)))
    for number in numbers:
        text.insert(rng.randint(0, len(text)), str(number))
    ordered = " ".join(str(number) for number in sorted(numbers))
    return Example("sort", f"sort: {' '.join(text)} ->", f" {ordered}")


TASKS: dict[str, Callable[[random.Random, int], Example]] = {
    "recall": recall,
    "copy": copy,
    "reverse": reverse,
    "next": next_word,
    "path": path,
    "sort": sort,
}
TRAINING_ONLY: dict[str, Callable[[random.Random, int], Example]] = {"count": count}


def held_out(num_examples: int = 200) -> list[Example]:
    """Returns the test set: all tasks in turn; a third is short, a third medium, a third full length."""
    rng = random.Random(HELD_OUT_SEED)
    ranges = ((32, 128), (128, CONTEXT // 2), (CONTEXT * 3 // 4, CONTEXT))
    names = list(TASKS)
    return [
        TASKS[names[index % len(names)]](rng, rng.randint(*ranges[index // len(names) % 3]))
        for index in range(num_examples)
    ]


def demo() -> list[Example]:
    """Returns the prompts of the demo: two of each task that fit on a screen, and four longer ones."""
    rng = random.Random(DEMO_SEED)
    short = [task(rng, budget) for budget in (24, 56) for task in TASKS.values()]
    return short + [recall(rng, 2000), copy(rng, 1000), path(rng, 1500), sort(rng, 300)]
