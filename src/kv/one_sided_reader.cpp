#include "kv/one_sided_reader.h"

#include <array>
#include <chrono>
#include <utility>

#include "os/sealed_mapping.h"

namespace hawser::kv {
namespace {

// Time between two calls for the directory, after one that failed or that named no index.
constexpr Duration directory_interval = std::chrono::seconds(1);
constexpr Duration directory_interval_short = std::chrono::milliseconds(1);
constexpr Duration read_timeout = std::chrono::seconds(5);
// Values of the ring that are read at the same time.
constexpr std::size_t large_parts = 8;

}  // namespace

// The index of a server on this machine.
class OneSidedReader::Mapping {
 public:
  // Null if the file is not what the directory says, or is not accessible.
  static std::shared_ptr<Mapping> open(std::int32_t process, const ShardIndex& index, const IndexGeometry& geometry) {
    std::unique_ptr<const SealedMapping> mapped = SealedMapping::open(process, index.descriptor, geometry.bytes());
    if (mapped == nullptr) return nullptr;
    std::shared_ptr<Mapping> made(new Mapping(std::move(mapped)));
    if (made->word(IndexHeader::identity_word) != index.identity) return nullptr;
    return made;
  }

  const std::uint64_t* at(std::uint64_t offset) const noexcept { return words_ + offset / 8; }
  std::uint64_t word(std::size_t index) const noexcept { return __atomic_load_n(words_ + index, __ATOMIC_RELAXED); }
  // True if the memory was still the owner's when the reads before this call were made. The reads of the next find()
  // come behind those before this call.
  bool valid() const noexcept {
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()) <
           word(IndexHeader::valid_until_word);
  }

 private:
  explicit Mapping(std::unique_ptr<const SealedMapping> mapped) noexcept
      : mapped_(std::move(mapped)), words_(reinterpret_cast<const std::uint64_t*>(mapped_->data())) {}
  std::unique_ptr<const SealedMapping> mapped_;
  const std::uint64_t* words_;
};

// A piece of local memory for one read.
class OneSidedReader::Part {
 public:
  // `bytes` is not 0.
  Part(std::shared_ptr<Parts> parts, std::size_t bytes) : parts_(std::move(parts)) {
    if (parts_ == nullptr || parts_->free.empty()) return;
    offset_ = parts_->free.back();
    parts_->free.pop_back();
    memory_ = parts_->buffer.memory().subspan(offset_, bytes);
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  ~Part() {
    if (memory_.empty()) return;
    if (lost_) {
      parts_->lost = true;
    } else {
      parts_->free.push_back(offset_);
    }
  }
  MutableBytes memory() const noexcept { return memory_; }
  // A read begins. Unless ended() is called, a device may still write here later, so the part is not used again.
  void begun() noexcept { lost_ = true; }
  void ended() noexcept { lost_ = false; }

 private:
  std::shared_ptr<Parts> parts_;
  std::size_t offset_ = 0;
  MutableBytes memory_;
  bool lost_ = false;
};

OneSidedReader::OneSidedReader(Client& link, ReaderOptions options) : link_(link), options_(std::move(options)) {}

OneSidedReader::~OneSidedReader() = default;

bool OneSidedReader::by_memory() const {
  return options_.by == ReadBy::memory || options_.read_memory != nullptr ||
         RemoteMemory(link_).capabilities().one_sided;
}

bool OneSidedReader::due() noexcept { return options_.calls_every != 0 && ++reads_ % options_.calls_every == 0; }

void OneSidedReader::forget() noexcept {
  shards_.clear();
  not_before_ = {};
}

void OneSidedReader::on_reply(std::string_view key, std::uint32_t generation) noexcept {
  if (shards_.empty() || shard(hash(key)).index.generation == generation) return;
  shards_.clear();
}

std::vector<OneSidedReader::ReadShard> OneSidedReader::check(const Directory& directory, bool map) {
  std::vector<ReadShard> shards;
  if (directory.shards.size() > shards_max) return {};
  for (const ShardIndex& index : directory.shards) {
    ReadShard made{
        .index = index, .geometry = {.buckets = index.buckets, .ring_bytes = index.ring_bytes}, .mapping = {}};
    if (index.generation == 0 || !made.geometry.valid() || made.geometry.bytes() > index.region.bytes) return {};
    if (map) {
      made.mapping = Mapping::open(directory.process, index, made.geometry);
      if (made.mapping == nullptr) return {};
    }
    shards.push_back(std::move(made));
  }
  return shards;
}

bool OneSidedReader::accept(const Directory& directory) {
  shards_ = check(directory, options_.by == ReadBy::automatic && !by_memory());
  secret_ = {directory.secret_first, directory.secret_second};
  ++directory_number_;
  return !shards_.empty();
}

Task<void> OneSidedReader::obtain() {
  struct Obtaining {
    explicit Obtaining(bool& set) noexcept : flag(set) { flag = true; }
    ~Obtaining() { flag = false; }
    Obtaining(const Obtaining&) = delete;
    Obtaining& operator=(const Obtaining&) = delete;
    bool& flag;
  };
  const Obtaining obtaining(obtaining_);
  Loop& loop = *Loop::current();
  ++counters_.directories;
  const Time began = loop.now();
  const Result<Directory> directory = co_await link_.call<&Service::directory>();
  const bool accepted = directory && accept(*directory);
  expires_ = began + directory_age_max;
  refusal_ = directory ? std::string() : directory.error().text;
  const bool refused = !directory && directory.error().code == ErrorCode::permission_denied;
  not_before_ = loop.after(accepted ? directory_interval_short : refused ? directory_age_max : directory_interval);
}

// Makes the local memory of reads, and replaces memory of which a part was lost. Devices that still use such a part
// keep its memory.
void OneSidedReader::renew_parts(Loop& loop) {
  const bool first = small_ == nullptr;
  if (!first && ((!small_->lost && !large_->lost) || loop.now() < parts_not_before_)) return;
  parts_not_before_ = loop.after(directory_interval);
  if (first || small_->lost) small_ = allocate(reads_max, IndexGeometry::candidate_bytes);
  if (first || large_->lost) large_ = allocate(large_parts, IndexGeometry::value_bytes_max);
}

std::shared_ptr<OneSidedReader::Parts> OneSidedReader::allocate(std::size_t parts, std::size_t bytes) {
  std::shared_ptr<Parts> made = std::make_shared<Parts>();
  Result<RegisteredBuffer> buffer = RegisteredBuffer::allocate(link_, parts * bytes);
  made->lost = !buffer;
  if (!buffer) return made;
  made->buffer = std::move(*buffer);
  for (std::size_t i = parts; i-- > 0;) made->free.push_back(i * bytes);
  return made;
}

std::optional<Value> OneSidedReader::find(std::string_view key) {
  if (shards_.empty() || key.size() > cell_payload_max) return std::nullopt;
  const std::uint64_t key_hash = hash(key);
  const ReadShard& from = shard(key_hash);
  if (from.mapping == nullptr || due()) return std::nullopt;
  const Mapping& mapping = *from.mapping;
  const std::uint64_t* const cells = mapping.at(from.geometry.candidates_offset(key_hash));
  constexpr std::size_t words = IndexGeometry::cell_bytes / 8;
  const CellWanted wanted{
      .key = key, .hash = key_hash, .generation = from.index.generation, .verify = options_.verify_crc};
  const std::size_t first = IndexGeometry::first_candidate(key_hash);
  for (std::size_t i = 0; i < IndexGeometry::candidates; ++i) {
    const std::uint64_t* const cell = cells + (first + i) % IndexGeometry::candidates * words;
    if (__atomic_load_n(cell + offsetof(CellHead, hash) / 8, __ATOMIC_RELAXED) != key_hash) continue;
    std::array<std::uint64_t, words> copy;
    copy_from_shared(copy.data(), cell, words);
    const std::optional<CellFound> found = parse_cell(std::as_bytes(std::span(copy)), wanted);
    if (!found) continue;
    Value value{.bytes = std::string(found->value), .version = found->version};
    if (found->outside) {
      const RingPlace& place = *found->outside;
      const std::size_t value_words = (found->value_bytes + 7) / 8;
      if (place.offset % 8 != 0 || place.offset > from.geometry.bytes() ||
          value_words * 8 > from.geometry.bytes() - place.offset) {
        break;
      }
      value.bytes.resize(value_words * 8);
      const std::uint64_t* const source = mapping.at(place.offset);
      for (std::size_t word = 0; word < value_words; ++word) {
        const std::uint64_t bytes = __atomic_load_n(source + word, __ATOMIC_RELAXED);
        std::memcpy(value.bytes.data() + word * 8, &bytes, 8);
      }
      value.bytes.resize(found->value_bytes);
      if (crc32c(as_bytes(value.bytes)) != place.crc && options_.verify_crc) break;
    }
    if (!mapping.valid()) break;
    ++counters_.found;
    return value;
  }
  ++counters_.absent;
  return std::nullopt;
}

Task<bool> OneSidedReader::access(RemoteRegion region, std::uint64_t offset, Part& into) {
  const std::uint64_t number = directory_number_;
  Result<void> outcome;
  into.begun();
  if (options_.read_memory) {
    outcome = co_await options_.read_memory(region, offset, into.memory());
  } else {
    outcome = co_await RemoteMemory(link_).read(region, offset, into.memory(), {.timeout = read_timeout});
  }
  if (outcome) {
    into.ended();
    co_return true;
  }
  ++counters_.failed;
  const ErrorCode code = outcome.error().code;
  // Nothing has begun then.
  if (code == ErrorCode::overloaded || code == ErrorCode::not_sent) into.ended();
  // A region that is exposed no more: the call that follows reaches the server, and the next read asks it again.
  if (number == directory_number_ && code != ErrorCode::overloaded) shards_.clear();
  co_return false;
}

Task<std::optional<Value>> OneSidedReader::read(std::string_view given) {
  const std::string key(given);
  Loop& loop = *Loop::current();
  // A device would end the connection of a read of memory that is not exposed any more.
  if (!shards_.empty() && !mapped() && loop.now() >= expires_) shards_.clear();
  if (shards_.empty()) {
    // A signed or sealed path of RDMA has no one-sided access. The server says so.
    const bool path = link_.transport() == "shm" || link_.transport() == "rdma";
    const bool possible = by_memory() || (options_.by == ReadBy::automatic && path);
    if (!possible || obtaining_ || loop.now() < not_before_) co_return std::nullopt;
    co_await obtain();
    if (mapped()) co_return find(key);
  }
  if (shards_.empty() || mapped() || key.size() > cell_payload_max || due()) co_return std::nullopt;
  renew_parts(loop);
  const std::uint64_t key_hash = hash(key);
  const ReadShard from = shard(key_hash);
  Part part(small_, IndexGeometry::candidate_bytes);
  if (part.memory().empty()) co_return std::nullopt;
  const bool read = co_await access(from.index.region, from.geometry.candidates_offset(key_hash), part);
  if (!read) co_return std::nullopt;
  const CellWanted wanted{
      .key = key, .hash = key_hash, .generation = from.index.generation, .verify = options_.verify_crc};
  for (std::size_t i = 0; i < IndexGeometry::candidates; ++i) {
    // A copy: whatever a device writes later does not change what is checked.
    std::array<std::byte, IndexGeometry::cell_bytes> cell;
    std::memcpy(cell.data(), part.memory().data() + i * cell.size(), cell.size());
    const std::optional<CellFound> found = parse_cell(cell, wanted);
    if (!found) continue;
    if (!found->outside) {
      ++counters_.found;
      Value value{.bytes = std::string(found->value), .version = found->version};
      co_return value;
    }
    const RingPlace place = *found->outside;
    // An owner has no empty values in the ring.
    if (found->value_bytes == 0 || place.offset > from.geometry.bytes() ||
        found->value_bytes > from.geometry.bytes() - place.offset) {
      break;
    }
    Part large(large_, found->value_bytes);
    if (large.memory().empty()) break;
    const bool value_read = co_await access(from.index.region, place.offset, large);
    if (!value_read) co_return std::nullopt;
    Value value{.bytes = std::string(reinterpret_cast<const char*>(large.memory().data()), large.memory().size()),
                .version = found->version};
    if (options_.verify_crc && crc32c(as_bytes(value.bytes)) != place.crc) break;
    ++counters_.found;
    co_return value;
  }
  ++counters_.absent;
  co_return std::nullopt;
}

}  // namespace hawser::kv
