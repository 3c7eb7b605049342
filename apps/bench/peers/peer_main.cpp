#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/load/events.h"
#include "bench/load/handlers.h"
#include "bench/load/metered_load.h"
#include "bench/peers/peer.h"
#include "bench/run/options.h"
#include "process/program.h"

// Main program of a peer, which peer_system.cpp starts. It writes its events to standard output.
namespace hawser::bench {
namespace {

constexpr unsigned char_text_max = 16;

struct PeerServerOptions {
  RunOptions common;
  pid_t server = -1;
  PeerTls tls;
  std::vector<Cell> cells;
};

// Reads a cell such as "pipeline:128x16".
Cell read_cell(const std::string& text, Wait wait) {
  char mode[char_text_max] = {};
  Cell cell{.wait = wait};
  unsigned concurrency = 0;
  if (std::sscanf(text.c_str(), "%15[^:]:%zux%u", mode, &cell.size_bytes, &concurrency) != 3 || !parse_mode(mode) ||
      cell.size_bytes < 1 || concurrency < 1) {
    throw CLI::ValidationError("--cell", text + " is not a cell, such as pipeline:128x16");
  }
  cell.mode = *parse_mode(mode);
  cell.concurrency = concurrency;
  return cell;
}

void measure(const PeerServerOptions& options, const Cell& cell, const EventWriter& events) {
  const auto load = std::make_unique<MeteredLoad>(options.common, options.common.connect, cell, options.server);
  call_peer(options.tls, *load);
  const CellResult result = load->meter().result(cell);
  if (!load->meter().over()) throw std::runtime_error("the server was lost: " + result.first_error);
  events.write(result);
}

int play_client(const PeerServerOptions& options, const EventWriter& events) {
  events.write(Connected{{.poller = "its own", .wait = "its own", .version = HAWSER_VERSION}, "its own"});
  for (std::size_t i = 0; i < options.cells.size(); ++i) {
    if (!events.write(CellBegun{i})) return 1;
    measure(options, options.cells[i], events);
  }
  return 0;
}

}  // namespace

static int play(int argc, char** argv) {
  PeerServerOptions options;
  std::string reply = "echo";
  std::string wait = "spin";
  std::vector<std::string> cells;
  CLI::App app(fmt::format("Calls of {}, for hawser-bench compare", peer_name()));
  app.require_subcommand(1);
  CLI::App& server = *app.add_subcommand("server");
  server.add_option("--tls-cert", options.tls.certificate);
  server.add_option("--tls-key", options.tls.key);
  CLI::App& client = *app.add_subcommand("client");
  client.add_option("--connect", options.common.connect)->required();
  client.add_option("--server-process", options.server);
  client.add_option("--tls-ca", options.tls.ca);
  client.add_option("--seconds", options.common.seconds);
  client.add_option("--reply", reply);
  client.add_option("--bytes-in-flight", options.common.bytes_in_flight_max);
  client.add_option("--wait", wait);
  client.add_option("--cell", cells)->required();
  const EventWriter events(STDOUT_FILENO);
  try {
    app.parse(argc, argv);
    options.common.reply = reply == "ack" ? ReplyKind::ack : ReplyKind::echo;
    for (const std::string& one : cells) options.cells.push_back(read_cell(one, parse_wait(wait).value_or(Wait::spin)));
    if (!server.parsed()) return play_client(options, events);
    serve_peer(options.tls, [&](const std::string& address) { events.write(Listening{address}); });
    return 0;
  } catch (const CLI::Error& error) {
    return app.exit(error);
  } catch (const std::exception& error) {
    events.write(Failed{fmt::format("{}: {}", peer_name(), error.what())});
    return 1;
  }
}

PeerAck peer_ack_of(std::string_view payload) noexcept {
  const Ack ack = ack_of(payload);
  return {ack.bytes, ack.head};
}

}  // namespace hawser::bench

int main(int argc, char** argv) {
  return hawser::process::run("hawser-peer", [&] { return hawser::bench::play(argc, argv); });
}
