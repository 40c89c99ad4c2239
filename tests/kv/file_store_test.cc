#include "attend/kv/tier/file_store.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <list>
#include <string>
#include <vector>

#include "tests/support/test_files.h"

namespace attend {
namespace {

namespace fs = std::filesystem;
constexpr size_t kTokenBytes = 100, kStateBytes = 40;
constexpr PageDataMask kBoth = mask_of(PageDataKind::kTokens) | mask_of(PageDataKind::kState);

class FileStoreTest : public testing::Test {
 protected:
  FileStore::Config config(const char* model = "model") const {
    return {.directory = directory_.path() / "store",
            .max_bytes = 1 << 20,
            .identity = sha256(model),
            .page_size = 16,
            .data_bytes = {kTokenBytes, 0, kStateBytes}};
  }
  // Pages [first, end), of which those in `states` have a state.
  std::vector<StoredPage> run(int first, int end, const std::vector<int>& states = {}) {
    std::vector<StoredPage> pages;
    for (int number = first; number < end; ++number) {
      StoredPage& page = pages.emplace_back();
      page.page = prefix_[static_cast<size_t>(number)];
      page.data[0] = token_data(number);
      if (std::ranges::find(states, number) != states.end())
        page.data[2] = data_.emplace_back(kStateBytes, std::byte(100 + number)).data();
    }
    return pages;
  }
  const std::byte* token_data(int number) {
    return data_.emplace_back(kTokenBytes, std::byte(number + 1)).data();
  }
  std::string masks(FileStore& store, size_t num_known = 0) {
    std::string text;
    for (const PageDataMask mask : store.find(prefix_, num_known)) text += std::to_string(mask);
    return text;
  }
  // Reads the tokens of the first `count` pages; returns the number of correct ones.
  static int read_tokens(FileStore& store, const std::vector<PageHash>& prefix, int count) {
    std::vector<std::vector<std::byte>> data(static_cast<size_t>(count), std::vector<std::byte>(kTokenBytes));
    std::vector<PageRead> reads;
    for (size_t i = 0; i < data.size(); ++i)
      reads.push_back({.page = prefix[i], .kind = PageDataKind::kTokens, .to = data[i].data()});
    const size_t done = store.read(reads);
    for (size_t i = 0; i < done; ++i) EXPECT_EQ(data[i].back(), std::byte(i + 1));
    return static_cast<int>(done);
  }

  test::TempDir directory_;
  std::vector<PageHash> prefix_ = [] {
    std::vector<PageHash> pages;
    const std::vector<int32_t> keys(16, 7);
    for (int i = 0; i < 10; ++i)
      pages.push_back(hash_page(i > 0 ? pages.back() : hash_root(PageHash(), "salt"), keys));
    return pages;
  }();
  std::list<std::vector<std::byte>> data_;
};

TEST_F(FileStoreTest, ReturnsWhatWasWritten) {
  FileStore(config()).write(run(0, 4, {1, 3}));
  FileStore store(config());
  EXPECT_EQ(masks(store), "1515");
  EXPECT_EQ(read_tokens(store, prefix_, 4), 4);
  std::vector<std::byte> state(kStateBytes);
  const PageRead read{.page = prefix_[3], .kind = PageDataKind::kState, .to = state.data()};
  EXPECT_EQ(store.read({&read, 1}), 1u);
  EXPECT_EQ(state[kStateBytes - 1], std::byte(103));
  EXPECT_EQ(store.stats().num_rejected_files, 0);
}

TEST_F(FileStoreTest, ContinuesARunInAnotherFile) {
  FileStore store(config());
  store.write(run(0, 3));
  store.write(run(3, 5));
  store.write(run(7, 9));
  EXPECT_EQ(masks(store), "11111");
  EXPECT_EQ(masks(store, 7), "111110011");
  EXPECT_EQ(store.stats().num_files_written, 3);
}

TEST_F(FileStoreTest, WritesOnlyPagesThatItDoesNotHave) {
  FileStore store(config());
  store.write(run(0, 3));
  store.write(run(0, 3));
  EXPECT_EQ(store.stats().num_files_written, 1);
  store.write(run(0, 5));
  EXPECT_EQ(store.stats().num_files_written, 2);
  EXPECT_TRUE(fs::exists(store.path_of(prefix_[3])));
  EXPECT_EQ(masks(store), "11111");
}

TEST_F(FileStoreTest, FindsAStateThatWasWrittenLater) {
  FileStore store(config());
  store.write(run(0, 6));
  store.write(run(2, 3, {2}));
  EXPECT_EQ(masks(store), "115111") << "the run of the first file continues after the page";
  EXPECT_EQ(read_tokens(store, prefix_, 6), 6);
}

TEST_F(FileStoreTest, DividesLongRuns) {
  FileStore::Config config = this->config();
  config.max_file_bytes = 250;
  FileStore store(config);
  store.write(run(0, 5));
  EXPECT_EQ(store.stats().num_files_written, 3);
  EXPECT_EQ(masks(store), "11111");
}

TEST_F(FileStoreTest, RejectsEveryChangedByte) {
  FileStore(config()).write(run(0, 2, {1}));
  const fs::path file = FileStore(config()).path_of(prefix_[0]);
  std::ifstream in(file, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  ASSERT_EQ(whole.size(), 120 + 2 * 88 + 2 * kTokenBytes + kStateBytes);
  std::vector<std::byte> data(kTokenBytes);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] ^= 1;
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
    FileStore store(config());
    size_t num_read = 0;
    if (store.find(prefix_, 0).size() == 2)
      for (const auto& [page, kind] :
           {std::pair(0, PageDataKind::kTokens), std::pair(1, PageDataKind::kTokens),
            std::pair(1, PageDataKind::kState)}) {
        const PageRead read{.page = prefix_[static_cast<size_t>(page)], .kind = kind, .to = data.data()};
        num_read += store.read({&read, 1});
      }
    ASSERT_LT(num_read, 3u) << "byte " << i;
    ASSERT_EQ(store.stats().num_rejected_files, 1) << "byte " << i;
  }
}

TEST_F(FileStoreTest, RejectsEveryTruncation) {
  FileStore(config()).write(run(0, 2, {1}));
  const fs::path file = FileStore(config()).path_of(prefix_[0]);
  std::ifstream in(file, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  for (size_t size = 0; size < whole.size(); ++size) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << whole.substr(0, size);
    FileStore store(config());
    ASSERT_TRUE(store.find(prefix_, 0).empty()) << size << " bytes";
    ASSERT_FALSE(fs::exists(file)) << "it is removed";
    ASSERT_EQ(store.stats().num_rejected_files, 1);
  }
}

TEST_F(FileStoreTest, IgnoresFilesOfAnotherModel) {
  FileStore other(config("other"));
  other.write(run(0, 2));
  FileStore store(config());
  EXPECT_EQ(masks(store), "");
  fs::create_directories(store.path_of(prefix_[0]).parent_path());
  fs::copy_file(other.path_of(prefix_[0]), store.path_of(prefix_[0]));
  EXPECT_EQ(masks(store), "");
  EXPECT_EQ(store.stats().num_rejected_files, 1);
  EXPECT_TRUE(fs::exists(store.path_of(prefix_[0])));
  FileStore::Config config = this->config();
  config.page_size = 8;
  EXPECT_TRUE(FileStore(config).find(prefix_, 0).empty());
}

TEST_F(FileStoreTest, EvictsTheFilesThatWereUsedLongestAgo) {
  FileStore::Config config = this->config();
  config.max_bytes = 1500;  // four files of a page
  FileStore store(config);
  const auto name = [&](int number) { return store.path_of(prefix_[static_cast<size_t>(number)]); };
  for (int number = 0; number < 4; ++number) {
    store.write(run(number, number + 1));
    fs::last_write_time(name(number), fs::file_time_type::clock::now() - std::chrono::hours(10 - number));
  }
  EXPECT_EQ(masks(store), "1111");
  EXPECT_EQ(read_tokens(store, prefix_, 1), 1);  // uses the first one
  store.write(run(5, 6));
  EXPECT_TRUE(fs::exists(name(0)));
  EXPECT_FALSE(fs::exists(name(1)));
  EXPECT_TRUE(fs::exists(name(5)));
  EXPECT_LE(store.stats().num_bytes, 1500);
  EXPECT_GT(store.stats().num_files_evicted, 0);
}

TEST_F(FileStoreTest, CountsFilesOfOtherModelsAndServersInItsLimit) {
  FileStore::Config config = this->config(), other_config = this->config("other");
  config.max_bytes = other_config.max_bytes = 1500;
  FileStore store(config), other(other_config);
  for (int number = 0; number < 8; ++number) (number % 2 == 0 ? store : other).write(run(number, number + 1));
  // A server that starts finds the directory within its limit, or evicts.
  EXPECT_LE(FileStore(config).stats().num_bytes, 1500);
}

TEST_F(FileStoreTest, RefusesAFileAboveItsLimit) {
  FileStore::Config config = this->config();
  config.max_bytes = 100;
  FileStore store(config);
  try {
    store.write(run(0, 1));
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("--hicache-storage-size"), std::string::npos);
  }
}

TEST_F(FileStoreTest, RemovesOldTemporaryFilesOnly) {
  const fs::path folder = FileStore(config()).path_of(prefix_[0]).parent_path();
  fs::create_directories(folder);
  for (const char* name : {"old.tmp", "new.tmp"}) std::ofstream(folder / name) << "x";
  fs::last_write_time(folder / "old.tmp", fs::file_time_type::clock::now() - std::chrono::hours(2));
  const FileStore store(config());
  EXPECT_FALSE(fs::exists(folder / "old.tmp"));
  EXPECT_TRUE(fs::exists(folder / "new.tmp"));
}

TEST_F(FileStoreTest, ClearRemovesTheFilesOfItsModel) {
  FileStore store(config()), other(config("other"));
  store.write(run(0, 2));
  other.write(run(0, 2));
  store.clear();
  EXPECT_EQ(masks(store), "");
  EXPECT_EQ(masks(other), "11");
  EXPECT_EQ(store.stats().num_bytes, 0);
}

TEST(PageHash, DependsOnTheModelTheSaltAndEveryToken) {
  const std::vector<int32_t> keys = {1, 2}, others = {1, 3};
  const PageHash model = sha256("model"), root = hash_root(model, "");
  EXPECT_NE(root, hash_root(sha256("other"), ""));
  EXPECT_NE(root, hash_root(model, "salt"));
  EXPECT_NE(hash_page(root, keys), hash_page(root, others));
  EXPECT_NE(hash_page(root, keys), hash_page(hash_page(root, keys), keys));
  EXPECT_EQ(sha256("abc").hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace attend
