#include "transport/tcp/tcp_stream.h"

#include <netinet/in.h>
#include <sys/mman.h>

#include <algorithm>
#include <optional>
#include <random>
#include <thread>

#include "exec/io_uring.h"
#include "transport/common/link_facts.h"
#include "transport/tcp/test/tcp_testing.h"

namespace hawser::transport {
namespace {

INSTANTIATE_TEST_SUITE_P(Kinds, StreamTest, exec::every_loop(), exec::name_of);

ConstBuffer piece_of(std::string_view text) { return {as_bytes(text).data(), text.size()}; }

TEST_P(StreamTest, ReceivesInOrder) {
  start();
  std::string expected;
  for (unsigned i = 0; i < 50; ++i) {
    const std::string text = test_bytes(1 + i * i, i);
    expected += text;
    write_all(text);
    if (i % 7 == 0) turns(2);
  }
  EXPECT_TRUE(until([&] { return sink.text.size() == expected.size(); }));
  EXPECT_TRUE(sink.text == expected);
  EXPECT_TRUE(sink.ends.empty());
}

TEST_P(StreamTest, MeasuresTcpAndNoUnixSocket) {
  const Stream& pair = *stream;
  EXPECT_FALSE(link_facts_of(&pair));
  const Descriptor listening(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(listening.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listening.get(), 1), 0);
  ASSERT_EQ(getsockname(listening.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  Descriptor connecting(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(connecting.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  const TcpStream tcp(std::move(connecting));
  const Stream& measured = tcp;
  const std::optional<LinkFacts> facts = link_facts_of(&measured);
  ASSERT_TRUE(facts);
  EXPECT_GT(facts->window_bytes, 0U);
  EXPECT_GE(facts->round_trip, Duration::zero());
  EXPECT_FALSE(link_facts_of<Stream>(nullptr));
}

TEST_P(StreamTest, ReceivesWhatCameBeforeItsStart) {
  write_all("early");
  start();
  EXPECT_TRUE(until([&] { return sink.text == "early"; }));
}

TEST_P(StreamTest, ReceivesIntoSmallSpaces) {
  sink.space_bytes = 7;
  start();
  const std::string text = test_bytes(5000);
  write_all(text);
  EXPECT_TRUE(until([&] { return sink.text.size() == text.size(); }));
  EXPECT_TRUE(sink.text == text);
}

TEST_P(StreamTest, TheEndComesOnceAndAfterAllBytes) {
  start();
  turns(2);
  write_all("last words");
  peer = {};
  EXPECT_TRUE(until([&] { return !sink.ends.empty(); }));
  turns(5);
  ASSERT_EQ(sink.ends.size(), 1U);
  EXPECT_EQ(sink.text, "last words");
  EXPECT_EQ(sink.ends[0].code, ErrorCode::unavailable);
  EXPECT_EQ(sink.ends[0].scope, ErrorScope::connection);
  EXPECT_EQ(sink.ends[0].initiator, Initiator::peer);
  EXPECT_EQ(stream->send(std::array{piece_of("x")}), 0U);
}

TEST_P(StreamTest, AnEndBeforeTheStartIsSeen) {
  write_all("x");
  peer = {};
  start();
  EXPECT_TRUE(until([&] { return !sink.ends.empty(); }));
  EXPECT_EQ(sink.text, "x");
}

TEST_P(StreamTest, FinishLeavesTheOtherWayOpen) {
  start();
  EXPECT_EQ(stream->send(std::array{piece_of("bye")}), 3U);
  stream->finish();
  EXPECT_EQ(read_some(), "bye");
  EXPECT_TRUE(peer_sees_the_end());
  write_all("answer");
  EXPECT_TRUE(until([&] { return sink.text == "answer"; }));
  EXPECT_TRUE(sink.ends.empty());
}

TEST_P(StreamTest, SendsAfterThePeersEnd) {
  sink.continues = true;
  start();
  write_all("question");
  ASSERT_EQ(shutdown(peer.get(), SHUT_WR), 0);
  EXPECT_TRUE(until([&] { return sink.questions == 1; }));
  turns(5);
  EXPECT_EQ(sink.text, "question");
  EXPECT_TRUE(sink.ends.empty());
  EXPECT_EQ(sink.questions, 1);
  // More than the socket holds, so that the peer's reading is noticed too.
  const std::string answer(4 << 20, 'x');
  std::size_t sent = stream->send(std::array{piece_of(answer)});
  EXPECT_LT(sent, answer.size());
  sink.on_sendable = [&] { sent += stream->send(std::array{piece_of(std::string_view(answer).substr(sent))}); };
  std::size_t received = 0;
  EXPECT_TRUE(until([&] { return (received += read_some().size()) == answer.size(); }));
  EXPECT_TRUE(sink.ends.empty());
  // The peer has gone, which a send or the poller notices.
  peer = {};
  EXPECT_TRUE(until([&] {
    stream->send(std::array{piece_of("x")});
    return !sink.ends.empty();
  }));
  turns(5);
  EXPECT_EQ(sink.ends.size(), 1U);
  EXPECT_EQ(sink.questions, 1);
}

// ---- Pausing ----

TEST_P(StreamTest, NothingComesWhilePaused) {
  start();
  pause();
  write_all("one ");
  turns(3);
  write_all("two");
  turns(3);
  EXPECT_EQ(sink.text, "");
  resume();
  EXPECT_EQ(sink.text, "") << "not from within resume()";
  EXPECT_TRUE(until([&] { return sink.text == "one two"; }));
}

TEST_P(StreamTest, PausedWithinACallItStopsThere) {
  sink.space_bytes = 10;
  sink.on_received = [&] { pause(); };
  start();
  const std::string text = test_bytes(95);
  write_all(text);
  for (std::size_t got = 10; got < 95; got += 10) {
    ASSERT_TRUE(until([&] { return sink.paused; }));
    ASSERT_EQ(sink.text, text.substr(0, got));
    turns(2);
    ASSERT_EQ(sink.text.size(), got);
    resume();
  }
  EXPECT_TRUE(until([&] { return sink.text == text; }));
}

TEST_P(StreamTest, PausedAndResumedWithinACallItGoesOn) {
  sink.space_bytes = 10;
  sink.on_received = [&] {
    pause();
    resume();
  };
  start();
  const std::string text = test_bytes(1000);
  write_all(text);
  EXPECT_TRUE(until([&] { return sink.text.size() == text.size(); }));
  EXPECT_TRUE(sink.text == text);
}

TEST_P(StreamTest, TheEndWaitsForResume) {
  start();
  turns(1);
  pause();
  write_all("data");
  peer = {};
  turns(5);
  EXPECT_TRUE(sink.ends.empty());
  resume();
  EXPECT_TRUE(until([&] { return !sink.ends.empty(); }));
  EXPECT_EQ(sink.text, "data");
}

TEST_P(StreamTest, APausedPeerIsHeldBack) {
  start();
  pause();
  const std::string text = test_bytes(64 * 1024);
  std::size_t written = 0;
  int idle = 0;
  while (idle < 5 && written < (std::size_t{64} << 20)) {
    const std::size_t size = write_some(text);
    written += size;
    idle = size == 0 ? idle + 1 : 0;
    if (size == 0) turns(2);
  }
  EXPECT_LT(written, std::size_t{16} << 20);
  resume();
  EXPECT_TRUE(until([&] { return sink.text.size() == written; }));
}

// The peer's process dies. A paused stream reports this once, and what came before can still be read.
TEST_P(StreamTest, APausedStreamIsToldThatItBroke) {
  for (const bool blocked : {false, true}) {
    connect_ends();
    sink = {};
    start();
    write_all("last words");
    sink.space_bytes = 4;
    sink.on_received = [&] { pause(); };
    ASSERT_TRUE(until([&] { return sink.paused; }));
    sink.on_received = nullptr;
    const std::string text = test_bytes(blocked ? std::size_t{4} << 20 : 1);
    const std::size_t sent = stream->send(std::array{piece_of(text)});
    ASSERT_EQ(sent < text.size(), blocked);
    sink.on_sendable = [&] { stream->send(std::array{piece_of(text)}); };
    turns(3);
    EXPECT_TRUE(sink.breaks.empty());
    peer = {};  // The peer has read nothing.
    EXPECT_TRUE(until([&] { return !sink.breaks.empty(); })) << blocked;
    turns(5);
    EXPECT_EQ(sink.breaks.size(), 1U);
    EXPECT_TRUE(sink.ends.empty());
    EXPECT_EQ(sink.text, "last");
    resume();
    EXPECT_TRUE(until([&] { return !sink.ends.empty(); }));
    EXPECT_EQ(sink.text, "last words");
    turns(3);
    EXPECT_EQ(sink.ends.size(), 1U);
    stream.reset();
  }
}

// A sink replaces another one that ignored the break, and never reads.
TEST_P(StreamTest, TheNextSinkIsToldThatThePausedStreamBroke) {
  start();
  turns(2);
  pause();
  stream->send(std::array{piece_of("x")});
  peer = {};
  ASSERT_TRUE(until([&] { return sink.breaks.size() == 1; }));
  TestSink next;
  stream->set_sink(next);
  resume();
  pause();
  next.paused = true;
  EXPECT_TRUE(until([&] { return next.breaks.size() == 1; }));
  stream.reset();
}

// ---- Large payloads ----

TEST_P(StreamTest, SpacesOfEverySizeKeepTheOrder) {
  start();
  std::mt19937_64 random(7);
  const std::size_t total = std::size_t{24} << 20;
  const std::string text = test_bytes(total);
  sink.on_received = [&] {
    constexpr std::array<std::size_t, 5> sizes{100, 60'000, 256 * 1024, 600'000, std::size_t{4} << 20};
    sink.space_bytes = sizes[random() % sizes.size()];
    if (random() % 50 == 0) pause();
  };
  std::size_t written = 0;
  EXPECT_TRUE(until([&] {
    if (sink.paused) resume();
    if (random() % 4 != 0) written += write_some(std::string_view(text).substr(written, 1 + random() % 3'000'000));
    return sink.text.size() == total;
  }));
  EXPECT_TRUE(sink.text == text);
}

TEST_P(StreamTest, TheEndIsSeenAmongLargeSpaces) {
  sink.space_bytes = std::size_t{4} << 20;
  start();
  const std::string text = test_bytes(100'000);
  for (int i = 0; i < 20; ++i) {
    write_all(text);
    turns(1);
  }
  peer = {};
  EXPECT_TRUE(until([&] { return !sink.ends.empty(); }));
  EXPECT_EQ(sink.text.size(), 20 * text.size());
}

// ---- Sinks and lifetimes ----

TEST_P(StreamTest, ASinkMayHandOverWithinACall) {
  TestSink second;
  sink.space_bytes = 4;
  sink.on_received = [&] { stream->set_sink(second); };
  start();
  write_all("headrest of it");
  EXPECT_TRUE(until([&] { return second.text == "rest of it"; }));
  EXPECT_EQ(sink.text, "head");
}

// The kernel must not keep the socket open for an operation in progress.
TEST_P(StreamTest, DestroyingItClosesItAtOnce) {
  for (int round = 0; round < 3; ++round) {
    start();
    turns(2);
    if (round == 1) pause();
    EXPECT_FALSE(peer_sees_the_end());
    stream.reset();
    EXPECT_TRUE(peer_sees_the_end()) << "round " << round;
    turns(2);
    connect_ends();
  }
}

TEST_P(StreamTest, OneMayBeDestroyedFromAnothersCall) {
  start();
  std::unique_ptr<TcpStream> first = std::move(stream);
  Descriptor first_peer = std::move(peer);
  connect_ends();
  TestSink victims;
  stream->start(loop, victims);
  sink.on_received = [&] { stream.reset(); };
  victims.on_received = [&] { first.reset(); };
  turns(2);
  // Both are ready at once. The first that is notified ends the other.
  ASSERT_EQ(::send(first_peer.get(), "x", 1, 0), 1);
  write_all("y");
  turns(5);
  EXPECT_EQ(sink.text.size() + victims.text.size(), 1U);
}

// Bytes that a ring has received for a destroyed stream must not reach the stream that replaced it.
TEST_P(StreamTest, BytesOfTheGoneReachNobody) {
  constexpr std::size_t count = 20;
  std::vector<std::unique_ptr<TestSink>> sinks;
  std::vector<std::unique_ptr<TcpStream>> streams;
  std::vector<Descriptor> peers;
  std::vector<std::unique_ptr<TcpStream>> after;
  TestSink quiet;
  for (std::size_t i = 0; i < count; ++i) {
    connect_ends();
    sinks.push_back(std::make_unique<TestSink>());
    stream->start(loop, *sinks.back());
    // The first that is notified ends all others, and the same number of streams replaces them.
    sinks.back()->on_received = [&, i] {
      for (std::size_t other = 0; other < count; ++other) {
        if (other != i) streams[other].reset();
      }
      for (std::size_t fresh = 0; fresh < count && after.size() < count; ++fresh) {
        connect_ends();
        stream->start(loop, quiet);
        after.push_back(std::move(stream));
        peers.push_back(std::move(peer));
      }
    };
    streams.push_back(std::move(stream));
    peers.push_back(std::move(peer));
  }
  turns(2);
  for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(::send(peers[i].get(), "stale", 5, 0), 5);
  turns(5);
  EXPECT_EQ(std::ranges::count_if(sinks, [](auto& one) { return !one->text.empty(); }), 1);
  EXPECT_EQ(quiet.text, "");
  for (std::size_t i = count; i < peers.size(); ++i) ASSERT_EQ(::send(peers[i].get(), "x", 1, 0), 1);
  EXPECT_TRUE(until([&] { return quiet.text.size() == count; }));
  EXPECT_EQ(quiet.text, std::string(count, 'x'));
}

TEST_P(StreamTest, ManyAtOnceAreAllServed) {
  // More than the number of a ring's buffers.
  constexpr std::size_t count = 300;
  std::vector<std::unique_ptr<TestSink>> sinks;
  std::vector<std::unique_ptr<TcpStream>> streams;
  std::vector<Descriptor> peers;
  for (std::size_t i = 0; i < count; ++i) {
    connect_ends();
    sinks.push_back(std::make_unique<TestSink>());
    stream->start(loop, *sinks.back());
    streams.push_back(std::move(stream));
    peers.push_back(std::move(peer));
  }
  turns(2);
  const std::string text = test_bytes(80'000);
  for (int round = 1; round <= 3; ++round) {
    for (const Descriptor& one : peers) ASSERT_EQ(::send(one.get(), text.data(), text.size(), 0), 80'000);
    EXPECT_TRUE(until([&] {
      return std::ranges::all_of(
          sinks, [&](auto& one) { return one->text.size() == text.size() * static_cast<std::size_t>(round); });
    }));
  }
}

TEST_P(StreamTest, ALoopMayChangeItsThread) {
  start();
  turns(1);
  std::thread([&] {
    write_all("from elsewhere");
    EXPECT_TRUE(until([&] { return sink.text == "from elsewhere"; }));
  }).join();
  write_all(", and back");
  EXPECT_TRUE(until([&] { return sink.text == "from elsewhere, and back"; }));
}

// ---- Sending ----

TEST_P(StreamTest, SendsGatheredPieces) {
  start();
  const std::string first = test_bytes(10);
  const std::string second = test_bytes(10'000, 2);
  EXPECT_EQ(stream->send(std::array{piece_of(first), piece_of(second), piece_of("end")}), 10'013U);
  EXPECT_TRUE(read_some() == first + second + "end");
}

TEST_P(StreamTest, ASlowReaderGetsEverything) {
  start();
  const std::string text = test_bytes(std::size_t{8} << 20);
  std::size_t sent = 0;
  const auto send_rest = [&] {
    while (sent < text.size()) {
      const std::string_view rest = std::string_view(text).substr(sent);
      const std::size_t taken =
          stream->send(std::array{piece_of(rest.substr(0, rest.size() / 2)), piece_of(rest.substr(rest.size() / 2))});
      sent += taken;
      if (taken < rest.size()) return;
    }
  };
  sink.on_sendable = send_rest;
  send_rest();
  EXPECT_LT(sent, text.size());
  std::string got;
  EXPECT_TRUE(until([&] {
    got += read_some();
    return got.size() == text.size();
  }));
  EXPECT_TRUE(got == text);
  EXPECT_GT(sink.sendables, 0);
}

TEST_P(StreamTest, ABrokenConnectionEndsAfterWhatCameBefore) {
  start();
  turns(1);
  pause();
  write_all("reply");
  peer = {};
  EXPECT_EQ(stream->send(std::array{piece_of("into the void")}), 0U);
  turns(3);
  EXPECT_TRUE(sink.ends.empty());
  resume();
  EXPECT_TRUE(until([&] { return !sink.ends.empty(); }));
  EXPECT_EQ(sink.text, "reply");
  EXPECT_EQ(sink.ends[0].code, ErrorCode::unavailable);
}

TEST_P(StreamTest, ASendThatCanNeverSucceedEndsTheStream) {
  start();
  turns(1);
  void* const unreadable = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(unreadable, MAP_FAILED);
  const ConstBuffer bad{static_cast<const std::byte*>(unreadable), 4096};
  EXPECT_EQ(stream->send(std::array{bad}), 0U);
  EXPECT_TRUE(sink.ends.empty()) << "not from within send()";
  EXPECT_TRUE(until([&] { return !sink.ends.empty(); }));
  EXPECT_NE(sink.ends[0].text.find("sending failed"), std::string::npos) << sink.ends[0].text;
  EXPECT_EQ(sink.ends[0].initiator, Initiator::local);
  munmap(unreadable, 4096);
}

// A TCP connection that the peer resets.
TEST_P(StreamTest, AResetIsAnEnd) {
  const Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  Descriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  peer = Descriptor(::accept(listener.get(), nullptr, nullptr));
  stream = std::make_unique<TcpStream>(std::move(client));
  const std::string name = stream->peer();
  start();
  turns(2);
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(peer.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  peer = {};
  EXPECT_TRUE(until([&] { return !sink.ends.empty(); }));
  EXPECT_NE(sink.ends[0].text.find("reset"), std::string::npos) << sink.ends[0].text;
  EXPECT_EQ(stream->peer(), name) << "what is gone has kept its name";
  EXPECT_EQ(name.rfind("127.0.0.1:", 0), 0U);
}

// ---- One batch of completions ----

// Bytes that were held back while paused are delivered before the end that the same batch contains.
TEST_P(StreamTest, TheEndComesAfterBytesThatWereHeldBack) {
  start();
  std::array<std::unique_ptr<TcpStream>, 3> others;
  std::array<Descriptor, 3> far;
  std::array<TestSink, 3> sinks;
  for (std::size_t i = 0; i < others.size(); ++i) {
    std::array<int, 2> ends{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    others[i] = std::make_unique<TcpStream>(Descriptor(ends[0]));
    far[i] = Descriptor(ends[1]);
    others[i]->start(loop, sinks[i]);
  }
  turns(3);
  sink.space_bytes = 10;
  sink.on_received = [&] {
    sink.on_received = nullptr;
    pause();
  };
  sinks[2].on_received = [&] { resume(); };
  // Destroying a stream makes a ring complete operations with data, so that three steps are delivered by the next poll.
  const std::string text = test_bytes(100);
  write_all(text);
  others[0].reset();
  ASSERT_EQ(::send(far[2].get(), "x", 1, 0), 1);
  others[1].reset();
  peer = {};
  EXPECT_TRUE(until([&] { return !sink.ends.empty(); }));
  EXPECT_TRUE(sink.text == text) << sink.text.size() << " of " << text.size() << " bytes came before the end";
}

// A ring's buffers are returned although nobody is notified any more of the data in them.
TEST_P(StreamTest, StreamsThatAreDroppedWithUnreadDataLeaveNothingBehind) {
  for (unsigned i = 0; i < exec::IoUring::buffers + 10; ++i) {
    connect_ends();
    start();
    std::array<int, 2> ends{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    auto other = std::make_unique<TcpStream>(Descriptor(ends[0]));
    const Descriptor far(ends[1]);
    TestSink none;
    other->start(loop, none);
    turns(1);
    write_all("unread");
    // Destroying a stream makes a ring complete operations with data, which the next poll would deliver.
    other.reset();
    stream.reset();
  }
  connect_ends();
  start();
  write_all("read");
  EXPECT_TRUE(until([&] { return sink.text == "read"; }));
  stream.reset();
}

// A ring is bound to its thread: operations of the old ring are requested again from the new one.
TEST_P(StreamTest, APausedStreamStaysPausedOnAnotherThread) {
  start();
  turns(2);
  pause();
  std::size_t written = 0;
  std::thread([&] {
    const std::string text = test_bytes(64 * 1024);
    turns(2);
    for (int idle = 0; idle < 5 && written < (std::size_t{64} << 20);) {
      const std::size_t size = write_some(text);
      written += size;
      idle = size == 0 ? idle + 1 : 0;
      turns(2);
    }
  }).join();
  EXPECT_LT(written, std::size_t{16} << 20);
  resume();
  EXPECT_TRUE(until([&] { return sink.text.size() == written; }));
  stream.reset();
}

}  // namespace
}  // namespace hawser::transport
