#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/try.h"
#include "cluster/etcd/etcd_list.h"
#include "hawser/cluster_client.h"
#include "hawser/grpc.h"
#include "protocol/grpc/own_method.h"
#include "tests/etcd/cluster.h"

// Names and announcements with real servers of etcd.
namespace hawser {
namespace {

using namespace testing_tools;
using protocol::grpc::add_bytes_field;
using protocol::grpc::add_number_field;

std::string named_port() { return "here"; }

class EtcdRegistry : public EtcdFixture {
 protected:
  void SetUp() override {
    EtcdFixture::SetUp();
    if (!IsSkipped()) start_cluster(1);
  }
  EtcdMember& etcd() { return *members.front(); }
  std::string value_of(const std::string& key) {
    std::string value;
    const auto range = call<&cluster::etcd_range>(etcd().address, cluster::range_request(key, 1));
    EXPECT_TRUE(range) << error_of(range);
    EXPECT_TRUE(cluster::read_range(*range, [&](const cluster::EtcdKey& found) { value = found.value; }));
    return value;
  }
};

TEST_F(EtcdRegistry, ServersComeAndLeave) {
  options.call_timeout = patience;
  const auto naming = open_name();
  constexpr auto ttl = std::chrono::minutes(1);  // No lease is lost when the machine stalls.
  const auto first = announce_at("10.0.0.1:80", ttl);
  EXPECT_TRUE(becomes(*naming, "10.0.0.1:80"));
  EXPECT_EQ(value_of("svc/10.0.0.1:80"), R"({"Op":0,"Addr":"10.0.0.1:80","Metadata":null})");
  const auto second = announce_at("10.0.0.2:80", ttl);
  EXPECT_TRUE(becomes(*naming, "10.0.0.1:80 10.0.0.2:80"));
  const auto left = loop.run(first->leave());
  EXPECT_TRUE(left) << error_of(left);
  EXPECT_TRUE(becomes(*naming, "10.0.0.2:80"));
  EXPECT_FALSE(first->state().registered);
  EXPECT_TRUE(until([&] { return second->state().registrations == 1; }));
}

TEST_F(EtcdRegistry, AListIsConfirmedWhileNothingChanges) {
  options.confirm_interval = 20ms;
  put(etcd().address, "a:1");
  const auto naming = open_name();
  ASSERT_TRUE(becomes(*naming, "a:1"));
  const Time first = naming->state().confirmed;
  EXPECT_TRUE(until([&] { return naming->state().confirmed >= first + 100ms; }));
  EXPECT_EQ(naming->state().version, 1U);
}

TEST_F(EtcdRegistry, ChangesThatFollowEachOtherAreReportedTogether) {
  put(etcd().address, "a:1");
  const auto naming = open_name();
  ASSERT_TRUE(becomes(*naming, "a:1"));
  const Time began = loop.now();
  constexpr int changes = 200;
  for (int i = 0; i < changes; ++i) put(etcd().address, "b:" + std::to_string(1 + i));
  EXPECT_TRUE(until([&] { return naming->state().endpoints.size() == changes + 1; }));
  const auto most = static_cast<std::uint64_t>((loop.now() - began) / 100ms + 2);
  EXPECT_LE(naming->state().version - 1, most);
}

TEST_F(EtcdRegistry, EtcdIsKilledAndRestarted) {
  const auto naming = open_name();
  const auto announcement = announce_at("a:1");
  ASSERT_TRUE(becomes(*naming, "a:1"));
  etcd().program.kill_now();
  ASSERT_TRUE(until([&] { return naming->state().error && announcement->state().error; }));
  EXPECT_EQ(addresses_of(*naming), "a:1") << "the last good list stays";
  const Time before = naming->state().confirmed;
  EXPECT_TRUE(until([&] { return naming->state().age(loop.now()) > 0ms; }));
  EXPECT_EQ(naming->state().confirmed, before);
  start(etcd());
  EXPECT_TRUE(becomes(*naming, "a:1"));
  EXPECT_TRUE(until([&] { return announcement->state().registered && !announcement->state().error; }));
  const auto other = announce_at("b:1");
  EXPECT_TRUE(becomes(*naming, "a:1 b:1"));
}

TEST_F(EtcdRegistry, EtcdLosesItsData) {
  const auto naming = open_name();
  const auto announcement = announce_at("a:1");
  ASSERT_TRUE(becomes(*naming, "a:1"));
  ASSERT_TRUE(until([&] { return announcement->state().registrations == 1; })) << "the name is known earlier";
  etcd().program.kill_now();
  std::filesystem::remove_all(data_of(etcd()));
  start(etcd());
  EXPECT_TRUE(until([&] { return announcement->state().registrations == 2; }));
  EXPECT_TRUE(becomes(*naming, "a:1"));
  EXPECT_EQ(naming->state().version, 1U) << "an empty list replaces none";
  EXPECT_NE(value_of("svc/a:1"), "");
}

TEST_F(EtcdRegistry, ChangesAreCompactedDuringAnOutage) {
  put(etcd().address, "a:1");
  const auto naming = open_name();
  ASSERT_TRUE(becomes(*naming, "a:1"));
  etcd().program.kill_now();
  const std::string elsewhere = "127.0.0.1:" + free_port();
  start(etcd(), elsewhere);
  ASSERT_TRUE(serves(etcd(), elsewhere)) << etcd().program.output();
  std::string remove;
  add_bytes_field(remove, 1, "svc/a:1");
  ASSERT_TRUE(change<&etcd_remote::remove_range>(elsewhere, remove));
  put(elsewhere, "b:1");
  const auto range = call<&cluster::etcd_range>(elsewhere, cluster::range_request("svc/", 1));
  ASSERT_TRUE(range) << error_of(range);
  std::string compact;
  add_number_field(compact, 1, static_cast<std::uint64_t>(cluster::read_range(*range, [](const auto&) {})->revision));
  ASSERT_TRUE(change<&etcd_remote::compact>(elsewhere, compact, "has been compacted"));

  // The answer of etcd to a watch of compacted changes.
  cluster::EtcdSession session(loop, {elsewhere}, options);
  loop.run([](cluster::EtcdSession& on) -> Task<void> {
    REQUIRE_OK(co_await on.connect());
    auto watch = co_await on.open<&cluster::etcd_watch>(forever);
    REQUIRE_OK(watch);
    auto writer = watch->writer();
    auto reader = watch->reader();
    REQUIRE_OK(co_await writer.write(protocol::grpc::ProtoBytes{cluster::watch_request("svc/", 1)}));
    cluster::EtcdList list("svc/");
    for (;;) {
      auto message = co_await reader.next();
      REQUIRE_OK(message);
      REQUIRE(message->has_value());
      const auto news = list.on_watch((*message)->bytes);
      if (news) continue;
      EXPECT_NE(news.error().text.find("has compacted"), std::string::npos) << news.error().text;
      co_return;
    }
  }(session));

  start(etcd());
  EXPECT_TRUE(becomes(*naming, "b:1"));
}

TEST_F(EtcdRegistry, ALeaseExpiresWithItsServer) {
  put(etcd().address, "a:1");
  const auto naming = open_name();
  auto vanished = announce_at("b:1");
  ASSERT_TRUE(becomes(*naming, "a:1 b:1"));
  EXPECT_GE(vanished->state().ttl, std::chrono::seconds(1));
  vanished.reset();
  EXPECT_TRUE(becomes(*naming, "a:1"));
}

TEST_F(EtcdRegistry, ALostLeaseIsReplaced) {
  const auto announcement = announce_at("a:1");
  ASSERT_TRUE(until([&] { return announcement->state().registered; }));
  ASSERT_TRUE(change<&cluster::etcd_revoke>(etcd().address, cluster::lease_id_request(announcement->state().lease),
                                            "lease not found"));
  EXPECT_TRUE(until([&] { return announcement->state().registrations == 2; }));
  EXPECT_NE(value_of("svc/a:1"), "");
}

TEST_F(EtcdRegistry, ASilentServerIsLeft) {
  options.confirm_interval = 50ms;
  options.connect_timeout = options.call_timeout = 200ms;
  put(etcd().address, "a:1");
  const auto naming = open_name();
  ASSERT_TRUE(becomes(*naming, "a:1"));
  etcd().program.signal(SIGSTOP);
  EXPECT_TRUE(until([&] { return naming->state().error.has_value(); }));
  EXPECT_EQ(addresses_of(*naming), "a:1");
  etcd().program.signal(SIGCONT);
  EXPECT_TRUE(becomes(*naming, "a:1"));
}

TEST_F(EtcdRegistry, UsersLogIn) {
  std::string user;
  add_bytes_field(user, 1, "root");
  add_bytes_field(user, 2, "secret");
  ASSERT_TRUE(change<&etcd_remote::add_user>(etcd().address, user, "already exists"));
  std::string role;
  add_bytes_field(role, 1, "root");
  add_bytes_field(role, 2, "root");
  ASSERT_TRUE(change<&etcd_remote::grant_role>(etcd().address, role));
  ASSERT_TRUE(change<&etcd_remote::enable_auth>(etcd().address, "", "user name is empty"));
  const auto nobody = open_name();
  options.user = "root";
  options.password = "wrong";
  const auto stranger = open_name();
  EXPECT_TRUE(fails_with(*nobody, "user name is empty"));
  EXPECT_TRUE(fails_with(*stranger, "authentication failed"));
  options.password = "secret";
  const auto naming = open_name();
  const auto announcement = announce_at("a:1");
  EXPECT_TRUE(becomes(*naming, "a:1"));
  EXPECT_EQ(nobody->state().version, 0U);
}

TEST_F(EtcdRegistry, AServerAnnouncesItselfAndIsCalledByName) {
  options.call_timeout = patience;
  ServerOptions serving;
  serving.loop.log = LogSink();
  Server server(serving);
  server.register_handler<named_port>();
  const auto started = server.start();
  ASSERT_TRUE(started) << error_of(started);
  const auto announced = announce(server, service(), {.address = server.address()}, {.etcd = options});
  ASSERT_TRUE(announced) << error_of(announced);
  ClusterOptions calling;
  calling.naming.push_back(etcd_naming(options));
  auto client = ClusterClient::create(loop, service(), calling);
  ASSERT_TRUE(client) << error_of(client);
  ASSERT_TRUE(until([&] { return (*client)->naming().version == 1; }));
  const auto reply = loop.run(
      [](ClusterClient& by) -> Task<Result<std::string>> { co_return co_await by.call<named_port>(); }(**client));
  ASSERT_TRUE(reply) << error_of(reply);
  EXPECT_EQ(*reply, "here");
  client->reset();
  server.stop();
  EXPECT_EQ(value_of("svc/" + server.address()), "") << "it has left";
  for (const Endpoint& wrong : {Endpoint{.address = "x"}, Endpoint{.address = "a:1", .weight = 0}}) {
    EXPECT_FALSE(announce(server, service(), wrong));
  }
  EXPECT_FALSE(announce(server, "list:a:1", {.address = "a:1"}));
  EXPECT_FALSE(announce(server, service(), {.address = "a:1"}, {.ttl = std::chrono::seconds(0)}));
  EXPECT_FALSE(Naming::open(loop, service(), {etcd_naming({.confirm_interval = 0ms})}));
}

// Sends one list, then a change, and ends the watch at once. Further lists are not sent.
struct PlayedEtcd {
  using Message = protocol::grpc::ProtoBytes;
  static std::string header(std::uint64_t revision) {
    std::string number;
    add_number_field(number, 3, revision);
    std::string message;
    add_bytes_field(message, 1, number);
    return message;
  }
  static std::string key(const std::string& address, std::uint64_t revision) {
    std::string message;
    add_bytes_field(message, 1, "svc/" + address);
    add_number_field(message, 3, revision);
    add_bytes_field(message, 5, R"({"Op":0,"Addr":")" + address + R"("})");
    return message;
  }
  Task<Result<Message>> range(Context&, Message) {
    if (ranges++ != 0) co_return fail(Error::of_call(ErrorCode::unavailable, "played"));
    std::string message = header(1);
    add_bytes_field(message, 2, key("a:1", 1));
    add_number_field(message, 4, 1);
    co_return Message{message};
  }
  Task<Result<void>> watch(Context&, Reader<Message> in, Writer<Message> out) {
    CO_TRY(const std::optional<Message> request, co_await in.next());
    EXPECT_TRUE(request);
    std::string event;
    add_bytes_field(event, 2, key("b:1", 2));
    std::string message = header(2);
    add_bytes_field(message, 11, event);
    CO_TRY(co_await out.write(Message{message}));
    co_return fail(Error::of_call(ErrorCode::unavailable, "played"));
  }
  std::atomic<int> ranges{0};
};

class EtcdPlayed : public EtcdFixture {
 protected:
  void SetUp() override { options.call_timeout = patience; }  // The list is sent once.
};

// The watch breaks while a change waits for the end of the interval in which changes are reported together.
TEST_F(EtcdPlayed, AChangeThatWaitsIsReportedWhenTheWatchBreaks) {
  Server server({.loop = {.log = LogSink()}});
  server.enable(grpc());
  const auto played = std::make_shared<PlayedEtcd>();
  protocol::grpc::add_own_method<&PlayedEtcd::range>(server, played, "etcdserverpb.KV/Range");
  protocol::grpc::add_own_method<&PlayedEtcd::watch>(server, played, "etcdserverpb.Watch/Watch");
  const auto started = server.start();
  ASSERT_TRUE(started) << error_of(started);
  const auto naming = std::move(*Naming::open(loop, "etcd://" + server.address() + "/svc", {etcd_naming(options)}));
  EXPECT_TRUE(until([&] { return naming->state().error && addresses_of(*naming) == "a:1 b:1"; }))
      << naming->state().endpoints.size() << " endpoints";
}

class EtcdCluster : public EtcdFixture {
 protected:
  void SetUp() override {
    EtcdFixture::SetUp();
    if (!IsSkipped()) start_cluster(3);
  }
  // False if the member does not answer or nobody leads.
  bool leads(const EtcdMember& member) {
    std::string header;
    std::uint64_t leader = 0;
    std::uint64_t self = 0;
    const auto status = call<&etcd_remote::status>(member.address, "");
    if (!status) return false;
    protocol::grpc::visit_fields(*status, [&](const protocol::grpc::ProtoField& field) {
      if (field.number == 1) header = field.bytes;
      if (field.number == 4) leader = field.value;
    });
    protocol::grpc::visit_fields(header, [&](const protocol::grpc::ProtoField& field) {
      if (field.number == 2) self = field.value;
    });
    return leader != 0 && self == leader;
  }
};

TEST_F(EtcdCluster, TheLeaderIsKilled) {
  const auto naming = open_name();
  const auto announcement = announce_at("a:1");
  ASSERT_TRUE(becomes(*naming, "a:1"));
  auto leader = members.end();
  ASSERT_TRUE(soon([&] {
    leader = std::ranges::find_if(members, [&](const auto& member) { return leads(*member); });
    return leader != members.end();
  }));
  (*leader)->program.kill_now();
  const auto other = announce_at("b:1");
  EXPECT_TRUE(becomes(*naming, "a:1 b:1"));
  EXPECT_TRUE(until([&] { return announcement->state().registered && !announcement->state().error; }));
  // A minority does not answer, and the last good list stays.
  const auto left = std::ranges::find_if(members, [&](const auto& member) { return !member->program.ended(); });
  (*left)->program.kill_now();
  EXPECT_TRUE(until([&] { return naming->state().error.has_value(); }));
  EXPECT_EQ(addresses_of(*naming), "a:1 b:1");
}

}  // namespace
}  // namespace hawser
