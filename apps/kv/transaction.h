#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kv/command_list.h"
#include "kv/commands.h"
#include "kv/key_listing.h"
#include "kv/reply_pieces.h"
#include "kv/shard_holds.h"
#include "kv/watches.h"

namespace hawser::kv {

class RespConnection;

// Commands that are executed without others between them: those of MULTI and EXEC, or one command whose keys belong to
// several shards. Belongs to the loop of its connection until start(), and after RespConnection::on_transaction().
class Transaction final : public HeldWork, public std::enable_shared_from_this<Transaction> {
 public:
  // listing: the command KEYS, which shards execute in steps, with others between them.
  enum class Kind : std::uint8_t { one_command, exec, listing };
  // replies_too_large: nothing was executed, because the replies would exceed what set_replies_max() has set.
  enum class Outcome : std::uint8_t { executed, watched_key_changed, refused, replies_too_large };

  Transaction(StoreSite& home, std::uint64_t connection, Kind kind, bool resp3)
      : home_(home), connection_(connection), kind_(kind), resp3_(resp3) {}

  // True if the reply has the values of its keys.
  static bool replies_with_value(const Command& command, Arguments arguments);
  // True if the reply has values or a list of keys.
  static bool replies_at_any_length(const Command& command, Arguments arguments);
  void add(const Command& command, Arguments arguments);
  std::size_t held_bytes() const noexcept { return commands_.bytes(); }
  bool writes() const noexcept { return commands_.writes(); }
  bool empty() const noexcept { return commands_.empty(); }
  // EXEC: fails if one of these keys has changed. WATCH: the keys are added to these.
  void set_watched(std::shared_ptr<WatchedKeys> watched) noexcept { watched_ = std::move(watched); }
  // The protocol of the client at EXEC.
  void set_resp3(bool resp3) noexcept { resp3_ = resp3; }
  // The client caches what it reads. 0: it does not.
  void set_tracker(std::uint64_t client) noexcept { tracker_ = client; }
  // The values that the commands reply with have at most so many bytes, or nothing is executed.
  void set_replies_max(std::size_t bytes) noexcept { replies_max_ = bytes; }
  // Executes it, and calls RespConnection::on_transaction() then, if the connection still exists. After
  // Outcome::replies_too_large it may be called again.
  void start();
  // The same for Kind::listing.
  void list_keys(ListingMemory memory);
  // Null before list_keys().
  KeyListing* listing() noexcept { return listing_.get(); }
  // After Outcome::replies_too_large: the bytes of the values.
  std::size_t value_bytes() const noexcept { return value_bytes_; }
  // Ends it without an execution, before start(): the reply is an error with this text.
  void refuse(std::string error);
  // The connection has ended: nothing waits for the log on its behalf.
  void abandon();

  Kind kind() const noexcept { return kind_; }
  Outcome outcome() const noexcept { return outcome_; }
  // The work of its commands, as Execution::work() counts it, of all executions until now.
  std::uint64_t work() const noexcept { return work_; }
  // The reply of a transaction that was refused.
  const std::string& error() const noexcept { return error_; }
  // The replies of all commands, each with the length that commands() has.
  ReplyPieces& replies() noexcept { return replies_; }
  // Commands of the connection have no reply.
  const CommandList& commands() const noexcept { return commands_; }

 private:
  void execute_commands();
  // HeldWork
  void execute() override;
  void released(StoreSite& site) override;
  void refused(const std::string& why) override;

  std::vector<StoreSite*> sites_of_all();
  StoreSite& site_of(const Command& command, Arguments arguments) const;
  bool watched_key_changed();
  bool replies_fit();
  void part_done();
  void listed();

  StoreSite& home_;
  const std::uint64_t connection_;
  const Kind kind_;
  bool resp3_;
  std::uint64_t tracker_ = 0;
  CommandList commands_;
  std::size_t long_replies_end_ = 0;  // Behind the last command that may have a long reply.
  std::shared_ptr<WatchedKeys> watched_;

  std::vector<StoreSite*> sites_;
  std::shared_ptr<KeyListing> listing_;
  ReplyPieces replies_;
  std::size_t replies_max_ = SIZE_MAX;
  std::size_t value_bytes_ = 0;
  std::uint64_t work_ = 0;
  Outcome outcome_ = Outcome::executed;
  std::string error_;
  std::mutex mutex_;  // Guards what follows, and error_ and outcome_ after execute().
  std::size_t parts_left_ = 0;
  bool abandoned_ = false;
  std::vector<std::uint64_t> durable_;  // By shard: the change waits for the log with this number; 0: it does not.
};

}  // namespace hawser::kv
