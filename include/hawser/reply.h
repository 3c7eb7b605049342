#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "hawser/bytes.h"
#include "hawser/codec.h"
#include "hawser/detail/received.h"
#include "hawser/error.h"
#include "hawser/metadata.h"
#include "hawser/time.h"

namespace hawser {

// Options of one call. Fields that are not set use the client's defaults.
struct CallOptions {
  // Time from now until the call fails with deadline_exceeded. The handler's token is stopped then. `forever`: no
  // deadline. Empty: ClientOptions::call_timeout, and no deadline for a call with streams.
  std::optional<Duration> timeout = {};
  // A stop of this token, from any thread, cancels the call and stops the handler's token.
  std::stop_token token = {};
  // Sent beside the arguments, without a copy. The memory must stay valid until the call has ended.
  Bytes attachment = {};
  Metadata metadata = {};
  // The call may be executed more than once without harm. If it is awaited in place, as in `co_await
  // client.call<f>(x)`, it is sent again when its transport breaks and the client fails over.
  bool idempotent = false;
  // Attempts and copies of this call that were sent before, which gRPC and ClusterClient send to the server. Set by
  // Retrying and ClusterClient.
  unsigned earlier_attempts = 0;
};

// How the server has ended a call, beside the result. It is empty if the server has not ended the call.
struct CallOutcome {
  int status = -1;           // The status of gRPC, from 0 (OK) to 16. -1: none was received.
  std::string details = {};  // grpc-status-details-bin of gRPC; by convention a google.rpc.Status.
  bool compressed = false;   // The message that arrived last was compressed. Over gRPC.
  // Sent beside the result; over gRPC the initial and trailing metadata in one list, also of calls that failed.
  Metadata metadata = {};
};

// A call that has ended: see Call::with_outcome().
template <class T>
struct EndedCall {
  EndedCall(Result<T> with) : result(std::move(with)) {}
  EndedCall(std::unexpected<Error> error) : result(std::move(error)) {}

  Result<T> result;
  CallOutcome outcome = {};
};

// A whole reply, read in place. Views within the value, the attachment and the metadata stay valid as long as this
// object, or as long as the memory given to into(). Movable. Used by one thread at a time.
template <class T>
class Reply {
 public:
  using value_type = std::conditional_t<std::is_void_v<T>, detail::NoValue, T>;

  const value_type& value() const noexcept { return value_; }
  value_type& value() noexcept { return value_; }
  const value_type& operator*() const noexcept { return value_; }
  const value_type* operator->() const noexcept { return &value_; }

  // Attachment and metadata that the handler sent beside its result.
  Bytes attachment() const noexcept { return attachment_; }
  MetadataView metadata() const noexcept { return metadata_; }

 private:
  template <auto F>
  friend struct detail::ReplyOutcome;

  // Within its only caller, since a result that is returned through memory takes longer than the rest.
  [[gnu::always_inline]] Result<void> read(const detail::Received& received, MutableBytes memory) {
    detail::Received kept = received;
    if (!detail::keep_reply(kept, memory, storage_)) {
      return fail(ErrorCode::limit_exceeded, "the reply's payload is larger than the memory given to into()");
    }
    attachment_ = kept.attachment;
    metadata_ = kept.metadata;
    codec::Decoder decoder = [&] {
      if constexpr (std::is_void_v<T> || !codec::takes_memory<value_type>) {
        return codec::Decoder(kept.body, kept.payload, *kept.decode_limits, codec::no_memory);
      } else {
        return codec::Decoder(kept.body, kept.payload, *kept.decode_limits, &storage_.arena);
      }
    }();
    if constexpr (std::is_void_v<T>) {
      if (!decoder.finish()) return std::unexpected(decoder.error());
    } else {
      std::tuple<T> value;
      if (!codec::decode_all(decoder, value)) return std::unexpected(decoder.error());
      value_ = std::move(std::get<0>(value));
      if constexpr (codec::kind_of<T> == codec::TypeKind::view) {
        if (!memory.empty() && attachment_.empty()) return land(memory);
      }
    }
    return {};
  }

  // Copies a short result, which lies in the message, to the memory given to into().
  Result<void> land(MutableBytes memory) {
    using Element = std::remove_const_t<typename T::value_type>;
    const Bytes bytes = std::as_bytes(std::span(value_.data(), value_.size()));
    if (bytes.empty() || bytes.data() == memory.data()) return {};
    if (bytes.size() > memory.size()) {
      return fail(ErrorCode::limit_exceeded, "the result is larger than the memory given to into()");
    }
    if (reinterpret_cast<std::uintptr_t>(memory.data()) % alignof(Element) != 0) return {};
    detail::copy_bytes(memory.data(), bytes.data(), bytes.size());
    value_ = T(reinterpret_cast<const Element*>(memory.data()), value_.size());
    return {};
  }

  detail::ReplyStorage storage_;
  Bytes attachment_;
  MetadataView metadata_;
  value_type value_{};
};

}  // namespace hawser
