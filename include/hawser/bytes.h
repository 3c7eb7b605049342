#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

namespace hawser {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

inline Bytes as_bytes(std::string_view text) noexcept {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string_view as_text(Bytes bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

namespace detail {
// std::memcpy(), without the header that declares it.
inline void copy_bytes(void* to, const void* from, std::size_t bytes) noexcept { __builtin_memcpy(to, from, bytes); }

// Called once when memory of the application is not used any more.
struct MemoryRelease {
  virtual ~MemoryRelease() = default;
  virtual void run() noexcept = 0;
};
}  // namespace detail

// Address and length of memory to be sent. The memory belongs to somebody else and must stay valid until it has been
// sent.
struct ConstBuffer {
  const std::byte* data = nullptr;
  std::size_t size = 0;
};

// Owner of a loan: memory that a connection sends without a copy. on_send_complete() is called once when the connection
// does not use the memory any more, because it has been sent or because the connection has ended.
class SendCompletion {
 public:
  virtual void on_send_complete() noexcept = 0;

 protected:
  ~SendCompletion() = default;
};

// A reference-counted block of memory. Its bytes follow this header with 64-byte alignment. An ExternalBlock has no
// bytes of its own and only counts. The count is thread-safe.
class alignas(64) Block {
 public:
  // A block of at least `bytes` bytes with one reference, from the calling thread's pool if it has one.
  static Block* allocate(std::size_t bytes);

  std::byte* data() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
  std::size_t size() const noexcept { return size_; }
  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    // A single holder needs no read-modify-write: nobody else can increase the count.
    if (references_.load(std::memory_order_acquire) == 1 || references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      recycle();
    }
  }
  bool unique() const noexcept { return references_.load(std::memory_order_acquire) == 1; }

 private:
  friend class BlockPool;
  friend class ExternalBlock;
  explicit Block(std::size_t size) noexcept : size_(size) {}
  void recycle() noexcept;

  std::atomic<std::uint32_t> references_{1};
  std::size_t size_;
  Block* next_free_ = nullptr;  // Next block of the pool, while this block is in a pool.
  bool external_ = false;       // True for an ExternalBlock.
};
static_assert(sizeof(Block) == 64);

// A view of a Block that holds a reference to it. Empty by default. Buffers that share a block may be used and
// destroyed by any thread; one Buffer object is used by one thread at a time.
class Buffer {
 public:
  Buffer() noexcept = default;
  // A new block of `bytes` uninitialised bytes.
  static Buffer allocate(std::size_t bytes) {
    Block* block = Block::allocate(bytes);
    return Buffer(block, block->data(), bytes);
  }
  static Buffer copy_of(Bytes bytes) {
    Buffer buffer = allocate(bytes.size());
    if (!bytes.empty()) detail::copy_bytes(buffer.mutable_data(), bytes.data(), bytes.size());
    return buffer;
  }
  static Buffer copy_of(std::string_view text) { return copy_of(as_bytes(text)); }
  // Takes ownership of one reference to `block`.
  static Buffer adopt(Block* block, const std::byte* data, std::size_t size) noexcept {
    return Buffer(block, data, size);
  }
  // A view of memory that belongs to the application. `release`, a function object without parameters, is called once
  // when the memory is not used any more: when the last Buffer that shares it is destroyed. The library keeps a Buffer
  // that it sends until the memory has been sent, has been copied, or the connection has ended.
  // `release` is called on the thread that destroys the last Buffer, often the loop's. It must not throw or block. If
  // there is no memory, this throws std::bad_alloc and `release` is not called.
  template <class Release>
  static Buffer of_foreign(Bytes memory, Release release) {
    struct Holder final : detail::MemoryRelease {
      explicit Holder(Release&& given) : held(std::move(given)) {}
      void run() noexcept override { held(); }
      Release held;
    };
    return foreign(memory, std::make_unique<Holder>(std::move(release)));
  }
  // Adds a reference to `block`.
  static Buffer share(Block* block, const std::byte* data, std::size_t size) noexcept {
    block->retain();
    return Buffer(block, data, size);
  }

  // A Buffer that stays valid: it shares `block`, or copies the bytes if `block` is null because the memory is about to
  // be reused.
  static Buffer keep(Block* block, const std::byte* data, std::size_t size) {
    return block != nullptr ? share(block, data, size) : copy_of(Bytes(data, size));
  }

  Buffer(const Buffer& other) noexcept : block_(other.block_), data_(other.data_), size_(other.size_) {
    if (block_ != nullptr) block_->retain();
  }
  Buffer(Buffer&& other) noexcept
      : block_(std::exchange(other.block_, nullptr)),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer other) noexcept {
    std::swap(block_, other.block_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Buffer() {
    if (block_ != nullptr) block_->release();
  }

  const std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  Bytes bytes() const noexcept { return {data_, size_}; }
  std::string_view text() const noexcept { return as_text(bytes()); }
  Block* block() const noexcept { return block_; }

  // For filling a new buffer; nobody else may hold a reference to the block during that time.
  std::byte* mutable_data() noexcept { return const_cast<std::byte*>(data_); }
  MutableBytes mutable_bytes() noexcept { return {mutable_data(), size_}; }

  // The part [offset, offset + size) of this view, which must contain it.
  Buffer slice(std::size_t offset, std::size_t size) const noexcept {
    Buffer part(*this);
    part.data_ += offset;
    part.size_ = size;
    return part;
  }

 private:
  static Buffer foreign(Bytes memory, std::unique_ptr<detail::MemoryRelease> release);
  Buffer(Block* block, const std::byte* data, std::size_t size) noexcept : block_(block), data_(data), size_(size) {}

  Block* block_ = nullptr;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace hawser
