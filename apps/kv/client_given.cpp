#include "kv/client_given.h"

#include <utility>

#include "base/try.h"
#include "hawser/kv.h"
#include "tls/client_options.h"

namespace hawser::kv {

void add_client_options(CLI::App& command, ClientGiven& given) {
  command.add_option("--connect", given.connect, "Address of the server")->capture_default_str();
  command.add_option("--password-file", given.password_file,
                     "File whose only line is the password of the server. Absent: none is sent");
  programs::add_tls_client_options(command, given.connect, given.security);
}

Result<ClientOptions> client_options(const ClientGiven& given) {
  ClientOptions options;
  options.security = given.security;
  if (given.password_file.empty()) return options;
  TRY(std::string&& password, read_password(given.password_file));
  options.interceptors.push_back(send_password(std::move(password)));
  return options;
}

}  // namespace hawser::kv
