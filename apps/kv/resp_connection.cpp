#include "kv/resp_connection.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "heap/allocator_trim.h"
#include "kv/set_options.h"

namespace hawser::kv {

RespConnection::RespConnection(rpc::PortHost& host, std::unique_ptr<transport::Stream> stream, Bytes first,
                               const protocol::resp::RequestLimits& limits, Store& store, PasswordGate* gate)
    : RespSession(host, std::move(stream), first, gate == nullptr ? limits : limits.before_authentication()),
      store_(store),
      login_(gate, limits),
      plain_(login_.authenticated()) {
  join_site();
}

bool RespConnection::join_site() {
  site_ = store_.site_on(host().loop);
  if (site_ == nullptr) return false;
  number_ = site_->add(*this);
  if (store_.shards() > 1) forwarded_.set_shards(store_.shards());
  record_ = {.id = id(), .address = peer_name(), .since = store_.clock()};
  store_.clients().add(record_);
  site_->set_counters(host().counters);
  return true;
}

RespConnection::~RespConnection() {
  drop_waiting();
  transaction_.unwatch(site_);
  if (site_ == nullptr) return;
  site_->store().clients().remove(record_);
  site_->remove(number_);
}

void RespConnection::on_end(const Error& reason) {
  RespSession::on_end(reason);
  transaction_.release();
  drop_waiting();
  forwarded_.end();
  // Behind the commands for other shards: a transaction that was sent completely is executed, as they are.
  const bool starts = pending_.phase != Pending::Phase::started;
  if (pending_.transaction != nullptr && starts && pending_.transaction->writes()) pending_.transaction->start();
  if (pending_.transaction != nullptr) std::exchange(pending_.transaction, nullptr)->abandon();
  transaction_.end(true);
  transaction_.unwatch(site_);
}

// The log must not keep what belongs to a client that has gone.
void RespConnection::drop_waiting() {
  waiting_.each([&](const WaitingReply& waiting) {
    if (waiting.durable != 0) site_->forget(waiting.durable);
  });
  waiting_.clear();
}

// ---- Requests ----

void RespConnection::on_protocol_error(std::string_view text) {
  reply([&](protocol::resp::ReplyWriter& to) { to.error(text); });
  close_now(!waiting_.empty());
}

void RespConnection::close_now(bool replies_wait) {
  closing_ = barred_ = true;
  if (replies_wait) {
    waiting_.at(waiting_.last_slot()).close = true;
  } else {
    close_after_replies();
  }
}

// The server stops. The commands whose replies wait have been executed, or will be: their client receives the replies,
// and no further command is executed.
void RespConnection::go_away() {
  RespSession::go_away();
  if (!closed() && !waiting_.empty()) close_now(true);
  // Store::maintain() has ended: nothing calls on_memory() later.
  if (!closed() && site_ != nullptr) on_memory();
}

// Computes the hashes of the keys. A lookup reads two lines of memory that are seldom in a cache: the bucket and then
// the entry. Those of all requests are fetched at the same time.
void RespConnection::look_ahead(std::span<protocol::resp::ReadyRequest> requests) {
  if (site_ == nullptr || !login_.authenticated()) return;
  const Store& store = site_->store();
  const Shard& shard = site_->shard();
  const bool several = requests.size() > 1;
  const bool one_shard = store.shards() == 1;
  const auto here = [&](const protocol::resp::ReadyRequest& request) {
    return request.hashed && (one_shard || store.shard_of(request.key_hash) == site_->index());
  };
  for (protocol::resp::ReadyRequest& request : requests) {
    if (request.count < 2 || request.first[1].size() > Shard::key_bytes_max) continue;
    request.key_hash = store.key(request.first[1]).hash;
    request.hashed = true;
    if (several && here(request)) shard.prefetch_bucket(request.key_hash);
  }
  if (!several) return;
  for (const protocol::resp::ReadyRequest& request : requests) {
    if (here(request)) shard.prefetch_entry(request.key_hash);
  }
}

void RespConnection::on_request(const protocol::resp::ReadyRequest& request) {
  if (closing_) return;
  const Arguments arguments = request.arguments();
  const Command* const command = find_command(arguments[0]);
  if (command == nullptr) [[unlikely]] {
    const bool http = arguments[0].size() <= 5 && (arguments[0] == "POST" || arguments[0] == "Host:");
    if (http)
      return abort(Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                                        "an HTTP request was sent to the Redis protocol"));
    transaction_.fail();
    return reply([&](protocol::resp::ReplyWriter& to) {
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
  if (too_few || too_many) [[unlikely]] {
    const bool exec = command->own == Own::exec;
    const bool knows_client = plain_ || login_.authenticated();
    if (knows_client && !transaction_.open() && asks_help(*command, arguments)) {
      return reply([&](protocol::resp::ReplyWriter& to) { write_help(*command, to); });
    }
    exec ? discard() : transaction_.fail();
    return reply([&](protocol::resp::ReplyWriter& to) {
      if (const std::string error = subcommand_error(*command, arguments); !error.empty()) return to.error(error);
      to.error((exec ? "EXECABORT Transaction discarded because of: " : "ERR ") +
               ("wrong number of arguments for '" + std::string(command->name) + "' command"));
    });
  }
  if (!plain_ && !login_.authenticated() && !command->before_authentication()) [[unlikely]] {
    return reply([&](protocol::resp::ReplyWriter& to) {
      to.error(command->own == Own::exec ? "EXECABORT Transaction discarded because of: NOAUTH Authentication required."
                                         : "NOAUTH Authentication required.");
    });
  }
  if (site_ == nullptr && !join_site()) [[unlikely]] {
    return reply([&](protocol::resp::ReplyWriter& to) { to.error("LOADING Redis is loading the dataset in memory"); });
  }
  if (!plain_ && multi_takes(*command, arguments)) [[unlikely]]
    return;
  dispatch(*command, request);
  if (tracking_.on() && !transaction_.open() && command->own != Own::client) [[unlikely]]
    tracking_.command_done();
}

void RespConnection::dispatch(const Command& command, const protocol::resp::ReadyRequest& request) {
  const Arguments arguments = request.arguments();
  if (command.route == CommandRoute::connection) {
    if (command.own == Own::exec) return run_exec();
    reply([&](protocol::resp::ReplyWriter& to) { execute_own(command, arguments, to); });
    if (std::exchange(quitting_, false)) [[unlikely]]
      close_now(!waiting_.empty());
    return;
  }
  if (command.own == Own::watch) return run_watch(command, arguments);
  if (command.route == CommandRoute::all_list) return run_listing(command, arguments);
  // While much memory is used, a value waits for memory before it is read, and so does a list of keys.
  if (!account().plenty(0) && Transaction::replies_at_any_length(command, arguments)) [[unlikely]]
    return run_alone(command, arguments);
  Store& store = site_->store();
  std::uint64_t hash = 0;
  unsigned shard = site_->index();
  if (command.route == CommandRoute::key) {
    hash = request.hashed ? request.key_hash : store.key(arguments[1]).hash;
    shard = store.shard_of(hash);
  } else if (store.shards() > 1) {
    if (command.route == CommandRoute::together) return run_together(command, arguments);
    if (command.route == CommandRoute::random) {
      shard = store.random_shard(shard);
    } else if (command.route != CommandRoute::cursor) {
      return split(command, arguments);
    }
    std::uint64_t cursor = 0;
    if (command.route == CommandRoute::cursor && parse_cursor(arguments[1], cursor) &&
        cursor_shard(cursor) < store.shards()) {
      shard = cursor_shard(cursor);
    }
  }
  execute_at(command, arguments, hash, shard);
}

// All keys of the command belong to that shard.
void RespConnection::execute_at(const Command& command, Arguments arguments, std::uint64_t hash, unsigned shard) {
  if (shard == site_->index()) {
    if (command.writes && site_->log() != nullptr) [[unlikely]]
      return execute_logged(command, arguments, hash);
    return reply([&](protocol::resp::ReplyWriter& to) { execute(command, arguments, hash, to); });
  }
  waiting_.add({.route = CommandRoute::key, .parts_left = 1});
  forward(command, arguments, hash, shard, 0, tracker());
}

void RespConnection::execute(const Command& command, Arguments arguments, std::uint64_t hash,
                             protocol::resp::ReplyWriter& to, bool tracked) {
  Execution execution{*site_, to, arguments, hash};
  command.run(execution);
  turn_work_ += execution.work();
  if (tracking_.on() && tracked) [[unlikely]]
    site_->store().track(command, arguments, tracker());
}

void RespConnection::on_invalidated(const std::string* key) noexcept {
  if (closed() || closing_ || version_ != 3 || !tracking_.on()) return;
  try {
    reply([&](protocol::resp::ReplyWriter& to) {
      to.push(2);
      to.bulk("invalidate");
      if (key == nullptr) return to.null();
      to.array(1);
      to.bulk(*key);
    });
    flush_replies();
    charge_replies();
  } catch (const std::bad_alloc&) {
    fail_connection();
  }
}

// ---- The log ----

std::string RespConnection::log_error(const std::string& why) {
  return "-MISCONF Errors writing to the log: " + why + "\r\n";
}

// A command that may change this loop's shard. Its reply waits until the change is durable, if the options say so.
void RespConnection::execute_logged(const Command& command, Arguments arguments, std::uint64_t hash) {
  if (const std::string* const why = site_->write_refusal()) {
    return reply([&](protocol::resp::ReplyWriter& to) { to.raw(log_error(*why)); });
  }
  reply([&](protocol::resp::ReplyWriter& to) { execute(command, arguments, hash, to); }, site_->sync_always());
  if (site_->sync_always()) hold(waiting_.last_slot());
}

// The reply of that slot waits until everything that is logged now is durable.
void RespConnection::hold(std::uint64_t slot) {
  if (!site_->unsynced()) return;
  ++waiting_.at(slot).parts_left;
  const std::uint64_t wait = site_->when_durable([site = site_, number = number_, slot](const std::string* error) {
    if (RespConnection* const connection = site->find(number)) connection->on_durable(slot, error);
  });
  if (wait != 0) waiting_.at(slot).durable = wait;
}

void RespConnection::on_durable(std::uint64_t slot, const std::string* error) {
  if (closed()) return;
  WaitingReply& waiting = waiting_.at(slot);
  waiting.durable = 0;
  --waiting.parts_left;
  if (error != nullptr && waiting.error.empty()) waiting_.fail(slot, log_error(*error));
  write_ready();
  if (!charge_replies()) return;
  send_batches();
  go_on();
}

// ---- Other shards ----

// A command whose keys belong to several shards: each key, or each shard, is a part with a reply of its own.
void RespConnection::split(const Command& command, Arguments arguments) {
  Store& store = site_->store();
  const bool everywhere = command.route == CommandRoute::all_sum || command.route == CommandRoute::all_status;
  const std::size_t parts = everywhere ? store.shards() : arguments.size() - 1;
  if (parts > parts_max) {
    return reply([&](protocol::resp::ReplyWriter& to) {
      to.error("ERR " + std::to_string(parts) + " keys in one command exceed " + std::to_string(parts_max) +
               ", the limit of a server with several shards");
    });
  }
  constexpr std::size_t few_parts_max = 64;
  if (parts > few_parts_max) turn_work_ += parts * key_scan_cost;
  const std::uint64_t slot = waiting_.add({.route = command.route, .parts_left = parts});
  if (command.route == CommandRoute::keys_list) waiting_.expect_elements(slot, parts);
  // Its parts are short. What it causes comes behind its reply.
  const bool tracked = everywhere || parts <= TrackedKeys::command_keys_max;
  if (!tracked) store.track(command, arguments, tracker());
  const std::uint64_t client = tracked ? tracker() : 0;
  for (std::size_t i = 0; i < parts; ++i) {
    if (!command.writes && !waiting_.at(slot).error.empty()) {
      --waiting_.at(slot).parts_left;
      continue;
    }
    std::string_view of_part[2] = {arguments[0]};
    Arguments given = arguments;
    unsigned shard = static_cast<unsigned>(i);
    std::uint64_t hash = 0;
    if (!everywhere) {
      of_part[1] = arguments[1 + i];
      given = Arguments(of_part, 2);
      hash = store.key(of_part[1]).hash;
      shard = store.shard_of(hash);
    }
    if (shard != site_->index()) {
      forward(command, given, hash, shard, i, client);
      continue;
    }
    StringReplies memory;
    protocol::resp::ReplyWriter to(memory);
    to.set_version(version_);
    const std::string* const refusal = command.writes ? site_->write_refusal() : nullptr;
    if (refusal != nullptr) {
      to.raw(log_error(*refusal));
    } else {
      execute(command, given, hash, to, tracked);
    }
    to.flush();
    waiting_.add_part(slot, static_cast<std::uint32_t>(i), memory.text());
  }
  if (command.writes) hold(slot);
}

void RespConnection::forward(const Command& command, Arguments arguments, std::uint64_t hash, unsigned shard,
                             std::size_t part, std::uint64_t client) {
  Lane& lane = forwarded_.lane(shard, [&] {
    return std::make_shared<Lane>(*site_, site_->store().site(shard), number_, host().budget, account().abandoned());
  });
  forwarded_.add(lane.filling(),
                 {.command = &command,
                  .slot = waiting_.last_slot(),
                  .part = static_cast<std::uint32_t>(part),
                  .arguments = static_cast<std::uint32_t>(arguments.size()),
                  .hash = hash,
                  .resp3 = version_ == 3,
                  .tracker = client},
                 arguments);
}

// While the replies do not fit, only the oldest command goes on. Its parts are the first of each lane.
void RespConnection::send_batches() {
  if (closed()) return;
  forwarded_.charge();
  const bool fits = replies_fit();
  forwarded_.each_waiting([&](Lane& lane, ForwardedBatch& batch) {
    const bool oldest = batch.items[batch.first].slot == waiting_.first_slot();
    if (!fits && (!has_room() || !oldest)) return;
    if (batch.value_due != 0 && (!oldest || !charge_due(batch))) return;
    lane.send();
  });
}

// The oldest command replies with a value that awaits memory. Returns true if the batch goes on: there is memory now,
// or the command has failed. Others read their replies meanwhile, which frees memory.
bool RespConnection::charge_due(ForwardedBatch& batch) {
  ForwardedBatch::Item& item = batch.items[batch.first];
  const bool failed = item.command == nullptr || !waiting_.at(item.slot).error.empty();
  if (!failed) {
    // Until the next on_memory(), or until another part of the command has come home.
    if (due_.waits || exec_charge_.bytes() != 0) return false;
    // The oldest command must not wait for memory that its own connection holds.
    const std::size_t share = host().budget.share_bytes_max() / 2;
    const std::size_t held = std::min(share, waiting_.bytes() + forwarded_.charged_bytes());
    if (exec_charge_.set(std::min(batch.value_due, share - held))) {
      batch.value_charged = std::exchange(batch.value_due, 0);
      return true;
    }
    if (due_.since == Time{}) due_.since = host().loop.now();
    if (!ending() && host().loop.now() - due_.since < ShardHolds::patience) {
      due_.waits = true;
      site_->wait_for_memory(number_);
      return false;
    }
    waiting_.fail(item.slot,
                  "-TRYAGAIN the reply has " + std::to_string(batch.value_due) + std::string(no_memory_left));
  }
  due_.since = {};
  item.command = nullptr;
  batch.value_due = 0;
  return true;
}

void RespConnection::on_taken() {
  write_ready();
  send_batches();  // Behind it: what is written leaves another command as the oldest one.
  stopped_ = !closed() && !may_go_on();
  const bool rests = stopped_ && turn_work_ >= turn_work_max;
  // Further requests stay with their sender until replies come. The session stops by itself if they are not read.
  if (stopped_ && (rests || !waiting_.empty())) pause();
  if (!rests) {
    turn_work_ = 0;
  } else if (!std::exchange(resting_, true)) {
    site_->loop().post([site = site_, number = number_] {
      if (RespConnection* const connection = site->find(number)) connection->end_rest();
    });
  }
}

void RespConnection::end_rest() {
  turn_work_ = 0;
  resting_ = false;
  go_on();
}

void RespConnection::go_on() {
  if (!closed() && waiting_.empty()) replies_are_done();
  if (resting_) return;
  if (!closed() && (may_go_on() || waiting_.empty()) && std::exchange(stopped_, false)) resume();
}

void RespConnection::on_replies(ForwardedBatch& batch) {
  if (closed()) return;
  std::size_t begin = 0;
  for (; batch.first < batch.end; ++batch.first) {
    const ForwardedBatch::Item& item = batch.items[batch.first];
    waiting_.add_part(item.slot, item.part, std::string_view(batch.replies).substr(begin, item.reply_end - begin));
    begin = item.reply_end;
  }
  batch.replies = {};
  if (batch.end == batch.items.size()) {
    forwarded_.remove(batch);
  } else {
    // Commands that have failed already need no more replies.
    for (std::size_t i = batch.end; i < batch.items.size(); ++i) {
      ForwardedBatch::Item& item = batch.items[i];
      if (item.command != nullptr && !item.command->writes && !waiting_.at(item.slot).error.empty()) {
        item.command = nullptr;
      }
    }
  }
  if (std::exchange(batch.value_charged, 0) != 0) {
    exec_charge_.set_always(0);
    if (begin != 0) due_.since = {};
  }
  write_ready();
  // The replies are charged as those of this connection from here on.
  if (!closed()) batch.charge.release();
  if (!charge_replies()) return;
  send_batches();
  go_on();
}

void RespConnection::move_pieces(ReplyPieces& pieces, protocol::resp::ReplyWriter& to, std::size_t bytes) {
  pieces.move_to(to, bytes, [this](const Buffer& part) { queue().share(part); });
}

// A client has read long replies: their memory returns to the system if it is not used again.
void RespConnection::on_drained() {
  AllocatorTrim::of_process().add(backlog_mark());
  if (!charge_replies()) return;
  send_batches();
  go_on();
}

void RespConnection::write_ready() {
  while (waiting_.ready() && !closed()) {
    WaitingReply ready = waiting_.take_first();
    ready.write_to(out());
    if (ready.pieces != nullptr) [[unlikely]]
      move_pieces(*ready.pieces, out(), ready.pieces->size());
    if (ready.close) return close_after_replies();
  }
  flush_replies();
  if (pending_.transaction != nullptr) [[unlikely]]
    start_pending();
}

}  // namespace hawser::kv
