#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "hawser/error.h"

namespace hawser::cli {

// The state of a server at one time, from its pages. Rates are those since the sample before.
struct TopSample {
  struct Method {
    std::string name;
    double calls_rate = 0;   // A second.
    double errors_rate = 0;  // A second.
    std::uint64_t calls = 0;
    std::uint64_t errors = 0;
    std::uint64_t in_flight = 0;
    // In seconds, of the last one to two minutes; empty if there were no calls.
    std::optional<double> p50 = {};
    std::optional<double> p90 = {};
    std::optional<double> p99 = {};
  };
  struct Connection {
    std::string id;
    std::string peer;
    std::string protocol;
    std::string transport;
    double calls_rate = 0;
    double received_rate = 0;  // Bytes a second.
    double sent_rate = 0;      // Bytes a second.
    std::uint64_t calls = 0;
    std::uint64_t received = 0;
    std::uint64_t sent = 0;
    std::uint64_t in_flight = 0;
    std::uint64_t backlog = 0;  // Bytes.
  };
  struct Loop {
    std::uint64_t number = 0;
    double busy_percent = 0;
    double tick_p99 = 0;      // Seconds.
    double tick_longest = 0;  // Seconds.
    std::uint64_t connections = 0;
    std::uint64_t calls = 0;
  };

  std::string status;
  double calls_rate = 0;
  std::uint64_t calls = 0;
  std::uint64_t in_flight = 0;
  std::uint64_t connections_open = 0;
  std::vector<Method> methods = {};
  std::vector<Connection> connections = {};
  std::vector<Loop> loops = {};
};

// Rows of one table that a sample keeps; further rows are left out, whatever a server sends.
inline constexpr std::size_t top_rows_max = 2'000;

// These add the content of a page, as JSON. False if the page is none of Hawser's. Values of unexpected types count as
// 0 or as an empty text.
bool add_status(TopSample& sample, const nlohmann::json& page);
bool add_connections(TopSample& sample, const nlohmann::json& page);
bool add_loops(TopSample& sample, const nlohmann::json& page);

// Computes the rates from the sample of the same server `seconds` before. Counters that have become smaller have begun
// again.
void add_rates(TopSample& sample, const TopSample& before, double seconds);

enum class TopOrder : std::uint8_t { rate, calls, errors, latency };
// Sorts the methods by `order`, the greatest first, and the connections by the bytes that they carry.
void sort(TopSample& sample, TopOrder order);

// One line of JSON. Durations are in microseconds.
std::string to_json(const TopSample& sample);

struct TopSize {
  std::size_t columns = 120;
  std::size_t rows = 60;
};
// Lines without control characters that fit into the size: the server, then methods, connections and loops.
std::vector<std::string> to_lines(const TopSample& sample, const std::string& address, TopSize size);

}  // namespace hawser::cli
