#include "kv/resp_connection.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "kv/set_options.h"

namespace hawser::kv {

char* StringReplies::more(std::size_t used, std::size_t bytes, std::size_t& size) {
  constexpr std::size_t step = 256;
  used_ += used;
  size = bytes == 0 ? 0 : std::max(bytes, std::max(step, used_));
  text_.resize(used_ + size);
  return text_.data() + used_;
}

RespConnection::RespConnection(rpc::PortHost& host, std::unique_ptr<transport::Stream> stream, Bytes first,
                               const resp::RequestLimits& limits, Site* site)
    : RespSession(host, std::move(stream), first, limits),
      site_(site),
      number_(site == nullptr ? 0 : site->add(*this)) {
  if (site_ != nullptr && site_->store().shards() > 1) batches_.resize(site_->store().shards());
}

RespConnection::~RespConnection() {
  if (site_ != nullptr) site_->remove(number_);
}

void RespConnection::on_end(const Error& reason) {
  RespSession::on_end(reason);
  waiting_.clear();
  batches_.clear();
}

// ---- Requests ----

// Writes a reply in its place: into the queue, or behind the replies that wait.
template <class Write>
void RespConnection::reply(Write write) {
  if (waiting_.empty()) [[likely]]
    return write(out());
  StringReplies memory;
  resp::ReplyWriter to(memory);
  to.set_version(version_);
  write(to);
  to.flush();
  waiting_.push_back({.text = std::move(memory.text())});
}

void RespConnection::on_protocol_error(std::string_view text) {
  reply([&](resp::ReplyWriter& to) { to.error(text); });
  close_now(!waiting_.empty());
}

void RespConnection::close_now(bool replies_wait) {
  closing_ = true;
  if (replies_wait) {
    waiting_.back().close = true;
  } else {
    close_after_replies();
  }
}

void RespConnection::on_request(Arguments arguments) {
  if (closing_) return;
  const Command* const command = find_command(arguments[0]);
  if (command == nullptr) [[unlikely]] {
    const bool http = arguments[0].size() <= 5 && (arguments[0] == "POST" || arguments[0] == "Host:");
    if (http)
      return abort({ErrorCode::protocol_error, ErrorScope::connection, Initiator::peer, 0,
                    "an HTTP request was sent to the Redis protocol"});
    return reply([&](resp::ReplyWriter& to) {
      constexpr std::size_t shown_max = 128;
      std::string shown;
      for (const std::string_view argument : arguments.subspan(1)) {
        if (shown.size() >= shown_max) break;
        const std::string_view part = argument.substr(0, shown_max - shown.size());
        shown.append("'").append(part).append("' ");
      }
      to.error("ERR unknown command '" + std::string(arguments[0].substr(0, shown_max)) +
               "', with args beginning with: " + shown);
    });
  }
  const bool too_few = static_cast<int>(arguments.size()) < std::abs(command->arity);
  const bool too_many = command->arity > 0 && static_cast<int>(arguments.size()) > command->arity;
  const bool odd = command->route == Route::pairs && arguments.size() % 2 == 0;
  if (too_few || too_many || odd) [[unlikely]] {
    return reply([&](resp::ReplyWriter& to) {
      to.error("ERR wrong number of arguments for '" + std::string(command->name) + "' command");
    });
  }
  if (site_ == nullptr) [[unlikely]] {
    return reply([&](resp::ReplyWriter& to) { to.error("LOADING Redis is loading the dataset in memory"); });
  }
  dispatch(*command, arguments);
}

void RespConnection::dispatch(const Command& command, Arguments arguments) {
  if (command.route == Route::connection) {
    reply([&](resp::ReplyWriter& to) { execute_own(command, arguments, to); });
    if (std::exchange(quitting_, false)) [[unlikely]]
      close_now(!waiting_.empty());
    return;
  }
  Store& store = site_->store();
  if (command.route == Route::all_status && arguments.size() > 1 &&
      (arguments.size() > 2 || (!is_word(arguments[1], "async") && !is_word(arguments[1], "sync")))) {
    return reply([&](resp::ReplyWriter& to) { to.error("ERR syntax error"); });
  }
  std::uint64_t hash = 0;
  unsigned shard = site_->index();
  if (command.route == Route::key) {
    hash = store.key(arguments[1]).hash;
    shard = store.shard_of(hash);
  } else if (store.shards() > 1) {
    if (command.route != Route::cursor) return split(command, arguments);
    std::uint64_t cursor = 0;
    if (parse_cursor(arguments[1], cursor) && (cursor >> cursor_shard_shift) < store.shards()) {
      shard = static_cast<unsigned>(cursor >> cursor_shard_shift);
    }
  }
  if (shard == site_->index()) {
    return reply([&](resp::ReplyWriter& to) { execute(command, arguments, hash, to); });
  }
  waiting_.push_back({.route = Route::key, .parts_left = 1});
  forward(command, arguments, hash, shard, 0);
}

void RespConnection::execute(const Command& command, Arguments arguments, std::uint64_t hash, resp::ReplyWriter& to) {
  Execution execution{*site_, to, arguments, hash};
  command.run(execution);
}

// ---- Other shards ----

// A command whose keys belong to several shards: each key, or each shard, is a part with a reply of its own.
void RespConnection::split(const Command& command, Arguments arguments) {
  Store& store = site_->store();
  const bool everywhere =
      command.route == Route::all_sum || command.route == Route::all_list || command.route == Route::all_status;
  const std::size_t step = command.route == Route::pairs ? 2 : 1;
  const std::size_t parts = everywhere ? store.shards() : (arguments.size() - 1) / step;
  if (parts > parts_max) {
    return reply([&](resp::ReplyWriter& to) {
      to.error("ERR " + std::to_string(parts) + " keys in one command exceed " + std::to_string(parts_max) +
               ", the limit of a server with several shards");
    });
  }
  waiting_.push_back({.route = command.route, .parts_left = parts});
  if (command.route == Route::keys_list) waiting_.back().parts.resize(parts);
  const std::uint64_t slot = first_slot_ + waiting_.size() - 1;
  for (std::size_t i = 0; i < parts; ++i) {
    std::string_view of_part[3] = {arguments[0]};
    Arguments given = arguments;
    unsigned shard = static_cast<unsigned>(i);
    std::uint64_t hash = 0;
    if (!everywhere) {
      for (std::size_t j = 0; j < step; ++j) of_part[1 + j] = arguments[1 + i * step + j];
      given = Arguments(of_part, 1 + step);
      hash = store.key(of_part[1]).hash;
      shard = store.shard_of(hash);
    }
    if (shard != site_->index()) {
      forward(command, given, hash, shard, i);
      continue;
    }
    StringReplies memory;
    resp::ReplyWriter to(memory);
    to.set_version(version_);
    execute(command, given, hash, to);
    to.flush();
    finish_part(slot, static_cast<std::uint32_t>(i), memory.text());
  }
}

void RespConnection::forward(const Command& command, Arguments arguments, std::uint64_t hash, unsigned shard,
                             std::size_t part) {
  std::unique_ptr<ForwardedBatch>& batch = batches_[shard];
  if (batch == nullptr) {
    batch = std::make_unique<ForwardedBatch>();
    batch->home = site_;
    batch->target = &site_->store().site(shard);
    batch->connection = number_;
    batch->resp3 = version_ == 3;
  }
  const std::size_t before = batch->held_bytes();
  batch->items.push_back({.command = &command,
                          .slot = first_slot_ + waiting_.size() - 1,
                          .part = static_cast<std::uint32_t>(part),
                          .arguments = static_cast<std::uint32_t>(arguments.size()),
                          .hash = hash});
  for (const std::string_view argument : arguments) {
    batch->bytes.append(argument);
    batch->sizes.push_back(static_cast<std::uint32_t>(argument.size()));
  }
  forwarded_bytes_ += batch->held_bytes() - before;
}

void RespConnection::send_batches() {
  for (std::unique_ptr<ForwardedBatch>& batch : batches_) {
    if (batch == nullptr) continue;
    ++travelling_;
    Loop& to = batch->target->loop();
    to.post([moved = std::move(batch)]() mutable { run_batch(std::move(moved)); });
  }
}

void RespConnection::on_taken() {
  send_batches();
  stopped_ = !may_go_on();
  write_ready();
}

void run_batch(std::unique_ptr<ForwardedBatch> batch) {
  StringReplies memory;
  resp::ReplyWriter out(memory);
  out.set_version(batch->resp3 ? 3 : 2);
  std::vector<std::string_view> arguments;
  std::size_t at = 0;
  std::size_t argument = 0;
  for (ForwardedBatch::Item& item : batch->items) {
    arguments.clear();
    for (std::uint32_t i = 0; i < item.arguments; ++i) {
      const std::size_t size = batch->sizes[argument++];
      arguments.push_back(std::string_view(batch->bytes).substr(at, size));
      at += size;
    }
    Execution execution{*batch->target, out, arguments, item.hash};
    if (memory.text().size() <= batch_reply_bytes_max) {
      item.command->run(execution);
    } else {
      out.error("ERR the replies of a pipeline to another shard exceed 64 MiB: read the earlier ones first");
    }
    out.flush();
    item.reply_end = memory.text().size();
  }
  batch->replies = std::move(memory.text());
  Loop& back = batch->home->loop();
  back.post([moved = std::move(batch)] {
    if (RespConnection* const connection = moved->home->find(moved->connection)) connection->on_replies(*moved);
  });
}

void RespConnection::on_replies(const ForwardedBatch& batch) {
  if (closed()) return;
  --travelling_;
  forwarded_bytes_ -= std::min(forwarded_bytes_, batch.held_bytes());
  std::size_t begin = 0;
  for (const ForwardedBatch::Item& item : batch.items) {
    finish_part(item.slot, item.part, std::string_view(batch.replies).substr(begin, item.reply_end - begin));
    begin = item.reply_end;
  }
  write_ready();
  if (!closed() && std::exchange(stopped_, false)) resume();
}

// Adds the reply of one part to the reply of its command.
void RespConnection::finish_part(std::uint64_t slot, std::uint32_t part, std::string_view reply) {
  Waiting& waiting = waiting_[slot - first_slot_];
  --waiting.parts_left;
  if (reply.starts_with('-')) {
    if (waiting.error.empty()) waiting.error = reply;
    return;
  }
  const std::size_t line_end = reply.find('\n') + 1;
  std::int64_t number = 0;
  std::from_chars(reply.data() + 1, reply.data() + reply.size(), number);
  switch (waiting.route) {
    case Route::keys_sum:
    case Route::all_sum: waiting.sum += number; break;
    case Route::keys_list: waiting.parts[part] = reply.substr(line_end); break;
    case Route::all_list:
      waiting.elements += static_cast<std::size_t>(number);
      waiting.text += reply.substr(line_end);
      break;
    default: waiting.text = reply; break;
  }
}

void RespConnection::write_ready() {
  while (!waiting_.empty() && waiting_.front().parts_left == 0 && !closed()) {
    const Waiting ready = std::move(waiting_.front());
    waiting_.pop_front();
    ++first_slot_;
    if (!ready.error.empty()) {
      out().raw(ready.error);
    } else if (ready.route == Route::keys_sum || ready.route == Route::all_sum) {
      out().number(ready.sum);
    } else if (ready.route == Route::keys_list || ready.route == Route::all_list) {
      out().array(ready.route == Route::keys_list ? ready.parts.size() : ready.elements);
      for (const std::string& part : ready.parts) out().raw(part);
      out().raw(ready.text);
    } else {
      out().raw(ready.text);
    }
    if (ready.close) return close_after_replies();
  }
  flush_replies();
}

}  // namespace hawser::kv
