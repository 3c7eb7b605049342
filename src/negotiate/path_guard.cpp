#include "negotiate/path_guard.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

namespace hawser::negotiate {
namespace {

// The beginning of a message with a proof. No frame begins so: 0x48 is not a kind of a frame.
constexpr std::array<std::byte, 8> proof_mark = {std::byte{'H'}, std::byte{'W'}, std::byte{'P'}, std::byte{'P'},
                                                 std::byte{1},   std::byte{0},   std::byte{0},   std::byte{0}};

}  // namespace

void PathGuard::start() {
  timer_.start(loop_, deadline_);
  connection_.start(*this);
  send_own();
}

void PathGuard::send_own() {
  if (ended_ || std::exchange(sent_, true)) return;
  std::byte* const head = connection_.reserve(message_bytes);
  if (head == nullptr) return;  // on_closed() follows.
  const Bytes own = proof_->own();
  std::memcpy(head, proof_mark.data(), proof_mark.size());
  std::memcpy(head + proof_mark.size(), own.data(), transport::PathProof::bytes);
  connection_.commit(message_bytes, {}, nullptr);
}

void PathGuard::on_message(const transport::Message& message) {
  if (proved_) [[likely]]
    return session_.on_message(message);
  if (ended_) return;
  // The peer's message may arrive while start() runs.
  send_own();
  if (ended_) return;
  const Bytes head = message.head;
  const bool marked = head.size() == message_bytes && message.payload.empty() && !message.discarded && !message.cut &&
                      std::equal(proof_mark.begin(), proof_mark.end(), head.begin());
  if (!proof_->verify(marked ? head.subspan(proof_mark.size()) : Bytes())) {
    return refuse(marked ? "its proof is not that of this path: somebody has changed, replayed or redirected it"
                         : "its first message is not a proof");
  }
  proof_.reset();
  timer_.stop();
  proved_ = true;
}

// A proof has no payload.
transport::ReceiveBuffer PathGuard::select_receive_buffer(Bytes head, std::size_t payload_bytes) {
  if (proved_) [[likely]]
    return session_.select_receive_buffer(head, payload_bytes);
  if (!ended_) {
    static_cast<void>(proof_->verify({}));
    refuse("its first message is not a proof");
  }
  return {transport::ReceiveBuffer::Kind::discard, {}};
}

void PathGuard::end() noexcept {
  timer_.stop();
  ended_ = true;
  proof_.reset();
}

void PathGuard::on_closed(const Error& reason) {
  end();
  session_.on_closed(reason);
}

void PathGuard::expire() noexcept {
  if (ended_ || proved_) return;
  static_cast<void>(proof_->verify({}));
  refuse("no proof came in time");
}

void PathGuard::refuse(const char* why) {
  end();
  refusal_ = "the peer at the other end of " + std::string(connection_.transport()) +
             " did not prove that it agreed on this path within TLS: " + why;
  session_.on_closed(Error::of_transport(Initiator::peer, ErrorCode::unavailable, refusal_));
}

}  // namespace hawser::negotiate
