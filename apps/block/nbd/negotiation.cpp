#include "block/nbd/negotiation.h"

#include <string_view>
#include <utility>

namespace hawser::block::nbd {

Task<Result<void>> receive_input(SocketStream& socket, NbdInput& input, std::size_t missing) {
  const Result<std::size_t> got = co_await socket.receive(input.room(missing));
  if (!got) co_return std::unexpected(got.error());
  if (*got == 0) co_return fail(ErrorCode::cancelled, "nothing more is received");
  input.received(*got);
  co_return Result<void>{};
}

NbdNegotiation::NbdNegotiation(Loop& loop, SocketStream& socket, NbdInput& input, NbdPeer peer, Exports& exports,
                               std::shared_ptr<transport::ServerSecurity> security)
    : loop_(loop),
      socket_(socket),
      input_(input),
      peer_(std::move(peer)),
      exports_(exports),
      security_(std::move(security)),
      handshake_(tls_offer()) {}

// The kernel names the process at a Unix socket, so that no certificate is needed there.
TlsOffer NbdNegotiation::tls_offer() const {
  if (!security_) return TlsOffer::none;
  const bool required = !peer_.local() && !socket_.refusal_of_plain(*security_).empty();
  return required ? TlsOffer::required : TlsOffer::optional;
}

// The certificate of the client, or else the process at a Unix socket.
Identity NbdNegotiation::identity() const {
  const std::shared_ptr<const Identity> proved = socket_.identity();
  return proved ? *proved : peer_.identity();
}

Task<bool> NbdNegotiation::send_text(std::string& text) {
  const Result<void> sent = co_await socket_.send(hawser::as_bytes(std::string_view(text)));
  text.clear();
  co_return sent.has_value();
}

Task<bool> NbdNegotiation::begin_tls() {
  socket_.secure(*security_, input_.unused());
  input_.use(input_.unused().size());
  handshake_.secured();
  const Result<void> begun = co_await receive_input(socket_, input_, 0);
  if (!begun && begun.error().code != ErrorCode::cancelled) {
    loop_.log(LogLevel::info, "nbd",
              "TLS of a connection of " + peer_.address() + " has failed: " + begun.error().text);
  }
  co_return begun.has_value();
}

Task<bool> NbdNegotiation::answer_question(NbdHandshake::Wants& wants) {
  if (wants == NbdHandshake::Wants::names) {
    handshake_.answer_names(co_await exports_.names(identity()));
    wants = NbdHandshake::Wants::bytes;
  } else if (wants == NbdHandshake::Wants::device) {
    const Result<std::shared_ptr<NbdDevice>> opened = co_await exports_.open(handshake_.name(), identity());
    if (opened) device_ = *opened;
    wants = handshake_.answer_device(opened ? Result<ExportInfo>(device_->info()) : std::unexpected(opened.error()));
  }
  co_return !socket_.broken();
}

Task<std::shared_ptr<NbdDevice>> NbdNegotiation::run() {
  for (;;) {
    if (!co_await send_text(handshake_.output())) co_return nullptr;
    const auto [next, consumed] = handshake_.next(input_.unused());
    NbdHandshake::Wants wants = next;
    input_.use(consumed);
    if (!co_await answer_question(wants)) co_return nullptr;
    if (wants == NbdHandshake::Wants::bytes) {
      if (consumed == 0 && !co_await receive_input(socket_, input_, 0)) co_return nullptr;
      continue;
    }
    const bool sent = co_await send_text(handshake_.output());
    if (sent && wants == NbdHandshake::Wants::tls) {
      if (!co_await begin_tls()) co_return nullptr;
      continue;
    }
    co_return sent&& wants == NbdHandshake::Wants::transmission ? std::move(device_) : nullptr;
  }
}

}  // namespace hawser::block::nbd
