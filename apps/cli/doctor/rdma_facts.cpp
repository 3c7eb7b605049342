#include "cli/doctor/rdma_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include "transport/rdma/device/address.h"
#include "transport/rdma/rdma_transport.h"

namespace hawser::cli::doctor {
namespace {

using namespace transport::rdma;

constexpr std::string_view class_folder = "/sys/class/infiniband";

// PCI ids of vendors most of whose network cards support RDMA: Mellanox/NVIDIA, Chelsio, Pensando.
constexpr std::array<std::string_view, 3> rdma_vendors = {"0x15b3", "0x1425", "0x1dd8"};
constexpr std::string_view infiniband_class = "0x0207";
constexpr std::string_view ethernet_class = "0x0200";

std::vector<std::string> cards_without_driver(const SystemFiles& files) {
  constexpr std::string_view folder = "/sys/bus/pci/devices";
  std::vector<std::string> found;
  for (const std::string& card : files.names(folder)) {
    const std::string path = fmt::format("{}/{}", folder, card);
    const std::string kind = files.text(path + "/class").value_or("").substr(0, 6);
    const std::string vendor = files.text(path + "/vendor").value_or("");
    const bool known = std::find(rdma_vendors.begin(), rdma_vendors.end(), vendor) != rdma_vendors.end();
    if (kind != infiniband_class && !(kind == ethernet_class && known)) continue;
    if (files.names(path + "/infiniband").empty()) found.push_back(card);
  }
  return found;
}

std::optional<NetworkInterface> read_interface(const SystemFiles& files, const std::string& port,
                                               const std::vector<GidEntry>& addresses) {
  for (const GidEntry& address : addresses) {
    const auto name = files.text(fmt::format("{}/gid_attrs/ndevs/{}", port, address.index));
    if (!name || name->empty()) continue;
    const std::string folder = "/sys/class/net/" + *name;
    return NetworkInterface{*name, files.number(folder + "/mtu").value_or(0),
                            files.text(folder + "/operstate").value_or("unknown")};
  }
  return std::nullopt;
}

std::vector<RdmaCounter> growth(const std::vector<RdmaCounter>& before, const std::vector<RdmaCounter>& after) {
  std::vector<RdmaCounter> grown;
  for (const RdmaCounter& now : after) {
    const auto then = std::find_if(before.begin(), before.end(),
                                   [&](const RdmaCounter& counter) { return counter.name == now.name; });
    if (then != before.end() && now.value > then->value) grown.push_back({now.name, now.value - then->value});
  }
  return grown;
}

void test_port(Device& device, const RdmaOptions& options, Duration duration, RdmaPortFacts& port) {
  const unsigned mtu = options.path_mtu_bytes != 0 ? options.path_mtu_bytes : port.status.mtu_bytes;
  const SelfTestPlan plan{.port = port.status.number,
                          .address = *port.chosen,
                          .global = port.status.ethernet,
                          .lid = port.status.lid,
                          .mtu_bytes = mtu,
                          .duration = duration};
  Result<SelfTestResult> result = run_self_test(device, options, plan);
  if (result) {
    port.self_test = *result;
  } else {
    port.self_test_error = result.error().text;
  }
  port.moved = growth(port.counters, device.counters(port.status.number));
}

RdmaPortFacts read_port(const SystemFiles& files, Device& device, unsigned number, const RdmaOptions& options,
                        Duration self_test) {
  RdmaPortFacts port;
  port.status.number = number;
  if (auto status = device.port(number)) port.status = *status;
  const std::string folder = fmt::format("{}/{}/ports/{}", class_folder, device.name(), number);
  port.physical_state = files.text(folder + "/phys_state").value_or("");
  if (auto addresses = device.gids(number)) port.addresses = std::move(*addresses);
  port.interface = read_interface(files, folder, port.addresses);
  port.counters = device.counters(number);
  const bool asked = options.port == 0 || options.port == number;
  if (auto chosen = choose_address(options, port.addresses)) {
    port.chosen = *chosen;
  } else {
    port.not_chosen = chosen.error().text;
  }
  if (self_test > Duration::zero() && asked && port.status.active && port.chosen) {
    test_port(device, options, self_test, port);
  }
  return port;
}

RdmaDeviceFacts read_device(const SystemFiles& files, Verbs& verbs, const std::string& name, const RdmaOptions& options,
                            Duration self_test) {
  RdmaDeviceFacts facts;
  facts.name = name;
  const std::string slot = fmt::format("{}/{}/device", class_folder, name);
  facts.numa_node = files.number(slot + "/numa_node").value_or(-1);
  facts.slot_speed = files.text(slot + "/current_link_speed").value_or("");
  facts.slot_speed_max = files.text(slot + "/max_link_speed").value_or("");
  facts.slot_width = files.number(slot + "/current_link_width").value_or(0);
  facts.slot_width_max = files.number(slot + "/max_link_width").value_or(0);
  Result<std::shared_ptr<Device>> device = verbs.open(name);
  if (!device) {
    facts.open_error = device.error().text;
    return facts;
  }
  facts.limits = (*device)->limits();
  const bool asked = options.device.empty() || options.device == name;
  for (unsigned number = 1; number <= (*device)->ports(); ++number) {
    facts.ports.push_back(read_port(files, **device, number, options, asked ? self_test : Duration::zero()));
  }
  return facts;
}

}  // namespace

RdmaFacts read_rdma(const SystemFiles& files, Verbs& verbs, const MachineFacts& machine, const RdmaOptions& options,
                    Duration self_test) {
  RdmaFacts facts;
  facts.options = options;
  facts.locked_bytes = machine.locked_bytes;
  facts.may_lock_any = machine.may_lock_any;
  facts.numa_nodes = machine.numa_nodes;
  facts.kernel_devices = files.names(class_folder);
  facts.device_files = files.exists("/dev/infiniband");
  facts.cards_without_driver = cards_without_driver(files);
  if (auto right = transport::check_rdma_options(options); !right) {
    facts.options_error = right.error().text;
    self_test = Duration::zero();
  }
  Result<std::vector<std::string>> names = verbs.devices();
  if (!names) {
    facts.unavailable = names.error().text;
    return facts;
  }
  for (const std::string& name : *names) facts.devices.push_back(read_device(files, verbs, name, options, self_test));
  return facts;
}

}  // namespace hawser::cli::doctor
