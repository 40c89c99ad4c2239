#include "attend/bench/attention/attention_case.h"

#include <string_view>

#include "attend/base/error.h"

namespace attend::bench {
namespace {

std::string_view short_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kF8E4M3:
      return "fp8";
    default:
      return to_string(dtype);
  }
}

std::vector<AttentionCase> all_cases() {
  std::vector<AttentionCase> cases;
  const DType kv_dtypes[] = {DType::kBF16, DType::kF16, DType::kF8E4M3};
  for (DType kv : kv_dtypes)
    cases.push_back({.kv_dtype = kv, .seqlen_kv = 32768, .residency = Residency::kMemory});
  for (int page_size : {1, 16})
    cases.push_back({.seqlen_kv = 32768, .page_size = page_size, .residency = Residency::kMemory});
  cases.push_back({.batch = 16, .seqlen_kv = 2048, .residency = Residency::kMemory});
  for (DType kv : kv_dtypes) cases.push_back({.kv_dtype = kv, .seqlen_kv = 4096});
  for (int page_size : {1, 16}) cases.push_back({.seqlen_kv = 4096, .page_size = page_size});
  cases.push_back(
      {.seqlen_kv = 4096, .num_q_heads = 16, .num_kv_heads = 1, .head_dim = 512, .mla_rope_dim = 64});
  for (DType kv : kv_dtypes) cases.push_back({.kv_dtype = kv, .seqlen_q = 8, .seqlen_kv = 4096});
  for (DType kv : kv_dtypes) cases.push_back({.kv_dtype = kv, .seqlen_q = 512, .seqlen_kv = 512});
  for (DType kv : kv_dtypes) cases.push_back({.kv_dtype = kv, .seqlen_q = 2048, .seqlen_kv = 2048});
  cases.push_back({.q_dtype = DType::kF32, .seqlen_kv = 4096});
  cases.push_back({.q_dtype = DType::kF32, .seqlen_q = 2048, .seqlen_kv = 2048});
  return cases;
}

}  // namespace

std::string AttentionCase::name() const {
  std::string name = is_mla() ? "mla-" : "";
  name += seqlen_q == 1 ? "decode" : seqlen_q <= 16 ? "verify" : "prefill";
  name += " " + std::string(short_name(kv_dtype));
  if (q_dtype != DType::kBF16) name += " q-" + std::string(short_name(q_dtype));
  if (batch > 1) name += " b" + std::to_string(batch);
  if (seqlen_q > 1) name += " q" + std::to_string(seqlen_q);
  name += " kv" + std::to_string(seqlen_kv);
  name += residency == Residency::kMemory ? " dram" : "";
  if (page_size != AttentionCase{}.page_size) name += " page" + std::to_string(page_size);
  return name;
}

int64_t AttentionCase::kv_bytes() const {
  const int64_t row = is_mla() ? head_dim + mla_rope_dim : 2 * int64_t{head_dim} * num_kv_heads;
  return num_keys() * row * static_cast<int64_t>(size_of(kv_dtype));
}

double AttentionCase::operations() const {
  // Query j of seqlen_q attends to seqlen_kv - seqlen_q + j + 1 keys.
  const double pairs = batch * (seqlen_q * static_cast<double>(seqlen_kv) - seqlen_q * (seqlen_q - 1) / 2.0);
  return 2.0 * pairs * num_q_heads * (2 * head_dim + mla_rope_dim);
}

std::vector<AttentionCase> attention_cases(const std::string& filter) {
  std::vector<AttentionCase> chosen;
  std::string names;
  for (const AttentionCase& c : all_cases()) {
    names += "\n  " + c.name();
    if (c.name().find(filter) != std::string::npos) chosen.push_back(c);
  }
  require(!chosen.empty(), "--case ", filter, ": no case name contains it; cases:", names);
  return chosen;
}

}  // namespace attend::bench
