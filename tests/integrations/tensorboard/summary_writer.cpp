#include "etude/integrations/tensorboard/summary_writer.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "common/folder.hpp"
#include "etude/base/error.hpp"
#include "etude/formats/wav.hpp"
#include "etude/metrics/sample.hpp"
#include "integrations/tensorboard/read_events.hpp"

namespace integrations_tensorboard_summary_writer_test {

using Numbers = std::vector<double>;
constexpr double infinity = std::numeric_limits<double>::infinity();

toy::EventHistogram histogram_of(const torch::Tensor& tensor, std::int64_t not_finite = 0) {
  const toy::Folder folder;
  etude::SummaryWriter writer(std::string{folder});
  CHECK(writer.add_histogram("weights", tensor, 3) == not_finite);
  const auto events = toy::read_events(writer.path());
  if (events.size() == 1) return {};
  CHECK(events.at(1).step == 3);
  CHECK(events.at(1).values.at(0).tag == "weights");
  return events.at(1).values.at(0).histogram;
}

/// Formats the fields of a google.protobuf.Value as text.
std::string value_text(protozero::pbf_reader value) {
  value.next();
  switch (value.tag()) {
    case 2:
      return std::to_string(value.get_double());
    case 3:
      return '"' + value.get_string() + '"';
    case 4:
      return value.get_bool() ? "true" : "false";
    default:
      return "?";
  }
}

TEST_CASE("the reader of these tests computes CRC-32C") { CHECK(toy::crc32c("123456789") == 0xe3069283U); }

TEST_CASE("a file begins with its version, and has a record for each call, with float values") {
  const toy::Folder folder;
  etude::SummaryWriter writer(folder / "deep/run");
  CHECK(writer.path().parent_path() == folder / "deep/run");
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  writer.add_scalar("one", 0.1);
  writer.add_scalars({{"nan", std::nan("")}, {"inf", infinity}, {"minus", -infinity}, {"big", 1e300}}, -5);
  writer.add_scalars({});
  const auto events = toy::read_events(writer.path());
  REQUIRE(events.size() == 3);
  CHECK(writer.written() == 3);
  CHECK(writer.lost() == 0);
  CHECK(events[0].version == "brain.Event:2");
  CHECK(std::abs(events[1].time - now) < 10);
  CHECK(events[1].time <= events[2].time);
  CHECK(events[2].time == writer.last_time());
  CHECK(events[1].values.at(0).number == static_cast<double>(0.1F));
  CHECK(events[2].step == -5);
  REQUIRE(events[2].values.size() == 4);
  CHECK(std::isnan(events[2].values[0].number));
  CHECK(events[2].values[1].number == infinity);
  CHECK(events[2].values[2].number == -infinity);
  CHECK(events[2].values[3].number == infinity);
}

TEST_CASE("a text is a tensor of the text plugin") {
  const toy::Folder folder;
  etude::SummaryWriter writer(std::string{folder});
  writer.add_text("notes", "# Größe\n", 7);
  const auto event = toy::read_events(writer.path()).at(1);
  CHECK(event.step == 7);
  CHECK(event.values.at(0).tag == "notes/text_summary");
  CHECK(event.values.at(0).plugin == "text");
  CHECK(event.values.at(0).text == "# Größe\n");
}

TEST_CASE("invalid UTF-8 is replaced, since it would stop a reader") {
  const toy::Folder folder;
  etude::SummaryWriter writer(std::string{folder});
  writer.add_scalar(
      "gr\xf6\xdf"
      "e",
      1);
  writer.add_scalar("größe", 1);
  writer.add_text("t", "\xff");
  const auto events = toy::read_events(writer.path());
  CHECK(events.at(1).values.at(0).tag ==
        "gr\xef\xbf\xbd\xef\xbf\xbd"
        "e");
  CHECK(events.at(2).values.at(0).tag == "größe");
  CHECK(events.at(3).values.at(0).text == "\xef\xbf\xbd");
}

TEST_CASE("a histogram counts every finite number in buckets that each grow by a tenth") {
  const auto histogram =
      histogram_of(torch::tensor({-1.0, 0.0, 0.0, 0.5, 2.0, std::nan(""), infinity, -infinity}), 3);
  CHECK(histogram.min == -1);
  CHECK(histogram.max == 2);
  CHECK(histogram.num == 5);
  CHECK(histogram.sum == 1.5);
  CHECK(histogram.sum_squares == 5.25);
  REQUIRE(histogram.limits.size() == histogram.counts.size());
  Numbers found;
  for (std::size_t i = 0; i < histogram.counts.size(); ++i) {
    if (i > 0) CHECK(histogram.limits[i] > histogram.limits[i - 1]);
    if (histogram.counts[i] == 0) continue;
    found.push_back(histogram.counts[i]);
    const double left = i == 0 ? histogram.min : histogram.limits[i - 1], right = histogram.limits[i];
    if (i > 0 && left > 0) CHECK(right == doctest::Approx(1.1 * left));
    for (const double value : {-1.0, 0.0, 0.5, 2.0})
      if (left <= value && value < right) CHECK(histogram.counts[i] == (value == 0 ? 2 : 1));
  }
  CHECK(found == Numbers{1, 2, 1, 1});
  CHECK(histogram.counts.front() == 1);
  CHECK(histogram.counts.back() == 1);
}

TEST_CASE("numbers beyond the buckets are in the last ones") {
  const auto histogram = histogram_of(torch::tensor({-1e30, 1e30, 3e30}, torch::kDouble));
  CHECK(histogram.num == 3);
  CHECK(histogram.counts.front() == 1);
  CHECK(histogram.counts.back() == 2);
  CHECK(histogram.limits.back() == std::numeric_limits<double>::max());
}

TEST_CASE("tensors of all kinds have a histogram, except those without a finite number") {
  CHECK(histogram_of(torch::empty({0, 3})).num == 0);
  CHECK(histogram_of(torch::full({4}, std::nan("")), 4).num == 0);
  CHECK(histogram_of(torch::ones({2, 3}, torch::kBFloat16)).sum == 6);
  CHECK(histogram_of(torch::arange(5)).sum == 10);
  CHECK(histogram_of(torch::full({}, 2.5, torch::kDouble)).sum == 2.5);
  CHECK(histogram_of(torch::ones({2, 3}).t()).num == 6);
  CHECK(histogram_of(torch::ones({3}, torch::requires_grad())).num == 3);
  CHECK(histogram_of(torch::complex(torch::ones({2}), torch::zeros({2}))).counts.size() > 1);
  const auto sparse = torch::tensor({0.0, 3.0, 0.0, 4.0}).to_sparse();
  CHECK(histogram_of(sparse).num == 2);
  CHECK(histogram_of(sparse).sum_squares == 25);
}

TEST_CASE("a large tensor is counted in parts") {
  const auto histogram = histogram_of(torch::ones({(std::int64_t{1} << 22) + 5}));
  CHECK(histogram.num == 4194309);
  CHECK(histogram.sum == 4194309);
  CHECK(histogram.counts == Numbers{4194309});
}

TEST_CASE("hyperparameters are numbers, bools and strings, and none of them breaks the page") {
  const toy::Folder folder;
  etude::SummaryWriter writer(std::string{folder});
  writer.add_hparams({{"lr", 0.5},
                      {"layers", 3},
                      {"fast", true},
                      {"name", "gr\xf6"},
                      {"none", nullptr},
                      {"sizes", {1, 2}},
                      {"nan", std::nan("")},
                      {"least", -infinity}},
                     1e9);
  writer.add_session_end(etude::SessionStatus::failure);
  const auto events = toy::read_events(writer.path());
  const auto& begin = events.at(1).values.at(0);
  CHECK(begin.tag == "_hparams_/session_start_info");
  CHECK(begin.plugin == "hparams");
  std::map<std::string, std::string> hparams;
  double started = 0;
  protozero::pbf_reader data(begin.content);
  REQUIRE(data.next(3));
  for (auto session = data.get_message(); session.next();) {
    if (session.tag() == 5) {
      started = session.get_double();
      continue;
    }
    auto entry = session.get_message();
    REQUIRE(entry.next(1));
    const auto name = entry.get_string();
    REQUIRE(entry.next(2));
    hparams[name] = value_text(entry.get_message());
  }
  CHECK(started == 1e9);
  CHECK(hparams == std::map<std::string, std::string>{{"lr", "0.500000"},
                                                      {"layers", "3.000000"},
                                                      {"fast", "true"},
                                                      {"name", "\"gr\xef\xbf\xbd\""},
                                                      {"sizes", "\"[1,2]\""},
                                                      {"nan", "\"NaN\""},
                                                      {"least", "\"-Infinity\""}});
  const auto& end = events.at(2).values.at(0);
  CHECK(end.tag == "_hparams_/session_end_info");
  protozero::pbf_reader ended(end.content);
  REQUIRE(ended.next(4));
  auto session = ended.get_message();
  REQUIRE(session.next(1));
  CHECK(session.get_enum() == 2);
}

TEST_CASE("a new file is read after all existing ones, whatever the clock says") {
  const toy::Folder folder;
  const auto later = folder / "events.out.tfevents.4000000000.zzz.99999.0";
  toy::write_text(later, "");
  toy::write_text(folder / "events.out.tfevents.foreign", "");
  const etude::SummaryWriter first(std::string{folder}), second(std::string{folder});
  CHECK(first.path().filename() > later.filename());
  CHECK(second.path().filename() > first.path().filename());
  CHECK(first.path().filename().string().starts_with("events.out.tfevents.4000000001."));
}

TEST_CASE("files have the usual permissions") {
  const toy::Folder folder;
  const auto before = ::umask(022);
  const etude::SummaryWriter writer(std::string{folder});
  ::umask(before);
  struct stat status {};
  REQUIRE(::stat(writer.path().c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0644);
}

TEST_CASE("a folder that can't be created is refused") {
  const toy::Folder folder;
  toy::write_text(folder / "file", "");
  CHECK_THROWS_AS(etude::SummaryWriter(folder / "file/run"), etude::ArgumentError);
}

TEST_CASE(
    "a sample is a picture, a sound or a text, each in a record, and a caption is a text of the same tag") {
  const toy::Folder folder;
  etude::SummaryWriter writer(std::string{folder});
  writer.add_sample("cat", etude::image_sample("ignored", torch::zeros({2, 3}), "black"), 5);
  writer.add_sample("mew", etude::audio_sample("ignored", torch::zeros({4}), 8000), 6);
  writer.add_sample("story", etude::text_sample("ignored", "Once"), 7);
  const auto events = toy::read_events(writer.path());
  REQUIRE(events.size() == 1 + 4);
  const auto is = [&](std::size_t i, std::int64_t step, const std::string& tag, const std::string& text) {
    return events[i].step == step && events[i].values.at(0).tag == tag && events[i].values.at(0).text == text;
  };
  // The fields of Summary.Image: height, width, channels, bytes.
  const auto image = events[1].values.at(0).image;
  CHECK(image.numbers == std::map<std::uint32_t, double>{{1, 2}, {2, 3}, {3, 1}});
  CHECK(image.bytes.at(4).starts_with("\x89PNG"));
  // The fields of Summary.Audio: rate, channels, frames, bytes, type.
  const auto audio = events[3].values.at(0).audio;
  CHECK(audio.numbers == std::map<std::uint32_t, double>{{1, 8000}, {2, 1}, {3, 4}});
  CHECK(audio.bytes.at(4) == etude::wav_file(torch::zeros({4, 1}), 8000));
  CHECK(audio.bytes.at(5) == "audio/wav");
  CHECK(is(1, 5, "cat", ""));
  CHECK(is(2, 5, "cat/text_summary", "black"));
  CHECK(is(3, 6, "mew", ""));
  CHECK(is(4, 7, "story/text_summary", "Once"));
}

}  // namespace integrations_tensorboard_summary_writer_test
