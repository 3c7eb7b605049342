#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kv/client_login.h"
#include "kv/client_tracking.h"
#include "kv/client_transaction.h"
#include "kv/clients.h"
#include "kv/commands.h"
#include "kv/forwarded_commands.h"
#include "kv/store.h"
#include "kv/string_replies.h"
#include "kv/waiting_replies.h"
#include "protocol/resp/resp_session.h"

namespace hawser::kv {

// A Redis client. Commands of its own loop's shard are executed at once. Others travel to their shards, and replies
// wait for those before them.
class RespConnection final : public protocol::resp::RespSession {
 public:
  // `limits`: of a client that has authenticated. `store` outlives the connection; `gate` too, or it is null.
  RespConnection(rpc::PortHost& host, std::unique_ptr<transport::Stream> stream, Bytes first,
                 const protocol::resp::RequestLimits& limits, Store& store, PasswordGate* gate);
  ~RespConnection() override;

  // ---- PortSession ----
  void go_away() override;

  // The reply to a write that the log refuses.
  static std::string log_error(const std::string& why);
  // The end of the error of a reply, behind the length of its values.
  static constexpr std::string_view no_memory_left =
      " bytes, for which others have left no memory: read replies earlier, or raise --memory. Nothing was executed\r\n";
  // Items of a batch have been executed.
  void on_replies(ForwardedBatch& batch);
  // The transaction that has been started is complete.
  void on_transaction(Transaction& done);
  // Others have had their turn.
  void end_rest();
  // Memory may have become free for the replies of the transaction that waits for it.
  void on_memory();
  // A key that this client caches has changed; null: all keys.
  void on_invalidated(const std::string* key) noexcept;

 private:
  // A transaction from EXEC, or from a command that is executed alone, to its reply.
  struct Pending {
    // `waits`: for the replies before its own, or it has just begun. `awaits_memory`: for the values of its reply;
    // nothing was executed. `started`: on_transaction() follows.
    enum class Phase : std::uint8_t { waits, awaits_memory, started };
    std::shared_ptr<Transaction> transaction;  // Null: none is pending.
    Phase phase = Phase::waits;
    std::uint64_t slot = 0;  // The slot of its reply.
    Time memory_since{};     // Since when its reply has awaited memory; the epoch: it has not.
  };
  // A value with which another shard replies to the oldest command.
  struct DueValue {
    bool waits = false;  // It awaits on_memory().
    Time since{};        // Since when it has awaited memory; the epoch: none does.
  };
  // Commands whose replies wait at most.
  static constexpr std::size_t waiting_max = 1024;
  // Parts of one command.
  static constexpr std::size_t parts_max = 64 * 1024;

  void look_ahead(std::span<protocol::resp::ReadyRequest> requests) override;
  void on_request(const protocol::resp::ReadyRequest& request) override;
  void on_protocol_error(std::string_view text) override;
  bool idle() const noexcept override { return waiting_.empty(); }
  // A client may have ended its direction behind requests that the rest keeps back.
  bool replies_due() const noexcept override { return resting_ || !idle(); }
  bool may_go_on() const noexcept override {
    if (barred_ || turn_work_ >= turn_work_max || forwarded_.full() || !replies_fit()) return false;
    return waiting_.empty() || waiting_.size() < waiting_max;
  }
  std::size_t held_replies() const noexcept override { return waiting_.bytes(); }
  // False: of the commands for other shards, only the oldest goes on.
  // Replies that wait for others leave the connection memory for these, so that a client that reads is not ended.
  bool replies_fit() const noexcept {
    return waiting_.bytes() + backlog() <= host().options.send_backlog_bytes_max &&
           waiting_.bytes() <= host().budget.share_bytes_max() / 4;
  }
  void on_taken() override;
  void on_drained() override;
  void on_end(const Error& reason) override;

  void execute(const Command& command, Arguments arguments, std::uint64_t hash, protocol::resp::ReplyWriter& out,
               bool tracked = true);
  void execute_own(const Command& command, Arguments arguments, protocol::resp::ReplyWriter& out);
  void dispatch(const Command& command, const protocol::resp::ReadyRequest& request);
  void forward(const Command& command, Arguments arguments, std::uint64_t hash, unsigned shard, std::size_t part,
               std::uint64_t client);
  void execute_at(const Command& command, Arguments arguments, std::uint64_t hash, unsigned shard);
  void split(const Command& command, Arguments arguments);
  void execute_logged(const Command& command, Arguments arguments, std::uint64_t hash);
  void hold(std::uint64_t slot);
  void on_durable(std::uint64_t slot, const std::string* error);
  void drop_waiting();
  void send_batches();
  bool charge_due(ForwardedBatch& batch);
  // Takes requests again after on_taken() has stopped that.
  void go_on();
  void move_pieces(ReplyPieces& pieces, protocol::resp::ReplyWriter& to, std::size_t bytes);
  void write_ready();
  void close_now(bool replies_wait);
  // ---- Transactions ----
  bool multi_takes(const Command& command, Arguments arguments);
  void run_multi(protocol::resp::ReplyWriter& out);
  void run_discard(protocol::resp::ReplyWriter& out);
  void run_exec();
  void run_watch(const Command& command, Arguments arguments);
  void end_multi() noexcept {
    transaction_.end(pending_.transaction != nullptr);
    update_plain();
  }
  void discard() {
    transaction_.unwatch(site_);
    end_multi();
  }
  std::shared_ptr<Transaction> make_transaction(Transaction::Kind kind);
  void run_together(const Command& command, Arguments arguments);
  void run_alone(const Command& command, Arguments arguments);
  void run_listing(const Command& command, Arguments arguments);
  // The replies of all earlier commands are written before it starts, and later requests wait for its reply.
  void begin(std::shared_ptr<Transaction> transaction);
  // Memory for so many bytes of values has been charged. 0: for none yet, so that a little is charged now if possible.
  void start_pending(std::size_t value_bytes = 0);
  void wait_for_memory();
  void try_memory();
  void take_further();
  void write_exec(Transaction& done, protocol::resp::ReplyWriter& out);
  // The client whose cache holds what its next command reads; 0: it is not to be tracked.
  std::uint64_t tracker() const noexcept { return tracking_.takes_next() ? id() : 0; }
  void update_plain() noexcept { plain_ = login_.authenticated() && !transaction_.open(); }

  // `waits`: the reply gets a place of its own among those that wait.
  template <class Write>
  void reply(Write write, bool waits = false);

  void set_version(int version);
  // False if the name is invalid; the reply has been written then.
  static bool check_name(std::string_view name, protocol::resp::ReplyWriter& out);
  // Unique among the connections of all shards.
  std::uint64_t id() const noexcept { return number_ * site_->store().shards() + site_->index(); }
  void update_login() noexcept {
    update_plain();
    set_limits(login_.limits());
  }
  // False if they are wrong; the reply has been written then.
  bool authenticate(std::string_view user, std::string_view password, protocol::resp::ReplyWriter& out);
  void run_auth(Arguments arguments, protocol::resp::ReplyWriter& out);
  void run_hello(Arguments arguments, protocol::resp::ReplyWriter& out);
  void run_client(Arguments arguments, protocol::resp::ReplyWriter& out);
  std::size_t kill_clients(const std::function<bool(const ClientRecord&)>& fits, bool skip_me);
  void list_clients(Arguments arguments, protocol::resp::ReplyWriter& out);
  void run_config(Arguments arguments, protocol::resp::ReplyWriter& out);
  void run_command(Arguments arguments, protocol::resp::ReplyWriter& out);

  // Finds the part of the store on this loop. False: the store is not ready. A connection may be older than it.
  bool join_site();

  Store& store_;
  StoreSite* site_ = nullptr;  // Null before join_site() has succeeded.
  std::uint64_t number_ = 0;
  ClientLogin login_;
  bool plain_;  // It has authenticated, and MULTI has not begun.
  int version_ = 2;
  ClientRecord record_;  // In the list of the store.
  ClientTracking tracking_;
  bool quitting_ = false;  // The command that is being executed is the last one: QUIT, or a wrong password too many.
  bool closing_ = false;   // After QUIT: no further request is executed.
  bool barred_ = false;    // `closing_`, or a transaction is pending: no further request is taken.
  bool starting_ = false;  // start_pending() runs.
  Pending pending_;
  // For the replies of `pending_`, or for a value with which another shard replies to the oldest command.
  pipe::HeldCharge exec_charge_{account()};
  DueValue due_;
  ClientTransaction transaction_{account()};  // It charges for `pending_` too.
  WaitingReplies waiting_;
  ForwardedCommands forwarded_{account()};
  bool stopped_ = false;  // take() stopped because of may_go_on().
  // The work of the commands that were executed in this turn, as Execution::work() counts it. From turn_work_max on,
  // the connection rests: other connections have their turn before its next command.
  std::uint64_t turn_work_ = 0;
  bool resting_ = false;
};

// Writes a reply in its place: into the queue, or behind the replies that wait.
template <class Write>
void RespConnection::reply(Write write, bool waits) {
  if (waiting_.empty() && !waits) [[likely]]
    return write(out());
  LongReply memory;
  protocol::resp::ReplyWriter to(memory);
  to.set_version(version_);
  write(to);
  to.flush();
  const std::size_t bytes = memory.size();
  waiting_.add({.text = std::move(memory.text()), .pieces = std::move(memory.pieces())}, bytes);
}

}  // namespace hawser::kv
