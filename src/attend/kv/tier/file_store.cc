#include "attend/kv/tier/file_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <memory>
#include <system_error>

#include "attend/base/error.h"
#include "attend/base/log.h"

namespace attend {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'a', 't', 't', 'e', 'n', 'd', 'K', 'V'};
constexpr uint32_t kVersion = 1;
constexpr std::string_view kExtension = ".kv", kTemporaryExtension = ".tmp";

using Checksum = std::array<uint8_t, 16>;

// Integers are little-endian, like on all machines that attend supports.
struct FileHeader {
  char magic[8];
  uint32_t version;
  uint32_t page_size;  // tokens
  uint8_t identity[32];
  uint32_t num_pages;
  uint32_t reserved;
  uint64_t data_bytes[kNumPageDataKinds];
  uint64_t file_bytes;
  uint8_t checksum[32];  // SHA-256 of header and table, with zeros here
};
static_assert(sizeof(FileHeader) == 120);

struct TableEntry {
  uint8_t page[32];
  uint32_t mask;
  uint32_t reserved;
  uint8_t checksums[kNumPageDataKinds][16];  // first bytes of the SHA-256 of each kind's data
};
static_assert(sizeof(TableEntry) == 88);

Checksum checksum_of(const std::byte* data, size_t num_bytes) {
  const PageHash hash = sha256({reinterpret_cast<const char*>(data), num_bytes});
  Checksum checksum;
  std::copy_n(hash.bytes.begin(), checksum.size(), checksum.begin());
  return checksum;
}

class File {
 public:
  File(const fs::path& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  // Returns false with errno; errno is 0 at the end of the file.
  bool read(void* to, size_t num_bytes, int64_t offset) const {
    auto* next = static_cast<char*>(to);
    while (num_bytes > 0) {
      const ssize_t count = ::pread(fd_, next, num_bytes, offset);
      if (count < 0 && errno == EINTR) continue;
      if (count == 0) errno = 0;
      if (count <= 0) return false;
      next += count;
      offset += count;
      num_bytes -= static_cast<size_t>(count);
    }
    return true;
  }
  bool write(const void* from, size_t num_bytes) const {
    const auto* next = static_cast<const char*>(from);
    while (num_bytes > 0) {
      const ssize_t count = ::write(fd_, next, num_bytes);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return false;
      next += count;
      num_bytes -= static_cast<size_t>(count);
    }
    return true;
  }
  // The order of eviction is that of the times of modification. The kernel's own times have a granularity of
  // milliseconds.
  void touch() const {
    timespec now = {};
    ::clock_gettime(CLOCK_REALTIME, &now);
    const timespec times[] = {now, now};
    ::futimens(fd_, times);
  }

 private:
  int fd_;
};

struct StoredFile {
  fs::file_time_type time;
  int64_t num_bytes;
  fs::path path;
};

// Files of all models. Skips what cannot be read: another server may remove files meanwhile.
std::vector<StoredFile> list_files(const fs::path& directory, std::string_view extension) {
  std::vector<StoredFile> files;
  std::error_code error;
  for (fs::recursive_directory_iterator next(directory, error), end; !error && next != end;
       next.increment(error)) {
    if (next->path().extension() != extension) continue;
    std::error_code gone;
    const auto num_bytes = static_cast<int64_t>(next->file_size(gone));
    const fs::file_time_type time = gone ? fs::file_time_type() : next->last_write_time(gone);
    if (!gone) files.push_back({.time = time, .num_bytes = num_bytes, .path = next->path()});
  }
  return files;
}

}  // namespace

FileStore::FileStore(const Config& config) : config_(config) {
  for (size_t kind = 0; kind < kNumPageDataKinds; ++kind)
    if (config.data_bytes[kind] > 0) all_kinds_ |= mask_of(static_cast<PageDataKind>(kind));
  model_directory_ =
      config.directory / (config.identity.hex().substr(0, 16) + "-v" + std::to_string(kVersion));
  std::error_code error;
  fs::create_directories(model_directory_, error);
  if (!error && ::access(model_directory_.c_str(), R_OK | W_OK | X_OK) != 0)
    error = std::error_code(errno, std::generic_category());
  if (error)
    fail(ErrorCode::kInvalidArgument, "--hicache-storage-dir ", config.directory.string(), ": ",
         error.message(), " (", model_directory_.string(), ")");
  // Files that a crashed server did not complete.
  const auto now = fs::file_time_type::clock::now();
  for (const StoredFile& file : list_files(model_directory_, kTemporaryExtension))
    if (now - file.time > std::chrono::hours(1)) fs::remove(file.path, error);
  make_room(0);
}

fs::path FileStore::path_of(const PageHash& first_page) const {
  const std::string name = first_page.hex();
  return model_directory_ / name.substr(0, 2) / (name + std::string(kExtension));
}

void FileStore::write(std::span<const StoredPage> run) {
  while (!run.empty()) {
    if (const size_t known = num_stored(run); known > 0) {
      run = run.subspan(known);
      continue;
    }
    size_t count = 0;
    for (int64_t bytes = 0; count < run.size(); ++count) {
      for (size_t kind = 0; kind < kNumPageDataKinds; ++kind)
        if (run[count].data[kind] != nullptr) bytes += static_cast<int64_t>(config_.data_bytes[kind]);
      if (count > 0 && bytes > config_.max_file_bytes) break;
    }
    write_file(run.first(count));
    run = run.subspan(count);
  }
}

size_t FileStore::num_stored(std::span<const StoredPage> run) {
  const std::vector<FilePage> pages = read_table(path_of(run.front().page));
  size_t count = 0;
  for (; count < std::min(pages.size(), run.size()) && pages[count].page == run[count].page; ++count)
    for (size_t kind = 0; kind < kNumPageDataKinds; ++kind)
      if (run[count].data[kind] != nullptr &&
          (pages[count].location.mask & mask_of(static_cast<PageDataKind>(kind))) == 0)
        return count;
  return count;
}

void FileStore::write_file(std::span<const StoredPage> run) {
  std::vector<TableEntry> table(run.size());
  FileHeader header = {};
  uint64_t file_bytes = sizeof(header) + table.size() * sizeof(TableEntry);
  for (size_t i = 0; i < run.size(); ++i) {
    std::ranges::copy(run[i].page.bytes, table[i].page);
    for (size_t kind = 0; kind < kNumPageDataKinds; ++kind) {
      if (run[i].data[kind] == nullptr) continue;
      table[i].mask |= mask_of(static_cast<PageDataKind>(kind));
      std::ranges::copy(checksum_of(run[i].data[kind], config_.data_bytes[kind]), table[i].checksums[kind]);
      file_bytes += config_.data_bytes[kind];
    }
  }
  std::ranges::copy(kMagic, header.magic);
  header.version = kVersion;
  header.page_size = static_cast<uint32_t>(config_.page_size);
  std::ranges::copy(config_.identity.bytes, header.identity);
  header.num_pages = static_cast<uint32_t>(run.size());
  std::ranges::copy(config_.data_bytes, header.data_bytes);
  header.file_bytes = file_bytes;
  std::string start(reinterpret_cast<const char*>(&header), sizeof(header));
  start.append(reinterpret_cast<const char*>(table.data()), table.size() * sizeof(TableEntry));
  const PageHash checksum = sha256(start);
  std::memcpy(start.data() + offsetof(FileHeader, checksum), checksum.bytes.data(), sizeof(header.checksum));

  make_room(static_cast<int64_t>(file_bytes));
  const fs::path path = path_of(run.front().page);
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  fs::path temporary = path;
  temporary.replace_extension("." + std::to_string(::getpid()) + "-" + std::to_string(num_temporary_++) +
                              std::string(kTemporaryExtension));
  const auto give_up = [&](int reason) {
    ::unlink(temporary.c_str());
    fail(ErrorCode::kOutOfMemory, path.string(), ": ", std::generic_category().message(reason), " (",
         file_bytes, " bytes)");
  };
  {
    const File file(temporary, O_CREAT | O_EXCL | O_WRONLY);
    if (!file.is_open()) give_up(errno);
    if (!file.write(start.data(), start.size())) give_up(errno);
    for (const StoredPage& page : run)
      for (size_t kind = 0; kind < kNumPageDataKinds; ++kind)
        if (page.data[kind] != nullptr && !file.write(page.data[kind], config_.data_bytes[kind]))
          give_up(errno);
    file.touch();
  }
  struct stat replaced = {};
  const bool replaces = ::stat(path.c_str(), &replaced) == 0;
  if (::rename(temporary.c_str(), path.c_str()) != 0) give_up(errno);
  num_bytes_ += static_cast<int64_t>(file_bytes) - (replaces ? replaced.st_size : 0);
  ++num_written_;
}

std::vector<FileStore::FilePage> FileStore::read_table(const fs::path& path) {
  const File file(path, O_RDONLY);
  if (!file.is_open()) {
    if (errno != ENOENT) reject(path, std::generic_category().message(errno), false);
    return {};
  }
  struct stat status = {};
  ::fstat(file.fd(), &status);
  FileHeader header;
  if (!file.read(&header, sizeof(header), 0)) {
    reject(path, "shorter than its header", true);
    return {};
  }
  if (!std::ranges::equal(header.magic, kMagic) || header.version != kVersion) {
    reject(path,
           "format version " + std::to_string(header.version) + ", expected " + std::to_string(kVersion),
           false);
    return {};
  }
  if (!std::ranges::equal(header.identity, config_.identity.bytes) ||
      header.page_size != static_cast<uint32_t>(config_.page_size) ||
      !std::ranges::equal(header.data_bytes, config_.data_bytes)) {
    reject(path, "of another model, dtype or layout", false);
    return {};
  }
  if (header.file_bytes != static_cast<uint64_t>(status.st_size) ||
      header.num_pages > header.file_bytes / sizeof(TableEntry)) {
    reject(path,
           std::to_string(status.st_size) + " bytes, expected " + std::to_string(header.file_bytes) +
               ": incomplete",
           true);
    return {};
  }
  std::string start(sizeof(header) + header.num_pages * sizeof(TableEntry), '\0');
  if (!file.read(start.data(), start.size(), 0)) {
    reject(path, "unreadable table of pages", true);
    return {};
  }
  std::memset(start.data() + offsetof(FileHeader, checksum), 0, sizeof(header.checksum));
  if (!std::ranges::equal(sha256(start).bytes, header.checksum)) {
    reject(path, "wrong checksum of its header", true);
    return {};
  }
  std::vector<FilePage> pages(header.num_pages);
  auto offset = static_cast<int64_t>(start.size());
  for (size_t i = 0; i < pages.size(); ++i) {
    TableEntry entry;
    std::memcpy(&entry, start.data() + sizeof(header) + i * sizeof(entry), sizeof(entry));
    std::ranges::copy(entry.page, pages[i].page.bytes.begin());
    Location& location = pages[i].location;
    location.file = path;
    location.mask = static_cast<PageDataMask>(entry.mask);
    for (size_t kind = 0; kind < kNumPageDataKinds; ++kind) {
      std::ranges::copy(entry.checksums[kind], location.checksums[kind].begin());
      location.offsets[kind] = offset;
      if ((entry.mask & mask_of(static_cast<PageDataKind>(kind))) != 0)
        offset += static_cast<int64_t>(config_.data_bytes[kind]);
    }
  }
  return pages;
}

std::vector<PageDataMask> FileStore::find(View<const PageHash> prefix, size_t num_known) {
  found_.clear();
  std::vector<PageDataMask> masks;
  for (const PageHash& page : prefix) {
    auto found = found_.find(page);
    // The file of this page may have data that the run of an earlier page does not have.
    if (found == found_.end() || found->second.mask != all_kinds_) {
      for (FilePage& each : read_table(path_of(page))) {
        Location& known = found_[each.page];
        if (known.mask == 0 || (known.mask | each.location.mask) == each.location.mask)
          known = std::move(each.location);
      }
      found = found_.find(page);
    }
    const PageDataMask mask = found == found_.end() ? PageDataMask{0} : found->second.mask;
    if (masks.size() >= num_known && (mask & mask_of(PageDataKind::kTokens)) == 0) break;
    masks.push_back(mask);
  }
  return masks;
}

size_t FileStore::read(std::span<const PageRead> reads) {
  std::unique_ptr<File> file;
  fs::path opened;
  for (size_t i = 0; i < reads.size(); ++i) {
    const auto found = found_.find(reads[i].page);
    if (found == found_.end() || (found->second.mask & mask_of(reads[i].kind)) == 0) return i;
    const Location& location = found->second;
    const auto kind = static_cast<size_t>(reads[i].kind);
    if (opened != location.file) {
      file = std::make_unique<File>(location.file, O_RDONLY);
      if (!file->is_open()) return i;  // evicted meanwhile
      file->touch();
      opened = location.file;
      ++num_read_;
    }
    if (!file->read(reads[i].to, config_.data_bytes[kind], location.offsets[kind])) {
      reject(location.file, errno == 0 ? "incomplete" : std::generic_category().message(errno), true);
      return i;
    }
    if (checksum_of(reads[i].to, config_.data_bytes[kind]) != location.checksums[kind]) {
      reject(location.file, "wrong checksum of the data of page " + reads[i].page.hex(), true);
      return i;
    }
  }
  return reads.size();
}

void FileStore::reject(const fs::path& path, std::string_view reason, bool is_damaged) {
  if (is_damaged) {
    std::error_code error;
    const auto num_bytes = static_cast<int64_t>(fs::file_size(path, error));
    if (!error && fs::remove(path, error)) num_bytes_ -= num_bytes;
  }
  if (!is_damaged && !rejected_.insert(path.string()).second) return;
  ++num_rejected_;
  log_warning(path.string(), ": ", reason, is_damaged ? "; removed" : "; ignored",
              ": its tokens will be computed again");
}

// Other servers write to the directory too, so the files are listed when it seems to be full.
void FileStore::make_room(int64_t num_bytes) {
  if (num_bytes > config_.max_bytes)
    fail(ErrorCode::kOutOfMemory, "a file of ", num_bytes, " bytes in ", config_.directory.string(),
         ", whose limit is ", config_.max_bytes, " bytes (raise --hicache-storage-size)");
  if (num_bytes > 0 && num_bytes_ + num_bytes <= config_.max_bytes) return;
  std::vector<StoredFile> files = list_files(config_.directory, kExtension);
  int64_t total = 0;
  for (const StoredFile& file : files) total += file.num_bytes;
  if (total + num_bytes > config_.max_bytes) {
    std::ranges::sort(files, {}, &StoredFile::time);
    // A tenth more than needed, so that the next files fit without listing the directory.
    const int64_t wanted = std::max<int64_t>(0, config_.max_bytes - config_.max_bytes / 10 - num_bytes);
    for (const StoredFile& file : files) {
      if (total <= wanted) break;
      std::error_code error;
      if (fs::remove(file.path, error)) ++num_evicted_;
      if (!error) total -= file.num_bytes;
    }
  }
  num_bytes_ = total;
}

void FileStore::clear() {
  found_.clear();
  for (const StoredFile& file : list_files(model_directory_, kExtension)) {
    std::error_code error;
    if (fs::remove(file.path, error)) num_bytes_ -= file.num_bytes;
  }
}

PageStoreStats FileStore::stats() const {
  return {.num_bytes = num_bytes_,
          .max_bytes = config_.max_bytes,
          .num_files_written = num_written_,
          .num_files_read = num_read_,
          .num_files_evicted = num_evicted_,
          .num_rejected_files = num_rejected_};
}

}  // namespace attend
