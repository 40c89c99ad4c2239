// Bindings of the embedder for attend/embedder.py: vectors of texts, and scores of pairs.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <memory>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attend/engine/embedder.h"
#include "attend/engine/output/scoring.h"
#include "attend/model/config/model_spec.h"
#include "engine/read_options.h"
#include "interruptible_wait.h"
#include "module.h"

namespace attend::python {
namespace {

using Vectors = std::vector<std::vector<float>>;
using Tokens = std::vector<int32_t>;

// Embedder that may be closed while other threads use it.
class EmbedderHandle {
 public:
  explicit EmbedderHandle(nb::dict options) {
    const EmbedderConfig config = embedder_config(options);
    embedder_ = load_interruptibly(
        [&](auto& check) { return std::make_unique<Embedder>(config, [&](size_t, size_t) { check(); }); });
  }
  ~EmbedderHandle() {
    const ReleasedGil others_run;
    close();
  }

  // Calls `use` without the GIL; the embedder is not closed during the call. Throws Error(kUnsupported) if it
  // was closed, and in the child of a fork, which has none of its threads.
  template <class Use>
  auto with(Use use) const {
    if (getpid() != pid_)
      fail(ErrorCode::kUnsupported, "the model belongs to process ", pid_, ", and this is process ", getpid(),
           ", made by a fork: create one in each process");
    const ReleasedGil others_run;
    const std::shared_lock lock(mutex_);
    if (!embedder_) fail(ErrorCode::kUnsupported, "the model was closed");
    return use(*embedder_);
  }
  void close() {
    if (getpid() != pid_) return (void)embedder_.release();
    const std::unique_lock lock(mutex_);
    embedder_.reset();
  }

 private:
  const pid_t pid_ = getpid();
  mutable std::shared_mutex mutex_;
  std::unique_ptr<Embedder> embedder_;
};

// Returns the ids of a text; a longer one than `max_tokens` is truncated at its end. 0: an error if the model
// does not support its length.
Tokens encode(Embedder& embedder, const std::string& text, int max_tokens) {
  if (max_tokens == 0) return embedder.encode(text);
  Tokens ids = embedder.encode_truncated(text).ids;
  if (std::ssize(ids) > max_tokens)
    ids =
        embedder.tokenizer()->encode_truncated(text, static_cast<size_t>(max_tokens), TruncationSide::kRight);
  return ids;
}

// Returns the scores of pairs, and the ids of each pair.
std::pair<std::vector<float>, std::vector<Tokens>> score(Embedder& embedder,
                                                         const std::vector<std::string>& firsts,
                                                         const std::vector<std::string>& seconds,
                                                         const std::string& instruction, int max_tokens,
                                                         bool activates) {
  if (embedder.tokenizer() == nullptr)
    fail(ErrorCode::kUnsupported, "score: the model directory has no tokenizer.json");
  const ScoreInputs inputs =
      encode_pairs(embedder.info(), *embedder.tokenizer(), firsts, seconds,
                   {.max_tokens = max_tokens, .max_second_tokens = 0, .instruction = instruction});
  std::vector<Tokens> ids;
  for (const auto& [first, second] : inputs.pairs) {
    ids.push_back(inputs.ids[first]);
    if (second != first)
      ids.back().insert(ids.back().end(), inputs.ids[second].begin(), inputs.ids[second].end());
  }
  return {pair_scores(embedder.info(), inputs, embedder.embed(inputs.ids, inputs.token_types), activates),
          std::move(ids)};
}

nb::dict make_info(const EmbedderHandle& handle) {
  const EmbedderInfo info = handle.with([](Embedder& embedder) { return embedder.info(); });
  nb::dict record;
  record["model"] = info.model;
  record["dimensions"] = info.dimensions;
  record["max_input_tokens"] = info.max_input_tokens;
  record["max_step_inputs"] = info.max_step_inputs;
  record["pooling"] = std::string(to_string(info.pooling));
  record["normalize"] = info.normalize;
  record["labels"] = info.classifier ? nb::cast(info.classifier->labels) : nb::none();
  record["weight_bytes"] = info.weight_bytes;
  return record;
}

}  // namespace

void bind_embedder(Module& module) {
  using nb::arg;
  Class<EmbedderHandle>(module, "EmbedderHandle", "A model that returns vectors or scores.")
      .def(nb::init<nb::dict>(), arg("options"))
      .def("close",
           [](EmbedderHandle& handle) {
             const ReleasedGil others_run;
             handle.close();
           })
      .def("info", &make_info)
      .def(
          "encode",
          [](const EmbedderHandle& handle, const std::string& text, int max_tokens) {
            return handle.with([&](Embedder& embedder) { return encode(embedder, text, max_tokens); });
          },
          arg("text"), arg("max_tokens"))
      .def(
          "check",
          [](const EmbedderHandle& handle, const std::vector<Tokens>& inputs) {
            handle.with([&](Embedder& embedder) { embedder.check(inputs); });
          },
          arg("inputs"))
      .def(
          "embed",
          [](const EmbedderHandle& handle, const std::vector<Tokens>& inputs) {
            return handle.with([&](Embedder& embedder) { return embedder.embed(inputs); });
          },
          arg("inputs"))
      .def(
          "score",
          [](const EmbedderHandle& handle, const std::vector<std::string>& firsts,
             const std::vector<std::string>& seconds, const std::string& instruction, int max_tokens,
             bool activates) {
            return handle.with([&](Embedder& embedder) {
              return score(embedder, firsts, seconds, instruction, max_tokens, activates);
            });
          },
          arg("firsts"), arg("seconds"), arg("instruction"), arg("max_tokens"), arg("activates"))
      .def(
          "activate",
          [](const EmbedderHandle& handle, std::vector<float> logits) {
            return handle.with([&](Embedder& embedder) {
              const auto& classifier = embedder.info().classifier;
              return classifier ? activate(std::move(logits), classifier->activation) : logits;
            });
          },
          arg("logits"));
  module.def(
      "truncate_and_normalize",
      [](std::vector<float> vector, int dimensions, bool normalize) {
        return truncate_and_normalize(std::move(vector), dimensions, normalize);
      },
      arg("vector"), arg("dimensions"), arg("normalize"));
  module.def(
      "generates", [](const std::filesystem::path& directory) { return read_config(directory).generates(); },
      arg("directory"));
}

}  // namespace attend::python
