#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "hawser/any_stop.h"
#include "hawser/detail/json_transcoder.h"
#include "hawser/detail/loop_access.h"
#include "hawser/with_timeout.h"
#include "protocol/baidu_std/error_codes.h"
#include "protocol/baidu_std/server_session.h"

// The conversion of long JSON on a thread of the offload pool.
namespace hawser::prpc {

void ServerSession::begin_conversion() {
  if (converting_++ == 0) hold();
  if (!conversion_stop_.stop_possible()) conversion_stop_ = std::stop_source();
}

void ServerSession::end_conversion() {
  if (--converting_ == 0 && !closed()) release();
}

void ServerSession::on_end(const Error&) { conversion_stop_.request_stop(); }

Task<void> ServerSession::convert_arguments(RpcMeta meta, const rpc::Dispatcher::Method& method, Buffer json,
                                            detail::ReceiveCharge charge, Buffer attachment, Buffer metadata,
                                            std::optional<Time> deadline) {
  try {
    detail::ReceiveCharge kept;
    detail::ReceiveCharge beside;
    if (!kept.keep(account(), json) || !beside.keep(account(), attachment)) {
      co_return refuse(meta, limit_reached, unkept_error(account()).text);
    }
    begin_conversion();
    std::stop_source late;
    std::optional<detail::StopTimer> timer;
    if (deadline) timer.emplace(loop(), std::max(Duration::zero(), *deadline - loop().now()), late);
    const AnyStop stop(conversion_stop_.get_token(), late.get_token());
    auto work = [json = std::move(json), transcoder = method.json] {
      return transcoder->arguments_from_json(json.text());
    };
    auto converting = detail::LoopAccess::offload_for(loop(), this, stop.token(), std::move(work));
    const Result<Result<Buffer>> arguments = co_await std::move(converting);
    if (closed()) co_return;
    kept.reset();
    beside.reset();
    charge.reset();
    timer.reset();
    if (deadline && loop().now() >= *deadline) {
      refuse(meta, rpc_timed_out, "the deadline of the request has passed");
    } else if (!arguments) {
      refuse(meta, rpc_error_of(arguments.error()), arguments.error().text);
    } else if (!*arguments) {
      refuse(meta, bad_request, arguments->error().text);
    } else if (server_full() || states_.full()) {
      // Other calls have begun meanwhile.
      const Error why = server_full_error();
      refuse(meta, rpc_error_of(why), why.text);
    } else {
      begin_call(meta, method,
                 {.sink = *this,
                  .deadline = deadline,
                  .body = (*arguments)->bytes(),
                  .attachment = attachment.bytes(),
                  .metadata = MetadataView(metadata.bytes()),
                  .head_block = (*arguments)->block(),
                  .payload_block = attachment.block(),
                  .account = bounded_account(),
                  .decode_limits = &host().options.decode_limits});
    }
    end_conversion();
  } catch (const std::exception&) {
    fail_connection();
  }
}

Task<void> ServerSession::convert_result(PendingReply reply, Buffer body, Buffer rest) {
  try {
    const std::size_t payload_bytes = reply.payload_bytes;
    detail::ReceiveCharge charge;
    charge.add(account(), body.size() + rest.size(), true);
    begin_conversion();
    auto work = [body = std::move(body), payload = rest.slice(0, payload_bytes),
                 transcoder = states_.find(reply.call)->json] {
      return transcoder->result_to_json(body.bytes(), payload.bytes());
    };
    auto converting = detail::LoopAccess::offload_for(loop(), this, conversion_stop_.get_token(), std::move(work));
    const Result<Result<std::string>> text = co_await std::move(converting);
    if (closed()) co_return;
    charge.reset();
    const ServerCall* const call = states_.find(reply.call);
    if (call == nullptr) {
      // It has been answered by an error.
    } else if (!text || !*text) {
      // The handler has run, so no error may state that nothing was executed.
      const Error& why = text ? text->error() : text.error();
      reply_error(reply.call, {ErrorCode::internal, ErrorScope::call, Initiator::local, 0,
                               "the result was not converted to JSON: " + why.text});
    } else if (send_body(*call, reply, Buffer::copy_of(std::string_view(**text)),
                         rest.bytes().last(reply.attachment_bytes))) {
      finish_call(reply.call);
    }
    end_conversion();
  } catch (const std::exception&) {
    fail_connection();
  }
}

}  // namespace hawser::prpc
