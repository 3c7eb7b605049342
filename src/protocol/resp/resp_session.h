#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string_view>

#include "pipe/held_charge.h"
#include "protocol/resp/reply_writer.h"
#include "protocol/resp/request_parser.h"
#include "protocol/resp/requests_ahead.h"
#include "rpc/port/byte_session.h"

namespace hawser::protocol::resp {

// The server's end of a connection of a Redis client: what is the same for all servers. Requests are shown to the
// derived class in order, and it writes their replies in that order. Loop's thread only.
class RespSession : public rpc::ByteSession, ReplyMemory {
 public:
  // ---- PortSession ----
  void go_away() override;

  // ---- detail::ReplySink ----
  std::string_view protocol() const noexcept override { return "resp"; }
  // Requests are not calls of registered methods.
  std::byte* begin_reply(std::uint32_t, const codec::EncodedSize&, const detail::ReplyExtras&) override {
    return nullptr;
  }
  void end_reply(std::span<const ConstBuffer>, SendCompletion*) override {}
  void reply_error(std::uint32_t, const Error&) override {}
  std::shared_ptr<detail::StreamCore> open_stream(std::uint32_t) override { return nullptr; }

 protected:
  // Most requests of one connection that are executed before others have their turn.
  static constexpr unsigned requests_per_take_max = 64;

  RespSession(rpc::PortHost& host, std::unique_ptr<transport::Stream> stream, Bytes first, const RequestLimits& limits);

  // These requests have arrived, and on_request() shows them next. For computing the hashes of their keys, and for
  // prefetching what they need.
  virtual void look_ahead(std::span<ReadyRequest> requests) { static_cast<void>(requests); }
  // A request with at least one argument. Its views are valid until this returns.
  virtual void on_request(const ReadyRequest& request) = 0;
  // The client violates the protocol. `text` is the reply; the connection closes after all replies.
  virtual void on_protocol_error(std::string_view text) = 0;
  // False while replies wait that are not in the queue yet.
  virtual bool idle() const noexcept { return true; }
  // False: no further request is taken now. resume() of ByteSession continues.
  virtual bool may_go_on() const noexcept { return true; }
  // All requests that have arrived were executed, or the turn is over.
  virtual void on_taken() {}
  // Bytes of replies that are not in the queue yet.
  virtual std::size_t held_replies() const noexcept { return 0; }
  void on_drained() override { charge_replies(); }
  void on_end(const Error& reason) override;
  // Charges replies that are not in the queue yet, if they are many, to the memory of the connection; the queue is
  // charged by ByteSession. False if more than send_backlog_bytes_max of them wait, more wait than at the last
  // call, and the account exceeds its limits: the connection has ended then.
  bool charge_replies();

  // Sets the limits of requests that are found later.
  void set_limits(const RequestLimits& limits) noexcept { parser_.set_limits(limits); }

  ReplyWriter& out() noexcept { return out_; }
  // Replies written by out() since the last flush() are sent at the end of the tick.
  void flush_replies() { out_.flush(); }
  // Sends the replies, and closes.
  void close_after_replies();

 private:
  static constexpr std::size_t reserve_bytes_min = 4096;
  static constexpr std::size_t free_reply_bytes = 64 * 1024;  // Not charged while they are not in the queue yet.

  std::size_t take(Bytes bytes, Block& block) override;
  std::size_t take_ready(std::span<ReadyRequest> requests, unsigned most);
  std::size_t take_by_parser(Bytes bytes);
  bool may_take() const noexcept { return !closed() && !finishing() && has_room() && may_go_on(); }
  bool receiving() const noexcept override { return parser_.inside(); }
  // A client may end its direction behind its last request, as `nc -N` does, and read the replies.
  Duration half_closed_max() const noexcept override { return std::chrono::seconds(5); }
  bool replies_due() const noexcept override { return !idle(); }
  bool working() const noexcept override { return !idle(); }
  void on_no_calls() override {}
  char* more(std::size_t used, std::size_t bytes, std::size_t& size) override;
  bool charge_parser();

  RespParser parser_;
  ReplyWriter out_;
  pipe::HeldCharge parser_charge_{account()};
  pipe::HeldCharge replies_charge_{account()};
  std::size_t replies_waiting_ = 0;  // At the last charge_replies().
};

}  // namespace hawser::protocol::resp
