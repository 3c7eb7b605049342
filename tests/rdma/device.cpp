#include "tests/rdma/device.h"

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>
#include <thread>

namespace hawser::rdma_tests {
namespace {

std::string output_of(const char* command) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command, "r"), ::pclose);
  std::string text;
  std::array<char, 4096> part;
  while (pipe != nullptr) {
    const std::size_t size = std::fread(part.data(), 1, part.size(), pipe.get());
    if (size == 0) break;
    text.append(part.data(), size);
  }
  return text;
}

}  // namespace

std::string absent() { return any_device() ? "" : "no RDMA device"; }

// Parses output such as [{"ifindex":0,"ifname":"rxe0","pd":1,"cq":1,...}].
std::map<std::string, std::uint64_t> resources() {
  const std::string text = output_of("rdma -j resource show");
  std::map<std::string, std::uint64_t> counts;
  for (const char* name : {"pd", "cq", "qp", "mr", "srq", "ctx"}) {
    const std::string label = "\"" + std::string(name) + "\":";
    const std::size_t at = text.find(label);
    if (at != std::string::npos) counts[name] = std::stoull(text.substr(at + label.size()));
  }
  return counts;
}

TransportOptions rdma_only(RdmaOptions options) { return {.enabled = {rdma(std::move(options))}, .required = "rdma"}; }

void Device::SetUp() {
  if (const std::string reason = absent(); !reason.empty()) GTEST_SKIP() << reason;
  not_ready_ = not_ready_count();
  resources_ = resources();
  ASSERT_TRUE(resources_.contains("qp")) << "rdma resource show (iproute2) does not work";
}

void Device::TearDown() {
  if (IsSkipped()) return;
  EXPECT_EQ(not_ready_count(), not_ready_) << "a receiver was not ready";
  // The kernel releases the resources of a killed peer after some time.
  const auto end = std::chrono::steady_clock::now() + patience;
  while (resources() != resources_ && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(resources(), resources_) << "something was left on the device";
}

}  // namespace hawser::rdma_tests
