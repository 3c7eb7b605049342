#pragma once

#include "base/alive.h"
#include "hawser/detail/reply_sink.h"
#include "hawser/task.h"
#include "rpc/port/body_form.h"
#include "rpc/port/port_session.h"
#include "rpc/session/work_charge.h"

namespace hawser::rpc {

// Makes the arguments of one call of the body of its request, on another thread if that takes long. Its memory is
// charged before. Ends before the call does. Loop's thread only.
class BodyConversion {
 public:
  BodyConversion(detail::ActiveCall& call, BodyForm form) : call_(call), form_(std::move(form)) {}
  BodyConversion(const BodyConversion&) = delete;
  BodyConversion& operator=(const BodyConversion&) = delete;
  ~BodyConversion() { end(); }

  // Replaces the body of the call. Succeeds at once if it is the arguments already. The task may be destroyed before it
  // has ended, and may outlive this object: it returns an error then.
  Task<Result<void>> run() { return convert(*this, alive_.watch()); }
  // Nobody waits for the arguments any more. A thread may still work on them.
  void end() noexcept;

 private:
  static Task<Result<void>> convert(BodyConversion& on, Watch<BodyConversion> alive);
  static Task<Result<void>> step(BodyConversion& on, Watch<BodyConversion> alive, BodyForm form, bool stays_coded);
  Result<void> converted(Result<Buffer> body, bool stays_coded);
  void notify_end() noexcept;
  PortSession& session() const noexcept { return static_cast<PortSession&>(call_.sink().origin()); }

  detail::ActiveCall& call_;
  const BodyForm form_;
  WorkCharge charge_;
  bool working_ = false;  // The session was notified of a conversion and not of its end.
  bool ended_ = false;
  const Alive<BodyConversion> alive_{*this};
};

}  // namespace hawser::rpc
