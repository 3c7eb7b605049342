#include <new>
#include <utility>

#include "base/what_of.h"
#include "hawser/detail/handler.h"
#include "hawser/detail/reply_sink.h"
#include "hawser/detail/unimplemented.h"
#include "hawser/stream.h"

namespace hawser::detail {

void ReplyParts::add_metadata(std::string key, std::string value) {
  metadata.emplace_back(std::move(key), std::move(value));
}
void ReplyParts::keep(Buffer buffer) { kept.push_back(std::move(buffer)); }

std::string exception_text() {
  try {
    throw;
  } catch (const std::exception& exception) {
    return std::string(what_of(exception));
  } catch (...) {
    return "something that is not a std::exception";
  }
}

void reply_thrown(ReplySink& sink, std::uint32_t call, std::string_view method, std::string_view part) noexcept {
  reply_thrown(IncomingRequest{.sink = sink, .call = call}, method, part);
}

void reply_thrown(const IncomingRequest& request, std::string_view method, std::string_view part) noexcept {
  ReplySink& sink = request.sink;
  try {
    sink.reply_error(request.call, sink.exception_error(request.metadata, method, part, exception_text()));
  } catch (...) {
    sink.fail_connection();
  }
}

Error handler_error(Error error) {
  if (!error.not_executed() || error.code == ErrorCode::overloaded) return error;
  if (error.code == ErrorCode::unknown_method && error.initiator == Initiator::local &&
      error.application_code == unimplemented_mark) {
    error.application_code = 0;
    return error;
  }
  error.text = "the handler answered " + std::string(to_string(error.code)) + ": " + error.text;
  error.code = ErrorCode::application;
  error.scope = ErrorScope::call;
  return error;
}

Error unimplemented(std::string_view method) {
  return {ErrorCode::unknown_method, ErrorScope::call, Initiator::local, unimplemented_mark,
          "'" + std::string(method) + "' is declared by its service and not implemented here"};
}

ActiveCall::ActiveCall(const IncomingRequest& request, Keep keep) : request_(request), deadline_(*this) {
  const bool always = keep == Keep::in_place;  // Its answer is in progress; what comes next is refused.
  const Bytes metadata = request.metadata.bytes();
  const std::byte* begin = request.body.data();
  if (!metadata.empty()) {
    if (metadata.data() + metadata.size() == begin) {
      begin = metadata.data();
    } else {
      metadata_ = Buffer::copy_of(metadata);
      admitted_ = charge(metadata_, true, always, head_charge_);
      request_.metadata = MetadataView(metadata_.bytes());
    }
  }
  const auto size = static_cast<std::size_t>(request.body.data() + request.body.size() - begin);
  if (size != 0) {
    const bool copied = (keep == Keep::copy_small && size <= small_bytes_max) || request.head_block == nullptr;
    head_ = copied ? Buffer::copy_of(Bytes(begin, size)) : Buffer::share(request.head_block, begin, size);
    admitted_ = charge(head_, copied, always, head_charge_) && admitted_;
    request_.body = head_.bytes().last(request.body.size());
    if (size != request.body.size()) request_.metadata = MetadataView(head_.bytes().first(metadata.size()));
  }
  const std::size_t payload_size = request.payload.size() + request.attachment.size();
  if (payload_size != 0) {
    const std::byte* const data = request.payload.empty() ? request.attachment.data() : request.payload.data();
    const bool copied = !request.placed && ((keep == Keep::copy_small && payload_size <= small_bytes_max) ||
                                            request.payload_block == nullptr);
    payload_ =
        copied ? Buffer::copy_of(Bytes(data, payload_size)) : Buffer::share(request.payload_block, data, payload_size);
    admitted_ = admitted_ && (request.placed || charge(payload_, copied, always, payload_charge_));
    request_.payload = payload_.bytes().first(request.payload.size());
    request_.attachment = payload_.bytes().last(request.attachment.size());
  }
  request_.sink.enter(*this);
  if (request_.deadline) deadline_.start(request_.sink.loop(), *request_.deadline);
}

ActiveCall::~ActiveCall() {
  copy_and_release();
  // The handler may have stored its Reader or Writer elsewhere.
  if (stream_) {
    stream_->on_closed(Error::of_call(ErrorCode::cancelled, "call ended"));
    stream_->end_charges();
  }
  if (queued_) request_.sink.loop().forget(waiting_);
  request_.sink.leave(*this);
}

bool ActiveCall::charge(const Buffer& kept, bool copied, bool always, ReceiveCharge& block_charge) {
  if (request_.account == nullptr) return true;
  if (copied) return copies_.add(*request_.account, kept.block()->size(), always);
  return block_charge.keep(*request_.account, kept, always);
}

bool ActiveCall::admitted() {
  if (!admitted_) [[unlikely]]
    sink().refuse_unkept(id());
  return admitted_;
}

IncomingRequest ActiveCall::request_for(ReplySink& sink, MetadataView metadata) const noexcept {
  return {.sink = sink,
          .call = request_.call,
          .deadline = request_.deadline,
          .body = request_.body,
          .payload = request_.payload,
          .attachment = request_.attachment,
          .metadata = metadata,
          .head_block = head_.block(),
          .payload_block = payload_.block(),
          .placed = request_.placed,
          .account = nullptr,
          .decode_limits = request_.decode_limits};
}

bool ActiveCall::replace_body(Buffer body, bool coded) {
  // The metadata may lie directly before the body. It stays where it is.
  if (metadata_.block() == nullptr && !request_.metadata.bytes().empty()) metadata_ = std::move(head_);
  head_ = std::move(body);
  head_charge_.reset();
  request_.body = head_.bytes();
  request_.head_block = head_.block();
  request_.coded = coded;
  return head_.block() == nullptr || charge(head_, true, false, head_charge_);
}

// An offloaded handler calls this on another thread. serve_offloaded() has called it before on the loop, so this call
// writes nothing.
std::stop_token ActiveCall::token() {
  if (!stop_) {
    stop_.emplace();
    if (stopped_) stop_->request_stop();
  }
  return stop_->get_token();
}

StreamCore& ActiveCall::stream() {
  if (stream_ == nullptr) stream_ = request_.sink.open_stream(request_.call);
  return *stream_;
}

void ActiveCall::request_stop(const Error& why) noexcept {
  if (std::exchange(stopped_, true)) return;
  if (stream_ != nullptr) close_stream(why);
  // These are the last steps, since a callback of a token may end the call.
  std::optional<std::stop_source> stop = stop_;
  if (inner != nullptr) inner->request_stop(why);
  if (stop) stop->request_stop();
}

void ActiveCall::request_stop(ErrorCode code, Initiator initiator, std::string_view text) noexcept {
  Error why = Error::of_call(initiator, code, {});
  try {
    why.text = text;
  } catch (const std::bad_alloc&) {
    // The error has no text then.
  }
  request_stop(why);
}

void ActiveCall::close_stream(const Error& why) noexcept {
  try {
    stream_->on_closed(why);
  } catch (const std::bad_alloc&) {
    stream_->on_closed(Error{why.code, why.scope, why.initiator, why.application_code, {}});
  }
}

void ActiveCall::on_deadline() noexcept {
  request_stop(ErrorCode::deadline_exceeded, Initiator::peer, "the caller's deadline has passed");
}

void ActiveCall::on_send_complete() noexcept {
  loaned_ = false;
  if (!waiting_) return;
  queued_ = true;
  request_.sink.loop().resume_soon(waiting_);
}

}  // namespace hawser::detail
