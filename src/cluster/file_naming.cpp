#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/alive.h"
#include "base/try.h"
#include "cluster/bounded_file.h"
#include "cluster/endpoint_text.h"
#include "hawser/naming.h"
#include "hawser/scope.h"
#include "hawser/timer.h"
#include "os/file_watch.h"

namespace hawser {
namespace {

struct FileContents {
  std::string stamp;
  std::optional<std::vector<Endpoint>> endpoints;  // Empty: the file has the stamp of the last look.
};

// Blocks.
Result<FileContents> look_at(const std::string& path, const std::string& known_stamp, std::size_t bytes_max) {
  FileContents contents{.stamp = file_stamp(path), .endpoints = {}};
  if (!known_stamp.empty() && contents.stamp == known_stamp) return contents;
  TRY(const std::string text, cluster::read_bounded_file(path, bytes_max, "file_bytes_max"));
  Result<std::vector<Endpoint>> endpoints = cluster::parse_endpoint_lines(text);
  if (!endpoints) return fail(endpoints.error().code, "file " + path + ": " + endpoints.error().text);
  contents.endpoints = std::move(*endpoints);
  return contents;
}

// Reads the file on a thread of the loop's offload pool: at the start, when the system reports a change, and after each
// check_interval.
class FileSource final : public NamingSource {
 public:
  FileSource(std::string path, FileNamingOptions options) : path_(std::move(path)), options_(options) {}
  ~FileSource() override {
    if (watch_) watch_->stop();
  }

  void start(Loop& loop, NamingSink& sink) override {
    loop_ = &loop;
    sink_ = &sink;
    watch_ = std::make_shared<FileWatch>([&loop, self = alive_.watch()](bool) {
      loop.post([self] {
        if (FileSource* const source = self.get()) source->look();
      });
    });
    look();
  }

 private:
  void look() {
    if (looking_) {
      again_ = true;
      return;
    }
    looking_ = true;
    looks_.spawn(look_once());
  }

  Task<void> look_once() {
    // The work may outlive this object.
    auto looking = loop_->offload([path = path_, stamp = stamp_, bytes_max = options_.file_bytes_max, watch = watch_] {
      // Watched before it is read, so that a change after the reading is noticed. Without a watch, check_interval
      // suffices.
      static_cast<void>(watch->watch({path}));
      return look_at(path, stamp, bytes_max);
    });
    Result<Result<FileContents>> outcome = co_await std::move(looking);
    report(outcome ? std::move(*outcome) : Result<FileContents>(fail(std::move(outcome.error()))));
    looking_ = false;
    // A timer begins the next look, because this one belongs to the scope until it has ended.
    check_.start(*loop_, std::exchange(again_, false) ? loop_->now() : loop_->after(options_.check_interval));
  }

  void report(Result<FileContents> contents) {
    if (!contents) {
      stamp_.clear();  // The error is reported again as long as it lasts.
      return sink_->on_failure(std::move(contents.error()));
    }
    stamp_ = std::move(contents->stamp);
    if (contents->endpoints) return sink_->on_endpoints(std::move(*contents->endpoints));
    sink_->on_confirmed();
  }

  const std::string path_;
  const FileNamingOptions options_;
  Loop* loop_ = nullptr;
  NamingSink* sink_ = nullptr;
  std::shared_ptr<FileWatch> watch_;
  std::string stamp_;  // The file that was read last has it; empty if the last look failed.
  bool looking_ = false;
  bool again_ = false;
  MemberTimer<&FileSource::look> check_{*this};
  Scope looks_;
  Alive<FileSource> alive_{*this};
};

}  // namespace

NamingScheme file_naming(FileNamingOptions options) {
  return {.name = "file", .open = [options](std::string_view target) -> Result<std::unique_ptr<NamingSource>> {
            if (target.empty()) {
              return fail(ErrorCode::invalid_argument, "the name has no path: write file:/path/of/the/list");
            }
            return std::make_unique<FileSource>(std::string(target), options);
          }};
}

}  // namespace hawser
