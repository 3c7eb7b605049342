#pragma once

#include <cstdint>
#include <utility>

#include "hawser/error.h"
#include "hawser/metadata.h"
#include "hawser/task.h"

namespace hawser {
class IncomingCall;
class Next;
class OutgoingCall;
class SkippedCall;
}  // namespace hawser

// Interceptors as Server and Client keep them. Not for users.
namespace hawser::detail {

// The random number of one call, for samples. It is drawn when it is first read, so that all decisions about the call
// have the same number, and a call about which nobody decides has none.
class CallDraw {
 public:
  std::uint64_t number() noexcept { return drawn_ ? number_ : draw(); }
  // True for that part of all calls, from 0 to 1.
  bool within(double part) noexcept {
    return part > 0 && (part >= 1 || static_cast<double>(number() >> 11) * 0x1p-53 < part);
  }

 private:
  std::uint64_t draw() noexcept;
  std::uint64_t number_ = 0;
  bool drawn_ = false;
};

// Runs around each call. `CallInfo` is IncomingCall or OutgoingCall. Several threads call it at once.
template <class CallInfo>
class Interceptor {
 public:
  Interceptor() = default;
  Interceptor(const Interceptor&) = delete;
  Interceptor& operator=(const Interceptor&) = delete;
  virtual ~Interceptor() = default;
  virtual Task<Result<void>> around(CallInfo& call, Next&& next) = 0;
  // True if around() would only call next() for a request with this metadata.
  virtual bool skips(const MetadataView&, CallDraw&) const noexcept { return false; }
  // A call that was skipped ends: see SkippedCall.
  virtual void skipped(const SkippedCall&) const noexcept {}
};

template <class CallInfo, class F>
class FunctionInterceptor final : public Interceptor<CallInfo> {
 public:
  explicit FunctionInterceptor(F&& given) : function_(std::move(given)) {}
  Task<Result<void>> around(CallInfo& call, Next&& next) override { return function_(call, std::move(next)); }
  bool skips(const MetadataView& metadata, CallDraw& draw) const noexcept override {
    if constexpr (requires { function_.skips(metadata, draw); }) {
      return function_.skips(metadata, draw);
    } else if constexpr (requires { function_.skips(metadata); }) {
      return function_.skips(metadata);
    } else {
      return false;
    }
  }
  void skipped(const SkippedCall& call) const noexcept override {
    if constexpr (requires { function_.skipped(call); }) function_.skipped(call);
  }

 private:
  F function_;
};

}  // namespace hawser::detail
