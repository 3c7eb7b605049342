#include "bench/run/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "bench/load/connecting_role.h"
#include "bench/load/processors.h"
#include "bench/load/size.h"
#include "bench/load/tls.h"
#include "bench/load/transport_choice.h"

namespace hawser::bench {
namespace {

constexpr std::string_view peers_known[] = {"baseline", "grpc",        "capnp",       "ucx",
                                            "loops",    "grpc-client", "grpc-server", "observed"};
constexpr unsigned repeat_max = 99;

constexpr double rate_min = 0.1;
constexpr double rate_max = 1e9;
constexpr double connecting_per_s_max = 1e5;
constexpr unsigned server_threads_max = 1024;
constexpr unsigned memory_batch_max = 1'000'000;
constexpr unsigned memory_depth_max = 256;
constexpr unsigned memory_paths_max = 64;

constexpr double seconds_min = 0.01;
constexpr double seconds_max = 3600;

constexpr const char* all_pairs = "none: all sizes times all concurrencies";

[[noreturn]] void refuse(const std::string& option, const std::string& why) { throw CLI::ValidationError(option, why); }

// Adds an option `name` TYPE whose text is passed to `take(name, text)`.
template <class Take>
void add(CLI::App& app, const std::string& name, const char* type, const std::string& description, Take take) {
  app.add_option_function<std::string>(name, [name, take](const std::string& text) { take(name, text); })
      ->type_name(type)
      ->description(description);
}

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

template <class Number>
Number read_number(const std::string& option, const std::string& text, Number min, Number max) {
  const std::optional<Number> number = parse_number<Number>(text);
  if (!number || !(*number >= min && *number <= max)) {
    refuse(option, fmt::format("\"{}\" is not a number from {} to {}", text, min, max));
  }
  return *number;
}

template <class Number>
void add_number(CLI::App& app, const std::string& name, const char* type, const std::string& description,
                Number& number, Number min, Number max) {
  add(app, name, type, description, [&number, min, max](const std::string& option, const std::string& text) {
    number = read_number(option, text, min, max);
  });
}

// Returns the value of the given text. `otherwise` lists the accepted texts for the error.
template <class Value>
void add_choice(CLI::App& app, const std::string& name, const std::string& description, Value& value,
                std::vector<std::pair<std::string_view, Value>> choices, const char* otherwise) {
  add(app, name, "KIND", description,
      [&value, choices = std::move(choices), otherwise](const std::string& option, const std::string& text) {
        const auto found = std::ranges::find(choices, text, &std::pair<std::string_view, Value>::first);
        if (found == choices.end()) refuse(option, fmt::format("\"{}\" is {}", text, otherwise));
        value = found->second;
      });
}

// Reads each part of "a,b,c" by `read(option, part)`.
template <class Value, class Read>
void add_list(CLI::App& app, const std::string& name, const std::string& description, std::vector<Value>& values,
              Read read) {
  add(app, name, "LIST", description, [&values, read](const std::string& option, const std::string& text) {
    values.clear();
    for (const std::string& part : CLI::detail::split(text, ',')) {
      Value value = read(option, part);
      if (std::ranges::find(values, value) != values.end()) refuse(option, fmt::format("{} occurs twice", part));
      values.push_back(std::move(value));
    }
  });
}

// Returns a function for add_list() that refuses a text if `parse` returns nothing for it.
template <class Parse>
auto reader(Parse parse, const char* what_it_is_not) {
  return [parse, what_it_is_not](const std::string& option, const std::string& text) {
    const auto value = parse(text);
    if (!value) refuse(option, fmt::format("\"{}\" is {}", text, what_it_is_not));
    return *value;
  };
}

std::string read_transport(const std::string& option, const std::string& text) {
  if (!is_transport(text)) {
    refuse(option,
           fmt::format("no transport is called \"{}\": there are {}", text, fmt::join(transport_names(), ", ")));
  }
  if (text == "tls" && !has_tls()) refuse(option, "this build has no TLS: install libssl-dev and build it again");
  return text;
}

void add_transports(CLI::App& app, RunOptions& options) {
  add_list(app, "--transport",
           fmt::format("Transports that carry the calls: {}; auto enables all and takes the best [tcp]",
                       fmt::join(transport_names(), ", ")),
           options.transports, read_transport);
}

std::size_t read_size(const std::string& option, const std::string& text) {
  const std::optional<std::size_t> size = parse_size(text);
  if (!size || *size < 1 || *size > size_bytes_max) {
    refuse(option,
           fmt::format("\"{}\" is not a size: give 1 to {}, such as 128, 4K or 8M", text, format_size(size_bytes_max)));
  }
  return *size;
}

unsigned read_concurrency(const std::string& option, const std::string& text) {
  return read_number(option, text, 1U, concurrency_max);
}

SizeAndConcurrency read_pair(const std::string& option, const std::string& text) {
  const std::size_t cross = text.find('x');
  if (cross == std::string::npos) {
    refuse(option, fmt::format("\"{}\" is not a cell: give SIZExCONCURRENCY, such as 4Kx64", text));
  }
  return {read_size(option, text.substr(0, cross)), read_concurrency(option, text.substr(cross + 1))};
}

void add_sizes(CLI::App& app, RunOptions& options) {
  add_list(app, "--sizes", "Bytes of payload; K and M are powers of 1024 [128,4K,32K,256K,1M,8M]", options.sizes_bytes,
           read_size);
  add_list(app, "--concurrency", "Calls in flight at the same time [1,4,16,64,256]", options.concurrencies,
           read_concurrency);
}

void add_pairs(CLI::App& app, RunOptions& options, std::string_view default_text) {
  add_list(app, "--cells", fmt::format("Sizes, each with its calls in flight [{}]", default_text), options.pairs,
           read_pair);
}

void add_table(CLI::App& app, RunOptions& options) {
  add_list(
      app, "--mode",
      "pipeline: all calls on one connection; connections: each on its own; threads: each by a thread that blocks, on "
      "one connection [pipeline]",
      options.modes, reader(parse_mode, "no mode: give pipeline, connections or threads"));
  add_number(app, "--seconds", "S", "Counted time of each cell, after warm-up [1]", options.seconds, seconds_min,
             seconds_max);
  add_choice<ReplyKind>(app, "--reply", "echo: the reply has the payload; ack: the reply has 16 bytes [echo]",
                        options.reply, {{"echo", ReplyKind::echo}, {"ack", ReplyKind::ack}}, "neither echo nor ack");
  add(app, "--bytes-in-flight", "SIZE",
      "With --mode connections, keep fewer calls in flight where they would hold more memory [512M]",
      [&options](const std::string& option, const std::string& text) {
        const std::optional<std::size_t> bytes = parse_size(text);
        if (!bytes || *bytes < 1) refuse(option, fmt::format("\"{}\" is not a size, such as 512M or 2G", text));
        options.bytes_in_flight_max = *bytes;
      });
  app.add_flag("--registered", options.registered,
               "What is sent lies in a RegisteredBuffer, so that rdma and ucx do not copy large payloads");
  add_number(app, "--call-timeout", "S", "Timeout of a call [30]", options.call_timeout_s, seconds_min, seconds_max);
  app.add_option("--json", options.json_path, "Write the results there as JSON")->type_name("FILE");
  app.add_option("--csv", options.csv_path, "Write the results there as CSV")->type_name("FILE");
}

void add_handler(CLI::App& app, RunOptions& options) {
  std::vector<std::pair<std::string_view, HandlerKind>> kinds = {{"function", HandlerKind::function},
                                                                 {"coroutine", HandlerKind::coroutine}};
  if (has_protobuf) kinds.emplace_back("protobuf", HandlerKind::protobuf);
  add_choice<HandlerKind>(app, "--handler",
                          "The server's handler: a plain function, a coroutine, or protobuf: a method of a service "
                          "with messages of protobuf [function]",
                          options.handler, std::move(kinds),
                          has_protobuf ? "neither function nor coroutine nor protobuf"
                                       : "neither function nor coroutine (this build has no protobuf)");
}

void add_protocol(CLI::App& app, RunOptions& options) {
  add(app, "--protocol", "NAME",
      "native, or over the byte stream, with --handler protobuf: baidu_std, the protocol of bRPC; grpc; http: HTTP/1.1 "
      "with JSON, each call in flight on its own connection [native]",
      [&app, &options](const std::string& option, const std::string& text) {
        if (text == "native") return;
        if (text != "baidu_std" && text != "grpc" && text != "http") {
          refuse(option, fmt::format("\"{}\" is none of native, baidu_std, grpc and http", text));
        }
        if (!has_protobuf) refuse(option, "this build has no protobuf: install libprotobuf-dev and protobuf-compiler");
        options.protocol = text == "grpc"   ? BenchProtocol::grpc
                           : text == "http" ? BenchProtocol::http
                                            : BenchProtocol::baidu_std;
        options.handler = HandlerKind::protobuf;
        if (text != "http") return;
        const auto given = [&app](const char* name) {
          const CLI::Option* const other = app.get_option_no_throw(name);
          return other != nullptr && other->count() != 0;
        };
        for (const char* other : {"--rate", "--registered", "--tls", "--protection", "--tls-kernel"}) {
          if (given(other)) refuse(option, fmt::format("http is measured without {}", other));
        }
        if (given("--mode") && options.modes != std::vector{Mode::connections}) {
          refuse(option, "with http, each call in flight has its own connection: give --mode connections, or none");
        }
        options.modes = {Mode::connections};
      });
}

void add_rate(CLI::App& app, RunOptions& options) {
  add_number(app, "--rate", "R",
             "Begin so many calls a second in all, by the clock; latency counts from when one should have begun",
             options.rate_per_s, rate_min, rate_max);
}

void add_connecting(CLI::App& app, RunOptions& options) {
  add_number(
      app, "--connecting", "R",
      fmt::format("Beside the cells, R other clients a second connect, make a call and disconnect, at most {} at "
                  "once, from a process of their own",
                  connecting_clients_max),
      options.connecting_per_s, rate_min, connecting_per_s_max);
}

void add_tls(CLI::App& app, RunOptions& options) {
  const auto check = [](const std::string& option) {
    if (!has_tls()) refuse(option, "this build has no TLS: install libssl-dev and build it again");
  };
  app.add_flag_callback(
      "--tls",
      [&options, check] {
        check("--tls");
        options.tls = true;
      },
      "Connect within TLS, with a certificate that the server makes for itself; tcp carries calls within TLS then");
  add(app, "--protection", "LEVEL",
      "With --tls: authenticated; signed or sealed messages beside the stream; or encrypted, which lets no transport "
      "but the stream carry calls [authenticated]",
      [&options, check](const std::string& option, const std::string& text) {
        check(option);
        if (text != "authenticated" && text != "signed" && text != "sealed" && text != "encrypted") {
          refuse(option, fmt::format("\"{}\" is none of authenticated, signed, sealed and encrypted", text));
        }
        options.tls = true;
        options.protection = text;
      });
  add(app, "--tls-kernel", "WHO",
      "With --tls: off, automatic or required; whether the kernels of both sides encrypt what is sent (kTLS) [off]",
      [&options, check](const std::string& option, const std::string& text) {
        check(option);
        if (text != "off" && text != "automatic" && text != "required") {
          refuse(option, fmt::format("\"{}\" is none of off, automatic and required", text));
        }
        options.tls = true;
        options.tls_kernel = text;
      });
}

void add_observed(CLI::App& app, RunOptions& options) {
  app.add_flag("--observed", options.observed,
               "The server has pages, a tracer and a recorder, and /metrics is read every second, over TCP");
}

void add_server_threads(CLI::App& app, RunOptions& options) {
  add_number(app, "--server-threads", "N", "Loops of the server, each with a thread [1]", options.server_threads, 1U,
             server_threads_max);
}

void add_waits(CLI::App& app, RunOptions& options) {
  add_list(app, "--wait", "How a loop without work waits: spin (then sleep), busy_poll, event [spin]", options.waits,
           reader(parse_wait, "no way to wait: give spin, busy_poll or event"));
  add_number(
      app, "--spin-max", "US",
      "Longest time that a loop with --wait spin polls before it sleeps [four wake-ups, at least 50 and at most 1000]",
      options.spin_max_us, 1.0, 1e6);
}

void add_poller(CLI::App& app, RunOptions& options) {
  add_choice<PollerKind>(
      app, "--poller", "auto, epoll or io_uring [auto]", options.poller,
      {{"auto", PollerKind::automatic}, {"epoll", PollerKind::epoll}, {"io_uring", PollerKind::io_uring}},
      "no poller: give auto, epoll or io_uring");
}

void add_peers(CLI::App& app, RunOptions& options) {
  add_list(app, "--peers", fmt::format("Programs to compare with: {} [baseline]", fmt::join(peers_known, ", ")),
           options.peers, [](const std::string& option, const std::string& text) {
             if (std::ranges::find(peers_known, text) == std::end(peers_known)) {
               refuse(option,
                      fmt::format("no peer is called \"{}\": there are {}", text, fmt::join(peers_known, ", ")));
             }
             return text;
           });
  add_number(app, "--repeat", "N", "Measurements of each cell; the result is their median [3]", options.repeat, 1U,
             repeat_max);
}

void add_cpu(CLI::App& app, const std::string& name, std::optional<int>& cpu, std::string_view whose) {
  add(app, name, "N", fmt::format("Processor to pin the {} to; -1: not pinned", whose),
      [&cpu](const std::string& option, const std::string& text) {
        const std::vector<int> usable = usable_processors();
        const std::optional<int> number = parse_number<int>(text);
        if (!number || (*number != -1 && std::ranges::find(usable, *number) == usable.end())) {
          refuse(option, fmt::format("\"{}\" is not a processor that may be used: give one of {}, or -1 for no pinning",
                                     text, fmt::join(usable, ", ")));
        }
        cpu = *number;
      });
}

void add_cpus(CLI::App& app, RunOptions& options) {
  add_cpu(app, "--server-cpu", options.server_cpu, "server");
  add_cpu(app, "--client-cpu", options.client_cpu, "client");
}

void add_loan(CLI::App& app, RunOptions& options) {
  app.add_flag("--loan", options.loan,
               "Each payload is a loan of which the ends are written; without --rate, threads and protobuf");
  app.callback([&options] {
    if (!options.loan) return;
    if (options.rate_per_s > 0) refuse("--loan", "loans are measured without --rate");
    if (options.registered) refuse("--loan", "a payload is a loan or lies in a RegisteredBuffer: omit --registered");
    if (options.handler == HandlerKind::protobuf) {
      refuse("--loan", "a message of protobuf is copied: give --handler function or coroutine");
    }
    if (std::ranges::find(options.modes, Mode::threads) != options.modes.end()) {
      refuse("--loan", "the calls of a thread have no loans: give --mode pipeline or connections");
    }
  });
}

// The load that a client sends.
void add_load(CLI::App& app, RunOptions& options) {
  add_transports(app, options);
  add_sizes(app, options);
  add_pairs(app, options, all_pairs);
  add_table(app, options);
  add_handler(app, options);
  add_protocol(app, options);
  add_tls(app, options);
  add_rate(app, options);
  add_loan(app, options);
}

}  // namespace

void add_run_options(CLI::App& app, RunOptions& options) {
  add_load(app, options);
  add_connecting(app, options);
  add_observed(app, options);
  add_server_threads(app, options);
  add_waits(app, options);
  add_poller(app, options);
  add_cpus(app, options);
  app.add_flag("--rtt-table", options.rtt_table, "Round trips of 4K by calls in flight, the transport beside tcp");
}

void add_limit_options(CLI::App& app, RunOptions& options) {
  add_transports(app, options);
  add_sizes(app, options);
  add_pairs(app, options, all_pairs);
  add_table(app, options);
  add_waits(app, options);
  add_cpus(app, options);
}

void add_compare_options(CLI::App& app, RunOptions& options) {
  add_transports(app, options);
  add_peers(app, options);
  add_pairs(app, options, "128x1,128x16,128x256,4Kx64,256Kx1,256Kx16,8Mx4");
  add_table(app, options);
  add_handler(app, options);
  add_protocol(app, options);
  add_waits(app, options);
  add_poller(app, options);
  add_cpus(app, options);
}

void add_memory_options(CLI::App& app, RunOptions& options) {
  add_transports(app, options);
  add_choice<std::string>(app, "--op", "read or write [write]", options.memory_op,
                          {{"read", "read"}, {"write", "write"}}, "neither read nor write");
  add(app, "--block", "SIZE", "Bytes of each block; K and M are powers of 1024 [256K]",
      [&options](const std::string& option, const std::string& text) {
        options.memory_block = read_size(option, text);
      });
  add_number(app, "--batch", "N", "Blocks of each batch [1]", options.memory_batch, 1U, memory_batch_max);
  app.add_flag("--scattered", options.memory_scattered, "No two blocks are contiguous, and they come in random order");
  add_number(app, "--depth", "N", "Batches in flight [4]", options.memory_depth, 1U, memory_depth_max);
  app.add_flag("--baseline", options.memory_baseline,
               "Also measure bare sockets (tcp, unix), perftest (rdma) or memcpy (others)");
  app.add_flag("--bulk", options.memory_bulk, "The transfers have the priority bulk");
  add_number(app, "--clients", "N",
             "Connections, each with its own --depth: many to one, or pairwise with --owners [1]",
             options.memory_clients, 1U, memory_paths_max);
  add_number(app, "--owners", "N", "Processes with memory: one to many, or pairwise with as many --clients [1]",
             options.memory_owners, 1U, memory_paths_max);
  app.add_flag("--separate", options.memory_separate, "The transfers have a connection of their own");
  app.add_flag("--calls", options.memory_calls,
               "Measure calls of 128 bytes alone, the transfers alone, and both beside each other");
  app.add_flag("--small-reads", options.memory_small_reads, "With --calls: reads of 64 bytes in place of the calls");
  add_number(app, "--seconds", "S", "Counted time, after warm-up [1]", options.seconds, seconds_min, seconds_max);
  add_waits(app, options);
  add_poller(app, options);
  add_cpus(app, options);
  app.add_option("--json", options.json_path, "Write the results there as JSON")->type_name("FILE");
  app.callback([&options] {
    if (options.transports.size() != 1) refuse("--transport", "give one");
    if (options.waits.size() != 1) refuse("--wait", "give one");
    const unsigned clients = options.memory_clients;
    const unsigned owners = options.memory_owners;
    if (clients != 1 && owners != 1 && clients != owners) {
      refuse("--owners", "give as many as --clients, or 1 of either");
    }
    if (clients * owners != 1 && (options.memory_calls || options.memory_baseline || options.memory_separate)) {
      refuse("--clients, --owners", "--calls, --baseline and --separate measure one client and one owner");
    }
  });
}

void add_report_options(CLI::App& app, RunOptions& options) {
  app.add_option("files", options.report_inputs, "Files that --json has written")->type_name("FILE")->required();
  app.add_option("-o,--output", options.report_path, "Page to write [report.html]")->type_name("FILE");
}

void add_server_options(CLI::App& app, RunOptions& options) {
  add_transports(app, options);
  add_waits(app, options);
  add_poller(app, options);
  add_server_threads(app, options);
  add_tls(app, options);
  add_cpu(app, "--server-cpu", options.server_cpu, "server");
  app.add_option("--listen", options.listen, "Address to listen at; port 0 selects a free one [0.0.0.0:9000]")
      ->type_name("HOST:PORT");
  app.callback([&options] {
    if (options.waits.size() != 1) refuse("--wait", "a server has one way to wait: give one");
    if (options.transports.size() != 1) refuse("--transport", "a server has one transport, or auto for all: give one");
  });
}

void add_client_options(CLI::App& app, RunOptions& options) {
  add_load(app, options);
  add_waits(app, options);
  add_poller(app, options);
  add_cpu(app, "--client-cpu", options.client_cpu, "client");
  app.add_option("--connect", options.connect, "The server's address")->type_name("HOST:PORT")->required();
}

std::size_t connections_max(const RunOptions& options) {
  if (std::ranges::find(options.modes, Mode::connections) == options.modes.end()) return 1;
  if (options.pairs.empty()) return std::ranges::max(options.concurrencies);
  return std::ranges::max(options.pairs, {}, &SizeAndConcurrency::concurrency).concurrency;
}

std::vector<Cell> cells_of(const RunOptions& options) {
  std::vector<SizeAndConcurrency> pairs = options.pairs;
  if (pairs.empty()) {
    for (const std::size_t size : options.sizes_bytes) {
      for (const unsigned concurrency : options.concurrencies) pairs.push_back({size, concurrency});
    }
  }
  std::vector<Cell> cells;
  for (const std::string& transport : options.transports) {
    for (const Wait wait : options.waits) {
      for (const Mode mode : options.modes) {
        for (const auto [size, concurrency] : pairs) cells.push_back({transport, mode, wait, size, concurrency});
      }
    }
  }
  return cells;
}

}  // namespace hawser::bench
