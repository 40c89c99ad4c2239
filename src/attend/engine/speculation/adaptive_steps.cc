#include "attend/engine/speculation/adaptive_steps.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "attend/base/error.h"

namespace attend {
namespace {

using Json = nlohmann::json;

constexpr int kMaxSteps = 63, kMaxBatch = 1 << 20;

[[noreturn]] void reject(const std::string& where, const Json& value, const char* expected) {
  fail(ErrorCode::kCorruptFile, where, " ", value.dump(), ": expected ", expected);
}

int read_integer(const Json& value, const std::string& where, int lowest, int highest) {
  if (!value.is_number_integer() || value < lowest || value > highest)
    reject(where, value,
           ("an integer from " + std::to_string(lowest) + " to " + std::to_string(highest)).c_str());
  return value.get<int>();
}

void read_members(const Json& object, const std::string& where, AdaptiveRow& row) {
  const auto read = [&](const char* name, const auto& assign) {
    if (const auto found = object.find(name); found != object.end()) assign(*found, where + name);
  };
  const auto number = [](double& member) {
    return [&member](const Json& value, const std::string& name) {
      if (!value.is_number()) reject(name, value, "a number");
      member = value.get<double>();
    };
  };
  read("ema_alpha", [&](const Json& value, const std::string& name) {
    if (!value.is_number() || value <= 0.0 || value > 1.0) reject(name, value, "a number above 0, at most 1");
    row.ema_alpha = value.get<double>();
  });
  read("up_hysteresis", number(row.up_hysteresis));
  read("down_hysteresis", number(row.down_hysteresis));
  read("warmup_batches", [&](const Json& value, const std::string& name) {
    row.warmup_batches = read_integer(value, name, 0, kMaxBatch);
  });
  read("update_interval", [&](const Json& value, const std::string& name) {
    row.update_interval = read_integer(value, name, 1, kMaxBatch);
  });
  read("candidate_steps", [&](const Json& value, const std::string& name) {
    if (!value.is_array() || value.empty()) reject(name, value, "an array of at least one number of steps");
    row.candidate_steps.clear();
    for (const Json& steps : value) row.candidate_steps.push_back(read_integer(steps, name, 0, kMaxSteps));
    std::ranges::sort(row.candidate_steps);
    const auto same = std::ranges::unique(row.candidate_steps);
    row.candidate_steps.erase(same.begin(), same.end());
  });
}

// Returns the batch size that a member's name is; 0: the member applies to all rows.
int batch_size_of(const std::string& name) {
  const bool is_number = !name.empty() && name.size() <= 7 &&
                         std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
  return is_number ? std::atoi(name.c_str()) : 0;
}

}  // namespace

std::vector<AdaptiveRow> default_adaptive_rows() {
  return {{.batch_size = 1, .candidate_steps = {1, 3, 5, 7}, .down_hysteresis = -0.25},
          {.batch_size = 8, .candidate_steps = {0, 1, 3}},
          {.batch_size = 32, .candidate_steps = {0, 1}},
          {.batch_size = 64, .candidate_steps = {0}}};
}

std::vector<AdaptiveRow> read_adaptive_rows(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) fail(ErrorCode::kNotFound, "speculative_adaptive_config ", path.string(), ": cannot be read");
  const Json table = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  const std::string where = "speculative_adaptive_config " + path.string() + ": ";
  if (!table.is_object()) fail(ErrorCode::kCorruptFile, where, "expected a JSON object");
  AdaptiveRow common{.down_hysteresis = -0.25};
  read_members(table, where, common);
  std::vector<AdaptiveRow> rows;
  for (const auto& [name, members] : table.items()) {
    const int batch_size = batch_size_of(name);
    if (batch_size == 0) continue;
    if (!members.is_object()) reject(where + name, members, "an object");
    AdaptiveRow& row = rows.emplace_back(common);
    row.batch_size = batch_size;
    row.candidate_steps.clear();
    read_members(members, where + name + ".", row);
    if (row.candidate_steps.empty())
      fail(ErrorCode::kCorruptFile, where, name, ": expected candidate_steps, such as [1, 3, 7]");
  }
  if (rows.empty())
    fail(ErrorCode::kCorruptFile, where,
         "expected a member for at least one batch size, such as {\"1\": {\"candidate_steps\": [1, 3, 7]}}");
  std::ranges::sort(rows, {}, &AdaptiveRow::batch_size);
  return rows;
}

int most_steps(const std::vector<AdaptiveRow>& rows) {
  int most = 0;
  for (const AdaptiveRow& row : rows) most = std::max(most, std::ranges::max(row.candidate_steps));
  return most;
}

AdaptiveSteps::AdaptiveSteps(const std::vector<AdaptiveRow>& rows, int initial_steps) {
  for (const AdaptiveRow& options : rows) {
    const std::vector<int>& candidates = options.candidate_steps;
    const auto initial = std::ranges::find(candidates, initial_steps);
    Row& row = rows_.emplace_back(options);
    row.candidate = initial != candidates.end() ? static_cast<size_t>(initial - candidates.begin())
                                                : candidates.size() / 2;
    row.mean_accepted = row.neutral();
  }
}

size_t AdaptiveSteps::find(int batch_size) const {
  const auto nearest = std::ranges::min_element(
      rows_, {}, [&](const Row& row) { return std::abs(row.options.batch_size - batch_size); });
  return static_cast<size_t>(nearest - rows_.begin());
}

void AdaptiveSteps::observe(int batch_size, std::optional<double> num_accepted) {
  Row& row = rows_[find(batch_size)];
  const AdaptiveRow& options = row.options;
  if (row.steps() > 0) {
    if (!num_accepted) return;
    row.mean_accepted += options.ema_alpha * (*num_accepted - row.mean_accepted);
  }
  ++row.num_batches;
  const int num_after = row.num_batches - options.warmup_batches;
  if (num_after > 0 && num_after % options.update_interval == 0) row.choose();
}

void AdaptiveSteps::Row::choose() {
  const std::vector<int>& candidates = options.candidate_steps;
  if (steps() == 0) {
    candidate = std::min(candidate + 1, candidates.size() - 1);
    mean_accepted = std::max(mean_accepted, neutral());
    return;
  }
  const size_t before = candidate;
  const auto drops = [&] {
    const int fewer = candidates[candidate - 1];
    return mean_accepted <= (fewer == 0 ? 0.5 : fewer - 0.5) + options.down_hysteresis;
  };
  while (candidate > 0 && drops()) --candidate;
  if (candidate < before) return;
  while (candidate + 1 < candidates.size() && mean_accepted > steps() - 0.5 + options.up_hysteresis)
    ++candidate;
}

}  // namespace attend
