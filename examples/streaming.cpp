// Streams: the server writes, the client writes, or both at once. A slow reader makes its writer wait, by credits.
#include <hawser/hawser.h>

#include <cstdio>
#include <string>

// [server-streaming]
// Server streaming: a Writer after the arguments.
hawser::Task<hawser::Result<int>> count(int from, int to, hawser::Writer<int> out) {
  for (int i = from; i < to; ++i) {
    if (auto written = co_await out.write(i); !written) co_return std::unexpected(written.error());
  }
  co_return to - from;
}
// [/server-streaming]

// [client-streaming]
// Client streaming: a Reader.
hawser::Task<hawser::Result<std::size_t>> total_length(hawser::Reader<std::string> in) {
  std::size_t sum = 0;
  for (;;) {
    hawser::Result<std::optional<std::string>> line = co_await in.next();
    if (!line) co_return std::unexpected(line.error());
    if (!*line) co_return sum;
    sum += (*line)->size();
  }
}
// [/client-streaming]

// [in-place]
// Reads each line where it was received. A view is valid until the next read.
hawser::Task<hawser::Result<std::size_t>> count_spaces(hawser::Reader<std::string> in) {
  std::size_t spaces = 0;
  for (;;) {
    hawser::Result<std::optional<std::string_view>> line = co_await in.read_view();
    if (!line) co_return std::unexpected(line.error());
    if (!*line) co_return spaces;
    for (const char letter : **line) spaces += letter == ' ' ? 1 : 0;
  }
}
// [/in-place]

// [both]
// Both directions.
hawser::Task<hawser::Result<void>> shout(hawser::Reader<std::string> in, hawser::Writer<std::string> out) {
  for (;;) {
    hawser::Result<std::optional<std::string>> word = co_await in.next();
    if (!word) co_return std::unexpected(word.error());
    if (!*word) co_return hawser::Result<void>{};
    const std::string loud = **word + "!";
    if (auto written = co_await out.write(loud); !written) co_return written;
  }
}
// [/both]

hawser::Task<int> talk(std::string address) {
  hawser::Client client;
  if (!co_await client.connect(address)) co_return 1;

  // [read]
  auto counting = co_await client.open<count>(1, 1000);
  if (!counting) co_return 1;
  long sum = 0;
  auto numbers = counting->reader();
  for (;;) {
    hawser::Result<std::optional<int>> number = co_await numbers.next();
    if (!number || !*number) break;
    sum += **number;
  }
  hawser::Result<int> counted = co_await counting->finish();
  std::printf("%d numbers, sum %ld\n", counted.value_or(-1), sum);
  // [/read]

  // [write]
  auto measuring = co_await client.open<total_length>();
  if (!measuring) co_return 1;
  auto lines = measuring->writer();
  const std::string line = "a line of text";
  for (int i = 0; i < 100; ++i) {
    if (!co_await lines.write(line)) break;
  }
  hawser::Result<std::size_t> length = co_await measuring->finish();
  std::printf("%zu bytes\n", length.value_or(0));
  // [/write]

  // [deadline]
  const hawser::CallOptions within_a_minute{.timeout = std::chrono::minutes(1)};
  auto spaces = co_await client.open<count_spaces>(within_a_minute);
  // [/deadline]
  if (!spaces) co_return 1;
  auto texts = spaces->writer();
  if (!co_await texts.write(line)) co_return 1;
  hawser::Result<std::size_t> counted_spaces = co_await spaces->finish();

  auto shouting = co_await client.open<shout>();
  if (!shouting) co_return 1;
  auto out = shouting->writer();
  auto in = shouting->reader();
  const std::string word = "ahoy";
  if (!co_await out.write(word)) co_return 1;
  hawser::Result<std::optional<std::string>> answer = co_await in.next();
  std::printf("%s\n", answer && *answer ? (*answer)->c_str() : "no answer");
  hawser::Result<void> ended = co_await shouting->finish();
  co_return sum == 499'500 && length == 1400U && counted_spaces == 3U && answer && *answer == "ahoy!" && ended ? 0 : 1;
}

int main() {
  hawser::Server server;
  server.register_handler<count, total_length, count_spaces, shout>();
  if (!server.start()) return 1;
  return hawser::sync_wait(talk(server.address()));
}
