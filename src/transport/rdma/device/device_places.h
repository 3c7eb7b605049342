#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hawser::transport::rdma {

// Returns the numbers of a list of the kernel such as "0-3,8,10-11". Empty if the text is not such a list.
std::vector<unsigned> parse_number_list(std::string_view text);

// Returns the processors that the calling thread may run on. Empty if they are unknown.
std::vector<unsigned> allowed_processors();

// The places of RDMA devices in the machine, as sysfs describes them. Reads files; any thread.
class DevicePlaces {
 public:
  // `root`: the folder that contains sys/. Tests pass a tree of their own.
  explicit DevicePlaces(std::filesystem::path root = "/");

  // Sorts devices by their distance from processors, the nearest first:
  //  1. devices on a PCI bus precede devices without one, such as Soft-RoCE,
  //  2. by the mean distance (of the ACPI SLIT, in the kernel's numbers) from the processors' NUMA nodes to the
  //     device's,
  //  3. by the number of PCI bridges between the device and its root.
  // Equal devices keep their order. A device whose node is unknown counts as near.
  void sort(std::vector<std::string>& devices, std::span<const unsigned> processors) const;

 private:
  struct Place {
    bool on_bus = false;
    double distance = 10;  // The kernel's number for the own node, also if the node is unknown.
    unsigned bridges = 0;
  };
  Place place_of(const std::string& device, const std::map<unsigned, std::size_t>& processors_of_node) const;
  std::string line_of(const std::filesystem::path& file) const;

  const std::filesystem::path sys_;
};

}  // namespace hawser::transport::rdma
