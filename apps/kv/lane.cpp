#include "kv/lane.h"

#include <string_view>
#include <utility>

#include "kv/resp_connection.h"
#include "kv/string_replies.h"

namespace hawser::kv {
namespace {

// A batch that has replies of so many bytes returns, and its other items are executed later.
constexpr std::size_t batch_reply_bytes_max = std::size_t{1} << 20;

}  // namespace

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
  while (batch.end < batch.items.size() && memory.text().size() < batch_reply_bytes_max) {
    ForwardedBatch::Item& item = batch.items[batch.end++];
    arguments.clear();
    for (std::uint32_t i = 0; i < item.arguments; ++i) {
      const std::size_t size = batch.sizes[batch.next_size++];
      arguments.push_back(std::string_view(batch.bytes).substr(batch.next_byte, size));
      batch.next_byte += size;
    }
    const bool gone = gone_.load(std::memory_order_relaxed);
    if (item.command != nullptr && (item.command->writes || !gone)) {
      out.set_version(item.resp3 ? 3 : 2);
      const std::string* const refusal = item.command->writes ? target_.write_refusal() : nullptr;
      if (refusal != nullptr) {
        out.raw(RespConnection::log_error(*refusal));
      } else {
        Execution execution{target_, out, arguments, item.hash};
        item.command->run(execution);
        if (item.tracker != 0) [[unlikely]]
          target_.store().track(*item.command, arguments, item.tracker);
        batch.wrote |= item.command->writes;
      }
      out.flush();
      if (gone) memory.clear();
    }
    item.reply_end = memory.text().size();
  }
  batch.replies = std::move(memory.text());
}

void Lane::returned(std::unique_ptr<ForwardedBatch> batch) {
  travelling_ = false;
  ForwardedBatch& replied = *batch;
  // Before the connection is asked: it may end, and then the rest has to be executed.
  if (batch->end < batch->items.size()) current_ = std::move(batch);
  RespConnection* const connection = gone_.load(std::memory_order_relaxed) ? nullptr : home_.find(connection_);
  if (connection != nullptr) return connection->on_replies(replied);
  replied.first = replied.end;
  if (waiting() != nullptr) send();
}

}  // namespace hawser::kv
