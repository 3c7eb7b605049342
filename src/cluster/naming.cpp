#include "hawser/naming.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <new>
#include <string_view>

#include "base/escaped_text.h"
#include "base/quick_random.h"
#include "base/try.h"
#include "cluster/list_check.h"
#include "hawser/detail/loop_access.h"
#include "hawser/naming_routes.h"
#include "hawser/service_config.h"
#include "hawser/timer.h"

namespace hawser {
namespace {

// Until a list for which there was no memory is checked again.
constexpr Duration check_pause = std::chrono::milliseconds(100);

}  // namespace

class Naming::Keeper final : public NamingSink, public detail::LoopUser {
 public:
  Keeper(Loop& loop, std::string name, std::function<void()> changed, std::function<void()> confirmed)
      : loop_(loop), name_(std::move(name)), changed_(std::move(changed)), confirmed_(std::move(confirmed)) {}
  ~Keeper() {
    source_.reset();
    if (user_) detail::LoopAccess::remove_user(loop_, *this);
  }

  void start(std::unique_ptr<NamingSource> source) {
    detail::LoopAccess::add_user(loop_, *this);
    user_ = true;
    source_ = std::move(source);
    state_.constant = source_->constant();
    source_->start(loop_, *this);
  }
  const NamingState& state() const noexcept { return state_; }

  void on_endpoints(std::vector<Endpoint> endpoints) override {
    on_shared_endpoints(std::make_shared<const std::vector<Endpoint>>(std::move(endpoints)));
  }
  void on_shared_endpoints(std::shared_ptr<const std::vector<Endpoint>> endpoints) override {
    next_ = std::move(endpoints);
    failure_.reset();
    if (!check_) begin_check();
  }
  void on_confirmed() override {
    // A list that was refused is not confirmed by saying that it is current. One that is being checked is current then.
    if (!refused_ && !checks()) confirm();
  }
  void on_failure(Error error) override {
    if (checks()) {
      failure_ = std::move(error);
    } else {
      show_failure(std::move(error));
    }
  }
  void on_service_config(Result<std::string> json) override;
  void on_policy(NamingPolicy policy) override {
    if (policy == (state_.policy ? *state_.policy : NamingPolicy())) return;
    state_.policy = std::make_shared<const NamingPolicy>(std::move(policy));
    if (changed_) changed_();
  }
  void on_routes(std::shared_ptr<const NamingRoutes> routes) override {
    if (const std::string_view why = why_wrong(*routes); !why.empty()) {
      return refuse(ErrorCode::invalid_argument, "the routes are wrong: " + std::string(why));
    }
    if (state_.routes != nullptr && routes->clusters[routes->main] != state_.routes->clusters[state_.routes->main]) {
      end_check();  // The list is that of another cluster.
      at_once_ = true;
    }
    state_.routes = std::move(routes);
    if (changed_) changed_();
  }
  void on_loop_end() noexcept override {
    user_ = false;
    source_.reset();
    end_check();
  }

 private:
  // Lists are checked one after the other. Of those that arrive meanwhile, the last one counts.
  bool checks() const noexcept { return check_.has_value() || next_ != nullptr; }
  void begin_check();
  void check_more();
  // After a lack of memory.
  void check_later(std::shared_ptr<const std::vector<Endpoint>> list) noexcept {
    if (next_ == nullptr) next_ = std::move(list);
    check_.reset();
    checker_.start(loop_, loop_.after(check_pause));
  }
  void end_check() noexcept {
    checker_.stop();
    check_.reset();
    next_.reset();
    failure_.reset();
  }
  void confirm() {
    state_.confirmed = loop_.now();
    state_.error.reset();
    if (confirmed_) confirmed_();
  }
  void show_failure(Error error) {
    error.text = name_ + ": " + error.text;
    state_.error = std::move(error);
    if (state_.version == 0 && changed_) changed_();
  }
  void refuse(ErrorCode code, const std::string& why) {
    ++state_.lists_refused;
    refused_ = true;
    show_failure(Error::of_call(code, why + (state_.version == 0 ? "" : "; the list before it stays")));
  }
  static std::string_view why_wrong(const NamingRoutes& routes) noexcept;

  Loop& loop_;
  const std::string name_;
  const std::function<void()> changed_;
  const std::function<void()> confirmed_;
  NamingState state_;
  std::string config_text_;  // The text of state_.service_config.
  bool refused_ = false;     // The newest list of the source was refused.
  bool user_ = false;
  std::optional<cluster::ListCheck> check_;            // The list that is being checked has it.
  std::shared_ptr<const std::vector<Endpoint>> next_;  // Is checked then. Null: none.
  std::optional<Error> failure_;  // Was reported behind the last of these lists, and is shown behind it.
  bool at_once_ = false;          // The next list is checked in one step: calls go to its cluster already.
  MemberTimer<&Keeper::check_more> checker_{*this};
  std::unique_ptr<NamingSource> source_;
};

// Empty: they are good.
std::string_view Naming::Keeper::why_wrong(const NamingRoutes& routes) noexcept {
  const std::size_t clusters = routes.clusters.size();
  if (clusters == 0 || clusters > NamingRoutes::clusters_max) return "they have no cluster, or more than 64";
  if (routes.main >= clusters) return "the main cluster is not one of theirs";
  if (clusters > 1 && !routes.open) return "nothing opens the clusters beside the main one";
  for (auto one = routes.clusters.begin(); one != routes.clusters.end(); ++one) {
    if (std::find(routes.clusters.begin(), one, *one) != one) return "a cluster is there twice";
  }
  for (const NamingRoutes::Route& route : routes.routes) {
    std::uint64_t sum = 0;
    for (const NamingRoutes::Target& target : route.targets) {
      if (target.cluster >= clusters) return "a target is not one of the clusters";
      sum += target.weight;
    }
    if (sum == 0 || sum > UINT32_MAX) return "the sum of the weights of a route is not from 1 to 4294967295";
  }
  return {};
}

void Naming::Keeper::begin_check() {
  if (next_ == nullptr) return;
  const auto list = std::exchange(next_, nullptr);
  if (list->size() > EndpointLimits::endpoints_max) {
    return refuse(ErrorCode::limit_exceeded, "the list has " + std::to_string(list->size()) + " endpoints, more than " +
                                                 std::to_string(EndpointLimits::endpoints_max));
  }
  if (list->empty()) return refuse(ErrorCode::unavailable, "the list has no endpoint");
  try {
    check_.emplace(list, quick_random());
  } catch (const std::bad_alloc&) {
    return check_later(list);
  }
  check_more();
}

void Naming::Keeper::check_more() {
  checker_.stop();
  if (!check_) return begin_check();
  bool more = true;
  try {
    do {
      more = check_->work(state_.endpoints);
    } while (more && at_once_);
  } catch (const std::bad_alloc&) {
    return check_later(check_->list());
  }
  if (more) return checker_.start(loop_, loop_.after(Duration(1)));  // Meanwhile the loop does other work.
  at_once_ = false;
  cluster::ListCheck checked = std::move(*check_);
  check_.reset();
  if (next_ != nullptr) checker_.start(loop_, loop_.after(Duration(1)));
  std::vector<Endpoint> endpoints = checked.take();
  if (checked.dropped() != 0) {
    state_.endpoints_dropped += checked.dropped();
    state_.drop_reason = checked.take_drop_reason();
  }
  if (endpoints.empty()) {
    return refuse(ErrorCode::unavailable, "the list has no valid endpoint; the last: " + state_.drop_reason);
  }
  refused_ = false;
  const bool same = state_.version != 0 && checked.same();
  if (!same) {
    state_.endpoints = std::move(endpoints);
    ++state_.version;
  }
  confirm();
  if (failure_ && next_ == nullptr) show_failure(*std::exchange(failure_, std::nullopt));
  if (!same && changed_) changed_();
}

void Naming::Keeper::on_service_config(Result<std::string> json) {
  if (json && *json == config_text_) {
    state_.service_config_error.clear();
    return;
  }
  std::shared_ptr<const ServiceConfig> config;
  if (json && !json->empty()) {
    Result<ServiceConfig> parsed = ServiceConfig::parse(*json);
    if (parsed) {
      config = std::make_shared<const ServiceConfig>(std::move(*parsed));
    } else {
      json = fail(std::move(parsed.error()));
    }
  }
  if (!json) {
    state_.service_config_error = std::move(json.error().text);
    return;
  }
  state_.service_config_error.clear();
  state_.service_config = std::move(config);
  config_text_ = std::move(*json);
  if (changed_) changed_();
}

Naming::Naming(std::unique_ptr<Keeper> keeper) noexcept : keeper_(std::move(keeper)) {}
Naming::~Naming() = default;
const NamingState& Naming::state() const noexcept { return keeper_->state(); }

Result<std::unique_ptr<Naming>> Naming::open(Loop& loop, std::string_view name,
                                             const std::vector<NamingScheme>& schemes, std::function<void()> changed,
                                             std::function<void()> confirmed) {
  const std::size_t colon = std::min(name.find(':'), name.size());
  const auto scheme = std::ranges::find(schemes, name.substr(0, colon), &NamingScheme::name);
  std::string shown;
  append_escaped(shown, name, EndpointLimits::address_bytes_max);
  if (colon == name.size() || scheme == schemes.end()) {
    std::string known;
    for (const NamingScheme& one : schemes) known += " " + one.name + ":";
    return fail(ErrorCode::invalid_argument, "the name '" + shown + "' does not begin with a known scheme: use one of" +
                                                 known + ", or list:host:port for one address");
  }
  std::string_view target = name.substr(colon + 1);
  if (target.starts_with("//")) target.remove_prefix(2);
  Result<std::unique_ptr<NamingSource>> source = scheme->open(target);
  if (!source) {
    source.error().text = "the name '" + shown + "': " + source.error().text;
    return fail(std::move(source.error()));
  }
  auto keeper = std::make_unique<Keeper>(loop, std::move(shown), std::move(changed), std::move(confirmed));
  keeper->start(std::move(*source));
  return std::unique_ptr<Naming>(new Naming(std::move(keeper)));
}

std::vector<NamingScheme> default_naming() { return {list_naming(), file_naming(), dns_naming()}; }

}  // namespace hawser
