#include "pipe/buffered_stream.h"

#include <array>

#include "pipe/null_sink.h"

namespace hawser::pipe {
namespace {

// Most segments that one send passes on. The kernel accepts up to 1,024; more than 64 gain nothing measurable.
constexpr std::size_t segments_max = 64;

}  // namespace

BufferedStream::BufferedStream(std::unique_ptr<transport::Stream> stream)
    : stream_(std::move(stream)), closing_(std::make_unique<Closing>()) {}

// Sends the first part of the queue, which is not empty. False if the stream was closed meanwhile.
bool BufferedStream::send_part() {
  const ConstBuffer only = queue_.only_piece();
  if (only.data == nullptr) [[unlikely]]
    return send_pieces();
  return on_accepted(stream_->send({&only, 1}), only.size);
}

// Apart from send_part(), whose stack it would take up.
[[gnu::noinline]] bool BufferedStream::send_pieces() {
  std::array<ConstBuffer, segments_max> segments;
  const std::span pieces(segments.data(), queue_.peek(segments));
  std::size_t offered = 0;
  for (const ConstBuffer& piece : pieces) offered += piece.size;
  return on_accepted(stream_->send(pieces), offered);
}

inline bool BufferedStream::on_accepted(std::size_t accepted, std::size_t offered) {
  if (closed()) return false;  // The send has failed, and the owner has ended the connection.
  blocked_ = accepted < offered;
  sent_ += accepted;
  queue_.consume(accepted);
  return true;
}

void BufferedStream::sendable(std::size_t bytes) noexcept {
  sent_ += bytes;
  // The bytes that a notified owner queues are sent by the send() that follows.
  sending_ = true;
  queue_.consume(bytes);
  sending_ = false;
  blocked_ = false;
}

void BufferedStream::close(Loop& loop) noexcept {
  if (closed()) return;
  stream_->pause();
  stream_->set_sink(null_sink());
  closing_->stream = std::move(stream_);
  loop.post(std::unique_ptr<detail::Posted>(std::move(closing_)));
}

// The stream first: it reads the memory of the owners that the queue notifies.
void BufferedStream::close_now() noexcept {
  stream_.reset();
  queue_.clear();
}

}  // namespace hawser::pipe
