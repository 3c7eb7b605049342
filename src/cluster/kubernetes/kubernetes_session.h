#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>

#include "cluster/kubernetes/kubernetes_name.h"
#include "hawser/error.h"
#include "hawser/http_client.h"
#include "hawser/kubernetes.h"
#include "hawser/loop.h"
#include "hawser/task.h"

namespace hawser::cluster {

// Adds what the environment of a pod says to the options that are empty, and checks all. Fails with `invalid_argument`.
Result<KubernetesOptions> complete_kubernetes_options(KubernetesOptions options);

// The requests to the API server for the slices of one service. Loop's thread only.
class KubernetesSession {
 public:
  KubernetesSession(Loop& loop, KubernetesName name, const KubernetesOptions& options);

  // How a watch begins.
  enum class Begin : std::uint8_t {
    at_version,  // With the changes behind a version.
    with_list,   // With the list itself.
  };
  struct Opened {
    int status = 0;
    HttpClientStream stream;
  };
  // Fails if the answer is not a list (status 200).
  Task<Result<std::string>> list();
  // Returns the stream of a watch (200), or the answer of another status. A stop of `token` ends the stream.
  Task<Result<Opened>> watch(Begin begin, std::string version, std::stop_token token);
  // The error of an answer that is not 200.
  static Error refusal(int status, std::string_view body);

 private:
  Task<Result<HttpClientRequest>> request(std::string query);

  Loop& loop_;
  const KubernetesName name_;
  const KubernetesOptions options_;
  HttpClient client_;
};

}  // namespace hawser::cluster
