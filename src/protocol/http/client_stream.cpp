#include "protocol/http/client_stream.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/decimal_text.h"
#include "base/try.h"
#include "base/what_of.h"
#include "rpc/server/live_options.h"

namespace hawser::protocol::http {
namespace {

// One read() returns so many decompressed bytes at most.
constexpr std::size_t unpacked_bytes_max = 64 * 1024;
// Operations that never have to wait let the rest of their loop run after so many bytes.
constexpr std::size_t turn_bytes_max = 256 * 1024;

Error argument_error(std::string text) { return Error::of_call(ErrorCode::invalid_argument, std::move(text)); }

}  // namespace

ClientStream::ClientStream(std::shared_ptr<ConnectionPool> pool, HttpClientRequest request, ClientTarget target,
                           std::optional<HttpUpload> upload)
    : Work(*pool),
      pool_(std::move(pool)),
      request_(std::move(request)),
      target_(std::move(target)),
      head_(head_of(request_, target_.url, upload ? &*upload : nullptr)),
      changed_(pool_->loop()),
      upload_(std::move(upload)),
      body_(upload_ ? upload_->length : 0),
      deadlines_(pool_->options().stall_timeout),
      timer_(*this) {}

ClientStream::Operation::Operation(ClientStream& stream, Direction direction) : stream_(stream), direction_(direction) {
  stream.deadlines_.begin(direction, stream.loop().now());
  stream.watch();
}

// ---- The connection ----

Task<Result<HttpClientStream>> ClientStream::open(std::shared_ptr<ConnectionPool> pool, HttpClientRequest request,
                                                  std::optional<HttpUpload> upload) {
  CO_TRY(pool->check_loop());
  if (upload && !request.body.empty()) {
    co_return fail(argument_error("upload() takes no HttpClientRequest::body: write() it"));
  }
  CO_TRY(ClientTarget&& target, target_of(request, pool->options()));
  auto stream = std::make_shared<ClientStream>(std::move(pool), std::move(request), std::move(target), upload);
  const Loop& loop = stream->loop();
  const std::optional<Duration> timeout = stream->request_.timeout;
  const Time opening = loop.after(timeout.value_or(stream->pool_->options().request_timeout));
  stream->deadlines_.limit_opening(opening);
  if (timeout) stream->deadlines_.limit_request(opening);
  stream->watch();
  stream->on_stop_.emplace(stream->request_.token, Stopped{*stream});
  ConnectionPool::ScopedWork work(*stream->pool_);
  if (!stream->error_) work.tasks.spawn(stream->connect());
  while (!stream->opened_ && !stream->error_) {
    co_await stream->changed_.wait();
  }
  if (stream->error_) {
    work.tasks.clear();
    stream->release();
    co_return fail(*stream->error_);
  }
  co_return HttpClientStream(std::move(stream));
}

Task<void> ClientStream::connect() {
  try {
    co_await connect_and_begin();
  } catch (const std::exception& thrown) {
    fail_all(Error::of_call(ErrorCode::internal, std::string(what_of(thrown))));
  }
  opened_ = true;
  deadlines_.on_opened();
  changed_.notify_all();
}

Task<void> ClientStream::connect_and_begin() {
  ConnectionPool::Place place = co_await pool_->enter(target_.key);
  place_ = std::move(place);
  if (std::unique_ptr<ClientConnection> idle = pool_->take_idle(target_.key); idle != nullptr && !upload_) {
    if (co_await begin(std::move(idle), true)) co_return;
  }
  // The body of an upload can't be sent a second time, so that it goes over a new connection, which takes the place of
  // an unused one.
  sent_ = false;
  Result<std::unique_ptr<ClientConnection>> connection = co_await pool_->connect(target_, deadlines_.opening());
  if (!connection) co_return fail_all(std::move(connection.error()));
  co_await begin(std::move(*connection), false);
}

Task<bool> ClientStream::begin(std::unique_ptr<ClientConnection> connection, bool reused) {
  const HttpClientOptions& options = pool_->options();
  connection_ = std::move(connection);
  sent_ = true;
  connection_->begin({.head = head_,
                      .body = request_.body,
                      .more = !body_.done(),
                      .is_head_method = request_.method == "HEAD",
                      .part_bytes_max = std::max<std::size_t>(options.body_buffer_bytes, 1),
                      .body_bytes_max = options.stream_bytes_max},
                     changed_);
  if (upload_) {
    if (!body_.done() && upload_->expect_continue) deadlines_.await_continue(loop().after(upload_->continue_timeout));
    co_return true;
  }
  while (!error_ && !connection_->has_head() && !connection_->finished()) {
    co_await changed_.wait();
  }
  if (error_) co_return true;
  take_head();
  if (response_.status != 0) co_return true;
  if (reused && !connection_->answered() && is_idempotent(request_.method)) {
    connection_.reset();
    co_return false;
  }
  fail_all(failure_of(*connection_, request_, target_.address));
  co_return true;
}

// ---- The response ----

void ClientStream::take_head() {
  if (response_.status != 0 || connection_ == nullptr || !connection_->has_head()) return;
  response_ = connection_->take_response();
  if (!drop_gzip_fields(request_, response_)) return;
  inflater_ = BodyInflater::make();
  if (inflater_ == nullptr) {
    fail_all(Error::of_call(ErrorCode::overloaded, "no memory to decompress the body"));
  }
}

Task<Result<int>> ClientStream::wait_status(std::shared_ptr<ClientStream> self) {
  if (self->response_.status != 0) co_return self->response_.status;
  if (self->deadlines_.active(Direction::reading))
    co_return fail(argument_error("another operation reads the response"));
  const Operation operation(*self, Direction::reading);
  for (;;) {
    if (!self->error_) self->take_head();
    if (!self->error_ && self->response_.status == 0 && self->connection_->finished()) self->settle();
    if (self->error_) {
      self->release();
      co_return fail(*self->error_);
    }
    if (self->response_.status != 0) co_return self->response_.status;
    co_await self->changed_.wait();
  }
}

Task<Result<std::string>> ClientStream::read(std::shared_ptr<ClientStream> self) {
  if (self->deadlines_.active(Direction::reading))
    co_return fail(argument_error("another operation reads the response"));
  const Operation operation(*self, Direction::reading);
  if (self->turn_bytes_ >= turn_bytes_max) {
    co_await self->loop().sleep(Duration::zero());
    self->turn_bytes_ = 0;
  }
  for (;;) {
    Result<std::string> part = self->next_part();
    if (self->error_) {
      self->release();
      co_return fail(*self->error_);
    }
    if (!part->empty() || self->ended_) {
      self->turn_bytes_ += part->size();
      co_return part;
    }
    co_await self->changed_.wait();
  }
}

// If it fails, the whole request fails.
Result<std::string> ClientStream::next_part() {
  if (!error_) take_head();
  if (error_ || ended_) return std::string();
  if (response_.status != 0 && inflater_ == nullptr) {
    std::string part = connection_->take_part();
    if (!part.empty()) return counted(std::move(part));
  }
  while (response_.status != 0 && inflater_ != nullptr) {
    if (inflater_->wants_input()) {
      std::string compressed = connection_->take_part();
      if (compressed.empty()) break;
      inflater_->give(std::move(compressed));
    }
    Result<std::string> part = inflater_->next(unpacked_bytes_max);
    if (!part) {
      fail_all(part.error());
      return part;
    }
    if (!part->empty()) return counted(std::move(*part));
  }
  if (connection_->finished()) settle();
  return std::string();
}

Result<std::string> ClientStream::counted(std::string part) {
  body_bytes_ += part.size();
  if (body_bytes_ <= pool_->options().stream_bytes_max) return part;
  fail_all(Error::of_call(Initiator::peer, ErrorCode::limit_exceeded,
                          "the body of the response exceeds HttpClientOptions::stream_bytes_max (" +
                              count_text(pool_->options().stream_bytes_max, "byte") + "): raise it"));
  return std::string();
}

void ClientStream::settle() {
  if (!connection_->complete()) return fail_all(failure_of(*connection_, request_, target_.address));
  if (inflater_ != nullptr && !inflater_->at_end()) {
    return fail_all(Error::of_call(Initiator::peer, ErrorCode::protocol_error,
                                   "the compressed body of the response is not complete"));
  }
  ended_ = true;
  all_sent_ = !connection_->sending();
  inflater_.reset();
  on_stop_.reset();
  // A connection on which the body was not sent completely is not kept.
  pool_->keep(target_.key, std::move(connection_));
  release();
  changed_.notify_all();
}

// ---- The body of the request ----

std::optional<Error> ClientStream::misuse_of_write(std::string_view bytes, bool last) const {
  if (!upload_) return argument_error("the request has no body to be written: use HttpClient::upload()");
  if (deadlines_.active(Direction::writing)) return argument_error("another operation writes the body");
  return body_.misuse(bytes.size(), last);
}

std::optional<Error> ClientStream::sending_error() const {
  if (error_) return error_;
  if (connection_ == nullptr || connection_->complete() || (deadlines_.awaits_continue() && connection_->has_head())) {
    return Error::of_call(Initiator::peer, ErrorCode::not_sent,
                          target_.address + " has answered without the rest of the body: read the response");
  }
  if (connection_->finished() || connection_->broken()) return failure_of(*connection_, request_, target_.address);
  return std::nullopt;
}

Task<Result<void>> ClientStream::write(std::shared_ptr<ClientStream> self, std::string_view bytes, bool last) {
  if (std::optional<Error> misuse = self->misuse_of_write(bytes, last)) co_return fail(std::move(*misuse));
  if (self->body_.done()) co_return Result<void>();
  const Operation operation(*self, Direction::writing);
  std::optional<Error> error;
  for (;;) {
    error = self->sending_error();
    if (error) break;
    ClientConnection& connection = *self->connection_;
    if (connection.sending() || (self->deadlines_.awaits_continue() && !connection.continued())) {
      co_await self->changed_.wait();
    } else if (self->turn_bytes_ >= turn_bytes_max) {
      co_await self->loop().sleep(Duration::zero());
      self->turn_bytes_ = 0;
    } else {
      break;
    }
  }
  if (!error && self->body_.sends(bytes.size(), last)) {
    self->deadlines_.end_continue();
    self->turn_bytes_ += bytes.size();
    self->body_.add(bytes.size(), last);
    Sending sending{self.get()};
    self->connection_->send_part(bytes, self->body_.chunked(), self->body_.done());
    for (;;) {
      if (self->connection_ == nullptr ? self->all_sent_ : !self->connection_->sending()) break;
      error = self->sending_error();
      if (error) break;
      co_await self->changed_.wait();
    }
    sending.stream = nullptr;
    // The connection may still refer to the bytes. A response that has arrived on a broken one can still be read.
    if (error && self->connection_ != nullptr) {
      if (self->connection_->broken() && !self->error_) {
        self->connection_->stop_sending();
      } else {
        self->connection_->close();
      }
      self->changed_.notify_all();
    }
  }
  if (!error) co_return Result<void>();
  if (self->error_) self->release();
  co_return fail(std::move(*error));
}

// ---- The end ----

void ClientStream::on_loop_end() noexcept {
  fail_all(Error::of_call(ErrorCode::unavailable, "the loop of this HttpClient has ended"));
  release();
}

void ClientStream::fail_all(Error error) {
  if (error_ || ended_) return;
  error_ = std::move(error);
  changed_.notify_all();
  timer_.start(loop(), loop().now());
}

void ClientStream::cancel(std::string_view why) {
  fail_all(
      Error::of_call(ErrorCode::cancelled, "the request to " + target_.address + " " + std::string(why) + execution()));
}

void ClientStream::end() {
  const bool complete = !error_ && connection_ != nullptr && connection_->complete();
  if (complete && !deadlines_.active(Direction::reading) && !deadlines_.active(Direction::writing)) {
    connection_->take_part();
    pool_->keep(target_.key, std::move(connection_));
    ended_ = true;
    return release();
  }
  cancel("ended with its HttpClientStream");
}

void ClientStream::abandon() noexcept {
  if (connection_ != nullptr) connection_->close();
  cancel("was ended with a write() that waited");
}

void ClientStream::release() noexcept {
  connection_.reset();
  place_.release();
  timer_.stop();
}

void ClientStream::watch() {
  if (error_ || ended_) return;
  const Time next = deadlines_.next(moved());
  if (next == Time::max()) {
    timer_.stop();
  } else {
    timer_.start(loop(), next);
  }
}

Time ClientStream::moved() const noexcept {
  return connection_ == nullptr ? Time::min() : std::max(connection_->received_at(), connection_->sent_at());
}

void ClientStream::check() noexcept {
  if (error_) return release();
  if (ended_) return;
  const auto late = [this](std::string why) {
    fail_all(Error::of_call(ErrorCode::deadline_exceeded, std::move(why) + execution()));
  };
  switch (deadlines_.check(loop().now(), moved())) {
    case StreamDeadlines::Due::response:
      return late(
          "no complete response of " + target_.address +
          " within HttpClientRequest::timeout (unless it is given, HttpClientOptions::request_timeout): raise it, "
          "or find out why the server is slow");
    case StreamDeadlines::Due::standstill:
      return late(
          "the connection to " + target_.address + " has moved no byte for " +
          rpc::option_text(pool_->options().stall_timeout) +
          " (HttpClientOptions::stall_timeout): raise it, or find out why the server or the network stands still");
    case StreamDeadlines::Due::body:
      deadlines_.end_continue();
      changed_.notify_all();
      break;
    case StreamDeadlines::Due::nothing: break;
  }
  watch();
}

}  // namespace hawser::protocol::http

namespace hawser {

HttpClientStream::HttpClientStream(std::shared_ptr<protocol::http::ClientStream> stream) noexcept
    : stream_(std::move(stream)) {}
HttpClientStream::HttpClientStream(HttpClientStream&& other) noexcept = default;
HttpClientStream& HttpClientStream::operator=(HttpClientStream&& other) noexcept {
  if (this == &other) return *this;
  if (stream_ != nullptr) stream_->end();
  stream_ = std::move(other.stream_);
  return *this;
}
HttpClientStream::~HttpClientStream() {
  if (stream_ != nullptr) stream_->end();
}

Task<Result<int>> HttpClientStream::wait_status() { return protocol::http::ClientStream::wait_status(stream_); }
int HttpClientStream::status() const noexcept { return stream_->response().status; }
const std::vector<std::pair<std::string, std::string>>& HttpClientStream::headers() const noexcept {
  return stream_->response().headers;
}
std::optional<std::string_view> HttpClientStream::header(std::string_view name) const noexcept {
  return stream_->response().header(name);
}
Task<Result<std::string>> HttpClientStream::read() { return protocol::http::ClientStream::read(stream_); }
Task<Result<void>> HttpClientStream::write(std::string_view bytes) {
  return protocol::http::ClientStream::write(stream_, bytes, false);
}
Task<Result<void>> HttpClientStream::finish() { return protocol::http::ClientStream::write(stream_, {}, true); }
Task<Result<void>> HttpClientStream::write_kept(std::string bytes) {
  co_return co_await write(std::string_view(bytes));
}

}  // namespace hawser
