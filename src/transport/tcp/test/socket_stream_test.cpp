#include "hawser/socket_stream.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "hawser/scope.h"
#include "transport/stream_security.h"
#include "transport/tcp/test/tcp_testing.h"

namespace hawser::transport {
namespace {

// A SocketStream on the loop. The test holds the other end of its socket.
class SocketStreamTest : public TcpLoopTest {
 protected:
  void SetUp() override {
    TcpLoopTest::SetUp();
    if (IsSkipped()) return;
    std::array<int, 2> ends{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    peer = Descriptor(ends[1]);
    Result<SocketStream> adopted = SocketStream::adopt(loop, ends[0]);
    ASSERT_TRUE(adopted) << adopted.error().describe();
    stream.emplace(std::move(*adopted));
  }
  void peer_sends(std::string_view text) {
    ASSERT_EQ(::send(peer.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT),
              static_cast<ssize_t>(text.size()));
  }
  std::string peer_receives() {
    std::string text(1 << 20, '\0');
    const ssize_t size = ::recv(peer.get(), text.data(), text.size(), MSG_DONTWAIT);
    text.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
    return text;
  }
  void peer_ends_its_direction() { ASSERT_EQ(::shutdown(peer.get(), SHUT_WR), 0); }
  // The connection breaks: bytes of the stream are lost there.
  void peer_resets() {
    ASSERT_TRUE(loop.run(stream->send(as_bytes(std::string_view("lost")))));
    peer = Descriptor();
  }
  // Starts a task on the loop, which may wait there.
  void start(Task<void> task) {
    loop.run([](Scope& in, Task<void> started) -> Task<void> {
      in.spawn(std::move(started));
      co_return;
    }(scope, std::move(task)));
  }
  // Returns the result of one receive(): the bytes, "end", or the error.
  std::string receive(std::size_t bytes_max = 64) {
    std::string text(bytes_max, '\0');
    const Result<std::size_t> got = loop.run(stream->receive(std::as_writable_bytes(std::span(text))));
    if (!got) return "error: " + got.error().text;
    text.resize(*got);
    return *got == 0 ? "end" : text;
  }

  Descriptor peer;
  std::optional<SocketStream> stream;
  Scope scope;
};

INSTANTIATE_TEST_SUITE_P(Kinds, SocketStreamTest, exec::every_loop(), exec::name_of);

TEST_P(SocketStreamTest, ReceivesWhatThePeerSends) {
  peer_sends("early");
  EXPECT_EQ(receive(), "early");
  peer_sends("abcdef");
  EXPECT_EQ(receive(4), "abcd");
  EXPECT_EQ(receive(4), "ef");
  EXPECT_EQ(stream->peer(), "unix:pid " + std::to_string(getpid()));
  ASSERT_NE(stream->identity(), nullptr);
  EXPECT_EQ(stream->identity()->pid, getpid());
}

TEST_P(SocketStreamTest, ATaskWaitsForBytes) {
  std::array<std::byte, 8> memory{};
  Result<std::size_t> got = 0;
  start([](SocketStream& from, MutableBytes into, Result<std::size_t>& result) -> Task<void> {
    result = co_await from.receive(into);
  }(*stream, memory, got));
  turns(3);
  EXPECT_EQ(scope.size(), 1U);
  peer_sends("late");
  EXPECT_TRUE(until([&] { return scope.empty(); }));
  EXPECT_EQ(got.value_or(0), 4U);
}

TEST_P(SocketStreamTest, ReceivesNothingBetweenTwoCalls) {
  peer_sends("one");
  EXPECT_EQ(receive(), "one");
  peer_sends("two");
  turns(5);
  peer_sends("three");
  EXPECT_EQ(receive(), "twothree");
}

TEST_P(SocketStreamTest, SendsAllBytesToAPeerThatReceivesSlowly) {
  const std::string text = test_bytes(4 << 20);
  std::optional<Result<void>> sent;
  start([](SocketStream& to, const std::string& bytes, std::optional<Result<void>>& result) -> Task<void> {
    result = co_await to.send(as_bytes(std::string_view(bytes)));
  }(*stream, text, sent));
  EXPECT_FALSE(sent);  // The socket is full.
  std::string arrived;
  EXPECT_TRUE(until([&] {
    arrived += peer_receives();
    return arrived.size() == text.size();
  }));
  EXPECT_TRUE(until([&] { return sent.has_value(); }));
  EXPECT_TRUE(*sent);
  EXPECT_TRUE(arrived == text);
}

TEST_P(SocketStreamTest, SendsNowWhatTheSocketAccepts) {
  const std::string text = test_bytes(4 << 20);
  const ConstBuffer piece{as_bytes(text).data(), text.size()};
  const std::size_t first = stream->send_now(std::span(&piece, 1));
  ASSERT_GT(first, 0U);
  ASSERT_LT(first, text.size());
  const ConstBuffer rest{piece.data + first, text.size() - first};
  ASSERT_EQ(stream->send_now(std::span(&rest, 1)), 0U);
  bool writable = false;
  start([](SocketStream& to, bool& done) -> Task<void> {
    co_await to.wait(SocketEvent::writable);
    done = true;
  }(*stream, writable));
  EXPECT_FALSE(writable);
  std::string arrived;
  EXPECT_TRUE(until([&] {
    arrived += peer_receives();
    return writable;
  }));
  EXPECT_TRUE(arrived == text.substr(0, first));
  EXPECT_GT(stream->send_now(std::span(&rest, 1)), 0U);
}

TEST_P(SocketStreamTest, ThePeersEndIsNoticedWhileNothingReceives) {
  peer_sends("rest");
  EXPECT_FALSE(stream->peer_ended());
  peer_ends_its_direction();
  loop.run(stream->wait(SocketEvent::peer_end));
  EXPECT_TRUE(stream->peer_ended());
  EXPECT_FALSE(stream->broken());
  EXPECT_EQ(receive(), "rest");
  EXPECT_EQ(receive(), "end");
  EXPECT_EQ(receive(), "end");
}

TEST_P(SocketStreamTest, BytesFollowThePeersEnd) {
  peer_ends_its_direction();
  EXPECT_EQ(receive(), "end");
  ASSERT_TRUE(loop.run(stream->send(as_bytes(std::string_view("answer")))));
  ASSERT_TRUE(loop.run(stream->finish()));
  EXPECT_EQ(peer_receives(), "answer");
  char byte = 0;
  EXPECT_EQ(::recv(peer.get(), &byte, 1, MSG_DONTWAIT), 0);
}

TEST_P(SocketStreamTest, ReceivesAfterItsOwnEnd) {
  ASSERT_TRUE(loop.run(stream->finish()));
  peer_sends("answer");
  EXPECT_EQ(receive(), "answer");
}

TEST_P(SocketStreamTest, ABreakIsNoticedWhileNothingReceives) {
  peer_resets();
  loop.run(stream->wait(SocketEvent::broken));
  EXPECT_TRUE(stream->broken());
  EXPECT_THAT(receive(), testing::StartsWith("error: "));
  const Result<void> sent = loop.run(stream->send(as_bytes(std::string_view("more"))));
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, ErrorCode::unavailable);
  EXPECT_FALSE(loop.run(stream->finish()));
  loop.run(stream->wait(SocketEvent::writable));
  loop.run(stream->wait(SocketEvent::peer_end));
}

// A peer that has closed both directions looks like one that still receives.
TEST_P(SocketStreamTest, ASendFindsAPeerThatHasGone) {
  peer = Descriptor();
  EXPECT_EQ(receive(), "end");
  EXPECT_FALSE(stream->broken());
  EXPECT_FALSE(loop.run(stream->send(as_bytes(std::string_view("nobody")))));
  EXPECT_TRUE(stream->broken());
}

TEST_P(SocketStreamTest, StopReceivingEndsAReceive) {
  std::array<std::byte, 8> memory{};
  std::optional<Result<std::size_t>> got;
  start([](SocketStream& from, MutableBytes into, std::optional<Result<std::size_t>>& result) -> Task<void> {
    result = co_await from.receive(into);
  }(*stream, memory, got));
  stream->stop_receiving();
  EXPECT_TRUE(until([&] { return got.has_value(); }));
  EXPECT_EQ(got->value_or(1), 0U);
  peer_sends("ignored");
  EXPECT_EQ(receive(), "end");
  EXPECT_FALSE(stream->broken());
}

TEST_P(SocketStreamTest, AbortEndsEverything) {
  std::array<std::byte, 8> memory{};
  std::optional<Result<std::size_t>> got;
  start([](SocketStream& from, MutableBytes into, std::optional<Result<std::size_t>>& result) -> Task<void> {
    result = co_await from.receive(into);
  }(*stream, memory, got));
  stream->abort();
  EXPECT_TRUE(stream->broken());
  loop.run(stream->wait(SocketEvent::broken));
  EXPECT_TRUE(until([&] { return got.has_value(); }));
  EXPECT_FALSE(*got);
  char byte = 0;
  EXPECT_EQ(::recv(peer.get(), &byte, 1, MSG_DONTWAIT), 0);
}

TEST_P(SocketStreamTest, TasksThatWaitEndWithTheStream) {
  std::array<std::byte, 8> memory{};
  std::optional<Result<std::size_t>> got;
  bool broken = false;
  start([](SocketStream& from, MutableBytes into, std::optional<Result<std::size_t>>& result) -> Task<void> {
    result = co_await from.receive(into);
  }(*stream, memory, got));
  start([](SocketStream& of, bool& done) -> Task<void> {
    co_await of.wait(SocketEvent::broken);
    done = true;
  }(*stream, broken));
  stream.reset();
  EXPECT_TRUE(until([&] { return scope.empty(); }));
  ASSERT_TRUE(got);
  ASSERT_FALSE(*got);
  EXPECT_EQ(got->error().code, ErrorCode::cancelled);
  EXPECT_TRUE(broken);
}

// Another loop at the address of the one that ended does not know the socket.
TEST_P(SocketStreamTest, OutlivesItsLoop) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const Descriptor other(ends[1]);
  std::optional<Loop> own(exec::options_of(GetParam()));
  std::optional<Result<SocketStream>> adopted(SocketStream::adopt(*own, ends[0]));
  ASSERT_TRUE(*adopted);
  SocketStream& outlives = **adopted;
  std::array<std::byte, 8> memory{};
  ASSERT_EQ(::send(other.get(), "two", 3, MSG_NOSIGNAL), 3);
  // The receive that found bytes has made the socket one of the loop's sources.
  EXPECT_EQ(own->run(outlives.receive(memory)).value_or(0), 3U);
  own.reset();
  EXPECT_TRUE(outlives.broken());
  EXPECT_EQ(::recv(other.get(), memory.data(), 1, MSG_DONTWAIT), 0) << "the socket is closed";
  EXPECT_EQ(outlives.peer(), "unix:pid " + std::to_string(getpid()));
  EXPECT_EQ(outlives.identity(), nullptr);
  outlives.abort();
  outlives.stop_receiving();
  EXPECT_EQ(outlives.send_now({}), 0U);

  own.emplace(exec::options_of(GetParam()));
  const Result<std::size_t> got = own->run(outlives.receive(memory));
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, ErrorCode::cancelled);
  EXPECT_FALSE(own->run(outlives.finish()));
  adopted.reset();
}

TEST_P(SocketStreamTest, ASendContinuesWhenTheStreamWasMoved) {
  const std::string text = test_bytes(4 << 20);
  std::optional<Result<void>> sent;
  start([](SocketStream& to, const std::string& bytes, std::optional<Result<void>>& result) -> Task<void> {
    result = co_await to.send(as_bytes(std::string_view(bytes)));
  }(*stream, text, sent));
  ASSERT_FALSE(sent);
  const SocketStream moved(std::move(*stream));
  stream.reset();
  std::size_t arrived = 0;
  EXPECT_TRUE(until([&] {
    arrived += peer_receives().size();
    return sent.has_value();
  }));
  EXPECT_TRUE(*sent);
  EXPECT_FALSE(moved.broken());
}

TEST_P(SocketStreamTest, NoBytesAreNeverRefused) {
  EXPECT_EQ(stream->send_now({}), 0U);
  const ConstBuffer nothing{nullptr, 0};
  EXPECT_EQ(stream->send_now(std::span(&nothing, 1)), 0U);
  start(stream->wait(SocketEvent::writable));
  EXPECT_TRUE(scope.empty());
}

// It has no memory for a stream.
struct FailingSecurity final : ServerSecurity {
  Result<void> prepare() override { return {}; }
  Match match(Bytes) const noexcept override { return Match::no; }
  std::unique_ptr<Stream> protect(Loop&, std::unique_ptr<Stream>, Bytes, const std::string&) override {
    throw std::bad_alloc();
  }
  std::string refusal_of_plain(const Stream&) const override { return {}; }
  std::string_view stream_only(const Stream&) const noexcept override { return {}; }
  PathProtection path_protection() const noexcept override { return PathProtection::sealed_messages; }
  Result<PathSecurity> secure_path(Stream&, const PathTerms&) override { return fail(ErrorCode::internal, ""); }
};

TEST_P(SocketStreamTest, BreaksWhenTlsCannotBegin) {
  FailingSecurity security;
  stream->secure(security, {});
  EXPECT_TRUE(stream->broken());
  stream->abort();
  EXPECT_EQ(receive(), "error: std::bad_alloc");
  EXPECT_EQ(stream->refusal_of_plain(security), "std::bad_alloc");
  stream->secure(security, {});
  stream.reset();
}

TEST_P(SocketStreamTest, NothingIsReceivedForATaskThatWasDestroyed) {
  std::array<std::byte, 8> memory{};
  start([](SocketStream& from, MutableBytes into) -> Task<void> { static_cast<void>(co_await from.receive(into)); }(
                                                      *stream, memory));
  scope.clear();
  peer_sends("later");
  turns(5);
  EXPECT_EQ(memory[0], std::byte{0});
  EXPECT_EQ(receive(), "later");
}

TEST_P(SocketStreamTest, OnlyAConnectedStreamSocketIsAdopted) {
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(pipe2(pipe_ends.data(), O_CLOEXEC), 0);
  const Descriptor writing(pipe_ends[1]);
  const int datagrams = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const int unconnected = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  for (const int descriptor : {-1, pipe_ends[0], datagrams, unconnected}) {
    const Result<SocketStream> adopted = SocketStream::adopt(loop, descriptor);
    ASSERT_FALSE(adopted) << descriptor;
    EXPECT_EQ(adopted.error().code, ErrorCode::invalid_argument);
    EXPECT_EQ(adopted.error().text, "descriptor " + std::to_string(descriptor) + " is not a connected stream socket");
    EXPECT_EQ(fcntl(descriptor, F_GETFD), -1) << "it was closed";
  }
}

}  // namespace
}  // namespace hawser::transport
