#include "protocol/grpc/server_session.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "base/decimal_text.h"
#include "hawser/detail/json_transcoder.h"
#include "protocol/grpc/status.h"
#include "protocol/http2/error_codes.h"
#include "protocol/http2/send_room.h"
#include "rpc/session/wake_writers.h"

namespace hawser::protocol::grpc {
namespace {

constexpr Duration write_timeout_least = std::chrono::milliseconds(1);
// A path costs its sender one byte if HPACK refers to it, and an error text up to three times its length.
constexpr std::size_t path_text_bytes_max = 256;

MachineOptions machine_options(const GrpcOptions& options, std::size_t calls_max, bool http) {
  return {.connection = {.server = true,
                         .metadata_bytes_max = options.metadata_bytes_max,
                         .streams_max = calls_max,
                         .stream_window_bytes = options.stream_window_bytes,
                         .connection_window_bytes = options.connection_window_bytes,
                         .flood = {.tokens_max = static_cast<std::int64_t>(options.idle_frames_max),
                                   .tokens_per_second = static_cast<std::int64_t>(options.idle_frames_per_second)},
                         .ping_interval_min = options.ping_interval_min},
          .message_bytes_max = options.message_bytes_max,
          .plain_requests = http};
}

}  // namespace

Http2ServerSession::Http2ServerSession(rpc::PortHost& host, std::unique_ptr<transport::Stream> stream, Bytes first,
                                       const GrpcOptions& options)
    : ByteSession(host, std::move(stream), first),
      options_(options),
      keepalive_(host.loop, *this),
      goaway_(*this),
      calls_pace_(*this),
      wait_(*this),
      machine_(machine_options(options, calls_max(), host.http != nullptr), *this, bounded_account(), queue()),
      plain_(*this),
      packed_(*this) {
  keepalive_.start(host.options.ping_interval);
  goaway_.start();
}

Http2ServerSession::~Http2ServerSession() = default;

void Http2ServerSession::options_changed() {
  ByteSession::options_changed();
  if (closed() || finishing()) return;
  keepalive_.start(host().options.ping_interval);
  rpc::wake_writers(writers_);  // They wait for a backlog below send_backlog_bytes_max.
}

std::size_t Http2ServerSession::calls_max() const noexcept {
  return std::min({options_.calls_max, host().options.calls_per_connection_max, std::size_t{65'535}});
}

// ---- Receiving ----

std::size_t Http2ServerSession::take(Bytes bytes, Block& block) {
  // Replies to a part of the requests are sent before the next part is served. The client works on them meanwhile.
  const std::size_t part =
      std::min(bytes.size(), std::max(early_.bytes(host().loop.now()), machine_.guard().rest_of_frame()));
  keepalive_.received(part);
  if (!failed_) {
    const Result<void> status = machine_.receive(bytes.first(part), &block, host().loop.now());
    if (!status && !closed()) fail_machine(status.error());
  }
  send_soon();
  if (part != bytes.size()) {
    early_.sent();
    send_now();
  }
  return part;
}

// Sends the reason, then closes.
void Http2ServerSession::fail_machine(const Error& why) {
  failed_ = true;
  host().counters.protocol_errors.add(1);
  host().loop.log(LogLevel::warning, "grpc", "connection from " + peer_name() + " closed: " + why.text);
  produce();
  cancel_calls(Error::of_connection(why.initiator, ErrorCode::cancelled, "the caller's connection ended"));
  finish();
}

bool Http2ServerSession::receiving() const noexcept {
  if (machine_.within_frame()) return true;
  bool found = false;
  machine_.for_each([&](const GrpcStream& stream) {
    // A stream that waits for its receiver is not slow.
    found = found || (stream.take == GrpcStream::Take::plain && !stream.remote_ended && plain_.receives(stream)) ||
            (stream.reader.begun() && stream.stalled.empty() && stream.held_bytes < options_.stream_window_bytes);
  });
  return found;
}

Http2ServerSession::Call& Http2ServerSession::call_of(const GrpcStream& stream) {
  const std::size_t slot = stream.call & 0xFFFF;
  if (slot >= calls_by_slot_.size()) calls_by_slot_.resize(slot + 1);
  return calls_by_slot_[slot];
}

void Http2ServerSession::refuse(GrpcStream& stream, GrpcStatus status, std::string_view text) {
  host().counters.calls_refused.add(1);
  machine_.send_status(stream, static_cast<int>(status), text);
}

std::optional<Error> Http2ServerSession::check_request(const GrpcStream& stream,
                                                       const rpc::Dispatcher::Method*& method) const {
  const HeaderFields& fields = stream.fields;
  if (std::optional<Error> fault = fields.fault(options_.metadata_bytes_max)) return fault;
  if (fields.path.starts_with('/')) method = host().dispatcher.find(std::string_view(fields.path).substr(1));
  if (method == nullptr || method->json == nullptr || method->json->encoding() != "proto") {
    return Error::of_call(Initiator::peer, ErrorCode::unknown_method,
                          "the server has no method " + fields.path.substr(0, path_text_bytes_max));
  }
  if (fields.encoding == Encoding::unknown) {
    return Error::of_call(Initiator::peer, ErrorCode::unknown_method,
                          "grpc-encoding names a compression that this server does not have: see grpc-accept-encoding");
  }
  if (full(calls_max())) return full_error(calls_max());
  return std::nullopt;
}

void Http2ServerSession::on_headers(GrpcStream& stream) {
  if (goaway_.completed()) {
    host().counters.calls.add(1);
    machine_.reset(stream, http2::refused_stream);
    return;
  }
  if (!stream.fields.grpc_content && host().http != nullptr && !stream.fields.no_memory) {
    call_of(stream) = {};
    return plain_.begin(stream);
  }
  host().counters.calls.add(1);
  if (stream.fields.no_memory) {
    const Error why = unkept_error(account());
    if (stream.fields.grpc_content) return refuse(stream, status_of(why), why.text);
    host().counters.calls_refused.add(1);
    return machine_.send_status_only(stream, 503);
  }
  if (!stream.fields.post) return machine_.send_status_only(stream, 405);
  if (!stream.fields.grpc_content) return machine_.send_status_only(stream, 415);
  Call& call = call_of(stream);
  call = {};
  if (const std::optional<Error> why = check_request(stream, call.method)) {
    return refuse(stream, status_of(*why), why->text);
  }
  const Loop& loop = host().loop;
  if (stream.fields.timeout) call.deadline = loop.after(*stream.fields.timeout);
  const Encoding wanted = encoding_of(options_.compression);
  if (wanted != Encoding::identity && stream.fields.accepted.has(wanted)) {
    stream.send_encoding = wanted;
    call.compress = true;
  }
  if (call.method->streams_in) {
    stream.take = GrpcStream::Take::deliver;
    return dispatch(stream);
  }
  stream.take = GrpcStream::Take::keep_one;
  // Metadata precedes the body in one piece of memory: IncomingRequest.
  stream.reader.set_room(stream.fields.metadata.size());
}

void Http2ServerSession::dispatch(GrpcStream& stream) {
  const Call& call = call_of(stream);
  stream.busy = true;
  if (!calls_pace_.running()) start_pace(calls_pace_, options_.write_timeout);
  const Bytes metadata(stream.fields.metadata.data(), stream.fields.metadata.size());
  detail::IncomingRequest request{.sink = *this,
                                  .call = stream.call,
                                  .deadline = call.deadline,
                                  .body = stream.message,
                                  .metadata = MetadataView(metadata),
                                  .head_block = stream.message_block,
                                  .account = bounded_account(),
                                  .decode_limits = &host().options.decode_limits};
  Buffer kept = std::move(stream.kept);
  detail::ReceiveCharge charge = std::move(stream.kept_charge);
  rpc::BodyForm form;
  if (stream.take == GrpcStream::Take::keep_one && stream.reader.compressed()) {
    form = form_of(stream.fields.encoding, stream.message, options_.message_bytes_max);
  } else if (!metadata.empty() && kept.size() >= metadata.size() && stream.message.data() != nullptr) {
    std::byte* const front = const_cast<std::byte*>(stream.message.data()) - metadata.size();
    std::memcpy(front, metadata.data(), metadata.size());
    request.metadata = MetadataView(Bytes(front, metadata.size()));
  } else if (!metadata.empty()) {
    // A stream has no message to begin with: the body is the empty rest behind the metadata.
    request.body = metadata.last(0);
    request.head_block = nullptr;
  }
  stream.message = {};
  stream.message_block = nullptr;
  serve_form(*call.method, request, form);
}

// Items that have come before the interceptors have called the handler stay compressed.
bool Http2ServerSession::may_unpack(const GrpcStream& stream) const noexcept {
  const detail::ActiveCall* const call = calls().find(wire::CallId::from_number(stream.call));
  return call == nullptr || !call->observed || calls_by_slot_[stream.call & 0xFFFF].handler_runs;
}

void Http2ServerSession::handler_begun(std::uint32_t call) {
  GrpcStream* const stream = machine_.find(call);
  if (stream == nullptr || stream->plain) return;
  call_of(*stream).handler_runs = true;
  if (stream->unpacking != GrpcStream::Unpacking::held) return;
  machine_.release_packed(call);
  if (!closed()) send_soon();
}

void Http2ServerSession::on_end(GrpcStream& stream) {
  if (rpc::HttpExchange* const exchange = plain_.find(stream)) return exchange->on_end();
  if (stream.take == GrpcStream::Take::deliver) {
    if (detail::StreamCore* const core = core_of(stream)) static_cast<void>(core->on_end());
    return;
  }
  if (stream.take != GrpcStream::Take::keep_one || stream.ending) return;
  if (stream.messages != 1) {
    return refuse(stream, GrpcStatus::unimplemented,
                  stream.messages == 0 ? "the request of a unary method has no message"
                                       : "the request of a unary method has more than one message");
  }
  if (begins_later(stream.call)) {
    static_cast<void>(machine_.hold_message(stream));
  } else {
    begin_call(stream);
  }
}

std::optional<Error> Http2ServerSession::refusal(std::size_t beyond) const {
  // Streams that begin when the connection goes away are reset: on_headers().
  if (full_for_accepted(calls_max(), beyond)) return full_for_accepted_error(calls_max());
  return std::nullopt;
}

void Http2ServerSession::begin_call(GrpcStream& stream) {
  // Other calls have begun since the headers arrived.
  if (const std::optional<Error> why = refusal(0)) return refuse(stream, status_of(*why), why->text);
  message_received();
  dispatch(stream);
}

detail::StreamCore* Http2ServerSession::core_of(const GrpcStream& stream) const noexcept {
  const detail::ActiveCall* const call = calls().find(wire::CallId::from_number(stream.call));
  return call == nullptr ? nullptr : call->stream_if_open();
}

void Http2ServerSession::on_message(GrpcStream& stream, Bytes message, Block* block) {
  message_received();
  detail::StreamCore* const core = core_of(stream);
  if (core == nullptr) return;
  if (!deliver_item(*core, stream, message, block, account())) on_bad(stream, unkept_error(account()));
}

void Http2ServerSession::on_bad(GrpcStream& stream, const Error& why) {
  stream.take = GrpcStream::Take::drop;
  refuse(stream, status_of(why), why.text);
  if (detail::ActiveCall* const call = calls().find(wire::CallId::from_number(stream.call))) call->request_stop(why);
}

void Http2ServerSession::on_closed(GrpcStream& stream, std::uint32_t) {
  if (stream.busy) give_up(stream, "the caller cancelled the call");
  if (goaway_.completed()) send_soon();
}

// ---- Compressed messages ----

bool Http2ServerSession::on_packed(std::uint32_t call, PackedMessage&& packed, detail::ReceiveCharge&& charge) {
  packed_.unpack(call, std::move(packed), std::move(charge));
  return true;
}

// ---- Streams ----

std::shared_ptr<detail::StreamCore> Http2ServerSession::open_stream(std::uint32_t call) {
  return std::make_shared<detail::StreamCore>(*this, call, host().options.stream_window_bytes,
                                              options_.stream_window_bytes);
}

std::byte* Http2ServerSession::begin_item(std::uint32_t call, const codec::EncodedSize& size) {
  GrpcStream* const stream = closed() ? nullptr : machine_.find(call);
  if (stream == nullptr || !stream->open || size.too_large || size.body + size.payload > message_length_max) {
    return nullptr;
  }
  return writer_.begin(*stream, size);
}

void Http2ServerSession::end_item(std::span<const ConstBuffer> pieces, SendCompletion* owner) {
  send_begun(pieces, owner, item_credit(writer_.bytes()));
}

void Http2ServerSession::send_credit(std::uint32_t call, std::uint32_t bytes) {
  GrpcStream* const stream = closed() ? nullptr : machine_.find(call);
  if (stream == nullptr) return;
  machine_.release(*stream, bytes);
  send_soon();
}

void Http2ServerSession::on_sent(GrpcStream& stream, std::uint32_t credit) {
  if (rpc::HttpExchange* const exchange = plain_.find(stream)) return exchange->on_sent();
  if (detail::StreamCore* const core = core_of(stream)) static_cast<void>(core->on_credit(credit));
}

bool Http2ServerSession::has_room() const noexcept {
  return http2::SendRoom{backlog(), machine_.waiting_bytes(), backlog_mark(), memory_left()}.for_items();
}

// ---- Calls that wait until the client has taken earlier responses ----

std::size_t Http2ServerSession::waiting_memory() const noexcept {
  // About what a stream holds beside the bytes of its response: its state, its fields, and the rest of the block.
  constexpr std::size_t stream_bytes = 12 * 1024;
  const std::size_t bytes = machine_.waiting_bytes();
  return bytes <= rpc::SendCharge::step_bytes ? bytes : bytes + machine_.used_streams() * stream_bytes;
}

ClientBacklog Http2ServerSession::client_backlog() const noexcept {
  return {backlog() + machine_.waiting_bytes(), backlog_mark(), memory_left()};
}

bool Http2ServerSession::calls_wait() noexcept {
  // So little is charged when the tick ends.
  if (client_backlog().bytes > rpc::SendCharge::step_bytes) set_waiting(waiting_memory());
  return client_backlog().above_mark();
}

bool Http2ServerSession::begins_above_mark(std::uint32_t call) {
  return waiting_.begins_above_mark(call, client_backlog(), [&](std::uint32_t one) {
    const GrpcStream* const stream = machine_.find(one);
    return stream == nullptr || !stream->open || (stream->headers_sent && stream->out.bytes() == 0);
  });
}

bool Http2ServerSession::begins_later(std::uint32_t call) {
  if (waiting_.empty()) [[likely]] {
    if (!calls_wait()) [[likely]] {
      waiting_.on_low_backlog();
      return false;
    }
    if (begins_above_mark(call)) return false;
  }
  waiting_.add(call, calls_max(), [&](std::uint32_t one) { return machine_.find(one) == nullptr; });
  if (!wait_.running()) {
    waiting_.watch(taken_bytes());
    start_wait();
  }
  return true;
}

void Http2ServerSession::begin_waiting(bool one_at_least) noexcept try {
  while (!waiting_.empty() && !closed() && !finishing() && !failed_) {
    GrpcStream* const stream = machine_.find(waiting_.front());
    const bool gone = stream == nullptr || !stream->open || stream->ending;
    if (!gone && !std::exchange(one_at_least, false) && calls_wait() && !begins_above_mark(stream->call)) break;
    waiting_.pop_front();
    if (gone) continue;
    if (rpc::HttpExchange* const exchange = plain_.find(*stream)) {
      exchange->begin_late();
    } else if (stream->take == GrpcStream::Take::keep_one) {
      begin_call(*stream);
    }
  }
  if (waiting_.empty()) wait_.stop();
} catch (const std::exception&) {
  fail_connection();
}

void Http2ServerSession::start_wait() { wait_.start(host().loop, host().loop.after(WaitingCalls::wait_max)); }

void Http2ServerSession::check_waiting() noexcept {
  if (closed() || finishing() || waiting_.empty()) return;
  start_wait();
  begin_waiting(waiting_.check(client_backlog(), taken_bytes()));
  if (!closed()) send_soon();
}

// ---- Slow clients ----

void Http2ServerSession::start_pace(Timer& timer, Duration write_timeout) {
  if (write_timeout < forever)
    timer.start(host().loop, host().loop.after(std::max(write_timeout_least, write_timeout)));
}

// A client that does not open the window of a stream would keep the response, and the handler that sends it, for ever.
bool Http2ServerSession::check_pace(bool plain, Duration write_timeout) {
  if (closed()) return false;
  bool any = false;
  machine_.for_each([&](GrpcStream& stream) {
    if (stream.plain != plain || !stream.open) return;
    any = true;
    const auto missed = stream.pace.check(stream.out);
    // The reset itself may have to wait for the client.
    if (!missed || !machine_.reset(stream, http2::cancel) || !stream.busy) return;
    const auto limit =
        std::chrono::duration_cast<std::chrono::milliseconds>(std::max(write_timeout_least, write_timeout));
    give_up(stream, "the client has taken " + std::to_string(missed->taken) + " of the " +
                        count_text(missed->wanted, "byte") + " of the response that it must take within " +
                        std::to_string(limit.count()) +
                        " ms (write_timeout): it must read faster, or the option must be raised");
  });
  if (!closed()) send_soon();
  return any;
}

void Http2ServerSession::check_calls_pace() {
  if (check_pace(false, options_.write_timeout)) start_pace(calls_pace_, options_.write_timeout);
}

void Http2ServerSession::give_up(GrpcStream& stream, std::string_view why) {
  // The calls of a connection that has ended are cancelled in portions.
  detail::ActiveCall* const call = closed() ? nullptr : calls().find(wire::CallId::from_number(stream.call));
  if (call != nullptr) call->request_stop(ErrorCode::cancelled, Initiator::peer, why);
  if (rpc::HttpExchange* const exchange = plain_.find(stream)) exchange->on_gone();
}

// ---- Replies ----

void Http2ServerSession::send_begun(std::span<const ConstBuffer> pieces, SendCompletion* owner, std::uint32_t credit) {
  GrpcStream& stream = writer_.stream();
  const bool compressed = call_of(stream).compress && writer_.bytes() >= options_.compression_bytes_min;
  Buffer head = writer_.finish(pieces, compressed ? stream.send_encoding : Encoding::identity);
  machine_.send_message(stream, std::move(head), pieces, owner, credit);
  send_soon();
}

std::byte* Http2ServerSession::begin_reply(std::uint32_t call, const codec::EncodedSize& size,
                                           const detail::ReplyExtras& extras) {
  GrpcStream* const stream = machine_.find(call);
  if (stream == nullptr || !stream->open || stream->ending) {
    calls().answered(wire::CallId::from_number(call));
    if (stream != nullptr) answered(*stream);
    return nullptr;
  }
  if (const std::optional<Error> why = reply_fault(size, !extras.attachment.empty())) {
    reply_error(call, *why);
    return nullptr;
  }
  if (extras.metadata != nullptr) {
    stream->trailers.insert(stream->trailers.end(), extras.metadata->begin(), extras.metadata->end());
  }
  count_reply(call, size.body + size.payload);
  calls().answered(wire::CallId::from_number(call));
  begun_is_message_ = !call_of(*stream).method->streams_out;
  return writer_.begin(*stream, size);
}

void Http2ServerSession::end_reply(std::span<const ConstBuffer> pieces, SendCompletion* owner) {
  try {
    GrpcStream& stream = writer_.stream();
    if (begun_is_message_) {
      send_begun(pieces, owner, 0);
    } else {
      // The items were the messages of the response.
      if (owner != nullptr) owner->on_send_complete();
    }
    machine_.send_status(stream, 0, {});
    answered(stream);
  } catch (...) {
    fail_connection();
  }
}

void Http2ServerSession::reply_error(std::uint32_t call, const Error& error) {
  if (const GrpcStream* const found = machine_.find(call); found != nullptr && found->plain) {
    // An error before the handler had the sink of the exchange.
    if (rpc::HttpExchange* const exchange = plain_.find(*found)) exchange->fail_call(error);
    return;
  }
  GrpcStream* const stream = machine_.find(call);
  ErrorCode code = code_for_caller(call, error.code);
  // The client has not cancelled the call: its stream would be closed. So the server has ended the call.
  if (code == ErrorCode::cancelled && stream != nullptr && stream->open) code = ErrorCode::unavailable;
  count_error(call, code, error);
  calls().answered(wire::CallId::from_number(call));
  if (stream == nullptr) return;
  GrpcStatus status = status_of(error);
  if (code != error.code) {
    status = code == ErrorCode::deadline_exceeded ? GrpcStatus::deadline_exceeded : GrpcStatus::unavailable;
  }
  machine_.send_status(*stream, static_cast<int>(status), error.text);
  answered(*stream);
}

void Http2ServerSession::answered(GrpcStream& stream) {
  // A call that its peer has reset was not useful work: rapid resets would cost their sender nothing.
  if (stream.open) machine_.guard().give(1);
  machine_.release_stream(stream);
  if (!closed()) send_soon();
}

bool Http2ServerSession::add_metadata(std::uint32_t call, bool initial, std::string name, std::string value) {
  GrpcStream* const stream = machine_.find(call);
  if (stream == nullptr || stream->plain || stream->ending || (initial && stream->headers_sent)) return false;
  (initial ? stream->initial : stream->trailers).emplace_back(std::move(name), std::move(value));
  return true;
}

bool Http2ServerSession::choose_compression(std::uint32_t call, Encoding encoding) {
  GrpcStream* const stream = machine_.find(call);
  if (stream == nullptr || stream->plain) return false;
  Call& state = call_of(*stream);
  if (encoding == Encoding::identity) {
    state.compress = false;
    return true;
  }
  if (!stream->fields.accepted.has(encoding) || (stream->headers_sent && stream->send_encoding != encoding))
    return false;
  stream->send_encoding = encoding;
  return state.compress = true;
}

bool Http2ServerSession::request_compressed(std::uint32_t call) const noexcept {
  const GrpcStream* const stream = machine_.find(call);
  if (stream == nullptr) return false;
  if (const detail::StreamCore* const core = core_of(*stream);
      core != nullptr && stream->take != GrpcStream::Take::keep_one) {
    return core->taken_compressed();
  }
  return stream->messages != 0 && stream->reader.compressed();
}

// ---- The connection ----

void Http2ServerSession::produce() {
  machine_.pump();
  set_waiting(waiting_memory());
  if (!failed_ && machine_.failure()) fail_machine(*machine_.failure());
  if (writers_.linked() && has_room()) rpc::wake_writers(writers_);
  if (has_room()) plain_.on_room();
  if (!waiting_.empty()) [[unlikely]]
    begin_waiting();
  if (closed() || finishing()) return;
  if (machine_.take_discarding()) plain_.on_discarding();
  close_if_done();
}

void Http2ServerSession::close_if_done() {
  if (closed() || finishing() || active_calls() != 0 || machine_.used_streams() != 0) return;
  if (goaway_.completed() || machine_.finished()) finish();
}

bool Http2ServerSession::leave() {
  goaway_.announce();
  // A stream that is not a call yet: its request is on its way.
  return closed() || finishing() || (goaway_.completed() && machine_.used_streams() <= active_calls());
}

void Http2ServerSession::on_pong(bool of_goaway) {
  if (of_goaway) goaway_.complete();
}

void Http2ServerSession::send_ping() {
  machine_.ping();
  send_soon();
}

void Http2ServerSession::on_silent_peer() {
  end_session(Error::of_connection(Initiator::peer, ErrorCode::unavailable,
                                   "the peer has given no sign of life for two ping intervals"));
}

// A request that is not complete is never completed. The frames of GOAWAY are the reason for the kernel of a client
// that has gone to reset the connection, which cancels the other calls.
void Http2ServerSession::on_peer_end() {
  machine_.for_each([&](GrpcStream& stream) {
    // Before the end of the request. The reply is still being sent.
    const bool answered = stream.ending && !stream.discards;
    if (!stream.open || stream.remote_ended || answered) return;
    if (!machine_.reset(stream, http2::cancel) || !stream.busy) return;
    give_up(stream, "the client has ended its direction before the end of its request");
  });
  goaway_.announce();
  goaway_.complete();
}

void Http2ServerSession::on_end(const Error& reason) {
  keepalive_.stop();
  goaway_.stop();
  calls_pace_.stop();
  plain_.stop();
  wait_.stop();
  waiting_.clear();
  packed_.stop();
  machine_.close_all(reason);
  writers_.unlink();
}

}  // namespace hawser::protocol::grpc
