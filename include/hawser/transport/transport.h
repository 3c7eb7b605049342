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
#include "hawser/transport/connection.h"
#include "hawser/transport/stream.h"

namespace hawser {
class Loop;
}

namespace hawser::transport {

// The interfaces of a transport that carries messages beside the byte stream on which the peers meet. In their HELLOs
// the peers agree on one (docs/wire-format.md, "Paths"):
//
//   client  HELLO, with offer() of each of its transports
//   server  HELLO, with the parameters of the pending connection that select() made
//   client  answer, with the parameters of the pending connection that accept() made and connected
//   server  PendingConnection::connect(), then "ready"
//
// Afterwards each side calls open() of its pending connection. If a step before that fails, the server selects its next
// transport, and the byte stream if none is left. The reason is kept. No step may block the loop: select(), accept()
// and connect() begin what takes long, and a function that the caller gives is called when it has ended.

// The longest messages of one connection, head and payload together, and how they may travel.
struct MessageLimits {
  std::size_t send_bytes_max = 0;     // The peer receives no longer message.
  std::size_t receive_bytes_max = 0;  // A longer message from the peer ends the connection.
  // The messages will be signed or encrypted (docs/security.md). Nobody can sign what a device reads from this
  // process's memory or writes into it, so such a connection should not let the peer's device do that.
  bool protected_messages = false;
};

// The most bytes of one offer, or of one pending connection's parameters.
inline constexpr std::size_t transport_offer_bytes_max = 512;
inline constexpr std::size_t transport_parameters_bytes_max = 2048;
// The limit of TransportWorker::probe_bytes().
inline constexpr std::size_t transport_probe_bytes_max = 8192;

// One side of a connection that is being made. It holds resources and carries no message yet. Destroying it releases
// all.
class PendingConnection {
 public:
  using Ready = std::function<void(Result<void>)>;

  virtual ~PendingConnection() = default;
  // The data that the peer needs to connect to this one; at most transport_parameters_bytes_max.
  virtual std::vector<std::byte> parameters() const = 0;
  // Called once, after select() or accept() and before every other function. Calls `ready` once, on the loop, possibly
  // from within this call, when the pending connection has been made, or has failed. `ready` may destroy the pending
  // connection, so it must not run in a member of it: move it to a local variable first. A pending connection that is
  // destroyed does not call.
  virtual void when_ready(Ready ready) { ready({}); }
  // Server: connects to the client's pending connection, whose parameters come from the peer and are not to be trusted.
  // Calls `ready` as when_ready() does. When it is called without an error, the pending connection can receive.
  virtual void connect(Bytes client, Ready ready) = 0;
  // Makes the connection, which belongs to the loop. Called once, when both pending connections are connected. `stream`
  // is the byte stream on which the peers met. It has been started on the loop and is paused, and nothing is being sent
  // or received on it. The connection sets its sink and keeps it open: its end shows that the peer has ended.
  virtual std::unique_ptr<Connection> open(std::unique_ptr<Stream> stream) = 0;
};

// The part of a transport that serves one loop: queues and memory that all its connections there share. Belongs to the
// loop and its thread.
class TransportWorker {
 public:
  virtual ~TransportWorker() = default;
  // False if it can make no more connections, for example because its device was removed. Transport::attach() may then
  // find another device.
  virtual bool usable() const noexcept { return true; }
  // Selects the worker for a connection whose byte stream has the local address `local` ("host:port"): this one, or the
  // one of the device through which the route to the peer leads. Valid as long as this worker, until the next call.
  virtual TransportWorker& select_device(std::string_view local) {
    static_cast<void>(local);
    return *this;
  }
  // Client: the data by which a server judges whether this transport leads to this client; at most
  // transport_offer_bytes_max.
  virtual std::vector<std::byte> offer() = 0;
  // Server: begins to make a pending connection for a client that made `offer`. Any peer can send any offer. The error,
  // here or in PendingConnection::when_ready(), says to an operator why this transport does not lead to the client, or
  // which resource is exhausted.
  virtual Result<std::unique_ptr<PendingConnection>> select(Bytes offer, const MessageLimits& limits) = 0;
  // Client: begins to make a pending connection. When it is ready, it is connected to the server's, so that it can
  // receive. Any peer can send any parameters.
  virtual Result<std::unique_ptr<PendingConnection>> accept(Bytes server, const MessageLimits& limits) = 0;
  // Client: length of a message that fills the packets of this transport, at most transport_probe_bytes_max. One such
  // message is sent in each direction before a connection carries calls. 0: the size makes no difference.
  virtual std::size_t probe_bytes() const noexcept { return 0; }
  // Client: a connection to the server with these parameters carried short messages, but none of probe_bytes(). True if
  // the next connection that accept() makes to this server uses shorter packets in both directions. False if there are
  // no shorter ones.
  virtual bool use_shorter_packets(Bytes server) {
    static_cast<void>(server);
    return false;
  }
};

// The address of exposed memory for a peer, through one device of a transport.
struct ExposedPlace {
  std::uint64_t domain = 0;  // Identifies the device while it is open; not 0.
  std::uint64_t address = 0;
  std::uint32_t key = 0;
};

// A part of registered memory that peers may read or write while this exists. Any thread may destroy it.
class MemoryExposure {
 public:
  virtual ~MemoryExposure() = default;
  virtual std::vector<ExposedPlace> places() const = 0;
  // The devices that refused it, each with its reason.
  virtual std::vector<std::string> left_out() const { return {}; }
  // A device of places() was removed, so that the handles of peers are invalid. Any thread.
  virtual bool lost() const noexcept { return false; }
};

// Memory of the application that is registered with a transport while this exists. Any thread may destroy it.
// Afterwards no transfer begins there. A transfer that has begun continues if the memory is kept. Otherwise its
// connection breaks, and the memory is not accessed any more.
class MemoryRegistration {
 public:
  virtual ~MemoryRegistration() = default;
  // Exposes `stretch`, which must lie within the memory. The result is an error only if every device refuses.
  virtual Result<std::unique_ptr<MemoryExposure>> expose(MutableBytes stretch, bool readable, bool writable) = 0;
};

// Memory behind a dma-buf descriptor, which the processor cannot access.
struct DmabufMemory {
  // Names the memory in segments, runs and places. No memory is mapped there. The addresses belong to nothing else, and
  // their offset within a page is that of `offset`.
  MutableBytes addresses;
  int descriptor = -1;
  std::uint64_t offset = 0;  // Place of the first byte in the memory behind the descriptor.
};

// Counters of one device of a transport.
struct TransportMemory {
  std::string device;
  std::size_t registered_bytes = 0;  // Registered by the transport itself.
  std::size_t used_bytes = 0;        // The used part of registered_bytes.
  std::size_t used_bytes_max = 0;    // The highest value of used_bytes.
  std::uint64_t refused = 0;         // Requests that the limit refused.
  std::size_t connections = 0;
  std::size_t connection_bytes = 0;  // Used by each connection while it is idle.
  std::size_t user_bytes = 0;        // Registered by the application.
  std::uint64_t user_sends = 0;      // Payloads that were sent from there without a copy.
  std::uint64_t user_receives = 0;   // Payloads that were received there without a copy.
};

// A transport with its options. Thread-safe.
class Transport {
 public:
  virtual ~Transport() = default;
  // The name in Connection::transport(), in options and on the wire. A literal, such as "shm".
  virtual std::string_view name() const noexcept = 0;
  // The worker of `loop`; called on its thread. It is the same one as long as somebody keeps it. Connections keep it.
  // The error says why the transport does not work on this machine, and the remedy.
  virtual Result<std::shared_ptr<TransportWorker>> attach(Loop& loop) = 0;
  // Payloads in `memory` are sent and received without a copy while the result exists. `block` counts the users of the
  // memory and outlives the registration. `kept`: the memory outlives its users, too. The error is `unavailable` if the
  // transport cannot do this here, for example without a device. Null if the transport does not need registration.
  virtual Result<std::unique_ptr<MemoryRegistration>> register_memory(MutableBytes memory, Block& block, bool kept) {
    static_cast<void>(memory);
    static_cast<void>(block);
    static_cast<void>(kept);
    return nullptr;
  }
  // The same for memory that the processor cannot access. Only RemoteOperations use it. The addresses and the
  // descriptor last as long as the result. The error is `unavailable` if the transport, or each of its devices, cannot
  // use such memory.
  virtual Result<std::unique_ptr<MemoryRegistration>> register_dmabuf(const DmabufMemory& memory, Block& block) {
    static_cast<void>(memory);
    static_cast<void>(block);
    return fail(Error::of_transport(ErrorCode::unavailable, std::string(name()) + " moves bytes with the processor"));
  }
  virtual std::vector<TransportMemory> memory() { return {}; }
};

}  // namespace hawser::transport
