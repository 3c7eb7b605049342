#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/codec.h"
#include "hawser/detail/receive_account.h"
#include "hawser/detail/reply_sink.h"
#include "hawser/error.h"
#include "hawser/metadata.h"

namespace hawser::rpc {

// The answer of a handler, held until the interceptors around it have ended. Loop's thread only.
class HeldReply {
 public:
  enum class State : std::uint8_t {
    nothing,
    reply,
    error,
    passed,  // The session has the reply.
  };

  State state() const noexcept { return state_; }

  // Returns memory for the body. The attachment of `extras` is one of the pieces of end(), the last one.
  std::byte* begin(const codec::EncodedSize& size, const detail::ReplyExtras& extras);
  // `pieces` are on loan from `owner`, or copied if it is null. `account` pays for the reply until release_charge(),
  // above its limits too; null: nobody pays.
  void end(std::span<const ConstBuffer> pieces, SendCompletion* owner, detail::ReceiveAccount* account);
  void set_error(const Error& error);

  const Error& error() const noexcept { return error_; }
  Error take_error() noexcept { return std::move(error_); }
  const codec::EncodedSize& size() const noexcept { return size_; }
  Bytes body() const noexcept { return body_.bytes().first(size_.body); }
  detail::ReplyExtras extras() const noexcept { return {attachment_, &metadata_}; }
  std::span<const ConstBuffer> pieces() const noexcept { return pieces_; }
  // The length of the body and all pieces.
  std::size_t bytes() const noexcept { return size_.body + size_.payload + attachment_.size(); }
  std::uint32_t checksum() const noexcept;
  void add_metadata(const Metadata& added) { metadata_.insert(metadata_.end(), added.begin(), added.end()); }

  // The memory of `owner` is about to go away: copies the pieces if they are on loan from it. Without memory for that,
  // an error takes the place of the reply.
  void copy_and_release(SendCompletion& owner) noexcept;
  // Returns the loan without a copy: the pieces are not needed any more.
  void release_loan() noexcept;
  void release_charge() noexcept { charge_.reset(); }
  // The session sends the pieces from now on. Returns their owner; null if they are copied.
  SendCompletion* pass() noexcept {
    state_ = State::passed;
    return std::exchange(owner_, nullptr);
  }

 private:
  void copy_pieces();

  State state_ = State::nothing;
  Error error_;
  codec::EncodedSize size_;
  Buffer body_;
  Metadata metadata_;
  Bytes attachment_;                 // Used for its size.
  std::vector<ConstBuffer> pieces_;  // On loan from owner_, or of copied_.
  SendCompletion* owner_ = nullptr;
  Buffer copied_;
  detail::ReceiveCharge charge_;
};

}  // namespace hawser::rpc
