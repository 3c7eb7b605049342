#include "protocol/http/client_connection.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "pipe/null_sink.h"
#include "protocol/http/response.h"

namespace hawser::protocol::http {

ClientConnection::ClientConnection(Loop& loop, std::unique_ptr<transport::Stream> stream,
                                   const HttpMessageLimits& limits)
    : loop_(loop),
      stream_(std::move(stream)),
      parser_(limits),
      block_bytes_(std::max(limits.head_bytes_max, limits.line_bytes_max) + read_bytes) {
  stream_->start(loop, *this);
}

ClientConnection::~ClientConnection() { close(); }

void ClientConnection::begin(const Request& request, exec::Condition& changed) {
  if (block_.block() == nullptr) block_.replace(block_bytes_);
  busy_ = true;
  complete_ = answered_ = continued_ = has_head_ = false;
  announcements_ = 0;
  response_ = {};
  part_.clear();
  body_bytes_ = 0;
  part_bytes_max_ = request.part_bytes_max;
  body_bytes_max_ = request.body_bytes_max;
  changed_ = &changed;
  more_ = request.more;
  received_at_ = sent_at_ = loop_.now();
  parser_.expect_no_body(request.is_head_method);
  borrow(request.head);
  borrow(request.body);
  send();
}

void ClientConnection::rest() noexcept {
  block_.drop();
  stream_.queue().clear();
  std::string().swap(part_);
  changed_ = nullptr;
}

void ClientConnection::close() noexcept {
  if (stream_.closed()) return;
  stream_->set_sink(pipe::null_sink());
  stream_.close_now();
  changed_ = nullptr;
  if (busy_) {
    busy_ = complete_ = false;
    if (end_reason_.empty()) end_reason_ = "the client has closed it";
  }
}

// ---- Sending ----

void ClientConnection::borrow(std::string_view bytes) {
  if (!bytes.empty()) stream_.queue().borrow_part({as_bytes(bytes).data(), bytes.size()}, *this, false);
}

void ClientConnection::send_part(std::string_view bytes, bool chunked, bool last) {
  more_ = !last;
  if (!chunked) {
    borrow(bytes);
  } else if (bytes.empty()) {
    borrow(last_chunk);
  } else {
    borrow(chunk_head_ = chunk_head(bytes.size()));
    borrow(bytes);
    borrow("\r\n");
  }
  send();
}

void ClientConnection::send() {
  if (ended_) return;
  const std::uint64_t before = stream_.sent();
  stream_.send();
  if (stream_.sent() != before) sent_at_ = loop_.now();
}

// Bytes may have been accepted that stop_sending() has dropped.
void ClientConnection::sendable(std::size_t bytes) {
  stream_.sendable(std::min(bytes, stream_.backlog()));
  if (bytes != 0) sent_at_ = loop_.now();
  send();
  if (!sending()) notify();
}

void ClientConnection::broken(const Error& reason) {
  broken_ = true;
  if (end_reason_.empty()) end_reason_ = reason.text;
  notify();
}

// ---- Receiving ----

MutableBytes ClientConnection::receive_space() {
  if (!busy_) return pipe::discard_buffer();
  // The parser refuses heads and lines that leave less room. Nobody else uses the block.
  static_cast<void>(block_.fit(block_.empty() ? block_.size() : block_.held() + read_bytes));
  return block_.space();
}

void ClientConnection::received(std::size_t bytes) {
  if (bytes == 0) return;
  if (!busy_) {
    keep_alive_ = false;  // No request has asked for this.
    return;
  }
  answered_ = true;
  received_at_ = loop_.now();
  block_.received(bytes);
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
    const MessageParser::Step step = parser_.next(block_.bytes());
    const bool more = on_step(step);
    block_.take(step.consumed);
    if (!more) return;
  }
  if (!block_.empty()) keep_alive_ = false;  // Bytes behind the response.
  block_.take(block_.held());
}

bool ClientConnection::on_step(const MessageParser::Step& step) {
  switch (step.event) {
    case MessageParser::Event::more:
      // The parser refuses heads and lines that do not fit into the buffer.
      return false;
    case MessageParser::Event::head: return keep_head();
    case MessageParser::Event::body: return keep_body(step.data);
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

bool ClientConnection::keep_body(Bytes bytes) {
  body_bytes_ += bytes.size();
  // The chunk that has been announced counts, or the rest of the length.
  if (body_bytes_ > body_bytes_max_ || parser_.body_left() > body_bytes_max_ - body_bytes_) {
    too_long_ = true;
    return refuse("the body is too long");
  }
  if (bytes.empty()) return true;
  if (part_bytes_max_ == 0) {
    response_.body.append(as_text(bytes));
    return true;
  }
  part_.append(as_text(bytes));
  if (part_.size() >= part_bytes_max_ && !std::exchange(paused_, true)) stream_->pause();
  notify();
  return true;
}

std::string ClientConnection::take_part() {
  std::string part = std::move(part_);
  std::string().swap(part_);
  if (std::exchange(paused_, false) && !stream_.closed() && (busy_ || keep_alive_)) {
    received_at_ = loop_.now();  // The server had to wait.
    stream_->resume();
  }
  return part;
}

bool ClientConnection::keep_head() {
  const ResponseHead& head = parser_.head();
  if (head.status == 101) return refuse("the server switches to a protocol that nobody asked for (status 101)");
  if (head.status < 200) {  // 100 and the like announce the response.
    if (head.status == 100 && !std::exchange(continued_, true)) notify();
    return ++announcements_ <= announcements_max || refuse("more than 100 statuses below 200 came before it");
  }
  keep_alive_ = head.keep_alive;
  response_.status = static_cast<int>(head.status);
  response_.headers.reserve(head.fields.size());
  for (const Field& field : head.fields) response_.headers.emplace_back(field.name, field.value);
  has_head_ = true;
  notify();
  if (parser_.body_left() > body_bytes_max_) {
    too_long_ = true;
    return refuse("the body is too long");
  }
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
  if (!complete || sending() || more_) keep_alive_ = false;
  if (!keep_alive_ && !stream_.closed()) stream_->pause();
  busy_ = false;
  complete_ = complete;
  notify();
}

}  // namespace hawser::protocol::http
