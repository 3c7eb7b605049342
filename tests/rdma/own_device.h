#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace hawser::rdma_tests {

// A Soft-RoCE device for one test, "hawser_rxeN" on a network 10.79.N.0 that the test can take down. Creating it needs
// privileges, as in the guest.
class OwnDevice {
 public:
  explicit OwnDevice(int number) : number_(std::to_string(number)) {
    there_ = run("ip link add " + network() + " type dummy 2>/dev/null && ip address add " + address() + "/24 dev " +
                 network() + " && ip link set " + network() + " up mtu 4200 && rdma link add " + name() +
                 " type rxe netdev " + network());
  }
  OwnDevice(const OwnDevice&) = delete;
  OwnDevice& operator=(const OwnDevice&) = delete;
  ~OwnDevice() {
    run("rdma link delete " + name() + " 2>/dev/null");
    run("ip link delete " + network() + " 2>/dev/null");
  }
  bool there() const { return there_; }
  std::string name() const { return "hawser_rxe" + number_; }
  std::string address() const { return "10.79." + number_ + ".1"; }
  bool unplug() const { return run("ip link set " + network() + " down"); }
  bool plug() const { return run("ip link set " + network() + " up"); }

 private:
  static bool run(const std::string& command) { return std::system(command.c_str()) == 0; }
  std::string network() const { return "hawser" + number_; }

  const std::string number_;
  bool there_ = false;
};

inline bool in_guest() { return std::getenv("HAWSER_RDMA_GUEST") != nullptr; }

}  // namespace hawser::rdma_tests

// Skips the test if no device can be created. In the guest it always can.
#define NEEDS_OWN_DEVICE(device)                                                                        \
  if (!(device).there()) {                                                                              \
    ASSERT_FALSE(::hawser::rdma_tests::in_guest()) << "a Soft-RoCE device can't be added in the guest"; \
    GTEST_SKIP() << "no Soft-RoCE device can be added here";                                            \
  }                                                                                                     \
  static_assert(true)
