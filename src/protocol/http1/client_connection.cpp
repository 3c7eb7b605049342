#include "protocol/http1/client_connection.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "transport/common/null_sink.h"

namespace hawser::http1 {

ClientConnection::ClientConnection(Loop& loop, std::unique_ptr<transport::Stream> stream, const MessageLimits& limits)
    : stream_(std::move(stream)),
      parser_(limits),
      buffer_bytes_(std::max(limits.head_bytes_max, limits.line_bytes_max) + read_bytes) {
  stream_->start(loop, *this);
}

ClientConnection::~ClientConnection() {
  if (stream_ != nullptr) stream_->set_sink(transport::null_sink());
}

void ClientConnection::begin(std::string_view head, std::string_view body, bool is_head_method) {
  if (buffer_.empty()) buffer_.resize(buffer_bytes_);
  busy_ = true;
  complete_ = answered_ = false;
  announcements_ = 0;
  response_ = {};
  done_.reset();
  parser_.expect_no_body(is_head_method);
  unsent_[0] = head;
  unsent_[1] = body;
  send();
}

void ClientConnection::rest() noexcept {
  buffer_ = {};
  unsent_[0] = unsent_[1] = {};
}

// ---- Sending ----

void ClientConnection::send() {
  for (;;) {
    std::array<ConstBuffer, 2> pieces;
    std::size_t count = 0;
    std::size_t offered = 0;
    for (const std::string_view part : unsent_) {
      if (part.empty()) continue;
      pieces[count++] = {as_bytes(part).data(), part.size()};
      offered += part.size();
    }
    if (count == 0 || ended_) return;
    const std::size_t taken = stream_->send(std::span(pieces.data(), count));
    advance(taken);
    if (taken < offered) return;  // sendable() follows.
  }
}

void ClientConnection::advance(std::size_t bytes) noexcept {
  for (std::string_view& part : unsent_) {
    const std::size_t size = std::min(bytes, part.size());
    part.remove_prefix(size);
    bytes -= size;
  }
}

void ClientConnection::sendable(std::size_t bytes) {
  advance(bytes);
  send();
}

// ---- Receiving ----

MutableBytes ClientConnection::receive_space() {
  if (!busy_) return transport::discard_buffer();
  if (begin_ == end_) begin_ = end_ = 0;
  if (begin_ != 0 && end_ + read_bytes > buffer_.size()) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  return {buffer_.data() + end_, buffer_.size() - end_};
}

void ClientConnection::received(std::size_t bytes) {
  if (bytes == 0) return;
  if (!busy_) {
    keep_alive_ = false;  // No request has asked for this.
    return;
  }
  answered_ = true;
  end_ += bytes;
  try {
    parse();
  } catch (const std::bad_alloc&) {
    violation_ = "there is not enough memory for it";
    too_long_ = true;
    finish(false);
  }
}

void ClientConnection::parse() {
  while (busy_) {
    const MessageParser::Step step = parser_.next(Bytes(buffer_.data() + begin_, end_ - begin_));
    const bool more = on_step(step);
    begin_ += step.consumed;
    if (!more) return;
  }
  if (begin_ != end_) keep_alive_ = false;  // Bytes behind the response.
  begin_ = end_ = 0;
}

bool ClientConnection::on_step(const MessageParser::Step& step) {
  switch (step.event) {
    case MessageParser::Event::more:
      // The parser refuses heads and lines that do not fit into the buffer.
      return false;
    case MessageParser::Event::head: return keep_head();
    case MessageParser::Event::body: response_.body.append(as_text(step.data)); return true;
    case MessageParser::Event::end:
      if (parser_.head().status >= 200) finish(true);
      return true;
    case MessageParser::Event::error: break;
  }
  violation_ = parser_.reason();
  too_long_ = parser_.status() == 413 || parser_.status() == 414 || parser_.status() == 431;
  finish(false);
  return false;
}

bool ClientConnection::refuse(std::string_view why) {
  violation_ = why;
  finish(false);
  return false;
}

bool ClientConnection::keep_head() {
  const ResponseHead& head = parser_.head();
  if (head.status == 101) return refuse("the server switches to a protocol that nobody asked for (status 101)");
  if (head.status < 200) {  // 100 and the like announce the response.
    return ++announcements_ <= announcements_max || refuse("more than 100 statuses below 200 came before it");
  }
  keep_alive_ = head.keep_alive;
  response_.status = static_cast<int>(head.status);
  response_.headers.reserve(head.fields.size());
  for (const Field& field : head.fields) response_.headers.emplace_back(field.name, field.value);
  return true;
}

// Asked only at an end that the server has sent, and not when the connection has been cut (StreamSink).
bool ClientConnection::continues_after_end() {
  whole_ = true;
  return false;
}

void ClientConnection::ended(const Error& reason) {
  ended_ = true;
  end_reason_ = reason.text;
  if (busy_) finish(whole_ && parser_.end_of_stream());
}

void ClientConnection::finish(bool complete) noexcept {
  // The server may answer before it has received the whole request. The rest can't be left out.
  if (!complete || !unsent_[0].empty() || !unsent_[1].empty()) keep_alive_ = false;
  if (!keep_alive_ && stream_ != nullptr) stream_->pause();
  busy_ = false;
  complete_ = complete;
  done_.set();
}

}  // namespace hawser::http1
