#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "hawser/bytes.h"
#include "hawser/codec.h"
#include "hawser/metadata.h"

namespace hawser {

// A request whose payload is about to be received: the arguments that are sequences of 8 KiB and more, in order, and
// behind them the attachment. If there are several sequences, each begins at a multiple of 8 bytes. Valid during the
// call that gets it.
struct IncomingPayload {
  std::size_t bytes = 0;             // Size of the whole payload. At least 1.
  std::size_t attachment_bytes = 0;  // Size of its last part.
  MetadataView metadata = {};
  Bytes encoded_arguments = {};  // For arguments().
  const codec::DecodeLimits* decode_limits = &codec::default_decode_limits;

  // The arguments, if the payload consists of the attachment only; otherwise, and if they are invalid, empty. T are the
  // types of the handler's arguments. No checksum has been verified yet.
  template <class... T>
  std::optional<std::tuple<T...>> arguments() const {
    codec::Decoder decoder(encoded_arguments, {}, *decode_limits);
    std::tuple<T...> values;
    if (bytes != attachment_bytes || !codec::decode_all(decoder, values)) return std::nullopt;
    return values;
  }
};

// Holds a function object that gives a Buffer for an IncomingPayload; see HandlerOptions::receive_into. Empty by
// default.
class ReceiveInto {
 public:
  ReceiveInto() noexcept = default;
  template <class F>
    requires(!std::same_as<std::remove_cvref_t<F>, ReceiveInto> &&
             std::is_invocable_r_v<Buffer, F&, const IncomingPayload&>)
  ReceiveInto(F&& select) : target_(std::make_shared<Callable<std::decay_t<F>>>(std::forward<F>(select))) {}

  explicit operator bool() const noexcept { return target_ != nullptr; }
  Buffer operator()(const IncomingPayload& payload) const { return target_->select(payload); }

 private:
  struct Target {
    virtual ~Target() = default;
    virtual Buffer select(const IncomingPayload& payload) = 0;
  };
  template <class F>
  struct Callable final : Target {
    template <class From>
    explicit Callable(From&& from) : function(std::forward<From>(from)) {}
    Buffer select(const IncomingPayload& payload) override { return function(payload); }
    F function;
  };
  std::shared_ptr<Target> target_;
};

// How the server executes a registered function.
struct HandlerOptions {
  // Executes the function on a thread of the loop's offload pool, for functions that block. Such a call cannot be
  // interrupted; a server that stops waits for it.
  bool offload = false;
  // Selects the memory into which the payload of a request is received. The handler's views of large arguments and
  // Context::attachment() refer to that memory then. It returns a writable Buffer of at least IncomingPayload::bytes
  // bytes that nobody else uses, such as Buffer::of_foreign(), or an empty Buffer for memory of the library. A smaller
  // Buffer, or an exception, refuses the call with limit_exceeded.
  // The library keeps the Buffer until the call has been answered and the reply has been sent, also if the call is
  // refused or the connection ends first. The payload counts against ServerOptions::receive_bytes_max while it arrives
  // and not afterwards. Called on the connection's loop, so several threads may call it at once. Connections of other
  // protocols than the library's own do not call it.
  ReceiveInto receive_into = {};
};

}  // namespace hawser
