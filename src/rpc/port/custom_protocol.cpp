#include "hawser/custom_protocol.h"

#include <memory>
#include <stdexcept>
#include <utility>

#include "rpc/port/custom_session.h"
#include "rpc/port/port_protocol.h"

namespace hawser {

namespace rpc {
namespace {

class CustomPort final : public PortProtocol {
 public:
  explicit CustomPort(CustomProtocol served) : served_(std::move(served)) {}

  std::string_view name() const noexcept override { return served_.name; }
  std::string_view alpn() const noexcept override { return served_.alpn; }
  Match match(Bytes first) const noexcept override {
    switch (served_.match(first)) {
      case CustomProtocol::Match::no: return Match::no;
      case CustomProtocol::Match::more: return Match::more;
      case CustomProtocol::Match::yes: return Match::yes;
    }
    return Match::no;
  }
  Duration silence_max() const noexcept override { return served_.idle_timeout; }
  std::unique_ptr<PortSession> open(PortHost& host, std::unique_ptr<transport::Stream> stream,
                                    Bytes first) const override {
    return std::make_unique<CustomSession>(host, std::move(stream), first, served_);
  }
  std::string refusal(const Error& why) const override {
    return served_.refusal ? served_.refusal(why) : std::string();
  }

 private:
  const CustomProtocol served_;
};

}  // namespace
}  // namespace rpc

std::function<CustomProtocol::Match(Bytes)> CustomProtocol::begins_with(std::string prefix) {
  if (prefix.empty() || prefix.size() > rpc::PortProtocol::first_bytes_max) {
    throw std::logic_error("hawser: CustomProtocol::begins_with() takes 1 to " +
                           std::to_string(rpc::PortProtocol::first_bytes_max) + " bytes, and not " +
                           std::to_string(prefix.size()));
  }
  return [prefix = std::move(prefix)](Bytes first) {
    const std::string_view text = as_text(first);
    if (text.starts_with(prefix)) return Match::yes;
    return std::string_view(prefix).starts_with(text) ? Match::more : Match::no;
  };
}

CustomProtocol::operator ProtocolSpec() const {
  if (name.empty() || !match || !serve) {
    throw std::logic_error("hawser: a CustomProtocol needs a name, a match and a function that serves");
  }
  return ProtocolSpec(std::make_shared<rpc::CustomPort>(*this));
}

}  // namespace hawser
