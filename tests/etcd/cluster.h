#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/temporary_folder.h"
#include "cluster/etcd/etcd_messages.h"
#include "cluster/etcd/etcd_session.h"
#include "hawser/etcd.h"
#include "tests/child_program.h"
#include "tests/naming_fixture.h"
#include "tests/output_of.h"
#include "tests/testing.h"

// More methods of etcd, for tests.
namespace hawser {
namespace etcd_remote {

using Message = protocol::grpc::ProtoBytes;
Task<Result<Message>> compact(Context&, Message);
Task<Result<Message>> remove_range(Context&, Message);
Task<Result<Message>> status(Context&, Message);
Task<Result<Message>> add_user(Context&, Message);
Task<Result<Message>> grant_role(Context&, Message);
Task<Result<Message>> enable_auth(Context&, Message);

}  // namespace etcd_remote

template <>
inline constexpr std::string_view method_name_override<&etcd_remote::compact> = "etcdserverpb.KV/Compact";
template <>
inline constexpr std::string_view method_name_override<&etcd_remote::remove_range> = "etcdserverpb.KV/DeleteRange";
template <>
inline constexpr std::string_view method_name_override<&etcd_remote::status> = "etcdserverpb.Maintenance/Status";
template <>
inline constexpr std::string_view method_name_override<&etcd_remote::add_user> = "etcdserverpb.Auth/UserAdd";
template <>
inline constexpr std::string_view method_name_override<&etcd_remote::grant_role> = "etcdserverpb.Auth/UserGrantRole";
template <>
inline constexpr std::string_view method_name_override<&etcd_remote::enable_auth> = "etcdserverpb.Auth/AuthEnable";

namespace testing_tools {

// One server of etcd. Its data survive kill_now().
struct EtcdMember {
  std::string name;
  std::string address;  // For clients.
  std::string peer;
  ChildProgram program;
};

// Real servers of etcd, names and announcements on one loop.
class EtcdFixture : public NamingFixture {
 protected:
  EtcdFixture() {
    options.retry_interval = 20ms;
    options.retry_max = 100ms;
    options.call_timeout = 1s;  // etcd itself waits for 5 s for a leader that was killed.
  }
  void SetUp() override {
    if (output_of("command -v etcd").empty()) GTEST_SKIP() << "etcd is not installed: apt-get install etcd-server";
  }

  // Another program may take a port before etcd does. Then etcd ends, and others are tried.
  void start_cluster(std::size_t size) {
    for (int tries = 0; tries < 5; ++tries) {
      members.clear();
      for (std::size_t i = 0; i < size; ++i) {
        members.push_back(std::make_unique<EtcdMember>());
        members.back()->name = "try" + std::to_string(tries) + "member" + std::to_string(i);
        members.back()->address = "127.0.0.1:" + free_port();
        members.back()->peer = "http://127.0.0.1:" + free_port();
      }
      for (const auto& member : members) start(*member);
      if (std::ranges::all_of(members, [&](const auto& member) { return serves(*member); })) return;
    }
    FAIL() << members.front()->program.output();
  }
  // Starts a member, or starts it again.
  void start(EtcdMember& member) { start(member, member.address); }
  void start(EtcdMember& member, const std::string& address) {
    std::string cluster;
    for (const auto& one : members) cluster += (cluster.empty() ? "" : ",") + one->name + "=" + one->peer;
    const std::string url = "http://" + address;
    member.program.start("etcd --name " + member.name + " --data-dir " + data_of(member) + " --listen-client-urls " +
                             url + " --advertise-client-urls " + url + " --listen-peer-urls " + member.peer +
                             " --initial-advertise-peer-urls " + member.peer + " --initial-cluster " + cluster +
                             " --heartbeat-interval 20 --election-timeout 200 --logger zap --log-level error",
                         data_of(member) + ".log");
  }
  std::string data_of(const EtcdMember& member) const { return (folder.path() / member.name).string(); }

  // Waits until the member answers with the agreement of the others. False if it has ended.
  bool serves(EtcdMember& member) { return serves(member, member.address); }
  bool serves(EtcdMember& member, const std::string& address) {
    bool served = false;
    EXPECT_TRUE(soon([&] {
      served = call<&cluster::etcd_range>(address, cluster::range_request("none/", 1)).has_value();
      return served || member.program.ended();
    })) << member.program.output();
    return served;
  }

  // One call on a connection of its own.
  template <auto F>
  Result<std::string> call(const std::string& address, std::string request) {
    EtcdOptions patient = options;
    patient.connect_timeout = patient.call_timeout = patience;
    cluster::EtcdSession session(loop, {address}, patient);
    return loop.run([](cluster::EtcdSession& on, std::string message) -> Task<Result<std::string>> {
      Result<void> connected = co_await on.connect();
      if (!connected) co_return fail(std::move(connected.error()));
      co_return co_await on.call<F>(std::move(message));
    }(session, std::move(request)));
  }
  // Repeats a change until etcd has executed it: on a busy machine, etcd gives up what its log did not take within some
  // seconds, and may have executed it. `executed_text`: the error of a change that has been executed before.
  template <auto F>
  bool change(const std::string& address, const std::string& request, std::string_view executed_text = {}) {
    Result<std::string> changed;
    const bool done = soon([&] {
      changed = call<F>(address, request);
      return changed || (!executed_text.empty() && changed.error().text.find(executed_text) != std::string::npos);
    });
    EXPECT_TRUE(done) << error_of(changed);
    return done;
  }
  void put(const std::string& address, const std::string& endpoint) {
    ASSERT_TRUE(change<&cluster::etcd_put>(
        address, cluster::put_request("svc/" + endpoint, R"({"Op":0,"Addr":")" + endpoint + R"("})", 0)));
  }

  std::string service() const {
    std::string name = "etcd://";
    for (const auto& member : members) name += (member == members.front() ? "" : ",") + member->address;
    return name + "/svc";
  }
  std::unique_ptr<Naming> open_name() { return std::move(*Naming::open(loop, service(), {etcd_naming(options)})); }
  std::unique_ptr<EtcdAnnouncement> announce_at(const std::string& endpoint,
                                                std::chrono::seconds ttl = std::chrono::seconds(1)) {
    auto begun = EtcdAnnouncement::begin(loop, service(), {.address = endpoint}, {.etcd = options, .ttl = ttl});
    EXPECT_TRUE(begun) << error_of(begun);
    return std::move(*begun);
  }

  TemporaryFolder folder;
  EtcdOptions options;
  std::vector<std::unique_ptr<EtcdMember>> members;
};

}  // namespace testing_tools
}  // namespace hawser
