#pragma once

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/rdma/own_device.h"

namespace hawser::rdma_tests {

enum class CableKind : std::uint8_t {
  veth,  // The kernel carries the packets.
  tap,   // The test carries them: those that an end sends are read from its descriptor, and written to the other one.
};

// Two Soft-RoCE devices at the ends of a cable within this system: "hawser_wire0" with 10.79.200.1 and "hawser_wire1"
// with 10.79.200.2. Packets between the two addresses travel over the cable, though both are local ones. Changes the
// routing of the system, hence only within the guest.
class Cable {
 public:
  explicit Cable(CableKind kind = CableKind::veth) {
    if (!in_guest()) return;
    there_ = kind == CableKind::veth
                 ? run("modprobe veth") && run("ip link add " + end(0) + " type veth peer name " + end(1))
                 : run("modprobe tun") && open_tap(0) && open_tap(1);
    for (const int number : {0, 1}) {
      const std::string here = address(number);
      const std::string settings = "/proc/sys/net/ipv4/conf/" + end(number);
      there_ = there_ && run("ip address add " + here + "/32 dev " + end(number)) &&
               run("ip link set " + end(number) + " mtu 4200 up") && run("echo 1 > " + settings + "/accept_local") &&
               run("echo 0 > " + settings + "/rp_filter") &&
               run("ip route add " + address(1 - number) + " dev " + end(number) + " src " + here + " table 79") &&
               run("ip neighbor add " + address(1 - number) + " lladdr $(cat /sys/class/net/" + end(1 - number) +
                   "/address) dev " + end(number) + " nud permanent");  // A busy system answers ARP too late.
    }
    there_ = there_ &&
             run("ip rule add pref 100 lookup local && ip rule add pref 10 to 10.79.200.0/30 iif lo lookup 79") &&
             run("ip rule delete pref 0") && run("rdma link add hawser_rxe_w0 type rxe netdev hawser_wire0") &&
             run("rdma link add hawser_rxe_w1 type rxe netdev hawser_wire1");
  }
  Cable(const Cable&) = delete;
  Cable& operator=(const Cable&) = delete;
  ~Cable() {
    if (!in_guest()) return;
    run("rdma link delete hawser_rxe_w0; rdma link delete hawser_rxe_w1; ip link delete hawser_wire0 2>/dev/null;"
        "ip rule add pref 0 lookup local; ip rule delete pref 10; ip rule delete pref 100");
    for (const int tap : taps_) {
      if (tap >= 0) ::close(tap);  // Deletes the end.
    }
  }
  bool there() const { return there_; }
  static std::string end(int number) { return "hawser_wire" + std::to_string(number); }
  static std::string address(int number) { return "10.79.200." + std::to_string(number + 1); }
  // Descriptors of the ends of a cable of the kind `tap`. They do not block. Each read or write is one Ethernet frame.
  const std::array<int, 2>& taps() const { return taps_; }

 private:
  static bool run(const std::string& command) { return std::system(command.c_str()) == 0; }
  bool open_tap(int number) {
    int& tap = taps_.at(static_cast<std::size_t>(number));
    tap = ::open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    ifreq request{};
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    std::strncpy(request.ifr_name, end(number).c_str(), IFNAMSIZ - 1);
    return tap >= 0 && ::ioctl(tap, TUNSETIFF, &request) == 0;
  }

  std::array<int, 2> taps_{-1, -1};
  bool there_ = false;
};

}  // namespace hawser::rdma_tests
