#include "rpc/server/body_conversion.h"

#include <optional>
#include <utility>

#include "base/try.h"
#include "hawser/detail/loop_access.h"
#include "rpc/session/work_charge.h"

namespace hawser::rpc {

Task<Result<void>> BodyConversion::run() {
  if (!call_.request().coded) co_return Result<void>{};
  // Compressed JSON takes two steps: the second one is charged by the length of the text, which is known then.
  if (form_.unpack != nullptr) {
    CO_TRY(co_await step({.unpack = form_.unpack, .unpacked_max = form_.unpacked_max}, form_.json != nullptr));
  }
  if (form_.json != nullptr) CO_TRY(co_await step({.json = form_.json}, false));
  co_return Result<void>{};
}

Task<Result<void>> BodyConversion::step(BodyForm form, bool stays_coded) {
  const detail::IncomingRequest request = call_.request_for(call_.sink(), {});
  const std::size_t bytes = request.body.size();
  detail::ReceiveAccount* const account = call_.request().account;
  const bool here = session().converts_here(form, bytes);
  // However the step ends, the session takes further frames.
  struct Working {
    explicit Working(PortSession& of) : session(of) { session.conversion_begins(); }
    Working(const Working&) = delete;
    Working& operator=(const Working&) = delete;
    ~Working() { session.conversion_ended(); }
    PortSession& session;
  };
  std::optional<Working> working;
  if (!here) working.emplace(session());
  ConversionMemory& memory = session().conversion_memory();
  std::optional<ConversionMemory::Holder> holder;
  WorkCharge charge;
  while (account != nullptr && !charge.add(*account, session().conversion_bytes(form, bytes), bytes)) {
    if (!memory.held()) co_return fail(session().unkept_error(*account));
    if (!working) working.emplace(session());
    co_await memory.ended();
    CO_TRY(awaited());
  }
  holder.emplace(memory);
  if (here) {
    Result<Buffer> body = form.arguments(request.body);
    charge.reset();
    co_return converted(std::move(body), stays_coded);
  }
  auto work = [body = Buffer::share(request.head_block, request.body.data(), bytes), form = std::move(form),
               use = charge.use()]() mutable {
    const WorkCharge::Use used = std::move(use);  // Ends with the work, also if the loop has ended.
    used.begin();
    return form.arguments(body.bytes());
  };
  Result<Result<Buffer>> body =
      co_await detail::LoopAccess::offload_for(session().loop(), &session(), call_.token(), std::move(work));
  charge.reset();
  CO_TRY(in_time());
  CO_TRY(body);
  CO_TRY(awaited());
  co_return converted(std::move(*body), stays_coded);
}

Result<void> BodyConversion::in_time() const {
  const std::optional<Time>& deadline = call_.request().deadline;
  if (!deadline || session().loop().now() < *deadline) return {};
  return fail(ErrorCode::deadline_exceeded, "the deadline of the request has passed");
}

Result<void> BodyConversion::awaited() const {
  TRY(in_time());
  if (!call_.stopped()) return {};
  return fail(ErrorCode::cancelled, "the caller did not wait any more when its request had been converted");
}

Result<void> BodyConversion::converted(Result<Buffer> body, bool stays_coded) {
  TRY(body);
  if (!stays_coded && call_.method != nullptr) session().count_arguments(*call_.method, body->size());
  if (!call_.replace_body(std::move(*body), stays_coded)) {
    return fail(session().unkept_error(*call_.request().account));
  }
  return {};
}

}  // namespace hawser::rpc
