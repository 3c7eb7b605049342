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
  exchange_ = {.changed = &changed,
               .part_bytes_max = request.part_bytes_max,
               .body_bytes_max = request.body_bytes_max,
               .more = request.more,
               .received_at = loop_.now(),
               .sent_at = loop_.now()};
  parser_.expect_no_body(request.is_head_method);
  borrow(request.head);
  borrow(request.body);
  send();
}

void ClientConnection::rest() noexcept {
  block_.drop();
  stream_.queue().clear();
  std::string().swap(exchange_.part);
  exchange_.changed = nullptr;
}

void ClientConnection::close() noexcept {
  if (stream_.closed()) return;
  stream_->set_sink(pipe::null_sink());
  stream_.close_now();
  exchange_.changed = nullptr;
  if (busy_) {
    busy_ = exchange_.complete = false;
    if (end_reason_.empty()) end_reason_ = "the client has closed it";
  }
}

// ---- Sending ----

void ClientConnection::borrow(std::string_view bytes) {
  if (!bytes.empty()) stream_.queue().borrow_part({as_bytes(bytes).data(), bytes.size()}, *this, false);
}

void ClientConnection::send_part(std::string_view bytes, bool chunked, bool last) {
  exchange_.more = !last;
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
  if (stream_.sent() != before) exchange_.sent_at = loop_.now();
}

// Bytes may have been accepted that stop_sending() has dropped.
void ClientConnection::sendable(std::size_t bytes) {
  stream_.sendable(std::min(bytes, stream_.backlog()));
  if (bytes != 0) exchange_.sent_at = loop_.now();
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
  exchange_.answered = true;
  exchange_.received_at = loop_.now();
  block_.received(bytes);
  try {
    parse();
  } catch (const std::bad_alloc&) {
    exchange_.violation = "there is not enough memory for it";
    exchange_.too_long = true;
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
  exchange_.violation = parser_.reason();
  exchange_.too_long = parser_.status() == 413 || parser_.status() == 414 || parser_.status() == 431;
  finish(false);
  return false;
}

bool ClientConnection::refuse(std::string_view why) {
  exchange_.violation = why;
  finish(false);
  return false;
}

bool ClientConnection::keep_body(Bytes bytes) {
  exchange_.body_bytes += bytes.size();
  // The chunk that has been announced counts, or the rest of the length.
  if (exchange_.body_bytes > exchange_.body_bytes_max ||
      parser_.body_left() > exchange_.body_bytes_max - exchange_.body_bytes) {
    exchange_.too_long = true;
    return refuse("the body is too long");
  }
  if (bytes.empty()) return true;
  if (exchange_.part_bytes_max == 0) {
    exchange_.response.body.append(as_text(bytes));
    return true;
  }
  exchange_.part.append(as_text(bytes));
  if (exchange_.part.size() >= exchange_.part_bytes_max && !std::exchange(paused_, true)) stream_->pause();
  notify();
  return true;
}

std::string ClientConnection::take_part() {
  std::string part = std::move(exchange_.part);
  std::string().swap(exchange_.part);
  if (std::exchange(paused_, false) && !stream_.closed() && (busy_ || keep_alive_)) {
    exchange_.received_at = loop_.now();  // The server had to wait.
    stream_->resume();
  }
  return part;
}

bool ClientConnection::keep_head() {
  const ResponseHead& head = parser_.head();
  if (head.status == 101) return refuse("the server switches to a protocol that nobody asked for (status 101)");
  if (head.status < 200) {  // 100 and the like announce the response.
    if (head.status == 100 && !std::exchange(exchange_.continued, true)) notify();
    return ++exchange_.announcements <= announcements_max || refuse("more than 100 statuses below 200 came before it");
  }
  keep_alive_ = head.keep_alive;
  exchange_.response.status = static_cast<int>(head.status);
  exchange_.response.headers.reserve(head.fields.size());
  for (const Field& field : head.fields) exchange_.response.headers.emplace_back(field.name, field.value);
  exchange_.has_head = true;
  notify();
  if (parser_.body_left() > exchange_.body_bytes_max) {
    exchange_.too_long = true;
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
  if (!complete || sending() || exchange_.more) keep_alive_ = false;
  if (!keep_alive_ && !stream_.closed()) stream_->pause();
  busy_ = false;
  exchange_.complete = complete;
  notify();
}

}  // namespace hawser::protocol::http
