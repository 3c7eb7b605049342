#pragma once

#include <memory>
#include <string_view>
#include <utility>

namespace hawser {

namespace rpc {
class PortProtocol;
}

// A protocol of another system with its options, for Server::enable(). The components of the library make it:
// hawser::http() in hawser/http.h, for example. A value: copies name the same protocol. Thread-safe.
class ProtocolSpec {
 public:
  // `protocol` must not be null.
  explicit ProtocolSpec(std::shared_ptr<const rpc::PortProtocol> protocol) noexcept : protocol_(std::move(protocol)) {}
  // The name, such as "http".
  std::string_view name() const noexcept;
  const std::shared_ptr<const rpc::PortProtocol>& protocol() const noexcept { return protocol_; }

 private:
  std::shared_ptr<const rpc::PortProtocol> protocol_;
};

}  // namespace hawser
