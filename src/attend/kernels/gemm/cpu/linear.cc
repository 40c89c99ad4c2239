#include "attend/kernels/gemm/cpu/linear.h"

#include <algorithm>
#include <span>
#include <sstream>
#include <vector>

#include "attend/base/math.h"
#include "attend/base/parallel.h"
#include "attend/kernels/common/kernel_choices.h"
#include "attend/kernels/gemm/cpu/int8/int8_linear.h"
#include "attend/kernels/gemm/cpu/linear_kernel.h"
#include "attend/kernels/gemm/cpu/linear_pairs.h"
#include "attend/kernels/gemm/cpu/linear_tiles.h"
#include "attend/kernels/gemm/weights.h"

namespace attend::kernels::cpu {
namespace {

// Products with fewer multiplications run on the calling thread: waking the team would cost more than it
// saves.
constexpr int64_t kMinElementsForTeam = 1 << 18;
// Minimum weight bytes that a task with few rows reads, so that hardware prefetching and page accesses are
// efficient.
constexpr int64_t kMinTaskBytes = 128 << 10, kMinStreamBytes = 16 << 10;
constexpr int64_t kTasksPerThread = 4;
// Minimum rows per task when there are many rows, if the batch has enough of them.
constexpr int64_t kMinRowsToPackFor = 256;

LinearPart whole(const LinearArgs& args) {
  return with_weight({.x = args.x.as<const float>(),
                      .x_stride = args.x.strides[0],
                      .bias = args.bias.data,
                      .bias_dtype = args.bias.dtype,
                      .out = args.out.as<float>(),
                      .out_stride = args.out.strides[0],
                      .num_rows = args.x.shape[0]},
                     args.weight);
}

const void* advance(const void* data, DType dtype, int64_t elements) {
  return static_cast<const char*>(data) + elements * static_cast<int64_t>(size_of(dtype));
}

LinearPart make_part(LinearPart part, int64_t row, int64_t num_rows, int64_t out, int64_t num_outs) {
  part.x += row * part.x_stride;
  if (part.int8_x != nullptr) part.int8_x = int8_row(part, row);
  skip_outs(part, out);
  if (part.bias != nullptr) part.bias = advance(part.bias, part.bias_dtype, out);
  part.out += row * part.out_stride + out;
  part.num_rows = std::min(num_rows, part.num_rows - row);
  part.num_outs = std::min(num_outs, part.num_outs);
  return part;
}

// Rows that are quantized to int8 together, and rows of a task: they stay in the L2 cache.
constexpr int64_t kMaxInt8Rows = 512, kInt8TaskRows = 64;

int64_t weight_bytes(const LinearPart& part) { return part.num_outs * weight_row_bytes(part); }

// Rows and output features per task. Results do not depend on the partition.
struct Tasks {
  int64_t num_rows, num_outs;
};

// Tasks of a job that streams total_bytes of weights. If there are too few bytes for efficient tasks, every
// thread has one.
Tasks skinny_tasks(const LinearPart& part, int64_t total_bytes, int64_t max_rows = kMaxSkinnyRows) {
  const int64_t fair = ceil_div(total_bytes, kTasksPerThread * num_threads());
  const int64_t worthwhile = std::min(kMinTaskBytes, ceil_div(total_bytes, int64_t{num_threads()}));
  const int64_t task_bytes = std::max({fair, worthwhile, kMinStreamBytes});
  const int64_t num_outs = ceil_div(task_bytes, std::max<int64_t>(weight_row_bytes(part), 1));
  return {.num_rows = std::min(part.num_rows, max_rows), .num_outs = round_up(num_outs, kSkinnyOuts)};
}

Tasks packed_tasks(const LinearPart& part, const LinearKernel& kernel) {
  Tasks tasks = {.num_rows = kernel.max_packed_rows, .num_outs = kernel.max_packed_outs};
  const int64_t wanted = kTasksPerThread * num_threads();
  while (tasks.num_outs > 64 &&
         ceil_div(part.num_rows, tasks.num_rows) * ceil_div(part.num_outs, tasks.num_outs) < wanted)
    // Halves the larger dimension: a task packs its weights for its rows, and its inputs for its output
    // features.
    (tasks.num_rows > std::max(tasks.num_outs, kMinRowsToPackFor) ? tasks.num_rows : tasks.num_outs) /= 2;
  return tasks;
}

// Returns a buffer with `floats_per_thread` floats for each thread of the team. The calling thread keeps it
// from call to call: it is too large for stacks, and threads that allocate their own could allocate again in
// any later step.
float* thread_tile_buffers(int64_t floats_per_thread) {
  thread_local std::vector<float> tiles;
  const auto wanted = static_cast<size_t>(floats_per_thread * num_threads());
  if (tiles.size() < wanted) tiles.resize(wanted);
  return tiles.data();
}

bool can_use_tiles(const LinearArgs& args, Isa isa) {
  return isa >= Isa::kAmx && !args.workspace.empty() && args.weight.format == WeightFormat::kPlain &&
         (args.batch_invariant || args.x.shape[0] >= tile_min_rows(args.weight.data.dtype));
}

// Packs rows for all tasks. Then each task multiplies its output features by all rows.
void linear_with_tiles(const LinearPart& rows, std::byte* workspace) {
  const TileLinear kernel = tile_linear_amx();
  std::byte* const scratch = workspace;
  const PackedRows packed = {reinterpret_cast<char*>(workspace + num_threads() * kTileScratchBytes),
                             ceil_div(rows.num_rows, int64_t{kLinearTileRows})};
  const int64_t num_blocks = ceil_div(rows.in_features, int64_t{kTileBlockFeatures});
  parallel_for_rows(packed.num_row_tiles * num_blocks, kLinearTileRows * kTileBlockFeatures,
                    [&](int64_t task) {
                      const int64_t tile = task / num_blocks;
                      kernel.pack(make_part(rows, tile * kLinearTileRows, kLinearTileRows, 0, 0), packed,
                                  tile, task % num_blocks * kTileBlockFeatures);
                    });
  const int64_t wanted = kTasksPerThread * num_threads();
  const int64_t task_outs = std::min(max_tile_task_outs(rows.weight_dtype),
                                     round_up(ceil_div(rows.num_outs, wanted), int64_t{kGroupOuts}));
  parallel_for(ceil_div(rows.num_outs, task_outs), [&](int64_t task, int thread) {
    kernel.multiply(make_part(rows, 0, rows.num_rows, task * task_outs, task_outs), packed,
                    scratch + thread * kTileScratchBytes);
  });
}

// AVX-512-BF16 pairs are used only without AMX: AMX tiles are faster and have float32 precision.
bool can_use_pairs(const LinearArgs& args, Isa isa) {
  return isa == Isa::kAvx512Bf16 && args.rounds_x && !args.workspace.empty() &&
         args.weight.format == WeightFormat::kPlain && args.weight.data.dtype == DType::kBF16;
}

Tasks pair_tasks(const LinearPart& part) {
  Tasks tasks = {.num_rows = part.num_rows, .num_outs = kPairTaskOuts};
  while (tasks.num_outs > 32 && ceil_div(part.num_outs, tasks.num_outs) < kTasksPerThread * num_threads())
    tasks.num_outs /= 2;
  return tasks;
}

// Rounds rows for all tasks. Then each task multiplies its output features by all rows.
void linear_with_pairs(const LinearPart& part, bool skinny, std::byte* workspace) {
  PairLinear kernel;
  if constexpr (kX86Kernels) kernel = pair_linear_avx512bf16();
  const PairRows rows = {reinterpret_cast<uint32_t*>(workspace), pair_stride(part.in_features)};
  const auto rows_from = [&](int64_t row) { return PairRows{rows.data + row * rows.stride, rows.stride}; };
  parallel_for_rows(part.num_rows, part.in_features,
                    [&](int64_t row) { kernel.round(make_part(part, row, 1, 0, 0), rows_from(row)); });
  const int64_t task_outs = (skinny ? skinny_tasks(part, weight_bytes(part)) : pair_tasks(part)).num_outs;
  const int64_t num_tasks = ceil_div(part.num_outs, task_outs);
  const auto multiply = [&](int64_t task, int) {
    const LinearPart outs = make_part(part, 0, part.num_rows, task * task_outs, task_outs);
    skinny ? kernel.skinny(outs, rows) : kernel.packed(outs, rows);
  };
  if (part.num_rows * part.num_outs * part.in_features >= kMinElementsForTeam)
    return parallel_for(num_tasks, multiply);
  for (int64_t task = 0; task < num_tasks; ++task) multiply(task, 0);
}

bool can_use_int8(const LinearArgs& args) {
  return args.rounds_x && !args.workspace.empty() && has_int8_products(args.weight);
}

// Returns whether each task multiplies weights as it reads them, and needs no scratch of its own.
bool streams_weights(const LinearArgs& args, Isa isa) {
  if (can_use_tiles(args, isa) || can_use_pairs(args, isa)) return false;
  return can_use_int8(args) || args.batch_invariant || args.x.shape[0] <= kMaxSkinnyRows ||
         !args.weight.input_order.empty();
}

// Returns whether the products may use the same rows of x in int8, or all use x itself.
bool can_share_x(std::span<const LinearArgs> products) {
  const LinearArgs& first = products.front();
  if (products.size() == 1) return true;
  return std::ranges::all_of(products, [&](const LinearArgs& args) {
    return args.x.data == first.x.data && args.x.strides[0] == first.x.strides[0] &&
           can_use_int8(args) == can_use_int8(first) && args.weight.input_order.empty() &&
           has_four_bits(args.weight.format) == has_four_bits(first.weight.format);
  });
}

// Tasks of one of the products of a job.
struct StreamedProduct {
  LinearPart part = {};
  Tasks tasks = {};
  int64_t num_out_tasks = 0, first_task = 0;
};
constexpr size_t kMaxStreamedProducts = 8;

// Computes rows [row, row + num_rows) of all products in one job of the team: in a decode step, threads that
// wait for one another after each product would lose a large part of the time.
void stream_weights(std::span<const LinearArgs> products, int64_t row, int64_t num_rows, Isa isa) {
  StreamedProduct streamed[kMaxStreamedProducts];
  const LinearArgs& first = products.front();
  const bool in_int8 = can_use_int8(first);
  int64_t total_bytes = 0, multiplications = 0;
  for (size_t i = 0; i < products.size(); ++i) {
    const LinearPart all = whole(products[i]);
    streamed[i].part = make_part(all, row, num_rows, 0, all.num_outs);
    total_bytes += weight_bytes(all);
    multiplications += num_rows * all.num_outs * all.in_features;
  }
  auto multiply = linear_kernel(isa).skinny;
  if (in_int8) {
    const Int8Linear kernel = int8_linear(isa);
    const LinearPart& part = streamed[0].part;
    const int64_t row_runs = int8_row_runs(part.in_features);
    auto* const rows = reinterpret_cast<Int8Run*>(first.workspace.data());
    parallel_for_rows(num_rows, part.in_features,
                      [&](int64_t i) { kernel.quantize(int8_source(part, i), rows + i * row_runs); });
    for (size_t i = 0; i < products.size(); ++i) {
      streamed[i].part.int8_x = rows;
      streamed[i].part.int8_stride_bytes = row_runs * static_cast<int64_t>(sizeof(Int8Run));
    }
    const bool many = first.x.shape[0] > kMaxSkinnyRows && !first.batch_invariant;
    multiply = many ? kernel.multiply_many : kernel.multiply;
  }
  int64_t num_tasks = 0;
  for (size_t i = 0; i < products.size(); ++i) {
    StreamedProduct& product = streamed[i];
    product.tasks = skinny_tasks(product.part, total_bytes, in_int8 ? kInt8TaskRows : kMaxSkinnyRows);
    product.num_out_tasks = ceil_div(product.part.num_outs, product.tasks.num_outs);
    product.first_task = num_tasks;
    num_tasks += product.num_out_tasks * ceil_div(num_rows, product.tasks.num_rows);
  }
  const auto run = [&](int64_t task, int) {
    size_t i = products.size() - 1;
    while (task < streamed[i].first_task) --i;
    const StreamedProduct& product = streamed[i];
    task -= product.first_task;
    multiply(make_part(product.part, task / product.num_out_tasks * product.tasks.num_rows,
                       product.tasks.num_rows, task % product.num_out_tasks * product.tasks.num_outs,
                       product.tasks.num_outs));
  };
  if (multiplications >= kMinElementsForTeam) return parallel_for(num_tasks, run);
  for (int64_t task = 0; task < num_tasks; ++task) run(task, 0);
}

void record_kernel(const LinearArgs& args, std::string_view how, Isa isa) {
  std::ostringstream text;
  text << args.x.shape[0] << " x " << args.x.shape[1] << " -> " << args.out.shape[1] << ", weight in "
       << describe_elements(args.weight);
  record_choice({.op = "linear",
                 .problem = text.str(),
                 .kernel = std::string(to_string(isa)).append(" ").append(how),
                 .why = "the best instruction set of this CPU"});
}

}  // namespace

LinearPart with_weight(LinearPart part, const Weight& weight) {
  part.weight = weight.data.data;
  part.weight_dtype = weight.data.dtype;
  part.num_outs = weight.out_features();
  part.in_features = weight.in_features();
  if (weight.format == WeightFormat::kPlain) return part;
  if (weight.format == WeightFormat::kBlocks) {
    part.groups = {.format = weight.format, .block_format = weight.block_format};
    return part;
  }
  part.groups = {.format = weight.format,
                 .scale_dtype = weight.scales.dtype,
                 .scales = weight.scales.data,
                 .zeros = static_cast<const uint8_t*>(weight.zeros.data),
                 .input_order = static_cast<const int32_t*>(weight.input_order.data),
                 .num_groups = weight.scales.shape[1],
                 .group_outs = weight.group_outs,
                 .group_ins = weight.group_ins};
  return part;
}

int64_t weight_row_bytes(const LinearPart& part) {
  if (part.groups.format == WeightFormat::kBlocks) {
    const BlockLayout layout = block_layout(part.groups.block_format);
    return part.in_features / layout.elements * layout.bytes;
  }
  const int64_t bytes = part.in_features * static_cast<int64_t>(size_of(part.weight_dtype));
  return has_four_bits(part.groups.format) ? bytes / 2 : bytes;
}

void skip_outs(LinearPart& part, int64_t num_outs) {
  part.weight = static_cast<const char*>(part.weight) + num_outs * weight_row_bytes(part);
  part.groups.first_out += num_outs;
  part.num_outs -= num_outs;
}

LinearKernel linear_kernel(Isa isa) {
  if constexpr (kX86Kernels) {
    if (isa >= Isa::kAvx512) return linear_kernel_avx512();
    if (isa == Isa::kAvx2) return linear_kernel_avx2();
  }
  return linear_kernel_portable();
}

size_t linear_workspace_bytes(int64_t max_rows, int64_t max_in_features, Isa isa, WeightFormat format) {
  if (format != WeightFormat::kPlain)
    return std::max(linear_workspace_bytes(max_rows, max_in_features, isa, WeightFormat::kPlain),
                    int8_rows_bytes(std::min(max_rows, kMaxInt8Rows), max_in_features));
  if (isa < Isa::kAvx512Bf16) return 0;
  if (isa == Isa::kAvx512Bf16)
    return static_cast<size_t>(std::min(max_rows, kMaxPairRows) * pair_stride(max_in_features)) *
           sizeof(uint32_t);
  const int64_t row_tiles = ceil_div(std::min<int64_t>(max_rows, kTileMaxRows), int64_t{kLinearTileRows});
  const int64_t blocks = row_tiles * ceil_div(max_in_features, int64_t{kTileBlockFeatures});
  return static_cast<size_t>(num_threads() * kTileScratchBytes + blocks * kTileBlockBytes);
}

void linear(const LinearArgs& args, Isa isa, bool records) {
  require_isa(isa);
  if (streams_weights(args, isa)) return linear(std::span(&args, 1), isa, records);
  const LinearPart all = whole(args);
  if (can_use_tiles(args, isa)) {
    if (records && records_choices()) record_kernel(args, "tiles", isa);
    for (int64_t row = 0; row < all.num_rows; row += kTileMaxRows)
      linear_with_tiles(make_part(all, row, kTileMaxRows, 0, all.num_outs), args.workspace.data());
    return;
  }
  if (can_use_pairs(args, isa)) {
    const bool skinny = args.batch_invariant || streams_pairs(all.num_rows, all.in_features);
    if (records && records_choices())
      record_kernel(args, skinny ? "skinny GEMM of bf16 pairs" : "packed GEMM of bf16 pairs", isa);
    for (int64_t row = 0; row < all.num_rows; row += kMaxPairRows)
      linear_with_pairs(make_part(all, row, kMaxPairRows, 0, all.num_outs), skinny, args.workspace.data());
    return;
  }
  if (records && records_choices()) record_kernel(args, "packed GEMM", std::min(isa, Isa::kAvx512));
  const LinearKernel kernel = linear_kernel(isa);
  const Tasks tasks = packed_tasks(all, kernel);
  const int64_t num_out_tasks = ceil_div(all.num_outs, tasks.num_outs);
  const int64_t num_row_tasks = ceil_div(all.num_rows, tasks.num_rows);
  float* const tiles = thread_tile_buffers(kernel.num_tile_floats);
  const auto multiply = [&](int64_t task, int thread) {
    kernel.packed(make_part(all, task / num_out_tasks * tasks.num_rows, tasks.num_rows,
                            task % num_out_tasks * tasks.num_outs, tasks.num_outs),
                  tiles + thread * kernel.num_tile_floats);
  };
  const bool worth_a_team = all.num_rows * all.num_outs * all.in_features >= kMinElementsForTeam;
  if (worth_a_team) return parallel_for(num_out_tasks * num_row_tasks, multiply);
  for (int64_t task = 0; task < num_out_tasks * num_row_tasks; ++task) multiply(task, 0);
}

void linear(std::span<const LinearArgs> products, Isa isa, bool records) {
  require_isa(isa);
  while (!products.empty()) {
    const auto some = products.first(std::min(products.size(), kMaxStreamedProducts));
    products = products.subspan(some.size());
    const auto streams = [&](const LinearArgs& args) { return streams_weights(args, isa); };
    if (!std::ranges::all_of(some, streams) || !can_share_x(some)) {
      for (const LinearArgs& args : some) linear(args, isa, records);
      continue;
    }
    const LinearArgs& first = some.front();
    const bool in_int8 = can_use_int8(first);
    if (records && records_choices())
      for (const LinearArgs& args : some)
        record_kernel(args, in_int8 ? "GEMM of int8 activations" : "skinny GEMM",
                      in_int8 ? isa : std::min(isa, Isa::kAvx512));
    const int64_t num_rows = first.x.shape[0], step = in_int8 ? kMaxInt8Rows : num_rows;
    for (int64_t row = 0; row < num_rows; row += step)
      stream_weights(some, row, std::min(step, num_rows - row), isa);
  }
}

}  // namespace attend::kernels::cpu
