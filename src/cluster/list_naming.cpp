#include <memory>
#include <utility>
#include <vector>

#include "base/try.h"
#include "cluster/endpoint_text.h"
#include "hawser/naming.h"

namespace hawser {
namespace {

class ListSource final : public NamingSource {
 public:
  explicit ListSource(std::vector<Endpoint> endpoints) : endpoints_(std::move(endpoints)) {}
  void start(Loop&, NamingSink& sink) override { sink.on_endpoints(std::move(endpoints_)); }
  bool constant() const noexcept override { return true; }

 private:
  std::vector<Endpoint> endpoints_;
};

}  // namespace

NamingScheme list_naming() {
  return {.name = "list", .open = [](std::string_view target) -> Result<std::unique_ptr<NamingSource>> {
            TRY(std::vector<Endpoint> endpoints, cluster::parse_endpoint_list(target));
            if (endpoints.empty()) {
              return fail(ErrorCode::invalid_argument, "the name has no endpoint: write list:host:port,host:port");
            }
            return std::make_unique<ListSource>(std::move(endpoints));
          }};
}

}  // namespace hawser
