// Command attend rerank: scores of documents for a query, as lines of JSON from the most to the least
// relevant.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>

#include "attend/base/error.h"
#include "attend/cli/commands/commands.h"
#include "attend/cli/help/command_help.h"
#include "attend/cli/options/engine_options.h"
#include "attend/cli/options/flags.h"
#include "attend/cli/progress_bar.h"
#include "attend/cli/prompts.h"
#include "attend/cli/report.h"
#include "attend/cli/standard_streams.h"
#include "attend/engine/embedder.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend::cli {
namespace {

struct RerankOptions {
  EmbedderConfig embedder;
  std::string query, documents_file;
  std::vector<std::string> documents;
  PairOptions pairs;
  EngineOptions engine;  // model, device, dtype, backend, threads
  int top_n = 0;
};

// Returns the documents of flags or of a file.
std::vector<std::string> gather_documents(const RerankOptions& options) {
  require(options.documents.empty() != options.documents_file.empty(),
          options.documents.empty() ? "no document: expected --document or --documents-file"
                                    : "--document and --documents-file: expected one of them");
  std::vector<std::string> documents = options.documents;
  if (!options.documents_file.empty())
    for (const Prompt& prompt : read_prompts_file(options.documents_file, {})) {
      require(!prompt.text.empty(), options.documents_file, ": document ", documents.size() + 1,
              ": expected a text");
      documents.push_back(prompt.text);
    }
  for (const std::string& text : documents)
    require(tokenizer::is_valid_utf8(text), "--document: expected UTF-8 text");
  return documents;
}

int run(const CLI::App& app, const RerankOptions& options) {
  const std::vector<std::string> documents = gather_documents(options);
  require(tokenizer::is_valid_utf8(options.query), "--query: expected UTF-8 text");
  const EngineConfig engine = to_config(app, options.engine);
  EmbedderConfig config = options.embedder;
  config.model_path = options.engine.model_path;
  config.device = engine.device;
  config.dtype = engine.dtype;
  config.backend_options = engine.backend_options;
  EngineBars bars;
  Embedder embedder(config, bars.progress().weights);
  bars.clear();
  print_start(embedder.info());
  PairOptions pairs = options.pairs;
  pairs.max_tokens = embedder.info().max_input_tokens;
  const std::vector<float> scores = embedder.score(std::span(&options.query, 1), documents, pairs);
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  if (options.top_n > 0) order.resize(std::min(order.size(), static_cast<size_t>(options.top_n)));
  std::string lines;
  for (const size_t index : order) {
    const nlohmann::ordered_json line = {
        {"index", index}, {"relevance_score", scores[index]}, {"document", documents[index]}};
    lines += line.dump() + "\n";
  }
  write_out(lines);
  return 0;
}

}  // namespace

void add_rerank(CLI::App& app, Command& selected) {
  auto options = std::make_shared<RerankOptions>();
  CLI::App* command = app.add_subcommand("rerank", "Score documents for a query");
  add_model_path(*command, ModelArgument::kRequired, options->engine.model_name, options->engine.model_path);
  set_group(*command, "Texts");
  add_text(*command, "--query,-q", options->query, "the query")->required();
  add_repeated(*command, "--document,-p", options->documents, "document; may be given several times");
  add_text(
      *command, "--documents-file", options->documents_file,
      "file with one document per line (- for standard input): plain text, or JSON objects with \"prompt\"");
  add_text(*command, "--instruction", options->pairs.instruction,
           "task, for models with a prompt; default: the prompt's own");
  add_number(*command, "--max-input-tokens", options->embedder.max_input_tokens,
             "maximum tokens of a query with a document; longer ones are truncated; default: the model's");
  set_group(*command, "Output");
  add_number(*command, "--top-n", options->top_n, "number of documents to print; default: all",
             Range<int>{.lowest = 1});
  set_group(*command, "Model");
  command->add_flag("--is-reranker", options->embedder.is_reranker,
                    "the model is a language model that answers yes or no: Qwen3-Reranker");
  add_text(*command, "--device", options->engine.device, "auto (a GPU if available), cpu, cuda or cuda:N");
  add_text(
      *command, "--dtype", options->engine.dtype,
      "dtype of activations: auto (the weights' dtype on a GPU), float32; on GPUs also float16 or bfloat16");
  add_text(*command, "--attention-backend", options->engine.attention_backend,
           "attention backend; default: chosen automatically");
  add_threads(*command, options->engine, "CPU threads; default: one per core that this process may use");
  set_usual_flags(*command, {"--model-path", "--query", "--document", "--documents-file", "--top-n",
                             "--is-reranker", "--device", "--threads"});
  command->callback(
      [command, options, &selected] { selected = [command, options] { return run(*command, *options); }; });
}

}  // namespace attend::cli
