#include "cli/doctor/peer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "cli/doctor/rdma_counters.h"
#include "cli/doctor/serve.h"

namespace hawser::cli::doctor {
namespace {

// A connection of one thread a side should reach this part of a link that is not faster than link_gbit_max.
constexpr double link_part_min = 0.5;
constexpr double link_gbit_max = 25;

std::string speed_text(double gbit_per_s) { return fmt::format("{:g} Gbit/s", gbit_per_s); }

class Examination {
 public:
  explicit Examination(const PeerFacts& facts) : facts_(facts) {}

  Section run() {
    section_ = {"peer", "The peer " + facts_.address, false, {}};
    if (!reach()) return std::move(section_);
    version();
    mtu();
    for (const Traffic& traffic : facts_.traffic) transport(traffic);
    gids();
    counters(facts_.here, facts_.here_after, "here");
    counters(facts_.there, facts_.there_after, "peer");
    congestion();
    return std::move(section_);
  }

 private:
  Finding& add(std::string id, Severity severity, std::string text, std::string remedy = {}, std::string subject = {}) {
    section_.findings.push_back({std::move(id), severity, std::move(text), std::move(remedy), std::move(subject), {}});
    return section_.findings.back();
  }

  bool reach() {
    using Outcome = TcpProbe::Outcome;
    const TcpProbe& probe = facts_.probe;
    const std::string& to = facts_.address;
    const std::string port = to.substr(to.rfind(':') + 1);
    switch (probe.outcome) {
      case Outcome::connected: break;
      case Outcome::not_resolved:
        add("peer.reach", Severity::problem, fmt::format("the name of {} has no address: {}", to, probe.error),
            "check the name, /etc/hosts and the name servers (getent hosts NAME), or use an address");
        return false;
      case Outcome::refused:
        add("peer.reach", Severity::problem,
            fmt::format("{} ({}) is reached, and nothing listens at port {}: {}", to, probe.remote, port, probe.error),
            "run `hawser doctor --serve` there first; a firewall that rejects looks the same");
        return false;
      case Outcome::silent:
        add("peer.reach", Severity::problem, fmt::format("{} ({}) does not answer: {}", to, probe.remote, probe.error),
            fmt::format("check that the host is up (ping), and that no firewall on the way drops TCP to port {}; try "
                        "another port: hawser doctor --serve 0.0.0.0:PORT",
                        port));
        return false;
      case Outcome::unreachable:
        add("peer.reach", Severity::problem, fmt::format("{} ({}) is not reached: {}", to, probe.remote, probe.error),
            "check the routes (ip route get ADDRESS) and the interfaces (ip link)");
        return false;
    }
    if (!facts_.error.empty()) {
      add("peer.reach", Severity::problem,
          fmt::format("{} ({}) accepts connections and gives no facts: {}", to, probe.remote, facts_.error),
          "run `hawser doctor --serve` of the same version there");
      return false;
    }
    section_.usable = true;
    add("peer.reach", Severity::good, fmt::format("{} is reached at {} from {}", to, probe.remote, probe.local));
    return true;
  }

  void version() {
    const std::string& ours = facts_.here.hawser;
    const std::string& theirs = facts_.there.hawser;
    if (ours == theirs) {
      add("peer.version", Severity::good,
          fmt::format("both have Hawser {}; Linux {} here, {} there", ours, facts_.here.kernel, facts_.there.kernel));
    } else {
      add("peer.version", Severity::note, fmt::format("Hawser {} here, {} there", ours, theirs),
          "use the same version on both hosts");
    }
  }

  const HostInterface* ours() const { return interface_with(facts_.here, facts_.probe.local); }
  const HostInterface* theirs() const { return interface_with(facts_.there, facts_.probe.remote); }

  void mtu() {
    const HostInterface* const here = ours();
    const HostInterface* const there = theirs();
    const std::int64_t path = facts_.probe.path_mtu_bytes;
    if (here == nullptr || there == nullptr) {
      add("peer.mtu", Severity::note,
          fmt::format("path MTU {} bytes; no interface of the peer has the address {}", path, facts_.probe.remote),
          "an address is translated on the way (NAT, a load balancer): RDMA does not work through it");
      return;
    }
    const std::string both = fmt::format("MTU {} bytes of {} here, {} bytes of {} there; path MTU {} bytes",
                                         here->mtu_bytes, here->name, there->mtu_bytes, there->name, path);
    // No packet of IP is longer, whatever the loopback interface says.
    constexpr std::int64_t packet_bytes_max = 65'535;
    const std::int64_t smaller = std::min({here->mtu_bytes, there->mtu_bytes, packet_bytes_max});
    Finding* finding = nullptr;
    if (here->mtu_bytes != there->mtu_bytes) {
      finding = &add("peer.mtu", Severity::warning, both,
                     "set the same MTU on both interfaces and on the switches between them: larger packets are "
                     "dropped where a router does not split them");
    } else if (path != 0 && path < smaller) {
      finding = &add("peer.mtu", Severity::note, both,
                     "something on the way, such as a tunnel, takes smaller packets: RoCE needs the path MTU, too");
    } else {
      finding = &add("peer.mtu", Severity::good, both);
    }
    finding->figures = {{"here_bytes", static_cast<double>(here->mtu_bytes)},
                        {"peer_bytes", static_cast<double>(there->mtu_bytes)},
                        {"path_bytes", static_cast<double>(path)}};
  }

  static bool has_active_port(const HostFacts& host) {
    return std::ranges::any_of(host.ports, [](const TargetAddress& port) { return port.active; });
  }

  void refused(const Traffic& traffic) {
    // Shared memory is for the same host.
    if (traffic.transport == "shm") return;
    Severity severity = traffic.transport == "tcp" ? Severity::problem : Severity::note;
    std::string remedy = traffic.transport == "tcp" ? "see the reason" : "hawser doctor gives the reasons of each host";
    if (traffic.transport == "rdma") {
      const bool here = has_active_port(facts_.here);
      const bool there = has_active_port(facts_.there);
      if (here && there) {
        severity = Severity::problem;
        remedy =
            "both hosts have an active port: compare the GIDs and MTUs below, and see that UDP port 4791 (RoCE v2) "
            "is not dropped on the way";
      } else if (here != there) {
        remedy = here ? "the peer has no active RDMA port" : "this host has no active RDMA port";
      } else {
        remedy.clear();
      }
    }
    add("peer.transport", severity, "cannot be used: " + traffic.refusal, std::move(remedy), traffic.transport);
  }

  // The speed of the slower interface, if it is known.
  double link_gbit(const std::string& transport) const {
    if (transport == "rdma") {
      double slowest = 0;
      for (const HostFacts* host : {&facts_.here, &facts_.there}) {
        for (const TargetAddress& port : host->ports) {
          if (port.active && port.gbit_per_s > 0 && (slowest == 0 || port.gbit_per_s < slowest)) {
            slowest = port.gbit_per_s;
          }
        }
      }
      return slowest;
    }
    const HostInterface* const here = ours();
    const HostInterface* const there = theirs();
    if (here == nullptr || there == nullptr || here->mbit_per_s == 0 || there->mbit_per_s == 0) return 0;
    return static_cast<double>(std::min(here->mbit_per_s, there->mbit_per_s)) / 1000;
  }

  void transport(const Traffic& traffic) {
    if (!traffic.refusal.empty()) return refused(traffic);
    std::string text = fmt::format(
        "round trip {:.1f} us, 99 % below {:.1f} us ({} PINGs); {:.0f} MB/s to the peer, {:.0f} MB/s back "
        "(blocks of 1 MiB)",
        traffic.ping_us_p50, traffic.ping_us_p99, traffic.pings, traffic.sent_mbyte_per_s,
        traffic.received_mbyte_per_s);
    Finding* finding = nullptr;
    const double link = link_gbit(traffic.transport);
    const double slower = std::min(traffic.sent_mbyte_per_s, traffic.received_mbyte_per_s) * 8 / 1000;
    if (traffic.blocks_stalled) {
      finding =
          &add("peer.transport", Severity::problem,
               text + fmt::format("; PINGs came back, and blocks did not arrive in time: {}", traffic.error),
               "large packets are lost on the way (an MTU that is smaller somewhere, or a full link): compare the "
               "MTUs, and try `ping -M do -s SIZE HOST` with SIZE = MTU - 28",
               traffic.transport);
    } else if (!traffic.error.empty()) {
      finding = &add("peer.transport", Severity::problem, "ended during the measurement: " + traffic.error,
                     "see the reason", traffic.transport);
    } else if (link > 0 && link <= link_gbit_max && slower < link_part_min * link) {
      finding = &add("peer.transport", Severity::warning,
                     text + fmt::format("; the slower direction has {:.0f} % of the link ({})", 100 * slower / link,
                                        speed_text(link)),
                     "look for lost packets (ip -s link; nstat -z TcpRetransSegs), other traffic, and busy processors",
                     traffic.transport);
    } else {
      if (link > 0) text += fmt::format("; the link has {}", speed_text(link));
      finding = &add("peer.transport", Severity::good, std::move(text), {}, traffic.transport);
    }
    finding->figures = {{"ping_us_p50", traffic.ping_us_p50},
                        {"ping_us_p99", traffic.ping_us_p99},
                        {"sent_mbyte_per_s", traffic.sent_mbyte_per_s},
                        {"received_mbyte_per_s", traffic.received_mbyte_per_s},
                        {"link_gbit_per_s", link}};
  }

  // How the GIDs of two ports of the same kind meet.
  struct Meeting {
    unsigned direct = 0;  // In one network.
    unsigned routed = 0;
    std::string example;
  };

  bool direct(const HostGid& here, const HostGid& there) const {
    if (here.type == "infiniband") return here.gid.substr(0, 19) == there.gid.substr(0, 19);  // The subnet's prefix.
    const HostInterface* const interface = interface_with(facts_.here, here.gid);
    return interface != nullptr && std::ranges::any_of(interface->addresses, [&](const std::string& own) {
             return same_network(own, there.gid);
           });
  }

  Meeting meet(const TargetAddress& here, const TargetAddress& there) const {
    Meeting meeting;
    for (const HostGid& one : here.gids) {
      for (const HostGid& other : there.gids) {
        if (one.type != other.type) continue;
        const bool near = direct(one, other);
        ++(near ? meeting.direct : meeting.routed);
        if (meeting.example.empty() || (near && meeting.direct == 1)) {
          meeting.example =
              fmt::format("{} {} (index {}) and {} (index {})", one.type, one.gid, one.index, other.gid, other.index);
        }
      }
    }
    return meeting;
  }

  void gids() {
    for (const TargetAddress& here : facts_.here.ports) {
      for (const TargetAddress& there : facts_.there.ports) {
        if (!here.active || !there.active) continue;
        const std::string subject = fmt::format("{}/{} {}/{}", here.device, here.number, there.device, there.number);
        const Meeting meeting = meet(here, there);
        if (meeting.direct != 0) {
          add("peer.gids", Severity::good,
              fmt::format("pairs of GIDs in one network: {}, such as {}", meeting.direct, meeting.example), {},
              subject);
        } else if (meeting.routed != 0) {
          add("peer.gids", Severity::note,
              fmt::format("pairs of GIDs of one type, none in one network: {}, such as {}", meeting.routed,
                          meeting.example),
              "RoCE v2 can be routed; RoCE v1 and InfiniBand need one network: check the addresses of the interfaces",
              subject);
        } else {
          add("peer.gids", Severity::warning, "no GIDs of the same type, so these ports cannot be connected",
              "configure the same kind on both: RoCE v2 with an IP address on each interface, or InfiniBand", subject);
        }
        if (here.mtu_bytes != there.mtu_bytes) {
          add("peer.rdma_mtu", Severity::note,
              fmt::format("active MTU {} bytes here, {} there; connections use the smaller one", here.mtu_bytes,
                          there.mtu_bytes),
              "set the same MTU on both interfaces", subject);
        }
      }
    }
  }

  void counters(const HostFacts& before, const HostFacts& after, const std::string& whose) {
    for (const TargetAddress& port : after.ports) {
      const auto then = std::ranges::find_if(before.ports, [&](const TargetAddress& one) {
        return one.device == port.device && one.number == port.number;
      });
      if (then == before.ports.end()) continue;
      std::map<std::string_view, std::uint64_t> values;
      for (const HostCounter& counter : then->counters) values[counter.name] = counter.value;
      for (const HostCounter& counter : port.counters) {
        const auto old = values.find(counter.name);
        const Trouble* const trouble = trouble_of(counter.name);
        if (trouble == nullptr || old == values.end() || counter.value <= old->second) continue;
        const double grown = static_cast<double>(counter.value - old->second);
        add("peer.counter", Severity::warning,
            fmt::format("grew by {:g} during the measurement: {}", grown, trouble->meaning),
            std::string(trouble->remedy), fmt::format("{} {}/{} {}", whose, port.device, port.number, counter.name))
            .figures = {{"grown", grown}};
      }
    }
  }

  void congestion() {
    const auto add_for = [&](const HostFacts& host, const std::string& whose) {
      for (const TargetAddress& port : host.ports) {
        if (!port.active || port.ecn.empty()) continue;
        const std::string subject = fmt::format("{} {}/{}", whose, port.device, port.number);
        if (port.ecn == "none") {
          add("peer.ecn", Severity::note, "ECN is not enabled for RoCE on " + port.interface,
              fmt::format("if packets are lost under load, enable ECN or PFC for the priority of RoCE: echo 1 > "
                          "/sys/class/net/{}/ecn/roce_np/enable/PRIORITY; `dcb pfc show dev {}` shows PFC",
                          port.interface, port.interface),
              subject);
        } else {
          add("peer.ecn", Severity::good,
              fmt::format("ECN is enabled for RoCE on {}, priorities {}", port.interface, port.ecn), {}, subject);
        }
      }
    };
    add_for(facts_.here, "here");
    add_for(facts_.there, "peer");
  }

  const PeerFacts& facts_;
  Section section_;
};

}  // namespace

Section examine_peer(const PeerFacts& facts) { return Examination(facts).run(); }

}  // namespace hawser::cli::doctor
