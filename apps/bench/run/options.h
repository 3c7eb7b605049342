#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/run/cell.h"
#include "hawser/loop.h"

namespace CLI {
class App;
}

namespace hawser::bench {

enum class ReplyKind : std::uint8_t {
  echo,  // The reply is the payload.
  ack,   // The reply has 16 bytes.
};
enum class HandlerKind : std::uint8_t {
  function,
  coroutine,
  protobuf,  // A method of a service from a .proto file, with messages as argument and result.
};
// All except native imply HandlerKind::protobuf.
enum class BenchProtocol : std::uint8_t { native, baidu_std, grpc, http };
// Whether this build has HandlerKind::protobuf.
#ifdef HAWSER_BENCH_PROTOBUF
inline constexpr bool has_protobuf = true;
#else
inline constexpr bool has_protobuf = false;
#endif

struct SizeAndConcurrency {
  std::size_t size_bytes = 0;
  unsigned concurrency = 0;
  friend bool operator==(const SizeAndConcurrency&, const SizeAndConcurrency&) = default;
};

// Files in PEM format of a certificate for the loopback address, and of its issuer. Empty: none.
struct BenchTlsFiles {
  std::string ca;
  std::string certificate;
  std::string key;
};

// Options of the command line.
struct RunOptions {
  // Every combination of these is measured.
  std::vector<std::string> transports = {"tcp"};
  std::vector<Mode> modes = {Mode::pipeline};
  std::vector<Wait> waits = {Wait::spin};
  std::vector<std::size_t> sizes_bytes = {128, 4 << 10, 32 << 10, 256 << 10, 1 << 20, 8 << 20};
  std::vector<unsigned> concurrencies = {1, 4, 16, 64, 256};
  std::vector<SizeAndConcurrency> pairs;     // Used instead of all sizes and concurrencies, unless empty.
  double seconds = 1;                        // Counted time of each cell.
  bool tls = false;                          // HELLOs, and calls over the stream, travel in TLS.
  std::string protection = "authenticated";  // TlsProtection, as --protection names it.
  std::string tls_kernel = "off";            // TlsKernel, as --tls-kernel names it.
  BenchTlsFiles tls_files;                   // The certificate of what compare starts over the transport tls.
  ReplyKind reply = ReplyKind::echo;
  HandlerKind handler = HandlerKind::function;
  BenchProtocol protocol = BenchProtocol::native;

  PollerKind poller = PollerKind::automatic;
  // -1: not pinned. Empty: the first and second processor that the process may use, if there are two.
  std::optional<int> server_cpu;
  std::optional<int> client_cpu;

  // With one call in flight on each of many connections, both sides hold the payloads of all calls at once. If that
  // would exceed this bound, fewer calls are kept in flight, and the result has their number.
  std::size_t bytes_in_flight_max = std::size_t{512} << 20;
  double call_timeout_s = 30;
  double spin_max_us = 0;  // 0: the default of LoopOptions.
  LoopOptions loop(Wait wait) const {
    LoopOptions loop{.wait = wait, .poller = poller};
    if (spin_max_us > 0) loop.spin_max = std::chrono::nanoseconds(static_cast<std::int64_t>(spin_max_us * 1e3));
    return loop;
  }
  // Total rate at which calls begin by the clock. 0: a call begins when an earlier one has ended.
  double rate_per_s = 0;
  // Clients that connect, make a call and disconnect beside the cells, a second. 0: none.
  double connecting_per_s = 0;
  bool registered = false;  // Payloads lie in a RegisteredBuffer.
  bool loan = false;        // Each payload is a loan, of which the client writes the ends.
  bool rtt_table = false;   // Uses the sizes, concurrencies and transports of the round-trip table.
  unsigned server_threads = 1;
  bool observed = false;  // The server has pages, a tracer and a recorder, and its /metrics are read every second.
  std::vector<int> server_cpus;  // Processors of a server with several threads. Empty: see server_cpu.

  std::vector<std::string> peers = {"baseline"};  // compare
  unsigned repeat = 3;

  std::vector<std::string> report_inputs;  // report
  std::string report_path = "report.html";

  std::string json_path;
  std::string csv_path;

  // memory
  std::string memory_op = "write";
  std::size_t memory_block = 256 << 10;
  unsigned memory_batch = 1;
  bool memory_scattered = false;
  unsigned memory_depth = 4;        // Batches in flight.
  bool memory_baseline = false;     // Also measures bare sockets or copies.
  bool memory_bulk = false;         // The transfers have TransferPriority::bulk.
  unsigned memory_clients = 1;      // Connections of the client's process.
  unsigned memory_owners = 1;       // Processes with memory. Equal to memory_clients, or one of them is 1.
  bool memory_separate = false;     // The transfers have a connection of their own.
  bool memory_calls = false;        // Also measures small calls, alone and beside the transfers.
  bool memory_small_reads = false;  // With reads of 64 bytes in their place.

  std::string listen = "0.0.0.0:9000";  // server
  std::string connect;                  // client

  std::string command_line;
};

inline constexpr std::size_t size_bytes_max = std::size_t{64} << 20;
inline constexpr unsigned concurrency_max = 16'384;

// Add the options of each subcommand. Values are checked while the command line is read: errors are thrown as
// CLI::ParseError, and their text lists the accepted values.
void add_run_options(CLI::App& app, RunOptions& options);
void add_limit_options(CLI::App& app, RunOptions& options);
void add_compare_options(CLI::App& app, RunOptions& options);
// hawser-bench memory; memory/memory_run.h runs it.
void add_memory_options(CLI::App& app, RunOptions& options);
void add_report_options(CLI::App& app, RunOptions& options);
void add_server_options(CLI::App& app, RunOptions& options);
void add_client_options(CLI::App& app, RunOptions& options);

// Returns the largest number of connections that a cell opens.
std::size_t connections_max(const RunOptions& options);
// Returns all cells in the order of measuring. Cells with the same way of waiting are adjacent.
std::vector<Cell> cells_of(const RunOptions& options);

}  // namespace hawser::bench
