#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "os/file_watch.h"
#include "security/tls/certificate.h"
#include "security/tls/context_store.h"
#include "tests/tls/fixture.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) && !defined(__SANITIZE_THREAD__)
#define __SANITIZE_THREAD__ 1
#endif
#endif

// Files of certificates that are replaced in every way, and are used at once.
namespace hawser {
namespace {

using namespace testing_tools;
namespace fs = std::filesystem;

#ifdef __SANITIZE_THREAD__
constexpr bool thread_sanitizer = true;
#else
constexpr bool thread_sanitizer = false;
#endif

constexpr const char* renewed = "is valid for DNS:renewed.example";

class TlsChangedFiles : public TlsFixture {
 protected:
  TlsChangedFiles() {
    fs::create_directory(live);
    tls_options.reload_interval = std::chrono::hours(1);  // So that nobody looks at the files.
  }
  // A new pair, not yet at its place.
  TlsCertificate fresh(const std::string& names) {
    return authority.issue("fresh" + std::to_string(++made), {.names = names});
  }
  TlsCertificate renew() { return fresh("DNS:renewed.example"); }
  static void copy(const std::string& from, const std::string& to) {
    fs::copy_file(from, to, fs::copy_options::overwrite_existing);
  }
  // Starts a server with files in `live`.
  void start_live() {
    const TlsCertificate first = fresh("DNS:localhost,IP:127.0.0.1");
    copy(first.certificate_file, certificate);
    copy(first.key_file, key);
    start_with(certificate, key);
  }
  void start_with(const std::string& certificate_file, const std::string& key_file) {
    tls_options.certificates = {{certificate_file, key_file}};
    start();
    ASSERT_EQ(call(client_options()), "ok");
    ASSERT_EQ(security->counters().reloads, 0U);
  }
  void expect_renewed() {
    EXPECT_TRUE(soon([&] { return call(client_options()).find(renewed) != std::string::npos; })) << logged();
  }
  std::size_t complaints() {
    const std::string all = logged();
    std::size_t count = 0;
    for (std::size_t at = all.find("cannot be used"); at != std::string::npos;
         at = all.find("cannot be used", at + 1)) {
      ++count;
    }
    return count;
  }

  const std::string live = folder.path().string() + "/live";
  const std::string certificate = live + "/tls.crt";
  const std::string key = live + "/tls.key";
  int made = 0;
};

TEST_F(TlsChangedFiles, AreUsedWhenTheyAreRenamedOver) {
  start_live();
  const TlsCertificate next = renew();
  fs::rename(next.key_file, key);
  fs::rename(next.certificate_file, certificate);
  // Without a connection that looks at them.
  EXPECT_TRUE(soon([&] { return security->counters().reloads != 0; }));
  expect_renewed();
}

TEST_F(TlsChangedFiles, AreUsedWhenTheyAreWrittenInPlace) {
  start_live();
  const TlsCertificate next = renew();
  copy(next.certificate_file, certificate);
  copy(next.key_file, key);
  expect_renewed();
}

// A file that does not answer: the loop performs handshakes meanwhile, with the present files.
TEST_F(TlsChangedFiles, AreReadOutsideTheLoopWithoutHandshakeThreads) {
  tls_options.handshake_threads = 0;
  start_live();
  const std::string pipe = live + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  fs::rename(pipe, certificate);
  int end = -1;
  // It succeeds as soon as somebody reads.
  EXPECT_TRUE(soon([&] {
    end = open(certificate.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    return end >= 0;
  }));
  EXPECT_EQ(call(client_options()), "ok");
  const TlsCertificate next = renew();
  fs::rename(next.key_file, key);
  fs::rename(next.certificate_file, certificate);
  if (end >= 0) close(end);
  expect_renewed();
}

// A pipe whose writer writes nothing: the server ends nevertheless.
TEST_F(TlsChangedFiles, ThatArePipesDoNotHoldTheEndOfTheServer) {
  for (const unsigned threads : {0U, 1U}) {
    tls_options.handshake_threads = threads;
    start_live();
    const std::string pipe = live + "/pipe";
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    fs::rename(pipe, key);
    int end = -1;
    EXPECT_TRUE(soon([&] {
      end = open(key.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
      return end >= 0;
    }));
    server->stop();
    server.reset();
    options.security = {};
    security.reset();
    fs::remove(key);
    if (end >= 0) close(end);
  }
}

// As a shell gives the output of a program.
TEST_F(TlsChangedFiles, MayBePipesThatAreWritten) {
  const TlsCertificate files = fresh("DNS:localhost,IP:127.0.0.1");
  ASSERT_EQ(mkfifo(key.c_str(), 0600), 0);
  std::thread writer([&] {
    std::ifstream from(files.key_file);
    std::ofstream to(key);
    for (std::string line; std::getline(from, line);) to << line << std::endl;
  });
  const Result<security::tls::PemText> text = security::tls::read_file(key);
  writer.join();
  ASSERT_TRUE(text) << error_of(text);
  EXPECT_TRUE(security::tls::parse_key(*text, key));
  const Result<security::tls::PemText> silent = security::tls::read_file(key, {}, std::chrono::milliseconds(30));
  ASSERT_FALSE(silent);
  EXPECT_HAS(silent.error().text, "it is a pipe whose writer did not end within 30 ms");
  const Result<security::tls::PemText> endless = security::tls::read_file("/dev/zero");
  ASSERT_FALSE(endless);
  EXPECT_HAS(endless.error().text, "is longer than 4194304 bytes");
  EXPECT_HAS(error_of(security::tls::read_file(live)), "Is a directory");
}

// As Kubernetes mounts secrets: tls.crt leads to ..data/tls.crt, and ..data is replaced.
TEST_F(TlsChangedFiles, AreUsedWhenALinkOnThePathIsReplaced) {
  const auto version = [&](const std::string& name, const TlsCertificate& files) {
    fs::create_directory(live + "/" + name);
    copy(files.certificate_file, live + "/" + name + "/tls.crt");
    copy(files.key_file, live + "/" + name + "/tls.key");
  };
  version("..1", fresh("DNS:localhost,IP:127.0.0.1"));
  fs::create_symlink("..1", live + "/..data");
  fs::create_symlink("..data/tls.crt", certificate);
  fs::create_symlink("..data/tls.key", key);
  start_with(certificate, key);
  for (int i = 2; i < 6; ++i) {
    version(".." + std::to_string(i), renew());
    fs::create_symlink(".." + std::to_string(i), live + "/..data_tmp");
    fs::rename(live + "/..data_tmp", live + "/..data");
    fs::remove_all(live + "/.." + std::to_string(i - 1));
    // Nothing else reports the next one if the links are not followed again.
    EXPECT_TRUE(soon([&] { return security->counters().reloads + 1 >= static_cast<unsigned>(i); })) << i << logged();
  }
  expect_renewed();
}

TEST_F(TlsChangedFiles, AreUsedWhenTheirFolderIsReplaced) {
  start_live();
  const TlsCertificate next = renew();
  fs::create_directory(live + ".new");
  copy(next.certificate_file, live + ".new/tls.crt");
  copy(next.key_file, live + ".new/tls.key");
  fs::rename(live, live + ".old");
  // The folder is awaited where it was.
  EXPECT_TRUE(soon([&] { return security->counters().reloads_failed == 1; })) << logged();
  EXPECT_EQ(call(client_options()), "ok");
  fs::rename(live + ".new", live);
  expect_renewed();
}

TEST_F(TlsChangedFiles, ThatDoNotMatchYetAreNotReported) {
  start_live();
  for (int i = 0; i < 10; ++i) {
    const TlsCertificate next = renew();
    const auto begun = std::chrono::steady_clock::now();
    copy(next.certificate_file, certificate);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // It is read without its key meanwhile.
    copy(next.key_file, key);
    // On a machine that was too slow, a report is right.
    if (std::chrono::steady_clock::now() - begun >= security::tls::ContextStore::settle_time) return;
    EXPECT_TRUE(soon([&] { return security->counters().reloads > static_cast<unsigned>(i); })) << logged();
  }
  expect_renewed();
  EXPECT_EQ(security->counters().reloads_failed, 0U);
  EXPECT_EQ(complaints(), 0U) << logged();
}

TEST_F(TlsChangedFiles, ThatNeverMatchAreReportedOnce) {
  start_live();
  const TlsCertificate next = renew();
  copy(next.certificate_file, certificate);
  EXPECT_TRUE(soon([&] { return security->counters().reloads_failed == 1; }));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(call(client_options()), "ok");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_HAS(logged(), "is not that of the certificate in " + certificate);
  EXPECT_EQ(complaints(), 1U) << logged();
  EXPECT_EQ(security->counters().reloads_failed, 1U);
  copy(next.key_file, key);
  expect_renewed();
}

// Handshakes during many changes get one pair or the other.
TEST_F(TlsChangedFiles, MayChangeDuringHandshakes) {
  start_live();
  std::atomic<bool> over{false};
  std::vector<TlsCertificate> pairs;
  for (int i = 0; i < 50; ++i) pairs.push_back(fresh("DNS:localhost,IP:127.0.0.1"));
  std::thread writer([&] {
    for (const TlsCertificate& next : pairs) {
      copy(next.certificate_file, certificate);
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
      copy(next.key_file, key);
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
    over = true;
  });
  int calls = 0;
  do {
    EXPECT_EQ(call(client_options()), "ok") << calls;
    ++calls;
  } while (!over);
  writer.join();
  EXPECT_GT(calls, 0);
  const TlsCertificate last = renew();
  fs::rename(last.certificate_file, certificate);
  fs::rename(last.key_file, key);
  expect_renewed();
}

TEST_F(TlsChangedFiles, OfClientsAreUsed) {
  start_live();
  security::tls::Authority other(folder.path().string(), "other");
  TlsClientOptions with = client_options();
  with.reload_interval = std::chrono::hours(1);
  with.ca_file = live + "/ca.pem";
  copy(other.ca_file(), with.ca_file);
  const TlsClient client(with);
  EXPECT_HAS(call(client), "has an issuer that is not trusted");
  copy(authority.ca_file(), with.ca_file);
  EXPECT_TRUE(soon([&] { return call(client) == "ok"; }));
  EXPECT_GE(client.counters().reloads, 1U);
}

// More folders than are watched: the files are found by looking at them.
TEST_F(TlsChangedFiles, AreFoundByLookingIfTheyCannotBeWatched) {
  tls_options.reload_interval = std::chrono::milliseconds(1);
  for (std::size_t i = 0; i <= FileWatch::folders_max; ++i) {
    const std::string place = folder.path().string() + "/keys" + std::to_string(i);
    fs::create_directory(place);
    std::ofstream(place + "/key") << std::string(64, 'a') << "\n";
    tls_options.shared_keys.push_back({"key" + std::to_string(i), place + "/key"});
  }
  start_live();
  EXPECT_TRUE(soon([&] {
    call(client_options());
    return logged().find("folders are not watched for changes; put them into at most 256") != std::string::npos;
  })) << logged();
  const TlsCertificate next = renew();
  copy(next.certificate_file, certificate);
  copy(next.key_file, key);
  expect_renewed();
}

struct Notes {
  std::atomic<int> changes{0};
  std::atomic<int> calls{0};
  FileWatch watch{[this](bool changed) { ++(changed ? changes : calls); }};
};

TEST(FileWatch, SaysWhatTheSystemLacks) {
  const TemporaryFolder folder;
  const std::string file = folder.path().string() + "/file";
  std::ofstream(file) << "1";
  // A sanitizer needs a descriptor to examine a type that it sees for the first time.
  ASSERT_TRUE(Notes().watch.watch({file}));
  Notes notes;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const Result<void> refused = notes.watch.watch({file});
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(refused);
  EXPECT_HAS(refused.error().text, "raise fs.inotify.max_user_instances, or ulimit -n");
  EXPECT_FALSE(notes.watch.active());
  notes.watch.call_later(Duration(0));
  const Result<void> watched = notes.watch.watch({file});
  ASSERT_TRUE(watched) << watched.error().text;
  EXPECT_TRUE(notes.watch.active());
  std::ofstream(file) << "2";
  EXPECT_TRUE(soon([&] { return notes.changes != 0; }));
}

TEST(FileWatch, NoticesOnlyTheFilesThatAreNamed) {
  const TemporaryFolder folder;
  const std::string place = folder.path().string();
  Notes one;
  Notes two;
  ASSERT_TRUE(one.watch.watch({place + "/one", place + "/../" + folder.path().filename().string() + "/both"}));
  ASSERT_TRUE(two.watch.watch({place + "/absent/folder/two", place + "/both"}));
  std::ofstream(place + "/other") << "1";
  std::ofstream(place + "/one") << "1";
  EXPECT_TRUE(soon([&] { return one.changes != 0; }));
  EXPECT_EQ(two.changes, 0);
  one.watch.call_later(std::chrono::milliseconds(1));
  EXPECT_TRUE(soon([&] { return one.calls == 1; }));
  fs::create_directory(place + "/absent");
  EXPECT_TRUE(soon([&] { return two.changes != 0; }));
  one.watch.stop();
  const int changes = one.changes;
  const int before = two.changes;
  std::ofstream(place + "/both") << "1";
  EXPECT_TRUE(soon([&] { return two.changes > before; }));
  EXPECT_EQ(one.changes, changes);
  // A link that leads to itself has an end.
  fs::create_symlink("loop", place + "/loop");
  EXPECT_TRUE(two.watch.watch({place + "/loop"}));
}

// The copy in a child has no thread, and must not take the events of its parent.
TEST(FileWatch, IsOfTheParentAfterAFork) {
  const TemporaryFolder folder;
  const std::string file = folder.path().string() + "/file";
  Notes notes;
  ASSERT_TRUE(notes.watch.watch({file}));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    notes.watch.call_later(Duration(0));
    notes.watch.stop();
    _exit(notes.watch.active() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  std::ofstream(file) << "1";
  EXPECT_TRUE(soon([&] { return notes.changes != 0; }));
}

// A thread of the child may have the id that the watching thread has in the parent.
TEST(FileWatch, LeavesThreadsOfAForkedProcessAlone) {
  if (thread_sanitizer) GTEST_SKIP() << "the thread sanitizer ends a forked process that starts threads";
  const TemporaryFolder folder;
  auto notes = std::make_unique<Notes>();
  ASSERT_TRUE(notes->watch.watch({folder.path().string() + "/file"}));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    std::atomic<bool> over{false};
    std::thread own([&] { over.wait(false); });
    notes.reset();
    over = true;
    over.notify_all();
    try {
      own.join();
    } catch (const std::system_error&) {
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace hawser
