#include "attend/bench/report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "attend/base/error.h"

namespace attend::bench {
namespace {

using nlohmann::ordered_json;

ordered_json to_json(const MachineFigure& figure) {
  return {{"name", figure.name}, {"threads", figure.threads}, {figure.unit, figure.value}};
}

ordered_json to_json(const CaseResult& result) {
  ordered_json json = {
      {"case", result.name}, {"threads", result.threads}, {"us", result.us}, {result.unit, result.value}};
  if (result.limit > 0) {
    json["limit"] = result.limit;
    json["bound"] = result.bound;
    json["share"] = result.share();
  }
  if (result.tiles_limit > 0) {
    json["tiles_limit"] = result.tiles_limit;
    json["tiles_share"] = result.tiles_share();
  }
  if (!result.kernel.empty()) json["kernel"] = result.kernel;
  json["repeats"] = result.repeats;
  return json;
}

// Returns true if another file may replace it: it is a regular file or new, in a writable folder.
bool can_be_replaced(const std::filesystem::path& path) {
  const std::filesystem::file_type type = std::filesystem::symlink_status(path).type();
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  return (type == std::filesystem::file_type::regular || type == std::filesystem::file_type::not_found) &&
         access(folder.c_str(), W_OK) == 0;
}

constexpr size_t kNameWidth = 28, kKernelWidth = 14;

void print_head(const Report& report) {
  fmt::print("{}, {}, {} threads\n\n", report.machine, report.instruction_set, report.threads);
  for (const auto& [name, text] : report.facts) fmt::print("{:<{}} {}\n", name, kNameWidth, text);
  if (!report.facts.empty()) fmt::print("\n");
  const bool has_kernels = !report.cases.empty() && !report.cases.front().kernel.empty();
  fmt::print("{:<40} {:>3} {:>11} {:>10} {:<9} {:>8}  {:<16} {:>6}", "case", "", "us", "", "", "limit", "of",
             "share");
  if (report.has_tiles) fmt::print(" {:>9}", "of AMX");
  if (has_kernels) fmt::print("{:>{}}", "kernel", kKernelWidth);
  fmt::print("\n");
}

void print_case(const Report& report, const CaseResult& result) {
  fmt::print("{:<40} {:>2}T {:>11.1f} {:>10.1f} {:<9}", result.name, result.threads, result.us, result.value,
             result.unit);
  if (result.limit > 0)
    fmt::print(" {:>8.1f}  {:<16} {:>4.0f} %", result.limit, result.bound, 100 * result.share());
  const std::string tile_limit =
      result.tiles_limit > 0 ? fmt::format("{:.0f} %", 100 * result.tiles_share()) : std::string();
  if (report.has_tiles) fmt::print(" {:>9}", tile_limit);
  if (!result.kernel.empty()) fmt::print("{:>{}}", result.kernel, kKernelWidth);
  fmt::print("\n");
}

}  // namespace

std::vector<std::string> choice_names(const kernels::KernelChoices& choices) {
  std::vector<std::string> names;
  for (const kernels::KernelChoice& choice : choices.all()) names.push_back(to_string(choice));
  return names;
}

void ReportPrinter::show(const Report& report) {
  if (num_shown_ == 0) print_head(report);
  for (; num_shown_ < report.cases.size(); ++num_shown_) print_case(report, report.cases[num_shown_]);
}

void ReportPrinter::finish(const Report& report) {
  show(report);
  if (!report.figures.empty()) fmt::print("\n");
  size_t widest = kNameWidth;
  for (const MachineFigure& figure : report.figures) widest = std::max(widest, figure.name.size());
  for (const MachineFigure& figure : report.figures)
    fmt::print("{:<{}} {:>2}T {:>10.1f} {}\n", figure.name, widest, figure.threads, figure.value,
               figure.unit);
  if (!report.kernels.empty()) fmt::print("\nkernels\n");
  for (const std::string& kernel : report.kernels) fmt::print("  {}\n", kernel);
}

void write_json(const Report& report, const std::filesystem::path& path) {
  ordered_json json = {{"bench", report.bench},
                       {"machine", report.machine},
                       {"instruction_set", report.instruction_set},
                       {"threads", report.threads},
                       {"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
                       {"version", ATTEND_VERSION}};
  for (const auto& [name, text] : report.facts) json[name] = text;
  json["figures"] = ordered_json::array();
  json["cases"] = ordered_json::array();
  for (const MachineFigure& figure : report.figures) json["figures"].push_back(to_json(figure));
  for (const CaseResult& result : report.cases) json["cases"].push_back(to_json(result));
  if (!report.kernels.empty()) json["kernels"] = report.kernels;
  std::filesystem::path part = path;
  if (can_be_replaced(path)) part += ".part";
  std::ofstream file(part);
  file << json.dump(2) << '\n';
  file.close();
  std::error_code rename_error;
  if (file.good() && part != path) std::filesystem::rename(part, path, rename_error);
  if (file.good() && !rename_error) return;
  if (part != path) std::filesystem::remove(part, rename_error);
  fail(ErrorCode::kInvalidArgument, "--json ", path.string(), ": cannot be written");
}

}  // namespace attend::bench
