#include "kv/index_publication.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <utility>

#include "base/kernel_random.h"
#include "kv/one_sided_reader.h"

namespace hawser::kv {
namespace {

// Entries of the shard that one maintenance adds.
constexpr std::size_t filled_max = 4096;

static_assert(IndexPublication::rest > OneSidedReader::directory_age_max + std::chrono::seconds(20));

// Half as much memory for longer values as for cells.
IndexGeometry geometry_of(std::size_t buckets) noexcept {
  return {.buckets = buckets, .ring_bytes = buckets * IndexGeometry::bucket_bytes / 2};
}

std::uint64_t* header_word(MutableBytes memory, std::size_t word) noexcept {
  return reinterpret_cast<std::uint64_t*>(memory.data()) + word;
}

}  // namespace

// ---- IndexMemory ----

IndexMemory::IndexMemory(IndexMemory&& other) noexcept
    : file_(std::move(other.file_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

IndexMemory& IndexMemory::operator=(IndexMemory&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

IndexMemory::~IndexMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

IndexMemory IndexMemory::allocate(std::size_t bytes) {
  IndexMemory made;
  made.file_ = Descriptor(memfd_create("hawser-kv-index", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!made.file_.valid() || ftruncate(made.file_.get(), static_cast<off_t>(bytes)) != 0) return {};
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made.file_.get(), 0);
  if (mapped == MAP_FAILED) return {};
  made.data_ = static_cast<std::byte*>(mapped);
  made.bytes_ = bytes;
  // After the mapping above, nobody maps it to write. Kernels before 5.1 do not have that seal.
  if (fcntl(made.file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) return {};
  static_cast<void>(fcntl(made.file_.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE));
  return made;
}

// ---- IndexPublication ----

std::unique_ptr<IndexPublication> IndexPublication::make(Shard& shard, Loop& loop, const Server& server,
                                                         const IndexOptions& options) {
  std::unique_ptr<IndexPublication> made(new IndexPublication(shard, loop, server, options));
  made->generation_ = static_cast<std::uint32_t>(kernel_random());
  if (!made->publish()) return nullptr;
  shard.add_log(*made);
  return made;
}

IndexPublication::~IndexPublication() { shard_.remove_log(*this); }

// Half as many cells again as keys, if the memory suffices.
std::size_t IndexPublication::buckets_wanted() const noexcept {
  std::size_t wanted = std::bit_ceil(shard_.size() * 3 / 2 / IndexGeometry::bucket_cells + 1);
  wanted = std::max(wanted, options_.buckets_first);
  while (wanted > 1 && geometry_of(wanted).bytes() > options_.bytes_max) wanted /= 2;
  return wanted;
}

bool IndexPublication::publish() {
  const IndexGeometry geometry = geometry_of(buckets_wanted());
  Published made;
  made.memory = IndexMemory::allocate(geometry.bytes());
  if (made.memory.bytes().empty()) return false;
  Result<RegisteredBuffer> buffer = RegisteredBuffer::wrap(server_, made.memory.bytes());
  if (!buffer) return false;
  made.buffer = std::move(*buffer);
  Result<ExposedRegion> region = made.buffer.expose(0, geometry.bytes(), RegionAccess::read);
  if (!region) return false;
  made.region = std::move(*region);
  if (++generation_ == 0) ++generation_;  // Free cells have 0.
  made.index = std::make_unique<RemoteIndex>(made.memory.bytes(), geometry, generation_);
  made.identity = kernel_random();
  __atomic_store_n(header_word(made.memory.bytes(), IndexHeader::identity_word), made.identity, __ATOMIC_RELAXED);
  if (live_.index != nullptr) {
    live_.index->clear();
    live_.retired = loop_.now();
    retired_.push_back(std::move(live_));
  }
  live_ = std::move(made);
  extend_lease();
  filling_ = shard_.size() != 0;
  fill_cursor_ = 0;
  return true;
}

void IndexPublication::extend_lease() noexcept {
  const auto until = std::chrono::steady_clock::now().time_since_epoch() + lease;
  __atomic_store_n(header_word(live_.memory.bytes(), IndexHeader::valid_until_word),
                   static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(until).count()),
                   __ATOMIC_RELAXED);
}

Bytes IndexPublication::memory_of(const RemoteRegion& region) const noexcept {
  if (live_.region.handle() == region) return live_.memory.bytes();
  for (const Published& one : retired_) {
    if (one.region.handle() == region) return one.memory.bytes();
  }
  return {};
}

void IndexPublication::add(const Key& key, Entry& entry) {
  const std::uint64_t index_hash = hash(key);
  if (entry.expires_at != 0 || live_.index->contains(key.bytes, index_hash)) return;
  live_.index->put(key.bytes, index_hash, entry.value(), entry.version);
}

void IndexPublication::maintain(std::int64_t now) {
  extend_lease();
  while (!retired_.empty() && retired_.front().retired + rest <= loop_.now()) retired_.pop_front();
  std::size_t retired_bytes = live_.memory.bytes().size();
  for (const Published& one : retired_) retired_bytes += one.memory.bytes().size();
  const bool full = shard_.size() > live_.index->geometry().cells() / 4 * 3;
  if (full && buckets_wanted() > live_.index->geometry().buckets && retired_bytes <= options_.bytes_max) {
    static_cast<void>(publish());
  }
  for (std::size_t filled = 0; filling_ && filled < filled_max; ++filled) {
    fill_cursor_ = shard_.scan(fill_cursor_, now, [&](Entry& entry) {
      add({entry.key(), entry.hash}, entry);
      ++filled;
    });
    filling_ = fill_cursor_ != 0;
  }
}

void IndexPublication::on_set(const Key& key, std::string_view value, std::int64_t expires_at, std::uint64_t version) {
  // The clocks of clients may differ, so an entry that expires is read by calls.
  if (expires_at != 0) return on_remove(key);
  live_.index->put(key.bytes, hash(key), value, version);
}

void IndexPublication::on_expiry(const Key& key, std::int64_t) { on_remove(key); }

void IndexPublication::on_remove(const Key& key) { live_.index->remove(key.bytes, hash(key)); }

void IndexPublication::on_clear() { live_.index->clear(); }

}  // namespace hawser::kv
