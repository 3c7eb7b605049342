#pragma once

#include "hawser/codec.h"
#include "hawser/detail/receive_account.h"
#include "hawser/detail/reply_sink.h"

namespace hawser::detail {

// Holds the memory of decoded arguments and the charge for it on the connection's account. Must outlive the arguments.
template <class Args, bool takes = codec::takes_memory<Args>>
class ArgumentMemory {
 public:
  explicit ArgumentMemory(const IncomingRequest& request) noexcept : charge_(request.account) {}
  codec::Decoder decoder(const IncomingRequest& request) noexcept {
    return codec::Decoder(request.body, request.payload, *request.decode_limits, &arena_, &charge_);
  }

 private:
  DecodeCharge charge_;
  codec::DecodeArena arena_;
};

// For arguments that take no heap memory: such calls have no cost for the limits of memory.
template <class Args>
class ArgumentMemory<Args, false> {
 public:
  explicit ArgumentMemory(const IncomingRequest&) noexcept {}
  static codec::Decoder decoder(const IncomingRequest& request) noexcept {
    return codec::Decoder(request.body, request.payload, *request.decode_limits, codec::no_memory);
  }
};

}  // namespace hawser::detail
