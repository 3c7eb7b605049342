#include "transport/rdma/device/device_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "base/temporary_folder.h"

// Trees of sysfs as the kernel makes them for machines with several RDMA devices.
namespace hawser::transport::rdma {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Names = std::vector<std::string>;

class DevicePlacesTest : public testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = folder_.path() / "sys" / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
  }
  // `bus`: path of the device's PCI function below sys/devices. Empty: a software device.
  void add_device(const std::string& name, const std::string& bus, const std::string& node = "-1") {
    const std::string holder = bus.empty() ? "virtual/infiniband/" + name : bus + "/infiniband/" + name;
    write("devices/" + holder + "/node_type", "1: CA");
    std::filesystem::create_directories(folder_.path() / "sys/class/infiniband");
    std::filesystem::create_directory_symlink("../../devices/" + holder,
                                              folder_.path() / "sys/class/infiniband" / name);
    if (bus.empty()) return;
    write("devices/" + bus + "/numa_node", node);
    std::filesystem::create_directory_symlink("../..", folder_.path() / "sys/devices" / holder / "device");
  }
  // Two sockets with hyper-threads. Each has a card at a root port and one behind a switch.
  void two_sockets() {
    write("devices/system/node/online", "0-1");
    write("devices/system/node/node0/cpulist", "0-15,32-47");
    write("devices/system/node/node1/cpulist", "16-31,48-63");
    write("devices/system/node/node0/distance", "10 21");
    write("devices/system/node/node1/distance", "21 10");
    add_device("mlx5_0", "pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:02.0/0000:1a:00.0", "0");
    add_device("mlx5_1", "pci0000:16/0000:16:03.0/0000:1d:00.0", "0");
    add_device("mlx5_2", "pci0000:97/0000:97:01.0/0000:98:00.0/0000:99:02.0/0000:9b:00.0", "1");
    add_device("mlx5_3", "pci0000:97/0000:97:03.0/0000:9e:00.0", "1");
  }
  Names sorted(Names devices, std::vector<unsigned> processors) const {
    DevicePlaces(folder_.path()).sort(devices, processors);
    return devices;
  }

  TemporaryFolder folder_;
};

TEST_F(DevicePlacesTest, TheNodeOfTheProcessorsComesFirstAndThenFewerBridges) {
  two_sockets();
  const Names all{"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"};
  EXPECT_THAT(sorted(all, {3}), ElementsAre("mlx5_1", "mlx5_0", "mlx5_3", "mlx5_2"));
  EXPECT_THAT(sorted(all, {50}), ElementsAre("mlx5_3", "mlx5_2", "mlx5_1", "mlx5_0"));
  // Most of these are on node 1.
  EXPECT_THAT(sorted(all, {15, 16, 17}), ElementsAre("mlx5_3", "mlx5_2", "mlx5_1", "mlx5_0"));
  // A thread of all processors is as far from either node.
  std::vector<unsigned> every(64);
  std::iota(every.begin(), every.end(), 0U);
  EXPECT_THAT(sorted(all, every), ElementsAre("mlx5_1", "mlx5_3", "mlx5_0", "mlx5_2"));
  EXPECT_THAT(sorted(all, {}), ElementsAre("mlx5_1", "mlx5_3", "mlx5_0", "mlx5_2"));
}

// Four nodes in two packages, of which one is offline: the columns are those of the nodes online.
TEST_F(DevicePlacesTest, DistancesOfNodesAreThoseOfTheTable) {
  write("devices/system/node/online", "0,2-3");
  write("devices/system/node/node0/cpulist", "0-7");
  write("devices/system/node/node2/cpulist", "16-23");
  write("devices/system/node/node3/cpulist", "24-31");
  write("devices/system/node/node0/distance", "10 32 32");
  write("devices/system/node/node2/distance", "32 10 12");
  write("devices/system/node/node3/distance", "32 12 10");
  add_device("mlx5_0", "pci0000:00/0000:00:01.0/0000:01:00.0", "0");
  add_device("mlx5_2", "pci0000:40/0000:40:01.0/0000:41:00.0", "2");
  add_device("mlx5_3", "pci10000:60/10000:60:01.0/10000:61:00.0", "3");
  EXPECT_THAT(sorted({"mlx5_0", "mlx5_2", "mlx5_3"}, {30}), ElementsAre("mlx5_3", "mlx5_2", "mlx5_0"));
  EXPECT_THAT(sorted({"mlx5_0", "mlx5_3", "mlx5_2"}, {20}), ElementsAre("mlx5_2", "mlx5_3", "mlx5_0"));
  EXPECT_THAT(sorted({"mlx5_3", "mlx5_2", "mlx5_0"}, {1}), ElementsAre("mlx5_0", "mlx5_3", "mlx5_2"));
}

TEST_F(DevicePlacesTest, SoftwareDevicesAreLast) {
  two_sockets();
  add_device("rxe0", "");
  EXPECT_THAT(sorted({"rxe0", "mlx5_2", "mlx5_1"}, {0}), ElementsAre("mlx5_1", "mlx5_2", "rxe0"));
}

// The order of the names remains, whatever is missing or wrong.
TEST_F(DevicePlacesTest, WhatIsUnknownChangesNothing) {
  EXPECT_THAT(sorted({"b", "a"}, {0}), ElementsAre("b", "a"));
  add_device("b", "pci0000:00/0000:00:01.0/0000:01:00.0");
  add_device("a", "pci0000:00/0000:00:02.0/0000:02:00.0");
  EXPECT_THAT(sorted({"b", "a"}, {0}), ElementsAre("b", "a"));
  write("devices/system/node/online", "0-1");
  write("devices/system/node/node0/cpulist", "0-3");
  write("devices/system/node/node0/distance", "10");  // The column of node 1 is missing.
  add_device("c", "pci0000:00/0000:00:03.0/0000:03:00.0", "1");
  add_device("d", "pci0000:00/0000:00:04.0/0000:04:00.0", "7");
  add_device("e", "pci0000:00/0000:00:05.0/0000:05:00.0", "one");
  EXPECT_THAT(sorted({"e", "d", "c", "b", "a"}, {0}), ElementsAre("e", "d", "c", "b", "a"));
}

TEST(NumberLists, AreParsed) {
  EXPECT_THAT(parse_number_list("0-3,8,10-11"), ElementsAre(0, 1, 2, 3, 8, 10, 11));
  EXPECT_THAT(parse_number_list("5"), ElementsAre(5));
  for (const char* const wrong : {"", "-", "3-1", "1-", "a", "0-4294967295", "1,,2", "0-70000", " 1"}) {
    EXPECT_THAT(parse_number_list(wrong), IsEmpty()) << wrong;
  }
}

TEST(AllowedProcessors, AreKnownHere) { EXPECT_FALSE(allowed_processors().empty()); }

}  // namespace
}  // namespace hawser::transport::rdma
