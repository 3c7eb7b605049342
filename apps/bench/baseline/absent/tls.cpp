#include <stdexcept>

#include "bench/baseline/baseline_tls.h"

namespace hawser::bench {

struct TlsChannel::Session {};

TlsChannel::TlsChannel(TlsChannel&&) noexcept = default;
TlsChannel::~TlsChannel() = default;

TlsChannel TlsChannel::connect(BaselineSocket, std::span<char>) { throw std::runtime_error("this build has no TLS"); }
TlsChannel TlsChannel::serve(BaselineSocket, std::span<char>) { throw std::runtime_error("this build has no TLS"); }
std::string_view TlsChannel::receive(std::size_t) noexcept { return {}; }
std::size_t TlsChannel::send(std::string_view) noexcept { return 0; }

}  // namespace hawser::bench
