#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/http_client.h"
#include "hawser/sync.h"
#include "hawser/transport/stream.h"
#include "protocol/http1/response_parser.h"

namespace hawser::http1 {

// A client's connection, which carries one request after another. Loop's thread only. It must not be destroyed from
// within a function of its stream; destroying it closes the connection.
class ClientConnection final : transport::StreamSink {
 public:
  ClientConnection(Loop& loop, std::unique_ptr<transport::Stream> stream, const MessageLimits& limits);
  ClientConnection(const ClientConnection&) = delete;
  ClientConnection& operator=(const ClientConnection&) = delete;
  ~ClientConnection();

  // Begins a request. `head` and `body` stay valid and unchanged until done() is set or this object is destroyed.
  void begin(std::string_view head, std::string_view body, bool is_head_method);
  // Set when the response is complete or the connection has ended.
  Event& done() noexcept { return done_; }

  // After done():
  bool complete() const noexcept { return complete_; }
  // Null, or why the response can't be used: the parser's reason.
  const char* violation() const noexcept { return violation_.empty() ? nullptr : violation_.c_str(); }
  bool too_long() const noexcept { return too_long_; }
  // True if a byte of the response has arrived.
  bool answered() const noexcept { return answered_; }
  const std::string& end_reason() const noexcept { return end_reason_; }
  HttpClientResponse take_response() noexcept { return std::move(response_); }

  // True if another request may begin.
  bool reusable() const noexcept { return stream_ != nullptr && !ended_ && !busy_ && keep_alive_; }
  // Gives back the memory of an unused connection.
  void rest() noexcept;

 private:
  static constexpr std::size_t read_bytes = 16 * 1024;
  // Announcements (statuses 100 to 199) before one response.
  static constexpr unsigned announcements_max = 100;

  MutableBytes receive_space() override;
  void received(std::size_t bytes) override;
  void sendable(std::size_t bytes) override;
  bool continues_after_end() override;
  void ended(const Error& reason) override;

  void send();
  void advance(std::size_t bytes) noexcept;
  void parse();
  // Returns whether more can be parsed.
  bool on_step(const MessageParser::Step& step);
  bool keep_head();
  bool refuse(std::string_view why);
  void finish(bool complete) noexcept;

  std::unique_ptr<transport::Stream> stream_;
  ResponseParser parser_;
  const std::size_t buffer_bytes_;  // Holds the longest head.
  std::vector<std::byte> buffer_;   // The bytes [begin_, end_) are received and not parsed.
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::string_view unsent_[2] = {};
  bool busy_ = false;
  bool keep_alive_ = true;
  bool ended_ = false;
  bool whole_ = false;  // The server has sent the end of its direction.
  bool complete_ = false;
  bool too_long_ = false;
  bool answered_ = false;
  unsigned announcements_ = 0;
  std::string violation_;
  std::string end_reason_;
  HttpClientResponse response_;
  Event done_;
};

}  // namespace hawser::http1
