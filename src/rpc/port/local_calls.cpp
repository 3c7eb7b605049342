#include "rpc/port/local_calls.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/decimal_text.h"
#include "base/try.h"
#include "hawser/detail/const_buffers.h"
#include "hawser/detail/loop_access.h"
#include "wire/metadata.h"

namespace hawser::rpc {
namespace {

Buffer joined(std::span<const ConstBuffer> pieces) {
  std::size_t bytes = 0;
  for (const ConstBuffer& piece : pieces) bytes += piece.size;
  if (bytes == 0) return {};
  Buffer all = Buffer::allocate(bytes);
  std::byte* to = all.mutable_data();
  for (const ConstBuffer& piece : pieces) {
    std::memcpy(to, piece.data, piece.size);
    to += piece.size;
  }
  return all;
}

}  // namespace

Result<Buffer> encode_metadata(const Metadata& metadata) {
  wire::MetadataSize size;
  for (const auto& [key, value] : metadata) size.add(key, value);
  if (!size.fits()) return hawser::fail(ErrorCode::limit_exceeded, size.too_large_text());
  if (size.bytes() == 0) return Buffer();
  Buffer encoded = Buffer::allocate(size.bytes());
  std::byte* to = encoded.mutable_data();
  for (const auto& [key, value] : metadata) to = wire::write_metadata_entry(to, key, value);
  return encoded;
}

void LocalCalls::start(detail::CallOperation& operation) {
  Result<void> begun;
  try {
    begun = begin(operation);
  } catch (const std::bad_alloc&) {
    begun = hawser::fail(ErrorCode::internal, "out of memory while the request was encoded; it was not sent");
  }
  if (!begun) operation.complete(loop_, std::move(begun.error()));
}

Result<void> LocalCalls::begin(detail::CallOperation& operation) {
  const detail::CallOperation::Request& request = operation.request();
  if (runner_ == nullptr) return hawser::fail(ErrorCode::not_sent, "the connection has ended");
  if (request.size.too_large) {
    return hawser::fail(request.size.code, std::string("the arguments can't be encoded: ") + request.size.why_not);
  }
  const std::string name = "'" + std::string(request.name) + "': ";
  const Dispatcher::Method* const method = runner_->dispatcher().find(request.method);
  if (method == nullptr) {
    return hawser::fail(ErrorCode::unknown_method, name + "this server has no handler of that name: register it");
  }
  if (method->signature != request.signature) {
    return hawser::fail(ErrorCode::signature_mismatch, name + "the handler of that name takes or gives other types");
  }
  if (request.streams) {
    return hawser::fail(ErrorCode::invalid_argument, name + "a ProtocolConnection calls handlers without streams only");
  }
  if (operations_.full()) {
    return hawser::fail(ErrorCode::overloaded, "the connection has " + count_text(operations_.calls_max, "call") +
                                                   " in flight already: await some of them");
  }
  const CallOptions* const options = request.options;
  TRY(Buffer metadata, encode_metadata(options != nullptr ? options->metadata : Metadata()));
  Buffer body = Buffer::allocate(request.size.body);
  detail::ConstBuffers pieces(request.size.pieces);
  operation.encode(body.mutable_data(), pieces.data());
  if (options != nullptr && !options->attachment.empty()) {
    pieces.push({options->attachment.data(), options->attachment.size()});
  }
  Buffer payload = joined(pieces.span());
  const Duration timeout = options != nullptr ? options->timeout.value_or(forever) : forever;
  constexpr Duration timeout_max = std::chrono::hours(24 * 365 * 10);  // A longer one counts as none.
  const auto added = operations_.add();
  added.state = &operation;
  Result<void> run;
  try {
    operation.begin(*this, added.id, timeout > timeout_max ? Time::max() : loop_.now() + timeout);
    run = run_or_prepare(operation, {method, added.id, std::move(body), std::move(payload), std::move(metadata)});
  } catch (const std::bad_alloc&) {
    run = hawser::fail(ErrorCode::internal, "out of memory before the handler was called");
  }
  if (!run) operations_.remove(added.id);
  return run;
}

Result<void> LocalCalls::run_or_prepare(const detail::CallOperation& operation, Prepared request) {
  const Time tick = detail::LoopAccess::tick_begin(loop_);
  if (std::exchange(tick_, tick) != tick) begun_ = 0;
  if (begun_ < calls_tick_max && prepared_.empty()) return run(operation, std::move(request));
  prepared_.push_back(std::move(request));
  if (!prepared_timer_.running()) prepared_timer_.start(loop_, loop_.now());
  return {};
}

Result<void> LocalCalls::run(const detail::CallOperation& operation, Prepared request) {
  ++begun_;
  return runner_->run(*request.method, request.call, operation, std::move(request.body), std::move(request.payload),
                      std::move(request.metadata));
}

void LocalCalls::run_prepared() {
  tick_ = detail::LoopAccess::tick_begin(loop_);
  begun_ = 0;
  while (!prepared_.empty() && begun_ < calls_tick_max) {
    Prepared request = std::move(prepared_.front());
    prepared_.pop_front();
    const std::uint32_t call = request.call;
    detail::CallOperation** const operation = operations_.find(call);
    if (operation == nullptr) continue;  // Cancelled or dropped.
    Result<void> begun;
    try {
      begun = run(**operation, std::move(request));
    } catch (const std::bad_alloc&) {
      begun = hawser::fail(ErrorCode::internal, "out of memory before the handler was called");
    }
    if (!begun) fail(call, begun.error());
  }
  if (!prepared_.empty()) prepared_timer_.start(loop_, loop_.now());
}

void LocalCalls::detach() {
  runner_ = nullptr;
  prepared_.clear();
  prepared_timer_.stop();
  std::vector<std::uint32_t> calls;
  operations_.each([&](std::uint32_t call, detail::CallOperation*&) { calls.push_back(call); });
  for (const std::uint32_t call : calls) {
    fail(call, Error::of_connection(ErrorCode::cancelled, "the server has ended the session"));
  }
}

detail::CallOperation* LocalCalls::take(std::uint32_t call) noexcept {
  detail::CallOperation** const found = operations_.find(call);
  if (found == nullptr) return nullptr;
  detail::CallOperation* const operation = *found;
  operations_.remove(call);
  return operation;
}

void LocalCalls::abandon(detail::CallOperation& operation) noexcept {
  const std::uint32_t call = operation.id();
  if (take(call) == nullptr || runner_ == nullptr) return;
  runner_->stop(call, Error::of_call(ErrorCode::cancelled, "call dropped"));
}

void LocalCalls::cancel(std::uint32_t call, const Error& error) {
  detail::CallOperation* const operation = take(call);
  if (operation == nullptr) return;
  if (runner_ != nullptr) runner_->stop(call, error);
  operation->complete(loop_, error);
}

std::byte* LocalCalls::begin_answer(std::uint32_t call, const codec::EncodedSize& size,
                                    const detail::ReplyExtras& extras) {
  detail::CallOperation* const operation = take(call);
  if (operation == nullptr) return nullptr;
  Result<Buffer> metadata;
  try {
    metadata = encode_metadata(extras.metadata != nullptr ? *extras.metadata : Metadata());
    body_ = Buffer::allocate(size.body);
  } catch (const std::bad_alloc&) {
    metadata = hawser::fail(ErrorCode::internal, "out of memory while the reply was encoded");
  }
  if (!metadata) {
    operation->complete(loop_, std::move(metadata.error()));
    return nullptr;
  }
  metadata_ = std::move(*metadata);
  attachment_bytes_ = extras.attachment.size();
  answered_ = operation;
  return body_.mutable_data();
}

void LocalCalls::end_answer(std::span<const ConstBuffer> pieces) {
  detail::CallOperation& operation = *std::exchange(answered_, nullptr);
  try {
    const Buffer payload = joined(pieces);
    const std::size_t value_bytes = payload.size() - std::min(attachment_bytes_, payload.size());
    operation.decode({.body = body_.bytes(),
                      .payload = payload.bytes().first(value_bytes),
                      .attachment = payload.bytes().subspan(value_bytes),
                      .metadata = MetadataView(metadata_.bytes()),
                      .head_block = body_.block(),
                      .payload_block = payload.block()});
    operation.complete(loop_);
  } catch (const std::bad_alloc&) {
    operation.complete(loop_, Error::of_call(ErrorCode::internal, "out of memory while the reply was copied"));
  }
  body_ = {};
  metadata_ = {};
}

void LocalCalls::fail(std::uint32_t call, const Error& error) {
  if (detail::CallOperation* const operation = take(call)) operation->complete(loop_, error);
}

}  // namespace hawser::rpc
