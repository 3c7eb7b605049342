#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/metrics.h"

namespace hawser::observe {

// A counter of an RDMA port, from the files of the kernel.
struct PortCounter {
  std::string device;
  std::string port;
  std::string name;
  std::string value;
};
// A port with its state, as the kernel writes it.
struct PortFacts {
  std::string device;
  std::string port;
  std::string state;
  std::string rate;
  std::string link;
  std::string firmware;
};

// Reads the files of at most 16 devices with 4 ports and 64 counters of each kind. It needs no device to be open. A
// device may take milliseconds for its counters.
std::vector<PortFacts> rdma_ports();
std::vector<PortCounter> rdma_counters();

// The value of a line "name: value kB" of /proc/self/status in bytes; 0 if there is none.
double process_bytes(std::string_view name);

// Writes the metrics of the process under the names that Prometheus' own libraries use, and the RDMA counters.
void write_machine_metrics(MetricWriter& writer);

}  // namespace hawser::observe
