#include <algorithm>
#include <string>

#include "base/decimal_text.h"
#include "base/misuse.h"
#include "base/try.h"
#include "hawser/detail/loop_access.h"
#include "hawser/detail/stream_tap.h"
#include "hawser/stream.h"

namespace hawser::detail {
namespace {

std::unexpected<Error> protocol_error(std::string text) {
  return fail(Error::of_connection(Initiator::peer, ErrorCode::protocol_error, std::move(text)));
}

}  // namespace

StreamCore::StreamCore(StreamChannel& channel, std::uint32_t call, const Flow& flow) noexcept
    : channel_(channel),
      loop_(channel.stream_loop()),
      call_(call),
      decode_limits_(channel.decode_limits()),
      credit_(flow.send_credit),
      window_(flow.window),
      item_overhead_(flow.item_overhead),
      grant_bytes_min_(flow.grant_bytes_min),
      window_left_(flow.window) {}

void StreamCore::on_room(WaitingWriter& waiting) {
  StreamCore& core = static_cast<StreamCore&>(waiting);
  core.wake(core.writer_);
}

void StreamCore::wake(Slot& slot) {
  if (slot.handle && !std::exchange(slot.queued, true)) loop_.resume_soon(slot.handle);
}

// The loop resumes the writer if only its turn has ended; otherwise on_credit(), on_room() or on_closed() does.
void StreamCore::suspend(bool reading, std::coroutine_handle<> handle) noexcept {
  LoopAccess::check_thread(loop_);
  if (slot(reading).handle) {
    misuse(reading ? "two coroutines read one stream at the same time; let one of them read and pass the items on by a "
                     "Channel"
                   : "two coroutines write to one stream at the same time; let one of them write, or hold a Mutex");
  }
  slot(reading).handle = handle;
  if (reading) return;
  turn_items_ = 0;
  turn_bytes_ = 0;
  if (writable()) return wake(writer_);
  if (credit_ > 0) link(channel_.writers());
}

void StreamCore::withdraw(bool reading) noexcept {
  if (!reading) unlink();
  const Slot gone = std::exchange(slot(reading), {});
  if (gone.queued) loop_.forget(gone.handle);
}

std::uint32_t StreamCore::cost(std::size_t bytes) const noexcept {
  return static_cast<std::uint32_t>(std::min<std::size_t>(bytes, UINT32_MAX - item_overhead_)) + item_overhead_;
}

Result<void> StreamCore::on_item(Item item) {
  if (closed_) return {};
  if (remote_ended_) return protocol_error("STREAM_DATA after STREAM_END");
  if (window_left_ <= 0) {
    return protocol_error("STREAM_DATA without credit: the window of " + count_text(window_, "byte") + " is used up");
  }
  window_left_ -= cost(item.body.size() + item.payload.size());
  for (StreamTap* tap = taps_; tap != nullptr; tap = tap->next_) {
    tap->on_received(item.body.bytes(), item.payload.bytes());
  }
  items_.push_back(std::move(item));
  wake(reader_);
  return {};
}

Result<void> StreamCore::on_end() {
  if (closed_) return {};
  if (std::exchange(remote_ended_, true)) return protocol_error("STREAM_END after STREAM_END");
  for (StreamTap* tap = taps_; tap != nullptr; tap = tap->next_) tap->on_received_end();
  wake(reader_);
  return {};
}

Result<void> StreamCore::on_credit(std::uint32_t bytes) {
  if (closed_) return {};
  credit_ += bytes;
  if (credit_ > std::int64_t{UINT32_MAX}) {
    return protocol_error("STREAM_CREDIT of " + count_text(bytes, "byte") + " raises the credit to " +
                          count_text(credit_, "byte") + ": the limit is 4294967295");
  }
  if (credit_ > 0 && !linked()) wake(writer_);
  return {};
}

void StreamCore::on_closed(const std::optional<Error>& error) {
  if (closed_) return;
  error_ = error;  // Assigned first: if the copy of the text throws, the caller may repeat this without a text.
  closed_ = true;
  unlink();
  wake(reader_);
  wake(writer_);
}

void StreamCore::end_charges() noexcept {
  for (Item& item : items_) {
    item.body_charge.reset();
    item.payload_charge.reset();
  }
  if (viewed_) {
    viewed_->item.body_charge.reset();
    viewed_->item.payload_charge.reset();
  }
}

Result<std::optional<StreamCore::Item>> StreamCore::take() {
  if (first_ == items_.size()) {
    if (error_) return fail(*error_);
    return std::nullopt;
  }
  Item item = std::move(items_[first_++]);
  // The items move down when half of them have been taken, so that each item moves once.
  if (first_ * 2 >= items_.size()) {
    items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
  taken_compressed_ = item.compressed;
  consumed_ += cost(item.body.size() + item.payload.size());
  // By default credit is granted in halves of the window: few frames are sent, and the sender does not run out of
  // credit.
  if (consumed_ >= grant_bytes_min_ && !closed_ && !remote_ended_) {
    window_left_ += consumed_;
    channel_.send_credit(call_, std::exchange(consumed_, 0));
  }
  return item;
}

Result<StreamCore::Viewed*> StreamCore::take_view() {
  TRY(std::optional<Item>&& item, take());
  if (!item) return nullptr;
  return &viewed_.emplace(Viewed{.item = std::move(*item), .arena = {}});
}

std::optional<Error> StreamCore::write_error() const {
  if (closed_) {
    return error_ ? *error_
                  : Error::of_call(Initiator::peer, ErrorCode::cancelled,
                                   "the call has ended: nobody reads this stream any more");
  }
  if (local_ended_) {
    return Error::of_call(ErrorCode::invalid_argument, "write() after end()");
  }
  return std::nullopt;
}

Error StreamCore::not_encoded(const codec::EncodedSize& size) {
  return Error::of_call(size.code, std::string("the item can't be encoded: ") + size.why_not);
}

std::byte* StreamCore::begin_item(const codec::EncodedSize& size) {
  LoopAccess::check_thread(loop_);
  std::byte* const body = channel_.begin_item(call_, size);
  if (body != nullptr) {
    credit_ -= cost(size.body + size.payload);
    ++turn_items_;
    turn_bytes_ += size.body + size.payload;
    if (taps_ != nullptr) [[unlikely]]
      tapped_body_ = Bytes(body, size.body);
  }
  return body;
}

void StreamCore::end_item(std::span<const ConstBuffer> pieces, SendCompletion* owner) {
  if (taps_ != nullptr) [[unlikely]] {
    for (StreamTap* tap = taps_; tap != nullptr; tap = tap->next_) tap->on_sent(tapped_body_, pieces);
    tapped_body_ = {};
  }
  channel_.end_item(pieces, owner);
}

void StreamCore::add_tap(StreamTap& tap) noexcept {
  LoopAccess::check_thread(loop_);
  tap.next_ = std::exchange(taps_, &tap);
  for (std::size_t i = first_; i < items_.size(); ++i) {
    tap.on_received(items_[i].body.bytes(), items_[i].payload.bytes());
  }
  if (remote_ended_) tap.on_received_end();
}

void StreamCore::remove_tap(StreamTap& tap) noexcept {
  LoopAccess::check_thread(loop_);
  for (StreamTap** at = &taps_; *at != nullptr; at = &(*at)->next_) {
    if (*at != &tap) continue;
    *at = std::exchange(tap.next_, nullptr);
    return;
  }
}

void StreamCore::end() {
  LoopAccess::check_thread(loop_);
  if (closed_ || std::exchange(local_ended_, true)) return;
  channel_.send_end(call_);
}

ItemLoan::~ItemLoan() {
  if (!released_) channel_.copy_and_release_item(*this);
  if (waiting_) loop_.forget(waiting_);
}

void ItemLoan::on_send_complete() noexcept {
  released_ = true;
  if (waiting_) loop_.resume_soon(waiting_);
}

}  // namespace hawser::detail
