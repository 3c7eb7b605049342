#pragma once

#include "hawser/detail/reply_sink.h"
#include "hawser/task.h"
#include "rpc/port/body_form.h"
#include "rpc/port/port_session.h"

namespace hawser::rpc {

// Makes the arguments of one call of the body of its request, on another thread if that takes long. Its memory is
// charged before. Ends before the call does. Loop's thread only.
class BodyConversion {
 public:
  BodyConversion(detail::ActiveCall& call, BodyForm form) : call_(call), form_(std::move(form)) {}
  BodyConversion(const BodyConversion&) = delete;
  BodyConversion& operator=(const BodyConversion&) = delete;

  // Replaces the body of the call. Succeeds at once if it is the arguments already. Waits while other conversions of
  // the loop have the memory for it. The task may be destroyed before it has ended, and ends before this object. A
  // thread may still work on the arguments then.
  Task<Result<void>> run();

 private:
  Task<Result<void>> step(BodyForm form, bool stays_coded);
  // Fail if the deadline of the call has passed, or nobody waits for the call any more.
  Result<void> in_time() const;
  Result<void> awaited() const;
  Result<void> converted(Result<Buffer> body, bool stays_coded);
  PortSession& session() const noexcept { return static_cast<PortSession&>(call_.sink().origin()); }

  detail::ActiveCall& call_;
  const BodyForm form_;
};

}  // namespace hawser::rpc
