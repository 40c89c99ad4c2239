#include "attend/cli/options/llama_cpp_flags.h"

#include <array>

namespace attend::cli {
namespace {

struct Row {
  std::array<std::string_view, 6> names;
  std::string_view instead;
};

// Names of common/arg.cpp and llama-bench. A single letter after a single dash is attend's own flag if both
// have it.
constexpr Row kRows[] = {
    {{"-hf", "-hfr", "-hff", "--hf-repo", "--hf-file"},
     "nothing is downloaded: `hf download ORG/MODEL --local-dir FOLDER`, then -m FOLDER"},
    {{"-hft", "--hf-token", "-mu", "--model-url", "-dr", "--docker-repo"},
     "nothing is downloaded: expected -m FOLDER, a Hugging Face model directory"},
    {{"-ngl", "--gpu-layers", "--n-gpu-layers"}, "a model runs on a single device: --device cpu or cuda"},
    {{"-dev", "-mg", "--main-gpu", "--list-devices"},
     "--device cpu, cuda or cuda:N; --version lists devices"},
    {{"-sm", "--split-mode", "-ts", "--tensor-split"}, "a model runs on a single GPU: --device cuda:N"},
    {{"-cmoe", "-ncmoe", "--cpu-moe", "--n-cpu-moe", "-ot", "--override-tensor"},
     "a model runs on a single device: --device cpu or cuda"},
    {{"-nkvo", "-kvo", "--no-kv-offload", "--kv-offload", "-nopo", "--no-op-offload"},
     "K/V are on the model's device: --device cpu or cuda"},
    {{"-fa", "--flash-attn"}, "attention never stores scores: omit it (--attention-backend chooses kernels)"},
    {{"-ctk", "--cache-type-k", "-ctv", "--cache-type-v"},
     "--kv-cache-dtype for K and V: auto, float32, float16, bfloat16, fp8_e4m3 or fp8_e5m2"},
    {{"-b", "--batch-size", "-ub", "--ubatch-size"},
     "--chunked-prefill-size: maximum number of new tokens per step"},
    {{"-np", "--parallel", "-ns", "--sequences"},
     "--max-running-requests: maximum number of requests per step"},
    {{"-cb", "--cont-batching", "-nocb", "--no-cont-batching"}, "batches are always continuous: omit it"},
    {{"-kvu", "--kv-unified", "-no-kvu", "--no-kv-unified"}, "requests always share one KV pool: omit it"},
    {{"-cram", "--cache-ram", "--cache-reuse", "--prompt-cache"},
     "prefixes are cached in the KV pool: --max-total-tokens, --disable-radix-cache"},
    {{"-tb", "--threads-batch"}, "--threads applies to prompts and answers"},
    {{"-C", "--cpu-mask", "-Cr", "--cpu-range", "--numa"}, "run it under taskset or numactl"},
    {{"-lm", "--load-mode", "--mmap", "--no-mmap", "-mmp", "--mlock"}, "weights are always mapped: omit it"},
    {{"-cnv", "--conversation", "-i", "--interactive", "-mli", "-if"}, "use attend chat"},
    {{"-no-cnv", "--no-conversation"}, "attend generate never starts a conversation: omit it"},
    {{"-st", "--single-turn"}, "attend generate --chat applies the chat template to each prompt"},
    {{"-sys", "--system-prompt"}, "attend chat --system"},
    {{"-sysf", "--system-prompt-file"}, "attend chat --system \"$(cat FILE)\""},
    {{"-bf", "--binary-file", "--in-file"}, "--file, or --prompts-file with one prompt per line"},
    {{"-e", "--escape", "--no-escape"}, "prompts are used as they are; in bash: -p $'a\\nb'"},
    {{"-r", "--reverse-prompt"}, "--stop TEXT"},
    {{"-sp", "--special"}, "--no-skip-special-tokens"},
    {{"-l"}, "--logit-bias TOKEN_ID=BIAS"},
    {{"-j"}, "--json-schema FILE"},
    {{"-jf", "--json-schema-file"}, "--json-schema FILE"},
    {{"--grammar", "--grammar-file"}, "--ebnf FILE, a grammar in GBNF"},
    {{"--repeat-penalty"}, "--repetition-penalty"},
    {{"--repeat-last-n", "--typical", "--typical-p", "--mirostat", "--samplers", "--sampler-seq"},
     "sampling has --temperature, --top-k, --top-p, --min-p and penalties"},
    {{"--dry-multiplier", "--xtc-probability", "--dynatemp-range", "--top-nsigma", "--top-n-sigma"},
     "sampling has --temperature, --top-k, --top-p, --min-p and penalties"},
    {{"-md", "--model-draft", "-devd", "-ngld", "-cd", "--draft-max"},
     "draft models are not supported; --speculative-algorithm NGRAM drafts from the prompt"},
    {{"-lcs", "--lookup-cache-static", "-lcd", "--lookup-cache-dynamic"},
     "--speculative-algorithm NGRAM drafts from the prompt"},
    {{"-mm", "--mmproj", "-mmu", "--mmproj-url", "--image", "--audio"}, "only text is supported"},
    {{"--lora", "--lora-scaled", "--control-vector", "--control-vector-scaled"},
     "adapters are not supported: merge them into the weights"},
    {{"-a", "--alias"}, "--served-model-name"},
    {{"-to", "--timeout"}, "--drain-timeout, or \"timeout\" of a request"},
    {{"-co", "--color"}, "colors are used on terminals only; NO_COLOR=1 disables them"},
    {{"--no-display-prompt", "--display-prompt", "--verbose-prompt"}, "use --echo to show the prompt"},
    {{"--no-warmup", "--warmup"}, "there is no warm-up: omit it"},
    {{"--jinja", "--no-jinja"}, "chat templates are always evaluated: omit it"},
    {{"--chat-template-file"}, "--chat-template FILE"},
    {{"--context-shift", "--no-context-shift", "--keep"}, "an answer ends at the context length: omit it"},
    {{"--log-disable"}, "--log-level error"},
    {{"-lv", "-v", "--verbose", "--verbosity"}, "--log-level debug, info, warning or error"},
    {{"-pg", "-npp", "-ntg"}, "-p and -n, lists of numbers"},
    {{"-npl"}, "a bench of several sequences: bench serving --offline"},
    {{"-o", "--output", "-oe"}, "--json FILE"},
    {{"-embd", "--embedding", "--embeddings"}, "attend embed, or serve --is-embedding"},
    {{"-rea", "--reasoning", "--reasoning-format"}, "--reasoning-parser"},
    {{"-gan", "--grp-attn-n", "-gaw", "--grp-attn-w"}, "config.json sets the scaling of positions"},
    {{"--rope-scaling", "--rope-scale", "--rope-freq-base", "--rope-freq-scale", "--yarn-orig-ctx"},
     "config.json sets the scaling of positions"},
};

}  // namespace

std::string_view suggest_for_llama_cpp_flag(std::string_view name) {
  if (name.empty()) return {};
  for (const Row& row : kRows)
    for (const std::string_view known : row.names)
      if (name == known) return row.instead;
  return {};
}

}  // namespace attend::cli
