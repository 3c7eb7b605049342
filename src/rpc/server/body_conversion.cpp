#include "rpc/server/body_conversion.h"

#include <optional>
#include <utility>

#include "base/try.h"
#include "hawser/detail/loop_access.h"

namespace hawser::rpc {

void BodyConversion::end() noexcept {
  ended_ = true;
  charge_.abandon();
  notify_end();
}

void BodyConversion::notify_end() noexcept {
  if (std::exchange(working_, false)) session().conversion_ended();
}

Task<Result<void>> BodyConversion::convert(BodyConversion& on, Watch<BodyConversion> alive) {
  if (!on.call_.request().coded) co_return Result<void>{};
  // Compressed JSON takes two steps: the second one is charged by the length of the text, which is known then.
  if (on.form_.unpack != nullptr) {
    CO_TRY(co_await step(on, alive, {.unpack = on.form_.unpack, .unpacked_max = on.form_.unpacked_max},
                         on.form_.json != nullptr));
  }
  if (on.form_.json != nullptr) {
    CO_TRY(co_await step(on, alive, {.json = on.form_.json}, false));
  }
  co_return Result<void>{};
}

Task<Result<void>> BodyConversion::step(BodyConversion& on, Watch<BodyConversion> alive, BodyForm form,
                                        bool stays_coded) {
  const detail::IncomingRequest request = on.call_.request_for(on.call_.sink(), {});
  const std::size_t bytes = request.body.size();
  detail::ReceiveAccount* const account = on.call_.request().account;
  if (account != nullptr && !on.charge_.add(*account, on.session().conversion_bytes(form, bytes), bytes)) {
    co_return fail(on.session().unkept_error(*account));
  }
  if (on.session().converts_here(form, bytes)) {
    Result<Buffer> body = form.arguments(request.body);
    on.charge_.reset();
    co_return on.converted(std::move(body), stays_coded);
  }
  // However the step ends, the session takes further frames.
  struct Ending {
    ~Ending() {
      if (BodyConversion* const on = alive.get()) on->notify_end();
    }
    const Watch<BodyConversion>& alive;
  };
  auto work = [body = Buffer::share(request.head_block, request.body.data(), bytes), form = std::move(form),
               use = on.charge_.use()]() mutable {
    const WorkCharge::Use used = std::move(use);  // Ends with the work, also if the loop has ended.
    used.begin();
    return form.arguments(body.bytes());
  };
  on.working_ = true;
  on.session().conversion_begins();
  const Ending ending{alive};
  Result<Result<Buffer>> body =
      co_await detail::LoopAccess::offload_for(on.session().loop(), &on.session(), on.call_.token(), std::move(work));
  if (!alive || on.ended_) co_return fail(ErrorCode::cancelled, "the call ended before its handler did");
  on.charge_.reset();
  const std::optional<Time>& deadline = on.call_.request().deadline;
  if (deadline && on.session().loop().now() >= *deadline) {
    co_return fail(ErrorCode::deadline_exceeded, "the deadline of the request has passed");
  }
  CO_TRY(body);
  if (on.call_.stopped()) {
    co_return fail(ErrorCode::cancelled, "the caller did not wait any more when its request had been converted");
  }
  co_return on.converted(std::move(*body), stays_coded);
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
