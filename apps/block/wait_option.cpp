#include <map>
#include <string>

#include "block/command.h"

namespace hawser::block {

void add_wait(CLI::App& command, Wait& wait) {
  static const std::map<std::string, Wait> names = {{"spin", Wait::spin}, {"event", Wait::event}};
  command
      .add_option("--wait", wait,
                  "Without work: spin polls for a short time before it sleeps, for latency; event sleeps at once, for "
                  "machines whose processors have other work")
      ->transform(CLI::CheckedTransformer(names))
      ->default_str("spin");
}

}  // namespace hawser::block
