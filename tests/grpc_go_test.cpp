#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/temporary_folder.h"
#include "hawser/grpc.h"
#include "hawser/hawser.h"
#include "hawser/tls.h"
#include "security/tls/authority.h"
#include "tests/grpc_interop/cases.h"
#include "tests/grpc_interop/http2_cases.h"
#include "tests/grpc_interop/service.h"
#include "tests/python_process.h"

// gRPC's interoperability tests with grpc-go: its client with Hawser's server, and Hawser's client with its server.
// tests/go_tools/tool.py builds the programs of grpc-go. The cases are skipped where it can't.
namespace hawser::grpc_interop {
namespace {

// The scripts lie beside this test. `arguments` are those of a shell.
class Script : public testing_tools::PythonProcess {
 public:
  Script(std::string_view path, const std::string& arguments)
      : PythonProcess(std::filesystem::path(__FILE__).parent_path() / path, arguments) {}
};

class GoTool : public Script {
 public:
  explicit GoTool(const std::string& arguments) : Script("go_tools/tool.py", arguments) {}
};

std::string target(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  return " --server_host=" + address.substr(0, colon) + " --server_port=" + address.substr(colon + 1);
}

// A case of grpc-go's client, and its further options.
struct ClientCase {
  const char* name;
  const char* options = "";
};

// The load reports arrive at a load balancer of the test. A soak test does not measure the machine here.
constexpr const char* with_reports =
    " --service_config_json='{\"loadBalancingConfig\":[{\"test_backend_metrics_load_balancer\":{}}]}'";
constexpr const char* patient =
    " --soak_per_iteration_max_acceptable_latency_ms=60000 --soak_overall_timeout_seconds=300 --soak_iterations=20"
    " --soak_num_threads=4";

constexpr std::array client_cases = {
    ClientCase{"empty_unary"},
    ClientCase{"large_unary"},
    ClientCase{"client_streaming"},
    ClientCase{"server_streaming"},
    ClientCase{"ping_pong"},
    ClientCase{"empty_stream"},
    ClientCase{"timeout_on_sleeping_server"},
    ClientCase{"cancel_after_begin"},
    ClientCase{"cancel_after_first_response"},
    ClientCase{"status_code_and_message"},
    ClientCase{"special_status_message"},
    ClientCase{"custom_metadata"},
    ClientCase{"unimplemented_method"},
    ClientCase{"unimplemented_service"},
    ClientCase{"pick_first_unary"},
    ClientCase{"rpc_soak", patient},
    ClientCase{"channel_soak", patient},
    ClientCase{"orca_per_rpc", with_reports},
    ClientCase{"orca_oob", with_reports},
};

class GrpcGo : public ::testing::Test {
 protected:
  void start_server(const GrpcOptions& grpc_options = {}) {
    options_.loop.log = [](LogLevel, std::string_view, std::string_view) {};
    server_ = std::make_unique<Server>(options_);
    service_.add_to(*server_);
    server_->enable(grpc(grpc_options));
    ASSERT_TRUE(server_->start());
  }
  // Runs a program of grpc-go against the server.
  void run(const std::string& arguments) {
    GoTool client(arguments + target(server_->address()));
    const int status = client.wait();
    if (status == GoTool::skipped) GTEST_SKIP() << client.output;
    EXPECT_EQ(status, 0) << client.output;
    EXPECT_EQ(server_->counters().protocol_errors, 0U);
  }
  void use_tls() {
    security_ = std::make_unique<TlsServer>(TlsServerOptions{.certificates = {authority_.issue("server")}});
    options_.security = *security_;
  }

  const TemporaryFolder folder_;
  security::tls::Authority authority_{folder_.path().string(), "main"};
  std::unique_ptr<TlsServer> security_;
  ServerOptions options_;
  Service service_;
  std::unique_ptr<Server> server_;
};

class GrpcGoClient : public GrpcGo, public ::testing::WithParamInterface<ClientCase> {};

TEST_P(GrpcGoClient, CallsHawser) {
  start_server();
  run("client --test_case=" + std::string(GetParam().name) + GetParam().options);
}

INSTANTIATE_TEST_SUITE_P(Cases, GrpcGoClient, ::testing::ValuesIn(client_cases),
                         [](const auto& given) { return std::string(given.param.name); });

class GrpcGoServer : public GrpcGo, public ::testing::WithParamInterface<std::string_view> {
 protected:
  // Runs the case against a server of grpc-go, over TLS if `security` is not null.
  void call(const std::string& options, const std::shared_ptr<transport::ClientSecurity>& security) {
    GoTool server("serve " + options);
    const int port = server.listening_port();
    if (port == 0) {
      const int status = server.wait();
      if (status == GoTool::skipped) GTEST_SKIP() << server.output;
      FAIL() << server.output;
    }
    EXPECT_EQ(run_case(GetParam(), "127.0.0.1:" + std::to_string(port), security), "");
  }
};

TEST_P(GrpcGoServer, IsCalledByHawser) { call("", nullptr); }

// grpc-go's server has no compression, and no id.
std::vector<std::string_view> cases_of_servers() {
  std::vector<std::string_view> names(case_names().begin(), case_names().end());
  std::erase_if(names, [](std::string_view name) {
    return name.find("_compressed_") != std::string_view::npos || name == "pick_first_unary";
  });
  return names;
}

INSTANTIATE_TEST_SUITE_P(Cases, GrpcGoServer, ::testing::ValuesIn(cases_of_servers()),
                         [](const auto& given) { return std::string(given.param); });

using GrpcGoTls = GrpcGoServer;

TEST_P(GrpcGoTls, ClientCallsHawser) {
  use_tls();
  start_server();
  run("client --use_tls --use_test_ca --ca_file='" + authority_.ca_file() + "' --server_host_override=localhost" +
      " --test_case=" + std::string(GetParam()));
}

TEST_P(GrpcGoTls, ServerIsCalledByHawser) {
  const TlsCertificate certificate = authority_.issue("server");
  const TlsClient tls({.ca_file = authority_.ca_file()});
  call("--use_tls --tls_cert_file='" + certificate.certificate_file + "' --tls_key_file='" + certificate.key_file + "'",
       tls);
}

INSTANTIATE_TEST_SUITE_P(Cases, GrpcGoTls,
                         ::testing::Values("large_unary", "ping_pong", "cancel_after_first_response",
                                           "custom_metadata"),
                         [](const auto& given) { return std::string(given.param); });

// ---- Negative tests of HTTP/2 ----

class GrpcGoHttp2 : public ::testing::TestWithParam<std::string_view> {};

// grpc_interop_test runs Hawser's client against the same script. That the script passes with the client of grpc-go
// shows that it does as the cases say.
TEST_P(GrpcGoHttp2, ClientIsServedAsTheCasesSay) {
  Script server("grpc_interop/http2_server.py", std::string(GetParam()));
  const int port = server.listening_port();
  ASSERT_NE(port, 0) << server.output;
  GoTool client("http2 --test_case=" + std::string(GetParam()) + target("127.0.0.1:" + std::to_string(port)));
  const int status = client.wait();
  if (status == GoTool::skipped) GTEST_SKIP() << client.output;
  if (GetParam() == "rst_during_data") {
    // The case of grpc-go demands UNKNOWN, and its library reports INTERNAL, as it does for the other two resets.
    EXPECT_EQ(status, 1);
    EXPECT_NE(client.output.find("UnaryCall() = _, Internal, want _, Unknown"), std::string::npos) << client.output;
  } else {
    EXPECT_EQ(status, 0) << client.output;
  }
  EXPECT_EQ(server.wait(), 0) << server.output;
}

INSTANTIATE_TEST_SUITE_P(Cases, GrpcGoHttp2, ::testing::ValuesIn(http2_case_names().begin(), http2_case_names().end()),
                         [](const auto& given) { return std::string(given.param); });

// A server of Hawser does what the server of a case does where its options allow it.
TEST_F(GrpcGo, Http2ClientRespectsTheStreamsOfHawser) {
  start_server({.calls_max = 1});
  run("http2 --test_case=max_streams");
}

TEST_F(GrpcGo, Http2ClientConnectsAgainAfterGoaway) {
  // The client pauses for a second between its two calls.
  start_server({.connection_age_max = std::chrono::milliseconds(300)});
  run("http2 --test_case=goaway");
  if (!IsSkipped()) {
    EXPECT_GE(server_->counters().connections_accepted, 2U);
  }
}

}  // namespace
}  // namespace hawser::grpc_interop
