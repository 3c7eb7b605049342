// MULTI, EXEC, DISCARD, WATCH, UNWATCH, and commands whose keys belong to several shards.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "kv/resp_connection.h"

namespace hawser::kv {
namespace {

// Memory for what replies add to the values.
constexpr std::size_t reply_margin_bytes = std::size_t{1} << 20;

}  // namespace

std::shared_ptr<Transaction> RespConnection::make_transaction(Transaction::Kind kind) {
  return std::make_shared<Transaction>(*site_, number_, kind, version_ == 3);
}

// Since MULTI: keeps the command for EXEC. False: it is executed now.
bool RespConnection::multi_takes(const Command& command, Arguments arguments) {
  if (!transaction_.open() || command.at_once()) return false;
  if (const std::string error = subcommand_error(command, arguments); !error.empty()) {
    transaction_.fail();
    reply([&](protocol::resp::ReplyWriter& to) { to.error(error); });
    return true;
  }
  // Nothing of a transaction that has failed is executed, so nothing is kept.
  if (transaction_.failed()) {
    reply([](protocol::resp::ReplyWriter& to) { to.status("QUEUED"); });
    return true;
  }
  if (const auto refusal = transaction_.add(command, arguments, login_.limits().request_bytes_max)) {
    reply([&](protocol::resp::ReplyWriter& to) { to.error(*refusal); });
    return true;
  }
  reply([](protocol::resp::ReplyWriter& to) { to.status("QUEUED"); });
  return true;
}

void RespConnection::run_multi(protocol::resp::ReplyWriter& to) {
  if (transaction_.open()) return to.error("ERR MULTI calls can not be nested");
  transaction_.begin(make_transaction(Transaction::Kind::exec));
  update_plain();
  to.ok();
}

void RespConnection::run_discard(protocol::resp::ReplyWriter& to) {
  if (!transaction_.open()) return to.error("ERR DISCARD without MULTI");
  discard();
  to.ok();
}

void RespConnection::run_exec() {
  const auto answer = [&](std::string_view error) { reply([&](protocol::resp::ReplyWriter& to) { to.error(error); }); };
  if (!transaction_.open()) return answer("ERR EXEC without MULTI");
  if (transaction_.failed()) {
    discard();
    return answer("EXECABORT Transaction discarded because of previous errors.");
  }
  std::shared_ptr<Transaction> given = transaction_.take();
  update_plain();
  given->set_resp3(version_ == 3);
  given->set_tracker(tracker());
  if (transaction_.watched() != nullptr) given->set_watched(transaction_.watched());
  begin(std::move(given));
}

void RespConnection::run_watch(const Command& command, Arguments arguments) {
  if (transaction_.open()) {
    return reply([](protocol::resp::ReplyWriter& to) { to.error("ERR WATCH inside MULTI is not allowed"); });
  }
  if (!transaction_.watch(site_->store(), arguments.subspan(1))) {
    return reply([&](protocol::resp::ReplyWriter& to) {
      to.error("ERR the connection watches too many keys: their bytes, twice, and 256 for each are at most 4 MiB");
    });
  }
  std::shared_ptr<Transaction> watching = make_transaction(Transaction::Kind::one_command);
  watching->add(command, arguments);
  watching->set_watched(transaction_.watched());
  begin(std::move(watching));
}

void RespConnection::run_together(const Command& command, Arguments arguments) {
  const Store& store = site_->store();
  const std::uint64_t hash = store.key(arguments[static_cast<std::size_t>(command.keys.first)]).hash;
  const unsigned shard = store.shard_of(hash);
  bool several = false;
  command.each_key(arguments, [&](std::string_view key) { several |= store.shard_of(store.key(key).hash) != shard; });
  if (!several) return execute_at(command, arguments, hash, shard);
  run_alone(command, arguments);
}

// The shards of its keys execute nothing else meanwhile, and it starts when there is memory for the values.
void RespConnection::run_alone(const Command& command, Arguments arguments) {
  std::shared_ptr<Transaction> made = make_transaction(Transaction::Kind::one_command);
  made->add(command, arguments);
  made->set_tracker(tracker());
  begin(std::move(made));
}

// Others are served meanwhile, and further requests of this client wait.
void RespConnection::run_listing(const Command& command, Arguments arguments) {
  if (arguments[1].size() > pattern_bytes_max) {
    return reply([&](protocol::resp::ReplyWriter& to) { to.error(pattern_too_long(arguments[1])); });
  }
  std::shared_ptr<Transaction> made = make_transaction(Transaction::Kind::listing);
  made->add(command, arguments);
  begin(std::move(made));
}

void RespConnection::begin(std::shared_ptr<Transaction> transaction) {
  pending_ = {.transaction = std::move(transaction),
              .slot = waiting_.add({.route = CommandRoute::key, .parts_left = 1})};
  barred_ = true;
  start_pending();
}

void RespConnection::start_pending(std::size_t value_bytes) {
  // Its reply is the first one that waits. Invalidations may follow.
  if (pending_.phase != Pending::Phase::waits || waiting_.first_slot() != pending_.slot || closed()) return;
  pending_.phase = Pending::Phase::started;
  if (pending_.transaction->kind() == Transaction::Kind::listing) {
    return pending_.transaction->list_keys(
        {.budget = host().budget, .total = account().abandoned(), .charged = value_bytes != 0});
  }
  starting_ = true;
  // Short values need no memory of their own.
  constexpr std::size_t short_bytes = hawser::detail::ReceiveAccount::reserve_bytes;
  if (value_bytes == 0) value_bytes = exec_charge_.set(2 * reply_margin_bytes) ? reply_margin_bytes : short_bytes;
  pending_.transaction->set_replies_max(value_bytes);
  pending_.transaction->start();
  starting_ = false;
  if (pending_.transaction == nullptr) write_ready();
}

void RespConnection::on_transaction(Transaction& done) {
  if (closed() || pending_.transaction.get() != &done) return;
  exec_charge_.set_always(0);
  // Otherwise others have had their turn meanwhile.
  if (starting_) turn_work_ += done.work();
  if (done.outcome() == Transaction::Outcome::replies_too_large) {
    wait_for_memory();
    if (!starting_) take_further();
    return;
  }
  const std::shared_ptr<Transaction> kept = std::exchange(pending_, {}).transaction;
  barred_ = closing_;
  if (done.kind() == Transaction::Kind::exec) transaction_.unwatch(site_);
  end_multi();
  // No reply before it waits, so this one goes into the queue.
  write_exec(done, out());
  if (closed()) return;
  const bool last = waiting_.take_first().close;
  std::exchange(quitting_, false) || last ? close_now(false) : write_ready();
  if (!starting_) take_further();
}

// Requests behind a transaction that has been answered.
void RespConnection::take_further() {
  if (closed() || !charge_replies()) return;
  send_batches();
  go_on();
}

// Nothing has been executed. Other clients read their replies meanwhile, which frees memory.
void RespConnection::wait_for_memory() {
  pending_.phase = Pending::Phase::awaits_memory;
  if (pending_.memory_since == Time{}) pending_.memory_since = host().loop.now();
  try_memory();
}

void RespConnection::on_memory() {
  due_.waits = false;
  try_memory();
  take_further();
}

void RespConnection::try_memory() {
  if (closed() || pending_.phase != Pending::Phase::awaits_memory) return;
  const std::size_t values = pending_.transaction->value_bytes();
  const std::size_t share = host().budget.share_bytes_max();
  const bool exec = pending_.transaction->kind() == Transaction::Kind::exec;
  // One command is not refused because its reply is long: it is executed when half of that memory is free.
  const std::size_t bytes = exec ? values + reply_margin_bytes : std::min(values + reply_margin_bytes, share / 2);
  const bool never = bytes > share;
  if (exec_charge_.set(bytes)) {
    pending_.phase = Pending::Phase::waits;
    return start_pending(values);
  }
  if (!never && !ending() && host().loop.now() - pending_.memory_since < ShardHolds::patience)
    return site_->wait_for_memory(number_);
  pending_.phase = Pending::Phase::started;
  pending_.transaction->refuse(
      "-" + std::string(never ? "OOM" : "TRYAGAIN") + (exec ? " the replies of EXEC have " : " the reply has ") +
      std::to_string(values) +
      (never ? " bytes, and a connection may have " + std::to_string(share) +
                   " bytes: read fewer values in one transaction, or raise --memory. Nothing was executed\r\n"
             : std::string(no_memory_left)));
  on_transaction(*pending_.transaction);
}

void RespConnection::write_exec(Transaction& done, protocol::resp::ReplyWriter& to) {
  switch (done.outcome()) {
    case Transaction::Outcome::refused: return to.raw(done.error());
    case Transaction::Outcome::watched_key_changed: return to.raw(to.resp3() ? "_\r\n" : "*-1\r\n");
    case Transaction::Outcome::replies_too_large:
    case Transaction::Outcome::executed: break;
  }
  if (KeyListing* const listing = done.listing(); listing != nullptr) {
    to.array(listing->keys());
    return listing->each_part([&](ReplyPieces& part) { move_pieces(part, to, part.size()); });
  }
  if (done.kind() == Transaction::Kind::exec) to.array(done.commands().size());
  done.commands().each([&](const Command& command, Arguments arguments, std::size_t reply_bytes) {
    command.route == CommandRoute::connection ? execute_own(command, arguments, to)
                                              : move_pieces(done.replies(), to, reply_bytes);
  });
}

}  // namespace hawser::kv
