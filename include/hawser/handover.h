#pragma once

#include <functional>
#include <memory>
#include <string>

#include "hawser/error.h"
#include "hawser/server.h"
#include "hawser/time.h"

// The next process of a server takes over from the running one, without a failed call: docs/guide/10-deployment.md. Not
// part of hawser.h.
//
//   auto before = hawser::Predecessor::ask("/run/shop/handover");
//   if (!before) return error(before.error());
//   options.listen = before->listen("0.0.0.0:9000");
//   hawser::Server server(options);
//   if (auto started = server.start(); !started) return error(started.error());
//   auto handover = hawser::Handover::begin(server, std::move(*before), {.taken = end_this_program});
namespace hawser {

// The process that serves now and offers its listening sockets at a Unix socket. For one thread.
class Predecessor {
 public:
  // Asks at the Unix socket `path` for the listening sockets. Blocks, at most 30 s to connect and 30 s for the answer.
  // If nobody offers any, the result is a Predecessor without a process. `permission_denied`: `path` belongs to a
  // process of another user than this one's or root. `unavailable`: the process has not answered; it goes on serving.
  static Result<Predecessor> ask(std::string path);
  Predecessor(Predecessor&& other) noexcept;
  Predecessor& operator=(Predecessor&& other) noexcept;
  // The process goes on serving unless Handover::begin() has followed.
  ~Predecessor();

  // True if a process offers its sockets.
  bool exists() const noexcept;
  // A value for ServerOptions::listen: the sockets of that process, such as "fd:5", or `otherwise` without a process.
  // Call it once. The server owns the sockets from its start on.
  std::string listen(std::string otherwise);

 private:
  friend class Handover;
  struct State;
  explicit Predecessor(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

struct HandoverOptions {
  // A successor that does not serve within this time after it received the sockets is given up. This process goes on.
  Duration ready_max = std::chrono::seconds(60);
  // Time for clients to learn that they have to connect again. What they send until then is served. Clients that
  // connect and send nothing use all of it. So do idle connections of HTTP/1.1: a client learns it by the next
  // response, and loses no request if it sends one within this time. Connections of `baidu_std`, RESP and
  // protocols of the program end when they are quiet for 1 s.
  Duration leave_max = std::chrono::seconds(5);
  // See Server::stop(), which follows.
  Duration grace = std::chrono::seconds(30);
  // Called when a successor serves and the server of this process has stopped, on a thread of the Handover: the program
  // ends now. It must not destroy the Handover. A program that waits for signals sends one to itself.
  std::function<void()> taken = {};
};

// Offers the listening sockets of a server to the next process, at the Unix socket of its Predecessor. Processes of
// this user and of root may ask. The Handover has a thread. Destroy it before the server, and not on the server's
// loops.
class Handover {
 public:
  // `server` serves: its predecessor, if there is one, leaves and stops. Blocks until the predecessor has answered
  // that it leaves, at most 30 s; then it closes its sockets. `server` must have loops of its own, and at most 64
  // listening sockets. If this fails, the predecessor may still serve, at the same sockets: stop `server`. If the
  // predecessor leaves and this process cannot listen at the Unix socket, `server` logs it, and the result is a
  // Handover that offers nothing.
  static Result<std::unique_ptr<Handover>> begin(Server& server, Predecessor predecessor, HandoverOptions options = {});
  Handover(const Handover&) = delete;
  Handover& operator=(const Handover&) = delete;
  // Offers the sockets no more. Waits while a successor takes over. Does nothing in a child by fork().
  ~Handover();

 private:
  struct State;
  explicit Handover(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hawser
