#include "attend/kernels/moe/cpu/experts.h"

#include <algorithm>
#include <sstream>

#include "attend/base/math.h"
#include "attend/base/parallel.h"
#include "attend/kernels/common/kernel_choices.h"
#include "attend/kernels/gemm/cpu/int8/int8_linear.h"
#include "attend/kernels/gemm/cpu/linear.h"
#include "attend/kernels/gemm/cpu/linear_kernel.h"
#include "attend/kernels/gemm/weights.h"
#include "attend/kernels/moe/scratch.h"
#include "attend/kernels/norm_rope/cpu/elementwise.h"
#include "attend/kernels/norm_rope/cpu/elementwise_kernels.h"

namespace attend::kernels::cpu {
namespace {

// Products with fewer multiplications run on the calling thread: waking the team would cost more than it
// saves.
constexpr int64_t kExpertsWorthATeam = 1 << 18;
// Minimum bytes of an expert's weights that a task reads, like in a linear layer.
constexpr int64_t kMinExpertTaskBytes = 128 << 10;
constexpr int64_t kExpertTasksPerThread = 4;

// Rows of one expert, few enough for one pass over its weights.
struct Segment {
  int32_t expert, begin, end;
};
static_assert(sizeof(Segment) == 3 * sizeof(int32_t));

// Sorts the pairs by expert, and the pairs of an expert by token.
void sort_pairs(const MoeExpertsArgs& args, const ExpertScratch& scratch) {
  const std::span<const int32_t> experts = args.experts.span<const int32_t>();
  const View<int32_t> offsets = scratch.offsets[0].span<int32_t>();
  std::ranges::fill(offsets, 0);
  for (const int32_t expert : experts) ++offsets[static_cast<size_t>(expert)];
  // Offsets are the ends of the experts' rows here; filling from the end turns them into the starts.
  for (size_t i = 1; i < offsets.size(); ++i) offsets[i] += offsets[i - 1];
  int32_t* const pair_row = scratch.pair_row.as<int32_t>();
  int32_t* const row_token = scratch.row_token.as<int32_t>();
  for (int64_t pair = std::ssize(experts) - 1; pair >= 0; --pair) {
    const int32_t row = --offsets[static_cast<size_t>(experts[static_cast<size_t>(pair)])];
    pair_row[pair] = row;
    row_token[row] = static_cast<int32_t>(pair / args.shape.top_k);
  }
}

// One of the two products of all experts.
class ExpertProduct {
 public:
  ExpertProduct(std::span<const Linear> linears, const MoeExpertsArgs& args, const TensorView& x,
                const TensorView& out)
      : linears_(linears), args_(args), x_(x), out_(out) {}

  // Multiplies experts with few rows, sharing the team among all of them: in a decode step, most experts have
  // one row. Rows are those that quantize() replaced, if `in_int8`.
  void multiply(std::span<const Segment> segments, void (*multiply_part)(const LinearPart& part),
                bool in_int8) const {
    const int64_t outs = outs_per_matrix();
    const int64_t out_bytes = weight_row_bytes(with_weight({}, linears_.front().weight));
    const int64_t num_matrices = std::ssize(segments) * matrices_per_expert();
    const int64_t fair = ceil_div(num_matrices * outs, kExpertTasksPerThread * num_threads());
    const int64_t worthwhile = ceil_div(kMinExpertTaskBytes, out_bytes);
    const int64_t task_outs = round_up(std::min(std::max(fair, worthwhile), outs), kSkinnyOuts);
    const int64_t tasks_per_matrix = ceil_div(outs, task_outs);
    int64_t num_rows = 0;
    for (const Segment& segment : segments) num_rows += segment.end - segment.begin;
    const auto run = [&](int64_t task, int) {
      const int64_t out = task % tasks_per_matrix * task_outs, matrix = task / tasks_per_matrix;
      const Segment& segment = segments[static_cast<size_t>(matrix / matrices_per_expert())];
      const int64_t part = matrix % matrices_per_expert();
      LinearPart task_part = with_weight({.x = x_[segment.begin].as<const float>(),
                                          .x_stride = x_.strides[0],
                                          .out = out_[segment.begin].as<float>() + part * outs + out,
                                          .out_stride = out_.strides[0],
                                          .num_rows = segment.end - segment.begin},
                                         expert_matrix(segment.expert, part));
      skip_outs(task_part, out);
      task_part.num_outs = std::min(task_outs, task_part.num_outs);
      if (in_int8) {
        task_part.int8_x = reinterpret_cast<const Int8Run*>(task_part.x);
        task_part.int8_stride_bytes = x_.strides[0] * static_cast<int64_t>(sizeof(float));
      }
      multiply_part(task_part);
    };
    const int64_t num_tasks = num_matrices * tasks_per_matrix;
    if (num_rows * outs * matrices_per_expert() * x_.shape[1] >= kExpertsWorthATeam)
      return parallel_for(num_tasks, run);
    for (int64_t task = 0; task < num_tasks; ++task) run(task, 0);
  }

  // Returns whether the rows of x may be quantized to int8 in place, in the same way for all experts.
  bool can_use_int8() const {
    const Weight& first = linears_.front().weight;
    const int64_t row_bytes = x_.shape[1] * static_cast<int64_t>(sizeof(float));
    return int8_rows_bytes(1, x_.shape[1]) <= static_cast<size_t>(row_bytes) &&
           row_bytes % static_cast<int64_t>(alignof(Int8Run)) == 0 &&
           std::ranges::all_of(linears_, [&](const Linear& linear) {
             return linear.weight.format == first.format && linear.weight.input_order.empty() &&
                    has_int8_products(linear.weight);
           });
  }
  void quantize(const Int8Linear& kernel) const {
    const bool splits_pairs = has_four_bits(linears_.front().weight.format);
    parallel_for_rows(x_.shape[0], x_.shape[1], [&](int64_t row) {
      auto* const x = x_[row].as<float>();
      kernel.quantize({.x = x, .in_features = x_.shape[1], .splits_pairs = splits_pairs},
                      reinterpret_cast<Int8Run*>(x));
    });
  }

  // Multiplies one expert with many rows.
  void multiply(const Segment& rows, Isa isa) const {
    const int64_t outs = outs_per_matrix();
    for (int64_t part = 0; part < matrices_per_expert(); ++part)
      linear({.x = x_.slice(0, rows.begin, rows.end),
              .weight = expert_matrix(rows.expert, part),
              .bias = {},
              .out = out_.slice(0, rows.begin, rows.end).slice(1, part * outs, (part + 1) * outs),
              .workspace = args_.workspace},
             isa, /*records=*/false);
  }

  // out += bias of each row's expert, if there are biases.
  void add_biases(const ExpertScratch& scratch) const {
    if (linears_.front().bias.empty()) return;
    const int64_t outs = outs_per_matrix();
    parallel_for_rows(out_.shape[0], out_.shape[1], [&](int64_t pair) {
      const int64_t expert = args_.experts.as<const int32_t>()[pair];
      float* const row = out_[scratch.pair_row.as<const int32_t>()[pair]].as<float>();
      for (int64_t part = 0; part < matrices_per_expert(); ++part) {
        const TensorView bias = expert_bias(expert, part);
        visit_float_dtype(bias.dtype, [&]<class T>(TypeTag<T>) {
          const T* const from = bias.as<const T>();
          for (int64_t i = 0; i < outs; ++i) row[part * outs + i] += static_cast<float>(from[i]);
        });
      }
    });
  }

 private:
  int64_t matrices_per_expert() const {
    return std::max<int64_t>(1, std::ssize(linears_) / args_.shape.num_experts);
  }
  int64_t outs_per_matrix() const { return out_.shape[1] / matrices_per_expert(); }
  Weight expert_matrix(int64_t expert, int64_t part) const {
    if (linears_.size() > 1)
      return linears_[static_cast<size_t>(expert * matrices_per_expert() + part)].weight;
    return linears_.front().weight.rows(expert * out_.shape[1], (expert + 1) * out_.shape[1]);
  }
  TensorView expert_bias(int64_t expert, int64_t part) const {
    if (linears_.size() > 1) return linears_[static_cast<size_t>(expert * matrices_per_expert() + part)].bias;
    return linears_.front().bias.slice(0, expert * out_.shape[1], (expert + 1) * out_.shape[1]);
  }

  std::span<const Linear> linears_;
  const MoeExpertsArgs& args_;
  const TensorView x_;    // [num_pairs, in_features]
  const TensorView out_;  // [num_pairs, out_features of an expert]
};

// Applies the activation to gate and up of each row, which are contiguous or alternate, and writes `out`, the
// first intermediate_size features of the row.
void activate(const ExpertGate& gate, const TensorView& gate_up, const TensorView& out, Isa isa) {
  if (gate.activation == ExpertActivation::kSilu) return silu_mul(gate_up, out, isa);
  if (gate.activation == ExpertActivation::kGeluTanh) return gelu_tanh_mul(gate_up, out, isa);
  if (gate.activation == ExpertActivation::kRelu2) return relu2(out, isa);
  constexpr int64_t kRun = 64;
  const ElementwiseKernels kernels = elementwise_kernels(isa);
  if (!gate.alternates)
    return parallel_for_rows(out.shape[0], gate_up.shape[1], [&](int64_t row) {
      const float* const gates = gate_up[row].as<const float>();
      kernels.clamped_swiglu(gates, gates + out.shape[1], out[row].as<float>(), gate.limit, gate.alpha,
                             out.shape[1]);
    });
  parallel_for_rows(out.shape[0], gate_up.shape[1], [&](int64_t row) {
    const float* const pairs = gate_up[row].as<const float>();
    float gates[kRun], ups[kRun];
    for (int64_t begin = 0; begin < out.shape[1]; begin += kRun) {
      const int64_t count = std::min(kRun, out.shape[1] - begin);
      for (int64_t i = 0; i < count; ++i) {
        gates[i] = pairs[2 * (begin + i)];
        ups[i] = pairs[2 * (begin + i) + 1];
      }
      // In place: all values at or before the written ones have been read.
      kernels.clamped_swiglu(gates, ups, out[row].as<float>() + begin, gate.limit, gate.alpha, count);
    }
  });
}

// Multiplies each row of x, gathered by pair, by the pair's weight.
void scale_rows(const MoeExpertsArgs& args, const ExpertScratch& scratch, Isa isa) {
  const ElementwiseKernels kernels = elementwise_kernels(isa);
  const float* const weights = args.weights.as<const float>();
  const int64_t hidden_size = args.shape.hidden_size;
  parallel_for_rows(scratch.rows.shape[0], hidden_size, [&](int64_t pair) {
    const int32_t row = scratch.pair_row.as<const int32_t>()[pair];
    kernels.scale(scratch.rows[row].as<float>(), weights[pair], hidden_size);
  });
}

// out = weighted sum of the token's rows, in the order of its experts.
void combine(const MoeExpertsArgs& args, const ExpertScratch& scratch) {
  const int64_t top_k = args.shape.top_k, hidden_size = args.shape.hidden_size;
  parallel_for_rows(args.x.shape[0], top_k * hidden_size, [&](int64_t token) {
    float* const out = args.out[token].as<float>();
    for (int64_t i = 0; i < top_k; ++i) {
      const float weight = args.weights_scale_input ? 1.0f : args.weights[token].as<const float>()[i];
      const int32_t row = scratch.pair_row.as<const int32_t>()[token * top_k + i];
      const float* const from = scratch.rows[row].as<const float>();
      for (int64_t j = 0; j < hidden_size; ++j) out[j] = (i == 0 ? 0.0f : out[j]) + weight * from[j];
    }
  });
}

void record_expert_kernels(const MoeExpertsArgs& args, Isa isa) {
  std::ostringstream text;
  text << args.x.shape[0] << " tokens x " << args.shape.top_k << " of " << args.shape.num_experts
       << " experts, " << args.shape.hidden_size << " -> " << args.shape.intermediate_size << ", weights in "
       << describe_elements(args.linears.down.front().weight);
  record_choice({.op = "moe_experts",
                 .problem = text.str(),
                 .kernel = std::string(to_string(isa)).append(" GEMM of rows gathered by expert"),
                 .why = "the best instruction set of this CPU"});
}

}  // namespace

void moe_experts(const MoeExpertsArgs& args, Isa isa) {
  require_isa(isa);
  if (records_choices()) record_expert_kernels(args, isa);
  ScratchPieces pieces(args.scratch);
  const ExpertScratch scratch(args.shape, args.x.shape[0], args.x.dtype, pieces);
  sort_pairs(args, scratch);
  gather_rows(args.x, scratch.row_token.span<const int32_t>(), scratch.rows, isa);
  if (args.weights_scale_input) scale_rows(args, scratch, isa);

  const int64_t intermediate_size = args.shape.intermediate_size;
  const TensorView inner = scratch.inner.slice(1, 0, args.gate.num_products() * intermediate_size);
  const TensorView activated = scratch.inner.slice(1, 0, intermediate_size);
  const ExpertProduct gate_up(args.linears.gate_up, args, scratch.rows, inner);
  const ExpertProduct down(args.linears.down, args, activated, scratch.rows);
  const bool in_int8 = args.rounds_x && gate_up.can_use_int8() && down.can_use_int8();

  // With batch_invariant or in int8, one kernel serves any number of rows.
  auto* const segments = static_cast<Segment*>(scratch.segments.data);
  const View<const int32_t> offsets = scratch.offsets[0].span<const int32_t>();
  const auto expert_rows = [&](int64_t expert) {
    return Segment{static_cast<int32_t>(expert), offsets[static_cast<size_t>(expert)],
                   offsets[static_cast<size_t>(expert) + 1]};
  };
  const auto few = [&](const Segment& rows) {
    return args.batch_invariant || in_int8 || rows.end - rows.begin <= kMaxSkinnyRows;
  };
  size_t num_segments = 0;
  for (int64_t expert = 0; expert < args.shape.num_experts; ++expert) {
    const Segment rows = expert_rows(expert);
    if (!few(rows)) continue;
    for (int32_t begin = rows.begin; begin < rows.end; begin += kMaxSkinnyRows)
      segments[num_segments++] = {rows.expert, begin, std::min(begin + kMaxSkinnyRows, rows.end)};
  }
  const Int8Linear int8 = int8_linear(isa);
  const auto multiply = [&](const ExpertProduct& product) {
    if (in_int8) product.quantize(int8);
    product.multiply({segments, num_segments}, in_int8 ? int8.multiply : linear_kernel(isa).skinny, in_int8);
    for (int64_t expert = 0; expert < args.shape.num_experts; ++expert)
      if (const Segment rows = expert_rows(expert); !few(rows)) product.multiply(rows, isa);
    product.add_biases(scratch);
  };
  multiply(gate_up);
  activate(args.gate, inner, activated, isa);
  multiply(down);
  combine(args, scratch);
}

}  // namespace attend::kernels::cpu
