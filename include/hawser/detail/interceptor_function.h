#pragma once

#include <utility>

#include "hawser/error.h"
#include "hawser/task.h"

namespace hawser {
class IncomingCall;
class OutgoingCall;
class MetadataView;
class Next;
}  // namespace hawser

// The part of hawser/interceptor.h that Server and Client need. Not for users.
namespace hawser::detail {

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
  virtual bool skips(const MetadataView&) const noexcept { return false; }
};

template <class CallInfo, class F>
class FunctionInterceptor final : public Interceptor<CallInfo> {
 public:
  explicit FunctionInterceptor(F&& given) : function_(std::move(given)) {}
  Task<Result<void>> around(CallInfo& call, Next&& next) override { return function_(call, std::move(next)); }
  bool skips(const MetadataView& metadata) const noexcept override {
    if constexpr (requires { function_.skips(metadata); }) return function_.skips(metadata);
    return false;
  }

 private:
  F function_;
};

}  // namespace hawser::detail
