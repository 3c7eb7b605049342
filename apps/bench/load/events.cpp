#include "bench/load/events.h"

#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "bench/results/result_json.h"

namespace hawser::bench {
namespace {

using nlohmann::json;

template <class... Cases>
struct Match : Cases... {
  using Cases::operator()...;
};

json to_object(const Event& event) {
  return std::visit(
      Match{
          [](const Listening& one) { return json{{"event", "listening"}, {"address", one.address}}; },
          [](const Connected& one) {
            return json{
                {"event", "connected"},          {"poller", one.server.poller},        {"wait", one.server.wait},
                {"version", one.server.version}, {"client_poller", one.client_poller}, {"transport", one.transport}};
          },
          [](const CellBegun& one) { return json{{"event", "begun"}, {"index", one.index}}; },
          [](const CellResult& one) { return json{{"event", "cell"}, {"cell", result_to_json(one)}}; },
          [](const Failed& one) { return json{{"event", "failed"}, {"text", one.text}}; },
      },
      event);
}

std::optional<Event> from_object(const json& object) {
  const std::string kind = object.at("event");
  if (kind == "listening") return Listening{object.at("address")};
  if (kind == "connected") {
    return Connected{{object.at("poller"), object.at("wait"), object.at("version")},
                     object.at("client_poller"),
                     object.at("transport")};
  }
  if (kind == "begun") return CellBegun{object.at("index")};
  if (kind == "failed") return Failed{object.at("text")};
  if (kind == "cell") {
    if (std::optional<CellResult> result = result_from_json(object.at("cell"))) return *result;
  }
  return std::nullopt;
}

}  // namespace

std::string encode_event(const Event& event) {
  return to_object(event).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<Event> decode_event(std::string_view line) {
  try {
    return from_object(json::parse(line));
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

bool EventWriter::write(const Event& event) const {
  const std::string line = encode_event(event) + "\n";
  std::string_view left = line;
  while (!left.empty()) {
    const ssize_t written = ::write(descriptor_, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    left.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace hawser::bench
