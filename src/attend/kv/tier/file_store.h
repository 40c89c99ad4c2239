// FileStore: a PageStore in a directory. docs/hierarchical-cache.md describes the files.
#pragma once

#include <atomic>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "attend/kv/tier/page_store.h"

namespace attend {

// A file has the data of a run of pages and is named after its first page. It is written under a temporary
// name and renamed when it is complete, so other servers that share the directory see complete files only.
// Every file is checked before its data are used: corrupt files are removed with a warning, files of another
// format or model are ignored with a warning.
//
// When the files of the directory, of all models, exceed max_bytes, those that were written or read longest
// ago are removed.
class FileStore final : public PageStore {
 public:
  struct Config {
    std::filesystem::path directory;
    int64_t max_bytes = 0;
    PageHash identity;  // of everything besides tokens that the bytes depend on
    int page_size = 1;
    std::array<size_t, kNumPageDataKinds> data_bytes = {};  // of a page, by kind; 0: the model has none
    int64_t max_file_bytes = int64_t{32} << 20;             // longer runs are divided
  };
  // Creates the directory. Throws Error(kInvalidArgument) with the path and the reason if it cannot be
  // created, read or written.
  explicit FileStore(const Config& config);

  void write(std::span<const StoredPage> run) override;
  std::vector<PageDataMask> find(View<const PageHash> prefix, size_t num_known) override;
  size_t read(std::span<const PageRead> reads) override;
  void clear() override;
  PageStoreStats stats() const override;

  // File of a run that begins with this page.
  std::filesystem::path path_of(const PageHash& first_page) const;

 private:
  struct Location {
    std::filesystem::path file;
    PageDataMask mask = 0;
    std::array<int64_t, kNumPageDataKinds> offsets = {};
    std::array<std::array<uint8_t, 16>, kNumPageDataKinds> checksums = {};
  };
  struct FilePage {
    PageHash page;
    Location location;
  };

  // Pages of a file; empty: there is none, or it was rejected.
  std::vector<FilePage> read_table(const std::filesystem::path& path);
  void write_file(std::span<const StoredPage> run);
  // Number of first pages of the run that the file of its first page has, with all of their data.
  size_t num_stored(std::span<const StoredPage> run);
  // Warns once per file. Removes the file if it is corrupt.
  void reject(const std::filesystem::path& path, std::string_view reason, bool is_damaged);
  void make_room(int64_t num_bytes);

  Config config_;
  PageDataMask all_kinds_ = 0;
  std::filesystem::path model_directory_;
  std::unordered_map<PageHash, Location> found_;  // by the last find()
  std::set<std::string> rejected_;
  int64_t num_temporary_ = 0;
  std::atomic<int64_t> num_bytes_ = 0, num_written_ = 0, num_read_ = 0, num_evicted_ = 0, num_rejected_ = 0;
};

}  // namespace attend
