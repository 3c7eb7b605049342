// Copies a file from another machine: several connections, blocks that are sent from the mapped file and written from
// the memory in which they arrive, a checksum for each block, a progress bar, and resumption after an interruption.
//   file_transfer                             tries itself with a file of 64 MiB
//   file_transfer serve ADDRESS FOLDER        serves the files of a folder, for example at 0.0.0.0:9000
//   file_transfer get ADDRESS NAME TARGET     copies one of them
// A served file must not change or shrink while it is served: publish a new version by renaming it over the old one.
#include <fcntl.h>
#include <hawser/crc32c.h>
#include <hawser/hawser.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace file_transfer {

using namespace std::chrono_literals;

constexpr std::size_t block_bytes = std::size_t{1} << 20;
constexpr int connections = 2;       // Each with a thread and a loop of its own.
constexpr int blocks_in_flight = 6;  // For each connection.
constexpr int attempts_max = 5;      // For each block.
constexpr std::size_t files_open_max = 64;

hawser::Error file_error(const std::string& path) {
  return hawser::Error::application(errno, path + ": " + std::strerror(errno));
}

// A file that is mapped into memory.
class MappedFile {
 public:
  // Opens a file for reading.
  static hawser::Result<std::shared_ptr<MappedFile>> open(const std::string& path) {
    // O_NONBLOCK: opening a named pipe would wait for its writer.
    return map(path, ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK), PROT_READ, std::nullopt);
  }
  // Opens a file for writing, or creates it, and gives it this size.
  static hawser::Result<std::shared_ptr<MappedFile>> create(const std::string& path, std::size_t bytes) {
    return map(path, ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644), PROT_READ | PROT_WRITE, bytes);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    if (bytes_ != 0) munmap(data_, bytes_);
    ::close(descriptor_);
  }

  hawser::MutableBytes bytes() const { return {static_cast<std::byte*>(data_), bytes_}; }
  // Changes when another file gets the same name.
  std::uint64_t version() const { return version_; }
  std::size_t blocks() const { return (bytes_ + block_bytes - 1) / block_bytes; }
  hawser::MutableBytes block(std::size_t index) const {
    const std::size_t offset = index * block_bytes;
    return bytes().subspan(offset, std::min(block_bytes, bytes_ - offset));
  }
  // The checksum of a block, which is computed once. Any thread.
  std::uint32_t checksum(std::size_t index) const {
    constexpr std::uint64_t known = std::uint64_t{1} << 32;
    std::atomic<std::uint64_t>& kept = checksums_[index];
    if (kept == 0) kept = known | hawser::crc32c(block(index));
    return static_cast<std::uint32_t>(kept);
  }

 private:
  MappedFile() = default;

  static hawser::Result<std::shared_ptr<MappedFile>> map(const std::string& path, int descriptor, int protection,
                                                         std::optional<std::size_t> resize) {
    if (descriptor < 0) return std::unexpected(file_error(path));
    std::shared_ptr<MappedFile> file(new MappedFile);
    file->descriptor_ = descriptor;
    if (resize && ftruncate(descriptor, static_cast<off_t>(*resize)) != 0) return std::unexpected(file_error(path));
    struct stat about = {};
    if (fstat(descriptor, &about) != 0) return std::unexpected(file_error(path));
    if (!S_ISREG(about.st_mode)) return std::unexpected(hawser::Error::application(EINVAL, path + " is not a file"));
    file->version_ = static_cast<std::uint64_t>(about.st_mtim.tv_sec) * 1'000'000'000U +
                     static_cast<std::uint64_t>(about.st_mtim.tv_nsec) + about.st_ino;
    if (about.st_size == 0) return file;
    void* const data = mmap(nullptr, static_cast<std::size_t>(about.st_size), protection, MAP_SHARED, descriptor, 0);
    if (data == MAP_FAILED) return std::unexpected(file_error(path));
    file->data_ = data;
    file->bytes_ = static_cast<std::size_t>(about.st_size);
    file->checksums_ = std::vector<std::atomic<std::uint64_t>>(file->blocks());
    return file;
  }

  int descriptor_ = -1;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint64_t version_ = 0;
  mutable std::vector<std::atomic<std::uint64_t>> checksums_;
};

// The file that a transfer writes. It is not mapped: the system would fill each new page with zeros before a block is
// copied there, which takes as long as the copy, and a full disk would end the process instead of causing an error.
class TargetFile {
 public:
  // Opens a file or creates it, and gives it this size. Blocks that were written before stay.
  static hawser::Result<std::unique_ptr<TargetFile>> open(const std::string& path, std::size_t bytes) {
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor < 0) return std::unexpected(file_error(path));
    std::unique_ptr<TargetFile> file(new TargetFile(path, descriptor, bytes));
    if (ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) return std::unexpected(file_error(path));
    return file;
  }
  TargetFile(const TargetFile&) = delete;
  TargetFile& operator=(const TargetFile&) = delete;
  ~TargetFile() { ::close(descriptor_); }

  std::size_t blocks() const { return (bytes_ + block_bytes - 1) / block_bytes; }
  std::size_t size_of(std::size_t block) const { return std::min(block_bytes, bytes_ - block * block_bytes); }
  hawser::Result<void> write(std::size_t block, hawser::Bytes bytes) const {
    for (std::size_t at = 0; at < bytes.size();) {
      const ssize_t wrote =
          pwrite(descriptor_, bytes.data() + at, bytes.size() - at, static_cast<off_t>(block * block_bytes + at));
      if (wrote < 0 && errno != EINTR) return std::unexpected(file_error(path_));
      if (wrote > 0) at += static_cast<std::size_t>(wrote);
    }
    return {};
  }
  // The checksum of a block that was written before. Empty if it cannot be read.
  std::optional<std::uint32_t> checksum(std::size_t block) const {
    std::vector<std::byte> bytes(size_of(block));
    const ssize_t got = pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(block * block_bytes));
    if (got != static_cast<ssize_t>(bytes.size())) return std::nullopt;
    return hawser::crc32c(bytes);
  }
  // Writes everything to the disk.
  hawser::Result<void> sync() const {
    if (fsync(descriptor_) != 0) return std::unexpected(file_error(path_));
    return {};
  }

 private:
  TargetFile(std::string path, int descriptor, std::size_t bytes)
      : path_(std::move(path)), descriptor_(descriptor), bytes_(bytes) {}

  const std::string path_;
  const int descriptor_;
  const std::size_t bytes_;
};

// A block takes longer than a wake-up, so no loop spins: the processors are for copying.
hawser::LoopOptions loop_options() {
  hawser::LoopOptions options;
  options.wait = hawser::Wait::event;
  return options;
}

// ---- The server ----

struct FileInfo {
  std::uint64_t bytes = 0;
  std::uint64_t version = 0;
};

// The files of a folder. Its handlers run on several threads.
class Folder {
 public:
  explicit Folder(std::string path) : path_(std::move(path)) {}

  hawser::Result<FileInfo> describe(const std::string& name) {
    auto file = find(name, true);
    if (!file) return std::unexpected(file.error());
    return FileInfo{(*file)->bytes().size(), (*file)->version()};
  }

  // Returns a block of the file, which is sent from the file's pages without a copy. Its checksum is in the metadata.
  hawser::Result<std::span<const std::byte>> read(hawser::Context& context, const std::string& name,
                                                  std::uint64_t version, std::uint64_t block) {
    auto file = find(name, false);
    if (!file) return std::unexpected(file.error());
    if ((*file)->version() != version) {
      return std::unexpected(hawser::Error::application(ESTALE, name + " has changed: start again"));
    }
    if (block >= (*file)->blocks()) {
      return std::unexpected(hawser::Error::application(EINVAL, name + " has no block " + std::to_string(block)));
    }
    context.add_metadata("crc32c", std::to_string((*file)->checksum(block)));
    return (*file)->block(block);
  }

 private:
  // Opens a file, or returns the open one. `again`: looks whether another file has the name now. Files stay mapped,
  // since replies may still be sent from them.
  hawser::Result<std::shared_ptr<MappedFile>> find(const std::string& name, bool again) {
    // A name ends at its first zero byte for the system, so that many names would open the same file.
    if (name.empty() || name.front() == '.' || name.find_first_of(std::string_view("/\0", 2)) != std::string::npos) {
      return std::unexpected(
          hawser::Error::application(EINVAL, "'" + name + "' is not the name of a file in this folder"));
    }
    const std::scoped_lock lock(lock_);
    std::vector<std::shared_ptr<MappedFile>>& versions = files_[name];
    if (!again && !versions.empty()) return versions.back();
    auto opened = MappedFile::open(path_ + "/" + name);
    if (!opened) {
      if (versions.empty()) files_.erase(name);
      return opened;
    }
    if (!versions.empty() && versions.back()->version() == (*opened)->version()) return versions.back();
    if (++files_open_ > files_open_max) {
      return std::unexpected(hawser::Error::application(ENFILE, "64 files are open: restart the server"));
    }
    versions.push_back(*opened);
    return opened;
  }

  const std::string path_;
  std::mutex lock_;
  std::map<std::string, std::vector<std::shared_ptr<MappedFile>>> files_;
  std::size_t files_open_ = 0;
};

// ---- The client ----

// The state of a transfer, in the file TARGET.blocks: which blocks have arrived, with their checksums.
struct BlockState {
  std::uint32_t done = 0;
  std::uint32_t crc = 0;
};
struct TransferHeader {
  std::uint64_t bytes = 0;
  std::uint64_t version = 0;
};

class Transfer {
 public:
  Transfer(std::string address, std::string name, std::string target)
      : address_(std::move(address)), name_(std::move(name)), target_(std::move(target)) {}

  // Stops after this number of blocks, as an interruption does. For the example's own test.
  void interrupt_after(std::size_t blocks) { blocks_left_ = static_cast<std::ptrdiff_t>(blocks); }
  std::size_t blocks_received() const { return received_; }
  std::size_t blocks_resumed() const { return resumed_; }
  // A block that has arrived.
  std::size_t first_block() const {
    std::size_t block = 0;
    while (block < blocks() && block_state(block).done == 0) ++block;
    return block;
  }

  hawser::Result<void> run() {
    if (auto prepared = hawser::sync_wait(prepare()); !prepared) return prepared;
    std::vector<hawser::Result<void>> outcomes(connections);
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < connections; ++i) {
        threads.emplace_back(
            [this, &outcome = outcomes[static_cast<std::size_t>(i)]] { outcome = hawser::sync_wait(receive()); });
      }
      while (!finished()) {
        std::this_thread::sleep_for(20ms);
        show_progress();
      }
    }
    for (const hawser::Result<void>& outcome : outcomes) {
      if (!outcome) return outcome;
    }
    if (blocks_left_ <= 0) return std::unexpected(hawser::Error::application(EINTR, "interrupted"));
    return complete();
  }

 private:
  std::size_t blocks() const { return part_->blocks(); }
  bool finished() const { return workers_ended_ == connections; }
  std::string part_path() const { return target_ + ".part"; }
  std::string state_path() const { return target_ + ".blocks"; }

  // Asks for the file's size and opens the target. Keeps the blocks of an earlier attempt that are intact.
  hawser::Task<hawser::Result<void>> prepare() {
    hawser::Client client;
    client.enable_shm();
    if (auto connected = co_await client.connect(address_); !connected) co_return connected;
    hawser::Result<FileInfo> info = co_await client.call<&Folder::describe>(name_);
    if (!info) co_return std::unexpected(info.error());
    info_ = *info;
    auto part = TargetFile::open(part_path(), info_.bytes);
    if (!part) co_return std::unexpected(part.error());
    part_ = std::move(*part);
    auto state = MappedFile::create(state_path(), sizeof(TransferHeader) + blocks() * sizeof(BlockState));
    if (!state) co_return std::unexpected(state.error());
    state_ = *state;
    TransferHeader header;
    std::memcpy(&header, state_->bytes().data(), sizeof header);
    if (header.bytes != info_.bytes || header.version != info_.version) {
      std::memset(state_->bytes().data(), 0, state_->bytes().size());
      header = {info_.bytes, info_.version};
      std::memcpy(state_->bytes().data(), &header, sizeof header);
    }
    for (std::size_t block = 0; block < blocks(); ++block) {
      BlockState& state_of_block = block_state(block);
      if (state_of_block.done != 0 && part_->checksum(block) == state_of_block.crc) {
        ++resumed_;
      } else {
        state_of_block.done = 0;
      }
    }
    co_return hawser::Result<void>{};
  }

  // The blocks of one connection, on a thread and a loop of its own.
  hawser::Task<hawser::Result<void>> receive() {
    hawser::Client client;
    client.enable_shm();
    std::vector<hawser::Task<hawser::Result<void>>> lanes;
    for (int i = 0; i < blocks_in_flight; ++i) lanes.push_back(receive_blocks(client));
    std::vector<hawser::Result<void>> outcomes = co_await hawser::when_all(std::move(lanes));
    ++workers_ended_;
    for (hawser::Result<void>& outcome : outcomes) {
      if (!outcome) co_return outcome;
    }
    co_return hawser::Result<void>{};
  }

  hawser::Task<hawser::Result<void>> receive_blocks(hawser::Client& client) {
    for (;;) {
      const std::size_t block = next_block_++;
      if (block >= blocks()) co_return hawser::Result<void>{};
      if (block_state(block).done != 0) continue;
      if (blocks_left_-- <= 0) co_return hawser::Result<void>{};
      hawser::Result<void> received = co_await receive_block(client, block);
      if (!received) {
        next_block_ = blocks();  // The other lanes end, too.
        co_return received;
      }
      ++received_;
    }
  }

  hawser::Task<hawser::Result<void>> receive_block(hawser::Client& client, std::size_t block) {
    for (int attempt = 1;; ++attempt) {
      hawser::Result<void> outcome = co_await client.connect(address_);  // At once while there is a connection.
      if (outcome) {
        auto reply = co_await client.call<&Folder::read>(name_, info_.version, std::uint64_t{block}).reply();
        if (reply) {
          outcome = keep(block, *reply);
        } else {
          outcome = std::unexpected(reply.error());
        }
      }
      if (outcome) co_return outcome;
      // An error of the server's file is final. Reading is idempotent, so everything else is tried again.
      if (outcome.error().code == hawser::ErrorCode::application || attempt == attempts_max) co_return outcome;
      co_await hawser::Loop::current()->sleep(attempt * 100ms);
    }
  }

  // Checks a block, writes it from the memory in which it has arrived, and notes that it is there.
  hawser::Result<void> keep(std::size_t block, const hawser::Reply<std::span<const std::byte>>& reply) {
    const hawser::Bytes bytes = *reply;
    if (bytes.size() != part_->size_of(block)) {
      return hawser::fail(hawser::ErrorCode::protocol_error, "the server sent a block of another length");
    }
    const std::string expected(reply.metadata().find("crc32c").value_or(""));
    const std::uint32_t crc = hawser::crc32c(bytes);
    if (expected != std::to_string(crc)) {
      return hawser::fail(hawser::ErrorCode::protocol_error, "the checksum of a block is wrong");
    }
    if (auto written = part_->write(block, bytes); !written) return written;
    block_state(block) = {1, crc};
    return {};
  }

  hawser::Result<void> complete() {
    show_progress();
    if (isatty(STDERR_FILENO)) std::fputc('\n', stderr);
    if (auto synced = part_->sync(); !synced) return synced;
    if (std::rename(part_path().c_str(), target_.c_str()) != 0) return std::unexpected(file_error(target_));
    unlink(state_path().c_str());
    return {};
  }

  void show_progress() const {
    if (!isatty(STDERR_FILENO) || blocks() == 0) return;
    const std::size_t done = received_ + resumed_;
    const std::size_t width = 40 * done / blocks();
    std::fprintf(stderr, "\r[%-40s] %zu of %llu MiB", std::string(width, '#').c_str(), done * block_bytes >> 20,
                 static_cast<unsigned long long>((info_.bytes + (1 << 20) - 1) >> 20));
  }

  BlockState& block_state(std::size_t block) const {
    return reinterpret_cast<BlockState*>(state_->bytes().data() + sizeof(TransferHeader))[block];
  }

  const std::string address_;
  const std::string name_;
  const std::string target_;
  FileInfo info_;
  std::unique_ptr<TargetFile> part_;
  std::shared_ptr<MappedFile> state_;
  std::atomic<std::size_t> next_block_ = 0;
  std::atomic<std::size_t> received_ = 0;
  std::atomic<std::ptrdiff_t> blocks_left_ = PTRDIFF_MAX / 2;
  std::atomic<int> workers_ended_ = 0;
  std::size_t resumed_ = 0;
};

// ---- The program ----

int report(const hawser::Error& error) {
  std::fprintf(stderr, "%s\n", error.describe().c_str());
  return 1;
}

hawser::ServerOptions server_options(std::string address) {
  hawser::ServerOptions options;
  options.listen = std::move(address);
  options.threads = connections;
  options.loop = loop_options();
  return options;
}

int get(const std::string& address, const std::string& name, const std::string& target) {
  Transfer transfer(address, name, target);
  const auto begin = std::chrono::steady_clock::now();
  if (auto done = transfer.run(); !done) return report(done.error());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const double megabytes = static_cast<double>(transfer.blocks_received() * block_bytes) / 1e6;
  std::printf("%.0f MB in %.3f s: %.0f MB/s\n", megabytes, took.count(), megabytes / took.count());
  return 0;
}

int serve(std::string address, const std::string& path) {
  Folder folder(path);
  hawser::Server server(server_options(std::move(address)));
  server.enable_shm();
  server.register_handler<&Folder::describe, &Folder::read>(&folder);
  const auto served = server.run();
  return served ? 0 : report(served.error());
}

// Interrupts a transfer, damages a block that has arrived, resumes the transfer, and compares the files.
int try_it() {
  const std::filesystem::path scratch =
      std::filesystem::temp_directory_path() / ("hawser-transfer-" + std::to_string(getpid()));
  std::filesystem::create_directories(scratch);
  const std::string source = scratch / "source";
  const std::string target = scratch / "target";
  constexpr std::size_t bytes = (std::size_t{64} << 20) - 12345;
  {
    const auto file = MappedFile::create(source, bytes);
    if (!file) return report(file.error());
    std::uint64_t state = 1;
    for (std::byte& byte : (*file)->bytes()) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      byte = static_cast<std::byte>(state >> 56);
    }
  }
  Folder folder(scratch);
  hawser::Server server(server_options("127.0.0.1:0"));
  server.enable_shm();
  server.register_handler<&Folder::describe, &Folder::read>(&folder);
  if (auto started = server.start(); !started) return report(started.error());

  Transfer first(server.address(), "source", target);
  first.interrupt_after(5);
  const bool interrupted = !first.run() && first.blocks_received() == 5 && !std::filesystem::exists(target);
  {
    const auto part = MappedFile::create(target + ".part", bytes);
    if (!part) return report(part.error());
    (*part)->block(first.first_block())[1000] ^= std::byte{1};
  }
  Transfer second(server.address(), "source", target);
  const auto done = second.run();
  if (!done) return report(done.error());
  const bool resumed = second.blocks_resumed() == 4 && second.blocks_received() == 60;

  const auto want = MappedFile::open(source);
  const auto have = MappedFile::open(target);
  const bool same = want && have && std::ranges::equal((*want)->bytes(), (*have)->bytes());
  Transfer missing(server.address(), "../secret", target);
  Transfer cut_name(server.address(), std::string("source\0x", 8), target);
  Transfer unreachable("127.0.0.1:1", "source", target);
  const bool refused = !missing.run() && !cut_name.run() && !unreachable.run();
  // An empty file, after an interrupted transfer of a longer one.
  std::filesystem::copy_file(source, target + ".part", std::filesystem::copy_options::overwrite_existing);
  static_cast<void>(MappedFile::create(scratch / "empty", 0));
  const bool empty = Transfer(server.address(), "empty", target).run() && std::filesystem::file_size(target) == 0;
  std::error_code ignored;
  std::filesystem::remove_all(scratch, ignored);
  std::printf("interrupted: %d, resumed: %d, same: %d, refused: %d, empty: %d\n", interrupted, resumed, same, refused,
              empty);
  return interrupted && resumed && same && refused && empty ? 0 : 1;
}

}  // namespace file_transfer

int main(int argc, char** argv) {
  using namespace file_transfer;
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "serve" && argc == 4) return serve(argv[2], argv[3]);
  if (command == "get" && argc == 5) return get(argv[2], argv[3], argv[4]);
  if (argc == 1) return try_it();
  std::fprintf(stderr, "usage: %s [serve ADDRESS FOLDER | get ADDRESS NAME TARGET]\n", argv[0]);
  return 2;
}
