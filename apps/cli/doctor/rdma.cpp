#include "cli/doctor/rdma.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/doctor/rdma_counters.h"
#include "transport/rdma/rdma_transport.h"

namespace hawser::cli::doctor {
namespace {

using namespace transport::rdma;

// Size of all headers that RoCE may add to a packet's payload, as the kernel computes it.
constexpr std::int64_t roce_header_bytes = 96;
constexpr unsigned path_mtu_bytes_max = 4096;
constexpr std::int64_t interface_mtu_bytes_enough = 4200;

class RdmaExamination {
 public:
  explicit RdmaExamination(const RdmaFacts& facts) : facts_(facts) {}

  Section run() {
    section_ = {"rdma", "RDMA", false, {}};
    if (!facts_.options_error.empty()) {
      add("rdma.options", Severity::problem, facts_.options_error, "correct the options of the command line");
    }
    if (facts_.devices.empty()) {
      no_device();
      return std::move(section_);
    }
    memory();
    for (const RdmaDeviceFacts& device : facts_.devices) examine(device);
    choice();
    return std::move(section_);
  }

 private:
  using Figures = std::vector<std::pair<std::string, double>>;

  void add(std::string id, Severity severity, std::string text, std::string remedy = {}, Figures figures = {}) {
    section_.findings.push_back(
        {std::move(id), severity, std::move(text), std::move(remedy), subject_, std::move(figures)});
  }

  void no_device() {
    if (!facts_.kernel_devices.empty() && !facts_.device_files) {
      add("rdma.device", Severity::problem,
          fmt::format("the kernel has {}, but there is no /dev/infiniband here", facts_.kernel_devices.front()),
          "modprobe ib_uverbs; into a container pass --device /dev/infiniband and --cap-add IPC_LOCK");
    } else if (!facts_.kernel_devices.empty()) {
      add("rdma.device", Severity::problem,
          fmt::format("the kernel has {}, but it can't be listed: {}", facts_.kernel_devices.front(),
                      facts_.unavailable),
          "install ibverbs-providers, which has the card's part of libibverbs");
    } else if (!facts_.cards_without_driver.empty()) {
      add("rdma.device", Severity::problem,
          fmt::format("the card at {} is not an RDMA device to the kernel", facts_.cards_without_driver.front()),
          "load its driver, such as mlx5_ib for NVIDIA's: modprobe mlx5_ib");
    } else {
      add("rdma.device", Severity::note, facts_.unavailable);
    }
  }

  void memory() {
    const std::size_t connection = transport::rdma_connection_bytes_max(facts_.options);
    const std::size_t idle = transport::rdma_idle_connection_bytes(facts_.options);
    add("rdma.memory_per_connection", Severity::good,
        fmt::format("a connection pins {}, {} of it when idle, {}", bytes_text(connection), bytes_text(idle),
                    facts_.options.shared_receive_queue ? "with the shared receive queue" : "for receives of its own"),
        {}, {{"bytes", static_cast<double>(connection)}, {"idle_bytes", static_cast<double>(idle)}});

    const std::uint64_t limit = facts_.may_lock_any ? ProcessLimit::unlimited : facts_.locked_bytes.soft;
    const std::string text =
        fmt::format("locked memory: {}{}", bytes_text(limit), facts_.may_lock_any ? " by CAP_IPC_LOCK" : "");
    constexpr const char* remedy =
        "ulimit -l unlimited, LimitMEMLOCK=infinity of the service, or memlock in limits.conf";
    if (limit < facts_.options.arena_bytes) {
      add("rdma.memlock", Severity::problem,
          fmt::format("{}, less than the {} that are registered at once", text, bytes_text(facts_.options.arena_bytes)),
          remedy);
    } else if (limit < facts_.options.memory_bytes_max) {
      add("rdma.memlock", Severity::warning,
          fmt::format("{}, enough for about {} connections", text, limit / std::max<std::size_t>(connection, 1)),
          remedy);
    } else {
      add("rdma.memlock", Severity::good, text);
    }
  }

  void examine(const RdmaDeviceFacts& device) {
    subject_ = device.name;
    if (!device.open_error.empty()) {
      add("rdma.open", Severity::problem, device.open_error,
          "see the permissions of /dev/infiniband/uverbs*, and that ibverbs-providers is installed");
    } else {
      limits(device.limits);
      slot(device);
      for (const RdmaPortFacts& port : device.ports) {
        subject_ = fmt::format("{}/{}", device.name, port.status.number);
        examine(port);
      }
    }
    subject_.clear();
  }

  void limits(const DeviceLimits& limits) {
    const RdmaOptions& options = facts_.options;
    if (limits.queue_pair_requests < std::max(options.send_queue_depth, options.recv_queue_depth)) {
      add("rdma.queue", Severity::problem,
          fmt::format("queues of at most {} requests, and the options want {}", limits.queue_pair_requests,
                      std::max(options.send_queue_depth, options.recv_queue_depth)),
          "lower RdmaOptions::send_queue_depth and recv_queue_depth");
    }
    if (limits.completion_queue_entries < options.cq_entries) {
      add("rdma.completion_queue", Severity::warning,
          fmt::format("completion queues of at most {} entries, and the options want {}: fewer connections per loop",
                      limits.completion_queue_entries, options.cq_entries),
          "lower RdmaOptions::cq_entries, and have more loops");
    }
    if (options.shared_receive_queue && limits.shared_receive_requests == 0) {
      add("rdma.shared_receive_queue", Severity::problem, "no shared receive queues",
          "leave RdmaOptions::shared_receive_queue off");
    }
    add("rdma.limits", Severity::good,
        fmt::format("{} queue pairs, {} requests in a queue, {} completion queue entries, {} memory regions, {} reads "
                    "outstanding",
                    limits.queue_pairs, limits.queue_pair_requests, limits.completion_queue_entries,
                    limits.memory_regions, limits.reads_outstanding));
  }

  void slot(const RdmaDeviceFacts& device) {
    const bool slower = !device.slot_speed_max.empty() && device.slot_speed != device.slot_speed_max;
    const bool narrower = device.slot_width > 0 && device.slot_width < device.slot_width_max;
    if (slower || narrower) {
      add("rdma.slot", Severity::warning,
          fmt::format("sits in a slot of {} x{} and could have {} x{}", device.slot_speed, device.slot_width,
                      device.slot_speed_max, device.slot_width_max),
          "move the card to a wider slot, or look at the firmware's settings for it");
    }
    if (device.numa_node >= 0 && facts_.numa_nodes > 1) {
      add("rdma.numa", Severity::note, fmt::format("belongs to NUMA node {}", device.numa_node),
          fmt::format("run loops on that node's processors: numactl --cpunodebind={0} --membind={0}",
                      device.numa_node));
    }
  }

  void examine(const RdmaPortFacts& port) {
    if (!port.status.active) {
      add("rdma.link", Severity::warning,
          fmt::format("the port is not active ({})",
                      port.physical_state.empty() ? "state unknown" : "physical state " + port.physical_state),
          port.interface ? fmt::format("ip link set dev {} up; then the cable and the switch port",
                                       port.interface->name)
                         : std::string(port.status.ethernet ? "bring its network interface up; then the cable"
                                                            : "start a subnet manager (opensm); then the cable"));
      return;
    }
    add("rdma.link", Severity::good,
        fmt::format(
            "active, {}{}{}", port.status.ethernet ? "RoCE" : "InfiniBand",
            port.status.gigabits_per_second > 0 ? fmt::format(", {:g} Gb/s", port.status.gigabits_per_second) : "",
            port.interface ? " on " + port.interface->name : ""));
    mtu(port);
    addresses(port);
    counters(port);
    self_test(port);
  }

  void mtu(const RdmaPortFacts& port) {
    const unsigned active = port.status.mtu_bytes;
    const unsigned possible = std::min(port.status.mtu_bytes_max, path_mtu_bytes_max);
    if (port.interface && port.interface->mtu_bytes > 0 && active + roce_header_bytes > port.interface->mtu_bytes) {
      add("rdma.mtu", Severity::problem,
          fmt::format("packets of {} bytes do not fit {}'s MTU of {}", active, port.interface->name,
                      port.interface->mtu_bytes),
          fmt::format("ip link set dev {} mtu 9000, on both ends and in the switches", port.interface->name));
    } else if (active < possible) {
      const std::string cause =
          port.interface ? fmt::format(", since {}'s MTU is {}", port.interface->name, port.interface->mtu_bytes)
                         : std::string();
      add("rdma.mtu", Severity::warning,
          fmt::format("packets of {} bytes where {} are possible{}", active, possible, cause),
          port.interface ? fmt::format("ip link set dev {} mtu 9000 ({} do), on both ends and in the switches",
                                       port.interface->name, interface_mtu_bytes_enough)
                         : std::string("have the subnet manager set a larger MTU"));
    } else {
      add("rdma.mtu", Severity::good,
          fmt::format("packets of {} bytes{}", active,
                      port.interface ? fmt::format(" within an MTU of {}", port.interface->mtu_bytes) : ""));
    }
    if (facts_.options.path_mtu_bytes > active) {
      add("rdma.path_mtu", Severity::problem,
          fmt::format("RdmaOptions::path_mtu_bytes is {}, and the port has {}", facts_.options.path_mtu_bytes, active),
          "leave it at 0, or raise the port's");
    }
  }

  void addresses(const RdmaPortFacts& port) {
    for (const GidEntry& address : port.addresses) {
      const bool chosen = port.chosen && port.chosen->index == address.index;
      add("rdma.address", Severity::good,
          fmt::format("GID {}: {} {}{}", address.index, transport::rdma::to_string(address.gid),
                      transport::rdma::to_string(address.type), chosen ? ", chosen" : ""));
    }
    if (!port.chosen) {
      add("rdma.no_address", Severity::problem, port.not_chosen,
          port.interface ? fmt::format("ip address add ADDRESS/24 dev {}", port.interface->name)
                         : std::string("give the port's network interface an IP address"));
    } else if (port.status.ethernet && port.chosen->type == GidType::roce_v1) {
      add("rdma.address_type", Severity::warning, "the chosen address is RoCE v1, which no router passes on",
          "give the network interface an IPv4 address; then there is a RoCE v2 entry for it");
    }
  }

  void counters(const RdmaPortFacts& port) {
    for (const transport::rdma::RdmaCounter& counter : port.moved) {
      const Trouble* trouble = trouble_of(counter.name);
      if (trouble == nullptr) continue;
      add("rdma.counter", Severity::warning,
          fmt::format("{} grew by {} during the self-test: {}", counter.name, counter.value, trouble->meaning),
          std::string(trouble->remedy));
    }
    for (const transport::rdma::RdmaCounter& counter : port.counters) {
      const Trouble* trouble = trouble_of(counter.name);
      if (trouble == nullptr || counter.value == 0) continue;
      add("rdma.counter", Severity::note,
          fmt::format("{} is {} since the device started: {}", counter.name, counter.value, trouble->meaning),
          std::string(trouble->remedy));
    }
  }

  void self_test(const RdmaPortFacts& port) {
    if (!port.self_test_error.empty()) {
      add("rdma.self_test", Severity::problem, "sending to the own address failed: " + port.self_test_error,
          "RoCE v2 is UDP port 4791: let firewalls pass it; then the address and the MTU above");
      return;
    }
    if (!port.chosen) return;
    section_.usable = true;  // As far as it was tested.
    if (!port.self_test) return;
    const SelfTestResult& test = *port.self_test;
    if (test.inline_bytes < facts_.options.inline_bytes) {
      add("rdma.inline", Severity::note,
          fmt::format("queue pairs send {} bytes inline of the {} that are wished for", test.inline_bytes,
                      facts_.options.inline_bytes));
    } else {
      add("rdma.inline", Severity::good,
          fmt::format("queue pairs send {} bytes inline, and queue {} sends", test.inline_bytes, test.send_requests));
    }
    add("rdma.self_test", Severity::good,
        fmt::format("to the own address: {:.3g} us one way, {:.4g} MB/s in sends of {}", test.one_way_us,
                    test.send_megabytes_per_second, bytes_text(test.send_bytes)),
        {},
        {{"one_way_us", test.one_way_us},
         {"megabytes_per_s", test.send_megabytes_per_second},
         {"send_bytes", static_cast<double>(test.send_bytes)},
         {"inline_bytes", static_cast<double>(test.inline_bytes)}});
  }

  // Reports which of the devices a connection would use.
  void choice() {
    const RdmaOptions& options = facts_.options;
    for (const RdmaDeviceFacts& device : facts_.devices) {
      if (!options.device.empty() && device.name != options.device) continue;
      for (const RdmaPortFacts& port : device.ports) {
        if (options.port != 0 && port.status.number != options.port) continue;
        if (!port.status.active || !port.chosen) continue;
        add("rdma.choice", Severity::good,
            fmt::format("connections would use {} port {}, GID {}", device.name, port.status.number,
                        port.chosen->index));
        return;
      }
    }
    add("rdma.choice", Severity::problem,
        options.device.empty() ? std::string("no device has an active port with an address of the kind that is wanted")
                               : fmt::format("{} has no active port with an address of the kind that is wanted, or is "
                                             "not there",
                                             options.device),
        "see the findings above");
  }

  const RdmaFacts& facts_;
  Section section_;
  std::string subject_;
};

}  // namespace

Section examine_rdma(const RdmaFacts& facts) { return RdmaExamination(facts).run(); }

}  // namespace hawser::cli::doctor
