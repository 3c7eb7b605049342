#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/doctor/finding.h"
#include "cli/doctor/machine.h"
#include "cli/doctor/peer.h"
#include "cli/doctor/process.h"
#include "cli/doctor/rdma.h"
#include "cli/doctor/rdma_facts.h"
#include "cli/doctor/render.h"
#include "cli/doctor/serve.h"
#include "cli/doctor/shm.h"
#include "cli/doctor/system_files.h"
#include "cli/doctor/tcp.h"
#include "cli/doctor/tls.h"
#include "cli/doctor/ucx.h"
#include "hawser/rdma_options.h"
#include "hawser/time.h"
#include "hawser/ucx_options.h"
#include "transport/rdma/device/verbs.h"

namespace hawser::cli {
namespace {

using namespace doctor;

// This duration gives stable figures on an emulated device.
constexpr Duration self_test_duration = std::chrono::milliseconds(300);

struct DoctorOptions {
  bool json = false;
  bool self_test = true;
  RdmaOptions rdma;
  UcxOptions ucx;
  TlsFiles tls;
  std::vector<std::string> required;
  std::string serve;  // Address to listen at; empty: the report is made.
  unsigned serve_seconds = 600;
  std::string peer;
};

DoctorReport examine(const DoctorOptions& options) {
  const SystemFiles files;
  const MachineFacts machine = read_machine(files);
  DoctorReport report;
  report.sections.push_back(examine_machine(machine));
  report.sections.push_back(examine_process(read_process(files, machine)));
  report.sections.push_back(examine_tcp(read_tcp(files, machine)));
  report.sections.push_back(examine_shm(read_shm(files)));
  report.sections.push_back(examine_ucx(read_ucx(options.ucx)));
  const auto verbs = transport::rdma::system_verbs();
  report.sections.push_back(examine_rdma(
      read_rdma(files, *verbs, machine, options.rdma, options.self_test ? self_test_duration : Duration::zero())));
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  report.sections.push_back(examine_tls(options.tls, std::chrono::duration_cast<std::chrono::seconds>(now).count()));
  return report;
}

RenderOptions terminal() {
  RenderOptions options;
  if (::isatty(STDOUT_FILENO) == 0) return options;
  options.colour = std::getenv("NO_COLOR") == nullptr;
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    options.columns = std::min<std::size_t>(size.ws_col, 120);
  }
  return options;
}

int run(const DoctorOptions& options) {
  if (!options.serve.empty()) return serve_host(options.serve, options.serve_seconds);
  DoctorReport report;
  if (options.peer.empty()) {
    report = examine(options);
  } else {
    const Result<PeerPlan> plan = peer_plan(options.peer);
    if (!plan) {
      fmt::print(stderr, "hawser doctor: --peer: {}\n", plan.error().text);
      return wrong_options_status;
    }
    report.sections.push_back(examine_peer(read_peer(*plan)));
  }
  require(report, options.required);
  const std::string page = options.json ? to_json(report) : render(report, terminal());
  std::fputs(page.c_str(), stdout);
  return exit_status(report);
}

// Adds the RdmaOptions that determine what the machine must provide.
void add_rdma_options(CLI::App& command, RdmaOptions& options) {
  const auto add = [&](const char* name, auto& value, const char* text) {
    command.add_option(name, value, text)->capture_default_str()->group("As in RdmaOptions");
  };
  add("--device", options.device, "RDMA device; empty: the first one with an active port");
  add("--port", options.port, "Port of the device; 0: the first active one");
  add("--gid-index", options.gid_index, "Index in the port's GID table; -1: selected by the transport");
  add("--path-mtu", options.path_mtu_bytes, "Path MTU, 256 to 4096 bytes; 0: the active MTU of the port");
  add("--chunk-bytes", options.chunk_bytes, "Largest size of one send, bytes");
  add("--recv-queue-depth", options.recv_queue_depth, "Chunks posted for receiving, for each connection");
  add("--send-window", options.send_window, "Chunks being filled or sent, for each connection");
  add("--send-queue-depth", options.send_queue_depth, "Work requests of a send queue");
  add("--inline-bytes", options.inline_bytes, "Sends up to this size are copied into the work request, bytes");
  add("--memory-bytes-max", options.memory_bytes_max, "Limit of the registered memory of a device, bytes");
  add("--cq-entries", options.cq_entries, "Entries of the completion queue of each loop");
  command
      .add_flag("--shared-receive-queue", options.shared_receive_queue,
                "Use one receive queue for all connections of a loop")
      ->group("As in RdmaOptions");
}

// Adds the UcxOptions that determine which transports UCX offers.
void add_ucx_options(CLI::App& command, UcxOptions& options) {
  const auto add = [&](const char* name, auto& value, const char* text) {
    return command.add_option(name, value, text)->capture_default_str()->group("As in UcxOptions");
  };
  add("--ucx-tls", options.tls, "UCX transports, as in UCX_TLS; empty: UCX selects them");
  add("--ucx-net-devices", options.net_devices, "Devices, as in UCX_NET_DEVICES; empty: all");
  add("--ucx-max-eager-rails", options.max_eager_rails, "Devices for small messages; 0: UCX's default");
  add("--ucx-max-rendezvous-rails", options.max_rendezvous_rails, "Devices for large payloads; 0: UCX's default");
  add("--ucx-error-mode", options.error_mode, "Whether UCX detects that a peer has failed: none or peer")
      ->default_str(options.error_mode == UcxErrorMode::none ? "none" : "peer")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, UcxErrorMode>{{"none", UcxErrorMode::none}, {"peer", UcxErrorMode::peer}}));
}

}  // namespace

Run add_doctor(CLI::App& command) {
  auto options = std::make_shared<DoctorOptions>();
  command.add_flag("--json", options->json, "Print JSON");
  command.add_option("--require", options->required, "Transports that must be usable: tcp, shm, ucx, rdma")
      ->delimiter(',')
      ->check(CLI::IsMember({"tcp", "shm", "ucx", "rdma"}));
  command.add_flag("!--no-self-test", options->self_test, "Do not send anything over RDMA devices");
  CLI::Option* const serve =
      command
          .add_option("--serve", options->serve,
                      "Serve the doctor of another host (--peer there), at HOST:PORT; without a value at 0.0.0.0:18540")
          ->expected(0, 1)
          ->default_str("0.0.0.0:18540")
          ->group("Two hosts");
  command.add_option("--serve-seconds", options->serve_seconds, "End of --serve after this time, seconds")
      ->capture_default_str()
      ->check(CLI::Range(1, 86'400))
      ->needs(serve)
      ->group("Two hosts");
  command
      .add_option("--peer", options->peer,
                  "Examine the way to a host on which --serve runs, as HOST, HOST:PORT or [IPv6]:PORT")
      ->excludes(serve)
      ->group("Two hosts");
  add_rdma_options(command, options->rdma);
  add_ucx_options(command, options->ucx);
  CLI::Option* const certificate =
      command.add_option("--tls-cert", options->tls.certificate_file, "Certificate in PEM format to examine")
          ->group("TLS");
  command.add_option("--tls-key", options->tls.key_file, "Its key: a file, or the URI of one in a token (pkcs11:)")
      ->needs(certificate)
      ->group("TLS");
  command.add_option("--tls-host", options->tls.host, "Name that it should be valid for")
      ->needs(certificate)
      ->group("TLS");
  command.footer("Exit status: 0 if nothing is wrong, 1 for warnings or problems, 2 for wrong options.");
  return [options] { return run(*options); };
}

}  // namespace hawser::cli
