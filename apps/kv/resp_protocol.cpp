#include "kv/resp_protocol.h"

#include <memory>
#include <utility>

#include "kv/commands.h"
#include "kv/resp_connection.h"

namespace hawser::kv {

RespProtocol::RespProtocol(Store& store, std::shared_ptr<PasswordGate> gate) : store_(store), gate_(std::move(gate)) {
  limits_.bulk_bytes_max = store.options().value_bytes_max;
  limits_.request_bytes_max = store.options().value_bytes_max + (std::size_t{4} << 20);
}

// A request is an array, or a line of text that begins with the name of a command. A line that ends within the bytes
// that are shown is answered in any case, if it is text.
RespProtocol::Match RespProtocol::match(Bytes first) const noexcept {
  const std::string_view text = as_text(first);
  if (text.empty()) return Match::more;
  if (text.front() == '*') return Match::yes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') return Match::yes;
    if (c == ' ' && find_command(text.substr(0, i)) != nullptr) return Match::yes;
    const bool printable = (c >= ' ' && c <= '~') || c == '\r' || c == '\t';
    if (!printable) return Match::no;
  }
  return Match::more;
}

std::unique_ptr<rpc::PortSession> RespProtocol::open(rpc::PortHost& host, std::unique_ptr<transport::Stream> stream,
                                                     Bytes first) const {
  return std::make_unique<RespConnection>(host, std::move(stream), first, limits_, store_, gate_.get());
}

std::string RespProtocol::refusal(const Error& why) const {
  std::string text = why.code == ErrorCode::overloaded ? "max number of clients reached" : why.text;
  for (char& c : text) c = c == '\r' || c == '\n' ? ' ' : c;
  return "-ERR " + text + "\r\n";
}

ProtocolSpec resp_protocol(Store& store, std::shared_ptr<PasswordGate> gate) {
  return ProtocolSpec(std::make_shared<RespProtocol>(store, std::move(gate)));
}

}  // namespace hawser::kv
