// Invariants of every row of the backend table.
#include "attend/backends/table.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "attend/attention/resolver.h"

namespace attend::test {
namespace {

TEST(BackendTable, HasUniqueNames) {
  std::set<std::string_view> names;
  for (const BackendEntry& entry : backend_table()) {
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name;
    for (std::string_view alias : entry.aliases) EXPECT_TRUE(names.insert(alias).second) << alias;
  }
}

TEST(BackendTable, FindsRowsByNameAndAlias) {
  ASSERT_NE(find_backend(backend_table(), "intel_amx"), nullptr);
  EXPECT_EQ(find_backend(backend_table(), "intel_amx")->name, "cpu");
  EXPECT_EQ(find_backend(backend_table(), "fa3")->name, "fa3");
  EXPECT_EQ(find_backend(backend_table(), "FA3"), nullptr);
}

TEST(BackendTable, EveryEntryHasASummaryAndAFactory) {
  for (const BackendEntry& entry : backend_table()) {
    EXPECT_FALSE(entry.summary.empty()) << entry.name;
    EXPECT_NE(entry.workspace_bytes, nullptr) << entry.name;
    EXPECT_NE(entry.create, nullptr) << entry.name;
    EXPECT_TRUE(entry.mha.supports_any_phase() || entry.mla.supports_any_phase()) << entry.name;
  }
}

TEST(BackendTable, PrefersSupportedPageSizesOnly) {
  for (const BackendEntry& entry : backend_table())
    for (const Capability* can : {&entry.mha, &entry.mla}) {
      const int preferred = can->preferred_page_size;
      EXPECT_TRUE(preferred == 0 || can->page_sizes.contains(preferred)) << entry.name;
    }
}

TEST(BackendTable, EveryEntryHasAPageSizeUnderAnyCondition) {
  for (const BackendEntry& entry : backend_table())
    for (KvKind kind : {KvKind::kMha, KvKind::kMla})
      for (int q_heads_per_kv : {1, 8})
        for (bool window : {false, true}) {
          const Capability& can = entry.capability(kind);
          if (!can.supports_any_phase()) continue;
          const Requirement needs{.kind = kind,
                                  .q_heads_per_kv = q_heads_per_kv,
                                  .window = window,
                                  .speculation = can.speculation};
          EXPECT_FALSE(page_sizes_for(can, needs).empty()) << entry.name << ' ' << to_string(kind);
        }
}

// attend's kernels for MLA prefill also support expanded keys.
TEST(BackendTable, SupportsContiguousKeysIfItPrefillsMla) {
  for (const BackendEntry& entry : backend_table()) {
    EXPECT_EQ(entry.mla.contiguous, !entry.mla.prefill.empty()) << entry.name;
    EXPECT_FALSE(entry.mha.contiguous && entry.mla.prefill.empty()) << entry.name;
  }
}

// Resolution skips preferred names that the table lacks, so a typo would go unnoticed.
TEST(BackendTable, ContainsEveryPreferredBackend) {
  for (KvKind kind : {KvKind::kMha, KvKind::kMla})
    for (Architecture architecture : {Architecture::kCpu, Architecture::kTuring, Architecture::kAmpere,
                                      Architecture::kAda, Architecture::kHopper, Architecture::kBlackwell,
                                      Architecture::kBlackwellGeforce, Architecture::kAmd}) {
      EXPECT_FALSE(preference(kind, architecture).empty()) << to_string(architecture);
      for (const Preference& preferred : preference(kind, architecture)) {
        const BackendEntry* entry = find_backend(backend_table(), preferred.backend);
        ASSERT_NE(entry, nullptr) << preferred.backend;
        EXPECT_TRUE(entry->capability(kind).decode.contains(architecture)) << preferred.backend;
      }
    }
}

}  // namespace
}  // namespace attend::test
