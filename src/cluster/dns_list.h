#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/dns_answer.h"
#include "hawser/error.h"
#include "hawser/naming.h"
#include "transport/tcp/dns_channel.h"

namespace hawser::cluster {

// The parts of a name "dns:...".
struct DnsName {
  std::string servers;  // Empty: those of the options.
  std::string host;
  std::string port;  // Empty: the host has SRV records.
};
// Fails with `invalid_argument`.
Result<DnsName> parse_dns_name(std::string_view target);

// The outcome of a question for records of one type.
struct DnsReply {
  using Kind = transport::DnsChannel::Records::Kind;
  Kind kind = Kind::failed;
  bool may_exist_elsewhere = false;  // The next name of the search is asked for.
  std::string why = {};              // The reason of `absent` and `failed`.
  DnsAnswer answer = {};             // The answer, if `found`.
};

// The endpoints of a name by rounds of questions, without I/O and without a clock. A round asks for each type of
// records of one name, and goes on with the next name of the search if there is none.
class DnsList {
 public:
  DnsList(std::string port, Duration refresh_min, Duration refresh_max);

  // The types to ask for: one or two.
  const std::vector<int>& types() const noexcept { return types_; }
  // Begins a round. `names` has at least one.
  void begin(std::vector<std::string> names);
  const std::string& name() const noexcept { return names_[at_]; }

  enum class Step : std::uint8_t {
    ask,     // Ask for name(), which is the next one.
    listed,  // The round has ended: endpoints() are current.
    failed,  // The round has ended: error().
  };
  // Takes the replies in the order of types().
  Step on_replies(std::vector<DnsReply> replies);
  // The round could not begin.
  void fail_round(std::string why);

  std::vector<Endpoint> endpoints() const;
  Error error() const;
  // Time until the next round.
  Duration pause() const noexcept { return pause_; }

 private:
  const std::string port_;
  const Duration refresh_min_;
  const Duration refresh_max_;
  const std::vector<int> types_;
  std::vector<std::string> names_;  // The names of the search, in this round.
  std::size_t at_ = 0;
  std::string listed_name_;                        // The records are of this name.
  std::array<std::vector<DnsRecord>, 2> records_;  // The last good ones of each type.
  std::string why_;                                // The reason of the round that failed.
  Duration pause_{};
  unsigned failures_ = 0;  // Rounds since the last good one.
};

}  // namespace hawser::cluster
