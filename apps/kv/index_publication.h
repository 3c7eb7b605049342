#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "base/descriptor.h"
#include "hawser/loop.h"
#include "hawser/memory.h"
#include "hawser/server.h"
#include "kv/engine/remote_index.h"
#include "kv/engine/shard.h"
#include "kv/key_hash.h"

namespace hawser::kv {

// Memory of an index: a file without a name, which processes of this machine can map to read it and nobody can shrink.
class IndexMemory {
 public:
  IndexMemory() noexcept = default;
  IndexMemory(IndexMemory&& other) noexcept;
  IndexMemory& operator=(IndexMemory&& other) noexcept;
  ~IndexMemory();

  // Zeroed. Empty if there is no memory.
  static IndexMemory allocate(std::size_t bytes);
  MutableBytes bytes() const noexcept { return {data_, bytes_}; }
  int descriptor() const noexcept { return file_.get(); }

 private:
  Descriptor file_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

struct IndexOptions {
  HashSecret secret;               // The secret of the hash by which clients find entries.
  std::size_t bytes_max = 0;       // Limit of the index. Retired ones may have as many.
  std::size_t buckets_first = 64;  // A power of two.
};

// The index of a shard that clients read without calls. It follows the shard's changes. When it becomes too small, a
// larger one with another generation takes its place: all cells of the old one are freed at once, so that its readers
// find nothing and call, and its memory stays exposed for `rest`, which is longer than any read. Belongs to the shard's
// loop, and ends before the shard.
//
// Readers on the same machine map the memory, and still have it after this process has ended. Therefore they read only
// until the time in its header, `lease` from the last maintenance. A process that serves the same data next begins to
// serve after `lease` (serve.cpp), so that no reader has an old value when a new one is written.
class IndexPublication final : public ChangeLog {
 public:
  static constexpr Duration lease = std::chrono::milliseconds(250);
  static constexpr Duration rest = std::chrono::seconds(60);

  // Null if there is no memory.
  static std::unique_ptr<IndexPublication> make(Shard& shard, Loop& loop, const Server& server,
                                                const IndexOptions& options);
  IndexPublication(const IndexPublication&) = delete;
  IndexPublication& operator=(const IndexPublication&) = delete;
  ~IndexPublication();

  const RemoteIndex& index() const noexcept { return *live_.index; }
  const RemoteRegion& region() const noexcept { return live_.region.handle(); }
  std::uint64_t identity() const noexcept { return live_.identity; }
  int descriptor() const noexcept { return live_.memory.descriptor(); }
  // The memory with this handle, also of a retired index; empty if it is exposed no more. For tests.
  Bytes memory_of(const RemoteRegion& region) const noexcept;

  // Adds an entry that a client has asked for.
  void add(const Key& key, Entry& entry);
  // Work in the background: adds entries of the shard, grows, extends the lease and frees what has rested.
  void maintain(std::int64_t now);

 private:
  struct Published {
    IndexMemory memory;
    RegisteredBuffer buffer;
    ExposedRegion region;
    std::unique_ptr<RemoteIndex> index;
    std::uint64_t identity = 0;
    Time retired{};
  };

  IndexPublication(Shard& shard, Loop& loop, const Server& server, const IndexOptions& options)
      : shard_(shard), loop_(loop), server_(server), options_(options) {}
  bool publish();
  void extend_lease() noexcept;
  std::size_t buckets_wanted() const noexcept;
  std::uint64_t hash(const Key& key) const noexcept { return hash_of(options_.secret, key.bytes); }

  void on_set(const Key& key, std::string_view value, std::int64_t expires_at, std::uint64_t version) override;
  void on_expiry(const Key& key, std::int64_t expires_at) override;
  void on_remove(const Key& key) override;
  void on_clear() override;

  Shard& shard_;
  Loop& loop_;
  const Server& server_;
  const IndexOptions options_;
  Published live_;
  std::deque<Published> retired_;
  std::uint32_t generation_ = 0;
  bool filling_ = false;  // Entries from before the publication are still added.
  std::uint64_t fill_cursor_ = 0;

 public:
  // Smallest memory with which a shard has an index.
  static constexpr std::size_t bytes_min = 8 * 1024;
};

}  // namespace hawser::kv
