#include "hawser/kubernetes.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

#include "tests/kubernetes/played_api.h"
#include "tests/tls/fixture.h"

// The environment of a pod: an API server with TLS, whose address is in variables, and the files of an account.
namespace hawser {
namespace {

using namespace testing_tools;

class TlsKubernetes : public TlsFixture {
 protected:
  TlsKubernetes() {
    tls_options.certificates = {authority.issue("server")};
    security = std::make_unique<TlsServer>(tls_options);
    options.security = *security;
  }
  ~TlsKubernetes() override {
    unsetenv("KUBERNETES_SERVICE_HOST");
    unsetenv("KUBERNETES_SERVICE_PORT");
  }
  void write_file(const std::string& name, const std::string& text) const {
    std::ofstream file(folder.path() / name);
    file << text;
  }
};

TEST_F(TlsKubernetes, TheEnvironmentOfAPodSuffices) {
  PlayedKubernetes api(options);
  api.set({.token = "secret"});
  api.put("a", {"10.0.0.1"});
  const std::string address = api.address();
  setenv("KUBERNETES_SERVICE_HOST", address.substr(0, address.rfind(':')).c_str(), 1);
  setenv("KUBERNETES_SERVICE_PORT", address.substr(address.rfind(':') + 1).c_str(), 1);
  std::ifstream issuer(authority.ca_file());
  write_file("ca.crt", std::string(std::istreambuf_iterator<char>(issuer), {}));
  write_file("token", "secret");
  write_file("namespace", "shop");
  KubernetesOptions with{.account_folder = folder.path().string()};
  with.connect_timeout = with.request_timeout = patience;
  Loop loop;
  const auto naming = Naming::open(loop, "kubernetes:///storage", {kubernetes_naming(with)});
  ASSERT_TRUE(naming) << error_of(naming);
  const NamingState& state = (*naming)->state();
  EXPECT_TRUE(loop.run(eventually(loop, [&] { return state.version == 1; })))
      << (state.error ? state.error->text : "no error");
  ASSERT_EQ(state.endpoints.size(), 1U);
  EXPECT_EQ(state.endpoints.front().address, "10.0.0.1:80");
}

TEST_F(TlsKubernetes, AServerOfAnotherIssuerGetsNoToken) {
  PlayedKubernetes api(options);
  KubernetesOptions with{.server = "https://" + api.address(), .token_file = (folder.path() / "token").string()};
  with.connect_timeout = with.request_timeout = patience;
  with.security = TlsClient({.ca_file = security::tls::Authority(folder.path().string(), "other").ca_file()});
  write_file("token", "secret");
  Loop loop;
  const auto naming = Naming::open(loop, "kubernetes:///storage.shop", {kubernetes_naming(with)});
  ASSERT_TRUE(naming) << error_of(naming);
  const NamingState& state = (*naming)->state();
  EXPECT_TRUE(loop.run(eventually(loop, [&] { return state.error.has_value(); })));
  EXPECT_TRUE(state.error && state.error->text.contains("certificate")) << (state.error ? state.error->text : "none");
  EXPECT_TRUE(api.requests().empty());
}

}  // namespace
}  // namespace hawser
