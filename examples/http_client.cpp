// HttpClient with bodies in parts: a file is downloaded and uploaded without being held in memory, and events of a
// server are read as they come. The server runs in the same program.
#include <hawser/hawser.h>
#include <hawser/http.h>
#include <hawser/http_client.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

namespace {

// ---- The server ----

constexpr std::size_t file_bytes = 4'000'000;

// Sends numbered lines, compressed for clients that accept it.
hawser::Task<hawser::HttpResponse> file(hawser::HttpRequest&) {
  hawser::HttpResponse response;
  response.stream = [](hawser::HttpBodyWriter& writer) -> hawser::Task<void> {
    std::string part;
    for (std::size_t line = 0, sent = 0; sent < file_bytes; sent += part.size()) {
      part.clear();
      while (part.size() < 10'000) part += "line " + std::to_string(line++) + "\n";
      part.resize(std::min(part.size(), file_bytes - sent));
      if (const hawser::Result<void> written = co_await writer.write(part); !written) co_return;
    }
  };
  co_return response;
}

hawser::Task<hawser::HttpResponse> store(hawser::HttpRequest&, hawser::HttpBodyReader& body) {
  hawser::HttpResponse response;
  std::size_t bytes = 0;
  for (;;) {
    const hawser::Result<std::string> part = co_await body.read();
    if (!part || part->empty()) break;
    bytes += part->size();
  }
  response.body = std::to_string(bytes);
  co_return response;
}

hawser::Task<hawser::HttpResponse> events(hawser::HttpRequest&) {
  hawser::HttpResponse response;
  response.content_type = "text/event-stream";
  response.stream = [](hawser::HttpBodyWriter& writer) -> hawser::Task<void> {
    for (int i = 1; i <= 3; ++i) {
      const auto written = co_await writer.write("event: tick\ndata: number " + std::to_string(i) + "\n\n");
      if (!written) co_return;
      co_await hawser::Loop::current()->sleep(std::chrono::milliseconds(10));
    }
  };
  co_return response;
}

// ---- The client ----

// [download]
// Downloads `url` to `path`. Returns the number of bytes.
hawser::Task<hawser::Result<std::size_t>> download(hawser::HttpClient& client, std::string url,
                                                   std::filesystem::path path) {
  hawser::HttpClientRequest request;
  request.url = std::move(url);
  request.gzip = true;
  hawser::Result<hawser::HttpClientStream> stream = co_await client.open(std::move(request));
  if (!stream) co_return std::unexpected(stream.error());
  if (stream->status() != 200) {
    co_return hawser::fail(hawser::ErrorCode::unavailable, "the status is " + std::to_string(stream->status()));
  }
  std::ofstream out(path, std::ios::binary);
  std::size_t bytes = 0;
  for (;;) {
    const hawser::Result<std::string> part = co_await stream->read();
    if (!part) co_return std::unexpected(part.error());
    if (part->empty()) break;  // The body is complete.
    out.write(part->data(), static_cast<std::streamsize>(part->size()));
    bytes += part->size();
  }
  if (!out.flush()) co_return hawser::fail(hawser::ErrorCode::internal, "cannot write " + path.string());
  co_return bytes;
}
// [/download]

// [upload]
// Uploads the file at `path`. Returns the body of the response.
hawser::Task<hawser::Result<std::string>> upload(hawser::HttpClient& client, std::string url,
                                                 std::filesystem::path path) {
  hawser::HttpClientRequest request;
  request.method = "PUT";
  request.url = std::move(url);
  hawser::Result<hawser::HttpClientStream> stream =
      co_await client.upload(std::move(request), {.length = std::filesystem::file_size(path)});
  if (!stream) co_return std::unexpected(stream.error());
  std::ifstream in(path, std::ios::binary);
  std::string part(64 * 1024, '\0');
  while (in.read(part.data(), static_cast<std::streamsize>(part.size())), in.gcount() > 0) {
    const std::string_view piece(part.data(), static_cast<std::size_t>(in.gcount()));
    // A server may answer before it has received everything.
    if (const hawser::Result<void> written = co_await stream->write(piece); !written) break;
  }
  const hawser::Result<int> status = co_await stream->wait_status();
  if (!status) co_return std::unexpected(status.error());
  co_return co_await stream->read();
}
// [/upload]

// [events]
// Reads server-sent events, each a few lines of "name: value" that an empty line ends. Returns their number.
hawser::Task<int> listen(hawser::HttpClient& client, std::string url) {
  hawser::HttpClientRequest request;
  request.url = std::move(url);
  request.headers.emplace_back("Accept", "text/event-stream");
  hawser::Result<hawser::HttpClientStream> stream = co_await client.open(std::move(request));
  if (!stream || stream->status() != 200) co_return 0;
  std::string arrived;
  int count = 0;
  for (;;) {
    const hawser::Result<std::string> part = co_await stream->read();
    if (!part || part->empty()) co_return count;
    arrived += *part;  // A part may end within an event.
    for (std::size_t end = arrived.find("\n\n"); end != std::string::npos; end = arrived.find("\n\n")) {
      std::printf("%s\n", arrived.substr(0, end).c_str());
      arrived.erase(0, end + 2);
      ++count;
    }
  }
}
// [/events]

hawser::Task<bool> use(std::string url, std::filesystem::path path) {
  hawser::HttpClientOptions options;
  options.stall_timeout = std::chrono::minutes(5);  // The longest time without an event.
  hawser::HttpClient client(*hawser::Loop::current(), options);
  const hawser::Result<std::size_t> bytes = co_await download(client, url + "/file", path);
  if (!bytes) {
    std::printf("%s\n", bytes.error().describe().c_str());
    co_return false;
  }
  std::printf("%zu bytes were downloaded\n", *bytes);
  const hawser::Result<std::string> stored = co_await upload(client, url + "/store", path);
  if (!stored) {
    std::printf("%s\n", stored.error().describe().c_str());
    co_return false;
  }
  std::printf("%s bytes were uploaded\n", stored->c_str());
  const int count = co_await listen(client, url + "/events");
  co_return *bytes == file_bytes && *stored == std::to_string(file_bytes) && count == 3;
}

}  // namespace

int main() {
  hawser::Server server;
  server.enable(
      hawser::http().route("GET", "/file", file).route("PUT", "/store", store).route("GET", "/events", events));
  if (const hawser::Result<void> started = server.start(); !started) {
    std::printf("%s\n", started.error().describe().c_str());
    return 1;
  }
  std::string folder = (std::filesystem::temp_directory_path() / "hawser-http-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return 1;
  const bool done = hawser::sync_wait(use("http://" + server.address(), folder + "/file"));
  std::filesystem::remove_all(folder);
  return done ? 0 : 1;
}
