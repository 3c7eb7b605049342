// TLS: the server proves by a certificate who it is, and everything between the two is encrypted.
#include <hawser/hawser.h>
#include <hawser/tls.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

std::string greet(std::string_view name) { return "hello, " + std::string(name); }

hawser::Task<bool> call(std::string address, std::string ca_file) {
  // [client]
  hawser::TlsClientOptions trusted;
  trusted.ca_file = ca_file;
  trusted.server_name = "localhost";
  hawser::ClientOptions options;
  options.security = hawser::TlsClient(trusted);
  hawser::Client client(options);
  // [/client]
  const hawser::Result<void> connected = co_await client.connect(address);
  if (!connected) {
    std::printf("%s\n", connected.error().describe().c_str());
    co_return false;
  }
  const hawser::Result<std::string> reply = co_await client.call<greet>("TLS");
  std::printf("%s\n", reply ? reply->c_str() : reply.error().describe().c_str());
  co_return reply.has_value();
}

int main() {
  // A certificate for this example, which is its own issuer.
  std::string folder = (std::filesystem::temp_directory_path() / "hawser-tls-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return 1;
  const std::string certificate_file = folder + "/certificate.pem";
  const std::string key_file = folder + "/key.pem";
  const std::string command =
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=localhost "
      "-addext subjectAltName=DNS:localhost -keyout " +
      key_file + " -out " + certificate_file + " 2>/dev/null";
  bool done = false;
  if (std::system(command.c_str()) == 0) {
    // [server]
    hawser::TlsServer tls({.certificates = {{certificate_file, key_file}}});
    hawser::Server server({.security = tls});
    // [/server]
    server.register_handler<greet>();
    if (const auto started = server.start(); started) {
      done = hawser::sync_wait(call(server.address(), certificate_file));
    } else {
      std::printf("%s\n", started.error().describe().c_str());
    }
  } else {
    std::printf("the command openssl made no certificate: install the package openssl\n");
  }
  std::filesystem::remove_all(folder);
  return done ? 0 : 1;
}
