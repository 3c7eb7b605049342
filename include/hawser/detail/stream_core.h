#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/codec.h"
#include "hawser/detail/receive_account.h"
#include "hawser/detail/waiting_writer.h"
#include "hawser/error.h"
#include "hawser/loop.h"

namespace hawser::detail {

struct StreamAccess;
class StreamTap;
// Sends the frames of streams: a session of either side. Loop's thread only.
class StreamChannel {
 public:
  virtual Loop& stream_loop() noexcept = 0;
  // Returns memory for an item's body. Null if the item exceeds a limit or the connection has ended.
  virtual std::byte* begin_item(std::uint32_t call, const codec::EncodedSize& size) = 0;
  virtual void end_item(std::span<const ConstBuffer> pieces, SendCompletion* owner) = 0;
  virtual void send_end(std::uint32_t call) = 0;
  virtual void send_credit(std::uint32_t call, std::uint32_t bytes) = 0;
  virtual void copy_and_release_item(SendCompletion& owner) = 0;
  // True while the backlog of the connection is below its limit. If it is false, the session calls on_room() of each
  // core in the list of writers once it is true again.
  virtual bool has_room() const noexcept = 0;
  virtual WaitingWriter& writers() noexcept = 0;
  // Limits for the values of received items.
  virtual const codec::DecodeLimits& decode_limits() const noexcept { return codec::default_decode_limits; }

 protected:
  ~StreamChannel() = default;
};

// One side of a call's two streams: the received items in order, and the credit for sending. The receiver grants credit
// in bytes. A sender may send while it has any credit, so that the stored items exceed the window by at most one item.
// The call owns the core; readers and writers share it and may outlive the call. Whoever ends the call calls
// on_closed().
class StreamCore : WaitingWriter, public std::enable_shared_from_this<StreamCore> {
 public:
  // Credit that an item costs in addition to its bytes, so that empty items are limited too.
  static constexpr std::uint32_t item_overhead_bytes = 64;
  // A writer that never has to wait lets the rest of its loop run after this number of items or bytes.
  static constexpr std::uint32_t turn_items_max = 64;
  static constexpr std::size_t turn_bytes_max = 256 * 1024;

  // How credit is counted. The defaults are those of the library's own protocol.
  struct Flow {
    std::uint32_t send_credit = 0;                      // Bytes that the peer grants at the start.
    std::uint32_t window = 0;                           // Bytes that this side grants at the start.
    std::uint32_t item_overhead = item_overhead_bytes;  // Credit that an item costs in addition to its bytes.
    std::uint32_t grant_bytes_min = window / 2;         // Credit is granted again when this much has been read.
  };
  StreamCore(StreamChannel& channel, std::uint32_t call, const Flow& flow) noexcept;
  StreamCore(StreamChannel& channel, std::uint32_t call, std::uint32_t send_credit, std::uint32_t window) noexcept
      : StreamCore(channel, call, Flow{.send_credit = send_credit, .window = window}) {}
  StreamCore(const StreamCore&) = delete;
  StreamCore& operator=(const StreamCore&) = delete;

  struct Item {
    Buffer body;
    Buffer payload;
    ReceiveCharge body_charge;
    ReceiveCharge payload_charge;
    bool compressed = false;  // It arrived so: gRPC.
  };
  // Memory of a stored item beside the bytes of its block: its header, and an element of a vector that doubles.
  static constexpr std::size_t kept_item_bytes = sizeof(Block) + 2 * sizeof(Item);

  // Called by the session. An error is a protocol violation of the peer.
  Result<void> on_item(Item item);
  Result<void> on_end();
  Result<void> on_credit(std::uint32_t bytes);
  // The call has ended. Received items can still be read; no more items arrive, and writing fails.
  void on_closed(const std::optional<Error>& error);
  // Releases the charges of the stored items. The session may be destroyed afterwards.
  void end_charges() noexcept;

  // For readers. Returns the next item, nothing after the end of the stream, or the error that ended it.
  bool readable() const noexcept { return first_ < items_.size() || remote_ended_ || closed_; }
  Result<std::optional<Item>> take();
  struct Viewed {  // An item that is read in place.
    Item item;
    codec::DecodeArena arena;
  };
  // Like take(), but keeps the item until end_view(). Null after the end of the stream.
  Result<Viewed*> take_view();
  void end_view() noexcept { viewed_.reset(); }

  // For writers. may_write() is like writable(), but false when the writer's turn is over.
  bool writable() const noexcept { return closed_ || local_ended_ || (credit_ > 0 && channel_.has_room()); }
  bool may_write() const noexcept {
    return writable() && (closed_ || (turn_items_ < turn_items_max && turn_bytes_ < turn_bytes_max));
  }
  // Called by the session when the backlog has room again. It has removed `waiting` from its list.
  static void on_room(WaitingWriter& waiting);
  std::optional<Error> write_error() const;
  std::byte* begin_item(const codec::EncodedSize& size);
  void end_item(std::span<const ConstBuffer> pieces, SendCompletion* owner);
  // The error of an item whose `size` is too_large.
  static Error not_encoded(const codec::EncodedSize& size);
  void end();
  bool ended() const noexcept { return local_ended_ || closed_; }
  // Shows `tap` what is received and sent from now on, and first the items that were received and not taken. It may be
  // one of several. `tap` outlives this, or is removed before.
  void add_tap(StreamTap& tap) noexcept;
  void remove_tap(StreamTap& tap) noexcept;  // No effect if it is not there.
  StreamChannel& channel() noexcept { return channel_; }
  const codec::DecodeLimits& decode_limits() const noexcept { return decode_limits_; }
  std::uint32_t call() const noexcept { return call_; }
  bool taken_compressed() const noexcept { return taken_compressed_; }  // The item that take() returned last.

  // Suspends one reader or one writer. The loop resumes it when readable() or writable() has become true.
  class Waiter {
   public:
    Waiter(StreamCore& core, bool reading) noexcept : core_(core), reading_(reading) {}
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;
    ~Waiter() {
      if (suspended_) core_.withdraw(reading_);
    }
    bool await_ready() const noexcept { return reading_ ? core_.readable() : core_.may_write(); }
    void await_suspend(std::coroutine_handle<> handle) noexcept {
      suspended_ = true;
      core_.suspend(reading_, handle);
    }
    void await_resume() noexcept {
      suspended_ = false;
      core_.slot(reading_) = {};
    }

   private:
    StreamCore& core_;
    const bool reading_;
    bool suspended_ = false;
  };
  Waiter until_readable() noexcept { return Waiter(*this, true); }
  Waiter until_writable() noexcept { return Waiter(*this, false); }

 private:
  struct Slot {
    std::coroutine_handle<> handle;
    bool queued = false;  // The loop will resume it.
  };
  Slot& slot(bool reading) noexcept { return reading ? reader_ : writer_; }
  void wake(Slot& slot);
  void suspend(bool reading, std::coroutine_handle<> handle) noexcept;
  void withdraw(bool reading) noexcept;
  std::uint32_t cost(std::size_t bytes) const noexcept;

  StreamChannel& channel_;  // Not used once closed: a client's session may be destroyed before its calls' streams.
  Loop& loop_;
  const std::uint32_t call_;
  const codec::DecodeLimits decode_limits_;  // A copy, because the channel may be destroyed first.
  std::int64_t credit_;                      // Negative after an item that was larger than the credit left.
  const std::uint32_t window_;
  const std::uint32_t item_overhead_;
  const std::uint32_t grant_bytes_min_;
  std::int64_t window_left_;      // Credit that this side has granted and the peer has not used.
  std::uint32_t consumed_ = 0;    // Bytes that were read and are not granted again yet.
  std::uint32_t turn_items_ = 0;  // Items written since the writer last waited.
  std::size_t turn_bytes_ = 0;
  bool local_ended_ = false;
  bool remote_ended_ = false;
  bool closed_ = false, taken_compressed_ = false;
  std::optional<Error> error_;
  std::vector<Item> items_;  // Stored items begin at first_.
  std::size_t first_ = 0;
  std::optional<Viewed> viewed_;
  StreamTap* taps_ = nullptr;  // The first of a list.
  Bytes tapped_body_;          // The item between begin_item() and end_item(), if there are taps.
  Slot reader_;
  Slot writer_;
};

// Error text of a Reader or Writer without a call.
inline constexpr const char* no_stream =
    "this Reader or Writer belongs to no call: it was default-constructed, moved from, or taken of a StreamingCall "
    "after finish(); take it before";

// Loan of a stream item's memory. Resumes the writer when the loan has ended.
class ItemLoan final : public SendCompletion {
 public:
  explicit ItemLoan(StreamChannel& channel) noexcept : channel_(channel), loop_(channel.stream_loop()) {}
  ItemLoan(const ItemLoan&) = delete;
  ItemLoan& operator=(const ItemLoan&) = delete;
  ~ItemLoan();
  void on_send_complete() noexcept override;
  bool await_ready() const noexcept { return released_; }
  void await_suspend(std::coroutine_handle<> handle) noexcept { waiting_ = handle; }
  void await_resume() noexcept { waiting_ = nullptr; }

 private:
  StreamChannel& channel_;  // Not used once released.
  Loop& loop_;
  bool released_ = false;
  std::coroutine_handle<> waiting_;
};

}  // namespace hawser::detail
