#include "observe/machine_metrics.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace hawser::observe {
namespace {

constexpr const char* devices_folder = "/sys/class/infiniband";
constexpr std::size_t devices_max = 16;
constexpr std::size_t ports_max = 4;
constexpr std::size_t counters_max = 64;

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Names in a folder, sorted; at most `count_max`.
std::vector<std::string> names_in(const std::filesystem::path& folder, std::size_t count_max) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end && names.size() < count_max;
       at.increment(error)) {
    names.push_back(at->path().filename());
  }
  std::ranges::sort(names);
  return names;
}

// Calls `visit(device, port, folder)` for each port.
template <class Visit>
void each_port(Visit visit) {
  const std::filesystem::path root = devices_folder;
  for (const std::string& device : names_in(root, devices_max)) {
    for (const std::string& port : names_in(root / device / "ports", ports_max)) {
      visit(device, port, root / device / "ports" / port);
    }
  }
}

}  // namespace

std::vector<PortFacts> rdma_ports() {
  std::vector<PortFacts> ports;
  each_port([&](const std::string& device, const std::string& port, const std::filesystem::path& folder) {
    ports.push_back({device, port, first_line(folder / "state"), first_line(folder / "rate"),
                     first_line(folder / "link_layer"),
                     first_line(std::filesystem::path(devices_folder) / device / "fw_ver")});
  });
  return ports;
}

std::vector<PortCounter> rdma_counters() {
  std::vector<PortCounter> counters;
  each_port([&](const std::string& device, const std::string& port, const std::filesystem::path& folder) {
    for (const char* const kind : {"hw_counters", "counters"}) {
      for (const std::string& name : names_in(folder / kind, counters_max)) {
        std::string value = first_line(folder / kind / name);
        if (name == "lifespan" || value.empty() || value.find_first_not_of("0123456789") != std::string::npos) continue;
        counters.push_back({device, port, name, std::move(value)});
      }
    }
  });
  return counters;
}

double process_bytes(std::string_view name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name) && line.size() > name.size() && line[name.size()] == ':') {
      return 1024 * static_cast<double>(std::strtoull(line.c_str() + name.size() + 1, nullptr, 10));
    }
  }
  return 0;
}

void write_machine_metrics(MetricWriter& writer) {
  writer.gauge({"process_resident_memory_bytes", "Resident memory of the process.", "bytes"}, {},
               process_bytes("VmRSS"));
  writer.gauge({"process_virtual_memory_bytes", "Virtual memory of the process.", "bytes"}, {},
               process_bytes("VmSize"));
  writer.gauge({"process_pinned_memory_bytes", "Memory of the process that devices use.", "bytes"}, {},
               process_bytes("VmPin"));
  std::error_code error;
  const std::filesystem::directory_iterator descriptors("/proc/self/fd", error);
  if (!error) {
    writer.gauge({"process_open_fds", "Open file descriptors."}, {},
                 static_cast<double>(std::distance(begin(descriptors), end(descriptors))));
  }
  writer.counter({"process_cpu_seconds", "Processor time of the process.", "seconds"}, {},
                 static_cast<double>(std::clock()) / CLOCKS_PER_SEC);
  for (const PortCounter& one : rdma_counters()) {
    writer.counter({"hawser_rdma_port_events", "Counters of an RDMA port, by their name in the kernel."},
                   {{"device", one.device}, {"port", one.port}, {"counter", one.name}},
                   static_cast<double>(std::strtoull(one.value.c_str(), nullptr, 10)));
  }
}

}  // namespace hawser::observe
