#pragma once

#include "hawser/reply.h"

namespace hawser {

namespace detail {
int any_handler(int);
}  // namespace detail

// A caller makes calls by call<F>(options, arguments...), and without options. The calls of Client, ClientPool,
// ClusterClient and Retrying are awaited; those of BlockingClient return the Result, those of StartingClient a
// StartedCall. The protocol does not matter: a client of another one is a Client whose options grpc_client() or
// baidu_std_client() has made. Stubs and Retrying are made over a Caller. See docs/guide/04-calls.md.
template <class By>
concept Caller = requires(By& by, const CallOptions& options, int& argument) {
  by.template call<&detail::any_handler>(options, argument);
};

}  // namespace hawser
