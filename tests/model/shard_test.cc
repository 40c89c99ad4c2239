// Shards of weights: the parts that all ranks load from tiny checkpoints join to the whole weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "attend/kernels/gemm/weights.h"
#include "attend/model/loadable_model.h"
#include "attend/model/weights/quantized/quantized_tensor.h"
#include "tests/support/memory_checkpoint.h"
#include "tests/support/test_files.h"

namespace attend {
namespace {

using test::expect_error;
using testing::ElementsAre;

// Rows of a slot's weights in order; a vector has rows of one element.
using Rows = std::vector<std::vector<double>>;

Rows rows_of(std::span<const Weight> weights) {
  Rows rows;
  for (const Weight& weight : weights) {
    if (weight.data.rank == 2) {
      for (int64_t row = 0; row < weight.out_features(); ++row)
        rows.push_back(kernels::reference::weight_row(weight, row));
      continue;
    }
    visit_float_dtype(weight.data.dtype, [&]<class T>(TypeTag<T>) {
      for (const T element : weight.data.span<const T>()) rows.push_back({static_cast<float>(element)});
    });
  }
  return rows;
}

// Slots of a golden's model for one rank, and the weights loaded into them.
class RankWeights {
 public:
  RankWeights(const std::string& golden, int rank, int num_ranks,
              bool (*selects)(const WeightSlot&) = nullptr) {
    const auto directory = std::filesystem::path(ATTEND_SOURCE_DIR) / "tests/goldens" / golden;
    const auto checkpoint = open_checkpoint(directory);
    const ModelSpec spec = read_config(*checkpoint);
    auto files = checkpoint->open_tensors();
    named_ = make_named_slots(spec, {.rank = rank, .num_ranks = num_ranks}, files.get());
    for (WeightSlot& slot : named_.slots) {
      if (selects != nullptr && !selects(slot)) continue;
      slots_.push_back(slot);
      slots_.back().place = [this](std::span<const Weight> weights) {
        placed_.emplace_back(weights.begin(), weights.end());
      };
    }
    loaded_ = map_weights(slots_, spec.quantization, std::move(files), {});
  }
  RankWeights(const RankWeights&) = delete;

  const std::vector<WeightSlot>& slots() const { return slots_; }
  const std::vector<Weight>& weights(size_t slot) const { return placed_[slot]; }

 private:
  NamedSlots named_;
  std::vector<WeightSlot> slots_;
  std::vector<std::vector<Weight>> placed_;
  LoadedWeights loaded_;
};

// Joins the rows of all ranks: for each part of the slot before sharding, the rows of rank 0, 1, ... Ranks
// that share a head must have equal rows.
Rows join_rows(const std::vector<Rows>& ranks, const WeightSlot& whole_slot) {
  Rows joined;
  const size_t num_ranks = ranks.size();
  if (whole_slot.balanced) {
    for (const Rows& rank : ranks) joined.insert(joined.end(), rank.begin(), rank.end());
    return joined;
  }
  std::vector<size_t> next(num_ranks, 0);
  for (const WeightPart& part : whole_slot.parts) {
    const auto num_units = static_cast<size_t>(part.rows / part.unit_rows);
    const size_t num_copies = num_units < num_ranks ? num_ranks / num_units : 1;
    const size_t own = static_cast<size_t>(part.rows) * num_copies / num_ranks;
    for (size_t rank = 0; rank < num_ranks; ++rank)
      for (size_t i = 0; i < own; ++i) {
        const std::vector<double>& row = ranks[rank].at(next[rank]++);
        if (rank % num_copies == 0)
          joined.push_back(row);
        else
          EXPECT_EQ(row, joined[joined.size() - own + i]) << part.name << " on rank " << rank;
      }
  }
  for (size_t rank = 0; rank < num_ranks; ++rank) EXPECT_EQ(next[rank], ranks[rank].size());
  return joined;
}

Rows join_columns(const std::vector<Rows>& ranks) {
  Rows joined = ranks.front();
  for (size_t rank = 1; rank < ranks.size(); ++rank)
    for (size_t row = 0; row < joined.size(); ++row)
      joined[row].insert(joined[row].end(), ranks[rank].at(row).begin(), ranks[rank].at(row).end());
  return joined;
}

// Loads a golden on one rank and on several, and joins the weights of the ranks along each weight's axis.
void expect_ranks_join(const std::string& golden, int num_ranks,
                       bool (*selects)(const WeightSlot&) = nullptr) {
  SCOPED_TRACE(golden + " on " + std::to_string(num_ranks) + " ranks");
  const RankWeights whole(golden, 0, 1, selects);
  std::vector<std::unique_ptr<RankWeights>> ranks;
  for (int rank = 0; rank < num_ranks; ++rank)
    ranks.push_back(std::make_unique<RankWeights>(golden, rank, num_ranks, selects));
  const ModelSpec spec = read_config(std::filesystem::path(ATTEND_SOURCE_DIR) / "tests/goldens" / golden);
  std::vector<WeightSlot> whole_slots = make_model(spec, {}, !spec.tie_word_embeddings)->weight_slots();
  if (selects != nullptr) std::erase_if(whole_slots, [&](const WeightSlot& slot) { return !selects(slot); });
  ASSERT_LE(whole_slots.size(), whole.slots().size());
  std::map<ShardAxis, int> num_weights;
  for (size_t i = 0; i < whole.slots().size(); ++i) {
    const ShardAxis axis = whole.weights(i).front().shard;
    ++num_weights[axis];
    std::vector<Rows> parts;
    for (const auto& rank : ranks) {
      for (const Weight& weight : rank->weights(i)) {
        EXPECT_EQ(weight.shard, axis);
        EXPECT_EQ(weight.format, whole.weights(i).front().format);
        EXPECT_EQ(weight.data.dtype, whole.weights(i).front().data.dtype);
      }
      parts.push_back(rows_of(rank->weights(i)));
    }
    const Rows expected = rows_of(whole.weights(i));
    const std::string& name = whole.slots()[i].parts.front().name;
    if (axis == ShardAxis::kOutFeatures) {
      // Files with one tensor per expert use parts_per_expert.
      WeightSlot slot = whole_slots[i];
      if (whole.slots()[i].parts.size() == slot.parts_per_expert.size()) slot.parts = slot.parts_per_expert;
      EXPECT_EQ(join_rows(parts, slot), expected) << name;
      EXPECT_LT(parts[0].size(), expected.size()) << name;
    } else if (axis == ShardAxis::kInFeatures) {
      EXPECT_EQ(join_columns(parts), expected) << name;
      EXPECT_EQ(parts[0][0].size() * static_cast<size_t>(num_ranks), expected[0].size()) << name;
    } else {
      for (const Rows& part : parts) EXPECT_EQ(part, expected) << name;
    }
  }
  EXPECT_GT(num_weights[ShardAxis::kOutFeatures], 0);
  if (selects == nullptr) {
    EXPECT_GT(num_weights[ShardAxis::kInFeatures], 0);
    EXPECT_GT(num_weights[ShardAxis::kNone], 0);
  }
}

TEST(ShardedWeights, OfPlainCheckpointsJoinToTheWhole) {
  // Separate q, k and v; fused with heads for each rank, and with one head for both ranks; fused gate and up.
  for (const char* golden : {"qwen3-gqa2-hd128", "phi3-partial-window", "phi3-longrope",
                             "glm4-interleaved-rope", "llama-biases", "gemma2-bf16", "embed-bert-cls-tanh"})
    expect_ranks_join(golden, 2);
  expect_ranks_join("qwen3-gqa3-hd256", 3);
  // Every rank has the only head of K and V.
  for (const int num_ranks : {2, 3, 4, 8}) expect_ranks_join("llama-mqa24-hd16", num_ranks);
}

TEST(ShardedWeights, OfPlainExpertsJoinToTheWhole) {
  // One tensor per expert; one tensor for all, outputs last; the same with interleaved gate and up, biases
  // and sinks.
  for (const char* golden :
       {"mixtral-top2", "qwen3-vl-moe-fused", "llama4-interleaved", "gpt-oss-sinks-window", "glm4-moe-plain"})
    expect_ranks_join(golden, 2);
  expect_ranks_join("gpt-oss-sinks-window", 4);
}

TEST(ShardedWeights, OfLatentAttentionJoinToTheWhole) {
  expect_ranks_join("deepseek-v2-lite", 2);
  expect_ranks_join("deepseek-v3", 2);
}

TEST(ShardedWeights, OfEachQuantizedFormatJoinToTheWhole) {
  for (const char* golden :
       {"llama-fp8-tensor", "llama-fp8-channel", "qwen3-moe-fp8-blocks", "llama4-fp8-tensor",
        "llama4-fp8-by-expert", "llama-int8-channel", "qwen2-gptq-int8", "qwen3-moe-int8-packed",
        "llama-int4-packed", "llama-awq", "llama-gptq-v2", "llama-mxfp4"})
    expect_ranks_join(golden, 2);
}

// These have too few inputs to divide, or blocks of scales that do not match the heads.
TEST(ShardedWeights, OfQuantizedLayersJoinToTheWhole) {
  for (const char* golden : {"gpt-oss-mxfp4", "mixtral-awq", "qwen3-moe-fp8-int4", "qwen2-gptq-act-order",
                             "llama-int4-packed-zeros"})
    expect_ranks_join(golden, 2,
                      [](const WeightSlot& slot) { return slot.shard == ShardAxis::kOutFeatures; });
  expect_ranks_join("deepseek-v3-fp8-blocks", 2,
                    [](const WeightSlot& slot) { return slot.dequantize_on_load; });
}

// Concatenates the outputs of tensors: their rows, or their columns if outputs are columns.
Tensor join_outputs(const std::vector<Tensor>& tensors, bool outputs_are_columns) {
  std::string bytes;
  int64_t num_outs = 0;
  const TensorView first = tensors[0];
  const int64_t rows = outputs_are_columns ? first.shape[0] : 1;
  for (int64_t row = 0; row < rows; ++row)
    for (const Tensor& tensor : tensors) {
      const TensorView view = outputs_are_columns ? tensor.view()[row] : tensor.view();
      bytes.append(static_cast<const char*>(view.data), view.num_bytes());
      if (row == 0) num_outs += view.shape[0];
    }
  const Tensor copy = Tensor::empty({static_cast<int64_t>(bytes.size())}, DType::kU8);
  std::memcpy(copy.view().data, bytes.data(), bytes.size());
  std::vector<int64_t> shape = {first.shape.begin(), first.shape.begin() + first.rank};
  shape[outputs_are_columns ? 1 : 0] = num_outs;
  return Tensor(TensorView::contiguous(copy.view().data, first.dtype, shape), copy.storage());
}

// Fuses these projections of layer 0 into one tensor, as some checkpoints store them.
std::shared_ptr<const CheckpointTensors> fuse(const CheckpointTensors& files, const std::string& module,
                                              std::span<const WeightPart> parts) {
  std::map<std::string, Tensor> fused;
  const auto stem = [](const WeightPart& part) {
    return part.name.substr(0, part.name.size() - std::string_view("weight").size());
  };
  const std::string first = stem(parts[0]);
  for (const std::string& name : files.names()) {
    if (!name.starts_with(first)) continue;
    const std::string ending = name.substr(first.size());
    if (ending == "weight_shape" || ending == "bias") continue;
    std::vector<Tensor> tensors;
    for (const WeightPart& part : parts) tensors.push_back(files.tensor(stem(part) + ending));
    const bool outputs_are_columns = ending == "qweight" || ending == "qzeros" || ending == "scales";
    fused.emplace(module + ".fused." + ending,
                  ending.ends_with("g_idx") ? tensors[0] : join_outputs(tensors, outputs_are_columns));
  }
  return std::make_shared<test::MemoryTensors>(fused);
}

Rows load_rows(WeightSlot slot, const Quantization& quantization,
               std::shared_ptr<const CheckpointTensors> files, int rank, int num_ranks) {
  Rows rows;
  slot.place = [&](std::span<const Weight> weights) { rows = rows_of(weights); };
  std::vector<WeightSlot> slots = {shard(std::move(slot), rank, num_ranks)};
  find_quantized_tensors(slots, quantization, *files);
  map_weights(slots, quantization, std::move(files), {});
  return rows;
}

// For fused q, k, v and fused gate, up in each format, a rank has the same rows as from separate tensors.
TEST(ShardedWeights, OfAFusedTensorMatchSeparateTensors) {
  for (const std::string golden :
       {"qwen2-gqa7-hd64", "qwen3-gqa2-hd128", "llama-fp8-channel", "llama-int8-channel", "qwen2-gptq-int8",
        "llama-int4-packed", "llama-awq", "llama-gptq-v2", "llama-mxfp4"}) {
    SCOPED_TRACE(golden);
    const auto directory = std::filesystem::path(ATTEND_SOURCE_DIR) / "tests/goldens" / golden;
    const ModelSpec spec = read_config(directory);
    const auto files = open_checkpoint(directory)->open_tensors();
    size_t num_slots = 0;
    for (const WeightSlot& apart : make_model(spec, {}, !spec.tie_word_embeddings)->weight_slots()) {
      const bool is_in_layer = apart.parts[0].name.starts_with("model.layers.0.");
      if (!is_in_layer || apart.parts.size() == 1 || apart.columns == 0) continue;
      ++num_slots;
      const auto fused_files = fuse(*files, "layer", apart.parts);
      WeightSlot fused = apart;
      int64_t num_rows = 0;
      for (WeightPart& part : fused.parts) {
        part.name = "layer.fused.weight";
        part.first_row = num_rows;
        num_rows += part.rows;
      }
      for (WeightPart& part : fused.parts) part.tensor_rows = num_rows;
      for (const int num_ranks : {1, 2}) {
        if (fused.parts[0].rows / fused.parts[0].unit_rows % num_ranks != 0) continue;
        for (int rank = 0; rank < num_ranks; ++rank)
          EXPECT_EQ(load_rows(fused, spec.quantization, fused_files, rank, num_ranks),
                    load_rows(apart, spec.quantization, files, rank, num_ranks))
              << apart.parts[0].name << " on rank " << rank << " of " << num_ranks;
      }
    }
    EXPECT_EQ(num_slots, 2u);
  }
}

TEST(ShardedWeights, RejectPartsThatCannotBeDivided) {
  const auto expect_rejected = [](const char* golden, int num_ranks,
                                  std::initializer_list<std::string_view> text) {
    expect_error(ErrorCode::kUnsupported, text, [&] {
      for (int rank = 0; rank < num_ranks; ++rank) RankWeights(golden, rank, num_ranks);
    });
  };
  expect_rejected("qwen3-gqa3-hd256", 2, {"tp_size 2: Qwen3ForCausalLM has 3 query heads", "possible: 1, 3"});
  // 3 heads of 48 outputs in blocks of 128: the outputs of rank 2 span two blocks.
  expect_rejected(
      "qwen3-fp8-blocks", 3,
      {"q_proj.weight_scale_inv\": rank with outputs 96 to 144 of 144: expected multiples of 128"});
  expect_rejected("gpt-oss-mxfp4", 2,
                  {"down_proj_blocks\": rank with inputs 0 to 16 of 32: expected multiples of 32"});
  expect_rejected("qwen2-gptq-act-order", 2,
                  {"o_proj.g_idx", "inputs are reordered by group", "expected inputs in order"});
}

TEST(Shard, ReturnsTheRowsOfARankInEachPart) {
  const WeightSlot fused{.parts = {{.name = "qkv", .rows = 8, .tensor_rows = 12, .unit_rows = 2},
                                   {.name = "qkv",
                                    .rows = 2,
                                    .first_row = 8,
                                    .tensor_rows = 12,
                                    .unit_rows = 2,
                                    .is_replicated = true},
                                   {.name = "qkv",
                                    .rows = 2,
                                    .first_row = 10,
                                    .tensor_rows = 12,
                                    .unit_rows = 2,
                                    .is_replicated = true}},
                         .columns = 6,
                         .shard = ShardAxis::kOutFeatures};
  const auto ranges = [](const WeightSlot& slot) {
    std::vector<std::pair<int64_t, int64_t>> rows;
    for (const WeightPart& part : slot.parts) {
      EXPECT_EQ(part.tensor_rows, 12);
      rows.emplace_back(part.first_row, part.first_row + part.rows);
    }
    return rows;
  };
  using Range = std::pair<int64_t, int64_t>;
  EXPECT_THAT(ranges(shard(fused, 0, 1)), ElementsAre(Range(0, 12))) << "one rank reads the whole tensor";
  EXPECT_THAT(ranges(shard(fused, 0, 2)), ElementsAre(Range(0, 4), Range(8, 12)));
  EXPECT_THAT(ranges(shard(fused, 1, 2)), ElementsAre(Range(4, 12)));
  EXPECT_THAT(ranges(shard(fused, 2, 4)), ElementsAre(Range(4, 6), Range(8, 12)));
  expect_error(ErrorCode::kUnsupported, {"qkv: 8 rows in units of 2 on 3 ranks"},
               [&] { shard(fused, 0, 3); });
}

TEST(Shard, ReturnsTheColumnsOfARank) {
  const WeightSlot slot{
      .parts = {{"o", 3}}, .columns = 12, .unit_columns = 3, .shard = ShardAxis::kInFeatures};
  const WeightSlot second = shard(slot, 1, 2);
  EXPECT_EQ(second.columns, 6);
  EXPECT_EQ(second.first_column, 6);
  EXPECT_EQ(second.tensor_columns, 12);
  EXPECT_EQ(second.rows(), 3);
  expect_error(ErrorCode::kUnsupported, {"o: 12 columns in units of 3 on 3 ranks"},
               [&] { shard(slot, 0, 3); });
}

// Tensors in memory that record the fetched ranges.
class RecordingTensors : public test::MemoryTensors {
 public:
  using MemoryTensors::MemoryTensors;
  void fetch(std::string_view name, uint64_t begin, uint64_t end,
             const std::function<void(size_t bytes)>& fetched) const override {
    fetches.emplace_back(begin, end);
    MemoryTensors::fetch(name, begin, end, fetched);
  }
  mutable std::vector<std::pair<uint64_t, uint64_t>> fetches;
};

TEST(Shard, IsTheOnlyPartOfATensorThatARankReads) {
  constexpr int64_t kRows = 4, kColumns = 1 << 16;
  const auto files = std::make_shared<RecordingTensors>(
      std::map<std::string, Tensor>{{"w", Tensor::zeros({kRows, kColumns}, DType::kBF16)}});
  std::vector<Weight> placed;
  WeightSlot slot{.parts = {{"w", kRows}},
                  .columns = kColumns,
                  .shard = ShardAxis::kOutFeatures,
                  .place = [&](std::span<const Weight> weights) {
                    placed = {weights.begin(), weights.end()};
                  }};
  using Range = std::pair<uint64_t, uint64_t>;
  size_t total = 0;
  const auto load = [&](ShardAxis axis) {
    slot.shard = axis;
    files->fetches.clear();
    return map_weights(std::vector<WeightSlot>{shard(slot, 1, 2)}, {}, files,
                       [&](size_t, size_t all) { total = all; });
  };
  const auto* const bytes = static_cast<const std::byte*>(files->tensor("w").view().data);
  load(ShardAxis::kOutFeatures);
  EXPECT_THAT(files->fetches, ElementsAre(Range(1 << 18, 1 << 19)));
  EXPECT_EQ(total, size_t{1} << 18);
  EXPECT_EQ(placed.at(0).data.data, bytes + (1 << 18)) << "rows are a view, not a copy";
  // 64 KiB of each row of 128 KiB.
  const LoadedWeights columns = load(ShardAxis::kInFeatures);
  EXPECT_EQ(placed.at(0).data.to_string(), "bfloat16[4, 32768] on cpu");
  EXPECT_THAT(files->fetches, ElementsAre(Range(1 << 16, 1 << 19))) << "close ranges are merged";
  EXPECT_EQ(columns.num_bytes, size_t{1} << 18);
}

}  // namespace
}  // namespace attend
