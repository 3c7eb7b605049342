#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/grpc.h"
#include "hawser/hawser.h"
#include "tests/grpc_interop/cases.h"
#include "tests/grpc_interop/http2_cases.h"
#include "tests/grpc_interop/service.h"
#include "tests/python_process.h"

// gRPC's interoperability tests: Hawser's client and server with each other and with grpcio (Debian: python3-grpcio).
namespace hawser::grpc_interop {
namespace {

// A running tests/grpc_interop/peer.py.
class Grpcio : public testing_tools::PythonProcess {
 public:
  explicit Grpcio(const std::string& arguments)
      : PythonProcess(std::filesystem::path(__FILE__).parent_path() / "grpc_interop" / "peer.py", arguments) {}
};

class GrpcInterop : public ::testing::TestWithParam<std::string_view> {
 protected:
  void start_server() {
    service_.add_to(server_);
    server_.enable(grpc());
    ASSERT_TRUE(server_.start());
  }

  Service service_;
  Server server_;
};

TEST_P(GrpcInterop, OwnClientAndServer) {
  start_server();
  EXPECT_EQ(run_case(GetParam(), server_.address()), "");
}

using GrpcInteropClient = GrpcInterop;

TEST_P(GrpcInteropClient, OfGrpcio) {
  start_server();
  Grpcio client("call " + server_.address() + " " + std::string(GetParam()));
  const int status = client.wait();
  if (status == Grpcio::skipped) GTEST_SKIP() << client.output;
  EXPECT_EQ(status, 0) << client.output;
  EXPECT_EQ(server_.counters().protocol_errors, 0U);
}

class GrpcInteropServer : public ::testing::TestWithParam<std::string_view> {};

TEST_P(GrpcInteropServer, OfGrpcio) {
  Grpcio server("serve");
  const int port = server.listening_port();
  if (port == 0) {
    const int status = server.wait();
    if (status == Grpcio::skipped) GTEST_SKIP() << server.output;
    FAIL() << server.output;
  }
  EXPECT_EQ(run_case(GetParam(), "127.0.0.1:" + std::to_string(port)), "");
}

class GrpcHttp2 : public ::testing::TestWithParam<std::string_view> {};

TEST_P(GrpcHttp2, ClientEndsCallsAsTheServerAsks) {
  testing_tools::PythonProcess server(
      std::filesystem::path(__FILE__).parent_path() / "grpc_interop" / "http2_server.py", std::string(GetParam()));
  const int port = server.listening_port();
  ASSERT_NE(port, 0) << server.output;
  EXPECT_EQ(run_http2_case(GetParam(), "127.0.0.1:" + std::to_string(port)), "");
  EXPECT_EQ(server.wait(), 0) << server.output;
}

// A handler of grpcio does not know whether its request was compressed, and grpcio has no load reports.
std::vector<std::string_view> cases_of_grpcio_servers() {
  std::vector<std::string_view> names(case_names().begin(), case_names().end());
  for (const std::string_view one :
       {"client_compressed_unary", "client_compressed_streaming", "orca_per_rpc", "orca_oob"}) {
    std::erase(names, one);
  }
  return names;
}

std::vector<std::string_view> cases_of_grpcio_clients() {
  std::vector<std::string_view> names(case_names().begin(), case_names().end());
  for (const std::string_view one : {"orca_per_rpc", "orca_oob"}) std::erase(names, one);
  return names;
}

std::string name_of(const ::testing::TestParamInfo<std::string_view>& given) { return std::string(given.param); }

INSTANTIATE_TEST_SUITE_P(Cases, GrpcInterop, ::testing::ValuesIn(case_names().begin(), case_names().end()), &name_of);
INSTANTIATE_TEST_SUITE_P(Cases, GrpcInteropClient, ::testing::ValuesIn(cases_of_grpcio_clients()), &name_of);
INSTANTIATE_TEST_SUITE_P(Cases, GrpcHttp2, ::testing::ValuesIn(http2_case_names().begin(), http2_case_names().end()),
                         &name_of);
INSTANTIATE_TEST_SUITE_P(Cases, GrpcInteropServer, ::testing::ValuesIn(cases_of_grpcio_servers()), &name_of);

}  // namespace
}  // namespace hawser::grpc_interop
