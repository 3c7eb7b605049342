#include "cli/doctor/host.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "base/escaped_text.h"

namespace hawser::cli::doctor {
namespace {

constexpr std::size_t interfaces_max = 64;
constexpr std::size_t host_addresses_max = 32;
constexpr std::size_t ports_max = 64;
constexpr std::size_t gids_max = 256;
constexpr std::size_t counters_max = 256;
constexpr std::size_t text_bytes_max = 64;

// An address as the bytes of IPv6 or IPv4; empty if the text is none.
struct InterfaceAddress {
  std::array<std::uint8_t, 16> bytes{};
  std::size_t size = 0;
};

InterfaceAddress parse(std::string_view text) {
  const std::string zoneless(text.substr(0, text.find('%')));
  InterfaceAddress address;
  if (::inet_pton(AF_INET6, zoneless.c_str(), address.bytes.data()) == 1) {
    address.size = 16;
    constexpr std::array<std::uint8_t, 12> mapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (std::equal(mapped.begin(), mapped.end(), address.bytes.begin())) {
      std::copy(address.bytes.begin() + 12, address.bytes.end(), address.bytes.begin());
      address.size = 4;
    }
  } else if (::inet_pton(AF_INET, zoneless.c_str(), address.bytes.data()) == 1) {
    address.size = 4;
  }
  return address;
}

std::string text_of(const ::sockaddr* address, const ::sockaddr* mask) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  unsigned prefix = 0;
  const auto count = [&prefix](const void* bytes, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) {
      prefix += static_cast<unsigned>(std::popcount(static_cast<const unsigned char*>(bytes)[i]));
    }
  };
  if (address->sa_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const ::sockaddr_in*>(address)->sin_addr, text.data(), text.size());
    if (mask != nullptr) count(&reinterpret_cast<const ::sockaddr_in*>(mask)->sin_addr, 4);
  } else {
    ::inet_ntop(AF_INET6, &reinterpret_cast<const ::sockaddr_in6*>(address)->sin6_addr, text.data(), text.size());
    if (mask != nullptr) count(&reinterpret_cast<const ::sockaddr_in6*>(mask)->sin6_addr, 16);
  }
  return fmt::format("{}/{}", text.data(), prefix);
}

// 0: not known.
std::int64_t mtu_of(const std::string& interface) {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return 0;
  ::ifreq request{};
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  const bool known = ::ioctl(fd, SIOCGIFMTU, &request) == 0;
  ::close(fd);
  return known ? request.ifr_mtu : 0;
}

std::vector<HostInterface> read_interfaces(const SystemFiles& files) {
  ::ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const auto release = [](::ifaddrs* list) { ::freeifaddrs(list); };
  const std::unique_ptr<::ifaddrs, decltype(release)> owner(first, release);
  std::map<std::string, HostInterface> found;
  for (const ::ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_addr->sa_family != AF_INET && one->ifa_addr->sa_family != AF_INET6)) {
      continue;
    }
    if (!found.contains(one->ifa_name) && found.size() == interfaces_max) continue;
    HostInterface& interface = found[one->ifa_name];
    interface.state = (one->ifa_flags & IFF_RUNNING) != 0 ? "up" : "down";
    if (interface.addresses.size() < host_addresses_max) {
      interface.addresses.push_back(text_of(one->ifa_addr, one->ifa_netmask));
    }
  }
  std::vector<HostInterface> all;
  for (auto& [name, interface] : found) {
    const std::string folder = "/sys/class/net/" + name;
    interface.name = name;
    interface.mtu_bytes = mtu_of(name);
    // In a network namespace, /sys may show the interfaces of another one.
    if (files.number(folder + "/ifindex") == static_cast<std::int64_t>(::if_nametoindex(name.c_str()))) {
      interface.mbit_per_s = std::max<std::int64_t>(files.number(folder + "/speed").value_or(0), 0);
    }
    all.push_back(std::move(interface));
  }
  return all;
}

// The driver of Mellanox cards shows here for which priorities its receivers notify senders of congestion.
std::string read_ecn(const SystemFiles& files, const std::string& interface) {
  const std::string folder = fmt::format("/sys/class/net/{}/ecn/roce_np/enable", interface);
  const std::vector<std::string> priorities = files.names(folder);
  std::string enabled;
  for (const std::string& priority : priorities) {
    if (files.number(folder + "/" + priority) == 1) enabled += (enabled.empty() ? "" : ",") + priority;
  }
  return priorities.empty() ? std::string() : enabled.empty() ? std::string("none") : enabled;
}

TargetAddress read_port(const SystemFiles& files, transport::rdma::Device& device, unsigned number) {
  TargetAddress port;
  port.device = device.name();
  port.number = number;
  if (const auto status = device.port(number)) {
    port.active = status->active;
    port.mtu_bytes = status->mtu_bytes;
    port.gbit_per_s = status->gigabits_per_second;
  }
  const std::string folder = fmt::format("/sys/class/infiniband/{}/ports/{}", device.name(), number);
  if (const auto gids = device.gids(number)) {
    for (const transport::rdma::GidEntry& entry : *gids) {
      if (port.gids.size() == gids_max) break;
      port.gids.push_back({entry.index, std::string(to_string(entry.type)), to_string(entry.gid)});
      if (!port.interface.empty()) continue;
      port.interface = files.text(fmt::format("{}/gid_attrs/ndevs/{}", folder, entry.index)).value_or("");
    }
  }
  if (!port.interface.empty()) port.ecn = read_ecn(files, port.interface);
  for (const transport::rdma::RdmaCounter& counter : device.counters(number)) {
    if (port.counters.size() == counters_max) break;
    port.counters.push_back({counter.name, counter.value});
  }
  return port;
}

void make_harmless(std::string& text) {
  std::string shown;
  append_escaped(shown, text, text_bytes_max);
  text = std::move(shown);
}

bool bounded(const HostFacts& facts) {
  return facts.interfaces.size() <= interfaces_max && facts.ports.size() <= ports_max &&
         std::ranges::all_of(facts.interfaces,
                             [](const HostInterface& one) { return one.addresses.size() <= host_addresses_max; }) &&
         std::ranges::all_of(facts.ports, [](const TargetAddress& one) {
           return one.gids.size() <= gids_max && one.counters.size() <= counters_max;
         });
}

}  // namespace

HostFacts read_host(const SystemFiles& files, transport::rdma::Verbs& verbs) {
  HostFacts facts;
  facts.hawser = HAWSER_VERSION;
  facts.kernel = files.text("/proc/sys/kernel/osrelease").value_or("of unknown version");
  facts.interfaces = read_interfaces(files);
  const Result<std::vector<std::string>> names = verbs.devices();
  if (!names) return facts;
  for (const std::string& name : *names) {
    const auto device = verbs.open(name);
    if (!device) continue;
    for (unsigned number = 1; number <= (*device)->ports() && facts.ports.size() < ports_max; ++number) {
      facts.ports.push_back(read_port(files, **device, number));
    }
  }
  return facts;
}

Result<HostFacts> checked_host(HostFacts facts) {
  if (facts.format != 1) {
    return fail(ErrorCode::protocol_error,
                fmt::format("the peer's facts have format {}, and this program knows format 1: run the same version of "
                            "hawser on both hosts",
                            facts.format));
  }
  if (!bounded(facts)) {
    return fail(ErrorCode::limit_exceeded,
                fmt::format("the peer names more than a host has: at most {} interfaces with {} addresses each, and {} "
                            "RDMA ports with {} GIDs and {} counters each",
                            interfaces_max, host_addresses_max, ports_max, gids_max, counters_max));
  }
  make_harmless(facts.hawser);
  make_harmless(facts.kernel);
  for (HostInterface& interface : facts.interfaces) {
    make_harmless(interface.name);
    make_harmless(interface.state);
    for (std::string& address : interface.addresses) make_harmless(address);
  }
  for (TargetAddress& port : facts.ports) {
    for (std::string* text : {&port.device, &port.interface, &port.ecn}) make_harmless(*text);
    for (HostGid& gid : port.gids) {
      make_harmless(gid.type);
      make_harmless(gid.gid);
    }
    for (HostCounter& counter : port.counters) make_harmless(counter.name);
    if (!(port.gbit_per_s >= 0 && port.gbit_per_s < 1e6)) port.gbit_per_s = 0;
  }
  return facts;
}

const HostInterface* interface_with(const HostFacts& host, std::string_view address) {
  const InterfaceAddress wanted = parse(address);
  if (wanted.size == 0) return nullptr;
  for (const HostInterface& interface : host.interfaces) {
    for (const std::string& one : interface.addresses) {
      const InterfaceAddress given = parse(std::string_view(one).substr(0, one.find('/')));
      if (given.size == wanted.size &&
          std::equal(given.bytes.begin(), given.bytes.begin() + static_cast<std::ptrdiff_t>(given.size),
                     wanted.bytes.begin())) {
        return &interface;
      }
    }
  }
  return nullptr;
}

bool same_network(std::string_view with_prefix, std::string_view address) {
  const std::size_t slash = with_prefix.find('/');
  if (slash == std::string_view::npos) return false;
  const InterfaceAddress own = parse(with_prefix.substr(0, slash));
  const InterfaceAddress other = parse(address);
  unsigned prefix = 0;
  const std::string_view digits = with_prefix.substr(slash + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), prefix);
  if (error != std::errc() || end != digits.data() + digits.size() || own.size == 0 || own.size != other.size ||
      prefix > own.size * 8) {
    return false;
  }
  for (unsigned bit = 0; bit < prefix; ++bit) {
    if (((own.bytes[bit / 8] ^ other.bytes[bit / 8]) >> (7 - bit % 8) & 1) != 0) return false;
  }
  return true;
}

}  // namespace hawser::cli::doctor
