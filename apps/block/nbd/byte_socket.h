#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/loop.h"
#include "hawser/sync.h"
#include "hawser/task.h"
#include "hawser/transport/poller.h"

namespace hawser::block::nbd {

// Owns a file descriptor.
class SocketDescriptor {
 public:
  SocketDescriptor() noexcept = default;
  explicit SocketDescriptor(int number) noexcept : number_(number) {}
  SocketDescriptor(SocketDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  SocketDescriptor& operator=(SocketDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~SocketDescriptor();
  int get() const noexcept { return number_; }
  bool valid() const noexcept { return number_ >= 0; }

 private:
  int number_ = -1;
};

// A connected socket on a loop. The installed headers of Hawser have the interface of a byte stream, and no byte stream
// for applications.
class ByteSocket final : exec::Watcher, exec::Source {
 public:
  class Owner {
   public:
    // The rest of what send() did not accept can be sent.
    virtual void on_writable() = 0;
    // The peer sends nothing after what it has sent.
    virtual void on_peer_end() = 0;

   protected:
    ~Owner() = default;
  };

  // `socket` does not block. Throws std::system_error if the system takes no more descriptors.
  ByteSocket(Loop& loop, SocketDescriptor socket, Owner& owner);
  ~ByteSocket();

  // Receives at least one byte. 0: the peer has ended its direction, the connection broke, or stop_receiving() was
  // called. One task at a time.
  Task<std::size_t> receive(MutableBytes into);
  void stop_receiving() noexcept;

  // Sends as many bytes of the pieces as the kernel takes. After fewer than all, the owner waits for on_writable(),
  // unless broken().
  std::size_t send(std::span<const ConstBuffer> pieces) noexcept;
  // Bytes that were not sent are lost.
  bool broken() const noexcept { return broken_; }
  // The peer has ended its direction, or both. Bytes that it sent before may be there.
  bool peer_ended() const noexcept { return closing_; }
  // Ends both directions at once.
  void abort() noexcept;

 private:
  // Polls without a byte after which the loop does not poll the socket any more.
  static constexpr unsigned idle_polls_max = 4096;
  // Sockets and other sources that the loop polls.
  static constexpr std::size_t hot_max = 8;
  // Receives of one task without a turn of the loop.
  static constexpr unsigned receives_per_turn = 4;

  void on_ready(exec::Readiness readiness) override;
  bool poll() override;
  bool try_receive(MutableBytes into) noexcept;
  void set_hot(bool hot) noexcept;

  Loop& loop_;
  const SocketDescriptor socket_;
  Owner& owner_;
  Event arrived_;         // Something has been received into `waiting_`, or nothing more will be.
  MutableBytes waiting_;  // Memory of a receive() that waits.
  std::size_t got_ = 0;   // Bytes that were received there.
  bool readable_ = true;  // A receive may find bytes.
  bool closing_ = false;  // The peer's end was notified, so that no further edge follows.
  bool ended_ = false;    // Nothing more is received.
  bool broken_ = false;
  bool blocked_ = false;  // The kernel did not take all of a send.
  bool hot_ = false;      // The loop polls the socket.
  unsigned idle_polls_ = 0;
  unsigned receives_ = 0;  // Since the last turn of the loop.
};

// Listens at "HOST:PORT", "unix:/path" or "unix:@name".
class NbdListening {
 public:
  static Result<NbdListening> open(const std::string& address);
  NbdListening(NbdListening&& other) noexcept
      : socket_(std::move(other.socket_)), address_(std::move(other.address_)), file_(std::exchange(other.file_, {})) {}
  NbdListening& operator=(NbdListening&&) = delete;
  // Removes the file of a Unix socket, unless it is that of another socket by now.
  ~NbdListening();

  int descriptor() const noexcept { return socket_.get(); }
  // With the port that the system has chosen.
  const std::string& address() const noexcept { return address_; }

 private:
  // The file of a Unix socket. The system does not use the number of its inode again while the socket exists.
  struct SocketFile {
    std::string path;  // Empty: no file.
    dev_t device = 0;
    ino_t inode = 0;
  };

  NbdListening(SocketDescriptor socket, std::string address, SocketFile file) noexcept
      : socket_(std::move(socket)), address_(std::move(address)), file_(std::move(file)) {}
  static Result<NbdListening> open_unix(const std::string& address, const std::string& path);
  static Result<NbdListening> open_tcp(const std::string& address);

  SocketDescriptor socket_;
  std::string address_;
  SocketFile file_;
};

}  // namespace hawser::block::nbd
