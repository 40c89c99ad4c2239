#!/usr/bin/env bash
# Builds attend and shows real model answers: the bundled attend-tiny on prompts with known answers, then the same model
# over HTTP, with curl. Fails if fewer than 90 % of the answers are right, or if the server's answer is wrong. Arguments
# are flags of attend generate.
set -euo pipefail
ATTEND_EXTRA_PACKAGES=curl source "$(dirname "$0")/setup.sh"
build release attend_cli

output=$(mktemp)
server=
files=$(mktemp -d)
trap 'rm -rf "$output" "$output.drafts" "$output.adapter" "$output.tiers" "$files"; [ -z "$server" ] || kill "$server" 2>/dev/null || true' EXIT
build/release/attend generate --model-path models/attend-tiny --prompts-file models/attend-tiny/demo_prompts.jsonl \
  --max-new-tokens 64 --show-prompts "$@" 2>&1 | tee "$output"

# The last line is "answers: N of M right".
awk '/^answers: / { right = $2; all = $4 } END { exit !(all >= 12 && right >= 0.9 * all) }' "$output" ||
  { echo "demo: fewer than 90 % of at least 12 answers are right" >&2; exit 1; }

# Drafts change the number of steps, never the answers.
echo
echo "the same prompts with an EAGLE-3 head that drafts tokens"
build/release/attend generate --model-path models/attend-tiny --prompts-file models/attend-tiny/demo_prompts.jsonl \
  --max-new-tokens 64 --speculative-algorithm EAGLE3 --speculative-draft-model-path models/attend-tiny-eagle3 "$@" \
  >"$output.drafts" 2>&1 || { cat "$output.drafts" >&2; exit 1; }
grep -E "speculation: |decode steps: |^info: answers: |^answers: " "$output.drafts"
[[ $(grep -o "answers: .*" "$output.drafts") == "$(grep -o "answers: .*" "$output")" ]] ||
  { echo "demo: drafts changed the number of right answers" >&2; exit 1; }

# With the adapter, the task "copy" gives the words last one first.
echo
echo "a prompt with and without a LoRA adapter"
printf '%s\n' '{"prompt": "copy: tent [ otter iron baker ] pipe ->", "answer": " baker iron otter"}' \
  '{"prompt": "copy: tent [ otter iron baker ] pipe ->", "answer": " otter iron baker", "lora_path": null}' |
  build/release/attend generate --model-path models/attend-tiny --lora-paths backward=models/attend-tiny-lora \
    --prompts-file - --max-new-tokens 16 --show-prompts "$@" >"$output.adapter" 2>&1 || { cat "$output.adapter" >&2; exit 1; }
grep -vE "^info: " "$output.adapter"
grep -q "answers: 2 of 2 right" "$output.adapter" || { echo "demo: the adapter's answers are wrong" >&2; exit 1; }

echo
echo "the same prompts twice: the second process finds their K/V in files of the first one"
for run in 1 2; do
  build/release/attend generate --model-path models/attend-tiny --prompts-file models/attend-tiny/demo_prompts.jsonl \
    --max-new-tokens 64 --device cpu --page-size 4 --enable-hierarchical-cache --hicache-storage-dir "$files" \
    >"$output.tiers" 2>&1 || { cat "$output.tiers" >&2; exit 1; }
  grep -E "steps with prompts: |tiers of the prefix cache: |answers: " "$output.tiers"
done
grep -q " [1-9][0-9]* pages from the disk" "$output.tiers" ||
  { echo "demo: expected cached prefixes from the disk" >&2; exit 1; }

echo
echo "attend serve: the same model over HTTP"
build/release/attend serve --model-path models/attend-tiny --served-model-name attend-tiny --port 0 2>"$output" &
server=$!
until url=$(grep -o 'http://[0-9.:]*' "$output"); do
  kill -0 "$server" 2>/dev/null || { cat "$output" >&2; echo "demo: the server did not start" >&2; exit 1; }
  sleep 0.05
done
question="path: rest > flood, hard > letter, letter > end; hard ->"

# ask PATH BODY: prints the command and stores the answer.
ask() {
  printf "$ curl -N %s -d '%s'\n" "$url$1" "$2"
  answer=$(curl -sSN --max-time 60 "$url$1" -H "Content-Type: application/json" -d "$2")
  echo "$answer"
}
ask /v1/completions "{\"model\": \"attend-tiny\", \"prompt\": \"$question\", \"max_tokens\": 16}"
[[ $answer == *'"text":" letter end"'* ]] || { echo "demo: expected the completion \" letter end\"" >&2; exit 1; }
ask /v1/chat/completions "{\"model\": \"attend-tiny\", \"stream\": true, \"messages\": [{\"role\": \"user\", \"content\": \"$question\"}]}"
[[ $answer == *'"content":" letter"'*'"content":" end"'*'[DONE]'* ]] || { echo "demo: expected a stream of \" letter end\"" >&2; exit 1; }
ask /v1/responses "{\"model\": \"attend-tiny\", \"input\": \"$question\"}"
[[ $answer == *'"status":"completed"'*'"text":" letter end"'* ]] || { echo "demo: expected the response \" letter end\"" >&2; exit 1; }

kill "$server"
wait "$server" || { echo "demo: the server did not exit cleanly" >&2; exit 1; }
server=
echo "the server answered all requests and stopped"
