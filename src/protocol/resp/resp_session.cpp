#include "protocol/resp/resp_session.h"

#include <algorithm>
#include <string>
#include <utility>

namespace hawser::protocol::resp {

RespSession::RespSession(rpc::PortHost& host, std::unique_ptr<transport::Stream> stream, Bytes first,
                         const RequestLimits& limits)
    : ByteSession(host, std::move(stream), first), parser_(limits), out_(*this) {}

char* RespSession::more(std::size_t used, std::size_t bytes, std::size_t& size) {
  if (used != 0) commit(used);
  if (bytes == 0) {
    size = 0;
    return nullptr;
  }
  size = std::max(bytes, reserve_bytes_min);
  return reinterpret_cast<char*>(reserve(size));
}

// Memory for the positions of many arguments counts as received memory.
bool RespSession::charge_parser() {
  constexpr std::size_t free_bytes = 4096;
  const std::size_t held = parser_.held_bytes() > free_bytes ? parser_.held_bytes() : 0;
  if (parser_charge_.set(held)) return true;
  end_session(unkept_error(account()));
  return false;
}

bool RespSession::charge_replies() {
  if (closed()) return false;
  const std::size_t waiting = held_replies() + backlog();
  const std::size_t free = host().options.send_backlog_bytes_max;
  const std::size_t uncharged = std::min(free, free_reply_bytes);
  replies_charge_.set_always(waiting > uncharged ? std::min(held_replies(), waiting - uncharged) : 0);
  const bool more = waiting > std::exchange(replies_waiting_, waiting);
  if (more && held_replies() > free && !account().acquire(0)) {
    end_session(Error::of_connection(
        ErrorCode::overloaded,
        "the client has not read " + std::to_string(waiting) +
            " bytes of replies, and there is no memory left (receive_bytes_max, receive_share_bytes_max, "
            "receive_peer_bytes_max) for them: read replies before sending more requests"));
    return false;
  }
  return true;
}

std::size_t RespSession::take(Bytes bytes, Block&) {
  std::size_t taken = 0;
  unsigned left = requests_per_take_max;
  RequestsAhead ahead;
  while (left != 0 && taken < bytes.size() && may_take()) {
    const Bytes rest = bytes.subspan(taken);
    if (!parser_.inside()) {
      if (const std::span<ReadyRequest> ready = ahead.find(rest, parser_.limits()); !ready.empty()) [[likely]] {
        taken += take_ready(ready, left);
        left -= std::min(left, static_cast<unsigned>(ready.size()));
        continue;
      }
    }
    const std::size_t by_parser = take_by_parser(rest);
    if (by_parser == 0) break;
    taken += by_parser;
    --left;
  }
  out_.flush();
  on_taken();
  if (!charge_replies()) return bytes.size();
  return taken;
}

// Executes at most `most` of the requests. Returns the bytes of those that it has executed.
std::size_t RespSession::take_ready(std::span<ReadyRequest> requests, unsigned most) {
  requests = requests.first(std::min<std::size_t>(requests.size(), most));
  look_ahead(requests);
  std::size_t taken = 0;
  std::size_t executed = 0;
  for (const ReadyRequest& request : requests) {
    if (!may_take()) break;
    taken += request.bytes;
    ++executed;
    message_received();
    on_request(request);
  }
  host().counters.calls.add(executed);
  return taken;
}

// Returns 0 if the request is not complete, and the length of `bytes` if nothing behind them is taken any more.
std::size_t RespSession::take_by_parser(Bytes bytes) {
  const RespParser::Step step = parser_.next(bytes);
  if (!charge_parser()) return bytes.size();
  if (step.event == RespParser::Event::more) return 0;
  if (step.event == RespParser::Event::error) {
    host().counters.protocol_errors.add(1);
    on_protocol_error("ERR Protocol error: " + parser_.error_text());
    return bytes.size();
  }
  message_received();
  host().counters.calls.add(1);
  const std::span<const std::string_view> arguments = parser_.arguments();
  if (!arguments.empty()) on_request({arguments.data(), arguments.size(), step.consumed, 0, false});
  return step.consumed;
}

void RespSession::on_end(const Error&) {
  out_.detach();
  parser_charge_.set_always(0);
  replies_charge_.set_always(0);
}

void RespSession::close_after_replies() {
  out_.flush();
  finish();
}

void RespSession::go_away() {
  begin_ending();
  if (!closed() && idle()) close_after_replies();
}

}  // namespace hawser::protocol::resp
