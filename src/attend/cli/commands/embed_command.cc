// Command attend embed: embeddings of texts, as lines of JSON or as one NumPy array.

#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "attend/base/error.h"
#include "attend/base/log.h"
#include "attend/cli/commands/commands.h"
#include "attend/cli/help/command_help.h"
#include "attend/cli/options/engine_options.h"
#include "attend/cli/options/flags.h"
#include "attend/cli/progress_bar.h"
#include "attend/cli/prompts.h"
#include "attend/cli/report.h"
#include "attend/cli/standard_streams.h"
#include "attend/engine/embedder.h"
#include "attend/model/config/model_spec.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend::cli {
namespace {

// Returns a NumPy .npy file, format version 1.0, of a float32 array [rows.size(), row size]. All rows must
// have the same size. https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
std::string npy_bytes(const std::vector<std::vector<float>>& rows) {
  static_assert(std::endian::native == std::endian::little);
  constexpr size_t kAlignment = 64, kBeforeHeader = 10;
  const size_t columns = rows.empty() ? 0 : rows.front().size();
  std::string header =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows.size(), columns);
  // Pads with spaces and a newline, so that the data is aligned.
  header.append(kAlignment - 1 - (kBeforeHeader + header.size()) % kAlignment, ' ').append("\n");
  std::string bytes = "\x93NUMPY";
  bytes.append(
      {'\x01', '\0', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)});
  bytes += header;
  for (const std::vector<float>& row : rows) {
    ensure(row.size() == columns, "rows of ", columns, " and ", row.size(), " elements in one array");
    bytes.append(reinterpret_cast<const char*>(row.data()), row.size() * sizeof(float));
  }
  return bytes;
}

struct EmbedOptions {
  EmbedderConfig embedder;
  std::string pooling, format = "json", output, texts_file;
  std::vector<std::string> texts;
  EngineOptions engine;  // device, dtype, backend, page size, threads
  int dimensions = 0;
  bool normalize = false, no_normalize = false;
};

// Returns one text per vector, from flags or from a file.
std::vector<Prompt> gather_texts(const EmbedOptions& options) {
  require(options.texts.empty() != options.texts_file.empty(),
          options.texts.empty() ? "no text: expected --text or --texts-file"
                                : "--text and --texts-file: expected one of them");
  if (!options.texts_file.empty()) return read_prompts_file(options.texts_file, {});
  std::vector<Prompt> texts;
  for (const std::string& text : options.texts) {
    require(tokenizer::is_valid_utf8(text), "text ", texts.size() + 1, ": expected UTF-8 text");
    texts.push_back({text, {}, std::nullopt, {}});
  }
  return texts;
}

std::vector<std::vector<int32_t>> encode_all(const Embedder& embedder, const std::vector<Prompt>& texts) {
  std::vector<std::vector<int32_t>> inputs;
  size_t num_truncated = 0;
  for (const Prompt& text : texts) {
    try {
      if (!text.input_ids.empty()) {
        inputs.push_back(text.input_ids);
        continue;
      }
      Embedder::TruncatedText encoded = embedder.encode_truncated(text.text);
      num_truncated += encoded.is_truncated ? 1 : 0;
      inputs.push_back(std::move(encoded.ids));
    } catch (const Error& error) {
      fail(error.code(), "text ", inputs.size() + 1, ": ", error.what());
    }
  }
  if (num_truncated > 0)
    log_warning(num_truncated, " of ", texts.size(), " texts: truncated to ",
                embedder.info().max_input_tokens, " tokens, the maximum of this model");
  return inputs;
}

std::string json_lines(const std::vector<std::vector<int32_t>>& inputs,
                       const std::vector<std::vector<float>>& vectors) {
  std::string text;
  for (size_t i = 0; i < vectors.size(); ++i) {
    const nlohmann::ordered_json line = {
        {"index", i}, {"num_tokens", inputs[i].size()}, {"embedding", vectors[i]}};
    text += line.dump() + "\n";
  }
  return text;
}

// Destination of the vectors, opened before any computation.
class Output {
 public:
  explicit Output(const std::string& path) : path_(path) {
    if (path.empty()) return;
    file_.open(path, std::ios::binary);
    check();
  }
  void write(const std::string& bytes) {
    if (path_.empty()) return write_out(bytes);
    file_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file_.flush();
    check();
  }

 private:
  void check() const { require(file_.good(), "--output ", path_, ": cannot be written"); }

  std::string path_;
  std::ofstream file_;
};

int run(const CLI::App& app, const EmbedOptions& options) {
  require(options.format == "json" || options.format == "npy", "--format ", options.format,
          ": expected json or npy");
  require(!options.normalize || !options.no_normalize,
          "--normalize and --no-normalize: expected one of them");
  const std::vector<Prompt> texts = gather_texts(options);
  Output output(options.output);
  const EngineConfig engine = to_config(app, options.engine);
  EmbedderConfig config = options.embedder;
  config.model_path = options.engine.model_path;
  config.device = engine.device;
  config.dtype = engine.dtype;
  config.backend_options = engine.backend_options;
  if (!options.pooling.empty()) config.pooling = parse_pooling(options.pooling);
  if (options.normalize || options.no_normalize) config.normalize = options.normalize;
  if (const ModelSpec spec = read_config(config.model_path); spec.classifier)
    fail(ErrorCode::kUnsupported, spec.architecture,
         " returns scores, not vectors: use attend rerank or serve");
  EngineBars bars;
  Embedder embedder(config, bars.progress().weights);
  bars.clear();
  print_start(embedder.info());
  require(options.dimensions <= embedder.info().dimensions, "--dimensions ", options.dimensions, ": 1 to ",
          embedder.info().dimensions, ", the size of the vectors");
  const std::vector<std::vector<int32_t>> inputs = encode_all(embedder, texts);
  std::vector<std::vector<float>> vectors = embedder.embed(inputs);
  if (options.dimensions > 0)
    for (std::vector<float>& vector : vectors)
      vector = truncate_and_normalize(std::move(vector), options.dimensions, embedder.info().normalize);
  output.write(options.format == "npy" ? npy_bytes(vectors) : json_lines(inputs, vectors));
  return 0;
}

}  // namespace

void add_embed(CLI::App& app, Command& selected) {
  auto options = std::make_shared<EmbedOptions>();
  CLI::App* command = app.add_subcommand("embed", "Compute embeddings of texts");
  add_model_path(*command, ModelArgument::kRequired, options->engine.model_name, options->engine.model_path);
  set_group(*command, "Texts");
  add_repeated(*command, "--text,-p", options->texts, "text to embed; may be given several times");
  add_text(
      *command, "--texts-file", options->texts_file,
      "file with one text per line (- for standard input): plain text, or JSON objects with \"prompt\" or "
      "\"input_ids\"");
  set_group(*command, "Vectors");
  add_text(*command, "--pooling", options->pooling,
           "mean, cls or last; default: the model's sentence-transformers configuration");
  command->add_flag("--normalize", options->normalize,
                    "scale vectors to length 1; default: that configuration");
  command->add_flag("--no-normalize", options->no_normalize, "do not scale vectors");
  add_number(*command, "--max-input-tokens", options->embedder.max_input_tokens,
             "maximum tokens per text; default: that configuration");
  add_number(*command, "--dimensions", options->dimensions,
             "number of leading dimensions to keep; the vector is normalized again; default: all",
             Range<int>{.lowest = 1});
  set_group(*command, "Model");
  add_text(*command, "--device", options->engine.device, "auto (a GPU if available), cpu, cuda or cuda:N");
  add_text(
      *command, "--dtype", options->engine.dtype,
      "dtype of activations: auto (the weights' dtype on a GPU), float32; on GPUs also float16 or bfloat16");
  add_text(*command, "--attention-backend", options->engine.attention_backend,
           "attention backend; default: chosen automatically");
  add_number(*command, "--page-size,--block-size", options->engine.page_size,
             "tokens per KV page; default: chosen automatically");
  set_group(*command, "Output");
  add_text(*command, "--format", options->format, "json: one line per text; npy: one float32 array");
  add_text(*command, "--output,-o", options->output, "output file; default: standard output");
  set_group(*command, "Model");
  add_threads(*command, options->engine, "CPU threads; default: one per core that this process may use");
  set_usual_flags(
      *command, {"--model-path", "--text", "--texts-file", "--format", "--output", "--device", "--threads"});
  command->callback(
      [command, options, &selected] { selected = [command, options] { return run(*command, *options); }; });
}

}  // namespace attend::cli
