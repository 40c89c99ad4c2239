#include "attend/model/adapters/model_adapter.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "attend/base/error.h"
#include "attend/kernels/common/fill_random.h"
#include "attend/model/adapters/peft_config.h"

namespace attend {
namespace {

constexpr std::string_view kPeftPrefix = "base_model.model.", kA = ".lora_A.weight", kB = ".lora_B.weight";

// Tensors of one module.
struct LowRankPair {
  std::string peft_name;  // of the module
  std::string a, b;       // tensor names
};
using Pairs = std::map<std::string, LowRankPair>;  // by the module's name in the checkpoint

// Refuses a tensor that is no A or B of a linear layer.
[[noreturn]] void refuse_tensor(const CheckpointTensors& tensors, const std::string& name) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  if (has("lora_embedding_"))
    fail(ErrorCode::kUnsupported, tensors.where(name), ": attend does not apply adapters of embeddings");
  if (has("lora_magnitude_vector"))
    fail(ErrorCode::kUnsupported, tensors.where(name), ": attend does not apply DoRA; expected plain LoRA");
  if (has(".lora_"))
    fail(ErrorCode::kUnsupported, tensors.where(name), ": expected tensors that end with ", kA, " or ", kB);
  fail(ErrorCode::kUnsupported, tensors.where(name),
       ": attend does not replace weights of the model (modules_to_save); expected tensors that end with ",
       kA, " or ", kB);
}

[[noreturn]] void refuse_module(const CheckpointTensors& tensors, const std::string& name,
                                const std::string& module, const AdapterLayers& layers) {
  if (layers.is_fixed(module) || module == "lm_head" || module.ends_with(".lm_head"))
    fail(ErrorCode::kUnsupported, tensors.where(name), ": attend does not apply adapters of ", module,
         "; it applies those of linear layers in attention, recurrent layers and dense MLPs");
  fail(ErrorCode::kCorruptFile, tensors.where(name), ": the model has no linear layer ", module,
       ": expected an adapter of this model");
}

Pairs find_pairs(const CheckpointTensors& tensors, const AdapterLayers& layers) {
  Pairs pairs;
  std::vector<std::string> names = tensors.names();
  std::ranges::sort(names);
  for (const std::string& name : names) {
    const bool is_a = name.ends_with(kA), is_b = name.ends_with(kB);
    if (!is_a && !is_b) refuse_tensor(tensors, name);
    std::string module = name.substr(0, name.size() - (is_a ? kA : kB).size());
    if (module.starts_with(kPeftPrefix)) module.erase(0, kPeftPrefix.size());
    const auto found = layers.find(module);
    if (!found) refuse_module(tensors, name, module, layers);
    LowRankPair& pair = pairs[*found];
    if (!pair.peft_name.empty() && pair.peft_name != module)
      fail(ErrorCode::kCorruptFile, tensors.where(name), ": belongs to the same module as tensors of ",
           pair.peft_name);
    pair.peft_name = module;
    (is_a ? pair.a : pair.b) = name;
  }
  return pairs;
}

// Names in the checkpoint and in PEFT have different prefixes and the same end.
struct NamePrefixes {
  std::string stored, peft;

  NamePrefixes(std::string_view stored_name, std::string_view peft_name) {
    while (!stored_name.empty() && !peft_name.empty() && stored_name.back() == peft_name.back()) {
      stored_name.remove_suffix(1);
      peft_name.remove_suffix(1);
    }
    stored = stored_name;
    peft = peft_name;
  }
  std::string to_peft(const std::string& name) const {
    return name.starts_with(stored) ? peft + name.substr(stored.size()) : name;
  }
};

void check_complete(const PeftConfig& config, const CheckpointTensors& tensors, const AdapterLayers& layers,
                    const Pairs& pairs) {
  if (pairs.empty()) fail(ErrorCode::kCorruptFile, tensors.path().string(), ": no tensors of an adapter");
  const NamePrefixes names(pairs.begin()->first, pairs.begin()->second.peft_name);
  for (const auto& [stored, pair] : pairs)
    if (pair.a.empty() || pair.b.empty())
      fail(ErrorCode::kCorruptFile, tensors.path().string(), ": no tensor \"", kPeftPrefix, pair.peft_name,
           pair.a.empty() ? kA : kB, "\", but \"", pair.a.empty() ? pair.b : pair.a, "\"");
  for (const auto& [stored, module] : layers.modules())
    if (const std::string peft_name = names.to_peft(stored);
        !pairs.contains(stored) && config.expects(peft_name))
      fail(ErrorCode::kCorruptFile, tensors.path().string(), ": no tensor \"", kPeftPrefix, peft_name, kA,
           "\", although target_modules of adapter_config.json selects this layer");
}

void check_shape(const CheckpointTensors& tensors, const std::string& name, int64_t rows, int64_t columns,
                 std::string_view axes) {
  const TensorEntry& entry = tensors.entry(name);
  const auto text = [&] {
    std::string shape;
    for (const int64_t extent : entry.shape) shape += (shape.empty() ? "" : ", ") + std::to_string(extent);
    return entry.dtype_name + "[" + shape + "]";
  };
  if (entry.shape != std::vector<int64_t>{rows, columns})
    fail(ErrorCode::kCorruptFile, tensors.where(name), ": ", text(), ": expected [", rows, ", ", columns,
         "], ", axes, ": an adapter of another model, or of another rank than adapter_config.json has");
  if (entry.dtype != DType::kF32 && entry.dtype != DType::kF16 && entry.dtype != DType::kBF16)
    fail(ErrorCode::kUnsupported, tensors.where(name), ": ", text(), ": expected F32, F16 or BF16");
}

template <class Element>
void copy_transposed(const TensorView& from, const TensorView& to, int64_t first_row) {
  for (int64_t row = 0; row < from.shape[0]; ++row)
    for (int64_t column = 0; column < from.shape[1]; ++column)
      static_cast<Element*>(to.data)[column * to.strides[0] + first_row + row] =
          static_cast<const Element*>(from.data)[row * from.strides[0] + column];
}

// to[:, first_row + i] = from[i]
void copy_transposed_rows(const TensorView& from, const TensorView& to, int64_t first_row = 0) {
  if (size_of(from.dtype) == sizeof(uint32_t))
    copy_transposed<uint32_t>(from, to, first_row);
  else
    copy_transposed<uint16_t>(from, to, first_row);
}

// Returns the term of a pair for a part of a layer, in `tensors`.
kernels::LowRankTerm make_term(const AdapterLayer& layer, const AdapterPart& part, const TensorView& a,
                               const TensorView& b, float scale, std::vector<Tensor>& tensors) {
  const int64_t rank = a.shape[0];
  const Tensor own_a = Tensor::empty({layer.num_columns, rank}, a.dtype);
  copy_transposed_rows(a.slice(1, layer.first_column, layer.first_column + layer.num_columns), own_a);
  const Tensor own_b = Tensor::empty({rank, part.num_outputs()}, b.dtype);
  int64_t first = 0;
  for (const AdapterPart::Rows& rows : part.rows) {
    copy_transposed_rows(b.slice(0, rows.first, rows.first + rows.count), own_b, first);
    first += rows.count;
  }
  tensors.insert(tensors.end(), {own_a, own_b});
  return {.a = own_a, .b = own_b, .scale = scale, .first_out = part.first_out};
}

// Adds the adapter of a rank, with terms in `tensors`. A GPU gets a copy, and frees these.
void add_rank(kernels::LowRankAdapter own, std::vector<Tensor> tensors, const AdapterLayers& layers,
              ModelAdapter& adapter) {
  if (layers.device().type == DeviceType::kCuda) {
    kernels::DeviceAdapter copy = kernels::copy_to(own, layers.dtype(), layers.device());
    own = std::move(copy.adapter);
    tensors = {std::move(copy.memory)};
  }
  for (const Tensor& tensor : tensors) adapter.num_bytes += tensor.view().num_bytes();
  adapter.tensors.insert(adapter.tensors.end(), tensors.begin(), tensors.end());
  adapter.ranks.push_back(std::move(own));
}

}  // namespace

ModelAdapter load_adapter(const AdapterFolder& folder, std::span<const AdapterLayers* const> ranks) {
  const PeftConfig config = read_peft_config(folder);
  const CheckpointTensors& tensors = folder.tensors();
  const AdapterLayers& model = *ranks.front();
  const Pairs pairs = find_pairs(tensors, model);
  check_complete(config, tensors, model, pairs);
  std::map<std::string, float> scales;
  for (const auto& [name, pair] : pairs) {
    const AdapterLayers::Module& module = model.modules().at(name);
    const int rank = config.rank_of(pair.peft_name);
    check_shape(tensors, pair.a, rank, module.in_features, "rank and inputs of the layer");
    check_shape(tensors, pair.b, module.out_features, rank, "outputs of the layer and rank");
    scales[name] = static_cast<float>(config.scale_of(pair.peft_name));
  }
  ModelAdapter adapter;
  adapter.num_modules = static_cast<int>(pairs.size());
  for (const AdapterLayers* const layers : ranks) {
    kernels::LowRankAdapter own;
    std::vector<Tensor> memory;
    for (const AdapterLayer& layer : layers->layers()) {
      std::vector<kernels::LowRankTerm>& terms = own.layers.emplace_back();
      int64_t rank = 0;
      for (const AdapterPart& part : layer.parts) {
        const auto pair = pairs.find(part.module);
        if (pair == pairs.end()) continue;
        const Tensor a = tensors.tensor(pair->second.a), b = tensors.tensor(pair->second.b);
        terms.push_back(make_term(layer, part, a, b, scales.at(part.module), memory));
        rank += terms.back().rank();
      }
      own.max_rank = std::max(own.max_rank, rank);
    }
    add_rank(std::move(own), std::move(memory), *layers, adapter);
  }
  tensors.check_unchanged();
  return adapter;
}

ModelAdapter make_dummy_adapter(int rank, uint64_t seed, std::span<const AdapterLayers* const> ranks) {
  require(rank >= 1 && rank <= kernels::kMaxAdapterRank, "rank ", rank, " of an adapter: 1 to ",
          kernels::kMaxAdapterRank);
  ModelAdapter adapter;
  Stream host;
  for (const AdapterLayers* const layers : ranks) {
    kernels::LowRankAdapter own;
    std::vector<Tensor> memory;
    const auto random = [&](int64_t rows, int64_t columns) {
      const Tensor tensor = Tensor::empty({rows, columns}, DType::kBF16);
      // Changes of a layer's outputs are small for any number of inputs.
      kernels::fill_random(
          tensor, {.first = kernels::mixed(seed + memory.size()), .mean = 0.0f, .deviation = 0.01f}, host);
      memory.push_back(tensor);
      return tensor.view();
    };
    for (const AdapterLayer& layer : layers->layers()) {
      std::vector<kernels::LowRankTerm>& terms = own.layers.emplace_back();
      for (const AdapterPart& part : layer.parts) {
        const TensorView a = random(layer.num_columns, rank), b = random(rank, part.num_outputs());
        terms.push_back({.a = a, .b = b, .scale = 1.0f, .first_out = part.first_out});
      }
      own.max_rank = std::max(own.max_rank, std::ssize(terms) * rank);
    }
    adapter.num_modules = static_cast<int>(layers->modules().size());
    add_rank(std::move(own), std::move(memory), *layers, adapter);
  }
  return adapter;
}

}  // namespace attend
