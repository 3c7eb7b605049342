// All components of the installed package in one program. Each one gives this program something to run.
#include <hawser/hawser.h>
#ifdef HAS_BRPC
#include <hawser/brpc.h>
#endif
#ifdef HAS_CHANNEL
#include <hawser/protobuf_channel.h>
#endif
#ifdef HAS_CLUSTER
#include <hawser/cluster_client.h>
#endif
#ifdef HAS_ETCD
#include <hawser/etcd.h>
#endif
#ifdef HAS_GRPC
#include <hawser/grpc.h>
#include <hawser/grpc_client.h>
#endif
#ifdef HAS_HEAP_PROFILE
#include <hawser/heap_profile.h>
#endif
#ifdef HAS_HTTP
#include <hawser/http.h>
#include <hawser/http_client.h>
#endif
#ifdef HAS_CONSUL
#include <hawser/consul.h>
#endif
#ifdef HAS_KUBERNETES
#include <hawser/kubernetes.h>
#endif
#ifdef HAS_KV
#include <hawser/kv.h>
#endif
#ifdef HAS_OBSERVE
#include <hawser/pages.h>
#endif
#ifdef HAS_PROTOBUF
#include <hawser/protobuf.h>
#endif
#ifdef HAS_TESTING
#include <hawser/testing.h>
#endif
#ifdef HAS_TLS
#include <hawser/tls.h>
#endif
#ifdef HAS_XDS
#include <hawser/xds.h>
#endif

#include <cstdio>
#include <string>

std::string_view echo(std::string_view text) { return text; }

// A server of every protocol on one port answers a call.
hawser::Task<bool> talk(std::string address) {
  hawser::Client client;
  if (hawser::Result<void> connected = co_await client.connect(address); !connected) co_return false;
  const hawser::Result<std::string> reply = co_await client.call<echo>("installed");
#ifdef HAS_KV
  hawser::kv::KvClient store(client);
  if (const auto value = co_await store.get("nobody serves a store"); value) co_return false;
#endif
#ifdef HAS_CLUSTER
  const auto cluster = hawser::ClusterClient::create("list:" + address);
  if (!cluster) co_return false;
  if (const hawser::Result<std::string> named = co_await (*cluster)->call<echo>("by name"); !named) co_return false;
#endif
#ifdef HAS_ETCD
  // Nobody listens there, so this is only made.
  const auto announced =
      hawser::EtcdAnnouncement::begin(*hawser::Loop::current(), "etcd://127.0.0.1:1/echo", {.address = address});
  if (!announced) co_return false;
#endif
#ifdef HAS_CONSUL
  // Nobody listens there, so this is only made.
  hawser::ClusterOptions instances;
  instances.naming.push_back(hawser::consul_naming({.agent = "http://127.0.0.1:1"}));
  if (!hawser::ClusterClient::create("consul:///echo", instances)) co_return false;
#endif
#ifdef HAS_KUBERNETES
  // Nobody listens there, so this is only made.
  hawser::ClusterOptions pods;
  pods.naming.push_back(hawser::kubernetes_naming({.server = "http://127.0.0.1:1"}));
  if (!hawser::ClusterClient::create("kubernetes:///echo.default:80", pods)) co_return false;
#endif
#ifdef HAS_XDS
  const auto followed =
      hawser::Naming::open(*hawser::Loop::current(), "xds:///echo", {hawser::xds_naming({.bootstrap = "{}"})});
  if (followed) co_return false;  // The bootstrap has no server.
#endif
#ifdef HAS_GRPC
  hawser::GrpcClient grpc(*hawser::Loop::current());
  if (hawser::Result<void> opened = co_await grpc.connect(address); !opened) co_return false;
#endif
  co_return reply == "installed";
}

int main() {
#ifdef HAS_HEAP_PROFILE
  if (!hawser::HeapProfile::begin()) return 1;
#endif
  hawser::Server server;
  server.register_handler<echo>();
#ifdef HAS_BRPC
  server.enable(hawser::baidu_std());
#endif
#ifdef HAS_GRPC
  server.enable(hawser::grpc());
#endif
#if defined(HAS_OBSERVE)
  hawser::enable_pages(server);
#elif defined(HAS_HTTP)
  server.enable(hawser::http());
#endif
#ifdef HAS_TLS
  // No certificate: start() would fail, so this is only made.
  const hawser::TlsClient security{hawser::TlsClientOptions()};
#endif
#ifdef HAS_TESTING
  const hawser::testing::SeedOptions seeds{.name = "components", .count = 1};
  auto nothing = [](hawser::testing::Simulation&) -> hawser::Task<void> { co_return; };
  if (!hawser::testing::for_each_seed(seeds, nothing)) return 1;
#endif
  if (const hawser::Result<void> started = server.start(); !started) {
    std::fprintf(stderr, "%s\n", started.error().describe().c_str());
    return 1;
  }
#ifdef HAS_CHANNEL
  hawser::pb::Channel channel;
  if (channel.Init(server.address(), nullptr) != 0) return 1;
#endif
  return hawser::sync_wait(talk(server.address())) ? 0 : 1;
}
