#include "hawser/etcd.h"

#include <string>
#include <string_view>

#include "hawser/grpc_client.h"
#include "tests/child_program.h"
#include "tests/grpc/raw_service.h"
#include "tests/tls/fixture.h"

// etcd, whose clients prove themselves by certificates.
namespace hawser {
namespace tls_remote {

Task<Result<testing_tools::Raw>> etcd_put(Context&, testing_tools::Raw);
Task<Result<testing_tools::Raw>> etcd_range(Context&, testing_tools::Raw);
Task<Result<void>> etcd_watch(Context&, Reader<testing_tools::Raw>, Writer<testing_tools::Raw>);

}  // namespace tls_remote

template <>
inline constexpr std::string_view method_name_override<&tls_remote::etcd_put> = "etcdserverpb.KV/Put";
template <>
inline constexpr std::string_view method_name_override<&tls_remote::etcd_range> = "etcdserverpb.KV/Range";
template <>
inline constexpr std::string_view method_name_override<&tls_remote::etcd_watch> = "etcdserverpb.Watch/Watch";

namespace {

using namespace testing_tools;

// A field of a protobuf message whose number is below 16 and whose value is shorter than 128 bytes.
std::string field(int number, std::string_view value) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(value.size())} + std::string(value);
}

class TlsEtcd : public TlsFixture {
 protected:
  void start_etcd(const TlsCertificate& own) {
    const std::string port = free_port();
    const std::string peer = "http://127.0.0.1:" + free_port();
    address = "127.0.0.1:" + port;
    const std::string url = "https://" + address;
    const std::string command =
        "etcd --name one --data-dir " + folder.path().string() + "/data-" + port + " --listen-client-urls " + url +
        " --advertise-client-urls " + url + " --listen-peer-urls " + peer + " --initial-advertise-peer-urls " + peer +
        " --initial-cluster one=" + peer + " --client-cert-auth --trusted-ca-file " + authority.ca_file() +
        " --cert-file " + own.certificate_file + " --key-file " + own.key_file;
    etcd.start(command, folder.path().string() + "/etcd.log");
  }
  GrpcClientOptions with(const TlsClientOptions& tls) {
    GrpcClientOptions made;
    made.connect_timeout = patience;
    made.call_timeout = patience;
    made.security = TlsClient(tls);
    return made;
  }

  ChildProgram etcd;
  std::string address;
};

// Writes, reads, and watches the key of the next write.
Task<void> use_etcd(GrpcClient& client) {
  const Raw put(field(1, "key") + field(2, "value"));
  auto written = co_await client.call<&tls_remote::etcd_put>(put);
  REQUIRE_OK(written);
  const Raw range(field(1, "key"));
  auto read = co_await client.call<&tls_remote::etcd_range>(range);
  REQUIRE_OK(read);
  EXPECT_HAS(read->bytes, field(1, "key"));
  EXPECT_HAS(read->bytes, field(5, "value"));
  auto watch = co_await client.open<&tls_remote::etcd_watch>();
  REQUIRE_OK(watch);
  auto writer = watch->writer();
  auto reader = watch->reader();
  const Raw create(field(1, field(1, "key")));
  auto sent = co_await writer.write(create);
  REQUIRE_OK(sent);
  auto created = co_await reader.next();
  REQUIRE_OK(created);
  REQUIRE(created->has_value());
  const Raw again(field(1, "key") + field(2, std::string(100, 'v')));
  auto rewritten = co_await client.call<&tls_remote::etcd_put>(again);
  REQUIRE_OK(rewritten);
  auto event = co_await reader.next();
  REQUIRE_OK(event);
  REQUIRE(event->has_value());
  EXPECT_HAS((*event)->bytes, std::string(100, 'v'));
}

TEST_F(TlsEtcd, IsCalledWithAClientCertificate) {
  if (output_of("command -v etcd").empty()) GTEST_SKIP() << "etcd is not installed: apt-get install etcd-server";
  const TlsCertificate own = authority.issue("etcd");
  TlsClientOptions proved = client_options();
  const TlsCertificate mine = authority.issue("me");
  proved.certificate = mine;
  Loop loop;
  // Another program may take the port before etcd does. Then etcd ends.
  bool connected = false;
  for (int tries = 0; tries < 5 && !connected; ++tries) {
    start_etcd(own);
    EXPECT_TRUE(soon([&] {
      GrpcClient probe(loop, with(proved));
      connected = loop.run(probe.connect(address)).has_value();
      return connected || etcd.ended();
    })) << etcd.output();
  }
  ASSERT_TRUE(connected) << etcd.output();
  GrpcClient client(loop, with(proved));
  const Result<void> status = loop.run(client.connect(address));
  ASSERT_TRUE(status) << error_of(status);
  // The port is open before etcd has elected itself.
  EXPECT_TRUE(soon([&] {
    return loop.run([](GrpcClient& of) -> Task<bool> {
      const Raw range(field(1, "none"));
      auto read = co_await of.call<&tls_remote::etcd_range>(range);
      co_return read.has_value();
    }(client));
  })) << etcd.output();
  loop.run(use_etcd(client));

  const EtcdOptions protection{.security = TlsClient(proved)};
  const std::string name = "etcd://" + address + "/services/storage";
  const auto naming = Naming::open(loop, name, {etcd_naming(protection)});
  const auto announced = EtcdAnnouncement::begin(loop, name, {.address = "10.0.0.1:80"}, {.etcd = protection});
  ASSERT_TRUE(naming && announced);
  EXPECT_TRUE(loop.run(eventually(loop, [&] { return (*naming)->state().version == 1; }))) << etcd.output();

  // TLS 1.3 reports a refused certificate with the first bytes that are read.
  const auto refused = [&](const TlsClientOptions& tls) -> std::string {
    return loop.run([](GrpcClientOptions given, Loop& on, std::string to) -> Task<std::string> {
      GrpcClient other(on, std::move(given));
      auto reached = co_await other.connect(std::move(to));
      if (!reached) co_return reached.error().text;
      const Raw range(field(1, "key"));
      auto read = co_await other.call<&tls_remote::etcd_range>(range);
      co_return read ? "served" : read.error().text;
    }(with(tls), loop, address));
  };
  EXPECT_HAS(refused(client_options()), "alert");
  security::tls::Authority foreign(folder.path().string(), "foreign");
  TlsClientOptions wrong = client_options();
  wrong.certificate = foreign.issue("stranger");
  EXPECT_HAS(refused(wrong), "alert");
}

}  // namespace
}  // namespace hawser
