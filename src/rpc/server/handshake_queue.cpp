#include "rpc/server/handshake_queue.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "rpc/server/server_loop.h"
#include "rpc/server/server_session.h"

namespace hawser::rpc {
namespace {

// Refusals come as fast as an attacker connects, so their log lines are limited.
constexpr Duration refusal_line_interval = std::chrono::seconds(1);

// The limit of calls_max in a HELLO (docs/wire-format.md).
constexpr std::size_t native_calls_max = 65'536;

// Why bytes of no protocol of the port are refused: `otherwise`, unless they are of a kind that is often sent to a port
// without it.
std::string reason_of_unknown(Bytes first, const std::string& otherwise) {
  const std::string_view text = as_text(first);
  if (text.starts_with("\x16\x03")) {
    return "it begins with TLS, which this server does not have: connect without TLS, or set ServerOptions::security";
  }
  // The second version begins with empty lines.
  if (text.starts_with("PROXY ") || text.starts_with("\r\n\r\n")) {
    return "it begins with a header of the PROXY protocol, which this port does not read: switch it off in the load "
           "balancer";
  }
  return otherwise;
}

}  // namespace

HandshakeQueue::HandshakeQueue(PortHost& host, ServerShared& shared, Sessions& sessions)
    : host_(host),
      loop_(host.loop),
      options_(host.options),
      shared_(shared),
      sessions_(sessions),
      plain_(shared.protocols, host.options.security.get()),
      secured_(shared.protocols, nullptr),
      transports_(host.loop, shared.transports, shared.options.transports.retry_min) {}

void HandshakeQueue::adopt(std::unique_ptr<transport::Stream> stream) noexcept {
  try {
    admit(std::move(stream));
  } catch (const std::exception& error) {
    // Memory is exhausted, or the poller accepts no more descriptors.
    host_.counters.connections_refused.add(1);
    log_dropped(error);
  }
}

void HandshakeQueue::admit(std::unique_ptr<transport::Stream> stream) {
  auto handshake =
      std::make_unique<negotiate::Handshake>(loop_, std::move(stream), loop_.after(options_.handshake_timeout),
                                             static_cast<negotiate::Handshake::Done&>(*this), &plain_);
  if (attempts_.size() >= options_.handshakes_max && !evict_silent()) {
    return refuse(*handshake, "the server has handshakes_max (" + std::to_string(options_.handshakes_max) +
                                  ") handshakes going on: try again later, or raise it");
  }
  allow_silence(*handshake);
  attempts_.emplace_back().handshake = std::move(handshake);
}

// Clients of other protocols may connect in advance, and again be silent when TLS is there.
void HandshakeQueue::allow_silence(negotiate::Handshake& handshake) const noexcept {
  Duration silence = Duration::zero();
  for (const auto& protocol : shared_.protocols) silence = std::max(silence, protocol->silence_max());
  if (silence > options_.handshake_timeout) {
    handshake.allow_silence(loop_.after(silence), options_.handshake_timeout);
  }
}

// Makes room for a new connection by closing the oldest attempt that has been refused, else the oldest without a hello,
// else the oldest that does not answer the selection of a transport. Returns false if no attempt is silent.
bool HandshakeQueue::evict_silent() {
  const auto leaving = std::ranges::find_if(attempts_, [](const Attempt& one) { return one.handshake->leaving(); });
  if (leaving != attempts_.end()) {
    attempts_.erase(leaving);
    return true;
  }
  const auto silent = [this](bool selected) {
    return std::ranges::find_if(attempts_, [&](const Attempt& one) {
      return !one.handshake->heard() && (one.negotiation != nullptr) == selected;
    });
  };
  auto oldest = silent(false);
  if (oldest == attempts_.end()) oldest = silent(true);
  if (oldest == attempts_.end()) return false;
  refuse(*oldest->handshake, "no hello or answer came while handshakes_max (" +
                                 std::to_string(options_.handshakes_max) + ") newer connections arrived");
  attempts_.erase(oldest);
  return true;
}

// Sends the reason. The caller destroys the handshake.
void HandshakeQueue::refuse(negotiate::Handshake& handshake, std::string why) {
  host_.counters.connections_refused.add(1);
  log_refusal("connection from " + handshake.stream().peer() + " refused: " + why);
  handshake.send(
      negotiate::to_hello(negotiate::RefusalHello{Error::of_connection(ErrorCode::overloaded, std::move(why))}));
  handshake.stream().finish();
}

void HandshakeQueue::log_refusal(const std::string& text) {
  if (loop_.now() < next_refusal_line_) return;
  next_refusal_line_ = loop_.now() + refusal_line_interval;
  loop_.log(LogLevel::warning, "rpc", text);
}

// Memory is often exhausted here, and the text may need memory as well.
void HandshakeQueue::log_dropped(const std::exception& error) noexcept {
  try {
    log_refusal(std::string("connection dropped: ") + error.what());
  } catch (const std::exception&) {
    // The connection is counted without a log line.
  }
}

// The newest attempts are first: the oldest ones are those of clients that send nothing, which may be many.
template <class Is>
HandshakeQueue::Attempts::iterator HandshakeQueue::find_newest(Is is) {
  const auto found = std::find_if(attempts_.rbegin(), attempts_.rend(), is);
  return found == attempts_.rend() ? attempts_.end() : std::prev(found.base());
}

HandshakeQueue::Attempts::iterator HandshakeQueue::find(const negotiate::Handshake& handshake) {
  return find_newest([&](const Attempt& one) { return one.handshake.get() == &handshake; });
}

HandshakeQueue::Attempts::iterator HandshakeQueue::find(const negotiate::ServerNegotiation& negotiation) {
  return find_newest([&](const Attempt& one) { return one.negotiation.get() == &negotiation; });
}

// Performs a step of a handshake. An exception (no memory, or no more descriptors for the poller) costs the connection.
template <class Step>
void HandshakeQueue::guard(negotiate::Handshake& handshake, Step step) {
  try {
    step();
  } catch (const std::exception& thrown) {
    drop(find(handshake), thrown);
  }
}

void HandshakeQueue::drop(Attempts::iterator attempt, const std::exception& thrown) noexcept {
  if (attempt == attempts_.end()) return;  // The attempt has become a session, which ends by itself.
  host_.counters.handshakes_failed.add(1);
  end_attempt(attempt);
  log_dropped(thrown);
}

void HandshakeQueue::end_attempt(Attempts::iterator attempt) noexcept {
  attempts_.erase(attempt);
  if (attempts_.empty()) sessions_.on_no_handshakes();
}

// ---- The first bytes ----

void HandshakeQueue::on_hello(negotiate::Handshake& handshake, Result<wire::Hello> hello) {
  guard(handshake, [&] { continue_handshake(find(handshake), std::move(hello)); });
}

void HandshakeQueue::continue_handshake(Attempts::iterator attempt, Result<wire::Hello> hello) {
  if (attempt->handshake->leaving()) return end_attempt(attempt);
  if (!hello) return end_failed(attempt, hello.error());
  if (attempt->negotiation == nullptr) return begin_negotiation(attempt, std::move(*hello));
  attempt->negotiation->on_answer(negotiate::answer_of(std::move(*hello)));
}

void HandshakeQueue::end_failed(Attempts::iterator attempt, const Error& why) {
  const std::string connection = "connection from " + attempt->handshake->stream().peer();
  // Load balancers and monitors connect and close, or reset, to find out whether the port is open.
  if (attempt->handshake->ended_silently() && !attempt->secured && attempt->negotiation == nullptr) {
    loop_.log(LogLevel::debug, "rpc", connection + " ended before its first byte");
    return end_attempt(attempt);
  }
  host_.counters.handshakes_failed.add(1);
  if (const Bytes first = attempt->handshake->unknown(); !first.empty()) {
    log_refusal(connection + " refused: " + reason_of_unknown(first, why.text));
    return attempt->handshake->leave(unknown_answer(first));
  }
  loop_.log(LogLevel::info, "rpc", connection + " dropped: " + why.text);
  end_attempt(attempt);
}

// The hello, or the first bytes of another protocol, are expected on the protected stream.
void HandshakeQueue::protect(Attempts::iterator attempt, Bytes first) {
  const Time deadline = attempt->handshake->deadline();
  std::unique_ptr<transport::Stream> stream =
      options_.security->protect(loop_, attempt->handshake->release_stream(), first, shared_.alpn);
  attempt->secured = true;
  attempts_.splice(attempts_.end(), attempts_, attempt);  // It is not silent: those that are give way first.
  attempt->handshake = std::make_unique<negotiate::Handshake>(
      loop_, std::move(stream), deadline, static_cast<negotiate::Handshake::Done&>(*this), &secured_);
  allow_silence(*attempt->handshake);
}

// The answer to bytes of a protocol that this server does not speak: one line. HTTP clients receive it as a response.
std::string HandshakeQueue::unknown_answer(Bytes first) const {
  std::string line = "unknown protocol: this port speaks hawser";
  for (const auto& protocol : shared_.protocols) line += ", " + std::string(protocol->name());
  line += "\n";
  constexpr std::string_view methods[] = {"GET ", "PUT ", "POST", "HEAD", "DELE",
                                          "OPTI", "PATC", "TRAC", "CONN", "PRI "};
  const std::string_view text = as_text(first);
  if (std::ranges::none_of(methods, [&](std::string_view method) { return text.starts_with(method); })) return line;
  return "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: " +
         std::to_string(line.size()) + "\r\n\r\n" + line;
}

std::optional<Error> HandshakeQueue::refusal(const Attempt& attempt) const {
  if (!attempt.secured && options_.security != nullptr) {
    std::string why = options_.security->refusal_of_plain(attempt.handshake->stream());
    if (!why.empty()) return Error::of_connection(ErrorCode::protocol_error, std::move(why));
  }
  return sessions_.refusal();
}

// ---- Other protocols ----

static_assert(negotiate::FirstBytes::bytes_max == PortProtocol::first_bytes_max);

negotiate::FirstBytes::Match HandshakeQueue::Recogniser::match(Bytes first) const noexcept {
  bool more = false;
  if (security_ != nullptr) {
    switch (security_->match(first)) {
      case transport::ServerSecurity::Match::yes: return Match::yes;
      case transport::ServerSecurity::Match::more: more = true; break;
      case transport::ServerSecurity::Match::no: break;
    }
  }
  for (const auto& protocol : protocols_) {
    switch (protocol->match(first)) {
      case PortProtocol::Match::yes: return Match::yes;
      case PortProtocol::Match::more: more = true; break;
      case PortProtocol::Match::no: break;
    }
  }
  return more ? Match::more : Match::no;
}

const PortProtocol* HandshakeQueue::Recogniser::protocol_of(Bytes first) const noexcept {
  if (security_ != nullptr && security_->match(first) == transport::ServerSecurity::Match::yes) return nullptr;
  const auto matches = [&](const auto& protocol) { return protocol->match(first) == PortProtocol::Match::yes; };
  // A match of a user may answer the same bytes in another way.
  const auto found = std::ranges::find_if(protocols_, matches);
  return found == protocols_.end() ? nullptr : found->get();
}

void HandshakeQueue::on_other(negotiate::Handshake& handshake, Bytes first) {
  guard(handshake, [&] { open_other(find(handshake), first); });
}

void HandshakeQueue::open_other(Attempts::iterator attempt, Bytes first) {
  const PortProtocol* const protocol = recogniser(*attempt).protocol_of(first);
  if (protocol == nullptr && (attempt->secured || options_.security == nullptr)) {
    host_.counters.handshakes_failed.add(1);
    return attempt->handshake->leave(unknown_answer(first));
  }
  if (protocol == nullptr) return protect(attempt, first);
  open_protocol(attempt, *protocol, first);
}

void HandshakeQueue::open_protocol(Attempts::iterator attempt, const PortProtocol& protocol, Bytes first) {
  const std::optional<Error> why = refusal(*attempt);
  const bool in_session = why && why->code == ErrorCode::unavailable && protocol.refuses_requests();
  if (why && !in_session) {
    host_.counters.connections_refused.add(1);
    log_refusal("connection from " + attempt->handshake->stream().peer() + " refused: " + why->text);
    return attempt->handshake->leave(protocol.refusal(*why));
  }
  begin_session(attempt, protocol.open(host_, attempt->handshake->release_stream(), first));
}

// ---- The library's own protocol ----

negotiate::ServerSide HandshakeQueue::side(const Attempt& attempt) const {
  const transport::ServerSecurity* const security = attempt.secured ? options_.security.get() : nullptr;
  return {.terms = {.checksum = options_.checksum,
                    .memory = true,
                    .message_bytes_max = options_.message_bytes_max,
                    .calls_max = std::min(options_.calls_per_connection_max, native_calls_max),
                    .stream_window_bytes = options_.stream_window_bytes,
                    .protection =
                        security != nullptr ? static_cast<std::uint8_t>(security->path_protection()) : std::uint8_t{0}},
          .refusal = refusal(attempt),
          .stream_only = security != nullptr ? security->stream_only(attempt.handshake->stream()) : std::string_view(),
          .transports = transports_.names()};
}

void HandshakeQueue::begin_negotiation(Attempts::iterator attempt, wire::Hello hello) {
  attempt->negotiation = std::make_unique<negotiate::ServerNegotiation>(
      loop_, transports_, *attempt->handshake, attempt->secured ? options_.security.get() : nullptr, side(*attempt),
      static_cast<negotiate::ServerNegotiation::Outcome&>(*this));
  attempt->negotiation->begin(negotiate::first_of(std::move(hello)));
}

void HandshakeQueue::on_sent(negotiate::Handshake& handshake) {
  const auto attempt = find(handshake);
  if (attempt != attempts_.end() && attempt->negotiation != nullptr) attempt->negotiation->on_sent();
}

void HandshakeQueue::on_thrown(negotiate::ServerNegotiation& negotiation, const std::exception& thrown) {
  drop(find(negotiation), thrown);
}

void HandshakeQueue::on_refused(negotiate::ServerNegotiation& negotiation, const negotiate::HelloMessage& refusal) {
  const auto attempt = find(negotiation);
  host_.counters.connections_refused.add(1);  // Before the client can see the refusal.
  attempt->handshake->send(negotiate::to_hello(refusal));
  attempt->handshake->stream().finish();
  end_attempt(attempt);
}

void HandshakeQueue::on_agreed(negotiate::ServerNegotiation& negotiation,
                               std::unique_ptr<transport::Connection> connection,
                               std::shared_ptr<const Identity> identity) {
  const auto attempt = find(negotiation);
  if (identity == nullptr) identity = connection->identity();
  const SessionSettings settings{.agreed = negotiation.machine().agreed(),
                                 .regions = shared_.regions,
                                 .backlog_bytes_max = options_.send_backlog_bytes_max,
                                 .ping_interval = options_.ping_interval,
                                 .decode_limits = options_.decode_limits,
                                 .budget = &host_.budget,
                                 .unsent_bytes = &host_.counters.unsent_bytes,
                                 .peer = host_.receive_peers.find(connection->peer())};
  host_.counters.transports_declined.add(static_cast<std::int64_t>(negotiation.machine().failures()));
  // The handshake may have taken nearly all of its time.
  const Time deadline = std::max(attempt->handshake->deadline(), loop_.after(negotiate::AttachedTransports::step_max));
  auto session = std::make_unique<ServerSession>(host_, std::move(connection), settings, std::move(identity));
  if (auto proof = negotiation.take_proof()) session->require_proof(std::move(proof), deadline);
  session->set_declined(negotiation.machine().reasons());
  begin_session(attempt, std::move(session));
}

void HandshakeQueue::begin_session(Attempts::iterator attempt, std::unique_ptr<PortSession> made) {
  PortSession& session = *made;
  if (attempt->secured) {
    const negotiate::ServerNegotiation* const negotiation = attempt->negotiation.get();
    session.set_protection(
        negotiation != nullptr && negotiation->on_path()
            ? to_string(static_cast<transport::PathProtection>(negotiation->machine().agreed().protection))
            : "encrypted");
  }
  std::unique_ptr<detail::Posted> end = sessions_.add(std::move(made));
  attempts_.erase(attempt);
  sessions_.start(session, std::move(end));
}

}  // namespace hawser::rpc
