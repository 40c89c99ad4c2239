// Command attend backends: lists the backends, their capabilities, and the choice for a model.

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "attend/attention/unsupported_backends.h"
#include "attend/backends/linear_backends.h"
#include "attend/backends/table.h"
#include "attend/base/error.h"
#include "attend/cli/commands/commands.h"
#include "attend/cli/commands/model_table.h"
#include "attend/cli/commands/support_matrix.h"
#include "attend/cli/help/command_help.h"
#include "attend/cli/options/engine_options.h"
#include "attend/cli/options/flags.h"
#include "attend/cli/report.h"
#include "attend/engine/resolve/resolve_engine.h"
#include "attend/model/config/model_spec.h"
#include "attend/serve/formats/choose_format.h"
#include "attend/text/chat_template/chat_template.h"

namespace attend::cli {
namespace {

std::string capabilities() {
  std::string lines;
  for (const BackendEntry& entry : backend_table())
    lines += fmt::format("{:<14} {}\n", entry.name, describe(entry));
  lines += "Linear backends, which recurrent layers of hybrid models use:\n";
  for (const LinearBackend& linear : kLinearBackends)
    lines += fmt::format("{:<14} {}\n", linear.name, linear.summary);
  lines += "Backends of SGLang that attend does not have:\n";
  for (const UnsupportedBackend& foreign : unsupported_backends())
    lines += fmt::format("{:<21} {}\n", foreign.name, foreign.why);
  return lines;
}

// Returns the reasons against a backend. A reason of both phases is listed once, without the phase.
std::vector<std::string> rejection_reasons(const BackendEntry& entry,
                                           const std::vector<Rejection>& rejected) {
  constexpr std::string_view kPrefill = " (prefill)", kDecode = " (decode)";
  std::vector<std::string> reasons;
  for (const Rejection& rejection : rejected) {
    if (rejection.backend != entry.name) continue;
    for (const std::string& reason : rejection.reasons) {
      std::string same;
      if (reason.ends_with(kDecode)) same = reason.substr(0, reason.size() - kDecode.size());
      const auto duplicate = std::find(reasons.begin(), reasons.end(), same + std::string(kPrefill));
      if (duplicate == reasons.end())
        reasons.push_back(reason);
      else
        *duplicate = same;
    }
  }
  return reasons;
}

// Returns the lines that a server logs at its start: the formats of calls and reasoning, and why.
std::string formats_lines(const Checkpoint& checkpoint) {
  try {
    serve::ModelFormats formats = serve::choose_formats("", "", ChatTemplate::find(checkpoint));
    // Most models need no vocabulary, which takes long to read.
    if (!formats.reasoning.format)
      if (const auto tokenizer = Tokenizer::find(checkpoint))
        serve::add_formats_by_vocabulary("", *tokenizer, formats);
    return formats.tools_line() + "\n" + formats.reasoning_line() + "\n";
  } catch (const Error& error) {
    return fmt::format("tool calls and reasoning: unknown ({})\n", error.what());
  }
}

// Returns, for example, "8 heads of 128", or "1 head of 192/128".
std::string heads(const CacheSpec& cache) {
  const std::string dims = cache.head_dim_qk == cache.head_dim_v
                               ? std::to_string(cache.head_dim_qk)
                               : fmt::format("{}/{}", cache.head_dim_qk, cache.head_dim_v);
  return fmt::format("{} head{} of {}", cache.num_kv_heads, cache.num_kv_heads == 1 ? "" : "s", dims);
}

// Returns a line per cache group: its layers, and the data that they keep.
std::string cache_lines(const ModelSpec& model) {
  std::string lines;
  const auto add = [&](size_t num_layers, const std::string& text) {
    lines += fmt::format("cache: {} layer{}: {}\n", num_layers, num_layers == 1 ? "" : "s", text);
  };
  for (const CacheSpec& cache : model.caches()) {
    const size_t num_layers = cache.layers.size();
    switch (cache.kind) {
      case CacheKind::kFull:
        add(num_layers, "K and V of all tokens, " + heads(cache));
        break;
      case CacheKind::kWindow:
        add(num_layers,
            fmt::format("K and V of the last {} tokens, {}", cache.window_left + 1, heads(cache)));
        break;
      case CacheKind::kLatent:
        add(num_layers, cache.index_dim == 0
                            ? fmt::format("a latent row of {} per token", cache.head_dim_qk)
                            : fmt::format("a latent row of {} and an index key of {} per token",
                                          cache.head_dim_qk, cache.index_dim));
        break;
      case CacheKind::kState:
        add(num_layers, "a recurrent state per request");
        break;
    }
  }
  const auto shares = [](const LayerSpec& layer) {
    const auto* const attention = std::get_if<AttentionSpec>(&layer.mixer);
    return attention != nullptr && attention->kv_layer >= 0;
  };
  if (const auto num_shared = std::ranges::count_if(model.layers, shares); num_shared > 0)
    add(static_cast<size_t>(num_shared), "none, attends to K and V of another layer");
  return lines;
}

// Returns one line per backend: the phases that it is chosen for, or every reason against it.
std::string choice(const EngineConfig& config) {
  const std::shared_ptr<const Checkpoint> checkpoint = open_checkpoint(config.model_path);
  const ModelSpec model = read_config(*checkpoint);
  const EngineInfo engine = resolve_engine(config, model, checkpoint).info;
  const ExecutorInfo& info = engine.target();
  const Resolution& resolution = info.resolution;
  std::string lines =
      fmt::format("{} at {}: {}\n", model.architecture, config.model_path.string(), resolution.why);
  if (const std::string weights = weights_line(info, engine.deterministic); !weights.empty())
    lines += weights + "\n";
  lines += cache_lines(model);
  if (info.state_bytes > 0) {
    const LinearBackend& linear = linear_backend(info.device.type);
    lines += fmt::format(
        "hybrid-linear pairing: attention layers by {}/{} (prefill/decode), recurrent layers by {} ({})\n",
        resolution.prefill->name, resolution.decode->name, linear.name, linear.summary);
  }
  for (const BackendEntry& entry : backend_table()) {
    std::string verdict;
    const auto add = [&](const std::string& text) { verdict += (verdict.empty() ? "" : "; ") + text; };
    if (&entry == resolution.prefill) add("chosen for prefill");
    if (&entry == resolution.decode) add("chosen for decode");
    for (const std::string& reason : rejection_reasons(entry, resolution.rejected)) add(reason);
    if (verdict.empty()) verdict = "supported; not preferred";
    lines += fmt::format("{:<14} {}\n", entry.name, verdict);
  }
  lines += formats_lines(*checkpoint);
  if (config.device.type == DeviceType::kCpu)
    lines +=
        "A backend that is rejected only for the hardware can be selected: --attention-backend NAME runs its "
        "contract "
        "on the CPU kernels.\n";
  return lines;
}

// Throws Error(kInvalidArgument) for a flag that would not change the output.
void reject_flags_except(const CLI::App& command, const std::string& allowed, const char* why) {
  for (const CLI::Option* option : command.get_options())
    require(option->count() == 0 || option->get_name() == allowed, option->get_name(), ": ", why);
}

}  // namespace

void add_backends(CLI::App& app, Command& selected) {
  struct BackendsOptions {
    EngineOptions engine;
    bool markdown = false;
    std::string models;
  };
  auto options = std::make_shared<BackendsOptions>();
  CLI::App* command = app.add_subcommand("backends", "List attention backends and the choice for a model");
  add_choice_options(*command, options->engine, ModelArgument::kOptional);
  add_size_options(*command, options->engine);  // the engine's rejections are part of the output
  set_group(*command, kOtherFlags);
  command->add_flag("--markdown", options->markdown, "print the support matrix of docs/ instead");
  add_text(*command, "--models", options->models,
           "print the table of docs/models.md instead, with the models in this folder as examples");
  set_usual_flags(*command, {"--model-path", "--device", "--attention-backend"});
  command->callback([command, options, &selected] {
    selected = [command, options] {
      if (options->markdown) {
        reject_flags_except(*command, "--markdown", "the support matrix covers every model and device");
        fmt::print("{}", support_matrix(backend_table()));
        return 0;
      }
      if (!options->models.empty()) {
        reject_flags_except(*command, "--models", "the table covers every architecture");
        fmt::print("{}", model_table(options->models));
        return 0;
      }
      if (options->engine.model_path.empty()) reject_flags_except(*command, "", "requires --model-path");
      const EngineConfig config = to_config(*command, options->engine);
      fmt::print("{}", options->engine.model_path.empty() ? capabilities() : choice(config));
      return 0;
    };
  });
}

}  // namespace attend::cli
