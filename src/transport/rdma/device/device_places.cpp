#include "transport/rdma/device/device_places.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>
#include <tuple>
#include <utility>

namespace hawser::transport::rdma {
namespace {

// No machine has more processors or nodes. A list of the kernel that says otherwise is not expanded.
constexpr unsigned list_number_max = 65'535;

template <class Number>
std::optional<Number> whole_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// "0000:17:00.0", the name of a PCI function. The domain may have more than four digits.
bool names_pci_function(std::string_view name) {
  constexpr std::string_view form = "xxxx:xx:xx.x";
  if (name.size() < form.size()) return false;
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  const std::size_t more = name.size() - form.size();
  if (!std::all_of(name.begin(), name.begin() + static_cast<std::ptrdiff_t>(more), is_digit)) return false;
  for (std::size_t i = 0; i < form.size(); ++i) {
    const char c = name[more + i];
    if (form[i] == 'x' ? !is_digit(c) : c != form[i]) return false;
  }
  return true;
}

}  // namespace

std::vector<unsigned> parse_number_list(std::string_view text) {
  std::vector<unsigned> numbers;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const std::size_t dash = part.find('-');
    const auto first = whole_number<unsigned>(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : whole_number<unsigned>(part.substr(dash + 1));
    if (!first || !last || *last < *first || *last > list_number_max) return {};
    for (unsigned number = *first; number <= *last; ++number) numbers.push_back(number);
  }
  return numbers;
}

std::vector<unsigned> allowed_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<unsigned> processors;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return processors;
  for (unsigned number = 0; number < CPU_SETSIZE; ++number) {
    if (CPU_ISSET(number, &set)) processors.push_back(number);
  }
  return processors;
}

DevicePlaces::DevicePlaces(std::filesystem::path root) : sys_(std::move(root) / "sys") {}

std::string DevicePlaces::line_of(const std::filesystem::path& file) const {
  std::ifstream stream(sys_ / file);
  std::string line;
  std::getline(stream, line);
  return line;
}

void DevicePlaces::sort(std::vector<std::string>& devices, std::span<const unsigned> processors) const {
  std::map<unsigned, std::size_t> processors_of_node;
  for (const unsigned node : parse_number_list(line_of("devices/system/node/online"))) {
    for (const unsigned one :
         parse_number_list(line_of("devices/system/node/node" + std::to_string(node) + "/cpulist"))) {
      if (std::find(processors.begin(), processors.end(), one) != processors.end()) ++processors_of_node[node];
    }
  }
  // The last part keeps the order of equal devices.
  std::vector<std::tuple<bool, double, unsigned, std::size_t>> places;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const Place place = place_of(devices[i], processors_of_node);
    places.emplace_back(!place.on_bus, place.distance, place.bridges, i);
  }
  std::sort(places.begin(), places.end());
  std::vector<std::string> sorted;
  for (const auto& place : places) sorted.push_back(std::move(devices[std::get<3>(place)]));
  devices = std::move(sorted);
}

DevicePlaces::Place DevicePlaces::place_of(const std::string& device,
                                           const std::map<unsigned, std::size_t>& processors_of_node) const {
  Place place;
  const std::filesystem::path link = std::filesystem::path("class/infiniband") / device / "device";
  std::error_code error;
  const std::filesystem::path target = std::filesystem::canonical(sys_ / link, error);
  if (error) return place;
  unsigned functions = 0;
  for (const std::filesystem::path& part : target) functions += names_pci_function(part.string()) ? 1U : 0U;
  place.on_bus = functions != 0;
  place.bridges = functions;  // The device itself counts too, as it does for every device.
  const auto node = whole_number<int>(line_of(link / "numa_node"));
  if (!node || *node < 0) return place;
  // The line of a node has the distance to each online node, in the order of their numbers.
  const std::vector<unsigned> online = parse_number_list(line_of("devices/system/node/online"));
  const auto found = std::find(online.begin(), online.end(), static_cast<unsigned>(*node));
  if (found == online.end()) return place;
  const auto column = static_cast<std::size_t>(found - online.begin());
  double sum = 0;
  std::size_t count = 0;
  for (const auto& [from, processors] : processors_of_node) {
    std::istringstream distances(line_of("devices/system/node/node" + std::to_string(from) + "/distance"));
    unsigned distance = 0;
    bool known = true;
    for (std::size_t i = 0; i <= column && known; ++i) known = static_cast<bool>(distances >> distance);
    if (!known) return place;
    sum += static_cast<double>(distance) * static_cast<double>(processors);
    count += processors;
  }
  if (count != 0) place.distance = sum / static_cast<double>(count);
  return place;
}

}  // namespace hawser::transport::rdma
