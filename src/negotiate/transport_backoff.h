#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/time.h"
#include "hawser/transports.h"

namespace hawser::negotiate {

// Remembers which transports failed while the peer lived, and when each may be tried again. The pause doubles when a
// transport fails repeatedly, so that a client does not alternate between transports.
class TransportBackoff {
 public:
  // Shortest pause, whatever the options are: each try opens a connection to the server.
  static constexpr Duration pause_min = std::chrono::milliseconds(1);

  // Connections that end in a row before their transport has broken.
  static constexpr unsigned ends_max = 3;

  void broke(std::string_view transport, std::string reason, Time now, const TransportOptions& options);
  // The peer has closed a connection that `transport` carried. Perhaps it has ended, or it has found a fault of the
  // transport before this side has. Returns true if this is the last of ends_max such ends in a row, and no connection
  // has worked for retry_max: then the transport broke.
  bool ended(std::string_view transport, const std::string& reason, Time now, const TransportOptions& options);
  // The transports whose pause had passed were tried again and failed.
  void tried_in_vain(Time now, const TransportOptions& options);
  // `transport` carries a connection from now on.
  void carries(std::string_view transport, Time now);

  // Returns the transports that must not be tried now, with the reasons.
  std::vector<TransportFallback> avoided(Time now) const;
  // Returns the first time at which a transport may be tried again that failed and has not carried a connection since.
  // Time::max() if there is none.
  Time next_try() const noexcept;

 private:
  struct Entry {
    std::string name;
    std::string reason;
    bool broken = false;
    unsigned ends = 0;  // In a row.
    Duration pause{};
    Time again{};  // The transport may be tried again from this time on.
    Time taken{};  // Time at which it last began to carry a connection.
  };
  Entry& find(std::string_view name);

  std::vector<Entry> transports_;
};

}  // namespace hawser::negotiate
