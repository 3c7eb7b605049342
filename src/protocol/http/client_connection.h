#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "exec/condition.h"
#include "hawser/http_client.h"
#include "hawser/time.h"
#include "hawser/transport/stream.h"
#include "pipe/buffered_stream.h"
#include "pipe/receive_block.h"
#include "protocol/http/response_parser.h"

namespace hawser::protocol::http {

// A client's connection, which carries one request after another. Loop's thread only. It must not be destroyed from
// within a function of its stream; destroying it closes the connection.
class ClientConnection final : transport::StreamSink, SendCompletion {
 public:
  ClientConnection(Loop& loop, std::unique_ptr<transport::Stream> stream, const HttpMessageLimits& limits);
  ClientConnection(const ClientConnection&) = delete;
  ClientConnection& operator=(const ClientConnection&) = delete;
  ~ClientConnection();

  struct Request {
    std::string_view head;
    std::string_view body = {};   // The whole body of the request, or its first part.
    bool more = false;            // The body goes on: send_part() follows.
    bool is_head_method = false;  // The response has no body.
    // The body of the response is kept in parts: while at least so many bytes wait for take_part(), the connection is
    // not read. 0: the whole body becomes part of the response.
    std::size_t part_bytes_max = 0;
    std::uint64_t body_bytes_max = UINT64_MAX;  // A longer body of the response is refused.
  };
  // Begins a request. Its views stay valid and unchanged until sending() is false, or close(), or this object is
  // destroyed. `changed`, which outlives the request, is notified of every progress.
  void begin(const Request& request, exec::Condition& changed);

  // ---- While the request is sent ----
  // True while bytes that the caller owns have not been sent.
  bool sending() const noexcept { return stream_.backlog() != 0; }
  // Sends `bytes` as the next part of the body, as a chunk or as it is, if sending() is false; as begin() demands. An
  // empty chunk ends the body. `last`: nothing follows.
  void send_part(std::string_view bytes, bool chunked, bool last);
  // The server has asked for the body: status 100.
  bool continued() const noexcept { return exchange_.continued; }
  // The connection has ended, so that nothing more can be sent. A response may still be read.
  bool broken() const noexcept { return broken_ || ended_; }

  // ---- While the response is received ----
  bool has_head() const noexcept { return exchange_.has_head; }
  // The body that has arrived, for requests with part_bytes_max.
  std::string take_part();
  // True when the response is complete or the connection has ended.
  bool finished() const noexcept { return !busy_; }
  Time received_at() const noexcept { return exchange_.received_at; }
  Time sent_at() const noexcept { return exchange_.sent_at; }

  // ---- When finished() ----
  bool complete() const noexcept { return exchange_.complete; }
  // Null, or why the response can't be used: the parser's reason.
  const char* violation() const noexcept { return exchange_.violation.empty() ? nullptr : exchange_.violation.c_str(); }
  bool too_long() const noexcept { return exchange_.too_long; }
  // True if a byte of the response has arrived.
  bool answered() const noexcept { return exchange_.answered; }
  const std::string& end_reason() const noexcept { return end_reason_; }
  // Without the body if that is received in parts; then it may be called as soon as has_head() is true.
  HttpClientResponse take_response() noexcept { return std::move(exchange_.response); }

  // For a connection that is broken(): no memory of the caller is read any more. What has arrived is still received.
  void stop_sending() noexcept {
    stream_.queue().clear();
    keep_alive_ = false;
  }

  // True if another request may begin.
  bool reusable() const noexcept { return !stream_.closed() && !broken() && !busy_ && keep_alive_; }
  // Gives back the memory of an unused connection.
  void rest() noexcept;
  // Closes the connection, if it is not closed: no memory of the caller is read any more. What has been received can
  // still be taken. Not from within a function of its stream.
  void close() noexcept;

 private:
  static constexpr std::size_t read_bytes = 16 * 1024;
  // Announcements (statuses 100 to 199) before one response.
  static constexpr unsigned announcements_max = 100;

  // The present request and its response, or the last one.
  struct Exchange {
    exec::Condition* changed = nullptr;
    std::size_t part_bytes_max = 0;  // As in Request.
    std::uint64_t body_bytes_max = 0;
    bool more = false;   // The body of the request is not complete.
    Time received_at{};  // When bytes have moved last; the begin of the request if none has.
    Time sent_at{};
    bool continued = false;
    unsigned announcements = 0;
    bool answered = false;
    bool has_head = false;
    std::uint64_t body_bytes = 0;  // Bytes of the response's body so far.
    std::string part;              // The bytes that nobody has taken, if the body is received in parts.
    HttpClientResponse response;
    bool complete = false;
    std::string violation;
    bool too_long = false;
  };

  MutableBytes receive_space() override;
  void received(std::size_t bytes) override;
  void sendable(std::size_t bytes) override;
  void broken(const Error& reason) override;
  bool continues_after_end() override;
  void ended(const Error& reason) override;

  // Owns what is borrowed; whoever calls send_part() asks sending().
  void on_send_complete() noexcept override {}
  void borrow(std::string_view bytes);
  void send();
  void parse();
  // Returns whether more can be parsed.
  bool on_step(const MessageParser::Step& step);
  bool keep_head();
  bool keep_body(Bytes bytes);
  bool refuse(std::string_view why);
  void finish(bool complete) noexcept;
  void notify() {
    if (exchange_.changed != nullptr) exchange_.changed->notify_all();
  }

  Loop& loop_;
  pipe::BufferedStream stream_;
  ResponseParser parser_;
  const std::size_t block_bytes_;  // Holds the longest head.
  pipe::ReceiveBlock block_;       // Its bytes have not been parsed. It is there while a request is under way.
  std::string chunk_head_;
  Exchange exchange_;
  bool busy_ = false;    // A request is under way.
  bool paused_ = false;  // Too many bytes wait for take_part().
  bool keep_alive_ = true;
  bool broken_ = false;
  bool ended_ = false;
  bool whole_ = false;  // The server has sent the end of its direction.
  std::string end_reason_;
};

}  // namespace hawser::protocol::http
