#include "kv/transaction.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "kv/reply_lengths.h"
#include "kv/resp_connection.h"
#include "kv/set_options.h"
#include "kv/store.h"

namespace hawser::kv {

namespace {

// True if the reply may be long: a command that has another reply is executed in any case.
bool replies_at_length(const Command& command, Arguments arguments) {
  return !command.writes || Transaction::replies_with_value(command, arguments);
}

}  // namespace

bool Transaction::replies_at_any_length(const Command& command, Arguments arguments) {
  return command.route == CommandRoute::all_list || replies_with_value(command, arguments);
}

// GETRANGE counts as the whole value.
bool Transaction::replies_with_value(const Command& command, Arguments arguments) {
  if (command.replies_value) return true;
  if (command.name != "set") return false;
  return std::any_of(arguments.begin() + 3, arguments.end(),
                     [](std::string_view word) { return is_word(word, "get"); });
}

void Transaction::add(const Command& command, Arguments arguments) {
  if (replies_at_any_length(command, arguments)) long_replies_end_ = commands_.size() + 1;
  commands_.add(command, arguments);
}

// The shards of all keys, in the order of their numbers.
std::vector<StoreSite*> Transaction::sites_of_all() {
  Store& store = home_.store();
  std::vector<bool> held(store.shards(), store.shards() == 1);
  commands_.each([&](const Command& command, Arguments arguments, std::size_t) {
    switch (command.route) {
      case CommandRoute::connection: return;
      case CommandRoute::cursor: held[site_of(command, arguments).index()] = true; return;
      case CommandRoute::all_sum:
      case CommandRoute::all_list:
      case CommandRoute::all_status:
      case CommandRoute::random: held.assign(held.size(), true); return;
      default:
        command.each_key(arguments, [&](std::string_view key) { held[store.shard_of(store.key(key).hash)] = true; });
    }
  });
  if (watched_ != nullptr && kind_ == Kind::exec) {
    for (const WatchedKeys::One& one : watched_->keys) held[one.shard] = true;
  }
  std::vector<StoreSite*> sites;
  for (unsigned i = 0; i < store.shards(); ++i) {
    if (held[i]) sites.push_back(&store.site(i));
  }
  // Commands of the connection alone.
  if (sites.empty()) sites.push_back(&home_);
  return sites;
}

// The shard whose time a command uses: that of its first key.
StoreSite& Transaction::site_of(const Command& command, Arguments arguments) const {
  Store& store = home_.store();
  if (command.route == CommandRoute::cursor) {
    std::uint64_t cursor = 0;
    const bool valid = parse_cursor(arguments[1], cursor) && cursor_shard(cursor) < store.shards();
    return store.site(valid ? cursor_shard(cursor) : home_.index());
  }
  if (command.keys.first == 0) return *sites_.front();
  return store.site(store.shard_of(store.key(arguments[command.keys.first]).hash));
}

void Transaction::start() {
  outcome_ = Outcome::executed;
  sites_ = sites_of_all();
  parts_left_ = sites_.size();
  durable_.resize(home_.store().shards());
  home_.store().holds().start(shared_from_this(), sites_);
}

void Transaction::list_keys(ListingMemory memory) {
  outcome_ = Outcome::executed;
  commands_.each([&](const Command&, Arguments arguments, std::size_t) {
    listing_ = std::make_shared<KeyListing>(home_.store(), std::string(arguments[1]), std::move(memory),
                                            [listing = weak_from_this()] {
                                              if (const auto self = listing.lock()) self->listed();
                                            });
  });
  listing_->start();
}

void Transaction::listed() {
  {
    const std::lock_guard lock(mutex_);
    parts_left_ = 1;
    value_bytes_ = listing_->bytes();
    if (!listing_->error().empty()) {
      refuse("-" + listing_->error() + "\r\n");
    } else if (listing_->too_large()) {
      outcome_ = Outcome::replies_too_large;
    }
  }
  part_done();
}

bool Transaction::watched_key_changed() {
  if (kind_ != Kind::exec || watched_ == nullptr) return false;
  for (const WatchedKeys::One& one : watched_->keys) {
    // Removes an entry that has expired, which changes it.
    StoreSite& site = home_.store().site(one.shard);
    static_cast<void>(site.shard().find({one.key, one.hash}, site.now(), false));
  }
  return watched_->changed.load(std::memory_order_relaxed);
}

bool Transaction::replies_fit() {
  ReplyLengths lengths(home_.store());
  value_bytes_ = 0;
  std::size_t index = 0;
  commands_.each([&](const Command& command, Arguments arguments, std::size_t) {
    if (++index > long_replies_end_) return;
    value_bytes_ += lengths.of_reply(command, arguments);
    if (command.writes && index < long_replies_end_) lengths.add_write(command, arguments);
  });
  work_ += lengths.scanned();
  return value_bytes_ <= replies_max_;
}

// Other shards wait until it returns, so it throws nothing.
void Transaction::execute() {
  try {
    execute_commands();
  } catch (const std::bad_alloc&) {
    replies_ = {};
    refuse("-OOM there is no memory for the replies: a part of the transaction may have been executed\r\n");
  }
}

void Transaction::execute_commands() {
  if (kind_ == Kind::one_command && watched_ != nullptr) {
    // WATCH of a client that has gone: its connection has removed what it watches already.
    const std::lock_guard lock(mutex_);
    if (abandoned_) return;
  }
  if (watched_key_changed()) {
    outcome_ = Outcome::watched_key_changed;
    return;
  }
  if (commands_.writes()) {
    for (StoreSite* const site : sites_) {
      if (const std::string* const why = site->write_refusal()) return refuse(RespConnection::log_error(*why));
    }
  }
  if (!replies_fit()) {
    outcome_ = Outcome::replies_too_large;
    return;
  }
  protocol::resp::ReplyWriter out(replies_);
  out.set_version(resp3_ ? 3 : 2);
  std::size_t index = 0;
  std::uint64_t scanned = 0;
  commands_.each([&](const Command& command, Arguments arguments, std::size_t) {
    if (command.route != CommandRoute::connection) {
      StoreSite& site = site_of(command, arguments);
      if (replies_.size() > reply_bytes_max && replies_at_length(command, arguments)) {
        out.error(values_too_long);
      } else {
        Execution execution{site, out, arguments,
                            command.route == CommandRoute::key ? home_.store().key(arguments[1]).hash : 0};
        execution.held = true;
        execution.watched = &watched_;
        execution.scanned = scanned;
        command.run(execution);
        work_ += execution.work() - scanned;
        scanned = execution.scanned;
        home_.store().track(command, arguments, tracker_);
      }
      out.flush();
    } else if (command.own == Own::hello) {
      // The connection executes it when it writes the replies.
      if (const std::optional<int> version = hello_version(arguments)) out.set_version(*version);
    }
    commands_.set_replies_end(index++, replies_.size());
  });
}

void Transaction::refuse(std::string error) {
  outcome_ = Outcome::refused;
  error_ = std::move(error);
}

void Transaction::released(StoreSite& site) {
  bool waits = commands_.writes() && site.unsynced();
  {
    // Another shard may know already that its log has failed.
    const std::lock_guard lock(mutex_);
    waits &= !abandoned_ && outcome_ == Outcome::executed;
  }
  if (!waits) return part_done();
  const std::uint64_t number =
      site.when_durable([self = shared_from_this(), index = site.index()](const std::string* error) {
        self->durable_[index] = 0;
        if (error != nullptr) {
          const std::lock_guard lock(self->mutex_);
          self->refuse(RespConnection::log_error(*error));
        }
        self->part_done();
      });
  if (number != 0) durable_[site.index()] = number;
}

void Transaction::refused(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    refuse("-TRYAGAIN " + why + ", and nothing was executed: send the command again\r\n");
    parts_left_ = 1;
  }
  part_done();
}

void Transaction::part_done() {
  {
    const std::lock_guard lock(mutex_);
    if (--parts_left_ != 0) return;
  }
  auto arrive = [self = shared_from_this()] {
    if (RespConnection* const connection = self->home_.find(self->connection_)) connection->on_transaction(*self);
  };
  Loop::current() == &home_.loop() ? arrive() : home_.loop().post(std::move(arrive));
}

void Transaction::abandon() {
  {
    const std::lock_guard lock(mutex_);
    abandoned_ = true;
  }
  if (listing_ != nullptr) listing_->give_up();
  if (!home_.sync_always()) return;
  for (StoreSite* const site : sites_) {
    site->loop().post([self = shared_from_this(), site] {
      if (const std::uint64_t number = std::exchange(self->durable_[site->index()], 0)) site->forget(number);
    });
  }
}

}  // namespace hawser::kv
