#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "hawser/loop.h"
#include "hawser/transport/poller.h"
#include "transport/tcp/dns_channel.h"
#include "transport/tcp/socket.h"

namespace hawser::transport {

inline constexpr int type_a = 1;
inline constexpr int type_txt = 16;
inline constexpr int type_aaaa = 28;

// A name server on the test's own loop.
class PlayedNameServer final : exec::Watcher {
 public:
  // The addresses or texts that the server answers to questions of one type. Without an entry it
  // does not answer. With an empty list it answers that the name does not exist.
  using Answers = std::map<int, std::vector<std::string>>;

  explicit PlayedNameServer(Loop& loop) : loop_(loop) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
    loop_.poller().watch(socket_.get(), *this);
  }
  ~PlayedNameServer() { loop_.poller().unwatch(socket_.get(), *this); }

  ResolverOptions options() const { return {.servers = address_}; }

  Answers answers;
  std::map<std::string, Answers> answers_of;  // For these names instead.
  std::map<std::string, int> failures;        // The codes (RCODE) that these names get instead.
  std::vector<std::string> names;             // Names that were asked for, of each question.
  int questions = 0;

 private:
  void on_ready(exec::Readiness) override {
    for (;;) {
      std::array<unsigned char, 1024> packet{};
      sockaddr_storage from{};
      socklen_t from_size = sizeof from;
      const ssize_t size = recvfrom(socket_.get(), packet.data(), packet.size(), MSG_DONTWAIT,
                                    reinterpret_cast<sockaddr*>(&from), &from_size);
      if (size <= 0) return;
      ++questions;
      std::size_t end = 12;
      std::string name;
      while (packet[end] != 0) {
        name.append(name.empty() ? "" : ".").append(reinterpret_cast<const char*>(&packet[end + 1]), packet[end]);
        end += packet[end] + 1U;
      }
      names.push_back(name);
      const int failure = failures.contains(name) ? failures.at(name) : 0;
      const Answers& of_name = answers_of.contains(name) ? answers_of.at(name) : answers;
      const int type = packet[end + 1] << 8 | packet[end + 2];
      end += 5;
      static const std::vector<std::string> nothing;
      const auto known = of_name.find(type);
      if (known == of_name.end() && failure == 0) continue;
      const std::vector<std::string>& found = failure == 0 ? known->second : nothing;
      std::vector<unsigned char> reply(packet.begin(), packet.begin() + static_cast<std::ptrdiff_t>(end));
      reply[2] = 0x81;  // An answer to a recursive question.
      reply[3] = static_cast<unsigned char>(0x80 | (failure != 0 ? failure : found.empty() ? 3 : 0));
      reply[6] = 0;
      reply[7] = static_cast<unsigned char>(found.size());
      std::fill(reply.begin() + 8, reply.begin() + 12, 0);
      for (const std::string& text : found) {
        if (type == type_txt) {
          append_text(reply, text);
          continue;
        }
        const SocketAddress address = resolve({text, "0"}, false, false).value().front();
        const bool v6 = address.family() == AF_INET6;
        const auto* const bytes = v6 ? reinterpret_cast<const unsigned char*>(
                                           &reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr)
                                     : reinterpret_cast<const unsigned char*>(
                                           &reinterpret_cast<const sockaddr_in&>(address.storage).sin_addr);
        const unsigned char length = v6 ? 16 : 4;
        for (const unsigned char byte : {0xc0, 12, 0, type, 0, 1, 0, 0, 0, 60, 0, static_cast<int>(length)}) {
          reply.push_back(byte);
        }
        reply.insert(reply.end(), bytes, bytes + length);
      }
      sendto(socket_.get(), reply.data(), reply.size(), 0, reinterpret_cast<sockaddr*>(&from), from_size);
    }
  }

  // Appends a TXT record, in parts of at most 200 bytes.
  static void append_text(std::vector<unsigned char>& reply, std::string_view text) {
    constexpr std::size_t part_max = 200;
    const std::size_t bytes = text.size() + (text.size() + part_max - 1) / part_max;
    for (const int byte : {0xc0, 12, 0, type_txt, 0, 1, 0, 0, 0, 60, static_cast<int>(bytes >> 8)}) {
      reply.push_back(static_cast<unsigned char>(byte));
    }
    reply.push_back(static_cast<unsigned char>(bytes & 255));
    for (; !text.empty(); text.remove_prefix(std::min(part_max, text.size()))) {
      const std::string_view part = text.substr(0, part_max);
      reply.push_back(static_cast<unsigned char>(part.size()));
      reply.insert(reply.end(), part.begin(), part.end());
    }
  }

  Loop& loop_;
  Descriptor socket_{::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  std::string address_;
};

}  // namespace hawser::transport
