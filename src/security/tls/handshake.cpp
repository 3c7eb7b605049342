#include "security/tls/handshake.h"

#include <exception>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>

#include "security/tls/certificate.h"

namespace hawser::security::tls {

// The objects that a step uses, on the loop or on another thread. They outlive a stream that is destroyed meanwhile.
struct TlsHandshake::Step {
  explicit Step(TlsHandshake& of) noexcept : handshake(&of) {}
  void perform(TlsShared& shared) noexcept;
  void identify();

  MakeSession make;
  std::unique_ptr<TlsSession> session;
  ByteQueue first;  // Received before the session was made.
  TlsSession::Progress progress = TlsSession::Progress::more;
  std::shared_ptr<const Identity> identity;
  Error error;
  std::stop_source stop;  // Stops a function that makes a signature. Requested at the end of the stream.
  Loop* loop = nullptr;   // Set before a step is performed by another thread.
  std::mutex mutex;
  TlsHandshake* handshake;  // Null after the end of the stream. Guarded by mutex on other threads.
};

void TlsHandshake::Step::perform(TlsShared& shared) noexcept {
  try {
    if (session == nullptr) {
      // The end of a handshake may be on the loop.
      if (shared.kernel != TlsKernel::off) shared.examine_kernel();
      Result<std::unique_ptr<TlsSession>> made = make();
      if (made) {
        session = std::move(*made);
        session->input().swap(first);
      } else {
        error = std::move(made.error());
        error.scope = ErrorScope::connection;
        progress = TlsSession::Progress::failed;
      }
    }
    if (session != nullptr) {
      progress = session->handshake(stop.get_token());
      if (progress == TlsSession::Progress::failed) error = session->error();
      if (progress == TlsSession::Progress::done) identify();
    }
  } catch (const std::exception&) {
    progress = TlsSession::Progress::failed;
    error = Error::of_connection(ErrorCode::unavailable, "out of memory");
  }
  if (progress == TlsSession::Progress::failed) shared.failed.fetch_add(1, std::memory_order_relaxed);
  if (progress != TlsSession::Progress::done) return;
  shared.handshakes.fetch_add(1, std::memory_order_relaxed);
  if (session->resumed()) shared.resumed.fetch_add(1, std::memory_order_relaxed);
}

void TlsHandshake::Step::identify() {
  if (session->peer_certificate() != nullptr) {
    identity = std::make_shared<const Identity>(identity_of(session->peer_certificate()));
  } else if (!session->key_name().empty()) {
    identity = std::make_shared<const Identity>(
        Identity{.kind = Identity::Kind::shared_key, .subject = std::string(session->key_name())});
  }
}

// The step that another thread performs, and then the notification of the loop.
struct TlsHandshake::OffloadedStep final : detail::Posted {
  struct Done final : detail::Posted {
    explicit Done(std::shared_ptr<Step> of) noexcept : step(std::move(of)) {}
    void run() override {
      if (step->handshake != nullptr) step->handshake->on_step_done();
    }
    const std::shared_ptr<Step> step;
  };
  OffloadedStep(TlsShared& of, std::shared_ptr<Step> what)
      : shared(of), step(what), done(std::make_unique<Done>(std::move(what))) {}
  void run() override {
    step->perform(shared);
    const std::lock_guard lock(step->mutex);
    // The loop outlives its streams.
    if (step->handshake != nullptr) step->loop->post(std::unique_ptr<detail::Posted>(std::move(done)));
  }
  TlsShared& shared;  // Its pool, which runs this, ends before it.
  const std::shared_ptr<Step> step;
  std::unique_ptr<Done> done;
};

TlsHandshake::TlsHandshake(std::shared_ptr<TlsShared> shared, MakeSession make, bool server, Bytes first, Owner& owner)
    : shared_(std::move(shared)), server_(server), owner_(owner), step_(std::make_shared<Step>(*this)) {
  step_->make = std::move(make);
  if (!first.empty()) step_->first.append(first);
}

TlsHandshake::~TlsHandshake() {
  if (ticket_ != 0) {
    shared_->pool->withdraw(this, ticket_);
    step_->stop.request_stop();
  }
  const std::lock_guard lock(step_->mutex);
  step_->handshake = nullptr;
}

bool TlsHandshake::runs_here() const noexcept {
  return shared_->pool == nullptr || (server_ && step_->session != nullptr && step_->session->awaits_short_end());
}

void TlsHandshake::run_here() noexcept { step_->perform(*shared_); }

bool TlsHandshake::submit(Loop& loop) {
  step_->loop = &loop;
  ticket_ = shared_->pool->submit(this, std::make_unique<OffloadedStep>(*shared_, step_));
  return ticket_ != 0;
}

void TlsHandshake::on_step_done() {
  ticket_ = 0;
  owner_.on_step();
}

TlsSession* TlsHandshake::session() const noexcept { return step_->session.get(); }

ByteQueue& TlsHandshake::input() noexcept { return step_->session != nullptr ? step_->session->input() : step_->first; }

TlsSession::Progress TlsHandshake::progress() const noexcept { return step_->progress; }

Error& TlsHandshake::error() noexcept { return step_->error; }

const std::shared_ptr<const Identity>& TlsHandshake::identity() const noexcept { return step_->identity; }

}  // namespace hawser::security::tls
