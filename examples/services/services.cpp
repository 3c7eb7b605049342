// A service from a .proto file, with methods of all four kinds, and a client of it. docs/services.md explains it.
#include <cstdio>
#include <string>
#include <utility>

#include "weather.hawser.h"

namespace {

weather::Weather weather_at(const std::string& place, double celsius) {
  weather::Weather weather;
  weather.set_place(place);
  weather.set_celsius(celsius);
  return weather;
}

class Station final : public weather::Station {
 public:
  hawser::Task<hawser::Result<weather::Weather>> Now(hawser::Context&, const weather::Place& request) override {
    if (request.name().empty()) co_return hawser::fail(hawser::ErrorCode::invalid_argument, "the place has no name");
    co_return weather_at(request.name(), 21.5);
  }

  hawser::Task<hawser::Result<weather::Average>> Report(hawser::Context&,
                                                        hawser::Reader<weather::Weather> requests) override {
    weather::Average average;
    double sum = 0;
    while (true) {
      const auto report = co_await requests.next();
      if (!report) co_return std::unexpected(report.error());  // The client is gone.
      if (!*report) break;                                     // The client has ended its stream.
      sum += (*report)->celsius();
      average.set_stations(average.stations() + 1);
    }
    if (average.stations() != 0) average.set_celsius(sum / average.stations());
    co_return average;
  }

  hawser::Task<hawser::Result<void>> Forecast(hawser::Context&, const weather::Place& request,
                                              hawser::Writer<weather::Weather> replies) override {
    for (int day = 0; day < 3; ++day) {
      const weather::Weather weather = weather_at(request.name(), 20.0 + day);
      if (const auto written = co_await replies.write(weather); !written) co_return written;
    }
    co_return hawser::Result<void>{};
  }

  hawser::Task<hawser::Result<void>> Ask(hawser::Context&, hawser::Reader<weather::Place> requests,
                                         hawser::Writer<weather::Weather> replies) override {
    while (true) {
      const auto place = co_await requests.next();
      if (!place) co_return std::unexpected(place.error());
      if (!*place) co_return hawser::Result<void>{};
      const weather::Weather weather = weather_at((*place)->name(), 18);
      if (const auto written = co_await replies.write(weather); !written) co_return written;
    }
  }
};

hawser::Task<hawser::Result<void>> use(std::string address) {
  hawser::Client client;
  if (const auto connected = co_await client.connect(address); !connected) co_return connected;
  weather::Station::Stub station(client);

  weather::Place place;
  place.set_name("Delft");
  const hawser::CallOptions options{.timeout = std::chrono::seconds(1)};
  const auto now = co_await station.Now(options, place);
  if (!now) co_return std::unexpected(now.error());
  std::printf("now: %.1f degrees in %s\n", now->celsius(), now->place().c_str());

  auto report = co_await station.Report();
  if (!report) co_return std::unexpected(report.error());
  auto reports = report->writer();
  for (const double celsius : {17.0, 19.0, 24.0}) {
    const weather::Weather weather = weather_at("Delft", celsius);
    if (const auto written = co_await reports.write(weather); !written) co_return written;
  }
  const auto average = co_await report->finish();
  if (!average) co_return std::unexpected(average.error());
  std::printf("average of %d stations: %.1f degrees\n", average->stations(), average->celsius());

  auto forecast = co_await station.Forecast(place);
  if (!forecast) co_return std::unexpected(forecast.error());
  auto days = forecast->reader();
  while (true) {
    const auto day = co_await days.next();
    if (!day) co_return std::unexpected(day.error());
    if (!*day) break;
    std::printf("forecast: %.1f degrees\n", (*day)->celsius());
  }
  if (const auto end = co_await forecast->finish(); !end) co_return end;

  auto talk = co_await station.Ask();
  if (!talk) co_return std::unexpected(talk.error());
  auto questions = talk->writer();
  auto answers = talk->reader();
  for (const char* name : {"Delft", "Leiden"}) {
    place.set_name(name);
    if (const auto written = co_await questions.write(place); !written) co_return written;
    const auto answer = co_await answers.next();
    if (!answer) co_return std::unexpected(answer.error());
    if (*answer) std::printf("answer: %.1f degrees in %s\n", (*answer)->celsius(), (*answer)->place().c_str());
  }
  co_return co_await talk->finish();
}

}  // namespace

int main() {
  Station station;
  hawser::Server server;
  server.add_service(&station);
  if (const auto started = server.start(); !started) {
    std::fprintf(stderr, "%s\n", started.error().describe().c_str());
    return 1;
  }
  const auto used = hawser::sync_wait(use(server.address()));
  if (!used) std::fprintf(stderr, "%s\n", used.error().describe().c_str());
  return used ? 0 : 1;
}
