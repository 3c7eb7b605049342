#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "hawser/time.h"

namespace hawser::transport {

// Measurements of the network below a connection, for pages.
struct LinkFacts {
  Duration round_trip{};              // Smoothed.
  std::uint64_t retransmissions = 0;  // Packets that were sent again, since the connection opened.
  // Bytes that may be on their way at the same time: the smaller of the congestion window and the peer's window.
  std::uint64_t window_bytes = 0;
};

// Implemented by a Stream or a Connection that has such measurements, beside that interface. Loop's thread only.
class LinkFactsSource {
 public:
  // Empty if there are none, or none now, such as after the end of the connection.
  virtual std::optional<LinkFacts> link_facts() const noexcept { return std::nullopt; }
  // Values that only this transport has, such as credits, as a short text for people. Empty likewise.
  virtual std::string link_details() const { return {}; }

 protected:
  ~LinkFactsSource() = default;
};

// The facts of a Stream or a Connection. Empty if it has none.
template <class Carrier>
std::optional<LinkFacts> link_facts_of(const Carrier* carrier) noexcept {
  const auto* const source = dynamic_cast<const LinkFactsSource*>(carrier);
  return source != nullptr ? source->link_facts() : std::nullopt;
}
template <class Carrier>
std::string link_details_of(const Carrier* carrier) {
  const auto* const source = dynamic_cast<const LinkFactsSource*>(carrier);
  return source != nullptr ? source->link_details() : std::string();
}

}  // namespace hawser::transport
