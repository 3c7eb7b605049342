// A man in the middle of a network of Soft-RoCE devices forges packets, with seeds. No forged message is delivered.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "hawser/when.h"
#include "tests/tls/rdma_wire.h"

namespace hawser {
namespace {

using namespace testing_tools;

// Forgeries: the checksums and numbers are right, so that the device accepts the packet. One for each connection.
enum class Forgery : std::uint8_t {
  none,
  change,      // Other bytes in a packet.
  cut,         // Without the last bytes.
  extend,      // With more bytes.
  invent,      // A message of the attacker's own before a packet.
  repeat,      // An earlier message of this connection before a packet.
  replay,      // A message of an earlier connection before a packet.
  substitute,  // An earlier message instead of this one.
  exchange,    // A message of an earlier connection instead of this one.
  reflect,     // A message of the receiver instead of this one.
  swallow,     // The sender gets an acknowledgement, and the receiver nothing.
  write,       // An RDMA write before a packet.
  read,        // An RDMA read before a packet.
  bare,        // A send without immediate before a packet.
  refuse,      // The sender gets a refusal of its packet.
};
constexpr std::array<const char*, 15> forgery_names{"none",    "change", "cut",        "extend",   "invent",
                                                    "repeat",  "replay", "substitute", "exchange", "reflect",
                                                    "swallow", "write",  "read",       "bare",     "refuse"};

// Disturbances, which reliable connections absorb. Each packet may suffer one.
enum class Disturbance : std::uint8_t { drop, delay, damage, duplicate, stale };

// The attacker keeps this of earlier connections.
struct Past {
  std::array<std::vector<RocePacket>, 2> messages;  // The messages of each end of one connection.
  std::vector<std::uint32_t> queue_pairs;           // Packets may still go to these.
};

class Mallory {
 public:
  Mallory(AttackedWire& wire, Past& past, std::uint64_t seed, Forgery what)
      : wire_(wire), past_(past), random_(seed), what_(what) {
    victim_ = static_cast<std::size_t>(random_.below(2));
    // The first packet of each end is its proof.
    chosen_ = seed % 4 == 0 ? 0 : static_cast<std::size_t>(random_.below(7));
  }
  void carry(std::size_t from, RocePacket packet) {
    if (!of_this_link(from, packet.queue_pair())) return wire_.send(1 - from, packet);
    const std::uint32_t own = packet.psn();
    if (!packet.response()) {
      // The device may have dropped the forgery because an earlier packet was lost.
      if (forged_ && from == victim_ && own == *forged_) return send_forgery(from, packet);
      if (!latest_[from] || psn_distance(own, *latest_[from]) > 0) {
        latest_[from] = own;
        const bool due =
            links_ == 1 && !calm_ && from == victim_ && !done_ && what_ != Forgery::none && seen_++ >= chosen_;
        if (due && suits(packet)) {
          done_ = true;
          forged_ = own;
          forge(from, packet);
          return send_forgery(from, packet);
        }
        if (packet.payload.size() >= least && packet.code() == RoceCode::send_only_immediate && sent_[from].size() < 64)
          sent_[from].push_back(packet);
      }
    }
    link_.renumber(from, packet);
    pass(from, packet);
  }
  // Keeps the messages of this connection for the next one.
  void leave() {
    for (const std::size_t end : {0U, 1U}) {
      if (!sent_[end].empty()) past_.messages[end] = sent_[end];
      if (queue_pairs_[end]) past_.queue_pairs.push_back(*queue_pairs_[end]);
    }
  }
  // From now on nothing more is forged, so that later calls show the effects. Any thread.
  void calm() { calm_ = true; }
  bool done() const { return done_; }
  // Connections until now.
  std::size_t links() const { return links_; }
  std::size_t victim() const { return victim_; }
  std::size_t chosen() const { return chosen_; }
  std::size_t disturbed() const { return disturbed_; }

 private:
  static constexpr std::uint8_t acknowledged = 31;
  static constexpr std::size_t disturbed_max = 40;  // Each may cause packets that can be disturbed, too.
  static constexpr std::size_t least = 48;          // Packets with fewer bytes carry no message.

  bool suits(const RocePacket& packet) const {
    if (packet.payload.size() < least) return false;
    if (what_ == Forgery::change || what_ == Forgery::refuse) return true;
    if (packet.code() != RoceCode::send_only_immediate) return false;
    if (what_ == Forgery::repeat || what_ == Forgery::substitute) return !sent_[victim_].empty();
    if (what_ == Forgery::replay || what_ == Forgery::exchange) return !past_.messages[victim_].empty();
    if (what_ == Forgery::reflect) return !sent_[1 - victim_].empty();
    return true;
  }
  const RocePacket& any_of(const std::vector<RocePacket>& packets) {
    return packets[static_cast<std::size_t>(random_.below(packets.size()))];
  }
  std::byte any_byte() { return static_cast<std::byte>(random_.below(256)); }
  // The same message in the place of `packet`.
  static RocePacket in_place(const RocePacket& packet, const RocePacket& message) {
    RocePacket made = packet;
    made.extension = message.extension;
    made.payload = message.payload;
    return made;
  }
  // False for packets of a connection that has ended. A new connection begins with new numbers.
  bool of_this_link(std::size_t from, std::uint32_t queue_pair) {
    if (std::ranges::find(past_.queue_pairs, queue_pair) != past_.queue_pairs.end()) return false;
    if (queue_pairs_[from] == queue_pair) return true;
    if (queue_pairs_[from] || links_ == 0) {
      ++links_;
      for (std::optional<std::uint32_t>& one : queue_pairs_) {
        if (one) past_.queue_pairs.push_back(*one);
        one.reset();
      }
      forged_.reset();
      link_ = {};
      latest_ = {};
      held_ = {};
    }
    queue_pairs_[from] = queue_pair;
    return true;
  }
  // The receiver gets `forged` before `packet`.
  void insert(std::size_t from, RocePacket packet, const RocePacket& forged) {
    const std::uint32_t own = packet.psn();
    link_.numbers[from].insert(own);
    link_.renumber(from, packet);
    forgery_ = {forged, packet};
  }
  void send_forgery(std::size_t from, const RocePacket& packet) {
    for (const RocePacket& one : forgery_) wire_.send(1 - from, one);
    // An answer has the addresses of a packet of the other side.
    if ((what_ != Forgery::swallow && what_ != Forgery::refuse) || !answer_[1 - from]) return;
    RocePacket answer = *answer_[1 - from];
    answer.set_acknowledge(packet.psn(), what_ == Forgery::swallow ? acknowledged : refused_);
    wire_.send(from, answer);
  }
  void forge(std::size_t from, RocePacket packet) {
    switch (what_) {
      case Forgery::change: {
        // More bytes than padding has.
        const std::size_t at = static_cast<std::size_t>(random_.below(packet.payload.size() - 16));
        for (std::size_t i = 0; i < 16; ++i) packet.payload[at + i] ^= static_cast<std::byte>(1 + random_.below(255));
        break;
      }
      case Forgery::cut:
        packet.payload.resize(packet.payload.size() - 8 - 8 * random_.below((packet.payload.size() - 8) / 8));
        break;
      case Forgery::extend:
        for (std::size_t i = 8 + 8 * random_.below(8); i > 0; --i) packet.payload.push_back(any_byte());
        break;
      case Forgery::invent: {
        RocePacket forged = packet;
        // Behind the header of the transport, or from the beginning.
        for (std::size_t i = random_.below(2) == 0 ? 0 : 16; i < forged.payload.size(); ++i) {
          forged.payload[i] = any_byte();
        }
        return insert(from, packet, forged);
      }
      case Forgery::repeat: return insert(from, packet, in_place(packet, any_of(sent_[from])));
      case Forgery::replay: return insert(from, packet, in_place(packet, any_of(past_.messages[from])));
      case Forgery::substitute: packet = in_place(packet, any_of(sent_[from])); break;
      case Forgery::exchange: packet = in_place(packet, any_of(past_.messages[from])); break;
      case Forgery::reflect: packet = in_place(packet, any_of(sent_[1 - from])); break;
      case Forgery::swallow: return link_.numbers[from].remove(packet.psn());
      case Forgery::write:
      case Forgery::read: {
        RocePacket forged = packet;
        const bool writes = what_ == Forgery::write;
        forged.set_access(writes ? RoceCode::write_only : RoceCode::read_request,
                          {random_.next(), static_cast<std::uint32_t>(random_.next()),
                           writes ? std::uint32_t{64} : std::uint32_t{8}});
        forged.payload.assign(writes ? 64 : 0, any_byte());
        return insert(from, packet, forged);
      }
      case Forgery::bare: {
        RocePacket forged = packet;
        forged.set_code(RoceCode::send_only);
        forged.extension.clear();
        return insert(from, packet, forged);
      }
      case Forgery::refuse: refused_ = static_cast<std::uint8_t>(0x61 + random_.below(3)); return;
      case Forgery::none: break;
    }
    forgery_ = {packet};
  }
  void pass(std::size_t from, const RocePacket& packet) {
    answer_[from] = packet;
    std::optional<RocePacket> held = std::exchange(held_[from], std::nullopt);
    // A lost packet is sent again only after a while, so few are lost.
    const std::uint64_t dice = random_.below(100);
    if (dice >= 24 || disturbed_ == disturbed_max) {
      wire_.send(1 - from, packet);
    } else {
      ++disturbed_;
      switch (dice < 3 ? static_cast<Disturbance>(dice) : dice < 12 ? Disturbance::duplicate : Disturbance::stale) {
        case Disturbance::drop: break;
        case Disturbance::duplicate:
          wire_.send(1 - from, packet);
          wire_.send(1 - from, packet);
          break;
        case Disturbance::delay: held_[from] = packet; break;
        case Disturbance::damage: {
          Octets frame = packet.frame();
          const std::uint64_t bit = random_.below((frame.size() - 42) * 8);
          frame[42 + bit / 8] ^= std::byte{1} << static_cast<int>(bit % 8);
          wire_.send_frame(1 - from, frame);
          break;
        }
        case Disturbance::stale:
          if (!passed_[from].empty()) wire_.send(1 - from, any_of(passed_[from]));
          wire_.send(1 - from, packet);
          break;
      }
    }
    if (held) wire_.send(1 - from, *held);
    if (passed_[from].size() < 64) passed_[from].push_back(packet);
  }

  AttackedWire& wire_;
  Past& past_;
  Random random_;
  const Forgery what_;
  std::size_t victim_ = 0;  // The end whose packets are forged.
  std::size_t chosen_ = 0;  // The first of its packets that may be.
  std::size_t seen_ = 0;
  bool done_ = false;
  std::atomic<bool> calm_ = false;
  std::size_t disturbed_ = 0;
  AttackedLink link_;
  std::array<std::optional<std::uint32_t>, 2> latest_;
  std::array<std::optional<RocePacket>, 2> answer_;  // A packet of each end, for its addresses.
  std::array<std::optional<RocePacket>, 2> held_;
  std::array<std::vector<RocePacket>, 2> sent_;
  std::array<std::vector<RocePacket>, 2> passed_;  // As they were passed on.
  std::optional<std::uint32_t> forged_;            // The number of the packet that is forged.
  std::vector<RocePacket> forgery_;                // The receiver gets these packets instead.
  std::uint8_t refused_ = 0;
  std::size_t links_ = 0;
  std::array<std::optional<std::uint32_t>, 2> queue_pairs_;  // The packets of each end go to this one.
};

std::map<std::string, int> handled_orders;
std::string handle_order(std::string text) {
  ++handled_orders[text];
  return text;
}

class TlsRdmaForgery : public RdmaWireFixture {
 protected:
  // Attacks the RDMA path of one client after the other. A client that has lost it connects again.
  void run(TlsProtection level, std::uint64_t first, std::uint64_t usual_count) {
    const char* const wanted = std::getenv("HAWSER_RDMA_FORGERIES");
    const std::uint64_t count = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : usual_count;
    tls_options.protection = level;
    Loop loop(quiet());
    ServerOptions with = options;
    with.ping_interval = 1s;  // So that the loss of the last message is noticed.
    const auto served = server_on(loop, with);
    served->register_handler<handle_order>();
    ASSERT_TRUE(served->start());
    // The device stays open while this client is connected.
    const TlsClient tls = client_tls(TlsProtection::authenticated);
    Past past;
    for (std::uint64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
      attack(loop, *served, tls, seed, past);
    }
    loop.run(reach_rest(loop, *served));
    const TlsCounters at_server = security->counters();
    const TlsCounters at_client = tls.counters();
    if (wanted != nullptr) report(count, at_server, at_client);
    EXPECT_GE(forged * 2, count);
    EXPECT_GE(disturbed, count);
    EXPECT_GE(at_server.path_messages_refused + at_client.path_messages_refused, count / 8);
    EXPECT_HAS(logged(), "is not what the peer has sent");
  }
  void report(std::uint64_t count, const TlsCounters& at_server, const TlsCounters& at_client) const {
    std::cerr << count << " connections, " << forged << " forgeries, " << disturbed << " disturbances, "
              << at_server.path_messages_refused << " messages refused by the server and "
              << at_client.path_messages_refused << " by clients, " << at_server.paths_refused + at_client.paths_refused
              << " proofs refused\n";
    for (const auto& [name, figures] : by_kind) {
      std::cerr << "  " << name << ": " << figures[0] << ", messages refused " << figures[1] << ", proofs refused "
                << figures[2] << ", clients that then used the stream " << figures[3] << "\n";
    }
  }
  void attack(Loop& loop, Server& served, const TlsClient& tls, std::uint64_t seed, Past& past) {
    const auto what = static_cast<Forgery>(seed % forgery_names.size());
    Mallory mallory(wire, past, seed, what);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + forgery_names[seed % forgery_names.size()] + " of packet " +
                 std::to_string(mallory.chosen()) + " of end " + std::to_string(mallory.victim()));
    handled_orders.clear();
    ClientOptions with = client_at(tls, false);
    with.ping_interval = 1s;
    const auto refused = [&] {
      return std::pair(security->counters().path_messages_refused + tls.counters().path_messages_refused,
                       security->counters().paths_refused + tls.counters().paths_refused);
    };
    const auto before = refused();
    std::map<std::string, int> sent;
    std::string transport;
    std::string why;
    wire.set_carry([&](std::size_t from, RocePacket packet) { mallory.carry(from, std::move(packet)); });
    loop.run(order(loop, served.address(), with, seed, sent, mallory, transport, why));
    wire.set_carry(nullptr);
    mallory.leave();
    const auto after = refused();
    disturbed += mallory.disturbed();
    if (mallory.done()) {
      ++forged;
      auto& figures = by_kind[forgery_names[seed % forgery_names.size()]];
      ++figures[0];
      figures[1] += after.first - before.first;
      figures[2] += after.second - before.second;
      EXPECT_TRUE(mallory.links() > 1 || transport == "tcp+tls") << "the connection has survived";
      figures[3] += transport == "tcp+tls" ? 1 : 0;
    } else {
      EXPECT_EQ(after, before);
    }
    for (const auto& [text, times] : handled_orders) {
      EXPECT_EQ(times, 1) << text.substr(0, 60);
      EXPECT_EQ(sent.count(text), 1U) << text.substr(0, 60);
    }
  }
  static Task<Result<std::string>> place(Client& client, std::string text) {
    auto reply = co_await client.call<handle_order>(text);
    co_return reply;
  }
  static Task<void> order(Loop& loop, std::string address, ClientOptions with, std::uint64_t seed,
                          std::map<std::string, int>& sent, Mallory& mallory, std::string& transport,
                          std::string& why) {
    Random random(seed ^ 0x5eed);
    Client client(loop, std::move(with));
    {
      auto connected = co_await client.connect(address);
      REQUIRE_OK(connected);
    }
    int number = 0;
    const auto next_text = [&] {
      constexpr std::array<std::size_t, 5> sizes{0, 100, 2'000, 9'000, 30'000};
      std::string text = "order " + std::to_string(++number) + " of client " + std::to_string(seed) + " ";
      text.append(sizes[random.below(sizes.size())], '.');
      ++sent[text];
      return text;
    };
    int lost = 0;
    for (int round = 0; round < 8; ++round) {
      if (round == 6) mallory.calm();
      const std::string one = next_text();
      const std::string two = next_text();
      auto replies = co_await when_all(place(client, one), place(client, two));
      EXPECT_EQ(std::get<0>(replies).value_or(one), one);
      EXPECT_EQ(std::get<1>(replies).value_or(two), two);
      if (std::get<0>(replies) && std::get<1>(replies)) continue;
      why += error_of(std::get<0>(replies)) + "; " + error_of(std::get<1>(replies)) + "; ";
      EXPECT_LT(++lost, 3) << "the connection is lost again and again: " << why;
      auto connected = co_await client.connect(address);
      REQUIRE_OK(connected);
    }
    transport = std::string(client.transport());
    for (const auto& reason : client.fallback_reasons()) why += std::string(reason.transport) + ": " + reason.reason;
    client.close();
  }
  std::size_t forged = 0;
  std::size_t disturbed = 0;
  std::map<std::string, std::array<std::uint64_t, 4>> by_kind;
};

// The guest is slow, so signed messages suffer only half of the kinds.
TEST_F(TlsRdmaForgery, NothingForgedIsDeliveredOfSignedMessages) { run(TlsProtection::signed_messages, 7, 8); }

TEST_F(TlsRdmaForgery, NothingForgedIsDeliveredOfSealedMessages) {
  run(TlsProtection::sealed_messages, 1'000'000, forgery_names.size());
}

}  // namespace
}  // namespace hawser
