#include "cli/call/raw_call.h"

#include <coroutine>
#include <cstring>
#include <span>

#include "base/try.h"
#include "hawser/detail/received.h"
#include "hawser/detail/stream_core.h"

namespace hawser::cli {

Method protobuf_method(std::string name, bool streams_in, bool streams_out) {
  // As in docs/wire-format.md: a message is "Xprotobuf;".
  codec::Fnv1a64 hash;
  hash.add('F');
  if (!streams_in) hash.add("Xprotobuf;");
  if (streams_in) hash.add("<Xprotobuf;");
  if (streams_out) hash.add("|Xprotobuf;");
  hash.add(streams_out ? ">v" : ">Xprotobuf;");
  const std::uint32_t id = codec::fnv1a32(name);
  return {.name = std::move(name),
          .id = id,
          .signature = hash.folded(),
          .streams_in = streams_in,
          .streams_out = streams_out};
}

RawCall::RawCall(detail::ClientLink& link, const Method& method, std::string body, CallOptions options)
    : RawCall(link, method, std::move(body), {}, std::move(options)) {}

RawCall::RawCall(detail::ClientLink& link, const Method& method, std::string body, std::string payload,
                 CallOptions options)
    : CallOperation(link), body_(std::move(body)), payload_(std::move(payload)), options_(std::move(options)) {
  request_.method = method.id;
  request_.signature = method.signature;
  request_.name = method.name;
  RawCall::measure();
  request_.options = &options_;
  request_.streams_in = method.streams_in;
  request_.streams_out = method.streams_out;
  request_.streams = method.streams_in || method.streams_out;
}

void RawCall::encode(std::byte* body, ConstBuffer* pieces) {
  if (!body_.empty()) std::memcpy(body, body_.data(), body_.size());
  if (!payload_.empty()) *pieces = {as_bytes(payload_).data(), payload_.size()};
}

void RawCall::decode(const detail::Received& reply) {
  answer_ = {std::string(as_text(reply.body)), std::string(as_text(reply.payload)),
             std::string(as_text(reply.attachment))};
}

struct RawCall::Ended {
  RawCall& call;
  bool await_ready() const noexcept { return call.done(); }
  bool await_suspend(std::coroutine_handle<> waiting) const { return call.wait(waiting); }
  void await_resume() const noexcept { call.resumed(); }
};

Task<Result<RawCall::Answer>> RawCall::answer() {
  static_cast<void>(kept_stream());
  co_await Ended{*this};
  if (error()) co_return fail(std::move(*error()));
  co_return std::move(answer_);
}

detail::StreamCore* RawCall::kept_stream() {
  if (stream_kept_ == nullptr && stream() != nullptr) stream_kept_ = stream()->shared_from_this();
  return stream_kept_.get();
}

Task<Result<void>> RawCall::write(std::string item) { co_return co_await write(as_bytes(item), {}); }

Task<Result<void>> RawCall::write(Bytes body, Bytes payload) {
  detail::StreamCore* const core = kept_stream();
  if (core == nullptr) co_return fail(ErrorCode::not_sent, "the call was not sent");
  do {
    co_await core->until_writable();
  } while (!core->writable());
  if (std::optional<Error> why = core->write_error()) co_return fail(std::move(*why));
  const unsigned pieces = payload.empty() ? 0 : 1;
  std::byte* const to = core->begin_item({.body = body.size(), .payload = payload.size(), .pieces = pieces});
  if (to == nullptr) co_return fail(ErrorCode::limit_exceeded, "the item exceeds a limit, or the connection has ended");
  if (!body.empty()) std::memcpy(to, body.data(), body.size());
  const ConstBuffer piece{payload.data(), payload.size()};
  core->end_item(std::span(&piece, pieces), nullptr);
  co_return Result<void>();
}

void RawCall::end_writing() {
  if (detail::StreamCore* const core = kept_stream()) core->end();
}

Task<Result<std::optional<RawCall::Answer>>> RawCall::read() {
  detail::StreamCore* const core = kept_stream();
  if (core == nullptr) co_return std::nullopt;  // answer() has the error.
  co_await core->until_readable();
  CO_TRY(std::optional<detail::StreamCore::Item>&& item, core->take());
  if (!item) co_return std::nullopt;
  Answer answer{std::string(as_text(item->body.bytes())), std::string(as_text(item->payload.bytes()))};
  co_return std::optional<Answer>(std::move(answer));
}

}  // namespace hawser::cli
