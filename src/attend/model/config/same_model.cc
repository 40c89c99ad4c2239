#include "attend/model/config/same_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>
#include <tuple>
#include <type_traits>
#include <variant>
#include <vector>

#include "attend/checkpoint/json.h"

namespace attend {
namespace {

// Fields of structs without operator==. A structured binding names all of them, so that a new field does not
// compile until it is listed here.
auto fields(const kernels::QueryTemperature& x) {
  const auto& [a, b, c] = x;
  return std::tie(a, b, c);
}
auto fields(const kernels::RouterGroups& x) {
  const auto& [a, b] = x;
  return std::tie(a, b);
}
auto fields(const kernels::RouterRule& x) {
  const auto& [a, b, c, d, e, f, g, h] = x;
  return std::tie(a, b, c, d, e, f, g, h);
}
auto fields(const kernels::ExpertGate& x) {
  const auto& [a, b, c, d] = x;
  return std::tie(a, b, c, d);
}
auto fields(const RopeConfig& x) {
  const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r] = x;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r);
}
auto fields(const AttentionSpec& x) {
  const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, y, z, a1, b1] = x;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, y, z, a1, b1);
}
auto fields(const IndexerSpec& x) {
  const auto& [a, b, c, d, e, f] = x;
  return std::tie(a, b, c, d, e, f);
}
auto fields(const MlaSpec& x) {
  const auto& [a, b, c, d, e, f, g, h, i, j, k, l] = x;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l);
}
auto fields(const GatedDeltaSpec& x) {
  const auto& [a, b, c, d, e, f, g, h, i, j, k] = x;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k);
}
auto fields(const ShortConvSpec& x) {
  const auto& [a, b] = x;
  return std::tie(a, b);
}
auto fields(const Mamba2Spec& x) {
  const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o] = x;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o);
}
auto fields(const AttentionMamba2Spec& x) {
  const auto& [a, b] = x;
  return std::tie(a, b);
}
auto fields(const GatedMlpSpec& x) {
  const auto& [a, b, c, d, e, f] = x;
  return std::tie(a, b, c, d, e, f);
}
auto fields(const PlainMlpSpec& x) {
  const auto& [a, b, c] = x;
  return std::tie(a, b, c);
}
auto fields(const MoeMlpSpec& x) {
  const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q] = x;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q);
}
auto fields(const ParallelMoeSpec& x) {
  const auto& [a, b] = x;
  return std::tie(a, b);
}
auto fields(const NormPlacement& x) {
  const auto& [a, b, c, d, e] = x;
  return std::tie(a, b, c, d, e);
}
auto fields(const LearnedPositions& x) {
  const auto& [a, b, c, d] = x;
  return std::tie(a, b, c, d);
}
auto fields(const LayerEmbeddingSpec& x) {
  const auto& [a, b] = x;
  return std::tie(a, b);
}
auto fields(const LayerSpec& x) {
  const auto& [a, b, c] = x;
  return std::tie(a, b, c);
}
auto fields(const Quantization& x) {
  const auto& [a, method, b, c, d, e, f, g, h] = x;
  return std::tie(a, b, c, d, e, f, g, h);
}
auto fields(const ImageProcessorSpec& x) {
  const auto& [a, b, c, d, e, f, g, h, i, j, k, l] = x;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l);
}
auto fields(const VisionSpec& x) {
  const auto& [a, markers, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, y, z, a1, b1, c1,
               d1, e1, f1] = x;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, y, z, a1, b1, c1, d1,
                  e1, f1);
}
auto fields(const HeadLayer& x) {
  const auto& [a, b, c] = x;
  return std::tie(a, b, c);
}
auto fields(const ClassifierSpec& x) {
  const auto& [a, labels, b, c, d] = x;
  return std::tie(a, b, c, d);
}

template <class T>
bool is_equal(const T& a, const T& b);

template <class T>
bool is_equal(const std::optional<T>& a, const std::optional<T>& b) {
  return a.has_value() == b.has_value() && (!a || is_equal(*a, *b));
}
template <class T>
bool is_equal(const std::vector<T>& a, const std::vector<T>& b) {
  return std::ranges::equal(a, b, [](const T& x, const T& y) { return is_equal(x, y); });
}
template <class... Kinds>
bool is_equal(const std::variant<Kinds...>& a, const std::variant<Kinds...>& b) {
  return a.index() == b.index() &&
         std::visit([&](const auto& x) { return is_equal(x, std::get<std::decay_t<decltype(x)>>(b)); }, a);
}
template <class... Fields>
bool is_equal(const std::tuple<const Fields&...>& a, const std::tuple<const Fields&...>& b) {
  return [&]<size_t... I>(std::index_sequence<I...>) {
    return (is_equal(std::get<I>(a), std::get<I>(b)) && ...);
  }
  (std::index_sequence_for<Fields...>());
}
template <class T>
bool is_equal(const T& a, const T& b) {
  if constexpr (requires { fields(a); })
    return is_equal(fields(a), fields(b));
  else
    return a == b;
}

// Fields of config.json that do not change the computation of a model.
bool is_about_files(std::string_view key) {
  constexpr std::string_view kNames[] = {
      "_name_or_path", "transformers_version", "dtype",        "torch_dtype", "use_cache", "bos_token_id",
      "labels",        "eos_token_id",         "pad_token_id", "id2label",    "label2id"};
  return std::ranges::find(kNames, key) != std::end(kNames);
}

std::string find_difference(const Json& given, const Json& running) {
  for (const auto& [key, value] : given.items()) {
    const auto found = running.find(key);
    if (found == running.end() || is_about_files(key) || *found == value) continue;
    if (value.is_object() && found->is_object()) {
      const std::string inner = find_difference(value, *found);
      if (!inner.empty()) return key + "." + inner;
      continue;
    }
    const auto text = [](const Json& json) {
      const std::string all = json.dump();
      return all.size() > 60 ? all.substr(0, 60) + "..." : all;
    };
    return key + " " + text(value) + " instead of " + text(*found);
  }
  return {};
}

}  // namespace

bool is_same_model(const ModelSpec& x, const ModelSpec& y) {
  const auto compared = [](const ModelSpec& spec) {
    const auto& [architecture, hidden_size, vocab_size, max_positions, extended_positions, dual_chunk_limit,
                 norm_eps, norm_kind, norm_weights, norm_biases, zero_centered_norms, plain_final_norm,
                 post_norm_eps, embedding_norm, embedding_scale, final_norm, final_logit_scale,
                 final_logit_cap, layers, ropes, learned_positions, layer_embeddings, layer_scales,
                 classifier, draft, tie_word_embeddings, head_bias, transposed_linears, dtype, quantization,
                 eos_token_ids, bos_token_id, image_token_id, vision, no_vision] = spec;
    return std::tie(architecture, hidden_size, vocab_size, max_positions, dual_chunk_limit, norm_eps,
                    norm_kind, norm_weights, norm_biases, zero_centered_norms, plain_final_norm,
                    post_norm_eps, embedding_norm, embedding_scale, final_norm, final_logit_scale,
                    final_logit_cap, layers, ropes, learned_positions, layer_embeddings, layer_scales,
                    classifier, tie_word_embeddings, head_bias, transposed_linears, quantization,
                    image_token_id, vision);
  };
  return is_equal(compared(x), compared(y));
}

std::string find_different_field(const Checkpoint& checkpoint, const std::string& running_config) {
  return find_difference(checkpoint.config().value(), Json::parse(running_config));
}

}  // namespace attend
