#pragma once

#include <memory>
#include <string>

#include "hawser/http.h"
#include "hawser/task.h"

// Serves the files of a folder over HTTP. Component hawser::http. docs/protocols/http.md, "Files".
//
//   http.route("GET", "/static/*", hawser::HttpFiles("/srv/shop/static"));
namespace hawser {

struct HttpFilesOptions {
  // The file of a folder that is served for a path that ends with '/', and for the empty one. Empty: none.
  std::string index = "index.html";
  // The value of Cache-Control. Empty: the field is not sent.
  std::string cache_control = "no-cache";
  // Serves files and folders whose names begin with a dot, too.
  bool hidden = false;
};

// Serves the files below a folder, with ranges, ETag, Last-Modified and conditional requests (RFC 9110, 13 and 14), to
// GET and HEAD. A name never leads out of the folder, also not by links. Files are opened and read on threads of the
// offload pool. A file of more than 64 KiB is sent in parts of at most 128 KiB, of which one is held at a time, and is
// not compressed. A file that becomes shorter while it is sent ends the connection (HTTP/2: the stream). A copy shares
// the folder. Thread-safe.
class HttpFiles {
 public:
  // Throws std::system_error if the folder cannot be opened. The folder that is there now is served, also if it is
  // renamed.
  explicit HttpFiles(const std::string& folder, HttpFilesOptions options = {});

  // Serves the file that HttpRequest::rest() names: as the handler of a route whose path ends with "/*".
  Task<HttpResponse> operator()(HttpRequest& request) const;
  // Serves the file of that name, which is relative to the folder and not encoded.
  Task<HttpResponse> serve(HttpRequest& request, std::string name) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace hawser
