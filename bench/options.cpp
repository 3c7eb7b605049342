#include "options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "processors.h"
#include "size.h"

namespace hawser::bench {
namespace {

// What this build can carry calls over, and what is known to come.
constexpr std::string_view transports_built[] = {"tcp"};
constexpr std::string_view transports_known[] = {"tcp", "rdma", "ucx", "shm"};

constexpr std::string_view peers_known[] = {"limit", "grpc", "capnp"};
constexpr unsigned repeat_max = 99;

constexpr double rate_min = 0.1;
constexpr double rate_max = 1e9;
constexpr unsigned server_threads_max = 1024;

constexpr double seconds_min = 0.01;
constexpr double seconds_max = 3600;

[[noreturn]] void refuse(const std::string& option, const std::string& why) { throw CLI::ValidationError(option, why); }

// Calls `read` with each part of "a,b,c".
template <class Read>
auto read_list(const std::string& option, const std::string& text, Read read) {
  std::vector<decltype(read(text))> values;
  for (const std::string& part : CLI::detail::split(text, ',')) {
    auto value = read(part);
    if (std::ranges::find(values, value) != values.end()) refuse(option, fmt::format("{} is there twice", part));
    values.push_back(std::move(value));
  }
  return values;
}

template <class Number>
std::optional<Number> read_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

void add_transport(CLI::App& app, Options& options) {
  const std::string name = "--transport";
  app.add_option_function<std::string>(
         name,
         [&options, name](const std::string& text) {
           if (std::ranges::find(transports_built, text) == std::end(transports_built)) {
             const std::string built = fmt::format("this build has {}", fmt::join(transports_built, ", "));
             if (std::ranges::find(transports_known, text) == std::end(transports_known)) {
               refuse(name, fmt::format("no transport is called \"{}\": {}", text, built));
             }
             refuse(name, fmt::format("{} is not built in: {}", text, built));
           }
           options.transport = text;
         })
      ->type_name("NAME")
      ->description(fmt::format("What carries the calls ({}) [tcp]", fmt::join(transports_built, ", ")));
}

std::size_t read_size(const std::string& option, const std::string& text) {
  const std::optional<std::size_t> size = parse_size(text);
  if (!size || *size < 1 || *size > size_bytes_max) {
    refuse(option,
           fmt::format("\"{}\" is no size: give 1 to {}, such as 128, 4K or 8M", text, format_size(size_bytes_max)));
  }
  return *size;
}

unsigned read_concurrency(const std::string& option, const std::string& text) {
  const std::optional<unsigned> number = read_number<unsigned>(text);
  if (!number || *number < 1 || *number > concurrency_max) {
    refuse(option, fmt::format("\"{}\" is no number from 1 to {}", text, concurrency_max));
  }
  return *number;
}

void add_sizes(CLI::App& app, Options& options) {
  app.add_option_function<std::string>("--sizes",
                                       [&options](const std::string& text) {
                                         options.sizes_bytes = read_list("--sizes", text, [](const std::string& part) {
                                           return read_size("--sizes", part);
                                         });
                                       })
      ->type_name("LIST")
      ->description("Bytes of payload; K and M are powers of 1024 [128,4K,32K,256K,1M,8M]");
  app.add_option_function<std::string>(
         "--concurrency",
         [&options](const std::string& text) {
           options.concurrencies = read_list(
               "--concurrency", text, [](const std::string& part) { return read_concurrency("--concurrency", part); });
         })
      ->type_name("LIST")
      ->description("Calls in flight at once [1,4,16,64,256]");
}

void add_pairs(CLI::App& app, Options& options, std::string_view default_text) {
  app.add_option_function<std::string>(
         "--cells",
         [&options](const std::string& text) {
           options.pairs = read_list("--cells", text, [](const std::string& part) {
             const std::size_t cross = part.find('x');
             if (cross == std::string::npos) {
               refuse("--cells", fmt::format("\"{}\" is no cell: give SIZExCONCURRENCY, such as 4Kx64", part));
             }
             return SizeAndConcurrency{read_size("--cells", part.substr(0, cross)),
                                       read_concurrency("--cells", part.substr(cross + 1))};
           });
         })
      ->type_name("LIST")
      ->description(fmt::format("Sizes, each with its calls in flight [{}]", default_text));
}

void add_table(CLI::App& app, Options& options) {
  app.add_option_function<std::string>(
         "--mode",
         [&options](const std::string& text) {
           options.modes = read_list("--mode", text, [](const std::string& part) {
             const std::optional<Mode> mode = parse_mode(part);
             if (!mode) refuse("--mode", fmt::format("\"{}\" is no mode: give pipeline, connections or both", part));
             return *mode;
           });
         })
      ->type_name("LIST")
      ->description("pipeline: all calls on one connection; connections: each on its own [pipeline]");
  app.add_option_function<std::string>(
         "--seconds",
         [&options](const std::string& text) {
           const std::optional<double> seconds = read_number<double>(text);
           if (!seconds || !(*seconds >= seconds_min && *seconds <= seconds_max)) {
             refuse("--seconds", fmt::format("\"{}\" is no number from {} to {}", text, seconds_min, seconds_max));
           }
           options.seconds = *seconds;
         })
      ->type_name("S")
      ->description("Counted time of each cell, after warm-up [1]");
  app.add_option_function<std::string>("--reply",
                                       [&options](const std::string& text) {
                                         if (text != "echo" && text != "ack")
                                           refuse("--reply", fmt::format("\"{}\" is neither echo nor ack", text));
                                         options.reply = text == "echo" ? ReplyKind::echo : ReplyKind::ack;
                                       })
      ->type_name("KIND")
      ->description("echo: the payload comes back; ack: 16 bytes do [echo]");
  app.add_option_function<std::string>("--bytes-in-flight",
                                       [&options](const std::string& text) {
                                         const std::optional<std::size_t> bytes = parse_size(text);
                                         if (!bytes || *bytes < 1) {
                                           refuse("--bytes-in-flight",
                                                  fmt::format("\"{}\" is no size, such as 512M or 2G", text));
                                         }
                                         options.bytes_in_flight_max = *bytes;
                                       })
      ->type_name("SIZE")
      ->description("With --mode connections, keep fewer calls in flight where they would hold more memory [512M]");
  app.add_option_function<std::string>(
         "--call-timeout",
         [&options](const std::string& text) {
           const std::optional<double> seconds = read_number<double>(text);
           if (!seconds || !(*seconds >= seconds_min && *seconds <= seconds_max)) {
             refuse("--call-timeout", fmt::format("\"{}\" is no number from {} to {}", text, seconds_min, seconds_max));
           }
           options.call_timeout_s = *seconds;
         })
      ->type_name("S")
      ->description("When a call counts as failed [30]");
  app.add_option("--json", options.json_path, "Write the results there as JSON")->type_name("FILE");
  app.add_option("--csv", options.csv_path, "Write the results there as CSV")->type_name("FILE");
}

void add_handler(CLI::App& app, Options& options) {
  app.add_option_function<std::string>(
         "--handler",
         [&options](const std::string& text) {
           if (text != "function" && text != "coroutine") {
             refuse("--handler", fmt::format("\"{}\" is neither function nor coroutine", text));
           }
           options.handler = text == "function" ? HandlerKind::function : HandlerKind::coroutine;
         })
      ->type_name("KIND")
      ->description("The server's handler: a plain function or a coroutine [function]");
}

void add_rate(CLI::App& app, Options& options) {
  app.add_option_function<std::string>(
         "--rate",
         [&options](const std::string& text) {
           const std::optional<double> rate = read_number<double>(text);
           if (!rate || !(*rate >= rate_min && *rate <= rate_max)) {
             refuse("--rate", fmt::format("\"{}\" is no number from {} to {:.0f}", text, rate_min, rate_max));
           }
           options.rate_per_s = *rate;
         })
      ->type_name("R")
      ->description(
          "Begin so many calls a second in all, by the clock; latency counts from when one should have begun");
}

void add_server_threads(CLI::App& app, Options& options) {
  app.add_option_function<std::string>(
         "--server-threads",
         [&options](const std::string& text) {
           const std::optional<unsigned> number = read_number<unsigned>(text);
           if (!number || *number < 1 || *number > server_threads_max) {
             refuse("--server-threads", fmt::format("\"{}\" is no number from 1 to {}", text, server_threads_max));
           }
           options.server_threads = *number;
         })
      ->type_name("N")
      ->description("Loops of the server, each with a thread [1]");
}

void add_wait(CLI::App& app, Options& options, bool several) {
  app.add_option_function<std::string>(
         "--wait",
         [&options, several](const std::string& text) {
           options.waits = read_list("--wait", text, [](const std::string& part) {
             const std::optional<Wait> wait = parse_wait(part);
             if (!wait) refuse("--wait", fmt::format("\"{}\" is no way to wait: give spin, busy_poll or event", part));
             return *wait;
           });
           if (!several && options.waits.size() != 1) refuse("--wait", "a server waits in one way: give one");
         })
      ->type_name(several ? "LIST" : "KIND")
      ->description("How a loop without work waits: spin (then sleep), busy_poll, event [spin]");
}

void add_poller(CLI::App& app, Options& options) {
  app.add_option_function<std::string>(
         "--poller",
         [&options](const std::string& text) {
           if (text == "auto") {
             options.poller = PollerKind::automatic;
           } else if (text == "epoll") {
             options.poller = PollerKind::epoll;
           } else if (text == "io_uring") {
             options.poller = PollerKind::io_uring;
           } else {
             refuse("--poller", fmt::format("\"{}\" is no poller: give auto, epoll or io_uring", text));
           }
         })
      ->type_name("KIND")
      ->description("auto, epoll or io_uring [auto]");
}

void add_peers(CLI::App& app, Options& options) {
  app.add_option_function<std::string>("--peers",
                                       [&options](const std::string& text) {
                                         options.peers = read_list("--peers", text, [](const std::string& part) {
                                           if (std::ranges::find(peers_known, part) == std::end(peers_known)) {
                                             refuse("--peers", fmt::format("no peer is called \"{}\": there are {}",
                                                                           part, fmt::join(peers_known, ", ")));
                                           }
                                           return part;
                                         });
                                       })
      ->type_name("LIST")
      ->description(fmt::format("Whom to compare with: {} [limit]", fmt::join(peers_known, ", ")));
  app.add_option_function<std::string>("--repeat",
                                       [&options](const std::string& text) {
                                         const std::optional<unsigned> number = read_number<unsigned>(text);
                                         if (!number || *number < 1 || *number > repeat_max) {
                                           refuse("--repeat",
                                                  fmt::format("\"{}\" is no number from 1 to {}", text, repeat_max));
                                         }
                                         options.repeat = *number;
                                       })
      ->type_name("N")
      ->description("How often each cell is measured; the medians count [3]");
}

void add_cpu(CLI::App& app, const std::string& name, std::optional<int>& cpu, std::string_view whose) {
  app.add_option_function<std::string>(
         name,
         [&cpu, name](const std::string& text) {
           const std::vector<int> usable = usable_processors();
           const std::optional<int> number = read_number<int>(text);
           if (!number || (*number != -1 && std::ranges::find(usable, *number) == usable.end())) {
             refuse(name, fmt::format("\"{}\" is no processor that may be used: give one of {}, or -1 for no pinning",
                                      text, fmt::join(usable, ", ")));
           }
           cpu = *number;
         })
      ->type_name("N")
      ->description(fmt::format("Processor to pin the {} to; -1: not pinned", whose));
}

}  // namespace

void add_run_options(CLI::App& app, Options& options) {
  add_transport(app, options);
  add_sizes(app, options);
  add_pairs(app, options, "none: all sizes times all concurrencies");
  add_table(app, options);
  add_handler(app, options);
  add_rate(app, options);
  add_server_threads(app, options);
  add_wait(app, options, true);
  add_poller(app, options);
  add_cpu(app, "--server-cpu", options.server_cpu, "server");
  add_cpu(app, "--client-cpu", options.client_cpu, "client");
}

void add_limit_options(CLI::App& app, Options& options) {
  add_sizes(app, options);
  add_pairs(app, options, "none: all sizes times all concurrencies");
  add_table(app, options);
  add_wait(app, options, true);
  add_cpu(app, "--server-cpu", options.server_cpu, "server");
  add_cpu(app, "--client-cpu", options.client_cpu, "client");
}

void add_compare_options(CLI::App& app, Options& options) {
  add_transport(app, options);
  add_peers(app, options);
  add_pairs(app, options, "128x1,128x16,128x256,4Kx64,256Kx1,256Kx16,8Mx4");
  add_table(app, options);
  add_handler(app, options);
  add_wait(app, options, true);
  add_poller(app, options);
  add_cpu(app, "--server-cpu", options.server_cpu, "server");
  add_cpu(app, "--client-cpu", options.client_cpu, "client");
}

void add_report_options(CLI::App& app, Options& options) {
  app.add_option("files", options.report_inputs, "What --json has written")->type_name("FILE")->required();
  app.add_option("-o,--output", options.report_path, "Where to write the page [report.html]")->type_name("FILE");
}

void add_server_options(CLI::App& app, Options& options) {
  add_transport(app, options);
  add_wait(app, options, false);
  add_poller(app, options);
  add_server_threads(app, options);
  add_cpu(app, "--server-cpu", options.server_cpu, "server");
  app.add_option("--listen", options.listen, "Where to listen; port 0 takes a free one [0.0.0.0:9000]")
      ->type_name("HOST:PORT");
}

void add_client_options(CLI::App& app, Options& options) {
  add_transport(app, options);
  add_sizes(app, options);
  add_pairs(app, options, "none: all sizes times all concurrencies");
  add_table(app, options);
  add_handler(app, options);
  add_rate(app, options);
  add_wait(app, options, true);
  add_poller(app, options);
  add_cpu(app, "--client-cpu", options.client_cpu, "client");
  app.add_option("--connect", options.connect, "The server's address")->type_name("HOST:PORT")->required();
}

std::size_t connections_max(const Options& options) {
  if (std::ranges::find(options.modes, Mode::connections) == options.modes.end()) return 1;
  if (options.pairs.empty()) return std::ranges::max(options.concurrencies);
  return std::ranges::max(options.pairs, {}, &SizeAndConcurrency::concurrency).concurrency;
}

std::vector<Cell> cells_of(const Options& options) {
  std::vector<SizeAndConcurrency> pairs = options.pairs;
  if (pairs.empty()) {
    for (const std::size_t size : options.sizes_bytes) {
      for (const unsigned concurrency : options.concurrencies) pairs.push_back({size, concurrency});
    }
  }
  std::vector<Cell> cells;
  for (const Wait wait : options.waits) {
    for (const Mode mode : options.modes) {
      for (const auto [size, concurrency] : pairs) cells.push_back({options.transport, mode, wait, size, concurrency});
    }
  }
  return cells;
}

}  // namespace hawser::bench
