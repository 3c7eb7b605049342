// Chapter 3 of the guide: the types that a call can carry, and a struct that got a new field.
#include <hawser/hawser.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

// [struct]
enum class Colour : std::uint8_t { red, green };

struct Point {
  double x = 0;
  double y = 0;
};

struct Shape {
  std::string name;
  Colour colour = Colour::red;
  std::vector<Point> corners;
  std::map<std::string, std::variant<int, std::string>> properties;
  std::optional<Point> centre;
};
// [/struct]

// [use]
std::size_t count_corners(const std::vector<Shape>& shapes) {
  std::size_t corners = 0;
  for (const Shape& shape : shapes) corners += shape.corners.size();
  return corners;
}
// [/use]

// [first-version]
namespace version_1 {
struct Job {
  static constexpr std::size_t hawser_base_fields = 1;  // The first version has one field.
  std::string command;
};
}  // namespace version_1
// [/first-version]

// [second-version]
namespace version_2 {
struct Job {
  static constexpr std::size_t hawser_base_fields = 1;  // Unchanged for ever.
  std::string command;
  int priority = 5;  // New fields come last and have a default.
};
}  // namespace version_2
// [/second-version]

// Encodes a value as `From` and decodes it as `To`, as two programs of different versions do.
template <class To, class From>
hawser::Result<To> pass(const From& value) {
  const hawser::codec::EncodedSize size = hawser::codec::encoded_size(value);
  std::vector<std::byte> body(size.body);
  hawser::codec::Encoder encoder(body.data(), nullptr);
  hawser::codec::encode(encoder, value);
  hawser::codec::Decoder decoder(body);
  std::tuple<To> decoded;
  if (!hawser::codec::decode_all(decoder, decoded)) return std::unexpected(decoder.error());
  return std::get<0>(decoded);
}

hawser::Task<int> talk(std::string address) {
  hawser::Client client;
  if (!co_await client.connect(address)) co_return 1;
  const std::vector<Shape> shapes = {{.name = "line",
                                      .colour = Colour::green,
                                      .corners = {{0, 0}, {1, 1}},
                                      .properties = {{"width", 3}, {"pen", "thin"}},
                                      .centre = Point{0.5, 0.5}}};
  hawser::Result<std::size_t> corners = co_await client.call<count_corners>(shapes);

  const auto by_new = pass<version_2::Job>(version_1::Job{.command = "sort"});
  const auto by_old = pass<version_1::Job>(version_2::Job{.command = "merge", .priority = 1});
  std::printf("%zu corners; a new program reads '%s' with priority %d; an old one reads '%s'\n", corners.value_or(0),
              by_new->command.c_str(), by_new->priority, by_old->command.c_str());
  co_return corners == 2u && by_new->priority == 5 && by_old->command == "merge" ? 0 : 1;
}

int main() {
  hawser::Server server;
  server.register_handler<count_corners>();
  if (!server.start()) return 1;
  return hawser::sync_wait(talk(server.address()));
}
