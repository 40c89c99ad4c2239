#include "attend/checkpoint/input_file.h"

#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attend/checkpoint/hf/hf_checkpoint.h"
#include "attend/checkpoint/hf/safetensors.h"
#include "tests/support/test_files.h"

namespace attend {
namespace {

using std::filesystem::create_symlink;
using test::expect_error;
using test::TempDir;

constexpr size_t kMaxBytes = 100;
constexpr const char* kLfsPointer =
    "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";

void expect_unreadable(const std::filesystem::path& path, std::string_view describe_error) {
  SCOPED_TRACE(path);
  expect_error(ErrorCode::kNotFound, {path.string(), describe_error}, [&] { read_file(path, kMaxBytes); });
  expect_error(ErrorCode::kNotFound, {path.string(), describe_error}, [&] { SafetensorsFile{path}; });
}

TEST(InputFile, IsReadCompletely) {
  const TempDir dir;
  EXPECT_EQ(read_file(dir.write("a", "text"), kMaxBytes), "text");
  EXPECT_EQ(read_file(dir.write("a", ""), kMaxBytes), "");
  EXPECT_EQ(read_file(dir.write("a", std::string(kMaxBytes, 'x')), kMaxBytes).size(), kMaxBytes);
}

TEST(InputFile, AboveTheLimitIsRejected) {
  const TempDir dir;
  const auto path = dir.write("a", std::string(kMaxBytes + 1, 'x'));
  expect_error(ErrorCode::kUnsupported, {path.string(), "101 bytes: at most 100"},
               [&] { read_file(path, kMaxBytes); });
  // Reports a size of 0 bytes, but has content.
  expect_error(ErrorCode::kUnsupported, {"/proc/self/maps", "at most 100"},
               [&] { read_file("/proc/self/maps", kMaxBytes); });
}

TEST(InputFile, MustBeARegularFile) {
  const TempDir dir;
  std::filesystem::create_directory(dir.path() / "folder");
  ASSERT_EQ(mkfifo((dir.path() / "pipe").c_str(), 0600), 0);
  create_symlink("/dev/zero", dir.path() / "zero");
  expect_unreadable(dir.path() / "folder", "is a directory: expected a regular file");
  expect_unreadable(dir.path() / "pipe", "is a pipe: expected a regular file");
  expect_unreadable(dir.path() / "zero", "is a device: expected a regular file");
}

TEST(InputFile, MissingFileErrorHasAReason) {
  const TempDir dir;
  dir.write("file", "");
  create_symlink("../../blobs/0123", dir.path() / "broken");
  create_symlink("circle", dir.path() / "circle");
  expect_unreadable(dir.path() / "none", "no such file");
  expect_unreadable(dir.path() / "file" / "below", "a part of the path is no directory");
  expect_unreadable(dir.path() / "broken", "the link is broken: it leads to ../../blobs/0123");
  expect_unreadable(dir.path() / "broken" / "below", (dir.path() / "broken").string() + " is broken");
  expect_unreadable(dir.path() / "circle", "its links lead in a circle");
  expect_unreadable(dir.path() / std::string(5000, 'n'), "longer than the file system allows");
}

TEST(InputFile, UnreadableFileIsNotReportedAsMissing) {
  const TempDir dir;
  const auto path = dir.write("secret", "text");
  chmod(path.c_str(), 0);
  chmod(dir.path().c_str(), 0711);
  const bool root = geteuid() == 0;
  if (root) setfsuid(65534);  // root can read every file
  const bool denied = access(path.c_str(), R_OK) == 0 ? root : true;
  if (denied) expect_unreadable(path, "permission denied");
  if (root) setfsuid(0);
}

// A path that cannot be accessed is an error, not an absent file.
TEST(InputFile, ExistsFailsForInaccessiblePaths) {
  const TempDir dir;
  dir.write("file", "");
  create_symlink("nowhere", dir.path() / "broken");
  create_symlink("circle", dir.path() / "circle");
  EXPECT_TRUE(file_exists(dir.path() / "file"));
  EXPECT_FALSE(file_exists(dir.path() / "none"));
  EXPECT_FALSE(file_exists(dir.path() / "file" / "below"));
  expect_error(ErrorCode::kNotFound, {"broken", "nowhere"}, [&] { file_exists(dir.path() / "broken"); });
  expect_error(ErrorCode::kNotFound, {"in a circle"}, [&] { file_exists(dir.path() / "circle"); });
  expect_error(ErrorCode::kNotFound, {"longer than"},
               [&] { file_exists(dir.path() / std::string(5000, 'n')); });
}

// Files in a Hugging Face cache are links. Links of an interrupted download are broken.
TEST(InputFile, BrokenLinkIsNotReportedAsMissing) {
  const TempDir dir;
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
    create_symlink("../blobs/0123", dir.path() / name);
    expect_error(ErrorCode::kNotFound, {name, "the link is broken", "../blobs/0123"},
                 [&] { HfTensors{dir.path()}; });
    std::filesystem::remove(dir.path() / name);
  }
  dir.write("model.safetensors.index.json", R"({"weight_map":{"a":"one.safetensors"}})");
  create_symlink("../blobs/0123", dir.path() / "one.safetensors");
  expect_error(ErrorCode::kNotFound, {"one.safetensors", "the link is broken"},
               [&] { HfTensors{dir.path()}; });
}

TEST(InputFile, GitLfsPointerIsExplained) {
  const TempDir dir;
  for (const char* name : {"config.json", "model.safetensors"}) dir.write(name, kLfsPointer);
  const auto is_pointer = {std::string_view("is a Git LFS pointer"), std::string_view("git lfs pull")};
  expect_error(ErrorCode::kCorruptFile, is_pointer, [&] { HfCheckpoint(dir.path()).config(); });
  expect_error(ErrorCode::kCorruptFile, is_pointer, [&] { HfTensors{dir.path()}; });
}

}  // namespace
}  // namespace attend
