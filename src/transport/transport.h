#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "transport/connection.h"
#include "transport/stream.h"

namespace hawser {
class Loop;
}

namespace hawser::transport {

// Ways to carry messages other than the stream that the peers met on: shared memory, RDMA, UCX. Peers meet over the
// stream, and in their hellos agree on a transport (docs/wire-format.md, "Paths"):
//
//   client  hello, with offer() of each of its transports
//   server  hello, with the parameters of the pending connection that select() made
//   client  answer, with the parameters of the pending connection that accept() made and connected
//   server  PendingConnection::connect(), then a go
//
// after which each side open()s its pending connection. Whatever fails before that makes the server select its next
// transport, at last the stream itself, and the reason is kept.

// The longest messages of one connection, head and payload together.
struct MessageLimits {
  std::size_t send_bytes_max = 0;     // What the peer takes.
  std::size_t receive_bytes_max = 0;  // What we take; a longer message ends the connection.
};

// The most bytes of one offer, or of one pending connection's parameters.
inline constexpr std::size_t transport_offer_bytes_max = 512;
inline constexpr std::size_t transport_parameters_bytes_max = 2048;
// Of TransportWorker::probe_bytes().
inline constexpr std::size_t transport_probe_bytes_max = 8192;

// One side of a connection that is being made: holds what it needs, carries nothing yet. Destroying it gives all back.
class PendingConnection {
 public:
  using Ready = std::function<void(Result<void>)>;

  virtual ~PendingConnection() = default;
  // What the peer must know of this pending connection; at most transport_parameters_bytes_max.
  virtual std::vector<std::byte> parameters() const = 0;
  // Server: connects to the client's pending connection, whose parameters come from the peer and are not to be trusted.
  // From the end of this call on the pending connection can receive.
  virtual Result<void> connect(Bytes client) = 0;
  // Of a pending connection that begin_select() or begin_accept() gave: calls `ready` on the loop, once, when it is as
  // one that select() or accept() gives, or has failed. Perhaps from within. Until then nothing else of it is called;
  // destroyed before, it does not call.
  virtual void when_ready(Ready ready) { ready({}); }
  // As connect(), without blocking the loop. `ready` as above.
  virtual void begin_connect(Bytes client, Ready ready) { ready(connect(client)); }
  // The connection, which belongs to the loop. `stream`, on which nothing is under way, stays open for as long as both
  // sides live: its end ends the connection. It is paused, and its sink is the connection's to set. Once, and only when
  // both pending connections are connected.
  virtual std::unique_ptr<Connection> open(std::unique_ptr<Stream> stream) = 0;
};

// This side's end of a transport on one loop, shared by all its connections there: queues, registered memory. Belongs
// to the loop and its thread.
class TransportWorker {
 public:
  virtual ~TransportWorker() = default;
  // False once it can make no more connections, its device having gone: attaching anew may find another.
  virtual bool usable() const noexcept { return true; }
  // What to ask for a connection whose stream has the local address `local` ("host:port"): this, or the end on the
  // device that the way to the peer leads through. Lasts as long as this, until it is asked again.
  virtual TransportWorker& select_device(std::string_view local) {
    static_cast<void>(local);
    return *this;
  }
  // Client: what a server must know to judge whether this transport leads to us; at most transport_offer_bytes_max.
  virtual std::vector<std::byte> offer() = 0;
  // Server: a pending connection for a client that made `offer`, which is not to be trusted. The error says, to an
  // operator, why this transport does not lead there, or what is used up.
  virtual Result<std::unique_ptr<PendingConnection>> select(Bytes offer, const MessageLimits& limits) = 0;
  // Client: a pending connection that is connected to the server's, so that it can receive.
  virtual Result<std::unique_ptr<PendingConnection>> accept(Bytes server, const MessageLimits& limits) = 0;
  // As these, without blocking the loop for what the kernel takes long to do: see PendingConnection::when_ready().
  virtual Result<std::unique_ptr<PendingConnection>> begin_select(Bytes offer, const MessageLimits& limits) {
    return select(offer, limits);
  }
  virtual Result<std::unique_ptr<PendingConnection>> begin_accept(Bytes server, const MessageLimits& limits) {
    return accept(server, limits);
  }
  // Client: how long a message must be to fill this transport's packets, at most transport_probe_bytes_max: one is sent
  // each way before a connection carries calls. 0: size makes no difference.
  virtual std::size_t probe_bytes() const noexcept { return 0; }
  // Client: a connection to the server of those parameters carried short messages, but none of probe_bytes(). True if
  // the next one that accept() makes for it uses shorter packets in both directions; false if there are none.
  virtual bool use_shorter_packets(Bytes server) {
    static_cast<void>(server);
    return false;
  }
};

// What a peer must know to reach exposed memory through one of a transport's devices.
struct ExposedPlace {
  std::uint64_t domain = 0;  // Of the device, as long as it is open; not 0.
  std::uint64_t address = 0;
  std::uint32_t key = 0;
};

// A stretch of registered memory that peers may read or write, for as long as this lives. Any thread may destroy it.
class MemoryExposure {
 public:
  virtual ~MemoryExposure() = default;
  virtual std::vector<ExposedPlace> places() const = 0;
  // The devices that refused it, each with its reason.
  virtual std::vector<std::string> left_out() const { return {}; }
  // A device of places() has gone, and with it what peers had. Any thread.
  virtual bool lost() const noexcept { return false; }
};

// Memory of the application's that a transport knows, for as long as this lives. Any thread may destroy it: afterwards
// no transfer begins there. One under way goes on if the memory is kept, or else breaks its connection without touching
// the memory.
class MemoryRegistration {
 public:
  virtual ~MemoryRegistration() = default;
  // The stretch lies within the memory. An error only if every device refuses it.
  virtual Result<std::unique_ptr<MemoryExposure>> expose(MutableBytes stretch, bool readable, bool writable) = 0;
};

// Of one device of a transport.
struct TransportMemory {
  std::string device;
  std::size_t registered_bytes = 0;  // By the transport itself.
  std::size_t used_bytes = 0;        // Of these.
  std::size_t used_bytes_max = 0;    // High water.
  std::uint64_t refused = 0;         // Times that its bound was met.
  std::size_t connections = 0;
  std::size_t connection_bytes = 0;  // Of each, while it is idle.
  std::size_t user_bytes = 0;        // Registered by the application.
  std::uint64_t user_sends = 0;      // Payloads that went from there without a copy, and into it.
  std::uint64_t user_receives = 0;
};

// A transport as the options want it. Thread-safe.
class Transport {
 public:
  virtual ~Transport() = default;
  // As in Connection::transport() and on the wire, a literal: "shm", "rdma", "ucx".
  virtual std::string_view name() const noexcept = 0;
  // The end on `loop`, called on its thread; the same one for as long as somebody keeps it. Connections keep it. The
  // error says why the transport can't be had on this machine, and the remedy.
  virtual Result<std::shared_ptr<TransportWorker>> attach(Loop& loop) = 0;
  // From now on `memory` is sent from and received into without a copy. `block` counts who uses it, and outlives the
  // registration; `kept`: the memory stays too until its count is down. The error is `unavailable` if the transport
  // can't do that here, without a device for example; null from a transport that has no use for it.
  virtual Result<std::unique_ptr<MemoryRegistration>> register_memory(MutableBytes memory, Block& block, bool kept) {
    static_cast<void>(memory);
    static_cast<void>(block);
    static_cast<void>(kept);
    return nullptr;
  }
  virtual std::vector<TransportMemory> memory() { return {}; }
};

}  // namespace hawser::transport
