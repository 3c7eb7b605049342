#include "cli/call/outcome.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <system_error>

#include "cli/call/server_name.h"
#include "json/writer.h"
#include "protocol/http/json/value_types.h"

namespace hawser::cli {

Status status_of(const Error& error) noexcept {
  switch (error.code) {
    case ErrorCode::deadline_exceeded: return too_late;
    case ErrorCode::unknown_method:
    case ErrorCode::signature_mismatch: return no_method;
    case ErrorCode::not_sent:
    case ErrorCode::unavailable:
    case ErrorCode::outcome_unknown: return no_connection;
    case ErrorCode::invalid_argument: return error.initiator == Initiator::local ? wrong_options : refused;
    default: return refused;
  }
}

void Output::line(std::string_view text) const {
  if (isatty(STDOUT_FILENO) != 1) {
    fmt::print("{}\n", text);
  } else {
    std::string shown;
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      shown += protocol::http::printable(text.substr(begin, end - begin)) + "\n";
      begin = end + 1;
    }
    fmt::print("{}", shown);
  }
  // Ends a command that would write until somebody ends it. process::run() reports it.
  if (std::fflush(stdout) != 0) throw std::system_error(errno, std::generic_category(), "standard output");
}

int Output::error(const Error& error) const {
  const Status status = status_of(error);
  const std::string text = protocol::http::printable(error.text);
  if (json) {
    std::string quoted;
    json::append_text(quoted, text);
    std::string code(to_string(error.code));
    if (error.code == ErrorCode::application)
      code += fmt::format("\",\"application_code\":\"{}", error.application_code);
    fmt::print("{{\"error\":{{\"code\":\"{}\",\"text\":{}}}}}\n", code, quoted);
    std::fflush(stdout);
  } else {
    const std::string code = error.code == ErrorCode::application
                                 ? fmt::format("application {}", error.application_code)
                                 : std::string(to_string(error.code));
    fmt::print(stderr, "hawser {}: {}: {}\n", command, code, text);
  }
  return status;
}

int Output::unknown_method(const Error& error) const {
  const int status = this->error(error);
  // The name was asked for in an argument of ours.
  return error.code == ErrorCode::invalid_argument ? no_method : status;
}

void add_peer_options(CLI::App& command, PeerOptions& options, double& timeout_s) {
  command.add_option("address", options.address, address_help)->required();
  command.add_option("--protocol", options.protocol, "Protocol")
      ->capture_default_str()
      ->check(CLI::IsMember({"native", "grpc", "baidu_std", "http"}));
  command.add_option("--transport", options.transports, "Transports of the native protocol to offer beside TCP")
      ->delimiter(',')
      ->check(CLI::IsMember({"shm", "rdma", "ucx"}));
  command.add_option("--timeout", timeout_s, "Seconds for connecting, and for each call")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 86'400.0));
  command.add_option("--proto", options.proto_file,
                     "File that defines the service, instead of the server's description");
  command.add_option("--proto-path", options.proto_folders, "Folder in which imports of the file are looked for");
  command
      .add_option_function<std::vector<std::string>>(
          "--metadata",
          [&options](const std::vector<std::string>& all) {
            for (const std::string& one : all) {
              const std::size_t end = one.find('=');
              if (end == 0 || end == std::string::npos) {
                throw CLI::ValidationError("--metadata", "'" + one + "' is not NAME=VALUE");
              }
              options.metadata.emplace_back(one.substr(0, end), one.substr(end + 1));
            }
          },
          "NAME=VALUE: metadata of each call, a header field over HTTP. May be given several times")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  programs::add_tls_client_options(command, options.address, options.security);
}

Duration duration_of(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

Result<std::string> read_argument(const std::string& given) {
  if (given == "-") {
    std::string text{std::istreambuf_iterator<char>(std::cin), {}};
    return text;
  }
  if (!given.starts_with('@')) return given;
  std::ifstream file(given.substr(1), std::ios::binary);
  if (!file) return fail(ErrorCode::invalid_argument, "the file " + given.substr(1) + " can't be read");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  return text;
}

}  // namespace hawser::cli
