#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "kv/commands.h"
#include "kv/store.h"
#include "protocol/resp/resp_session.h"

namespace hawser::kv {

// Replies in a string.
class StringReplies final : public resp::ReplyMemory {
 public:
  // The replies that were flushed.
  std::string& text() noexcept { return text_; }

 private:
  char* more(std::size_t used, std::size_t bytes, std::size_t& size) override;

  std::string text_;
  std::size_t used_ = 0;
};

// Commands of one connection that another shard executes, and then their replies. It travels to that shard's loop and
// back.
struct ForwardedBatch {
  struct Item {
    const Command* command;
    std::uint64_t slot;  // The reply belongs to this one of the connection.
    std::uint32_t part;  // And there to this part.
    std::uint32_t arguments;
    std::uint64_t hash;
    std::size_t reply_end = 0;  // The reply ends here in `replies`.
  };
  Site* home = nullptr;
  Site* target = nullptr;
  std::uint64_t connection = 0;  // Its number at `home`.
  bool resp3 = false;
  std::vector<Item> items;
  std::string bytes;                 // The arguments of all items.
  std::vector<std::uint32_t> sizes;  // Their lengths.
  std::string replies;

  std::size_t held_bytes() const noexcept { return bytes.size() + items.size() * sizeof(Item); }
};

// A Redis client. Commands of its own loop's shard are executed at once. Others travel to their shards, and replies
// wait for those before them.
class RespConnection final : public resp::RespSession {
 public:
  RespConnection(rpc::PortHost& host, std::unique_ptr<transport::Stream> stream, Bytes first,
                 const resp::RequestLimits& limits, Site* site);
  ~RespConnection() override;

  // A batch has been executed.
  void on_replies(const ForwardedBatch& batch);

 private:
  // A reply that is not complete, or waits for one.
  struct Waiting {
    Route route = Route::connection;
    std::size_t parts_left = 0;
    std::int64_t sum = 0;
    std::size_t elements = 0;
    std::string text = {};
    std::vector<std::string> parts = {};
    std::string error = {};
    bool close = false;
  };
  // Commands whose replies wait at most, and bytes of their arguments.
  static constexpr std::size_t waiting_max = 1024;
  static constexpr std::size_t forwarded_bytes_max = std::size_t{4} << 20;
  // Batches of one connection that travel at a time.
  static constexpr std::size_t travelling_max = 8;
  // Parts of one command.
  static constexpr std::size_t parts_max = 64 * 1024;

  void on_request(Arguments arguments) override;
  void on_protocol_error(std::string_view text) override;
  bool idle() const noexcept override { return waiting_.empty(); }
  bool may_go_on() const noexcept override {
    return waiting_.size() < waiting_max && forwarded_bytes_ < forwarded_bytes_max && travelling_ < travelling_max &&
           !closing_;
  }
  void on_taken() override;
  void on_end(const Error& reason) override;

  void execute(const Command& command, Arguments arguments, std::uint64_t hash, resp::ReplyWriter& out);
  void execute_own(const Command& command, Arguments arguments, resp::ReplyWriter& out);
  void dispatch(const Command& command, Arguments arguments);
  void forward(const Command& command, Arguments arguments, std::uint64_t hash, unsigned shard, std::size_t part);
  void split(const Command& command, Arguments arguments);
  void finish_part(std::uint64_t slot, std::uint32_t part, std::string_view reply);
  void send_batches();
  void write_ready();
  void close_now(bool replies_wait);
  template <class Write>
  void reply(Write write);

  void set_version(int version);
  // False if the name is invalid; the reply has been written then.
  bool set_name(std::string_view name, resp::ReplyWriter& out);
  // Unique among the connections of all shards.
  std::uint64_t id() const noexcept { return number_ * site_->store().shards() + site_->index(); }
  void run_hello(Arguments arguments, resp::ReplyWriter& out);
  void run_client(Arguments arguments, resp::ReplyWriter& out);
  void run_config(Arguments arguments, resp::ReplyWriter& out);
  void run_command(Arguments arguments, resp::ReplyWriter& out);

  Site* const site_;  // Null: the store is not ready.
  const std::uint64_t number_;
  int version_ = 2;
  std::string client_name_;
  bool quitting_ = false;  // QUIT is being executed.
  bool closing_ = false;   // After QUIT: no further request is executed.
  std::deque<Waiting> waiting_;
  std::uint64_t first_slot_ = 0;  // Number of waiting_.front().
  std::size_t forwarded_bytes_ = 0;
  std::size_t travelling_ = 0;
  bool stopped_ = false;                                  // take() stopped because of may_go_on().
  std::vector<std::unique_ptr<ForwardedBatch>> batches_;  // By shard; null: none in this turn.
};

// Replies of one batch beyond which its other commands fail.
constexpr std::size_t batch_reply_bytes_max = std::size_t{64} << 20;

// Executes a batch on its target's loop, and sends it back.
void run_batch(std::unique_ptr<ForwardedBatch> batch);

}  // namespace hawser::kv
