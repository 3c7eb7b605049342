#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hawser/time.h"
#include "hawser/transports.h"

namespace hawser::rpc {

// Which transports broke while the peer lived, and from when on each may be tried again. A transport that breaks again
// and again is left alone ever longer, so that a client does not go to and fro.
class TransportBackoff {
 public:
  void broke(std::string_view transport, std::string reason, Time now, const TransportOptions& options);
  // Those that were due to be tried again were, in vain.
  void tried_in_vain(Time now, const TransportOptions& options);
  // `transport` carries a connection from now on.
  void carries(std::string_view transport, Time now);

  // Those to be left alone for now, with the reasons.
  std::vector<TransportFallback> avoided(Time now) const;
  // When the first of those that broke, and have not carried a connection since, may be tried again; Time::max() if
  // there is none.
  Time next_try() const noexcept;

 private:
  struct Entry {
    std::string name;
    std::string reason;
    bool broken = false;
    Duration pause{};
    Time again{};  // From then on it may be tried.
    Time taken{};  // When it last began to carry a connection.
  };
  Entry& find(std::string_view name);

  std::vector<Entry> transports_;
};

}  // namespace hawser::rpc
