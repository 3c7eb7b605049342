#include "kv/lane.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "kv/resp_connection.h"
#include "kv/string_replies.h"

namespace hawser::kv {
namespace {

// A batch that has replies of so many bytes, or has been executed for turn_work_max, returns, and its other items are
// executed later.
constexpr std::size_t batch_reply_bytes_max = std::size_t{1} << 20;
// Replies of so many bytes of one connection are not charged on their way.
constexpr std::size_t free_travel_bytes = 32 * 1024;
// A reply adds at most so many bytes to its value. Other replies are as short, apart from those of SCAN and RANDOMKEY.
constexpr std::size_t reply_overhead_bytes = 1024;
// The reply to a command with a short value.
constexpr std::size_t short_reply_bytes = Shard::short_value_bytes_max + reply_overhead_bytes;
constexpr std::size_t travel_step_bytes = 64 * 1024;

}  // namespace

bool TravelCharge::raise(const hawser::detail::ReceiveBudget& budget, std::size_t bytes) noexcept {
  if (total_ == nullptr || bytes <= bytes_) return true;
  const std::size_t before = bytes_;
  // First, so that of several loops one at most exceeds the half.
  raise_always(bytes);
  if (budget.used() - (bytes_ - before) <= budget.bytes_max() / 2) return true;
  total_->fetch_sub(bytes_ - before, std::memory_order_relaxed);
  bytes_ = before;
  return false;
}

void TravelCharge::raise_always(std::size_t bytes) noexcept {
  if (total_ == nullptr || bytes <= bytes_) return;
  const std::size_t more = (bytes - bytes_ + travel_step_bytes - 1) / travel_step_bytes * travel_step_bytes;
  total_->fetch_add(more, std::memory_order_relaxed);
  bytes_ += more;
}

void TravelCharge::release() noexcept {
  if (bytes_ != 0) total_->fetch_sub(std::exchange(bytes_, 0), std::memory_order_relaxed);
}

// One short reply never waits for memory.
std::size_t Lane::free_bytes_of(unsigned shards) noexcept {
  return std::max(free_travel_bytes / std::max(shards - 1, 1U), short_reply_bytes);
}

void Lane::send() {
  if (current_ == nullptr) current_ = std::move(filling_);
  travelling_ = true;
  target_.loop().post(
      [lane = shared_from_this(), batch = std::move(current_)]() mutable { lane->run(std::move(batch)); });
}

void Lane::run(std::unique_ptr<ForwardedBatch> batch) {
  execute(*batch);
  const bool gone = gone_.load(std::memory_order_relaxed);
  if (!batch->wrote || gone || !target_.unsynced()) return go_back(shared_from_this(), std::move(batch));
  held_ = std::move(batch);
  durable_ = target_.when_durable([lane = shared_from_this()](const std::string* error) {
    lane->durable_ = 0;
    if (error != nullptr) fail_writes(*lane->held_, *error);
    go_back(lane, std::move(lane->held_));
  });
}

// The connection has ended: nobody waits for the replies.
void Lane::stop_waiting() {
  if (durable_ == 0) return;
  // The log has the other reference to this lane.
  const std::shared_ptr<Lane> lane = shared_from_this();
  target_.forget(std::exchange(durable_, 0));
  go_back(lane, std::move(held_));
}

void Lane::go_back(std::shared_ptr<Lane> lane, std::unique_ptr<ForwardedBatch> batch) {
  Loop& back = lane->home_.loop();
  back.post([kept = std::move(lane), returning = std::move(batch)]() mutable { kept->returned(std::move(returning)); });
}

// The replies of commands that may have changed the store become an error: their changes will not be durable.
void Lane::fail_writes(ForwardedBatch& batch, const std::string& why) {
  std::string replies;
  std::size_t begin = 0;
  for (std::size_t i = batch.first; i < batch.end; ++i) {
    ForwardedBatch::Item& item = batch.items[i];
    const std::size_t end = item.reply_end;
    if (item.command != nullptr && item.command->writes) {
      replies += RespConnection::log_error(why);
    } else {
      replies.append(batch.replies, begin, end - begin);
    }
    begin = end;
    item.reply_end = replies.size();
  }
  batch.replies = std::move(replies);
}

void Lane::end() {
  gone_.store(true, std::memory_order_relaxed);
  if (travelling_) {
    target_.loop().post([lane = shared_from_this()] { lane->stop_waiting(); });
  } else if (waiting() != nullptr) {
    send();
  }
}

void Lane::execute(ForwardedBatch& batch) const {
  StringReplies memory;
  protocol::resp::ReplyWriter out(memory);
  std::vector<std::string_view> arguments;
  batch.wrote = false;
  batch.value_due = 0;
  std::uint64_t work = 0;
  while (batch.end < batch.items.size() && memory.text().size() < batch_reply_bytes_max && work < turn_work_max) {
    ForwardedBatch::Item& item = batch.items[batch.end];
    arguments.clear();
    std::size_t byte = batch.next_byte;
    for (std::uint32_t i = 0; i < item.arguments; ++i) {
      const std::size_t size = batch.sizes[batch.next_size + i];
      arguments.push_back(std::string_view(batch.bytes).substr(byte, size));
      byte += size;
    }
    const bool gone = gone_.load(std::memory_order_relaxed);
    if (item.command != nullptr && (item.command->writes || !gone)) {
      const std::size_t replies = memory.text().size();
      const bool is_short = replies <= free_bytes_ - short_reply_bytes && !target_.shard().has_long_values();
      if (!is_short && !gone && !charge(batch, item, arguments, replies)) [[unlikely]]
        break;
      out.set_version(item.resp3 ? 3 : 2);
      const std::string* const refusal = item.command->writes ? target_.write_refusal() : nullptr;
      if (refusal != nullptr) {
        out.raw(RespConnection::log_error(*refusal));
      } else {
        Execution execution{target_, out, arguments, item.hash};
        item.command->run(execution);
        work += execution.work();
        if (item.tracker != 0) [[unlikely]]
          target_.store().track(*item.command, arguments, item.tracker);
        batch.wrote |= item.command->writes;
      }
      out.flush();
      if (gone) memory.clear();
    }
    item.reply_end = memory.text().size();
    batch.next_byte = byte;
    batch.next_size += item.arguments;
    ++batch.end;
  }
  batch.replies = std::move(memory.text());
  // SCAN and RANDOMKEY.
  if (batch.replies.size() > free_bytes_) batch.charge.raise_always(batch.replies.size() - free_bytes_);
}

// Charges the reply to the item, behind so many bytes of replies. False: there is no memory for it now.
bool Lane::charge(ForwardedBatch& batch, const ForwardedBatch::Item& item, Arguments arguments,
                  std::size_t replies) const {
  std::size_t value = 0;
  if (Transaction::replies_with_value(*item.command, arguments)) {
    value = Shard::short_value_bytes_max;
    if (target_.shard().has_long_values()) {
      const Entry* const entry = target_.shard().find({arguments[1], item.hash}, target_.now(), false);
      value = entry == nullptr ? 0 : entry->value_bytes;
    }
  }
  const std::size_t bytes = replies + value + reply_overhead_bytes;
  if (bytes <= free_bytes_) return true;
  if (replies == 0 && value <= batch.value_charged) return true;
  if (batch.charge.raise(budget_, bytes - free_bytes_)) return true;
  // The replies before it come home first.
  if (replies == 0) batch.value_due = value;
  return false;
}

void Lane::returned(std::unique_ptr<ForwardedBatch> batch) {
  travelling_ = false;
  ForwardedBatch& replied = *batch;
  // Before the connection is asked: it may end, and then the rest has to be executed.
  if (batch->end < batch->items.size()) current_ = std::move(batch);
  RespConnection* const connection = gone_.load(std::memory_order_relaxed) ? nullptr : home_.find(connection_);
  if (connection != nullptr) return connection->on_replies(replied);
  replied.first = replied.end;
  replied.charge.release();
  if (waiting() != nullptr) send();
}

}  // namespace hawser::kv
