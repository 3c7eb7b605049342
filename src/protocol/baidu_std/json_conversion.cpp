#include <exception>
#include <new>
#include <string>
#include <utility>

#include "hawser/detail/json_transcoder.h"
#include "hawser/detail/loop_access.h"
#include "protocol/baidu_std/server_session.h"
#include "rpc/session/work_charge.h"

// Conversions of long bodies and results on a thread of the offload pool.
namespace hawser::protocol::baidu_std {

void BaiduStdServerSession::begin_conversion() {
  if (!conversion_stop_.stop_possible()) conversion_stop_ = std::stop_source();
  if (converting_++ == 0) hold();
}

void BaiduStdServerSession::end_conversion() {
  if (--converting_ == 0 && !closed()) release();
}

void BaiduStdServerSession::conversion_ended() noexcept {
  if (closed()) return end_conversion();
  try {
    conversions_.spawn([](BaiduStdServerSession& session) -> Task<void> {
      co_await session.loop().sleep(Duration::zero());  // Until a later turn.
      try {
        session.end_conversion();
      } catch (const std::bad_alloc&) {
        session.fail_connection();
      }
    }(*this));
  } catch (const std::bad_alloc&) {
    fail_connection();
  }
}

void BaiduStdServerSession::on_end(const Error&) { conversion_stop_.request_stop(); }

Task<void> BaiduStdServerSession::convert_result(PendingReply reply, Buffer body, Buffer rest) {
  try {
    const std::size_t payload_bytes = reply.payload_bytes;
    const rpc::ConversionMemory::Holder holder(host().conversion_memory);
    rpc::WorkCharge charge = rpc::charge_of_result(account(), body.size() + rest.size());
    begin_conversion();
    auto work = [body = std::move(body), payload = rest.slice(0, payload_bytes),
                 transcoder = states_.find(reply.call)->json, use = charge.use()]() mutable {
      const rpc::WorkCharge::Use used = std::move(use);
      used.begin();
      return transcoder->result_to_json(body.bytes(), payload.bytes());
    };
    const Result<Result<std::string>> text =
        co_await detail::LoopAccess::offload_for(loop(), this, conversion_stop_.get_token(), std::move(work));
    charge.reset();
    if (closed()) co_return;
    const ServerCall* const call = states_.find(reply.call);
    if (call == nullptr) {
      // It has been answered by an error.
    } else if (!text || !*text) {
      // The handler has run, so no error may state that nothing was executed.
      const Error& why = text ? text->error() : text.error();
      reply_error(reply.call, Error::of_call(ErrorCode::internal, "the result was not converted to JSON: " + why.text));
    } else if (send_body(*call, reply, Buffer::copy_of(std::string_view(**text)),
                         rest.bytes().last(reply.attachment_bytes))) {
      finish_call(reply.call);
    }
    end_conversion();
  } catch (const std::exception&) {
    fail_connection();
  }
}

}  // namespace hawser::protocol::baidu_std
